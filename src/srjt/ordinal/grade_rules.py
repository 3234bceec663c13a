"""Which rule turns probabilities into grades, by what the grades are for: ``benchmarks/decoding.py`` compares them.

- accuracy: the most likely grade.
- mae: the median. Networks that learn soft labels predict them: the soft labels are undone first.
- qwk, macro_f1: thresholds on the expected grade. They are fitted to the predictions for the validation side: if the
  probabilities are right, they are the best ones, and no label is used, so that wrong labels cannot mislead the fit.
  If the probabilities are wrong, thresholds may lower macro_f1: where the labels of that side are known, a plain rule
  that has a higher one by them is taken instead. (For qwk the choice would cost more than it saves.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from srjt.ordinal.decoding import (
    decode,
    expected_grade,
    grade_by_thresholds,
    median_grade,
    undo_soft_labels,
)
from srjt.ordinal.metrics import METRICS, confusion_matrix
from srjt.ordinal.purpose import PURPOSES, Purpose, check_purpose

__all__ = ["FEWEST", "GradeRule", "fit_thresholds", "grade_rule_for"]

Floats = npt.NDArray[np.float64]

FEWEST = 50  # samples of the validation side: with fewer, nothing is fitted
CANDIDATES = 200  # values that a threshold may take
ROUNDS = 20  # of all thresholds, at most: it stops when none moves

NAMES: dict[str, str] = {
    "argmax": "the most likely grade",
    "median": "the median",
    "expected": "the rounded expected grade",
}


@dataclass(frozen=True, kw_only=True)
class GradeRule:
    """From probabilities to grades.

    Attributes
    ----------
    how : {"argmax", "median", "expected", "thresholds"}
        The most likely grade, the median, the rounded expected grade, or thresholds on the expected grade.
    thresholds : tuple of float
        The C − 1 thresholds in ascending order, if ``how`` is ``"thresholds"``.
    soft_labels : Tensor, shape (C, C), or None
        Soft labels that are undone before the median is taken.
    purpose : str or None
        The metric that the rule is for; None if the rule itself was chosen.
    without_fit : bool
        Whether thresholds would be fitted if there were enough samples to fit them to.
    rejected : bool
        Whether thresholds were fitted, but the labels of the validation side speak against them.
    """

    how: Literal["argmax", "median", "expected", "thresholds"]
    thresholds: tuple[float, ...] = ()
    soft_labels: Tensor | None = None
    purpose: Purpose | None = None
    without_fit: bool = False
    rejected: bool = False

    def grades(self, probabilities: Tensor) -> Tensor:
        """(..., C) probabilities → (...,) grades."""
        if self.how == "thresholds":
            return grade_by_thresholds(probabilities, torch.tensor(self.thresholds).to(probabilities))
        if self.soft_labels is not None:
            return median_grade(undo_soft_labels(probabilities, self.soft_labels))
        return decode(probabilities, self.how)

    def __str__(self) -> str:
        """What a grade is, and what that is best for: the end of the sentence "A grade is …"."""
        if self.how == "thresholds":
            cuts = ", ".join(f"{cut:.3f}" for cut in self.thresholds)
            text = f"the expected grade, cut at {cuts}"
        else:
            text = NAMES[self.how] + (
                " after undoing the soft labels" if self.soft_labels is not None else ""
            )
        if self.purpose is not None:
            text += f", for {PURPOSES[self.purpose]}"
        if self.without_fit:
            text += f" (thresholds need kept predictions for at least {FEWEST} validation samples)"
        if self.rejected:
            text += " (by the labels of the validation side it is better than fitted thresholds)"
        return text


def grade_rule_for(
    purpose: Purpose,
    *,
    validation: Tensor | None = None,
    labels: Tensor | None = None,
    soft_labels: Tensor | None = None,
) -> GradeRule:
    """The rule that a metric is best served by.

    Parameters
    ----------
    purpose : {"mae", "accuracy", "qwk", "macro_f1"}
    validation : Tensor, shape (N, C), optional
        Probabilities of samples that the network has not seen; thresholds are fitted to them. With none, or fewer than
        50, the median serves qwk and the most likely grade macro_f1.
    labels : Tensor of int, shape (N,), optional
        Grades of these samples, possibly wrong. For macro_f1: thresholds that are worse by them than the median or the
        most likely grade are not used.
    soft_labels : Tensor, shape (C, C), optional
        The soft labels that the network has learnt, if it has.

    Returns
    -------
    GradeRule

    Examples
    --------
    >>> from srjt.ordinal.grade_rules import grade_rule_for
    >>> print(grade_rule_for("mae"))
    the median, for the least absolute error
    """
    check_purpose(purpose)
    if purpose == "accuracy":
        return GradeRule(how="argmax", purpose=purpose)
    if purpose == "mae":
        return GradeRule(how="median", purpose=purpose, soft_labels=soft_labels)
    if validation is not None and len(validation) >= FEWEST:
        p = validation.double()
        truth = p if soft_labels is None else undo_soft_labels(p, soft_labels)
        cuts = fit_thresholds(expected_grade(p).numpy(), truth.numpy(), purpose=purpose)
        fitted = GradeRule(how="thresholds", thresholds=tuple(cuts.tolist()), purpose=purpose)
        if labels is None or purpose != "macro_f1":
            return fitted
        plain = (
            GradeRule(how="argmax", purpose=purpose, rejected=True),
            GradeRule(how="median", purpose=purpose, soft_labels=soft_labels, rejected=True),
        )
        classes = p.shape[1]

        def value(rule: GradeRule) -> float:
            return METRICS[purpose](confusion_matrix(labels, rule.grades(p), num_classes=classes).numpy())

        return max((fitted, *plain), key=value)  # the first of equals
    if purpose == "qwk":
        return GradeRule(how="median", purpose=purpose, soft_labels=soft_labels, without_fit=True)
    return GradeRule(how="argmax", purpose=purpose, without_fit=True)


def fit_thresholds(expected: Floats, probabilities: Floats, *, purpose: Purpose) -> Floats:
    """Thresholds on the expected grade for which the expected value of a metric is best.

    One threshold after the other moves to its best value, until none improves the metric of the expected counts.

    Parameters
    ----------
    expected : ndarray, shape (N,)
        Expected grades, or any other severity.
    probabilities : ndarray, shape (N, C)
        How probable each grade is the true one.
    purpose : {"mae", "accuracy", "qwk", "macro_f1"}
        The metric.

    Returns
    -------
    ndarray, shape (C − 1,)
        In ascending order. Two may be equal: the grade between them is never predicted.

    Examples
    --------
    >>> import numpy as np
    >>> from srjt.ordinal.grade_rules import fit_thresholds
    >>> expected = np.array([0.1, 0.2, 0.3, 0.4])
    >>> fit_thresholds(expected, np.eye(2)[[0, 0, 1, 1]], purpose="macro_f1")
    array([0.25])
    """
    check_purpose(purpose)
    classes = probabilities.shape[1]
    order = np.argsort(expected, kind="stable")
    ascending = expected[order]
    cumulative = np.concatenate([np.zeros((1, classes)), probabilities[order].cumsum(axis=0)])
    # between different values, so that rounding does not move a sample over a threshold
    distinct = np.unique(ascending)
    between = (distinct[1:] + distinct[:-1]) / 2
    some = np.unique(np.linspace(0, len(between) - 1, min(CANDIDATES, len(between))).astype(np.int64))
    halves = np.arange(classes - 1) + 0.5
    cuts = np.unique(np.concatenate([between[some], halves, [-0.5, classes - 0.5]]))
    below = cumulative[np.searchsorted(ascending, cuts, side="right")]  # expected counts of each true grade

    def score(chosen: npt.NDArray[np.int64]) -> float:
        edges = np.concatenate([cumulative[:1], below[chosen], cumulative[-1:]])
        value = METRICS[purpose](np.diff(edges, axis=0).T)
        if np.isnan(value):
            return -np.inf
        return -value if METRICS[purpose].lower_is_better else value

    shares = np.searchsorted(below.sum(axis=1), cumulative[-1].cumsum()[:-1])  # as many as are expected
    starts = [np.searchsorted(cuts, halves), np.minimum(shares, len(cuts) - 1)]
    best = max(starts, key=score)
    best_score = score(best)
    for _ in range(ROUNDS):
        before = best_score
        for k in range(classes - 1):
            low = best[k - 1] if k > 0 else 0
            high = best[k + 1] if k < classes - 2 else len(cuts) - 1
            for position in range(low, high + 1):
                moved = best.copy()
                moved[k] = position
                if (value := score(moved)) > best_score + 1e-12:
                    best, best_score = moved, value
        if best_score == before:
            break
    return np.asarray(cuts[best])
