"""Is it better than one grade for all samples? One rule decides, for every page and for the
terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from srjt.ordinal import Purpose, intervals, patient_codes
from srjt.ordinal.intervals import TOO_FEW
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

    The same draws of patients serve both, so that the difference is paired. Each draw has one
    patient more, who loses as much as one can: where few patients lose, the next one may. Fewer
    than ten effective patients show nothing.

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
    constant = one_grade(training_counts, metric)
    by_patient = intervals.patient_tables(judged, grades, num_classes=classes, groups=groups)
    total = by_patient.sum(axis=0, keepdims=True)
    gain = Gain(
        metric=metric,
        score=float(METRICS[metric].function(total)[0]),
        naive=float(_of_one_grade(total, constant, metric)[0]),
    )
    patients = intervals.effective_patients(patient_codes(groups, len(judged)))
    if resamples < 2 or patients + 1e-9 < TOO_FEW:
        return gain
    low = _lowest(by_patient, constant, metric, patients=patients, resamples=resamples)
    return gain._replace(low=min(low, gain.value))


def _of_one_grade(tables: Floats, constant: int, metric: Purpose) -> Floats:
    """(n,) the metric of one grade for all samples of each table (n, C, C)."""
    if metric == "qwk":  # not defined where all labels are equal
        return np.zeros(len(tables))
    answers = np.zeros_like(tables)
    answers[:, :, constant] = tables.sum(axis=2)
    return METRICS[metric].function(answers)


def _lowest(
    by_patient: Floats, constant: int, metric: Purpose, *, patients: float, resamples: int
) -> float:
    """The lower end of the 95 % interval of the gain: the higher of two ends.

    Each is a percentile of draws of the patients with exponential weights, and of one patient more
    whose answers lose as much as one can. If this one is as large as the largest patient, that is
    Gaffke's bound for a mean (Mathematical Methods of Statistics 2005, 14(4)), which for 0 and 1 is
    Clopper and Pearson's. Where patients have many images, it asks for much. So the other end has a
    patient who loses as many images as are worth an independent one, or as the patient who loses
    most; as these are estimates, its percentile is farther out (``percentile_tails``).

    A normal interval would be too high where few patients lose much: a sample that has missed them
    has a higher mean and a smaller deviation, both at once.
    """
    lost = _lost(constant, classes=by_patient.shape[-1], metric=metric)
    images = by_patient.sum(axis=(1, 2))
    most = float((by_patient * lost).sum(axis=(1, 2)).max()) / lost.max()
    together = max(intervals.images_worth_one(by_patient, lost, images), most)
    total = by_patient.sum(axis=0)
    worst = (lost == lost.max()).astype(np.float64)
    if metric == "qwk":  # as of the samples that there are: one grade alone would be no agreement
        share = total.sum(axis=1, keepdims=True) / total.sum()
        worst = share * intervals.wrong_by(len(total), len(total))
    drawn = intervals.resampled_tables(by_patient, resamples=resamples, seed=0)[1:]
    rng = np.random.Generator(np.random.PCG64([0, 1]))
    # the weights of a draw were divided by their mean: so is that of the patient more
    mean = rng.standard_gamma(len(by_patient), resamples) / len(by_patient)
    weight = rng.standard_exponential(resamples) / mean
    more = weight[:, None, None] * worst / worst.sum()
    sign = -1.0 if METRICS[metric].lower_is_better else 1.0
    ends = []
    for size, tail in (
        (together, float(intervals.percentile_tails(patients)[0])),
        (float(images.max()), 0.025),
    ):
        tables = drawn + size * more
        gains = METRICS[metric].function(tables) - _of_one_grade(tables, constant, metric)
        ends.append(float(np.nanquantile(sign * gains, tail)))
    return max(ends)


def _lost(constant: int, *, classes: int, metric: Purpose) -> Floats:
    """(C, C) by how much each answer is worse than one grade for all."""
    grade = np.arange(classes)
    off = np.abs(grade[:, None] - grade).astype(np.float64)
    if metric != "mae":
        off = np.minimum(off, 1.0)
    return np.asarray(off - off[:, [constant]])
