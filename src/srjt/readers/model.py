"""The model behind a consensus: true grades are latent, each reader errs by a matrix of their own,
and the fit chooses how much the readers have in common. What the fit says of the readers has
intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
from scipy.special import ndtr, ndtri, softmax  # type: ignore[import-untyped]

from srjt.noise.verified import beta_interval
from srjt.readers.readings import ENOUGH, Evidence, Floats, Ints

# What an item may be: its grade, its severity within the grade, and how hard it is to read.
#
# A grade is an interval of the severity of width 1 around its number. An item lies in the middle of
# its grade, or anywhere in it (near a boundary readers differ), or it is hard to read wherever it
# lies. The shares of the three are fitted. Where all items of a grade are alike (Dawid and Skene's
# assumption), one state per grade is enough.

_POSITIONS = (-0.375, -0.125, 0.125, 0.375)  # the middles of four cells of a grade
_HARD = 3.0  # times as much spread


class States(NamedTuple):
    """S states of an item on C grades."""

    grade: Ints  # (S,)
    severity: Floats  # (S,)
    effort: Floats  # (S,) factor of every reader's spread
    kind: Ints  # (S,) 0: typical of its grade, 1: anywhere in it, 2: hard
    share: Floats  # (S,) of a state among the states of its grade and kind
    of_grade: Floats  # (S, C) one-hot: states @ of_grade adds up grades


def item_states(classes: int, *, alike: bool) -> States:
    """The states of items on a scale of ``classes`` grades; with ``alike`` every item is typical of
    its grade."""
    cells = len(_POSITIONS)
    number = 1 if alike else cells + 2
    within = np.array([0.0, *_POSITIONS, 0.0])[:number]
    grade = np.repeat(np.arange(classes), len(within))
    return States(
        grade=grade,
        severity=grade.astype(np.float64) + np.tile(within, classes),
        effort=np.tile([1.0, *[1.0] * cells, _HARD][:number], classes),
        kind=np.tile([0, *[1] * cells, 2][:number], classes),
        share=np.tile([1.0, *[1.0 / cells] * cells, 1.0][:number], classes),
        of_grade=np.eye(classes)[grade],
    )


# The ordinal family of readers: bias, slope, spread and lapses, as a grid of types with a prior.
#
# A reader of type t sees slope · severity + bias + spread · normal noise and says the grade whose
# interval holds it; with the probability ``lapse`` the reader says any grade. Some types say a
# favourite grade almost always. A grid instead of a point per reader: what few readings leave open
# stays open, and no step size is needed.

_BIAS = np.round(np.linspace(-1.5, 1.5, 11), 9)
_SLOPE = np.array([0.75, 1.0, 1.3])
_SPREAD = np.array([0.12, 0.2, 0.31, 0.45, 0.65, 1.0, 1.8])
_LAPSE = np.array([0.005, 0.06, 0.25, 1.0])
# How often a reader who has a favourite grade says it whatever the item shows. In a crowd, readers
# who look at some items only say it at the others, and they look well or badly.
_FAVOURITE = (0.97,)
_FAVOURITE_OF_CROWD = (0.15, 0.3, 0.5, 0.7, 0.85, 0.97)
_SPREADS_OF_CROWD = (1, 3, 5)  # places in _SPREAD
# Before any data: pseudo-readers of each slope and lapse, and the normal priors of bias and log
# spread.
_SLOPE_PRIOR = np.array([0.5, 3.0, 0.5])
_LAPSE_PRIOR = np.array([2.0, 1.0, 0.5, 0.2])
_FAVOURITE_PRIOR = 0.2  # of each level in a crowd
_BIAS_SCALE = 0.3
_SPREAD_MEAN = np.log(0.45)
_SPREAD_SCALE = 0.4
_PSEUDO_READERS = 3.0


@dataclass(frozen=True, kw_only=True)
class Family:
    """T types of readers."""

    bias: Floats  # (T,)
    slope: Ints  # (T,) index
    spread: Floats  # (T,)
    lapse: Ints  # (T,) index
    matrices: Floats  # (T, S, C) Pr(reading | state)
    lapse_prior: Floats  # pseudo-readers by index of the lapse

    @cached_property
    def log_matrices(self) -> Floats:
        """(T, S·C)"""
        return np.log(self.matrices).reshape(len(self.matrices), -1)


@dataclass(frozen=True, kw_only=True)
class Population:
    """How the types are distributed among readers."""

    bias_mean: float = 0.0
    bias_scale: float = _BIAS_SCALE
    spread_mean: float = float(_SPREAD_MEAN)  # of the log
    spread_scale: float = _SPREAD_SCALE
    slope: Floats
    lapse: Floats

    def log_prior(self, family: Family) -> Floats:
        """(T,)"""
        log = -0.5 * ((family.bias - self.bias_mean) / self.bias_scale) ** 2
        log = log - 0.5 * ((np.log(family.spread) - self.spread_mean) / self.spread_scale) ** 2
        log = log + np.log(self.slope)[family.slope] + np.log(self.lapse)[family.lapse]
        return np.asarray(log - np.logaddexp.reduce(log))


def fit_population(family: Family, types: Floats, *, free_bias: bool) -> Population:
    """From the readers' probabilities of the types (R, T). The common bias is free only where a
    reference fixes it."""
    few = _PSEUDO_READERS
    total = types.sum(axis=0)
    whole = few + len(types)
    log_spread = np.log(family.spread)
    mean = float(total @ family.bias) / whole if free_bias else 0.0
    spread = (float(total @ log_spread) + few * _SPREAD_MEAN) / whole
    return Population(
        bias_mean=mean,
        bias_scale=float(
            np.sqrt((few * _BIAS_SCALE**2 + total @ (family.bias - mean) ** 2) / whole)
        ),
        spread_mean=spread,
        spread_scale=float(
            np.sqrt((few * _SPREAD_SCALE**2 + total @ (log_spread - spread) ** 2) / whole)
        ),
        slope=_shares(family.slope, total, _SLOPE_PRIOR),
        lapse=_shares(family.lapse, total, family.lapse_prior),
    )


def _shares(index: Ints, total: Floats, prior: Floats) -> Floats:
    counts = np.bincount(index, total, minlength=len(prior)) + prior
    return np.asarray(counts / counts.sum())


def reader_family(states: States, *, favourites: bool, crowd: bool = False) -> Family:
    """All types, with the matrices that they have on these states.

    ``favourites``: whether readers may have a favourite grade. Where items have one reading, a
    frequent grade and a favourite one are the same. ``crowd``: whether some readers look at a part
    of the items only.
    """
    classes = states.of_grade.shape[1]
    middle = (classes - 1) / 2
    bias, slope, spread, lapse = (
        axis.ravel()
        for axis in np.meshgrid(
            _BIAS, np.arange(len(_SLOPE)), _SPREAD, np.arange(len(_LAPSE)), indexing="ij"
        )
    )
    seen = middle + _SLOPE[slope][:, None] * (states.severity - middle) + bias[:, None]  # (T, S)
    noise = spread[:, None] * states.effort
    limits = np.arange(classes - 1) + 0.5
    below = ndtr((limits - seen[..., None]) / noise[..., None])  # (T, S, C − 1)
    ends = np.ones((*seen.shape, 1))
    said = np.diff(np.concatenate([0.0 * ends, below, ends], axis=2), axis=2)
    any_grade = _LAPSE[lapse][:, None, None]
    matrices = (1.0 - any_grade) * said + any_grade / classes
    usual = (bias == 0) & (slope == 1)
    levels: tuple[float, ...] = _FAVOURITE
    kernels = np.flatnonzero(usual & (spread == _SPREAD[3]) & (lapse == 1))
    prior = _LAPSE_PRIOR
    if crowd:
        levels = _FAVOURITE_OF_CROWD
        some = np.isin(spread, _SPREAD[list(_SPREADS_OF_CROWD)])
        kernels = np.flatnonzero(usual & some & (lapse == 0))
        prior = np.concatenate([_LAPSE_PRIOR, np.full(len(levels), _FAVOURITE_PRIOR)])
    favourite = np.eye(classes if favourites else 0, classes)[:, None, :]
    # with one level, those who have a favourite are as frequent as those who say any grade
    first = len(prior) - len(levels)
    types = [(bias, slope, spread, lapse, matrices)]
    for place, level in enumerate(levels):
        for kernel in kernels:
            one = np.ones(len(favourite), dtype=np.int64)
            fond = level * favourite + (1.0 - level) * matrices[kernel]
            types.append((0.0 * one, one, spread[kernel] * one, (first + place) * one, fond))
    bias, slope, spread, lapse, matrices = map(np.concatenate, zip(*types, strict=True))
    return Family(
        bias=bias, slope=slope, spread=spread, lapse=lapse, matrices=matrices, lapse_prior=prior
    )


# Fit the consensus model by expectation–maximisation.
#
# The readings enter as a sparse matrix (items × reader and grade), so one iteration is two sparse
# products. All that is learnt of the readers lies in their counts by state and grade: (R, C, S)
# numbers.

_CHUNK = 50_000  # items at once: bounds the memory
_KIND_PRIOR = np.array([3.0, 3.0, 1.0])  # pseudo-items
_STRENGTHS = (1e6, 100.0, 30.0, 10.0, 3.0)  # pseudo-readings of a row


@dataclass(frozen=True, kw_only=True)
class Fit:
    states: States
    family: Family
    population: Population
    grades: Floats  # (C,) shares of the true grades
    kinds: Floats  # (K,) shares of the kinds of items
    types: Floats  # (R, T) probabilities of each reader's type
    matrices: Floats  # (R, S, C) Pr(reading | state)
    readings: Floats  # (R, S, C) expected readings by state and grade read
    posterior: Floats  # (I, C)
    # pseudo-readings by which a row of a reader's matrix holds to the family
    strength: float = _STRENGTHS[0]

    @cached_property
    def prior(self) -> Floats:
        """(S,)"""
        states = self.states
        return np.asarray(self.grades[states.grade] * self.kinds[states.kind] * states.share)

    @cached_property
    def columns(self) -> Floats:
        """(R·C, S) log probabilities of each reader's grades"""
        return np.log(self.matrices).transpose(0, 2, 1).reshape(-1, len(self.prior))

    @cached_property
    def within(self) -> Floats:
        """(S, C) p(state | grade)"""
        within = self.prior[:, None] * self.states.of_grade
        return np.asarray(within / within.sum(axis=0))

    @cached_property
    def by_grade(self) -> Floats:
        """(R, C, C) Pr(reading | true grade)"""
        return np.asarray(np.einsum("rsj,sc->rcj", self.matrices, self.within))

    @property
    def counts(self) -> Floats:
        """(R, C, C) expected readings by true grade and grade read"""
        return np.asarray(np.einsum("rsj,sc->rcj", self.readings, self.states.of_grade))

    def by_state(self, evidence: Evidence, rows: slice | Ints) -> Floats:
        """(n, S) the posterior of some items."""
        log = _chunk(evidence.said, rows) @ self.columns + np.log(self.prior)
        if evidence.log_factor is not None:
            log += evidence.log_factor[rows][:, self.states.grade]
        return np.asarray(softmax(log, axis=1))

    def expectation(self, evidence: Evidence) -> tuple[Floats, Floats, Floats]:
        """The posterior (I, C), the readers' counts (R, S, C) by state and grade, and the states'
        counts (S,)."""
        posterior = np.empty((evidence.said.shape[0], evidence.classes))
        counts = np.zeros_like(self.columns)
        total = np.zeros(len(self.prior))
        for rows in chunks(len(posterior)):
            by_state = self.by_state(evidence, rows)
            posterior[rows] = by_state @ self.states.of_grade
            counts += _chunk(evidence.comparable, rows).T @ by_state
            total += by_state.sum(axis=0)
        return posterior, counts.reshape(-1, evidence.classes, len(total)).transpose(0, 2, 1), total


def beginning(evidence: Evidence, *, alike: bool) -> Fit:
    """Before the first iteration: all readers are what is usual. alike: whether every item is
    typical of its grade."""
    states = item_states(evidence.classes, alike=alike)
    compared = evidence.anchored or int((evidence.weight > 1.0).sum()) >= ENOUGH
    family = reader_family(states, favourites=compared, crowd=evidence.crowd)
    prior = family.lapse_prior
    population = Population(slope=_SLOPE_PRIOR / _SLOPE_PRIOR.sum(), lapse=prior / prior.sum())
    types = np.tile(np.exp(population.log_prior(family)), (evidence.readers, 1))
    matrices = _mean(types, family)
    fit = Fit(
        states=states,
        family=family,
        population=population,
        grades=np.full(evidence.classes, 1.0 / evidence.classes),
        kinds=_KIND_PRIOR / _KIND_PRIOR.sum(),
        types=types,
        matrices=matrices,
        readings=np.zeros_like(matrices),
        posterior=np.zeros((evidence.said.shape[0], evidence.classes)),
    )
    return _from_votes(evidence, fit) if evidence.crowd else fit


def _from_votes(evidence: Evidence, fit: Fit) -> Fit:
    """The fit after one iteration from the shares of the votes. Many readers who look at few items
    would pull the posterior of the usual readers towards their favourite grades, and good readers
    would look biased; the most frequent grade is right more often."""
    by_grade = np.tile(np.eye(evidence.classes), (evidence.readers, 1))
    votes = np.asarray(evidence.said @ by_grade) + 1e-9
    votes /= votes.sum(axis=1, keepdims=True)
    within = fit.kinds[fit.states.kind] * fit.states.share
    counts = np.zeros((evidence.said.shape[1], len(within)))
    total = np.zeros(len(within))
    for rows in chunks(len(votes)):
        by_state = votes[rows][:, fit.states.grade] * within
        counts += _chunk(evidence.comparable, rows).T @ by_state
        total += by_state.sum(axis=0)
    readings = counts.reshape(-1, evidence.classes, len(total)).transpose(0, 2, 1)
    return _updated(evidence, fit, votes, readings, total)


def maximise(evidence: Evidence, fit: Fit, *, tolerance: float, iterations: int = 100) -> Fit:
    """Iterate from a fit until the mean absolute change of the posterior is below ``tolerance``."""
    for iteration in range(iterations):
        before = fit.posterior
        fit = _updated(evidence, fit, *fit.expectation(evidence))
        if iteration and np.abs(fit.posterior - before).mean() < tolerance:
            break
    return fit


def _updated(
    evidence: Evidence, fit: Fit, posterior: Floats, readings: Floats, total: Floats
) -> Fit:
    """The fit given what ``Fit.expectation`` returns."""
    by_kind = np.bincount(fit.states.kind, total, minlength=len(_KIND_PRIOR)) + _KIND_PRIOR
    # Where an item has one reading, what was read counts: one reading of each item does not tell
    # the readers' spread from the spread of the grades, and a prior that is fitted all the same
    # becomes too sharp.
    grades = posterior[~evidence.single].sum(axis=0) + evidence.single_readings + 1.0
    log_types = readings.reshape(len(readings), -1) @ fit.family.log_matrices.T
    types = softmax(log_types + fit.population.log_prior(fit.family), axis=1)
    matrices = _mean(types, fit.family)
    return replace(
        fit,
        population=fit_population(fit.family, types, free_bias=evidence.anchored),
        grades=grades / grades.sum(),
        kinds=by_kind / by_kind.sum(),
        types=types,
        matrices=deviate(
            matrices, readings, fit.states, strength=fit.strength, together=not evidence.crowd
        ),
        readings=readings,
        posterior=posterior,
    )


def refit(
    evidence: Evidence, fit: Fit, rows: Ints | None = None, *, tolerance: float = 1e-3
) -> Fit:
    """The fit to other evidence that is near, or to the items ``rows``, which were drawn. It starts
    from ``fit`` and has few iterations: enough to follow what changes."""
    if rows is not None:
        evidence = evidence.items(rows)
        fit = replace(fit, posterior=fit.posterior[rows])
    return maximise(evidence, fit, tolerance=tolerance, iterations=30)


def chunks(items: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, items, _CHUNK))


def _chunk(said: csr_matrix, rows: slice | Ints) -> csr_matrix:
    """Some rows; all of them are not copied, which takes longer than the products of a small
    matrix."""
    whole = isinstance(rows, slice) and rows.start == 0 and rows.stop >= said.shape[0]
    return said if whole else said[rows]


def _mean(types: Floats, family: Family) -> Floats:
    """(R, S, C) the mean matrix of each reader."""
    kinds, states, classes = family.matrices.shape
    return (types @ family.matrices.reshape(kinds, -1)).reshape(-1, states, classes)


def deviate(
    matrices: Floats, counts: Floats, states: States, *, strength: float, together: bool = True
) -> Floats:
    """(R, S, C) matrices that the family lacks, first of all readers, then each reader's own.

    Each row of counts by true grade is drawn from a Dirichlet distribution around a row of the
    family with this strength. Within a grade the states keep their differences: all are multiplied
    by the same factors. Without ``together`` only each reader's own: what all readers of a crowd
    do is what those do who hardly look, and would move the grades.
    """
    if together:
        size = np.maximum(counts.sum(axis=2), 1e-9)  # (R, S)
        mean = np.einsum("rs,rsj->sj", size, matrices) / size.sum(axis=0)[:, None]
        of_all = counts.sum(axis=0, keepdims=True)
        matrices = _times(matrices, _factors(mean[None], of_all, states, strength=strength))
    return _times(matrices, _factors(matrices, counts, states, strength=strength))


def _factors(matrices: Floats, counts: Floats, states: States, *, strength: float) -> Floats:
    """(R, S, C) what brings the matrices by true grade to the shrunk counts."""
    by_grade = np.einsum("rsj,sc->rcj", counts, states.of_grade)
    size = np.maximum(counts.sum(axis=2), 1e-9)
    expected = np.einsum("rsj,sc->rcj", size[:, :, None] * matrices, states.of_grade)
    rows = expected / expected.sum(axis=2, keepdims=True)
    shrunk = (strength * rows + by_grade) / (strength + by_grade.sum(axis=2, keepdims=True))
    return np.asarray((shrunk / rows)[:, states.grade])


def _times(matrices: Floats, factors: Floats) -> Floats:
    product = matrices * factors
    return np.asarray(product / product.sum(axis=2, keepdims=True))


# Variants of the consensus model, weighted by how likely they make readings that were left out.
#
# The variants: whether items of a grade are all alike, and how strongly readers are tied to the
# family. A few hundred readings seldom tell which is right; what differs between the variants is
# part of the doubt.

_STRENGTHS_OF_PAIRS = _STRENGTHS[:3]  # down to 30
_FEW = 10  # readings per reader
# Left-out readings of one item are not independent, so a difference of their log-likelihoods counts
# half.
_TEMPERATURE = 2.0
_SMALLEST_WEIGHT = 0.02


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Fits of the model, the likeliest first, their weights (V,), and what they were fitted to."""

    evidence: Evidence
    fits: tuple[Fit, ...]
    weights: Floats

    def mean(self, value: Callable[[Fit], Floats]) -> Floats:
        """The weighted mean of a value over the variants."""
        parts = [weight * value(fit) for weight, fit in zip(self.weights, self.fits, strict=True)]
        return np.asarray(sum(parts[1:], parts[0]))


def fit_variants(evidence: Evidence) -> Variants:
    """Fit the variants of the model that matter.

    Of a crowd all variants count alike. Left-out readings tell which variant describes the readers,
    not which one has the right names of the grades: where many readers hardly look, the likeliest
    variant may call the items of one grade by another.
    """
    if evidence.crowd:
        strengths = _strengths(evidence, deep=_deep(evidence))
        scores = dict.fromkeys(product(_kinds(evidence), strengths), 0.0)
    else:
        scores = _scores(evidence)
    weights = _weights(scores)
    fits: dict[tuple[bool, float], Fit] = {}
    for alike in sorted({alike for alike, _ in weights}):
        loosest = min(strength for with_items, strength in weights if with_items == alike)
        for fit in _path(evidence, alike=alike, tolerance=2e-4):
            fits[alike, fit.strength] = fit
            if fit.strength == loosest:
                break
    order = sorted(weights, key=lambda variant: -weights[variant])
    return Variants(
        evidence=evidence,
        fits=tuple(fits[variant] for variant in order),
        weights=np.array([weights[variant] for variant in order]),
    )


def _weights(scores: dict[tuple[bool, float], float]) -> dict[tuple[bool, float], float]:
    """The variants with a weight that matters, from log-likelihoods."""
    best = max(scores.values())
    raw = {
        variant: float(np.exp((score - best) / _TEMPERATURE)) for variant, score in scores.items()
    }
    least = _SMALLEST_WEIGHT * sum(raw.values())
    kept = {variant: weight for variant, weight in raw.items() if weight > least}
    return {variant: weight / sum(kept.values()) for variant, weight in kept.items()}


def _scores(evidence: Evidence) -> dict[tuple[bool, float], float]:
    """The log-likelihood of left-out readings under each variant: (whether items are alike,
    strength)."""
    rest, held_out = evidence.hold_out()
    if not held_out.nnz:
        return {(False, _STRENGTHS[0]): 0.0}
    scores: dict[tuple[bool, float], float] = {}
    for alike in _kinds(evidence):
        last = -np.inf
        for fit in _path(rest, alike=alike, tolerance=1e-3, deep=_deep(evidence)):
            score = scores[alike, fit.strength] = float(held_out.sum()) * predictive(
                rest, held_out, fit
            )
            if score < last:
                break
            last = score
    return scores


def _deep(evidence: Evidence) -> bool:
    """Two readings of an item do not tell items apart from readers (three do): then only small
    departures are tried."""
    return evidence.anchored or int((evidence.weight > 2.0).sum()) >= ENOUGH


def _kinds(evidence: Evidence) -> tuple[bool, ...]:
    """Whether items are alike: what is tried."""
    return (True, False) if _deep(evidence) else (False,)


def _strengths(evidence: Evidence, *, deep: bool) -> tuple[float, ...]:
    """The ties to the family that are tried."""
    if evidence.said.sum() < _FEW * evidence.readers:  # too few to know a reader's own matrix
        return _STRENGTHS[:1]
    return _STRENGTHS if deep else _STRENGTHS_OF_PAIRS


def _path(evidence: Evidence, *, alike: bool, tolerance: float, deep: bool = True) -> Iterator[Fit]:
    """Fits with weaker and weaker ties to the family, each from where the one before ended."""
    fit = beginning(evidence, alike=alike)
    for strength in _strengths(evidence, deep=deep):
        fit = maximise(evidence, replace(fit, strength=strength), tolerance=tolerance)
        yield fit


def predictive(evidence: Evidence, held_out: csr_matrix, fit: Fit) -> float:
    """The mean log-likelihood of held-out readings (I, R·C) given the others."""
    by_state = fit.by_state(evidence, slice(None))
    said = held_out.tocoo()
    likelihood = (by_state[said.row] * np.exp(fit.columns[said.col])).sum(axis=1)
    return float(said.data @ np.log(likelihood)) / float(held_out.sum())


def information(matrices: Floats, grades: Floats) -> Floats:
    """(R,) what a reading of each reader tells of the true grade, in nats.

    matrices: (R, C, C) Pr(reading | true grade). grades: (C,) shares of the true grades.

    Examples
    --------
    >>> guesses = np.full((2, 2), 0.5)
    >>> information(np.stack([np.eye(2), guesses]), np.array([0.5, 0.5])).round(3).tolist()
    [0.693, 0.0]
    """
    said = np.einsum("c,rcj->rj", grades, matrices)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = matrices * np.log(matrices / said[:, None, :])
    return np.asarray(np.nan_to_num(each).sum(axis=2) @ grades)


# How well each reader is known: intervals of the matrices, biases and noise rates.

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
    deviation = 1.0 / (fit.strength + (size.sum(axis=1) / times[:, None])[:, :, None] + 1.0)
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
    log = log * (scale / times)[:, None] + fit.population.log_prior(fit.family)
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
