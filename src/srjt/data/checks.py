"""Check the images and patients of a manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from srjt.data.duplicates import UNKNOWN, Ints, identical, near_pairs
from srjt.data.groups import across_patients
from srjt.data.images.decode import EMPTY_FILE, BadImageError, read_image
from srjt.data.images.hashes import HASHED_SIZE, image_hashes
from srjt.data.manifest import Manifest
from srjt.data.problems import Problem
from srjt.data.sources.hints import no_image_exists
from srjt.errors import SrjtError, count_of
from srjt.files import NOT_A_FILE, why_not_a_file

__all__ = ["SAMPLED", "Examination", "check", "examine", "image_problem", "image_sizes"]

SAMPLED = 500  # images whose size is looked up

Progress = Callable[[int, int], None]


def check(
    manifest: Manifest,
    *,
    folds: int = 5,
    images: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Problem]:
    """Find missing, unreadable, identical and nearly identical images, unknown patients and grades with few patients.

    Parameters
    ----------
    manifest : Manifest
        The samples to check.
    folds : int
        A grade with fewer patients than this is reported.
    images : bool
        Decode every image that has changed since the last time. ``False`` checks only the patients.
    workers : int, optional
        Number of decoding threads. Default: one per core, at most 32.
    progress : callable, optional
        Called with (images done, images in all).

    Returns
    -------
    list of Problem
        All problems, in the order of the samples.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32)
    >>> srjt.data.check(data)
    []
    """
    return examine(manifest, folds=folds, images=images, workers=workers, progress=progress).problems


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What ``examine`` finds: all problems, and (M, 2) pairs of rows with identical or nearly identical images."""

    problems: list[Problem]
    pairs: Ints


def examine(
    manifest: Manifest,
    *,
    folds: int = 5,
    images: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Examination:
    """``check``, which also returns the pairs of images, contradictory ones first."""
    problems: list[Problem] = []
    pairs: Ints = np.empty((0, 2), dtype=np.int64)
    if images:
        found = image_hashes(manifest, near=True, workers=workers, progress=progress)
        if manifest.arrays is None:
            unknown = np.flatnonzero((found.pixels == UNKNOWN).all(axis=1)).tolist()
            ids, paths = manifest.ids, manifest.paths
            problems = [problem for row in unknown if (problem := _file_problem(ids[row], paths[row]))]
        if len(manifest) and [p.kind for p in problems] == ["missing-image"] * len(manifest):
            raise SrjtError(no_image_exists(manifest))
        code = identical(found.pixels)
        near = across_patients(manifest, _near_pairs(code, found.thumbnails))
        pairs = np.concatenate([_identical_pairs(manifest, code), near])
        problems += [*_identical(manifest, code), *_nearly_identical(manifest, near)]
    return Examination(problems=problems + _few_patients(manifest, folds), pairs=pairs)


def image_sizes(manifest: Manifest, *, sample: int = SAMPLED) -> list[tuple[int, int]]:
    """(width, height) of up to ``sample`` images, evenly spaced over the manifest; unreadable files are left out."""
    if manifest.are_features:
        return []
    if manifest.arrays is not None:
        return [(manifest.arrays.shape[2], manifest.arrays.shape[1])] * len(manifest)
    paths = manifest.paths[:: max(1, -(-len(manifest) // sample))]
    return [size for path in paths if (size := _size(path)) is not None]


def _file_problem(sample: str, path: Path) -> Problem | None:
    """Why an image cannot be read; None if it can be."""
    try:
        read_image(path, size=HASHED_SIZE)
    except BadImageError as problem:
        found = image_problem(sample, problem.reason)
        return found if found.kind == "unreadable-image" else replace(found, detail=f"{path}: {found.detail}")
    return None


def image_problem(sample: str, reason: str) -> Problem:
    """The problem of an image that cannot be read, by the ``reason`` of its ``BadImageError``."""
    if reason in NOT_A_FILE:
        return Problem("missing-image", sample, reason)
    return Problem("empty-image" if reason == EMPTY_FILE else "unreadable-image", sample, reason)


def _identical(manifest: Manifest, code: Ints) -> list[Problem]:
    what = "features" if manifest.are_features else "pixels"
    problems = []
    for rows in _identical_rows(code):
        kind = "identical-images-other-grade" if _contradict(manifest, rows) else "identical-images"
        problems.append(Problem(kind, manifest.ids[rows[0]], _compared(manifest, rows, f"same {what} as")))
    return problems


def _nearly_identical(manifest: Manifest, pairs: Ints) -> list[Problem]:
    return [
        Problem(
            "near-duplicates", manifest.ids[rows[0]], _compared(manifest, rows, "nearly the same image as")
        )
        for rows in pairs.tolist()
    ]


def _compared(manifest: Manifest, rows: list[int], relation: str) -> str:
    """In words: what the first row has in common with the others, and where they contradict each other."""
    ids, labels, patients = manifest.ids, manifest.labels, manifest.patients
    detail = f"{relation} " + ", ".join(ids[row] for row in rows[1:])
    if _contradict(manifest, rows):
        detail += "; grades " + " and ".join(
            manifest.grades[g] for g in sorted({int(labels[r]) for r in rows})
        )
    if patients is not None and len({patients[row] for row in rows}) > 1:
        detail += "; patients " + " and ".join(sorted({patients[row] for row in rows}))
    return detail


def _contradict(manifest: Manifest, rows: list[int]) -> bool:
    return len(set(manifest.labels[rows].tolist())) > 1


def _identical_rows(code: Ints) -> list[list[int]]:
    """The rows of each image that occurs more than once, in the order of their first rows."""
    groups: dict[int, list[int]] = {}
    for row, image in enumerate(code.tolist()):
        groups.setdefault(image, []).append(row)
    return [rows for rows in groups.values() if len(rows) > 1]


def _identical_pairs(manifest: Manifest, code: Ints) -> Ints:
    """(M, 2) the first and each other row of identical images, those with different grades first."""
    groups = sorted(_identical_rows(code), key=lambda rows: not _contradict(manifest, rows))
    pairs = [(rows[0], other) for rows in groups for other in rows[1:]]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _near_pairs(code: Ints, thumbs: npt.NDArray[np.uint8] | None) -> Ints:
    """(M, 2) nearly identical images that are not identical; of identical ones only the first is compared."""
    if thumbs is None:  # rows of features
        return np.empty((0, 2), dtype=np.int64)
    _, first = np.unique(code, return_index=True)
    first = np.sort(first)
    return np.asarray(first[near_pairs(thumbs[first])], dtype=np.int64)


def _few_patients(manifest: Manifest, folds: int) -> list[Problem]:
    patients = manifest.patients
    problems = []
    if patients is None:
        problems.append(Problem("missing-patient", "all samples", "the source has no patient column"))
    owners = np.array(manifest.ids if patients is None else patients, dtype=object)
    unit = "sample" if patients is None else "patient"
    for grade, name in enumerate(manifest.grades):
        count = len(set(owners[manifest.labels == grade]))
        if count < folds:
            problems.append(
                Problem("few-patients", f"grade {name}", f"{count_of(count, unit)} for {folds} folds")
            )
    return problems


def _size(path: Path) -> tuple[int, int] | None:
    if why_not_a_file(path) is not None:
        return None
    try:
        with Image.open(path) as image:  # reads only the header
            return image.size
    except Exception:  # not a format of Pillow, damaged, or larger than it allows
        pass
    try:
        height, width, _ = read_image(path).shape
    except SrjtError:
        return None
    return width, height
