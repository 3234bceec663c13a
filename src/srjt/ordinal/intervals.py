"""Confidence intervals of metrics, by resampling patients.

Images of one patient are similar: resampling images instead would make the intervals too narrow.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.ordinal.metrics import METRICS

__all__ = ["Interval", "bootstrap_metrics", "resampled_metrics"]

Floats = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """A metric and its confidence interval.

    Attributes
    ----------
    value, low, high : float
    """

    value: float
    low: float
    high: float


def bootstrap_metrics(
    true: npt.ArrayLike,
    predicted: npt.ArrayLike,
    *,
    num_classes: int,
    groups: Sequence[Hashable] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """Percentile-bootstrap intervals of all metrics.

    Parameters
    ----------
    true, predicted : array-like of int, shape (N,)
        Grades.
    num_classes : int
        C, the number of grades.
    groups : sequence, length N, optional
        Patients. Default: every sample is its own group.
    resamples : int
        Number of bootstrap draws.
    level : float
        Confidence level.
    seed : int

    Returns
    -------
    dict of str to Interval
        By name of the metric.

    Examples
    --------
    >>> from srjt.ordinal.intervals import bootstrap_metrics
    >>> bootstrap_metrics([0, 1, 2], [0, 1, 2], num_classes=3)["accuracy"]
    Interval(value=1.0, low=1.0, high=1.0)
    """
    found = resampled_metrics(
        true, predicted, num_classes=num_classes, groups=groups, resamples=resamples, seed=seed
    )
    tails = [(1 - level) / 2, 1 - (1 - level) / 2]
    intervals = {}
    for name, (value, *draws) in found.items():
        low, high = np.nanquantile(draws, tails) if np.isfinite(draws).any() else (np.nan, np.nan)
        intervals[name] = Interval(float(value), float(low), float(high))
    return intervals


def resampled_metrics(
    true: npt.ArrayLike,
    predicted: npt.ArrayLike,
    *,
    num_classes: int,
    groups: Sequence[Hashable] | None = None,
    metrics: Iterable[str] = tuple(METRICS),
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Floats]:
    """Metrics of the samples as they are, and of each bootstrap draw of the patients.

    The same groups and seed give the same draws, so the results of two methods on the same samples can be subtracted.
    Every metric is a function of the confusion matrix, and the matrix of a draw is a weighted sum of the patients' own
    matrices: nothing is counted again.

    Parameters
    ----------
    true, predicted : array-like of int, shape (N,)
        Grades.
    num_classes : int
        C, the number of grades.
    groups : sequence, length N, optional
        Patients. Default: every sample is its own group.
    metrics : iterable of str
        Names in ``srjt.ordinal.metrics.METRICS``. Default: all.
    resamples : int
        Number of bootstrap draws.
    seed : int

    Returns
    -------
    dict of str to array, shape (1 + resamples,)
        By name of the metric; the first value is that of the samples as they are.

    Examples
    --------
    >>> from srjt.ordinal.intervals import resampled_metrics
    >>> resampled_metrics([0, 1, 2], [0, 1, 2], num_classes=3, resamples=2)["mae"].tolist()
    [0.0, 0.0, 0.0]
    """
    y, p = np.asarray(true, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    if len(y) == 0 or len(y) != len(p):
        raise SrjtError(
            f"{len(y)} true and {len(p)} predicted grades: there must be as many of both, and at least one."
        )
    _, owner = np.unique(
        np.arange(len(y)) if groups is None else np.asarray([str(g) for g in groups]), return_inverse=True
    )
    patients = int(owner.max()) + 1
    own = np.zeros((patients, num_classes * num_classes))
    np.add.at(own, (owner, y * num_classes + p), 1.0)
    draws = np.random.Generator(np.random.PCG64(seed)).multinomial(
        patients, np.full(patients, 1.0 / patients), size=resamples
    )
    weights = np.concatenate([np.ones((1, patients)), draws])
    confusions = (weights @ own).reshape(-1, num_classes, num_classes)
    return {name: METRICS[name].function(confusions) for name in metrics}
