"""How sure a number is: intervals of metrics that resample whole patients, intervals of differences, and Holm's
correction for several tests.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.ordinal.metrics import METRICS

# Confidence intervals of metrics, by resampling patients.
#
# Images of one patient are similar: resampling images instead would make the intervals too narrow.

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


# Differences between two methods: intervals that contain patients and trainings, and Holm's correction.
#
# Two methods are each trained R times (seeds) and tested on the same P patients. The mean difference varies
# because other patients would give another one, and because other trainings would. Resampling patients
# alone ignores the second part, which with two to five trainings is often the larger one.


class Difference(NamedTuple):
    """A mean difference with its confidence interval and two-sided p-value.

    Attributes
    ----------
    value, low, high, p_value : float
        nan: there is no interval, because a single training says nothing about others.
    """

    value: float
    low: float
    high: float
    p_value: float


def crossed_difference(draws: npt.ArrayLike, *, patients: int, level: float = 0.95) -> Difference:
    """The mean difference of R trainings on the same patients; its interval contains patients and trainings.

    With variances σ_P² between patients, σ_R² between trainings and σ_PR² of their interaction, the mean difference
    has the variance σ_P²/P + σ_R²/R + σ_PR²/(PR). Resampling patients estimates A = σ_P²/P + σ_PR²/(PR); the variance
    between trainings, divided by R, estimates B = σ_R²/R + σ_PR²/(PR). Resampling patients for each training alone
    gives the interaction, which A + B counts twice. The quantile is Cochran's: the mean of Student's quantiles with
    P − 1 and R − 1 degrees of freedom, weighted by A and B. It is exact if one of them is zero. Otherwise 95 %
    intervals cover 95 to 99 % with two trainings and 95 to 97 % with five, where Satterthwaite's quantile covers
    89 % with two.

    Parameters
    ----------
    draws : array-like of float, shape (R, 1 + resamples)
        For each training the difference of a metric: for the patients as they are, then for each bootstrap draw of
        them. All trainings have the same draws, as ``resampled_metrics`` makes them.
    patients : int
        P, the number of patients.
    level : float
        Confidence level.

    Returns
    -------
    Difference

    Examples
    --------
    >>> from srjt.ordinal.intervals import crossed_difference
    >>> found = crossed_difference([[0.10, 0.09, 0.11], [0.20, 0.19, 0.21]], patients=100)
    >>> print(f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})")
    0.15 (-0.47 to 0.77)
    """
    from scipy.optimize import brentq  # type: ignore[import-untyped]
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    values = np.asarray(draws, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 3:
        raise SrjtError(
            f"draws has a row per training: the difference, and at least two resampled ones; got {values.shape}."
        )
    if patients < 2:
        raise SrjtError(f"An interval needs at least two patients; got {patients}.")
    if not 0.0 < level < 1.0:
        raise SrjtError(f"A confidence level is between 0 and 1, for example 0.95; got {level:g}.")
    trainings, mean = len(values), float(values[:, 0].mean())
    if trainings < 2:
        return Difference(mean, math.nan, math.nan, math.nan)
    of_patients = float(values[:, 1:].mean(axis=0).var(ddof=1))
    each = float(values[:, 1:].var(axis=1, ddof=1).mean())
    interaction = max(0.0, (each - of_patients) / (trainings - 1))
    of_trainings = float(values[:, 0].var(ddof=1)) / trainings
    variance = of_patients + max(0.0, of_trainings - interaction)
    if variance <= (1e-12 * np.abs(values).max()) ** 2:  # nothing varies
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0)
    # The degrees of freedom belong to the estimates as they are. With the interaction taken out of this share, too, a
    # small B by chance would mean a small quantile as well, and intervals of two trainings would cover 88 %.
    share = of_trainings / (of_patients + of_trainings)

    def quantile(two_sided: float) -> float:
        tail = two_sided / 2
        return -float((1 - share) * stdtrit(patients - 1, tail) + share * stdtrit(trainings - 1, tail))

    distance = abs(mean) / math.sqrt(variance)
    smallest = 1e-12  # where the root is sought
    p = 1.0 if distance == 0 else smallest
    if 0 < distance < quantile(smallest):
        p = float(brentq(lambda two_sided: quantile(two_sided) - distance, smallest, 1.0))
    half = quantile(1 - level) * math.sqrt(variance)
    return Difference(mean, mean - half, mean + half, p)


def holm(p_values: npt.ArrayLike) -> Floats:
    """p-values corrected for their number by Holm's method: below α, all that are have a joint error of at most α.

    Parameters
    ----------
    p_values : array-like of float, shape (n,)
        nan, where there is no test, stays nan and does not count.

    Returns
    -------
    ndarray of float, shape (n,)
        Never smaller than the given ones, in the same order.

    Examples
    --------
    >>> from srjt.ordinal.intervals import holm
    >>> holm([0.04, 0.01, 0.03]).round(3).tolist()
    [0.06, 0.03, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64).reshape(-1)
    adjusted = np.full(len(given), np.nan)
    order = np.argsort(given, kind="stable")[: int(np.isfinite(given).sum())]  # nan sorts last
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * given[order]))
    return adjusted
