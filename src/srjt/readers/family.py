"""The ordinal family of readers: bias, slope, spread and lapses, as a grid of types with a prior.

A reader of type t sees slope · severity + bias + spread · normal noise and says the grade whose interval holds it; with
the probability ``lapse`` the reader says any grade. Some types say a favourite grade almost always. A grid instead
of a point per reader: what few readings leave open stays open, and no step size is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr  # type: ignore[import-untyped]

from srjt.readers.states import States

__all__ = ["Family", "Population", "reader_family"]

Floats = npt.NDArray[np.float64]

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
