"""How sure a consensus is: intervals of everything that it says of the readers, from resampled items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
from scipy.special import betaincinv, ndtri  # type: ignore[import-untyped]

from srjt.readers.model import ENOUGH, Evidence, Fit, Variants, log_columns, refit, state_posterior

# How many readings of a patient's items count as one: the design effect of readings that err together.

Floats = npt.NDArray[np.float64]


def design_effect(evidence: Evidence, posterior: Floats, matrices: Floats) -> Floats:
    """The factor by which a reader's readings are fewer than they seem.

    1 + ρ(m − 1), with m the mean number of readings by patient, seen from a reading, and ρ the correlation of two
    readings of a patient by the same reader in being wrong. ρ is of all readers: one alone has too few pairs.

    Parameters
    ----------
    evidence : Evidence
    posterior : (I, C) array of float
        p(true grade) of each item.
    matrices : (R, C, C) array of float
        Pr(reading | true grade) of each reader.

    Returns
    -------
    (R,) array of float
        1 where each item is a patient of its own, or where the errors within a patient are independent.
    """
    if evidence.patient is None:
        return np.ones(evidence.readers)
    said = evidence.said.tocoo()
    reader, grade = np.divmod(said.col, evidence.classes)
    wrong = 1.0 - np.diagonal(matrices, axis1=1, axis2=2)  # (R, C)
    expected = np.einsum("mc,mc->m", posterior[said.row], wrong[reader])
    off = said.data * (1.0 - posterior[said.row, grade] - expected)
    pair, place = np.unique(
        evidence.patient[said.row].astype(np.int64) * evidence.readers + reader, return_inverse=True
    )
    size = np.bincount(place, said.data)
    together = float((np.bincount(place, off) ** 2).sum() - (off**2).sum())
    alone = float((off**2).sum() / (said.data**2).sum())  # variance of one reading
    possible = alone * float((size**2).sum() - (said.data**2).sum())
    correlation = min(max(together / possible, 0.0), 1.0) if possible > 0 else 0.0
    owner = pair % evidence.readers
    total = np.bincount(owner, size, minlength=evidence.readers)
    mean = np.bincount(owner, size**2, minlength=evidence.readers) / np.maximum(total, 1e-12)
    return np.asarray(1.0 + correlation * np.maximum(mean - 1.0, 0.0))


# What two readings of an item cannot tell, and no number of readings: who is right, and what misleads everybody.


def told_apart(evidence: Evidence) -> npt.NDArray[np.bool_]:
    """Whether the readings, or a reference, tell a reader's errors from those of the others.

    Of two readers who disagree either may be right. Third readings of 20 of a reader's items tell, or of all of them,
    and so do independent readings by one reader, as by a crowd. Several readers in pairs tell something: not enough
    for an interval that holds (``benchmarks/readers.py simulated --counts 2``).

    Returns
    -------
    (R,) array of bool
    """
    if evidence.anchored:
        return np.ones(evidence.readers, dtype=bool)
    said = evidence.said.tocoo()
    shape = (said.shape[0], evidence.readers)
    read = csr_matrix((said.data, (said.row, said.col // evidence.classes)), shape=shape)
    read.sum_duplicates()
    third = np.asarray(read.sum(axis=1)).ravel()[read.nonzero()[0]] > 2.5
    reader, again = read.nonzero()[1], read.data > 1.5
    items = np.bincount(reader, minlength=evidence.readers)
    telling = np.bincount(reader, third | again, minlength=evidence.readers)
    return np.asarray(telling >= np.clip(items, 1, ENOUGH))


def disagreement(evidence: Evidence) -> tuple[Floats, Floats]:
    """Of each reader (R,): the share of other readings of the same items that differ, and on how many items."""
    said = evidence.said.tocoo()
    reader, grade = np.divmod(said.col, evidence.classes)
    votes = (evidence.said @ _per_grade(evidence)).toarray()
    _, place = np.unique(said.row.astype(np.int64) * evidence.readers + reader, return_inverse=True)
    own = np.bincount(place, said.data)[place]
    others = votes.sum(axis=1)[said.row] - own
    several = others > 1e-9
    same = (votes[said.row, grade] - said.data)[several] / others[several]
    weight = said.data[several] / own[several]
    items = np.bincount(reader[several], weight, minlength=evidence.readers)
    differ = np.bincount(reader[several], weight * (1.0 - same), minlength=evidence.readers)
    return differ / np.maximum(items, 1e-12), items.astype(np.float64)


def _per_grade(evidence: Evidence) -> csr_matrix:
    """(R·C, C) sums over the readers."""
    columns = np.arange(evidence.readers * evidence.classes)
    return csr_matrix((np.ones(len(columns)), (columns, columns % evidence.classes)))


def with_shared_errors(
    intervals: ReaderIntervals, grades: Floats, *, share: Floats, amount: float
) -> ReaderIntervals:
    """What holds of the true grade if something misleads all readers of an item alike, as it misleads one of them.

    The model's true grade is what the readers see in an item. Given the true grade they see another one with ``amount``
    times the probabilities of their mean matrix. No reading tells how often; so the intervals reach from never
    to as often as one reader errs alone.

    Parameters
    ----------
    intervals : ReaderIntervals
    grades : (C,) array of float
        Shares of the true grades.
    share : (R,) array of float
        Of each reader among the readings.
    amount : float
        0 to 1.
    """
    if amount == 0.0:
        return intervals
    mean = np.einsum("r,rcj->cj", share, intervals.matrices)
    matrices = np.einsum("ca,raj->rcj", seen(mean, amount), intervals.matrices)
    low, high = intervals.matrices_interval
    most = np.einsum("ca,eraj->ercj", mean, intervals.matrices_interval)
    rate = 1.0 - np.diagonal(matrices, axis1=1, axis2=2) @ grades
    misled = intervals.overall_interval[1]
    return replace(
        intervals,
        matrices=matrices,
        matrices_interval=np.stack([np.minimum(low, most[0]), np.maximum(high, most[1])]),
        rate=rate,
        rate_interval=np.stack(
            [intervals.rate_interval[0], 1.0 - (1.0 - intervals.rate_interval[1]) * (1.0 - misled)]
        ),
        overall=float(rate @ share),
        overall_interval=(intervals.overall_interval[0], 1.0 - (1.0 - misled) ** 2),
    )


def seen(mean: Floats, amount: float) -> Floats:
    """(C, C) Pr(what all readers see | true grade)"""
    return np.asarray((1.0 - amount) * np.eye(len(mean)) + amount * mean)


def true_given_seen(mean: Floats, amount: float) -> Floats:
    """(C, C) Pr(true grade | what all readers see), for grades that are as frequent: an error has no direction."""
    given_true = seen(mean, amount)
    return np.asarray((given_true / given_true.sum(axis=0)).T)


# How well each reader is known: intervals of the matrices, biases and noise rates.

_READINGS = 40_000  # about as many readings are looked at; more of a reader are represented by these
_DRAWS = 10  # of resampled patients
_MOST_ITEMS = 5000  # in a draw
_MOST_READERS = 200


@dataclass(frozen=True, kw_only=True)
class ReaderIntervals:
    matrices: Floats  # (R, C, C)
    matrices_interval: Floats  # (2, R, C, C)
    bias: Floats  # (R,) in grades, of the family
    bias_interval: Floats  # (2, R)
    spread: Floats  # (R,)
    rate: Floats  # (R,) share of wrong readings
    rate_interval: Floats  # (2, R)
    overall: float  # share of wrong readings of all readers
    overall_interval: tuple[float, float]


class _Moments(NamedTuple):
    """What one fit says of the readers, with variances as if the fit of the others were exact."""

    matrices: Floats  # (R, C, C)
    matrices_variance: Floats
    rate: Floats  # (R,)
    rate_variance: Floats


class _Resampled(NamedTuple):
    """Variances of what the readings say, over other draws of the patients."""

    matrices: Floats  # (R, C, C)
    rate: Floats  # (R,)
    bias: Floats  # (R,)
    overall: float


def reader_intervals(
    evidence: Evidence, variants: Variants, *, share: Floats, determined: bool, confidence: float
) -> ReaderIntervals:
    """Intervals of each reader's matrix, bias and noise rate.

    Three parts of doubt are added: of the reader given the consensus (``_moments``), of the consensus given the variant
    of the model (``_resampled``), and between the variants.

    share : (R,) of each reader among the readings
    """
    repeated = [design_effect(evidence, fit.posterior, _by_grade(fit)) for fit in variants.fits]
    types = [
        _types_given_others(evidence, fit, times=times)
        for fit, times in zip(variants.fits, repeated, strict=True)
    ]
    moments = [
        _moments(evidence, fit, own, times=times)
        for fit, own, times in zip(variants.fits, types, repeated, strict=True)
    ]
    mixed = np.einsum("v,vrt->rt", variants.weights, types)
    matrices, matrices_variance = _mix(
        variants.weights, [one.matrices for one in moments], [one.matrices_variance for one in moments]
    )
    rate, rate_variance = _mix(
        variants.weights, [one.rate for one in moments], [one.rate_variance for one in moments]
    )
    drawn = _resampled(evidence, variants.fits[0], share=share)
    tails = ((1.0 - confidence) / 2.0, 1.0 - (1.0 - confidence) / 2.0)
    family = variants.fits[0].family
    bias = mixed @ family.bias
    # What all readers have in common is not averaged away where nothing fixes it.
    each = np.sqrt([one.rate_variance for one in moments])  # (V, R)
    own = each @ share if not determined else np.sqrt(each**2 @ share**2)
    overall, overall_variance = _mix(
        variants.weights, [np.array(one.rate @ share) for one in moments], [np.array(one) for one in own**2]
    )
    low, high = beta_interval(overall, overall_variance + drawn.overall, confidence=confidence)
    rate_interval = beta_interval(rate, rate_variance + drawn.rate, confidence=confidence)
    matrices_interval = beta_interval(matrices, matrices_variance + drawn.matrices, confidence=confidence)
    if determined and not (apart := told_apart(evidence)).all():
        # either of two may be the one who is right: nothing wrong, or all that differs
        differ, items = disagreement(evidence)
        variance = differ * (1.0 - differ) * repeated[0] / np.maximum(items, 1.0)
        most = np.where(apart, 0.0, beta_interval(differ, variance, confidence=confidence)[1])
        right = np.eye(evidence.classes, dtype=bool)
        rate_interval = np.stack([np.where(apart, rate_interval[0], 0.0), np.maximum(rate_interval[1], most)])
        lowest = np.where(right, 1.0 - most[:, None, None], 0.0)
        highest = np.where(right, 1.0, most[:, None, None])
        both = np.stack([np.minimum(matrices_interval[0], lowest), np.maximum(matrices_interval[1], highest)])
        matrices_interval = np.where(apart[:, None, None], matrices_interval, both)
    return ReaderIntervals(
        matrices=matrices,
        matrices_interval=matrices_interval,
        bias=bias,
        bias_interval=_widened(
            bias,
            _quantiles(mixed, family.bias, tails),
            ndtri(tails[1]) * np.sqrt(drawn.bias),
        ),
        spread=np.exp(mixed @ np.log(family.spread)),
        rate=rate,
        rate_interval=rate_interval,
        overall=float(overall),
        overall_interval=(float(low), float(high)),
    )


def _mix(weights: Floats, means: list[Floats], variances: list[Floats]) -> tuple[Floats, Floats]:
    """Mean and variance of a mixture."""
    mean = np.tensordot(weights, means, axes=1)
    return mean, np.tensordot(weights, np.array(variances) + (np.array(means) - mean) ** 2, axes=1)


def _moments(evidence: Evidence, fit: Fit, types: Floats, *, times: Floats) -> _Moments:
    """From the types' probabilities (R, T), and the Dirichlet distributions of the deviations from the family.

    times : (R,) readings that count as one
    The types are weighted by the likelihood of a reader's readings given the *other* readings of the items. So where
    nothing else is known of the items, the interval is as wide as the population of readers.
    """
    within = _within(fit)
    matrices = _by_grade(fit)
    by_type = np.einsum("tsj,sc->tcj", fit.family.matrices, within)
    size = (
        np.asarray(evidence.said.T @ fit.posterior**2).reshape(len(types), -1, evidence.classes).sum(axis=1)
    )
    own = 1.0 / (fit.strength + (size / times[:, None])[:, :, None] + 1.0)  # of the Dirichlet distribution
    variance = _variance(types, by_type.reshape(len(by_type), -1)).reshape(matrices.shape)
    variance += matrices * (1.0 - matrices) * own
    wrong = 1.0 - np.diagonal(matrices, axis1=1, axis2=2)  # (R, C)
    wrong_by_type = 1.0 - np.diagonal(by_type, axis1=1, axis2=2) @ fit.grades
    rate_variance = _variance(types, wrong_by_type[:, None])[:, 0]
    rate_variance += (fit.grades**2 * wrong * (1.0 - wrong) * own[:, :, 0]).sum(axis=1)
    return _Moments(matrices, variance, wrong @ fit.grades, rate_variance)


def _within(fit: Fit) -> Floats:
    """(S, C) p(state | grade)"""
    within = fit.states.prior(fit.grades, fit.kinds)[:, None] * fit.states.of_grade
    return np.asarray(within / within.sum(axis=0))


def _by_grade(fit: Fit) -> Floats:
    """(R, C, C) Pr(reading | true grade)"""
    return np.asarray(np.einsum("rsj,sc->rcj", fit.matrices, _within(fit)))


def _resampled(evidence: Evidence, fit: Fit, *, share: Floats) -> _Resampled:
    """Variances over fits to patients drawn with replacement, each with all items.

    The variance falls with the number of patients; of very many items draws are smaller. With very many readers nothing
    is drawn: it would take long, and what is not known of a reader with a few readings is far more.
    """
    rng = np.random.Generator(np.random.PCG64(0))
    items = evidence.said.shape[0]
    of_patient = _items_of(evidence)
    patients = of_patient.shape[0]
    size = max(1, min(patients, _MOST_ITEMS * patients // items))
    matrices, rates, biases = [], [], []
    for _ in range(_DRAWS if evidence.readers <= _MOST_READERS else 0):
        rows = of_patient[rng.integers(patients, size=size)].indices
        own = refit(evidence, fit, rows)
        matrices.append(_by_grade(own))
        rates.append((1.0 - np.diagonal(matrices[-1], axis1=1, axis2=2)) @ own.grades)
        biases.append(own.types @ own.family.bias)
    if not rates:
        nothing = np.zeros(evidence.readers)
        return _Resampled(np.zeros_like(fit.counts), nothing, nothing, 0.0)
    scale = size / patients
    return _Resampled(
        scale * np.var(matrices, axis=0, ddof=1),
        scale * np.var(rates, axis=0, ddof=1),
        scale * np.var(biases, axis=0, ddof=1),
        scale * float(np.var(np.array(rates) @ share, ddof=1)),
    )


def _items_of(evidence: Evidence) -> csr_matrix:
    """(patients, I) whose item each is."""
    items = np.arange(evidence.said.shape[0])
    patient = items if evidence.patient is None else np.unique(evidence.patient, return_inverse=True)[1]
    return csr_matrix((np.ones(len(items)), (patient, items)))


def _widened(middle: Floats, ends: Floats, more: Floats) -> Floats:
    """(2, R) ends of an interval whose halves are joined by another independent doubt (R,)."""
    return np.stack([middle - np.hypot(middle - ends[0], more), middle + np.hypot(ends[1] - middle, more)])


def beta_interval(mean: Floats, variance: Floats, *, confidence: float) -> Floats:
    """(2, …) lower and upper ends of beta distributions with these moments; they hold the mean."""
    inside = np.clip(mean, 1e-9, 1.0 - 1e-9)
    size = np.maximum(inside * (1.0 - inside) / np.maximum(variance, 1e-12) - 1.0, 1e-3)
    tail = (1.0 - confidence) / 2.0
    ends = np.stack([betaincinv(inside * size, (1.0 - inside) * size, q) for q in (tail, 1.0 - tail)])
    ends = np.where(np.isfinite(ends), ends, mean)
    return np.stack([np.minimum(ends[0], mean), np.maximum(ends[1], mean)])


def _types_given_others(evidence: Evidence, fit: Fit, *, times: Floats) -> Floats:
    """(R, T) probabilities of the types by the likelihood Σ_s p(s | other readings) F_t(reading | s).

    Several readings of an item by the same reader that weigh as one are no other readings: all are left out.

    times : (R,) readings that count as one
    """
    said = evidence.comparable.tocoo()
    classes = evidence.classes
    reader, grade = np.divmod(said.col, classes)
    _, pair = np.unique(said.row.astype(np.int64) * evidence.readers + reader, return_inverse=True)
    own = csr_matrix((said.data, (pair, said.col)), shape=(pair.max(initial=-1) + 1, said.shape[1]))
    independent = np.asarray(own.sum(axis=1)).ravel() > 1.0 + 1e-9
    chosen = _at_most(reader, max(20, _READINGS // evidence.readers))
    columns = log_columns(fit.matrices)
    prior = fit.states.prior(fit.grades, fit.kinds)
    log = np.zeros((evidence.readers, len(fit.family.bias)))
    used = np.bincount(reader[chosen], said.data[chosen], minlength=evidence.readers)
    scale = np.bincount(reader, said.data, minlength=evidence.readers) / np.maximum(used, 1e-12)
    for start in range(0, len(chosen), 5000):
        part = chosen[start : start + 5000]
        items, place = np.unique(said.row[part], return_inverse=True)
        by_state = state_posterior(evidence, states=fit.states, prior=prior, columns=columns, rows=items)
        left_out = np.where(independent[pair[part], None], columns[said.col[part]], own[pair[part]] @ columns)
        others = by_state[place] / np.exp(left_out)
        others /= others.sum(axis=1, keepdims=True)
        for one in range(classes):
            rows = np.flatnonzero(grade[part] == one)
            likelihood = np.log(others[rows] @ fit.family.matrices[:, :, one].T)  # (n, T)
            weight = (said.data[part][rows], (reader[part][rows], np.arange(len(rows))))
            log += csr_matrix(weight, shape=(evidence.readers, len(rows))) @ likelihood
    log = log * (scale / times)[:, None] + fit.population.log_prior(fit.family)
    log -= log.max(axis=1, keepdims=True)
    types = np.exp(log)
    return np.asarray(types / types.sum(axis=1, keepdims=True))


def _at_most(owner: npt.NDArray[np.generic], most: int) -> npt.NDArray[np.int64]:
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
    below = np.cumsum(mass, axis=1) - mass / 2.0
    half = np.diff(grid).max() / 2.0
    found = np.stack([[np.interp(tail, row, grid) for row in below] for tail in tails])
    return np.asarray(found + np.array([[-half], [half]]))
