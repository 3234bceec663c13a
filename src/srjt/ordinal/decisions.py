"""Decisions about a patient: refer from a grade on, at which threshold, with which sensitivity and
specificity; the curves of such a decision; and which answers are left to a person.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from srjt.errors import SrjtError
from srjt.ordinal import patient_codes
from srjt.ordinal.intervals import (
    Interval,
    effective_counts,
    effective_patients,
    patient_draws,
    percentile_interval,
)
from srjt.ordinal.metrics import Floats, Groups
from srjt.ordinal.ranges import range_threshold

# Decisions from predicted probabilities: refer or not, at which threshold, and when to abstain.
#
# A sample is *positive* if its grade is at least the grade from which a patient is referred. The
# score of a decision is the probability of that. Intervals are by patient: images of one patient
# are not independent.

OPERATING_POINT = (
    "sensitivity",
    "specificity",
    "positive_predictive_value",
    "negative_predictive_value",
)


def referral_probability(probabilities: ArrayLike, *, refer_from: int) -> Floats:
    """p(grade ≥ ``refer_from``) (N,) of probabilities (N, C). refer_from: the mildest grade that is
    referred, 1 … C − 1.

    Examples
    --------
    >>> referral_probability([[0.5, 0.25, 0.25]], refer_from=1).tolist()
    [0.5]
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or not 0 < refer_from < p.shape[1]:
        raise SrjtError(
            f"refer_from must lie in 1 … C − 1 for probabilities {p.shape}; got {refer_from}.",
            code="out_of_bounds",
            option="refer_from",
        )
    return np.asarray(np.clip(p[:, refer_from:].sum(axis=1), 0.0, 1.0))  # rounding can exceed 1


def operating_point(
    positive: ArrayLike, referred: ArrayLike, *, groups: Groups = None, level: float = 0.95
) -> dict[str, Interval]:
    """Sensitivity, specificity and predictive values of a decision, with intervals by patient.

    positive, referred: (N,) which samples should be referred, and which are. groups: (N,) their
    patients; without, every sample is its own. The result has the names in ``OPERATING_POINT``; nan
    where there is no sample to divide by.

    Examples
    --------
    >>> point = operating_point([True, True, False, False], [True, False, False, False])
    >>> point["sensitivity"].value, point["specificity"].value
    (0.5, 1.0)
    """
    y = np.asarray(positive, dtype=bool)
    r = np.asarray(referred, dtype=bool)
    if y.ndim != 1 or y.shape != r.shape:
        raise SrjtError(
            f"Positives and referrals must be lists of one length; got {y.shape} and {r.shape}.",
            code="wrong_shape",
        )
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
    right: ArrayLike,
    *,
    groups: Groups = None,
    weights: ArrayLike | None = None,
    level: float = 0.95,
) -> Interval:
    """A share and Wilson's interval, with the number of samples that independent ones would need
    (Rao and Scott).

    The variance of the share between patients gives this effective number, corrected for few
    patients as by Korn and Graubard; patients count by their effective number, too. If all samples
    are right or all are wrong, nothing varies, and the number of patients is used. A bootstrap
    would give an interval of width 0 there. With one patient the interval is [0, 1]; without
    samples it is nan.

    right: (N,) of bool. groups: (N,) patients; without, every sample is its own. weights: (N,)
    positive.

    Examples
    --------
    >>> share = proportion_interval([True] * 20)
    >>> share.value, round(share.low, 2), share.high
    (1.0, 0.82, 1.0)
    """
    from scipy.stats import norm, t  # type: ignore[import-untyped]

    x = np.asarray(right, dtype=np.float64)
    n = len(x)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan)
    owner = patient_codes(groups, n)
    patients = int(owner.max()) + 1
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    total = float(w.sum())
    share = float((w * x).sum()) / total
    if patients == 1:
        return Interval(share, 0.0, 1.0)
    residuals = np.bincount(owner, weights=w * (x - share), minlength=patients)
    # patients with many samples weigh more, so that fewer of them tell how much patients vary
    weight = np.bincount(owner, weights=w, minlength=patients)
    alike = max(float(effective_counts(weight.astype(np.float64))), 1.5)
    drawn = patients / (patients + 1) * float((residuals**2).sum()) / total**2
    variance = drawn * (alike + 1.0) / (alike - 1.0)  # as in ``t_interval``
    binomial = share * (1.0 - share)
    independent = total**2 / float((w**2).sum())  # samples of equal weight that are worth as much
    effective = (
        min(independent, binomial / variance) if variance > 0 and binomial > 0 else float(patients)
    )
    z = float(norm.ppf(0.5 + level / 2.0))
    effective *= (z / float(t.ppf(0.5 + level / 2.0, alike - 1.0))) ** 2
    centre = (share + z**2 / (2 * effective)) / (1 + z**2 / effective)
    half = z / (1 + z**2 / effective) * math.sqrt(binomial / effective + z**2 / (4 * effective**2))
    # rounding: the interval contains the share
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


class SensitivityThreshold(NamedTuple):
    """A threshold for a wanted sensitivity: refer if the score is at least this.

    positives, patients: positive samples that it was found on, and how many patients they are of
    (without groups, as many). reached: whether these are enough, because G patients can promise at
    most G / (G + 1).
    """

    threshold: float
    positives: int
    patients: int
    reached: bool


def threshold_for_sensitivity(
    positive: ArrayLike, score: ArrayLike, *, sensitivity: float, groups: Groups = None
) -> SensitivityThreshold:
    """The highest threshold whose expected sensitivity on new samples is at least ``sensitivity``.

    The k-th highest of n positive scores is exceeded by a new positive score with probability k /
    (n + 1) if all are exchangeable. So k is the smallest number with k / (n + 1) ≥ sensitivity. The
    threshold that has the sensitivity on the n samples themselves would have less on new ones. With
    groups, G patients are exchangeable, not their samples, which share the weight 1: the promise is
    for a sample of a new patient, as of ``srjt.ordinal.ranges.range_threshold``.

    positive: (N,) of bool. score: (N,) the probability of being positive. groups: (N,) patients;
    without, every sample is its own.

    Examples
    --------
    >>> threshold_for_sensitivity([True, True, True, False], [0.9, 0.6, 0.4, 0.2], sensitivity=0.5)
    SensitivityThreshold(threshold=0.6, positives=3, patients=3, reached=True)
    """
    if not 0.0 < sensitivity < 1.0:
        raise SrjtError(
            f"A sensitivity lies between 0 and 1, for example 0.95; got {sensitivity:g}.",
            code="out_of_bounds",
            option="sensitivity",
        )
    rows = np.flatnonzero(np.asarray(positive, dtype=bool))
    if not len(rows):
        raise SrjtError(
            "There is no positive sample, so no threshold has a sensitivity.", code="too_few"
        )
    scores = np.asarray(score, dtype=np.float64)[rows]
    owners = patient_codes(groups, len(np.asarray(positive)))[rows].tolist()
    lowest = -range_threshold(-scores, coverage=sensitivity, groups=owners)
    threshold = float(max(lowest, scores.min()))
    return SensitivityThreshold(threshold, len(rows), len(set(owners)), math.isfinite(lowest))


def decision_confidence(score: ArrayLike, *, threshold: float) -> Floats:
    """How far each score (N,) is from the threshold: 0 at the threshold, 1 at the end (0 or 1) of
    its side.

    Examples
    --------
    >>> decision_confidence([0.0, 0.2, 0.6, 1.0], threshold=0.2).round(3).tolist()
    [1.0, 0.0, 0.5, 1.0]
    """
    s = np.asarray(score, dtype=np.float64)
    largest = np.where(s >= threshold, 1.0 - threshold, threshold)
    return np.divide(np.abs(s - threshold), largest, out=np.ones_like(s), where=largest > 0)


def abstention_cut(confidence: ArrayLike, *, share: float) -> float:
    """The confidence below which a decision is left to a person: at most ``share`` of
    ``confidence`` (N,) lies below it.

    Examples
    --------
    >>> abstention_cut([0.9, 0.5, 0.7, 0.8], share=0.25)
    0.7
    """
    if not 0.0 < share < 1.0:
        raise SrjtError(
            f"The share to abstain from must be above 0 and below 1; got {share:g}.",
            code="out_of_bounds",
            option="share",
        )
    ordered = np.sort(np.asarray(confidence, dtype=np.float64))
    if not len(ordered):
        raise SrjtError(
            "There is no sample to find the confidence for abstention on.", code="too_few"
        )
    return float(ordered[min(int(share * len(ordered) + 1e-9), len(ordered) - 1)])


# Curves over all thresholds of a decision: ROC, precision and recall, net benefit, risk and
# coverage.


class Roc(NamedTuple):
    """Both rates (T,) at each threshold, from the strictest threshold, which refers nobody, to the
    mildest."""

    false_positive_rate: Floats
    sensitivity: Floats
    threshold: Floats


class PrecisionRecall(NamedTuple):
    """Sensitivity (recall) and positive predictive value (precision) (T,) at each threshold."""

    sensitivity: Floats
    precision: Floats
    threshold: Floats


class NetBenefit(NamedTuple):
    """Net benefit (T,) of a model and of referring everyone; referring nobody has 0."""

    threshold: Floats
    model: Floats
    refer_all: Floats


class RiskCoverage(NamedTuple):
    """Mean loss of the most confident samples (T,), by their share."""

    coverage: Floats
    risk: Floats


def roc_curve(positive: ArrayLike, score: ArrayLike) -> Roc:
    """The receiver operating characteristic; samples with one score enter together.

    positive: (N,) of bool, with both classes. score: (N,). The first of T ≤ N + 1 points is (0, 0)
    at an infinite threshold.

    Examples
    --------
    >>> roc_curve([True, False], [0.8, 0.3]).sensitivity.tolist()
    [0.0, 1.0, 1.0]
    """
    y, threshold, last, _ = _ranked(positive, score)
    hits = np.cumsum(y)[last]
    alarms = np.cumsum(~y)[last]
    return Roc(
        np.concatenate([[0.0], alarms / alarms[-1]]),
        np.concatenate([[0.0], hits / hits[-1]]),
        np.concatenate([[np.inf], threshold]),
    )


def precision_recall_curve(positive: ArrayLike, score: ArrayLike) -> PrecisionRecall:
    """Precision and recall from the strictest threshold that refers somebody to the mildest: T ≤ N
    points.

    positive: (N,) of bool, with both classes. score: (N,).

    Examples
    --------
    >>> precision_recall_curve([True, False], [0.8, 0.3]).precision.tolist()
    [1.0, 0.5]
    """
    y, threshold, last, _ = _ranked(positive, score)
    hits = np.cumsum(y)[last]
    alarms = np.cumsum(~y)[last]
    return PrecisionRecall(hits / hits[-1], hits / (hits + alarms), threshold)


def areas(
    positive: ArrayLike,
    score: ArrayLike,
    *,
    groups: Groups = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """The area under the ROC curve and the average precision, with percentile-bootstrap intervals
    over patients.

    The samples are sorted once; a draw of patients changes their weights only. positive: (N,) of
    bool, with both classes. score: (N,). groups: (N,) patients; without, every sample is its own;
    of one patient the ends are nan. The result has ``roc_area`` and ``average_precision``.

    Examples
    --------
    >>> areas([True, True, False], [0.8, 0.4, 0.5], resamples=20)["roc_area"].value
    0.5
    """
    y, _, last, order = _ranked(positive, score)
    owner = patient_codes(groups, len(y))[order]
    patients = int(owner.max()) + 1
    draws = patient_draws(patients, resamples if patients > 1 else 0, seed=seed, width=len(y))
    values = np.concatenate(
        [_weighted_areas(weights[:, owner], y, last) for weights in draws], axis=1
    )
    names = ("roc_area", "average_precision")
    effective = effective_patients(owner)
    # One more patient may be ranked wrongly, among those with positive or negative samples,
    # whichever are fewer: then an area of 1 has about Clopper and Pearson's interval of as many
    # patients.
    fewer = min(effective_patients(owner[y]), effective_patients(owner[~y]))
    weight = np.random.Generator(np.random.PCG64([seed, 1])).standard_exponential(
        values.shape[1] - 1
    )
    intervals = {}
    for name, resampled in zip(names, values, strict=True):
        value, _, high = percentile_interval(resampled, patients=effective, level=level)
        worse = resampled[1:] * fewer / (fewer + weight)
        low = percentile_interval([value, *worse], patients=effective, level=level).low
        high = np.minimum(np.maximum(value, high), 1.0)  # rounding
        intervals[name] = Interval(value, float(np.minimum(value, low)), float(high))
    return intervals


def net_benefit(
    positive: ArrayLike, score: ArrayLike, *, thresholds: ArrayLike | None = None
) -> NetBenefit:
    """The decision curve: TP/N − FP/N · t/(1 − t) at threshold t (Vickers and Elkin, 2006).

    A threshold t says that one missed positive weighs as much as (1 − t)/t needless referrals.
    positive: (N,) of bool. score: (N,) probabilities. thresholds: (T,) between 0 and 1; by default
    0.01, 0.02 … 0.99.

    Examples
    --------
    >>> net_benefit([True, False], [0.8, 0.3], thresholds=[0.5]).model.tolist()
    [0.5]
    """
    t = (
        np.linspace(0.01, 0.99, 99)
        if thresholds is None
        else np.asarray(thresholds, dtype=np.float64)
    )
    if not ((t > 0) & (t < 1)).all():
        raise SrjtError(
            "Thresholds of a decision curve must be above 0 and below 1.",
            code="out_of_bounds",
            option="thresholds",
        )
    y = np.asarray(positive, dtype=bool)
    s = np.asarray(score, dtype=np.float64)
    odds = t / (1 - t)
    n = len(y)
    hits = y.sum() - np.searchsorted(np.sort(s[y]), t, side="left")
    alarms = (~y).sum() - np.searchsorted(np.sort(s[~y]), t, side="left")
    return NetBenefit(t, (hits - alarms * odds) / n, (y.sum() - (~y).sum() * odds) / n)


def risk_coverage_curve(confidence: ArrayLike, loss: ArrayLike) -> RiskCoverage:
    """Mean loss of the samples that remain if the least confident ones are left to a person.

    confidence: (N,). loss: (N,), for example 1 for a wrong answer. T ≤ N points from the smallest
    coverage to 1; samples of one confidence enter together.

    Examples
    --------
    >>> risk_coverage_curve([0.9, 0.6], [0, 1]).risk.tolist()
    [0.0, 0.5]
    """
    c = np.asarray(confidence, dtype=np.float64)
    losses = np.asarray(loss, dtype=np.float64)
    if len(c) == 0 or c.shape != losses.shape:
        raise SrjtError(
            f"Confidence and loss must be lists of one length; got {c.shape} and {losses.shape}.",
            code="wrong_shape",
        )
    order = np.argsort(-c, kind="stable")
    last = np.flatnonzero(np.append(np.diff(c[order]) != 0, True))
    covered = last + 1.0
    return RiskCoverage(covered / len(c), np.cumsum(losses[order])[last] / covered)


def thin(values: ArrayLike, *, points: int = 400) -> Floats:
    """At most ``points`` values of a curve (T,), evenly by position, with both ends.

    Examples
    --------
    >>> thin([0, 1, 2, 3, 4], points=3).tolist()
    [0.0, 2.0, 4.0]
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) <= points:
        return array
    return array[np.linspace(0, len(array) - 1, points).round().astype(np.int64)]


def _ranked(
    positive: ArrayLike, score: ArrayLike
) -> tuple[NDArray[np.bool_], Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Positives by falling score (N,); the different scores (T,); the last position of each (T,);
    the order (N,)."""
    y = np.asarray(positive, dtype=bool)
    s = np.asarray(score, dtype=np.float64)
    if y.ndim != 1 or y.shape != s.shape or len(y) == 0:
        raise SrjtError(
            f"Positives and scores must be lists of one length; got {y.shape} and {s.shape}.",
            code="wrong_shape",
        )
    if y.all() or not y.any():
        kind = "negative" if y.all() else "positive"
        raise SrjtError(
            f"There is no {kind} sample: a curve needs positive and negative ones.", code="too_few"
        )
    order = np.argsort(-s, kind="stable")
    last = np.flatnonzero(np.append(np.diff(s[order]) != 0, True))
    return y[order], s[order][last], last, order


def _weighted_areas(
    weights: Floats, positive: NDArray[np.bool_], last: NDArray[np.int64]
) -> Floats:
    """(R, N) weights of ranked samples → (2, R) areas; nan for a draw with one class only."""
    hits = np.cumsum(weights * positive, axis=1)[:, last]
    alarms = np.cumsum(weights * ~positive, axis=1)[:, last]
    both = np.stack([hits, alarms])
    before = np.concatenate([np.zeros((2, len(weights), 1)), both[:, :, :-1]], axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        trapezia = (alarms - before[1]) * (hits + before[0]) / 2
        roc = trapezia.sum(axis=1) / (hits[:, -1] * alarms[:, -1])
        referred = hits + alarms
        precision = np.divide(hits, referred, out=np.zeros_like(hits), where=referred > 0)
        average = ((hits - before[0]) * precision).sum(axis=1) / hits[:, -1]
    defined = (hits[:, -1] > 0) & (alarms[:, -1] > 0)
    return np.where(defined, np.stack([roc, average]), np.nan)
