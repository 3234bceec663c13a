"""Confidence intervals of metrics, by resampling patients.

Images of one patient are similar: resampling images instead would make the intervals too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.ordinal.metrics import METRICS

__all__ = ["Interval", "bootstrap_metrics", "proportion_interval", "resampled_metrics"]

Floats = npt.NDArray[np.float64]


_SHARES = {"accuracy": 0, "one_off_accuracy": 1}  # metrics: of samples that are wrong by at most so much


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

    Where no draw differs, a share (accuracy) gets Wilson's interval.

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
    >>> found = bootstrap_metrics([0, 1, 2] * 10, [0, 1, 2] * 10, num_classes=3)["accuracy"]
    >>> found.value, round(found.low, 2), found.high
    (1.0, 0.88, 1.0)
    """
    found = resampled_metrics(
        true, predicted, num_classes=num_classes, groups=groups, resamples=resamples, seed=seed
    )
    tails = [(1 - level) / 2, 1 - (1 - level) / 2]
    intervals = {}
    for name, (value, *draws) in found.items():
        low, high = np.nanquantile(draws, tails) if np.isfinite(draws).any() else (np.nan, np.nan)
        intervals[name] = Interval(float(value), float(low), float(high))
        if name in _SHARES and low == high:
            off = np.abs(np.subtract(true, predicted))
            intervals[name] = proportion_interval(off <= _SHARES[name], groups=groups, level=level)
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
    return {name: np.array([METRICS[name](confusion) for confusion in confusions]) for name in metrics}


def proportion_interval(
    right: npt.ArrayLike, *, groups: Sequence[Hashable] | None = None, level: float = 0.95
) -> Interval:
    """A share and Wilson's interval, with the number of samples that independent ones would need (Rao and Scott).

    The variance of the share between patients gives this effective number, corrected for few patients as by Korn and
    Graubard. If all samples are right or all are wrong, nothing varies, and the number of patients is used. A bootstrap
    would give an interval of width 0 there. With one patient the interval is [0, 1].

    Parameters
    ----------
    right : array-like of bool, shape (N,)
    groups : sequence, length N, optional
        Patients. Default: every sample is its own patient.
    level : float
        Confidence level.

    Returns
    -------
    Interval
        nan without samples.

    Examples
    --------
    >>> from srjt.ordinal.intervals import proportion_interval
    >>> share = proportion_interval([True] * 20)
    >>> share.value, round(share.low, 2), share.high
    (1.0, 0.82, 1.0)
    """
    from scipy.stats import norm, t  # type: ignore[import-untyped]

    x = np.asarray(right, dtype=np.float64)
    n = len(x)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan)
    names = np.arange(n) if groups is None else np.asarray([str(g) for g in groups])
    _, owner = np.unique(names, return_inverse=True)
    patients = int(owner.max()) + 1
    share = float(x.mean())
    if patients == 1:
        return Interval(share, 0.0, 1.0)
    residuals = np.bincount(owner, weights=x - share, minlength=patients)
    variance = patients / (patients - 1) * float((residuals**2).sum()) / n**2
    binomial = share * (1.0 - share)
    effective = min(float(n), binomial / variance) if variance > 0 and binomial > 0 else float(patients)
    z = float(norm.ppf(0.5 + level / 2.0))
    effective *= (z / float(t.ppf(0.5 + level / 2.0, patients - 1))) ** 2
    centre = (share + z**2 / (2 * effective)) / (1 + z**2 / effective)
    half = z / (1 + z**2 / effective) * math.sqrt(binomial / effective + z**2 / (4 * effective**2))
    # rounding: the interval contains the share
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))
