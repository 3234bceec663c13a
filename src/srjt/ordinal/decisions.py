"""Decisions from predicted probabilities: refer or not, at which threshold, and when to abstain.

A sample is *positive* if its grade is at least the grade from which a patient is referred. The score of a decision is
the probability of that. Intervals are by patient: images of one patient are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.ordinal.intervals import Interval

__all__ = [
    "OPERATING_POINT",
    "SensitivityThreshold",
    "abstention_cut",
    "decision_confidence",
    "operating_point",
    "proportion_interval",
    "referral_probability",
    "threshold_for_sensitivity",
]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

OPERATING_POINT = ("sensitivity", "specificity", "positive_predictive_value", "negative_predictive_value")


def referral_probability(probabilities: npt.ArrayLike, *, refer_from: int) -> Floats:
    """p(grade ≥ ``refer_from``) of each sample.

    Parameters
    ----------
    probabilities : array-like, shape (N, C)
    refer_from : int
        The mildest grade that is referred, 1 … C − 1.

    Returns
    -------
    array, shape (N,)

    Examples
    --------
    >>> from srjt.ordinal.decisions import referral_probability
    >>> referral_probability([[0.5, 0.25, 0.25]], refer_from=1).tolist()
    [0.5]
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or not 0 < refer_from < p.shape[1]:
        raise SrjtError(
            f"refer_from must lie in 1 … C − 1 for probabilities (N, C); got {refer_from} for {p.shape}."
        )
    reached: Floats = np.clip(p[:, refer_from:].sum(axis=1), 0.0, 1.0)  # rounding can exceed 1
    return reached


def operating_point(
    positive: npt.ArrayLike,
    referred: npt.ArrayLike,
    *,
    groups: Sequence[Hashable] | None = None,
    level: float = 0.95,
) -> dict[str, Interval]:
    """Sensitivity, specificity and predictive values of a decision, with intervals by patient.

    Parameters
    ----------
    positive, referred : array-like of bool, shape (N,)
        Which samples should be referred, and which are.
    groups : sequence, length N, optional
        Patients. Default: every sample is its own patient.
    level : float
        Confidence level.

    Returns
    -------
    dict of str to Interval
        By the names in ``OPERATING_POINT``; nan where there is no sample to divide by.

    Examples
    --------
    >>> from srjt.ordinal.decisions import operating_point
    >>> found = operating_point([True, True, False, False], [True, False, False, False])
    >>> found["sensitivity"].value, found["specificity"].value
    (0.5, 1.0)
    """
    y, r = _pair(positive, referred)
    shares = (r[y], y), (~r[~y], ~y), (y[r], r), (~y[~r], ~r)  # (right, among which samples)
    return {
        name: proportion_interval(
            right,
            groups=None if groups is None else [groups[i] for i in np.flatnonzero(among).tolist()],
            level=level,
        )
        for name, (right, among) in zip(OPERATING_POINT, shares, strict=True)
    }


def proportion_interval(
    right: npt.ArrayLike,
    *,
    groups: Sequence[Hashable] | None = None,
    weights: npt.ArrayLike | None = None,
    level: float = 0.95,
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
    weights : array-like, shape (N,), optional
        Positive weights of the samples. Default: all count equally.
    level : float
        Confidence level.

    Returns
    -------
    Interval
        nan without samples.

    Examples
    --------
    >>> from srjt.ordinal.decisions import proportion_interval
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
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    total = float(w.sum())
    share = float((w * x).sum()) / total
    if patients == 1:
        return Interval(share, 0.0, 1.0)
    residuals = np.bincount(owner, weights=w * (x - share), minlength=patients)
    variance = patients / (patients - 1) * float((residuals**2).sum()) / total**2
    binomial = share * (1.0 - share)
    independent = total**2 / float((w**2).sum())  # samples of equal weight that are worth as much
    effective = min(independent, binomial / variance) if variance > 0 and binomial > 0 else float(patients)
    z = float(norm.ppf(0.5 + level / 2.0))
    effective *= (z / float(t.ppf(0.5 + level / 2.0, patients - 1))) ** 2
    centre = (share + z**2 / (2 * effective)) / (1 + z**2 / effective)
    half = z / (1 + z**2 / effective) * math.sqrt(binomial / effective + z**2 / (4 * effective**2))
    # rounding: the interval contains the share
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


class SensitivityThreshold(NamedTuple):
    """A threshold for a wanted sensitivity.

    Attributes
    ----------
    threshold : float
        Refer if the score is at least this.
    positives : int
        Positive samples that it was found on.
    reached : bool
        Whether there are enough of them: n positives can promise at most n / (n + 1).
    """

    threshold: float
    positives: int
    reached: bool


def threshold_for_sensitivity(
    positive: npt.ArrayLike, score: npt.ArrayLike, *, sensitivity: float
) -> SensitivityThreshold:
    """The highest threshold whose expected sensitivity on new samples is at least ``sensitivity``.

    The k-th highest of n positive scores is exceeded by a new positive score with probability k / (n + 1) if all are
    exchangeable. So k is the smallest number with k / (n + 1) ≥ sensitivity. The threshold that has the sensitivity on
    the n samples themselves would have less on new ones.

    Parameters
    ----------
    positive : array-like of bool, shape (N,)
    score : array-like, shape (N,)
        Probability of being positive.
    sensitivity : float
        Wanted sensitivity, between 0 and 1.

    Returns
    -------
    SensitivityThreshold

    Examples
    --------
    >>> from srjt.ordinal.decisions import threshold_for_sensitivity
    >>> threshold_for_sensitivity([True, True, True, False], [0.9, 0.6, 0.4, 0.2], sensitivity=0.5)
    SensitivityThreshold(threshold=0.6, positives=3, reached=True)
    """
    if not 0.0 < sensitivity < 1.0:
        raise SrjtError(
            f"A sensitivity lies between 0 and 1, without them, for example 0.95; got {sensitivity:g}."
        )
    s = np.asarray(score, dtype=np.float64)
    scores = np.sort(s[np.asarray(positive, dtype=bool)])[::-1]
    n = len(scores)
    if n == 0:
        raise SrjtError("There is no positive sample, so no threshold has a sensitivity.")
    k = max(1, math.ceil(sensitivity * (n + 1) - 1e-9))
    return SensitivityThreshold(float(scores[min(k, n) - 1]), n, k <= n)


def decision_confidence(score: npt.ArrayLike, *, threshold: float) -> Floats:
    """How far each score is from the threshold: 0 at the threshold, 1 at the end (0 or 1) of its side.

    Parameters
    ----------
    score : array-like, shape (N,)
    threshold : float

    Returns
    -------
    array, shape (N,)

    Examples
    --------
    >>> from srjt.ordinal.decisions import decision_confidence
    >>> decision_confidence([0.0, 0.2, 0.6, 1.0], threshold=0.2).round(3).tolist()
    [1.0, 0.0, 0.5, 1.0]
    """
    s = np.asarray(score, dtype=np.float64)
    largest = np.where(s >= threshold, 1.0 - threshold, threshold)
    return np.divide(np.abs(s - threshold), largest, out=np.ones_like(s), where=largest > 0)


def abstention_cut(confidence: npt.ArrayLike, *, share: float) -> float:
    """The confidence below which a decision is left to a person: at most ``share`` of these samples lie below it.

    Parameters
    ----------
    confidence : array-like, shape (N,)
    share : float
        Between 0 and 1.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.decisions import abstention_cut
    >>> abstention_cut([0.9, 0.5, 0.7, 0.8], share=0.25)
    0.7
    """
    if not 0.0 < share < 1.0:
        raise SrjtError(f"The share to abstain from lies between 0 and 1, without them; got {share:g}.")
    ordered = np.sort(np.asarray(confidence, dtype=np.float64))
    if not len(ordered):
        raise SrjtError("There is no sample to find the confidence for abstention on.")
    return float(ordered[min(int(share * len(ordered) + 1e-9), len(ordered) - 1)])


def _pair(positive: npt.ArrayLike, referred: npt.ArrayLike) -> tuple[Bools, Bools]:
    y, r = np.asarray(positive, dtype=bool), np.asarray(referred, dtype=bool)
    if y.ndim != 1 or y.shape != r.shape:
        raise SrjtError(
            f"Positive and referred samples must be lists of one length; got {y.shape} and {r.shape}."
        )
    return y, r
