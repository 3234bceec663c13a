"""Differences between two methods: intervals that contain patients and trainings."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError

# Two methods are each trained R times (seeds) and tested on the same P patients. The mean
# difference varies because other patients would give another one, and because other trainings
# would. Resampling patients alone ignores the second part, which with two to five trainings is
# often the larger one.


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
    """The mean difference of R trainings on the same patients; its interval contains patients and
    trainings.

    With variances σ_P² between patients, σ_R² between trainings and σ_PR² of their interaction, the
    mean difference has the variance σ_P²/P + σ_R²/R + σ_PR²/(PR). Resampling patients estimates A =
    σ_P²/P + σ_PR²/(PR); the variance between trainings, divided by R, estimates B = σ_R²/R +
    σ_PR²/(PR). Resampling patients for each training alone gives the interaction, which A + B
    counts twice. The quantile is Cochran's: the mean of Student's quantiles with P − 1 and R − 1
    degrees of freedom, weighted by A and B. It is exact if one of them is zero. Otherwise 95 %
    intervals cover 95 to 99 % with two trainings and 95 to 97 % with five, where Satterthwaite's
    quantile covers 89 % with two.

    Parameters
    ----------
    draws : array-like of float, shape (R, 1 + resamples)
        For each training the difference of a metric: for the patients as they are, then for each
        bootstrap draw of them. All trainings have the same draws, as ``resampled_metrics`` makes
        them.
    patients : int
        P, the number of patients.
    level : float
        Confidence level.

    Returns
    -------
    Difference

    Examples
    --------
    >>> from differences import crossed_difference
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
    # The degrees of freedom belong to the estimates as they are. With the interaction taken out of
    # this share, too, a small B by chance would mean a small quantile as well, and intervals of two
    # trainings would cover 88 %.
    share = of_trainings / (of_patients + of_trainings)

    def quantile(two_sided: float) -> float:
        tail = two_sided / 2
        return -float(
            (1 - share) * stdtrit(patients - 1, tail) + share * stdtrit(trainings - 1, tail)
        )

    distance = abs(mean) / math.sqrt(variance)
    smallest = 1e-12  # where the root is sought
    p = 1.0 if distance == 0 else smallest
    if 0 < distance < quantile(smallest):
        p = float(brentq(lambda two_sided: quantile(two_sided) - distance, smallest, 1.0))
    half = quantile(1 - level) * math.sqrt(variance)
    return Difference(mean, mean - half, mean + half, p)
