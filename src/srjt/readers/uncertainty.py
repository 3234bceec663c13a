"""How well each reader is known: intervals of the matrices, biases and noise rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv  # type: ignore[import-untyped]

from srjt.readers.fit import Evidence, Fit, log_columns, state_posterior

__all__ = ["ReaderIntervals", "beta_interval", "reader_intervals"]

Floats = npt.NDArray[np.float64]

_READINGS = 40_000  # about as many readings are looked at; more of a reader are represented by these


@dataclass(frozen=True, kw_only=True)
class ReaderIntervals:
    matrices: Floats  # (R, C, C)
    matrices_interval: Floats  # (2, R, C, C)
    bias: Floats  # (R,) in grades, of the family
    bias_interval: Floats  # (2, R)
    spread: Floats  # (R,)
    rate: Floats  # (R,) share of wrong readings
    rate_variance: Floats  # (R,)


def reader_intervals(evidence: Evidence, fit: Fit, *, confidence: float) -> ReaderIntervals:
    """From the types' probabilities, and the Dirichlet distributions of the deviations from the family.

    The types are weighted by the likelihood of a reader's readings given the *other* readings of the items. So where
    nothing else is known of the items, the interval is as wide as the population of readers.
    """
    within = fit.states.prior(fit.grades, fit.kinds)[:, None] * fit.states.of_grade
    within = within / within.sum(axis=0)  # (S, C) p(state | grade)
    matrices = np.einsum("rsj,sc->rcj", fit.matrices, within)
    by_type = np.einsum("tsj,sc->tcj", fit.family.matrices, within)
    types = _types_given_others(evidence, fit)
    size = (
        np.asarray(evidence.said.T @ fit.posterior**2).reshape(len(types), -1, evidence.classes).sum(axis=1)
    )
    own = 1.0 / (fit.strength + size[:, :, None] + 1.0)  # of the Dirichlet distribution
    variance = _variance(types, by_type.reshape(len(by_type), -1)).reshape(matrices.shape)
    variance += matrices * (1.0 - matrices) * own
    wrong = 1.0 - np.diagonal(matrices, axis1=1, axis2=2)  # (R, C)
    wrong_by_type = 1.0 - np.diagonal(by_type, axis1=1, axis2=2) @ fit.grades
    rate_variance = _variance(types, wrong_by_type[:, None])[:, 0]
    rate_variance += (fit.grades**2 * wrong * (1.0 - wrong) * own[:, :, 0]).sum(axis=1)
    bias = types @ fit.family.bias
    tail = (1.0 - confidence) / 2.0
    return ReaderIntervals(
        matrices=matrices,
        matrices_interval=beta_interval(matrices, variance, confidence=confidence),
        bias=bias,
        bias_interval=_quantiles(types, fit.family.bias, (tail, 1.0 - tail)),
        spread=np.exp(types @ np.log(fit.family.spread)),
        rate=wrong @ fit.grades,
        rate_variance=rate_variance,
    )


def beta_interval(mean: Floats, variance: Floats, *, confidence: float) -> Floats:
    """(2, …) lower and upper ends of beta distributions with these moments; they hold the mean."""
    inside = np.clip(mean, 1e-9, 1.0 - 1e-9)
    size = np.maximum(inside * (1.0 - inside) / np.maximum(variance, 1e-12) - 1.0, 1e-3)
    tail = (1.0 - confidence) / 2.0
    ends = np.stack([betaincinv(inside * size, (1.0 - inside) * size, q) for q in (tail, 1.0 - tail)])
    ends = np.where(np.isfinite(ends), ends, mean)
    return np.stack([np.minimum(ends[0], mean), np.maximum(ends[1], mean)])


def _types_given_others(evidence: Evidence, fit: Fit) -> Floats:
    """(R, T) probabilities of the types by the likelihood Σ_s p(s | other readings) F_t(reading | s)."""
    said = evidence.said.tocoo()
    classes = evidence.classes
    reader, grade = np.divmod(said.col, classes)
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
        others = by_state[place] / np.exp(columns[said.col[part]])
        others /= others.sum(axis=1, keepdims=True)
        for one in range(classes):
            rows = np.flatnonzero(grade[part] == one)
            likelihood = np.log(others[rows] @ fit.family.matrices[:, :, one].T)  # (n, T)
            np.add.at(log, reader[part][rows], likelihood * said.data[part][rows, None])
    log = log * scale[:, None] + fit.population.log_prior(fit.family)
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
