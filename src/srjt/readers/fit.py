"""Fit the consensus model by expectation–maximisation.

The readings enter as a sparse matrix (items × reader and grade), so one iteration is two sparse products. All that is
learnt of the readers lies in their counts by state and grade: (R, C, S) numbers, however many readings there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from srjt.readers.family import Family, Population, first_population, fit_population, reader_family
from srjt.readers.states import KINDS, States, item_states

__all__ = [
    "ENOUGH",
    "Evidence",
    "Fit",
    "fit_model",
    "hold_out",
    "log_columns",
    "predictive",
    "state_posterior",
]

Floats = npt.NDArray[np.float64]

_CHUNK = 50_000  # items at once: bounds the memory
_KIND_PRIOR = np.array([3.0, 3.0, 1.0])  # pseudo-items
_STRENGTHS = (1e6, 100.0, 30.0, 10.0, 3.0)  # pseudo-readings of a row
_SMALLEST_OF_PAIRS = 30.0
_FEW = 10  # readings per reader
_HELD_OUT_ITEMS = 20_000
ENOUGH = 20  # items that show something


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the model is fitted to."""

    said: csr_matrix  # (I, R·C) weight of each reader's grades
    readers: int
    classes: int
    log_factor: Floats | None = None  # (I, C) of other witnesses: the reference, a network
    anchored: bool = False  # whether a reference fixes the readers' common bias

    @cached_property
    def single(self) -> npt.NDArray[np.bool_]:
        """(I,) items with one reading, and no other witness."""
        once = np.asarray(self.said.sum(axis=1)).ravel() <= 1.0
        return once if self.log_factor is None else once & ~self.log_factor.any(axis=1)


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


def fit_model(evidence: Evidence, *, iterations: int = 100, tolerance: float = 2e-4) -> Fit:
    """Fit the variant of the model that makes left-out readings likeliest.

    The variants: whether items of a grade are all alike, and how strongly the readers are tied to the family.
    """
    alike, loosest = _choose(evidence, iterations=iterations, tolerance=5 * tolerance)
    for fit in _path(evidence, alike=alike, iterations=iterations, tolerance=tolerance):
        if fit.strength == loosest:
            break
    return fit


def _choose(evidence: Evidence, *, iterations: int, tolerance: float) -> tuple[bool, float]:
    """Whether items are alike, and the strength."""
    rest, held_out = hold_out(evidence)
    if not held_out.nnz:
        return False, _STRENGTHS[0]
    # Two readings of an item do not tell items apart from readers (three do): then only small departures are tried.
    deep = int((np.asarray(evidence.said.sum(axis=1)).ravel() > 2.0).sum()) >= ENOUGH or evidence.anchored
    scores: dict[tuple[bool, float], float] = {}
    for alike in (True, False) if deep else (False,):
        last = -np.inf
        for fit in _path(rest, alike=alike, iterations=iterations, tolerance=tolerance):
            score = predictive(rest, held_out, fit)
            if score < last or (fit.strength < _SMALLEST_OF_PAIRS and not deep):
                break
            scores[alike, fit.strength] = last = score
    return max(scores, key=lambda variant: scores[variant])


def _path(evidence: Evidence, *, alike: bool, iterations: int, tolerance: float) -> Iterator[Fit]:
    """Fits with weaker and weaker ties to the family, each from where the one before ended."""
    states = item_states(evidence.classes, alike=alike)
    several = np.asarray(evidence.said.sum(axis=1)).ravel() > 1.0
    compared = evidence.anchored or int(several.sum()) >= ENOUGH
    family = reader_family(states, favourites=compared)
    fit: Fit | None = None
    few = evidence.said.sum() < _FEW * evidence.readers  # too few readings to know a reader's own matrix
    for strength in _STRENGTHS[:1] if few else _STRENGTHS:
        fit = _maximise(
            evidence, states, family, strength=strength, start=fit, iterations=iterations, tolerance=tolerance
        )
        yield fit


def hold_out(evidence: Evidence, *, last: bool = False) -> tuple[Evidence, csr_matrix]:
    """A fifth of the readings of at most 20,000 items taken out; an item's last one only with ``last``."""
    rng = np.random.Generator(np.random.PCG64(0))
    items = evidence.said.shape[0]
    rows = np.sort(rng.permutation(items)[:_HELD_OUT_ITEMS])
    said = evidence.said[rows].tocoo()
    factor = None if evidence.log_factor is None else evidence.log_factor[rows]
    out = rng.random(said.nnz) < 0.2
    left = np.bincount(said.row[~out], minlength=len(rows))
    out &= (left[said.row] > 0) | last

    def part(chosen: npt.NDArray[np.bool_]) -> csr_matrix:
        return csr_matrix((said.data[chosen], (said.row[chosen], said.col[chosen])), shape=said.shape)

    return replace(evidence, said=part(~out), log_factor=factor), part(out)


def predictive(evidence: Evidence, held_out: csr_matrix, fit: Fit) -> float:
    """The mean log-likelihood of held-out readings (I, R·C) given the others."""
    columns = log_columns(fit.matrices)
    prior = fit.states.prior(fit.grades, fit.kinds)
    total = 0.0
    for start in range(0, held_out.shape[0], _CHUNK):
        rows = slice(start, start + _CHUNK)
        by_state = state_posterior(evidence, states=fit.states, prior=prior, columns=columns, rows=rows)
        said = held_out[rows].tocoo()
        likelihood = (by_state[said.row] * np.exp(columns[said.col])).sum(axis=1)
        total += float(said.data @ np.log(likelihood))
    return total / float(held_out.sum())


def _maximise(
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


def _grade_counts(evidence: Evidence, posterior: Floats) -> Floats:
    """(C,) items by grade, to set the prior. Where an item has one reading, what was read counts.

    One reading of each item does not tell the readers' spread from the spread of the grades, and a prior that is fitted
    all the same becomes too sharp.
    """
    single = evidence.single
    votes = np.asarray(evidence.said[single].sum(axis=0)).reshape(evidence.readers, -1).sum(axis=0)
    return np.asarray(posterior[~single].sum(axis=0) + votes)


def expectation(
    evidence: Evidence, *, states: States, prior: Floats, matrices: Floats
) -> tuple[Floats, Floats, Floats]:
    """The grades' posterior (I, C), the readers' counts (R, S, C) by state and grade, and the states' counts (S,)."""
    items = evidence.said.shape[0]
    columns = log_columns(matrices)
    posterior = np.empty((items, evidence.classes))
    counts = np.zeros_like(columns)
    total = np.zeros(len(prior))
    for start in range(0, items, _CHUNK):
        rows = slice(start, start + _CHUNK)
        by_state = state_posterior(evidence, states=states, prior=prior, columns=columns, rows=rows)
        posterior[rows] = by_state @ states.of_grade
        counts += evidence.said[rows].T @ by_state
        total += by_state.sum(axis=0)
    return posterior, counts.reshape(-1, evidence.classes, len(prior)).transpose(0, 2, 1), total


def state_posterior(
    evidence: Evidence, *, states: States, prior: Floats, columns: Floats, rows: slice | npt.NDArray[np.int64]
) -> Floats:
    """(n, S) of some items. columns: (R·C, S) log probabilities of each reader's grades."""
    log = evidence.said[rows] @ columns + np.log(prior)
    if evidence.log_factor is not None:
        log += evidence.log_factor[rows][:, states.grade]
    log -= log.max(axis=1, keepdims=True)
    np.exp(log, out=log)
    log /= log.sum(axis=1, keepdims=True)
    return np.asarray(log)


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
    log = counts.reshape(len(counts), -1) @ np.log(family.matrices).reshape(len(family.bias), -1).T
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
    expected = np.einsum(
        "rs,rsj,sc->rcj", np.maximum(counts.sum(axis=2), 1e-9), matrices, states.of_grade, optimize=True
    )
    rows = expected / expected.sum(axis=2, keepdims=True)
    shrunk = (strength * rows + by_grade) / (strength + by_grade.sum(axis=2, keepdims=True))
    return rows, shrunk / rows


def _times(matrices: Floats, factors: Floats) -> Floats:
    product = matrices * factors
    return np.asarray(product / product.sum(axis=2, keepdims=True))
