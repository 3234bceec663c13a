"""The model behind a consensus: true grades are latent, each reader errs by a matrix of their own,
and the fit chooses how much the readers have in common (crowds: ``crowd``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
from scipy.special import ndtr, softmax  # type: ignore[import-untyped]

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
_FAVOURITE = 0.97  # how often a reader who has a favourite grade says it whatever the item shows
# Before any data: pseudo-readers of each slope and lapse, and the normal priors of bias and log
# spread.
_SLOPE_PRIOR = np.array([0.5, 3.0, 0.5])
_LAPSE_PRIOR = np.array([2.0, 1.0, 0.5, 0.2])
BIAS_SCALE = 0.3
SPREAD_MEAN = np.log(0.45)
SPREAD_SCALE = 0.4
PSEUDO_READERS = 3.0


@dataclass(frozen=True, kw_only=True)
class Family:
    """T types of readers."""

    bias: Floats  # (T,)
    spread: Floats  # (T,)
    matrices: Floats  # (T, S, C) Pr(reading | state)


@dataclass(frozen=True, kw_only=True)
class Grid(Family):
    """The types of a few readers."""

    slope: Ints  # (T,) index
    lapse: Ints  # (T,) index

    @cached_property
    def log_matrices(self) -> Floats:
        """(T, S·C)"""
        return np.log(self.matrices).reshape(len(self.matrices), -1)


@dataclass(frozen=True, kw_only=True)
class Population:
    """How the types are distributed among readers."""

    bias_mean: float = 0.0
    bias_scale: float = BIAS_SCALE
    spread_mean: float = float(SPREAD_MEAN)  # of the log
    spread_scale: float = SPREAD_SCALE
    slope: Floats
    lapse: Floats

    def log_prior(self, family: Grid) -> Floats:
        """(T,)"""
        log = -0.5 * ((family.bias - self.bias_mean) / self.bias_scale) ** 2
        log = log - 0.5 * ((np.log(family.spread) - self.spread_mean) / self.spread_scale) ** 2
        log = log + np.log(self.slope)[family.slope] + np.log(self.lapse)[family.lapse]
        return np.asarray(log - np.logaddexp.reduce(log))


def fit_population(family: Grid, types: Floats, *, free_bias: bool) -> Population:
    """From the readers' probabilities of the types (R, T). The common bias is free only where a
    reference fixes it."""
    few = PSEUDO_READERS
    total = types.sum(axis=0)
    whole = few + len(types)
    log_spread = np.log(family.spread)
    mean = float(total @ family.bias) / whole if free_bias else 0.0
    spread = (float(total @ log_spread) + few * SPREAD_MEAN) / whole
    return Population(
        bias_mean=mean,
        bias_scale=float(
            np.sqrt((few * BIAS_SCALE**2 + total @ (family.bias - mean) ** 2) / whole)
        ),
        spread_mean=spread,
        spread_scale=float(
            np.sqrt((few * SPREAD_SCALE**2 + total @ (log_spread - spread) ** 2) / whole)
        ),
        slope=_shares(family.slope, total, _SLOPE_PRIOR),
        lapse=_shares(family.lapse, total, _LAPSE_PRIOR),
    )


def _shares(index: Ints, total: Floats, prior: Floats) -> Floats:
    counts = np.bincount(index, total, minlength=len(prior)) + prior
    return np.asarray(counts / counts.sum())


def reader_family(states: States, *, favourites: bool) -> Grid:
    """All types, with the matrices that they have on these states.

    ``favourites``: whether readers may have a favourite grade. Where items have one reading, a
    frequent grade and a favourite one are the same.
    """
    classes = states.of_grade.shape[1]
    bias, slope, spread, lapse = (
        axis.ravel()
        for axis in np.meshgrid(
            _BIAS, np.arange(len(_SLOPE)), _SPREAD, np.arange(len(_LAPSE)), indexing="ij"
        )
    )
    matrices = ordinal_matrices(
        states, bias=bias, slope=_SLOPE[slope], spread=spread, lapse=_LAPSE[lapse]
    )
    usual = int(
        np.flatnonzero((bias == 0) & (slope == 1) & (spread == _SPREAD[3]) & (lapse == 1))[0]
    )
    favourite = np.eye(classes if favourites else 0, classes)[:, None, :]
    fond = _FAVOURITE * favourite + (1.0 - _FAVOURITE) * matrices[usual]
    extra = np.ones(len(fond), dtype=np.int64)
    return Grid(
        bias=np.concatenate([bias, 0.0 * extra]),
        slope=np.concatenate([slope, extra]),
        spread=np.concatenate([spread, _SPREAD[3] * extra]),
        # as frequent as those who say any grade
        lapse=np.concatenate([lapse, (len(_LAPSE) - 1) * extra]),
        matrices=np.concatenate([matrices, fond]),
    )


def ordinal_matrices(
    states: States, *, bias: Floats, slope: Floats, spread: Floats, lapse: Floats
) -> Floats:
    """(T, S, C) Pr(reading | state) of ordinal types, of which each argument has T values."""
    classes = states.of_grade.shape[1]
    middle = (classes - 1) / 2
    seen = middle + slope[:, None] * (states.severity - middle) + bias[:, None]  # (T, S)
    noise = spread[:, None] * states.effort
    limits = np.arange(classes - 1) + 0.5
    below = ndtr((limits - seen[..., None]) / noise[..., None])  # (T, S, C − 1)
    ends = np.ones((*seen.shape, 1))
    said = np.diff(np.concatenate([0.0 * ends, below, ends], axis=2), axis=2)
    any_grade = lapse[:, None, None]
    return np.asarray((1.0 - any_grade) * said + any_grade / classes)


# Fit the consensus model by expectation–maximisation.
#
# The readings enter as a sparse matrix (items × reader and grade), so one iteration is two sparse
# products. All that is learnt of the readers lies in their counts by state and grade: (R, C, S)
# numbers.

_CHUNK = 50_000  # items at once: bounds the memory
_KIND_PRIOR = np.array([3.0, 3.0, 1.0])  # pseudo-items
STRENGTHS = (1e6, 100.0, 30.0, 10.0, 3.0)  # pseudo-readings of a row

AnyFit = TypeVar("AnyFit", bound="Fit")


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a model of readers has learnt. How it learns is in the classes of the models."""

    states: States
    family: Family
    grades: Floats  # (C,) shares of the true grades
    kinds: Floats  # (K,) shares of the kinds of items
    types: Floats  # (R, T) probabilities of each reader's type
    matrices: Floats  # (R, S, C) Pr(reading | state)
    readings: Floats  # (R, S, C) expected readings by state and grade read
    posterior: Floats  # (I, C)

    @property
    def log_prior(self) -> Floats:
        """(T,) of the types."""
        raise NotImplementedError

    def deviation(self, size: Floats) -> Floats:
        """(R, C) how far a row may be from what is known of it: the factor of the variance m(1 − m)
        of a row after so many readings (R, C)."""
        raise NotImplementedError

    def updated(
        self: AnyFit, evidence: Evidence, posterior: Floats, readings: Floats, total: Floats
    ) -> AnyFit:
        """The fit given what ``expectation`` returns."""
        raise NotImplementedError

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


@dataclass(frozen=True, kw_only=True)
class GridFit(Fit):
    """Of a few readers, with one strength."""

    family: Grid
    population: Population
    # pseudo-readings by which a row of a reader's matrix holds to the family
    strength: float = STRENGTHS[0]

    @property
    def log_prior(self) -> Floats:
        return self.population.log_prior(self.family)

    def deviation(self, size: Floats) -> Floats:
        return np.asarray(1.0 / (self.strength + size + 1.0))

    def updated(
        self, evidence: Evidence, posterior: Floats, readings: Floats, total: Floats
    ) -> GridFit:
        by_kind = np.bincount(self.states.kind, total, minlength=len(_KIND_PRIOR)) + _KIND_PRIOR
        log_types = readings.reshape(len(readings), -1) @ self.family.log_matrices.T
        types = softmax(log_types + self.log_prior, axis=1)
        matrices = _mean(types, self.family)
        return replace(
            self,
            population=fit_population(self.family, types, free_bias=evidence.anchored),
            grades=shares_of_grades(evidence, posterior),
            kinds=by_kind / by_kind.sum(),
            types=types,
            matrices=deviate(matrices, readings, self.states, strength=self.strength),
            readings=readings,
            posterior=posterior,
        )


def shares_of_grades(evidence: Evidence, posterior: Floats) -> Floats:
    """(C,) Where an item has one reading, what was read counts: one reading of each item does not
    tell the readers' spread from the spread of the grades, and a prior that is fitted all the same
    becomes too sharp."""
    grades = posterior[~evidence.single].sum(axis=0) + evidence.single_readings + 1.0
    return np.asarray(grades / grades.sum())


def beginning(evidence: Evidence, *, alike: bool) -> GridFit:
    """Before the first iteration: all readers are what is usual. alike: whether every item is
    typical of its grade."""
    states = item_states(evidence.classes, alike=alike)
    family = reader_family(states, favourites=compared(evidence))
    population = Population(
        slope=_SLOPE_PRIOR / _SLOPE_PRIOR.sum(), lapse=_LAPSE_PRIOR / _LAPSE_PRIOR.sum()
    )
    types = np.tile(np.exp(population.log_prior(family)), (evidence.readers, 1))
    matrices = _mean(types, family)
    return GridFit(
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


def compared(evidence: Evidence) -> bool:
    """Whether enough items have several readings, or a reference, to see a favourite grade."""
    return evidence.anchored or int((evidence.weight > 1.0).sum()) >= ENOUGH


def maximise(evidence: Evidence, fit: AnyFit, *, tolerance: float, iterations: int = 100) -> AnyFit:
    """Iterate from a fit until the mean absolute change of the posterior is below ``tolerance``."""
    for iteration in range(iterations):
        before = fit.posterior
        fit = fit.updated(evidence, *fit.expectation(evidence))
        if iteration and np.abs(fit.posterior - before).mean() < tolerance:
            break
    return fit


def refit(
    evidence: Evidence, fit: AnyFit, rows: Ints | None = None, *, tolerance: float = 1e-3
) -> AnyFit:
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


def deviate(matrices: Floats, counts: Floats, states: States, *, strength: float) -> Floats:
    """(R, S, C) matrices that the family lacks, first of all readers, then each reader's own.

    Each row of counts by true grade is drawn from a Dirichlet distribution around a row of the
    family with this strength. Within a grade the states keep their differences: all are multiplied
    by the same factors.
    """
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
