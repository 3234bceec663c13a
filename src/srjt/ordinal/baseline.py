"""Is it better than one grade for all samples? One rule decides, for every page and for the
terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from srjt.ordinal import Purpose, intervals, patient_codes
from srjt.ordinal.intervals import TOO_FEW, Interval
from srjt.ordinal.metrics import METRICS, Floats

Verdict = Literal["better", "not better", "unclear", "unknown"]


class Gain(NamedTuple):
    """What a score gains over that of one grade for all samples.

    Attributes
    ----------
    metric : {"mae", "accuracy", "qwk", "macro_f1"}
        The metric that the grades are for. No other is judged: grades with the least absolute error
        may be less accurate than the most frequent one.
    score, naive : float
        Of the answers, and of one grade for all; nan where it is not known.
    low : float
        The lower end of the 95 % interval of the improvement, over patients or over folds; positive
        is better. nan where they are too few, or where only the two scores are known.
    """

    metric: Purpose
    score: float
    naive: float
    low: float = math.nan

    @property
    def value(self) -> float:
        """The improvement; positive is better."""
        if METRICS[self.metric].lower_is_better:
            return self.naive - self.score
        return self.score - self.naive

    @property
    def verdict(self) -> Verdict:
        """The one rule: "better" only where patients, or folds, show it; "not better" where even
        the score is not.

        A perfect score cannot be beaten: where one grade for all is right as well, it is "unclear".
        """
        if math.isnan(self.value):
            return "unknown"
        perfect = self.score == (0.0 if METRICS[self.metric].lower_is_better else 1.0)
        if self.value <= 1e-9 and not perfect:  # equal sums differ in their last digits
            return "not better"
        return "better" if self.low > 0 else "unclear"


def one_grade(training_counts: ArrayLike, metric: Purpose) -> int:
    """The grade that is given to all samples: the most frequent training label; for the absolute
    error their median.

    Examples
    --------
    >>> one_grade([4, 3, 3], "accuracy"), one_grade([4, 3, 3], "mae")
    (0, 1)
    """
    counts = np.asarray(training_counts, dtype=np.float64)
    if metric == "mae":
        return int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    return int(np.argmax(counts))


def gain_over_one_grade(
    labels: ArrayLike,
    grades: ArrayLike,
    *,
    training_counts: ArrayLike,
    metric: Purpose,
    groups: Sequence[str] | None = None,
    resamples: int = 1000,
) -> Gain:
    """The gain of predicted grades over one grade for all of the same samples, with its interval
    over patients.

    The same draws of patients serve both, so that the difference is paired; its interval is
    Student's (see ``intervals.t_interval``) with the effective patients, of which fewer
    than ten show nothing. The interval allows for one more error, by as many grades as there are,
    and for patients who lose much and may be missing (``_skewed_downwards``).

    Parameters
    ----------
    labels, grades : array, shape (N,)
        From 0; what the grades are judged by, and what was predicted.
    training_counts : array, shape (C,)
        Training labels by grade, which decide what the one grade is.
    metric : {"mae", "accuracy", "qwk", "macro_f1"}
        What the grades are for.
    groups : sequence of str, optional
        (N,) patients; without, every sample is its own.
    resamples : int
        Bootstrap draws; 0 for no interval.

    Returns
    -------
    Gain

    Examples
    --------
    >>> labels = [0, 0, 1, 2] * 10
    >>> gain_over_one_grade(labels, labels, training_counts=[20, 10, 10], metric="mae").verdict
    'better'
    """
    judged = np.asarray(labels, dtype=np.int64)
    classes = len(np.asarray(training_counts))
    constant = np.full(len(judged), one_grade(training_counts, metric))
    scores, naive = (
        intervals.resampled_metrics(
            judged,
            answers,
            num_classes=classes,
            groups=groups,
            metrics=[metric],
            resamples=max(resamples, 1),
        )[metric]
        for answers in (grades, constant)
    )
    gain = Gain(metric=metric, score=float(scores[0]), naive=float(naive[0]))
    if metric == "qwk":  # not defined where all labels are equal
        naive = np.zeros_like(naive)
        gain = gain._replace(naive=0.0)
    patients = intervals.effective_patients(patient_codes(groups, len(judged)))
    patients = int(patients + 1e-9)
    if resamples < 2 or patients < TOO_FEW:
        return gain
    sign = -1.0 if METRICS[metric].lower_is_better else 1.0
    by_patient = intervals.patient_tables(judged, grades, num_classes=classes, groups=groups)
    # a rare error by many grades may not have occurred, and would cost what many right answers gain
    lost = _lost(one_grade(training_counts, metric), classes=classes, metric=metric)
    more = intervals.one_error_more(by_patient, metrics=[metric], farthest=True, worth=lost)[metric]
    difference = sign * (scores - naive)
    interval: Interval = intervals.t_interval(difference, patients=patients, added=more**2)[0]
    return gain._replace(
        low=interval.low - _skewed_downwards(difference[1:]) * (interval.value - interval.low)
    )


def _lost(constant: int, *, classes: int, metric: Purpose) -> Floats:
    """(C, C) by how much each answer is worse than one grade for all.

    Images of a patient that all have this one grade are lost together, although the answers may be
    wrong one by one.
    """
    grade = np.arange(classes)
    off = np.abs(grade[:, None] - grade).astype(np.float64)
    if metric != "mae":
        off = np.minimum(off, 1.0)
    return np.asarray(off - off[:, [constant]])


def _skewed_downwards(draws: Floats) -> float:
    """By how much Student's lower end of a mean is too high, in half-widths, from its draws.

    If few patients lose much, a sample without them has a higher mean and a smaller deviation, both
    at once. Johnson (JASA 1978, 73) corrects t by γ (2 t² + 1) / (6 √n) for patients of skewness γ;
    the draws, by exponential weights, have the skewness 2 γ / √n.
    """
    known = draws[np.isfinite(draws)]
    deviation = float(known.std())
    if deviation == 0.0:
        return 0.0
    skewness = float((((known - known.mean()) / deviation) ** 3).mean())
    return max(0.0, -skewness) / 2.0 * (2.0 * 1.96 + 1.0 / 1.96) / 6.0
