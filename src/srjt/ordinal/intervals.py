"""How sure a number is: intervals that resample whole patients, and Holm's correction for several tests."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.ordinal.metrics import METRICS

# Images of one patient are similar: resampling images instead of patients would make the intervals too narrow.

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_CELLS = 10_000_000  # numbers held at once


class Interval(NamedTuple):
    """A number and its confidence interval."""

    value: float
    low: float
    high: float


def patient_codes(groups: Sequence[Hashable] | None, samples: int) -> Ints:
    """(N,) the number of each sample's patient, from 0; without groups every sample is its own patient."""
    if groups is None:
        return np.arange(samples)
    return np.unique(np.asarray([str(group) for group in groups]), return_inverse=True)[1].astype(np.int64)


def patient_draws(patients: int, resamples: int, *, seed: int, width: int = 1) -> Iterator[Floats]:
    """Weights of the patients (n, G): first all ones, then the bootstrap draws in chunks of bounded size.

    width: numbers that are computed from each draw.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    at_once = max(1, _CELLS // max(width, patients))
    yield np.ones((1, patients))
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        yield rng.multinomial(patients, np.full(patients, 1.0 / patients), size=size).astype(np.float64)


def percentile_interval(values: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    """(1 + B,) a number as it is and of each draw → its percentile interval; nan where no draw has a value."""
    value, *draws = np.asarray(values, dtype=np.float64)
    tails = [(1 - level) / 2, 1 - (1 - level) / 2]
    low, high = np.nanquantile(draws, tails) if np.isfinite(draws).any() else (np.nan, np.nan)
    return Interval(float(value), float(low), float(high))


def t_interval(
    values: npt.ArrayLike,
    *,
    patients: int,
    trainings: Sequence[npt.ArrayLike] = (),
    level: float = 0.95,
) -> tuple[Interval, float]:
    """A difference with its interval and two-sided p-value by Student's t, from bootstrap draws of the patients.

    The variance of the draws, times n / (n − 1) for n patients, is that of other patients and the same trainings. With
    several trainings of a method their variance is added: s² · Σ 1/Sₘ over the methods, of which each has a mean
    over Sₘ trainings. s² is pooled over the methods, so that a method with one training is taken to vary as the others
    do. The degrees of freedom are Satterthwaite's.

    Parameters
    ----------
    values : array-like, shape (1 + B,)
        The difference as it is, and of each draw.
    patients : int
        The number of patients; of two groups, the smaller number.
    trainings : sequence of array-like, each of shape (Sₘ,)
        The score of each training of each method that the difference is between. Default: they are not varied.
    level : float

    Returns
    -------
    (Interval, float)
        nan, without an end and a p-value, where fewer than two patients or draws are known.
    """
    from scipy.special import stdtr, stdtrit  # type: ignore[import-untyped]  # scipy.stats is twenty times slower

    value, *draws = np.asarray(values, dtype=np.float64)
    known = np.asarray(draws)[np.isfinite(draws)]
    if patients < 2 or len(known) < 2 or not math.isfinite(value):
        return Interval(float(value), math.nan, math.nan), math.nan
    parts = [(float(known.var(ddof=1)) * patients / (patients - 1), patients - 1)]
    scores = [np.asarray(of_method, dtype=np.float64) for of_method in trainings]
    if free := sum(len(own) - 1 for own in scores):
        pooled = sum(float(((own - own.mean()) ** 2).sum()) for own in scores) / free
        parts.append((pooled * sum(1 / len(own) for own in scores), free))
    variance = sum(part for part, _ in parts)
    if variance <= (1e-12 * value) ** 2:  # equal up to rounding
        return Interval(float(value), float(value), float(value)), float(abs(value) <= 1e-12)
    degrees = variance**2 / sum(part**2 / df for part, df in parts)
    error = math.sqrt(variance)
    half = float(stdtrit(degrees, 0.5 + level / 2)) * error
    p_value = float(2 * stdtr(degrees, -abs(value) / error))
    return Interval(float(value), float(value - half), float(value + half)), p_value


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
    values = resampled_metrics(
        true, predicted, num_classes=num_classes, groups=groups, resamples=resamples, seed=seed
    )
    return {name: percentile_interval(drawn, level=level) for name, drawn in values.items()}


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
    true, predicted, num_classes, groups, resamples, seed
        As for ``bootstrap_metrics``.
    metrics : iterable of str
        Names in ``srjt.ordinal.metrics.METRICS``. Default: all.

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
    owner = patient_codes(groups, len(y))
    patients = int(owner.max()) + 1
    own = np.zeros((patients, num_classes * num_classes))
    np.add.at(own, (owner, y * num_classes + p), 1.0)
    weights = patient_draws(patients, resamples, seed=seed)
    confusions = np.concatenate([drawn @ own for drawn in weights]).reshape(-1, num_classes, num_classes)
    return {name: METRICS[name].function(confusions) for name in metrics}


def holm(p_values: npt.ArrayLike) -> Floats:
    """p-values (n,) corrected for their number by Holm's method: below α, all that are have a joint error of at
    most α.

    nan, where there is no test, stays nan and does not count.

    Examples
    --------
    >>> from srjt.ordinal.intervals import holm
    >>> holm([0.04, 0.01, 0.03]).round(3).tolist()
    [0.06, 0.03, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64).reshape(-1)
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: int(np.isfinite(p).sum())]  # nan sorts last
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p[order]))
    return adjusted
