"""How well each reader is known: intervals of the matrices, biases and noise rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
from scipy.special import ndtri, softmax  # type: ignore[import-untyped]

from srjt.noise.verified import beta_interval
from srjt.readers.model import Fit, refit
from srjt.readers.readings import Evidence, Floats, Ints
from srjt.readers.variants import Variants

_READINGS = (
    40_000  # about as many readings are looked at; more of a reader are represented by these
)
_DRAWS = 10  # of resampled patients
_MOST_ITEMS = 5000  # in a draw
_MOST_READERS = 200


@dataclass(frozen=True, kw_only=True)
class ReaderIntervals:
    """How each reader reads."""

    matrices: Floats  # (R, C, C) Pr(reading | true grade)
    matrices_interval: Floats  # (2, R, C, C)
    bias: Floats  # (R,) grades by which a reader reads higher than the truth
    bias_interval: Floats  # (2, R)
    spread: Floats  # (R,) standard deviation of a reader's severity, in grades
    noise_rate: Floats  # (R,) share of a reader's grades that are wrong
    noise_rate_interval: Floats  # (2, R)
    overall_noise_rate: float  # of all readings
    overall_noise_rate_interval: tuple[float, float]


class _Resampled(NamedTuple):
    """Variances of what the readings say, over other draws of the patients."""

    matrices: Floats  # (R, C, C)
    rate: Floats  # (R,)
    bias: Floats  # (R,)
    overall: float


def reader_intervals(
    variants: Variants, *, share: Floats, determined: bool, confidence: float
) -> ReaderIntervals:
    """Intervals of each reader's matrix, bias and noise rate.

    Three parts of doubt are added: of the reader given the consensus (``_moments``), of the
    consensus given the variant of the model (``_resampled``), and between the variants.

    share : (R,) of each reader among the readings
    """
    evidence = variants.evidence
    repeated = [design_effect(evidence, fit.posterior, fit.by_grade) for fit in variants.fits]
    both = list(zip(variants.fits, repeated, strict=True))
    types = [_types_given_others(evidence, fit, times=times) for fit, times in both]
    moments = [_moments(evidence, *one, by) for one, by in zip(both, types, strict=True)]
    by_fit, variances, rates, rate_variances = zip(*moments, strict=True)
    matrices, matrices_variance = _mix(variants.weights, by_fit, variances)
    rate, rate_variance = _mix(variants.weights, rates, rate_variances)
    # What all readers have in common is not averaged away where nothing fixes it.
    each = np.sqrt(rate_variances)  # (V, R)
    together = np.sqrt(each**2 @ share**2) if determined else each @ share
    overall, overall_variance = _mix(
        variants.weights, np.array([one @ share for one in rates]), together**2
    )
    drawn = _resampled(evidence, variants.fits[0], share=share)
    low, high = beta_interval(overall, overall_variance + drawn.overall, confidence=confidence)
    rate_interval = beta_interval(rate, rate_variance + drawn.rate, confidence=confidence)
    matrices_interval = beta_interval(
        matrices, matrices_variance + drawn.matrices, confidence=confidence
    )
    if determined and not (apart := evidence.told_apart()).all():
        # either of two may be the one who is right: nothing wrong, or all that differs
        differ, items = evidence.disagreement()
        variance = differ * (1.0 - differ) * repeated[0] / np.maximum(items, 1.0)
        most = np.where(apart, 0.0, beta_interval(differ, variance, confidence=confidence)[1])
        rate_interval = np.stack(
            [np.where(apart, rate_interval[0], 0.0), np.maximum(rate_interval[1], most)]
        )
        right = np.eye(evidence.classes, dtype=bool)
        most = most[:, None, None]
        ends = np.where(right, 1.0 - most, 0.0), np.where(right, 1.0, most)
        wider = np.minimum(matrices_interval[0], ends[0]), np.maximum(matrices_interval[1], ends[1])
        matrices_interval = np.where(apart[:, None, None], matrices_interval, wider)
    family = variants.fits[0].family
    mixed = np.einsum("v,vrt->rt", variants.weights, types)
    bias = mixed @ family.bias
    tail = (1.0 - confidence) / 2.0
    halves = np.abs(_quantiles(mixed, family.bias, (tail, 1.0 - tail)) - bias)
    # joined by an independent doubt
    off = np.hypot(halves, ndtri(1.0 - tail) * np.sqrt(drawn.bias))
    return ReaderIntervals(
        matrices=matrices,
        matrices_interval=matrices_interval,
        bias=bias,
        bias_interval=np.stack([bias - off[0], bias + off[1]]),
        spread=np.exp(mixed @ np.log(family.spread)),
        noise_rate=rate,
        noise_rate_interval=rate_interval,
        overall_noise_rate=float(overall),
        overall_noise_rate_interval=(float(low), float(high)),
    )


def design_effect(evidence: Evidence, posterior: Floats, matrices: Floats) -> Floats:
    """(R,) the factor by which a reader's readings are fewer than they seem, because those of a
    patient err together.

    1 + ρ(m − 1), with m the mean number of readings by patient, seen from a reading, and ρ the
    correlation of two readings of a patient by the same reader in being wrong. ρ is of all readers:
    one alone has too few pairs.

    posterior: (I, C) p(true grade). matrices: (R, C, C) Pr(reading | true grade).
    """
    if evidence.patient is None:
        return np.ones(evidence.readers)
    said = evidence.said.tocoo()
    reader, grade = np.divmod(said.col, evidence.classes)
    wrong = 1.0 - np.diagonal(matrices, axis1=1, axis2=2)  # (R, C)
    expected = np.einsum("mc,mc->m", posterior[said.row], wrong[reader])
    off = said.data * (1.0 - posterior[said.row, grade] - expected)
    visit = evidence.patient[said.row].astype(np.int64) * evidence.readers + reader
    pair, place = np.unique(visit, return_inverse=True)
    size = np.bincount(place, said.data)
    together = float((np.bincount(place, off) ** 2).sum() - (off**2).sum())
    alone = float((off**2).sum() / (said.data**2).sum())  # variance of one reading
    possible = alone * float((size**2).sum() - (said.data**2).sum())
    correlation = min(max(together / possible, 0.0), 1.0) if possible > 0 else 0.0
    owner = pair % evidence.readers
    total = np.bincount(owner, size, minlength=evidence.readers)
    mean = np.bincount(owner, size**2, minlength=evidence.readers) / np.maximum(total, 1e-12)
    return np.asarray(1.0 + correlation * np.maximum(mean - 1.0, 0.0))


def _mix(weights: Floats, means: ArrayLike, variances: ArrayLike) -> tuple[Floats, Floats]:
    """Mean and variance of a mixture."""
    each = np.asarray(means)
    mean = np.tensordot(weights, each, axes=1)
    return mean, np.tensordot(weights, np.asarray(variances) + (each - mean) ** 2, axes=1)


def _moments(evidence: Evidence, fit: Fit, times: Floats, types: Floats) -> tuple[Floats, ...]:
    """The matrices (R, C, C) and their variance, the rates (R,) and theirs, as if the fit of the
    others were exact.

    From the types' probabilities (R, T), and the Dirichlet distributions of the deviations from the
    family. The types are weighted by the likelihood of a reader's readings given the *other*
    readings of the items. So where nothing else is known of the items, the interval is as wide as
    the population of readers.

    times : (R,) readings that count as one
    """
    matrices = fit.by_grade
    by_type = np.einsum("tsj,sc->tcj", fit.family.matrices, fit.within)
    size = np.asarray(evidence.said.T @ fit.posterior**2).reshape(len(types), -1, evidence.classes)
    # of the Dirichlet
    deviation = fit.deviation(size.sum(axis=1) / times[:, None])[:, :, None]
    variance = _variance(types, by_type.reshape(len(by_type), -1)).reshape(matrices.shape)
    variance += matrices * (1.0 - matrices) * deviation
    wrong = 1.0 - np.diagonal(matrices, axis1=1, axis2=2)  # (R, C)
    wrong_by_type = 1.0 - np.diagonal(by_type, axis1=1, axis2=2) @ fit.grades
    rate_variance = _variance(types, wrong_by_type[:, None])[:, 0]
    rate_variance += (fit.grades**2 * wrong * (1.0 - wrong) * deviation[:, :, 0]).sum(axis=1)
    return matrices, variance, wrong @ fit.grades, rate_variance


def _resampled(evidence: Evidence, fit: Fit, *, share: Floats) -> _Resampled:
    """Variances over fits to patients drawn with replacement, each with all items.

    The variance falls with the number of patients; of very many items draws are smaller. With very
    many readers nothing is drawn: it would take long, and what is not known of a reader with a few
    readings is far more.
    """
    if evidence.readers > _MOST_READERS or not _DRAWS:
        nothing = np.zeros(evidence.readers)
        return _Resampled(np.zeros_like(fit.counts), nothing, nothing, 0.0)
    rng = np.random.Generator(np.random.PCG64(0))
    items = np.arange(evidence.said.shape[0])
    patient = (
        items if evidence.patient is None else np.unique(evidence.patient, return_inverse=True)[1]
    )
    members = csr_matrix((np.ones(len(items)), (patient, items)))
    patients = members.shape[0]
    size = max(1, min(patients, _MOST_ITEMS * patients // len(items)))
    fits = [
        refit(evidence, fit, members[rng.integers(patients, size=size)].indices)
        for _ in range(_DRAWS)
    ]
    rates = np.array(
        [(1.0 - np.diagonal(each.by_grade, axis1=1, axis2=2)) @ each.grades for each in fits]
    )
    scale = size / patients
    return _Resampled(
        scale * np.var([each.by_grade for each in fits], axis=0, ddof=1),
        scale * np.var(rates, axis=0, ddof=1),
        scale * np.var([each.types @ each.family.bias for each in fits], axis=0, ddof=1),
        scale * float(np.var(rates @ share, ddof=1)),
    )


def _types_given_others(evidence: Evidence, fit: Fit, *, times: Floats) -> Floats:
    """(R, T) probabilities of the types by the likelihood Σ_s p(s | other readings) F_t(reading |
    s).

    Several readings of an item by the same reader that weigh as one are no other readings: all are
    left out.

    times : (R,) readings that count as one
    """
    said = evidence.comparable.tocoo()
    classes = evidence.classes
    columns = fit.columns
    reader, grade = np.divmod(said.col, classes)
    _, pair = np.unique(said.row.astype(np.int64) * evidence.readers + reader, return_inverse=True)
    by_pair = csr_matrix(
        (said.data, (pair, said.col)), shape=(pair.max(initial=-1) + 1, said.shape[1])
    )
    independent = np.asarray(by_pair.sum(axis=1)).ravel() > 1.0 + 1e-9
    chosen = _at_most(reader, max(20, _READINGS // evidence.readers))
    log = np.zeros((evidence.readers, len(fit.family.bias)))
    used = np.bincount(reader[chosen], said.data[chosen], minlength=evidence.readers)
    scale = np.bincount(reader, said.data, minlength=evidence.readers) / np.maximum(used, 1e-12)
    for start in range(0, len(chosen), 5000):
        part = chosen[start : start + 5000]
        items, place = np.unique(said.row[part], return_inverse=True)
        left_out = np.where(
            independent[pair[part], None], columns[said.col[part]], by_pair[pair[part]] @ columns
        )
        others = fit.by_state(evidence, items)[place] / np.exp(left_out)
        others /= others.sum(axis=1, keepdims=True)
        for one in range(classes):
            rows = np.flatnonzero(grade[part] == one)
            likelihood = np.log(others[rows] @ fit.family.matrices[:, :, one].T)  # (n, T)
            weight = (said.data[part][rows], (reader[part][rows], np.arange(len(rows))))
            log += csr_matrix(weight, shape=(evidence.readers, len(rows))) @ likelihood
    log = log * (scale / times)[:, None] + fit.log_prior
    return np.asarray(softmax(log, axis=1))


def _at_most(owner: NDArray[np.generic], most: int) -> Ints:
    """The places of at most this many entries of each owner, drawn at random."""
    mixed = np.random.Generator(np.random.PCG64(0)).permutation(len(owner))
    order = mixed[np.argsort(owner[mixed], kind="stable")]
    first = np.searchsorted(owner[order], owner[order], side="left")
    return np.sort(order[np.arange(len(order)) - first < most])


def _variance(types: Floats, values: Floats) -> Floats:
    """(R, K) variance of values (T, K) under each reader's probabilities of the types (R, T)."""
    return np.maximum(types @ values**2 - (types @ values) ** 2, 0.0)


def _quantiles(types: Floats, values: Floats, tails: tuple[float, float]) -> Floats:
    """(2, R) quantiles of the values (T,) of a grid, whose steps are smoothed linearly."""
    grid, index = np.unique(values, return_inverse=True)
    mass = types @ np.eye(len(grid))[index]
    half = np.diff(grid).max() / 2.0
    below = np.cumsum(mass, axis=1) - mass / 2.0
    ends = np.stack([[np.interp(tail, row, grid) for row in below] for tail in tails])
    return np.asarray(ends + np.array([[-half], [half]]))
