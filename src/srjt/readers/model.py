"""The model behind a consensus: true grades are latent, each reader errs by a matrix of their own, and the fit
chooses how much the readers have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags  # type: ignore[import-untyped]
from scipy.special import ndtr  # type: ignore[import-untyped]

from srjt.readers.readings import Readings

# What an item may be: its grade, its severity within the grade, and how hard it is to read.
#
# A grade is an interval of the severity of width 1 around its number. An item lies in the middle of its
# grade, or anywhere in it (near a boundary readers differ), or it is hard to read wherever it lies. The
# shares of the three are fitted. Where all items of a grade are alike (Dawid and Skene's assumption), one
# state per grade is enough.

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

KINDS = ("typical", "anywhere", "hard")  # kinds of items
_POSITIONS = (-0.375, -0.125, 0.125, 0.375)  # the middles of four cells of a grade
_HARD = 3.0  # times as much spread


@dataclass(frozen=True, kw_only=True)
class States:
    """S states of an item on C grades."""

    grade: Ints  # (S,)
    severity: Floats  # (S,)
    effort: Floats  # (S,) factor of every reader's spread
    kind: Ints  # (S,) index into KINDS
    share: Floats  # (S,) of a state among the states of its grade and kind
    of_grade: Floats  # (S, C) one-hot: states @ of_grade adds up grades

    def prior(self, grades: Floats, kinds: Floats) -> Floats:
        """(S,) from the shares of the grades (C,) and of the kinds (K,)."""
        return np.asarray(grades[self.grade] * kinds[self.kind] * self.share)


def item_states(classes: int, *, alike: bool) -> States:
    """The states of items on a scale of ``classes`` grades; with ``alike`` every item is typical of its grade."""
    within, effort, kind, share = np.zeros(1), np.ones(1), np.zeros(1, dtype=np.int64), np.ones(1)
    if not alike:
        cells = len(_POSITIONS)
        within = np.array([0.0, *_POSITIONS, 0.0])
        effort = np.array([1.0, *[1.0] * cells, _HARD])
        kind = np.array([0, *[1] * cells, 2])
        share = np.array([1.0, *[1.0 / cells] * cells, 1.0])
    grade = np.repeat(np.arange(classes), len(within))
    return States(
        grade=grade,
        severity=grade.astype(np.float64) + np.tile(within, classes),
        effort=np.tile(effort, classes),
        kind=np.tile(kind, classes),
        share=np.tile(share, classes),
        of_grade=np.eye(classes)[grade],
    )


# The readings as the consensus model takes them: a sparse matrix of items × reader and grade.

Repeats = Literal["one reading", "independent"]

_CLAMP = -1e9  # the logarithm of almost nothing, finite so that no sum becomes nan


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the model is fitted to."""

    said: csr_matrix  # (I, R·C) weight of each reader's grades
    readers: int
    classes: int
    log_factor: Floats | None = None  # (I, C) of other witnesses: the reference, a network
    anchored: bool = False  # whether a reference fixes the readers' common bias
    patient: npt.NDArray[np.int64] | None = None  # (I,) None: each item is a patient of its own

    def items(self, rows: npt.NDArray[np.int64]) -> Evidence:
        """Of some items."""
        return replace(
            self,
            said=self.said[rows],
            log_factor=None if self.log_factor is None else self.log_factor[rows],
            patient=None if self.patient is None else self.patient[rows],
        )

    @cached_property
    def single(self) -> npt.NDArray[np.bool_]:
        """(I,) items with one reading, and no other witness."""
        once = np.asarray(self.said.sum(axis=1)).ravel() <= 1.0
        return once if self.log_factor is None else once & ~self.log_factor.any(axis=1)

    @cached_property
    def comparable(self) -> csr_matrix:
        """(I, R·C) the readings that tell how readers read. One reader's reading of an item that nobody else has read
        does not: it would only make the reader's errors fit the frequencies of the grades."""
        if self.readers > 1 or not self.single.any():
            return self.said
        return diags((~self.single).astype(np.float64)).tocsr() @ self.said

    @cached_property
    def single_readings(self) -> Floats:
        """(C,) of these items, by grade."""
        votes = np.asarray(self.said[self.single].sum(axis=0))
        return np.asarray(votes.reshape(self.readers, -1).sum(axis=0))


def evidence_of(readings: Readings, *, repeats: Repeats) -> Evidence:
    """The readings, and the reference where there is one."""
    items, readers, classes = len(readings.items), len(readings.readers), len(readings.grades)
    weight = np.ones(len(readings))
    if repeats == "one reading":
        _, pair, times = np.unique(
            readings.item * readers + readings.reader, return_inverse=True, return_counts=True
        )
        weight = 1.0 / times[pair]
    column = readings.reader * classes + readings.grade
    said = csr_matrix((weight, (readings.item, column)), shape=(items, readers * classes))
    known = np.zeros(items, dtype=bool) if readings.reference is None else readings.reference >= 0
    factor = None
    if readings.reference is not None and known.any():
        factor = np.zeros((items, classes))
        factor[known] = _CLAMP
        factor[known, readings.reference[known]] = 0.0
    return Evidence(
        said=said,
        readers=readers,
        classes=classes,
        log_factor=factor,
        anchored=bool(known.any()),
        patient=None if readings.groups is None else readings.owner(),
    )


# The ordinal family of readers: bias, slope, spread and lapses, as a grid of types with a prior.
#
# A reader of type t sees slope · severity + bias + spread · normal noise and says the grade whose interval
# holds it; with the probability ``lapse`` the reader says any grade. Some types say a favourite grade
# almost always. A grid instead of a point per reader: what few readings leave open stays open, and no step
# size is needed.

_BIAS = np.round(np.linspace(-1.5, 1.5, 11), 9)
_SLOPE = np.array([0.75, 1.0, 1.3])
_SPREAD = np.array([0.12, 0.2, 0.31, 0.45, 0.65, 1.0, 1.8])
_LAPSE = np.array([0.005, 0.06, 0.25, 1.0])
_FAVOURITE = 0.97  # how often a reader who has a favourite grade says it whatever the item shows
# Before any data: pseudo-readers of each slope and lapse, and the normal priors of bias and log spread.
_SLOPE_PRIOR = np.array([0.5, 3.0, 0.5])
_LAPSE_PRIOR = np.array([2.0, 1.0, 0.5, 0.2])
_BIAS_SCALE = 0.3
_SPREAD_MEAN, _SPREAD_SCALE = np.log(0.45), 0.4
_PSEUDO_READERS = 3.0


@dataclass(frozen=True, kw_only=True)
class Family:
    """T types of readers."""

    bias: Floats  # (T,)
    slope: Floats  # (T,) index
    spread: Floats  # (T,)
    lapse: Floats  # (T,) index
    matrices: Floats  # (T, S, C) Pr(reading | state)

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
        log = (
            log + np.log(self.slope)[family.slope.astype(int)] + np.log(self.lapse)[family.lapse.astype(int)]
        )
        return np.asarray(log - np.logaddexp.reduce(log))


def first_population() -> Population:
    return Population(slope=_SLOPE_PRIOR / _SLOPE_PRIOR.sum(), lapse=_LAPSE_PRIOR / _LAPSE_PRIOR.sum())


def fit_population(family: Family, types: Floats, *, free_bias: bool) -> Population:
    """From the readers' probabilities of the types (R, T). The common bias is free only where a reference fixes it."""
    readers, few = len(types), _PSEUDO_READERS
    total = types.sum(axis=0)
    whole = few + readers
    log_spread = np.log(family.spread)
    mean = float(total @ family.bias) / whole if free_bias else 0.0
    spread = (float(total @ log_spread) + few * _SPREAD_MEAN) / whole
    return Population(
        bias_mean=mean,
        bias_scale=float(np.sqrt((few * _BIAS_SCALE**2 + total @ (family.bias - mean) ** 2) / whole)),
        spread_mean=spread,
        spread_scale=float(np.sqrt((few * _SPREAD_SCALE**2 + total @ (log_spread - spread) ** 2) / whole)),
        slope=_shares(family.slope, total, _SLOPE_PRIOR),
        lapse=_shares(family.lapse, total, _LAPSE_PRIOR),
    )


def _shares(index: Floats, total: Floats, prior: Floats) -> Floats:
    counts = np.bincount(index.astype(int), total, minlength=len(prior)) + prior
    return np.asarray(counts / counts.sum())


def reader_family(states: States, *, favourites: bool) -> Family:
    """All types, with the matrices that they have on these states.

    ``favourites``: whether readers may have a favourite grade. Where items have one reading, a frequent grade and a
    favourite one are the same.
    """
    classes = states.of_grade.shape[1]
    middle = (classes - 1) / 2
    bias, slope, spread, lapse = (
        axis.ravel()
        for axis in np.meshgrid(_BIAS, np.arange(len(_SLOPE)), _SPREAD, np.arange(len(_LAPSE)), indexing="ij")
    )
    seen = middle + _SLOPE[slope][:, None] * (states.severity - middle) + bias[:, None]  # (T, S)
    noise = spread[:, None] * states.effort
    limits = np.arange(classes - 1) + 0.5
    below = ndtr((limits - seen[..., None]) / noise[..., None])  # (T, S, C − 1)
    ends = np.ones((*seen.shape, 1))
    said = np.diff(np.concatenate([0.0 * ends, below, ends], axis=2), axis=2)
    any_grade = _LAPSE[lapse][:, None, None]
    matrices = (1.0 - any_grade) * said + any_grade / classes
    usual = int(np.flatnonzero((bias == 0) & (slope == 1) & (spread == _SPREAD[3]) & (lapse == 1))[0])
    fond = [
        _FAVOURITE * np.eye(classes)[grade] + (1.0 - _FAVOURITE) * matrices[usual]
        for grade in range(classes if favourites else 0)
    ]
    extra = np.ones(len(fond))
    return Family(
        bias=np.concatenate([bias, 0.0 * extra]),
        slope=np.concatenate([slope, extra]),
        spread=np.concatenate([spread, _SPREAD[3] * extra]),
        lapse=np.concatenate([lapse, (len(_LAPSE) - 1) * extra]),
        matrices=np.concatenate([matrices, *(one[None] for one in fond)]),
    )


# Fit the consensus model by expectation–maximisation.
#
# The readings enter as a sparse matrix (items × reader and grade), so one iteration is two sparse products.
# All that is learnt of the readers lies in their counts by state and grade: (R, C, S) numbers, however many
# readings there are.

CHUNK = 50_000  # items at once: bounds the memory
_KIND_PRIOR = np.array([3.0, 3.0, 1.0])  # pseudo-items


@dataclass(frozen=True, kw_only=True)
class Fit:
    states: States
    family: Family
    population: Population
    grades: Floats  # (C,) shares of the true grades
    kinds: Floats  # (K,) shares of the kinds of items
    types: Floats  # (R, T) probabilities of each reader's type
    matrices: Floats  # (R, S, C) Pr(reading | state)
    rows: Floats  # (R, C, C) what the rows by true grade are shrunk to
    counts: Floats  # (R, C, C) expected readings by true grade and grade read
    strength: float  # pseudo-readings by which a row of a reader's matrix holds to the family
    posterior: Floats  # (I, C)
    iterations: int


def maximise(
    evidence: Evidence,
    states: States,
    family: Family,
    *,
    strength: float,
    start: Fit | None,
    iterations: int,
    tolerance: float,
) -> Fit:
    """Iterate until the mean absolute change of the posterior is below ``tolerance``."""
    if start is None:
        population = first_population()
        grades = np.full(evidence.classes, 1.0 / evidence.classes)
        kinds = _KIND_PRIOR / _KIND_PRIOR.sum()
        matrices = _mean(np.tile(np.exp(population.log_prior(family)), (evidence.readers, 1)), family)
        posterior = np.zeros((evidence.said.shape[0], evidence.classes))
    else:
        population, grades, kinds = start.population, start.grades, start.kinds
        matrices, posterior = start.matrices, start.posterior
    for iteration in range(1, iterations + 1):
        before = posterior
        posterior, counts, total = expectation(
            evidence, states=states, prior=states.prior(grades, kinds), matrices=matrices
        )
        by_kind = np.bincount(states.kind, total, minlength=len(KINDS)) + _KIND_PRIOR
        kinds = by_kind / by_kind.sum()
        grades = _grade_counts(evidence, posterior) + 1.0
        grades = grades / grades.sum()
        types = _types(counts, family, population)
        population = fit_population(family, types, free_bias=evidence.anchored)
        rows, matrices = deviate(_mean(types, family), counts, states, strength=strength)
        if iteration > 1 and np.abs(posterior - before).mean() < tolerance:
            break
    return Fit(
        states=states,
        family=family,
        population=population,
        grades=grades,
        kinds=kinds,
        types=types,
        matrices=matrices,
        rows=rows,
        counts=np.einsum("rsj,sc->rcj", counts, states.of_grade),
        strength=strength,
        posterior=posterior,
        iterations=iteration,
    )


def refit(evidence: Evidence, fit: Fit, rows: Ints) -> Fit:
    """The fit to the items ``rows``, which were drawn. It starts from ``fit`` and has few iterations: enough to follow
    what the draw changes."""
    return maximise(
        evidence.items(rows),
        fit.states,
        fit.family,
        strength=fit.strength,
        start=replace(fit, posterior=fit.posterior[rows]),
        iterations=30,
        tolerance=1e-3,
    )


def _grade_counts(evidence: Evidence, posterior: Floats) -> Floats:
    """(C,) items by grade, to set the prior. Where an item has one reading, what was read counts.

    One reading of each item does not tell the readers' spread from the spread of the grades, and a prior that is fitted
    all the same becomes too sharp.
    """
    return np.asarray(posterior[~evidence.single].sum(axis=0) + evidence.single_readings)


def expectation(
    evidence: Evidence, *, states: States, prior: Floats, matrices: Floats
) -> tuple[Floats, Floats, Floats]:
    """The grades' posterior (I, C), the readers' counts (R, S, C) by state and grade, and the states' counts (S,)."""
    items = evidence.said.shape[0]
    columns = log_columns(matrices)
    posterior = np.empty((items, evidence.classes))
    counts = np.zeros_like(columns)
    total = np.zeros(len(prior))
    for start in range(0, items, CHUNK):
        rows = slice(start, start + CHUNK)
        by_state = state_posterior(evidence, states=states, prior=prior, columns=columns, rows=rows)
        posterior[rows] = by_state @ states.of_grade
        counts += _chunk(evidence.comparable, rows).T @ by_state
        total += by_state.sum(axis=0)
    return posterior, counts.reshape(-1, evidence.classes, len(prior)).transpose(0, 2, 1), total


def state_posterior(
    evidence: Evidence, *, states: States, prior: Floats, columns: Floats, rows: slice | npt.NDArray[np.int64]
) -> Floats:
    """(n, S) of some items. columns: (R·C, S) log probabilities of each reader's grades."""
    log = _chunk(evidence.said, rows) @ columns + np.log(prior)
    if evidence.log_factor is not None:
        log += evidence.log_factor[rows][:, states.grade]
    log -= log.max(axis=1, keepdims=True)
    np.exp(log, out=log)
    log /= log.sum(axis=1, keepdims=True)
    return np.asarray(log)


def _chunk(said: csr_matrix, rows: slice | npt.NDArray[np.int64]) -> csr_matrix:
    """Some rows; all of them are not copied, which takes longer than the products of a small matrix."""
    whole = isinstance(rows, slice) and rows.start == 0 and rows.stop >= said.shape[0]
    return said if whole else said[rows]


def log_columns(matrices: Floats) -> Floats:
    """(R, S, C) → the logarithms as (R·C, S)."""
    readers, states, classes = matrices.shape
    return np.log(matrices).transpose(0, 2, 1).reshape(readers * classes, states)


def _mean(types: Floats, family: Family) -> Floats:
    """(R, S, C) the mean matrix of each reader."""
    kinds, states, classes = family.matrices.shape
    return (types @ family.matrices.reshape(kinds, -1)).reshape(-1, states, classes)


def _types(counts: Floats, family: Family, population: Population) -> Floats:
    """(R, T) probabilities of the types given the counts (R, S, C)."""
    log = counts.reshape(len(counts), -1) @ family.log_matrices.T
    log += population.log_prior(family)
    log -= log.max(axis=1, keepdims=True)
    np.exp(log, out=log)
    return np.asarray(log / log.sum(axis=1, keepdims=True))


def deviate(matrices: Floats, counts: Floats, states: States, *, strength: float) -> tuple[Floats, Floats]:
    """Matrices that the family lacks, first of all readers, then each reader's own.

    Each row of counts by true grade is drawn from a Dirichlet distribution around a row of the family with this
    strength. Within a grade the states keep their differences: all are multiplied by the same factors.

    Returns
    -------
    rows : (R, C, C) what each reader's rows are shrunk to
    matrices : (R, S, C)
    """
    size = np.maximum(counts.sum(axis=2), 1e-9)  # (R, S)
    pooled = counts.sum(axis=0, keepdims=True)
    mean = np.einsum("rs,rsj->sj", size, matrices) / size.sum(axis=0)[:, None]
    _, shared = _factors(mean[None], pooled, states, strength=strength)
    matrices = _times(matrices, shared[:, states.grade])
    rows, own = _factors(matrices, counts, states, strength=strength)
    return rows, _times(matrices, own[:, states.grade])


def _factors(matrices: Floats, counts: Floats, states: States, *, strength: float) -> tuple[Floats, Floats]:
    """(R, C, C) the matrices by true grade, and the factors that bring them to the shrunk counts."""
    by_grade = np.einsum("rsj,sc->rcj", counts, states.of_grade)
    size = np.maximum(counts.sum(axis=2), 1e-9)
    expected = np.einsum("rsj,sc->rcj", size[:, :, None] * matrices, states.of_grade)
    rows = expected / expected.sum(axis=2, keepdims=True)
    shrunk = (strength * rows + by_grade) / (strength + by_grade.sum(axis=2, keepdims=True))
    return rows, shrunk / rows


def _times(matrices: Floats, factors: Floats) -> Floats:
    product = matrices * factors
    return np.asarray(product / product.sum(axis=2, keepdims=True))


# Variants of the consensus model, weighted by how likely they make readings that were left out.
#
# The variants: whether items of a grade are all alike, and how strongly readers are tied to the family. A
# few hundred readings seldom tell which is right. The mean over the variants does not depend on one choice,
# and what differs between them is part of the doubt.

_STRENGTHS = (1e6, 100.0, 30.0, 10.0, 3.0)  # pseudo-readings of a row
_SMALLEST_OF_PAIRS = 30.0
_FEW = 10  # readings per reader
_HELD_OUT_ITEMS = 20_000
# Left-out readings of one item are not independent, so a difference of their log-likelihoods counts half.
_TEMPERATURE = 2.0
_SMALLEST_WEIGHT = 0.02
ENOUGH = 20  # items that show something


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Fits of the model, the likeliest first, and their weights (V,)."""

    fits: tuple[Fit, ...]
    weights: Floats

    def mean(self, value: Callable[[Fit], Floats]) -> Floats:
        """The weighted mean of a value over the variants."""
        parts = [weight * value(fit) for weight, fit in zip(self.weights, self.fits, strict=True)]
        return np.asarray(sum(parts[1:], parts[0]))


def fit_variants(evidence: Evidence, *, iterations: int = 100, tolerance: float = 2e-4) -> Variants:
    """Fit the variants of the model that matter."""
    weights = _weights(_scores(evidence, iterations=iterations, tolerance=5 * tolerance))
    found: dict[tuple[bool, float], Fit] = {}
    for alike in sorted({alike for alike, _ in weights}):
        loosest = min(strength for own, strength in weights if own == alike)
        for fit in _path(evidence, alike=alike, iterations=iterations, tolerance=tolerance):
            found[alike, fit.strength] = fit
            if fit.strength == loosest:
                break
    order = sorted(weights, key=lambda variant: -weights[variant])
    return Variants(
        fits=tuple(found[variant] for variant in order),
        weights=np.array([weights[variant] for variant in order]),
    )


def _weights(scores: dict[tuple[bool, float], float]) -> dict[tuple[bool, float], float]:
    """The variants with a weight that matters, from log-likelihoods."""
    best = max(scores.values())
    raw = {variant: float(np.exp((score - best) / _TEMPERATURE)) for variant, score in scores.items()}
    kept = {
        variant: weight for variant, weight in raw.items() if weight > _SMALLEST_WEIGHT * sum(raw.values())
    }
    return {variant: weight / sum(kept.values()) for variant, weight in kept.items()}


def _scores(evidence: Evidence, *, iterations: int, tolerance: float) -> dict[tuple[bool, float], float]:
    """The log-likelihood of left-out readings under each variant: (whether items are alike, strength)."""
    rest, held_out = hold_out(evidence)
    if not held_out.nnz:
        return {(False, _STRENGTHS[0]): 0.0}
    # Two readings of an item do not tell items apart from readers (three do): then only small departures are tried.
    deep = int((np.asarray(evidence.said.sum(axis=1)).ravel() > 2.0).sum()) >= ENOUGH or evidence.anchored
    size = float(held_out.sum())
    scores: dict[tuple[bool, float], float] = {}
    for alike in (True, False) if deep else (False,):
        last = -np.inf
        for fit in _path(rest, alike=alike, iterations=iterations, tolerance=tolerance):
            if fit.strength < _SMALLEST_OF_PAIRS and not deep:
                break
            score = scores[alike, fit.strength] = size * predictive(rest, held_out, fit)
            if score < last:
                break
            last = score
    return scores


def _path(evidence: Evidence, *, alike: bool, iterations: int, tolerance: float) -> Iterator[Fit]:
    """Fits with weaker and weaker ties to the family, each from where the one before ended."""
    states = item_states(evidence.classes, alike=alike)
    several = np.asarray(evidence.said.sum(axis=1)).ravel() > 1.0
    compared = evidence.anchored or int(several.sum()) >= ENOUGH
    family = reader_family(states, favourites=compared)
    fit: Fit | None = None
    few = evidence.said.sum() < _FEW * evidence.readers  # too few readings to know a reader's own matrix
    for strength in _STRENGTHS[:1] if few else _STRENGTHS:
        fit = maximise(
            evidence, states, family, strength=strength, start=fit, iterations=iterations, tolerance=tolerance
        )
        yield fit


def hold_out(evidence: Evidence, *, last: bool = False) -> tuple[Evidence, csr_matrix]:
    """A fifth of the readings of at most 20,000 items taken out; an item's last one only with ``last``."""
    rng = np.random.Generator(np.random.PCG64(0))
    items = evidence.said.shape[0]
    rows = np.sort(rng.permutation(items)[:_HELD_OUT_ITEMS])
    chosen_items = evidence.items(rows)
    said = chosen_items.said.tocoo()
    out = rng.random(said.nnz) < 0.2
    left = np.bincount(said.row[~out], minlength=len(rows))
    out &= (left[said.row] > 0) | last

    def part(chosen: npt.NDArray[np.bool_]) -> csr_matrix:
        return csr_matrix((said.data[chosen], (said.row[chosen], said.col[chosen])), shape=said.shape)

    return replace(chosen_items, said=part(~out)), part(out)


def predictive(evidence: Evidence, held_out: csr_matrix, fit: Fit) -> float:
    """The mean log-likelihood of held-out readings (I, R·C) given the others."""
    columns = log_columns(fit.matrices)
    prior = fit.states.prior(fit.grades, fit.kinds)
    total = 0.0
    for start in range(0, held_out.shape[0], CHUNK):
        rows = slice(start, start + CHUNK)
        by_state = state_posterior(evidence, states=fit.states, prior=prior, columns=columns, rows=rows)
        said = held_out[rows].tocoo()
        likelihood = (by_state[said.row] * np.exp(columns[said.col])).sum(axis=1)
        total += float(said.data @ np.log(likelihood))
    return total / float(held_out.sum())
