"""Curves over all thresholds of a decision: ROC, precision and recall, net benefit, risk and coverage."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.ordinal.intervals import Interval

__all__ = [
    "NetBenefit",
    "PrecisionRecall",
    "RiskCoverage",
    "Roc",
    "areas",
    "net_benefit",
    "precision_recall_curve",
    "risk_coverage_curve",
    "roc_curve",
    "thin",
]

Floats = npt.NDArray[np.float64]
_BLOCK = 1_000_000  # numbers in memory at a time while patients are resampled


class Roc(NamedTuple):
    """Both rates at each threshold, from the strictest threshold, which refers nobody, to the mildest.

    Attributes
    ----------
    false_positive_rate, sensitivity, threshold : array, shape (T,)
    """

    false_positive_rate: Floats
    sensitivity: Floats
    threshold: Floats


class PrecisionRecall(NamedTuple):
    """Sensitivity (recall) and positive predictive value (precision) at each threshold.

    Attributes
    ----------
    sensitivity, precision, threshold : array, shape (T,)
    """

    sensitivity: Floats
    precision: Floats
    threshold: Floats


class NetBenefit(NamedTuple):
    """Net benefit of a model and of referring everyone; referring nobody has 0.

    Attributes
    ----------
    threshold, model, refer_all : array, shape (T,)
    """

    threshold: Floats
    model: Floats
    refer_all: Floats


class RiskCoverage(NamedTuple):
    """Mean loss of the most confident samples, by their share.

    Attributes
    ----------
    coverage, risk : array, shape (T,)
    """

    coverage: Floats
    risk: Floats


def roc_curve(positive: npt.ArrayLike, score: npt.ArrayLike) -> Roc:
    """The receiver operating characteristic; samples with one score enter together.

    Parameters
    ----------
    positive : array-like of bool, shape (N,)
        With at least one positive and one negative sample.
    score : array-like, shape (N,)

    Returns
    -------
    Roc
        T ≤ N + 1 points; the first is (0, 0) at an infinite threshold.

    Examples
    --------
    >>> from srjt.ordinal.decision_curves import roc_curve
    >>> roc_curve([True, False], [0.8, 0.3]).sensitivity.tolist()
    [0.0, 1.0, 1.0]
    """
    y, threshold, last, _ = _ranked(positive, score)
    hits, alarms = np.cumsum(y)[last], np.cumsum(~y)[last]
    _refuse_one_class(hits[-1], alarms[-1])
    return Roc(
        np.concatenate([[0.0], alarms / alarms[-1]]),
        np.concatenate([[0.0], hits / hits[-1]]),
        np.concatenate([[np.inf], threshold]),
    )


def precision_recall_curve(positive: npt.ArrayLike, score: npt.ArrayLike) -> PrecisionRecall:
    """Precision and recall from the strictest threshold that refers somebody to the mildest.

    Parameters
    ----------
    positive : array-like of bool, shape (N,)
        With at least one positive and one negative sample.
    score : array-like, shape (N,)

    Returns
    -------
    PrecisionRecall
        T ≤ N points.

    Examples
    --------
    >>> from srjt.ordinal.decision_curves import precision_recall_curve
    >>> precision_recall_curve([True, False], [0.8, 0.3]).precision.tolist()
    [1.0, 0.5]
    """
    y, threshold, last, _ = _ranked(positive, score)
    hits, alarms = np.cumsum(y)[last], np.cumsum(~y)[last]
    _refuse_one_class(hits[-1], alarms[-1])
    return PrecisionRecall(hits / hits[-1], hits / (hits + alarms), threshold)


def areas(
    positive: npt.ArrayLike,
    score: npt.ArrayLike,
    *,
    groups: Sequence[Hashable] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """The area under the ROC curve and the average precision, with percentile-bootstrap intervals over patients.

    The samples are sorted once; a draw of patients changes their weights only.

    Parameters
    ----------
    positive : array-like of bool, shape (N,)
        With at least one positive and one negative sample.
    score : array-like, shape (N,)
    groups : sequence, length N, optional
        Patients. Default: every sample is its own patient.
    resamples : int
        Number of bootstrap draws.
    level : float
        Confidence level.
    seed : int

    Returns
    -------
    dict of str to Interval
        ``roc_area`` and ``average_precision``.

    Examples
    --------
    >>> from srjt.ordinal.decision_curves import areas
    >>> areas([True, True, False], [0.8, 0.4, 0.5], resamples=20)["roc_area"].value
    0.5
    """
    y, _, last, order = _ranked(positive, score)
    _refuse_one_class(y.sum(), (~y).sum())
    names = np.arange(len(y)) if groups is None else np.asarray([str(g) for g in groups])
    owner = np.unique(names, return_inverse=True)[1][order]
    patients = int(owner.max()) + 1
    rng = np.random.Generator(np.random.PCG64(seed))
    found = [_weighted_areas(np.ones((1, len(y))), y, last)]
    step = max(1, _BLOCK // len(y))
    for first in range(0, resamples, step):
        draws = rng.multinomial(
            patients, np.full(patients, 1.0 / patients), size=min(step, resamples - first)
        )
        found.append(_weighted_areas(draws[:, owner].astype(np.float64), y, last))
    tails = [(1 - level) / 2, 1 - (1 - level) / 2]
    intervals = {}
    for name, values in zip(("roc_area", "average_precision"), np.concatenate(found, axis=1), strict=True):
        draws_of = values[1:]
        low, high = np.nanquantile(draws_of, tails) if np.isfinite(draws_of).any() else (np.nan, np.nan)
        intervals[name] = Interval(float(values[0]), float(low), float(high))
    return intervals


def net_benefit(
    positive: npt.ArrayLike, score: npt.ArrayLike, *, thresholds: npt.ArrayLike | None = None
) -> NetBenefit:
    """The decision curve: TP/N − FP/N · t/(1 − t) at threshold t (Vickers and Elkin, 2006).

    A threshold t says that one missed positive weighs as much as (1 − t)/t needless referrals.

    Parameters
    ----------
    positive : array-like of bool, shape (N,)
    score : array-like, shape (N,)
        Probabilities.
    thresholds : array-like, shape (T,), optional
        Between 0 and 1. Default: 0.01, 0.02 … 0.99.

    Returns
    -------
    NetBenefit

    Examples
    --------
    >>> from srjt.ordinal.decision_curves import net_benefit
    >>> net_benefit([True, False], [0.8, 0.3], thresholds=[0.5]).model.tolist()
    [0.5]
    """
    t = np.linspace(0.01, 0.99, 99) if thresholds is None else np.asarray(thresholds, dtype=np.float64)
    if not ((t > 0) & (t < 1)).all():
        raise SrjtError("Thresholds of a decision curve lie between 0 and 1, without them.")
    y, s = np.asarray(positive, dtype=bool), np.asarray(score, dtype=np.float64)
    odds, n = t / (1 - t), len(y)
    hits = y.sum() - np.searchsorted(np.sort(s[y]), t, side="left")
    alarms = (~y).sum() - np.searchsorted(np.sort(s[~y]), t, side="left")
    return NetBenefit(t, (hits - alarms * odds) / n, (y.sum() - (~y).sum() * odds) / n)


def risk_coverage_curve(confidence: npt.ArrayLike, loss: npt.ArrayLike) -> RiskCoverage:
    """Mean loss of the samples that remain if the least confident ones are left to a person.

    Parameters
    ----------
    confidence : array-like, shape (N,)
    loss : array-like, shape (N,)
        For example 1 for a wrong answer, 0 for a right one.

    Returns
    -------
    RiskCoverage
        T ≤ N points from the smallest coverage to 1; samples of one confidence enter together.

    Examples
    --------
    >>> from srjt.ordinal.decision_curves import risk_coverage_curve
    >>> risk_coverage_curve([0.9, 0.6], [0, 1]).risk.tolist()
    [0.0, 0.5]
    """
    c, losses = np.asarray(confidence, dtype=np.float64), np.asarray(loss, dtype=np.float64)
    if len(c) == 0 or c.shape != losses.shape:
        raise SrjtError(f"Confidence and loss must be lists of one length; got {c.shape} and {losses.shape}.")
    order = np.argsort(-c, kind="stable")
    last = np.flatnonzero(np.append(np.diff(c[order]) != 0, True))
    covered = last + 1.0
    return RiskCoverage(covered / len(c), np.cumsum(losses[order])[last] / covered)


def thin(values: npt.ArrayLike, *, points: int = 400) -> Floats:
    """At most ``points`` values of a curve, evenly by position, with both ends.

    Parameters
    ----------
    values : array-like, shape (T,)
    points : int

    Returns
    -------
    array, shape (≤ points,)

    Examples
    --------
    >>> from srjt.ordinal.decision_curves import thin
    >>> thin([0, 1, 2, 3, 4], points=3).tolist()
    [0.0, 2.0, 4.0]
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) <= points:
        return array
    return array[np.linspace(0, len(array) - 1, points).round().astype(np.int64)]


def _ranked(
    positive: npt.ArrayLike, score: npt.ArrayLike
) -> tuple[npt.NDArray[np.bool_], Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Positives by falling score (N,); the different scores (T,); the last position of each (T,); the order (N,)."""
    y, s = np.asarray(positive, dtype=bool), np.asarray(score, dtype=np.float64)
    if y.ndim != 1 or y.shape != s.shape or len(y) == 0:
        raise SrjtError(f"Positives and scores must be lists of one length; got {y.shape} and {s.shape}.")
    order = np.argsort(-s, kind="stable")
    last = np.flatnonzero(np.append(np.diff(s[order]) != 0, True))
    return y[order], s[order][last], last, order


def _weighted_areas(weights: Floats, positive: npt.NDArray[np.bool_], last: npt.NDArray[np.int64]) -> Floats:
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
    known = (hits[:, -1] > 0) & (alarms[:, -1] > 0)
    return np.where(known, np.stack([roc, average]), np.nan)


def _refuse_one_class(positives: object, negatives: object) -> None:
    if not positives or not negatives:
        kind = "positive" if not positives else "negative"
        raise SrjtError(f"There is no {kind} sample: a curve needs positive and negative ones.")
