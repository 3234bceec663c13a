"""From probabilities to a grade: the most likely grade, the median, the expected grade, thresholds
that are fitted to a metric, and one answer for the several images of a patient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from srjt.errors import SrjtError, unknown_name
from srjt.ordinal import Purpose, check_purpose
from srjt.ordinal.metrics import METRICS, Floats, Ints, confusion_matrix
from srjt.settings import with_former_names

# From predicted probabilities of the grades to one grade.

Decoding = Literal["argmax", "median", "expected"]


def expected_grade(probabilities: Tensor) -> Tensor:
    """The expected grade Σ_c c · p^c (...,): a continuous severity, which minimises the expected
    squared error.

    Parameters
    ----------
    probabilities : Tensor, shape (..., C)

    Examples
    --------
    >>> expected_grade(torch.tensor([0.5, 0.25, 0.25]))
    tensor(0.7500)
    """
    grade = torch.arange(
        probabilities.shape[-1], device=probabilities.device, dtype=probabilities.dtype
    )
    return (probabilities * grade).sum(dim=-1)


def median_grade(probabilities: Tensor) -> Tensor:
    """The lower median (...,), the number of grades whose cumulative probability is below ½.

    It minimises the expected absolute error.

    Parameters
    ----------
    probabilities : Tensor, shape (..., C)

    Examples
    --------
    >>> median_grade(torch.tensor([0.4, 0.3, 0.3]))
    tensor(1)
    """
    reached = probabilities.cumsum(dim=-1)
    return (reached[..., :-1] < 0.5 * reached[..., -1:]).sum(dim=-1)


@partial(with_former_names, names={"how": "decoding"})
def decode(probabilities: Tensor, decoding: Decoding = "argmax") -> Tensor:
    """Grades (...,) of int64 by one of three rules.

    Parameters
    ----------
    probabilities : Tensor, shape (..., C)
    decoding : {"argmax", "median", "expected"}
        The most likely grade (of equals the mildest), the median, or the expected grade rounded
        (halves: down).

    Examples
    --------
    >>> decode(torch.tensor([0.4, 0.3, 0.3]), "median")
    tensor(1)
    """
    if decoding == "argmax":
        return probabilities.argmax(dim=-1)
    if decoding == "median":
        return median_grade(probabilities)
    if decoding == "expected":
        return torch.ceil(expected_grade(probabilities) - 0.5).clamp(min=0).long()
    raise unknown_name("decoding", decoding, get_args(Decoding))


def grade_by_thresholds(probabilities: Tensor, thresholds: Tensor) -> Tensor:
    """The number of thresholds (C − 1,) that lie below the expected grade of probabilities (...,
    C).

    ½, 1½, 2½, … round the expected grade to the nearest.

    Examples
    --------
    >>> grade_by_thresholds(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.6, 0.7]))
    tensor(2)
    """
    return (expected_grade(probabilities)[..., None] > thresholds).sum(dim=-1)


def undo_soft_labels(probabilities: Tensor, matrix: Tensor, *, steps: int = 30) -> Tensor:
    """The probabilities (..., C) of the labels, from those of a network that has learnt soft
    labels.

    A network that learns the soft labels S (C, C), one in each row of ``matrix``, learns p = q S,
    where q are the probabilities of the labels. Steps of Richardson and Lucy, q ← q · ((p / (q S))
    Sᵀ), begin with q = p and find q: it stays positive, and each step makes p likelier.

    Examples
    --------
    >>> from srjt.ordinal import soft_label_matrix
    >>> soft = soft_label_matrix(3)
    >>> undo_soft_labels(soft[0], soft).round(decimals=2)
    tensor([0.9700, 0.0300, 0.0000])
    """
    soft = matrix.to(probabilities)
    tiny = torch.finfo(probabilities.dtype).tiny
    estimate = probabilities
    for _ in range(steps):
        estimate = estimate * ((probabilities / (estimate @ soft).clamp(min=tiny)) @ soft.T)
    return estimate / estimate.sum(dim=-1, keepdim=True).clamp(min=tiny)


# Which rule turns probabilities into grades, by what the grades are for: ``benchmarks/decoding.py``
# compares them.
#
# - accuracy: the most likely grade.
# - mae: the median. Networks that learn soft labels predict them: the soft labels are undone first.
# - qwk, macro_f1: thresholds on the expected grade. They are fitted to the predictions for the
#   validation side: if the probabilities are right, they are the best ones, and no label is used,
#   so that wrong labels cannot mislead the fit. If the probabilities are wrong, thresholds may
#   lower macro_f1: where the labels of that side are known, a plain rule that has a higher one by
#   them is taken instead. (For qwk the choice would cost more than it saves.)

FEWEST = 50  # samples of the validation side: with fewer, nothing is fitted
CANDIDATES = 200  # values that a threshold may take
ROUNDS = 20  # of all thresholds, at most: it stops when none moves


@dataclass(frozen=True, kw_only=True)
class GradeRule:
    """From probabilities to grades.

    decoding: the most likely grade, the median, the rounded expected grade, or thresholds on the
    expected grade. ``srjt.reports.aspects.grading`` says in words what a rule is.
    """

    decoding: Literal["argmax", "median", "expected", "thresholds"]
    thresholds: tuple[float, ...] = ()  # C − 1 in ascending order, if there are thresholds
    purpose: Purpose | None = None  # the metric that it is for; None if the rule itself was chosen
    method: str = ""  # whose grades of single images are used instead, such as "garg"
    undoes_soft_labels: bool = False  # before the median is taken
    without_fit: bool = False  # whether there were too few samples to fit thresholds to
    # whether the labels of the validation side speak against the fitted thresholds
    rejected: bool = False
    soft_labels: Tensor | None = field(default=None, repr=False, compare=False)  # (C, C)

    def grades(self, probabilities: Tensor) -> Tensor:
        """(..., C) probabilities → (...,) grades."""
        if self.decoding == "thresholds":
            return grade_by_thresholds(
                probabilities, torch.tensor(self.thresholds).to(probabilities)
            )
        if self.soft_labels is not None:
            return median_grade(undo_soft_labels(probabilities, self.soft_labels))
        return decode(probabilities, self.decoding)


def grade_rule_for(
    purpose: Purpose,
    *,
    validation: Tensor | None = None,
    labels: Tensor | None = None,
    soft_labels: Tensor | None = None,
) -> GradeRule:
    """The rule that a metric is best served by.

    validation: (N, C) probabilities of samples that the network has not seen; thresholds are fitted
    to them. With none, or fewer than 50, the median serves qwk and the most likely grade macro_f1.
    labels: (N,) grades of these samples, possibly wrong: for macro_f1, thresholds that are worse by
    them than the median or the most likely grade are not used. soft_labels: (C, C) that the network
    has learnt, if it has.

    Examples
    --------
    >>> grade_rule_for("mae").decoding
    'median'
    """
    check_purpose(purpose)
    likeliest = GradeRule(decoding="argmax", purpose=purpose)
    median = GradeRule(
        decoding="median",
        purpose=purpose,
        undoes_soft_labels=soft_labels is not None,
        soft_labels=soft_labels,
    )
    plain = median if purpose in ("mae", "qwk") else likeliest
    if purpose in ("mae", "accuracy"):
        return plain
    if validation is None or len(validation) < FEWEST:
        return replace(plain, without_fit=True)
    p = validation.double()
    truth = p if soft_labels is None else undo_soft_labels(p, soft_labels)
    cuts = fit_thresholds(expected_grade(p).numpy(), truth.numpy(), purpose=purpose)
    fitted = GradeRule(decoding="thresholds", thresholds=tuple(cuts.tolist()), purpose=purpose)
    if labels is None or purpose != "macro_f1":
        return fitted

    def value(rule: GradeRule) -> float:
        return METRICS[purpose](
            confusion_matrix(labels, rule.grades(p), num_classes=p.shape[1]).numpy()
        )

    others = (replace(rule, rejected=True) for rule in (likeliest, median))
    return max((fitted, *others), key=value)  # the first of equals


def fit_thresholds(expected: Floats, probabilities: Floats, *, purpose: Purpose) -> Floats:
    """Thresholds (C − 1,) on the expected grade for which the expected value of a metric is best,
    in ascending order.

    One threshold after the other moves to its best value, until none improves the metric of the
    expected counts. Two may be equal: the grade between them is never predicted.

    expected: (N,) expected grades, or any other severity. probabilities: (N, C) how probable each
    grade is the true one.

    Examples
    --------
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
    some = np.unique(
        np.linspace(0, len(between) - 1, min(CANDIDATES, len(between))).astype(np.int64)
    )
    halves = np.arange(classes - 1) + 0.5
    cuts = np.unique(np.concatenate([between[some], halves, [-0.5, classes - 0.5]]))
    below = cumulative[
        np.searchsorted(ascending, cuts, side="right")
    ]  # expected counts of each true grade

    def score(chosen: NDArray[np.int64]) -> float:
        edges = np.concatenate([cumulative[:1], below[chosen], cumulative[-1:]])
        value = METRICS[purpose](np.diff(edges, axis=0).T)
        if np.isnan(value):
            return -np.inf
        if METRICS[purpose].lower_is_better:
            return -value
        return value

    shares = np.searchsorted(
        below.sum(axis=1), cumulative[-1].cumsum()[:-1]
    )  # as many as are expected
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
                    best = moved
                    best_score = value
        if best_score == before:
            break
    return np.asarray(cuts[best])


# One answer for several images: of a patient, an eye, a series.
#
# The grade of a patient is the highest grade of the images. With F_i(c) = p(grade of image i ≤ c),
# the learned pooling is
#
#     −log F(c) = weight · M(−log F_1(c), −log F_2(c), …)
#
# where M is the power mean with an exponent from 1, the plain mean, to infinity, the highest. So it
# lies between the two fixed rules: an exponent of 1 averages the images, a large one believes the
# worst image, and the weight corrects images that are too sure. Both numbers are fitted by maximum
# likelihood of the patients' highest labels.

Pooling = Literal["highest", "mean", "learned"]

_SMALLEST = 1e-6  # of a probability: float32 rounds smaller ones to 0, whose logarithm is infinite
_EXPONENTS = (
    1.0,
    64.0,
)  # with 64 the power mean of 1,000 images is within 11 % of their highest value
_WEIGHTS = (1 / 16, 16.0)


class LearnedPooling(NamedTuple):
    """Parameters of the learned pooling.

    exponent: from 1 (the mean of the images) to 64 (nearly the highest of them). weight: below 1,
    higher grades become less likely than the images say; above 1, more likely.
    """

    exponent: float
    weight: float


def pool_probabilities(
    probabilities: ArrayLike,
    units: ArrayLike,
    *,
    pooling: Pooling = "highest",
    learned: LearnedPooling | None = None,
) -> Floats:
    """Probabilities (M, C) of the grade of each unit (patient, eye, series) from those of its
    images.

    probabilities: (N, C). units: (N,) the unit of each image, 0 … M − 1. pooling: the highest
    grade, if the images of a unit agree as much as they can (p(grade ≤ c) is the smallest of the
    images'); mean probabilities; or the learned pooling, whose parameters are ``learned``, from
    ``fit_pooling``.

    Examples
    --------
    >>> pool_probabilities([[0.75, 0.25], [0.25, 0.75]], [0, 0]).tolist()
    [[0.25, 0.75]]
    >>> pool_probabilities([[0.75, 0.25], [0.25, 0.75]], [0, 0], pooling="mean").tolist()
    [[0.5, 0.5]]
    """
    p, u = _checked(probabilities, units)
    if pooling == "mean":
        return _sums(p, u) / np.bincount(u)[:, None]
    reached = _reached(p)
    if pooling == "highest":
        lowest = np.ones((int(u.max()) + 1, p.shape[1]))
        np.minimum.at(lowest, u, reached)
        return np.diff(lowest, axis=1, prepend=0.0)
    if pooling != "learned":
        raise unknown_name("pooling", pooling, get_args(Pooling))
    if learned is None:
        raise SrjtError(
            "The learned pooling needs its parameters: learned=fit_pooling(…).",
            code="missing_option",
            option="learned",
        )
    return _pool(reached, u, learned)


def highest_per_unit(grades: ArrayLike, units: ArrayLike) -> Ints:
    """The highest grade (M,) of each unit. grades: (N,). units: (N,) the unit of each image, 0 … M
    − 1.

    Examples
    --------
    >>> highest_per_unit([0, 2, 1], [0, 0, 1]).tolist()
    [2, 1]
    """
    g = np.asarray(grades, dtype=np.int64)
    u = np.asarray(units, dtype=np.int64)
    highest = np.full(int(u.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(highest, u, g)
    return highest


def fit_pooling(probabilities: ArrayLike, units: ArrayLike, labels: ArrayLike) -> LearnedPooling:
    """The exponent and the weight under which the units' labels are most likely.

    A weak prior keeps both near 1 and 4 where few units decide: normal, of their logarithms, with a
    standard deviation of 1.

    probabilities: (N, C). units: (N,) the unit of each image, 0 … M − 1. labels: the highest label
    of each unit (M,), or the probabilities of its highest grade (M, C).

    Examples
    --------
    >>> fitted = fit_pooling([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]], [0, 0, 1], [1, 0])
    >>> 1 <= fitted.exponent <= 64
    True
    """
    from scipy.optimize import minimize  # type: ignore[import-untyped]

    p, u = _checked(probabilities, units)
    y = np.asarray(labels)
    if len(y) != int(u.max()) + 1:
        raise SrjtError(
            f"{int(u.max()) + 1} units and {len(y)} labels: there must be as many of both.",
            code="wrong_shape",
        )
    target = np.eye(p.shape[1])[y.astype(np.int64)] if y.ndim == 1 else y.astype(np.float64)
    reached = _reached(p)
    bounds = [tuple(map(math.log, _EXPONENTS)), tuple(map(math.log, _WEIGHTS))]
    centre = (math.log(4.0), 0.0)

    def loss(logarithms: Floats) -> float:
        pooled = _pool(reached, u, LearnedPooling(*np.exp(logarithms)))
        surprises = -(target * np.log(np.maximum(pooled, _SMALLEST))).sum()
        return float(surprises + 0.5 * ((logarithms - centre) ** 2).sum())

    # the likelihood may have two maxima: one near the mean, one near the highest
    starts = [np.array([exponent, 0.0]) for exponent in np.linspace(bounds[0][0], bounds[0][1], 4)]
    best = min(
        (minimize(loss, start, method="Nelder-Mead", bounds=bounds) for start in starts),
        key=lambda result: float(result.fun),
    )
    exponent, weight = np.exp(best.x)
    return LearnedPooling(float(exponent), float(weight))


def _pool(reached: Floats, units: Ints, learned: LearnedPooling) -> Floats:
    """(N, C) F of the images → (M, C) probabilities of the units."""
    surprise = -np.log(np.maximum(reached, _SMALLEST))
    highest = np.zeros((int(units.max()) + 1, surprise.shape[1]))
    np.maximum.at(highest, units, surprise)
    # relative to the highest, so that no power overflows
    relative = np.divide(
        surprise, highest[units], out=np.zeros_like(surprise), where=highest[units] > 0
    )
    mean = _sums(relative**learned.exponent, units) / np.bincount(units)[:, None]
    pooled = np.exp(-learned.weight * highest * mean ** (1.0 / learned.exponent))
    return np.diff(pooled, axis=1, prepend=0.0).clip(min=0.0)


def _reached(probabilities: Floats) -> Floats:
    """(N, C) Pr(grade ≤ c); the last is 1 in spite of rounding."""
    reached = np.minimum(np.cumsum(probabilities, axis=1), 1.0)
    reached[:, -1] = 1.0
    return np.asarray(reached)


def _sums(values: Floats, units: Ints) -> Floats:
    """(N, C) → (M, C) sums of each unit."""
    return np.stack([np.bincount(units, weights=column) for column in values.T], axis=1)


def _checked(probabilities: ArrayLike, units: ArrayLike) -> tuple[Floats, Ints]:
    p = np.asarray(probabilities, dtype=np.float64)
    u = np.asarray(units, dtype=np.int64)
    if p.ndim != 2 or u.shape != (len(p),) or not len(p):
        raise SrjtError(
            f"Probabilities (N, C) need one unit per image (N,); got {p.shape} and {u.shape}.",
            code="wrong_shape",
        )
    return p, u
