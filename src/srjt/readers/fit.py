"""Fit the consensus model by expectation–maximisation.

The readings enter as a sparse matrix (items × reader and grade), so one iteration is two sparse products. All that is
learnt of the readers lies in their counts by state and grade: (R, C, S) numbers, however many readings there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from srjt.readers.evidence import Evidence
from srjt.readers.family import Family, Population, first_population, fit_population
from srjt.readers.states import KINDS, States

__all__ = ["CHUNK", "Fit", "log_columns", "maximise", "state_posterior"]

Floats = npt.NDArray[np.float64]

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
