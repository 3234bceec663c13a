"""Know training samples again, also if they were rounded, re-encoded, mirrored or renamed.

A run keeps a small trace of each training sample: the thumbnails of an image, or the standardised
row of features. Two samples of different people are never nearer to each other by chance than
others of their neighbourhood are; a copy is. So for every row of features its nearest training row
is found, and its distance divided by the distance from that training row to the next one of another
patient. How often this ratio is small by chance depends on the number of columns and on how coarse
they are; the training rows themselves tell, because they are compared with each other in the same
way. Where rows coincide by chance, as with a few coarse columns, a few copies cannot be told from
it, and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt.data.duplicates import THUMBNAILS, image_hashes, near_across, near_pairs
from srjt.data.manifest import Features, Ints, Manifest
from srjt.data.options import picked, without_none
from srjt.files import load_arrays, save_arrays

Floats = npt.NDArray[np.float64]

TRACES_FILE = "training_traces.npz"
AXES = 32  # wider rows are projected on this many random axes, which keeps the order of distances
# shares of the distance to the next training row: exact up to rounding, or rounded to few digits
COPY = (0.001, 0.01, 0.1)
NEAR = 0.5  # a nearer row is a changed copy, or another image of the same person
CHANCE = 1e-4  # at most this probability that so many are so near by chance
MOST_ROWS = 4_000  # rows of either kind that are compared; of more, a fixed random part
# images with thumbnails of their crops too, which take 1.8 kB; of more, only the whole one
MOST_CROPPED = 5_000
BLOCK = 1 << 22  # distances that are computed at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class Traces:
    """What a run keeps of N training samples. thumbnails: of images. rows: (N, D) of features,
    standardised by ``mean`` and ``scale`` (F,) and projected if there are many."""

    thumbnails: npt.NDArray[np.uint8] | None = None
    rows: Features | None = None
    mean: Floats | None = None
    scale: Floats | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """Which of M samples are copies of training samples, and which are near to one. share: of the
    samples that are at least near, beyond what chance explains."""

    copies: Ints
    near: Ints
    share: float = 0.0


NOTHING = Known(copies=np.empty(0, dtype=np.int64), near=np.empty(0, dtype=np.int64))


def traces_of(samples: Manifest) -> Traces:
    """The traces of training samples."""
    if samples.arrays is None or not samples.are_features:
        thumbs = samples.thumbnails
        if thumbs is None:
            thumbs = image_hashes(samples, near=True).thumbnails
        assert thumbs is not None
        return Traces(thumbnails=thumbs if len(thumbs) <= MOST_CROPPED else thumbs[:, :1])
    values = samples.arrays.astype(np.float64)
    scale = values.std(axis=0)
    traces = Traces(mean=values.mean(axis=0), scale=np.where(scale > 0, scale, np.inf))
    return replace(traces, rows=_standardised(values, traces).astype(np.float32))


def write_traces(folder: Path, traces: Traces) -> None:
    """Write ``training_traces.npz``, if there is something to write."""
    arrays = without_none(vars(traces))
    if arrays:
        save_arrays(folder / TRACES_FILE, arrays)


def read_traces(folder: Path) -> Traces:
    """The traces that a folder keeps; without them, or if they are damaged, only exact copies are
    found."""
    arrays = load_arrays(folder / TRACES_FILE)
    if "thumbnails" in arrays and arrays["thumbnails"].shape[2:] == THUMBNAILS[1:]:
        return Traces(thumbnails=arrays["thumbnails"])
    if {"rows", "mean", "scale"} <= arrays.keys():
        return Traces(**picked(arrays, ("rows", "mean", "scale")))
    return Traces()


def find_copies(traces: Traces, data: Manifest, *, patients: Sequence[str] | None) -> Known:
    """Which of the samples are copies of training samples, or near to one. patients: of the
    training samples."""
    if data.arrays is not None and data.are_features:
        return _copies_of_rows(traces, data, patients)
    if traces.thumbnails is None:
        return NOTHING
    thumbs = data.thumbnails
    if thumbs is None:
        thumbs = image_hashes(data, near=True).thumbnails
    assert thumbs is not None
    near = np.unique(near_across(thumbs, traces.thumbnails)[:, 0])
    if not len(near):
        return NOTHING
    # training images of different people that look the same: then it is no proof of a copy
    pairs = near_pairs(traces.thumbnails)
    codes = _codes(patients, len(traces.thumbnails))
    alike = len(np.unique(pairs[codes[pairs[:, 0]] != codes[pairs[:, 1]]]))
    count = len(traces.thumbnails)
    copies = near
    if alike and not _unlikely(len(near), len(data), (alike + 1) / (count + 2)):
        copies = near[:0]
    return Known(copies=copies, near=near, share=len(near) / len(data))


def _copies_of_rows(traces: Traces, data: Manifest, patients: Sequence[str] | None) -> Known:
    assert data.arrays is not None
    if traces.rows is None or traces.mean is None or traces.scale is None:
        return NOTHING
    if len(traces.mean) != data.arrays.shape[1] or len(traces.rows) < 3:
        return NOTHING
    training = traces.rows.astype(np.float64)
    codes = _codes(patients, len(traces.rows))
    generator = np.random.default_rng(0)
    compared = _part(len(data), generator)
    given = _standardised(data.arrays[compared].astype(np.float64), traces)
    ratios = _ratios(given, training, codes, np.full(len(compared), -1))
    reference = _part(len(training), generator)
    by_chance = _ratios(training[reference], training, codes, codes[reference])
    comparable = by_chance[~np.isnan(by_chance)]
    # rows of one patient are alike: a patient counts once, with a chance for each of the rows
    codes = _codes(data.patients, len(data))[compared]
    owners = np.unique(codes, return_inverse=True)[1].reshape(-1)
    within: dict[float, Ints] = {}  # limit → rows
    for limit in (*COPY, NEAR):
        near = ratios <= limit
        people = np.bincount(owners, weights=near) > 0
        by_person = 1 - (1 - _chance_below(limit, comparable)) ** np.bincount(owners)
        sure = _unlikely(int(people.sum()), len(people), float(by_person.mean()))
        within[limit] = compared[near & sure]
    copies = np.unique(np.concatenate([within[kind] for kind in COPY]))
    near_ones = np.union1d(copies, within[NEAR])
    return Known(copies=copies, near=near_ones, share=len(near_ones) / len(compared))


def _chance_below(limit: float, ratios: Floats) -> float:
    """An upper limit of the probability that a ratio is at most ``limit`` by chance, from M ratios
    by chance.

    Where none of them is so small, their distribution near zero is continued: it is a power of the
    ratio, whose exponent is the number of columns that matter, and 0 where rows coincide.
    """
    from scipy.stats import beta  # type: ignore[import-untyped]

    count = len(ratios)
    hits = int(np.count_nonzero(ratios <= limit))
    if hits == count:
        return 1.0
    upper = float(beta.ppf(0.99, hits + 1, count - hits))
    small = ratios[ratios <= 1.0]
    if hits or len(small) < 10:
        return upper
    logs = -np.log(np.maximum(small, 1e-9))
    exponent = (1 - 2 / np.sqrt(len(small))) / max(float(logs.mean()), 1e-9)
    continued: float = 3 * len(small) / count * limit ** max(exponent, 0.0)
    return min(upper, continued)


def _ratios(rows: Floats, training: Floats, codes: Ints, people: Ints) -> Floats:
    """(M,) the distance of each row to its nearest training row, divided by the distance from there
    to the next one of another patient; nan if these two coincide, as coarse columns do.

    people: (M,) the training patient of each row, whose own rows do not count; −1: none.
    """
    nearest = _nearest(rows, training, np.stack([people, people], axis=1), codes)
    distance = np.linalg.norm(rows - training[nearest], axis=1)
    # the next one is neither of the same patient as the neighbour nor as the row itself
    without = np.stack([codes[nearest], people], axis=1)
    beyond = _nearest(training[nearest], training, without, codes)
    spacing = np.linalg.norm(training[nearest] - training[beyond], axis=1)
    lacking = (beyond < 0) | (nearest < 0) | (spacing <= 1e-6)
    return np.where(lacking, np.nan, distance / np.maximum(spacing, 1e-300))


def _nearest(rows: Floats, training: Floats, without: Ints, codes: Ints) -> Ints:
    """(M,) the nearest training row of each row that is of none of the patients ``without`` (M, 2);
    −1: none."""
    nearest = np.full(len(rows), -1, dtype=np.int64)
    squares = (training**2).sum(axis=1)
    step = max(1, BLOCK // len(training))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        # the squares of the rows themselves change no order
        distances = squares - 2 * rows[part] @ training.T
        for person in without[part].T:
            distances[codes[None, :] == person[:, None]] = np.inf
        best = distances.argmin(axis=1)
        usable = np.isfinite(distances[np.arange(len(best)), best])
        nearest[part] = np.where(usable, best, -1)
    return nearest


def _standardised(values: Floats, traces: Traces) -> Floats:
    """(M, F) → (M, D) with the scale of the training rows; constant columns say nothing and become
    0."""
    assert traces.mean is not None
    assert traces.scale is not None
    scaled = (values - traces.mean) / traces.scale
    if scaled.shape[1] <= AXES:
        return np.asarray(scaled, dtype=np.float64)
    axes = np.random.default_rng(0).standard_normal((scaled.shape[1], AXES)) / np.sqrt(AXES)
    return np.asarray(scaled @ axes, dtype=np.float64)


def _codes(names: Sequence[str] | None, count: int) -> Ints:
    """(N,) a number per patient; without patients every sample is one."""
    if names is None or len(names) != count:
        return np.arange(count)
    return (
        np.unique(np.array(names, dtype=object), return_inverse=True)[1]
        .reshape(-1)
        .astype(np.int64)
    )


def _part(count: int, generator: np.random.Generator) -> Ints:
    if count <= MOST_ROWS:
        return np.arange(count)
    return np.sort(generator.choice(count, MOST_ROWS, replace=False))


def _unlikely(hits: int, trials: int, chance: float) -> bool:
    """Whether so many hits are more than chance explains."""
    from scipy.stats import binom

    return hits > 0 and bool(binom.sf(hits - 1, trials, chance) < CHANCE)
