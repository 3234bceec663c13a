"""The formulas of the metrics, for many confusion matrices at once: a bootstrap has a thousand of them.

Counts are floats of shape (..., C, C), none of them empty; a value per matrix comes back. ``metrics`` has the same
for one matrix, checked and documented.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = [
    "accuracy",
    "divide",
    "macro_f1",
    "macro_mae",
    "macro_precision",
    "macro_recall",
    "mae",
    "one_off_accuracy",
    "quadratic_weighted_kappa",
    "rmse",
]

Floats = npt.NDArray[np.float64]


def accuracy(counts: Floats) -> Floats:
    return np.asarray(_right(counts).sum(axis=-1) / _total(counts))


def mae(counts: Floats) -> Floats:
    return _total(counts * _distance(counts)) / _total(counts)


def rmse(counts: Floats) -> Floats:
    return np.sqrt(_total(counts * _distance(counts) ** 2) / _total(counts))


def macro_mae(counts: Floats) -> Floats:
    samples = counts.sum(axis=-1)
    return _mean((counts * _distance(counts)).sum(axis=-1), samples, over=samples > 0)


def one_off_accuracy(counts: Floats) -> Floats:
    return _total(counts * (_distance(counts) <= 1)) / _total(counts)


def macro_precision(counts: Floats) -> Floats:
    return _mean(_right(counts), counts.sum(axis=-2), over=_involved(counts))


def macro_recall(counts: Floats) -> Floats:
    return _mean(_right(counts), counts.sum(axis=-1), over=_involved(counts))


def macro_f1(counts: Floats) -> Floats:
    return _mean(2 * _right(counts), counts.sum(axis=-2) + counts.sum(axis=-1), over=_involved(counts))


def quadratic_weighted_kappa(counts: Floats) -> Floats:
    squared = _distance(counts) ** 2
    by_chance = counts.sum(axis=-1)[..., :, None] * counts.sum(axis=-2)[..., None, :]
    expected = _total(squared * (by_chance / _total(counts)[..., None, None]))
    return 1.0 - divide(_total(squared * counts), expected, empty=np.nan)


def divide(part: Floats, whole: Floats, *, empty: float) -> Floats:
    """``part / whole``, and ``empty`` where there is nothing to divide by."""
    share: Floats = np.divide(part, whole, out=np.full(np.shape(part), empty), where=np.asarray(whole) > 0)
    return share


def _right(counts: Floats) -> Floats:
    return np.diagonal(counts, axis1=-2, axis2=-1)


def _total(counts: Floats) -> Floats:
    total: Floats = counts.reshape(*counts.shape[:-2], -1).sum(axis=-1)
    return total


def _distance(counts: Floats) -> Floats:
    grade = np.arange(counts.shape[-1], dtype=np.float64)
    return np.abs(grade[:, None] - grade[None, :])


def _involved(counts: Floats) -> npt.NDArray[np.bool_]:
    """The grades that are present or predicted."""
    return np.asarray(counts.sum(axis=-2) + counts.sum(axis=-1) > 0)


def _mean(part: Floats, whole: Floats, *, over: npt.NDArray[np.bool_]) -> Floats:
    mean: Floats = np.where(over, divide(part, whole, empty=0.0), 0.0).sum(axis=-1) / over.sum(axis=-1)
    return mean
