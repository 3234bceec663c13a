"""Bootstrap draws of patients, and the intervals that they give."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from srjt.ordinal.decisions import proportion_interval
from srjt.ordinal.intervals import Interval
from srjt.readers.pairs import Pairs

__all__ = ["draws", "ends", "interval_of", "interval_of_share"]

Floats = npt.NDArray[np.float64]

_CELLS = 10_000_000  # numbers held at once


def draws(groups: int, resamples: int, *, seed: int, width: int) -> Iterator[Floats]:
    """Weights of the groups (n, G): first all ones, then the draws in chunks that keep what is held at once bounded."""
    rng = np.random.Generator(np.random.PCG64(seed))
    at_once = max(1, _CELLS // max(width, groups))
    yield np.ones((1, groups))
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        yield rng.multinomial(groups, np.full(groups, 1.0 / groups), size=size).astype(np.float64)


def ends(values: Floats, tails: tuple[float, float]) -> tuple[Floats, Floats]:
    """Quantiles over the draws, the first row being the value itself; nan where there is no value."""
    drawn = values[1:] if len(values) > 1 else values
    defined = np.isfinite(drawn)
    found = np.full((2, values.shape[1]), np.nan)
    whole = defined.all(axis=0) & np.isfinite(values[0])
    some = defined.any(axis=0) & np.isfinite(values[0]) & ~whole
    if whole.any():  # much faster than nanquantile
        found[:, whole] = np.quantile(drawn[:, whole], tails, axis=0)
    if some.any():
        found[:, some] = np.nanquantile(drawn[:, some], tails, axis=0)
    return np.minimum(found[0], values[0]), np.maximum(found[1], values[0])


def interval_of(values: Floats, tails: tuple[float, float]) -> Interval:
    low, high = ends(values[:, None], tails)
    return Interval(float(values[0]), float(low[0]), float(high[0]))


def interval_of_share(
    tables: Floats,
    near: npt.NDArray[np.bool_],
    shared: Pairs,
    owner: npt.NDArray[np.int64],
    tails: tuple[float, float],
) -> Interval:
    """The share of pairs in the cells (C, C) of ``near``. tables: (1 + B, C, C), of all pairs and of the draws."""
    size = tables.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = interval_of(tables[:, near].sum(axis=1) / size, tails)
    if len(tables) == 1 or found.low != found.high:
        return found
    return proportion_interval(
        near[shared.grade_first, shared.grade_second],
        groups=owner[shared.item].tolist(),
        level=tails[1] - tails[0],
    )
