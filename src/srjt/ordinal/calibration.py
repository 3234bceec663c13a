"""Whether probabilities mean what they say: measures of calibration, recalibration by validation
labels, and ranges of grades that contain the true one with a given probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize  # type: ignore[import-untyped]
from scipy.special import softmax  # type: ignore[import-untyped]

from srjt.errors import SrjtError
from srjt.ordinal import patient_codes
from srjt.ordinal.metrics import Floats, Groups, Ints

# Calibration of probabilities, and their score for ordered grades.


class CalibrationBin(NamedTuple):
    """Samples whose predicted grade has a similar probability: its mean, and the share that are
    right."""

    confidence: float
    accuracy: float
    samples: int


def calibration_bins(
    probabilities: ArrayLike, true: ArrayLike, *, bins: int = 15
) -> list[CalibrationBin]:
    """Bins of equal width over the probability of the predicted grade, without the empty ones.

    probabilities: (N, C). true: (N,) grades.

    Examples
    --------
    >>> calibration_bins([[0.75, 0.25], [0.75, 0.25]], [0, 1])
    [CalibrationBin(confidence=0.75, accuracy=0.5, samples=2)]
    """
    p = np.asarray(probabilities, dtype=np.float64)
    y = np.asarray(true, dtype=np.int64)
    confidence = p.max(axis=1)
    right = p.argmax(axis=1) == y
    which = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    filled = (which == b for b in np.unique(which))
    return [
        CalibrationBin(float(confidence[rows].mean()), float(right[rows].mean()), int(rows.sum()))
        for rows in filled
    ]


def expected_calibration_error(
    probabilities: ArrayLike, true: ArrayLike, *, bins: int = 15
) -> float:
    """Mean gap between confidence and accuracy over the bins, weighted by their samples.

    The arguments are those of ``calibration_bins``.

    Examples
    --------
    >>> expected_calibration_error([[0.75, 0.25], [0.75, 0.25]], [0, 1])
    0.25
    """
    filled = calibration_bins(probabilities, true, bins=bins)
    return sum(b.samples * abs(b.confidence - b.accuracy) for b in filled) / sum(
        b.samples for b in filled
    )


def ranked_probability_score(probabilities: ArrayLike, true: ArrayLike) -> float:
    """Squared distance of the cumulative distributions, summed over thresholds, averaged over
    samples: 0 is perfect.

    Unlike the Brier score, it penalises probability on a neighbouring grade less than on a distant
    one. probabilities: (N, C). true: (N,) grades.

    Examples
    --------
    >>> ranked_probability_score([[1.0, 0.0, 0.0]], [0])
    0.0
    """
    p = np.asarray(probabilities, dtype=np.float64)
    y = np.asarray(true, dtype=np.int64)
    reached = p.cumsum(axis=1)[:, :-1]
    truth = y[:, None] <= np.arange(p.shape[1] - 1)
    return float(((reached - truth) ** 2).sum(axis=1).mean())


# Recalibration: probabilities that mean what they say, from labels that may be wrong.
#
# The recalibrated probabilities are r(x) ∝ p(x)^β · exp(b). β is an inverse temperature, below 1
# for an over-confident network; b holds one offset per grade (vector scaling), or zeros. Labels are
# wrong by a matrix P, so the labels' probabilities are r(x) P. β and b maximise their likelihood: r
# speaks of the true grade, not of the label. With P = I this is ordinary temperature and vector
# scaling.

SMALLEST = (100, 20)  # labels and patients below which nothing is recalibrated
FLOOR = 1e-12  # networks round small probabilities to zero
_PARTS = 5  # of the patients, each held out once
_SLOPES = (0.05, 20.0)  # of β: beyond, the labels say nothing


@dataclass(frozen=True, kw_only=True)
class Recalibration:
    """p → p^slope · exp(offsets), normalised.

    Examples
    --------
    >>> Recalibration(slope=0.5, offsets=np.zeros(2))([[0.8, 0.2]]).round(3).tolist()
    [[0.667, 0.333]]
    """

    slope: float  # β, the inverse temperature; 1 changes nothing
    offsets: Floats  # (C,) b, one per grade; zeros for a temperature alone
    gain: float = 0.0  # mean held-out gain in log-likelihood per label
    samples: int = 0  # labels that it was fitted to
    meaning: str = ""  # what the recalibrated probabilities are probabilities of, where it is known

    def __call__(self, probabilities: ArrayLike) -> Floats:
        """(..., C) → (..., C)."""
        return np.asarray(softmax(self.slope * _log(probabilities) + self.offsets, axis=-1))

    @property
    def is_vector(self) -> bool:
        """Whether the grades have offsets."""
        return bool(np.any(self.offsets))

    def __str__(self) -> str:
        temperature = f"temperature {1.0 / self.slope:.2f}"
        name = f"{temperature} and an offset per grade" if self.is_vector else temperature
        return f"{name}; {self.meaning}" if self.meaning else name


def fit_recalibration(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    transition: ArrayLike | None = None,
    vector: bool = False,
) -> Recalibration:
    """Fit a temperature, or a temperature and one offset per grade, by maximum likelihood of the
    labels.

    probabilities: (N, C) of networks that have not seen these samples. labels: (N,) their grades,
    which may be wrong. transition: (C, C) P[i, j] = Pr(label = j | true grade = i); without, the
    labels are right. vector: also fit an offset per grade. A normal prior with standard deviation 1
    keeps the offsets of rare grades finite.

    Examples
    --------
    >>> found = fit_recalibration([[0.99, 0.01]] * 4, [0, 0, 0, 1])
    >>> found([[0.99, 0.01]]).round(2).tolist()
    [[0.75, 0.25]]
    """
    log_p, y, matrix = _checked(probabilities, labels, transition)
    return _fit(log_p, y, matrix, vector=vector)


def choose_recalibration(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    transition: ArrayLike | None = None,
    groups: Groups = None,
    vector: bool = True,
) -> Recalibration | None:
    """No recalibration, a temperature, or vector scaling: the simplest that predicts held-out
    labels well.

    Patients are held out in five parts. A richer form is chosen if it raises the held-out
    log-likelihood by more than one standard error over patients. None if nothing is gained, or with
    fewer than 100 labels or 20 patients.

    probabilities, labels, transition: as for ``fit_recalibration``. groups: (N,) patients; without,
    every sample is its own. vector: whether an offset per grade may be chosen.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, size=200)
    >>> right = np.where(rng.random(200) < 0.75, labels, 1 - labels)
    >>> found = choose_recalibration(np.eye(2)[right] * 0.98 + 0.01, labels)
    >>> str(found)
    'temperature 5.92'
    """
    log_p, y, matrix = _checked(probabilities, labels, transition)
    owner = patient_codes(groups, len(y))
    patients = int(owner.max()) + 1 if len(y) else 0
    if len(y) < SMALLEST[0] or patients < SMALLEST[1]:
        return None
    part = owner % _PARTS
    same = Recalibration(slope=1.0, offsets=np.zeros(log_p.shape[1]))
    before = best = _likelihood(log_p, y, matrix, same)
    chosen: Recalibration | None = None
    for with_offsets in (False, True) if vector else (False,):
        fitted = _fit(log_p, y, matrix, vector=with_offsets)
        scored = np.empty(len(y))
        for k in range(_PARTS):
            out = part == k
            without = _fit(log_p[~out], y[~out], matrix, vector=with_offsets, start=fitted)
            scored[out] = _likelihood(log_p[out], y[out], matrix, without)
        gain = np.bincount(owner, scored - best)
        if gain.sum() > gain.std() * patients**0.5:
            chosen = replace(fitted, gain=float((scored - before).mean()))
            best = scored
    return chosen


def _checked(
    probabilities: ArrayLike, labels: ArrayLike, transition: ArrayLike | None
) -> tuple[Floats, Ints, Floats]:
    log_p = _log(probabilities)
    y = np.asarray(labels, dtype=np.int64)
    if log_p.ndim != 2 or y.shape != log_p.shape[:1] or not len(y):
        raise SrjtError(
            f"Pass probabilities (N, C) and labels (N,); got {log_p.shape} and {y.shape}.",
            code="wrong_shape",
        )
    classes = log_p.shape[1]
    matrix = np.eye(classes) if transition is None else np.asarray(transition, dtype=np.float64)
    if matrix.shape != (classes, classes):
        raise SrjtError(
            f"The matrix of {classes} grades is {classes} × {classes}, not {matrix.shape}.",
            code="wrong_shape",
            option="matrix",
        )
    return log_p, y, matrix


def _log(probabilities: ArrayLike) -> Floats:
    return np.log(np.maximum(np.asarray(probabilities, dtype=np.float64), FLOOR))


def _likelihood(log_p: Floats, labels: Ints, matrix: Floats, how: Recalibration) -> Floats:
    """(N,) log p(label | x)."""
    joint = softmax(how.slope * log_p + how.offsets, axis=1) * matrix.T[labels]
    return np.asarray(np.log(np.maximum(joint.sum(axis=1), FLOOR)))


def _fit(
    log_p: Floats, labels: Ints, matrix: Floats, *, vector: bool, start: Recalibration | None = None
) -> Recalibration:
    label_likelihood = matrix.T[labels]  # (N, C): p(label | true grade)
    classes = log_p.shape[1]

    def loss(theta: Floats) -> tuple[float, Floats]:
        slope = np.exp(theta[0])
        offsets = theta[1:] if vector else 0.0
        r = softmax(slope * log_p + offsets, axis=1)
        joint = r * label_likelihood
        total = np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
        pull = r - joint / total  # −∂ log p(label | x) / ∂ logits
        gradient = np.array([slope * (pull * log_p).sum()])
        value = -float(np.log(total).sum())
        if vector:
            value += 0.5 * float(theta[1:] @ theta[1:])
            gradient = np.concatenate([gradient, pull.sum(axis=0) + theta[1:]])
        return value, gradient

    begin = np.zeros(1 + classes * vector)
    if start is not None:
        begin = np.concatenate([[np.log(start.slope)], start.offsets if vector else []])
    bounds = [tuple(np.log(_SLOPES)), *[(None, None)] * (classes * vector)]
    theta = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=bounds).x
    offsets = theta[1:] - theta[1:].mean() if vector else np.zeros(classes)
    return Recalibration(
        slope=float(np.exp(theta[0])), offsets=np.asarray(offsets), samples=len(labels)
    )


# Ranges of grades that contain the true grade with a promised probability: split conformal
# prediction for patients.
#
# **Nested ranges.** The range of an image begins with its most likely grade and grows by the
# likelier of its two neighbours, until it holds all grades: it has no holes. The score of a grade
# is the probability that the range holds before that grade enters. The range at a threshold q holds
# the grades with a score of at most q. A higher q gives a wider range.
#
# **Patients.** Images of one patient resemble each other, so patients are the unit: each has the
# weight 1, shared by its images. Let A_g(q) be the share of patient g's images whose true grade has
# a score of at most q. The threshold is
#
#     the smallest q with   A_1(q) + … + A_G(q) ≥ coverage · (G + 1).
#
# If the new patient is exchangeable with the G patients, the range of a random image of the new
# patient contains the true grade with probability ≥ coverage: with the new patient's own A on the
# left, which is not negative, and G + 1 on the right, the sum is symmetric in G + 1 patients, whose
# mean share at the threshold is then at least the coverage (hierarchical conformal prediction, Lee,
# Barber and Willett 2023). With one image per patient it is ordinary split conformal prediction.
#
# **Weights.** Where true grades are not known, each grade c of a calibration image has a weight,
# for example p(true grade = c | label), and A_g sums the weights of the grades with a score of at
# most q. Weights may be negative (a column of an inverse matrix); then the sum must stay above its
# bound for all thresholds beyond q, too, and the bound allows for the most negative new patient.
# For ranges that cover each grade with the promised probability, the weights of one grade give its
# own threshold, and G becomes the patients' total weight of that grade.


def range_scores(probabilities: ArrayLike) -> Floats:
    """The score (N, C) of every grade: the probability that the growing range holds before the
    grade enters.

    probabilities: (N, C). 0 for the most likely grade; ties go to the milder grade.

    Examples
    --------
    >>> range_scores([[0.125, 0.5, 0.25, 0.125]]).tolist()
    [[0.75, 0.0, 0.5, 0.875]]
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2:
        raise SrjtError(f"Probabilities have the shape (N, C); got {p.shape}.", code="wrong_shape")
    rows = np.arange(len(p))
    padded = np.pad(p, ((0, 0), (1, 1)), constant_values=-1.0)  # grade c is column c + 1
    low, high = (p.argmax(axis=1) for _ in range(2))
    held = p[rows, low]
    scores = np.zeros_like(p)
    for _ in range(p.shape[1] - 1):
        up = padded[rows, high + 2] > padded[rows, low]
        entering = np.where(up, high + 1, low - 1)
        scores[rows, entering] = held
        held = held + p[rows, entering]
        low = np.where(up, low, entering)
        high = np.where(up, entering, high)
    return scores


def patient_weights(groups: Groups, samples: int) -> Floats:
    """Weights (N,): one patient's images share the weight 1. groups: (N,) patients; None: every
    sample is its own.

    Examples
    --------
    >>> patient_weights(["a", "b", "b"], 3).tolist()
    [1.0, 0.5, 0.5]
    """
    owner = patient_codes(groups, samples)
    return np.asarray(1.0 / np.bincount(owner)[owner])


def range_threshold(
    scores: ArrayLike, weights: ArrayLike | None = None, *, coverage: float, groups: Groups = None
) -> float:
    """The threshold at which ranges have the promised coverage.

    It is infinite if there are too few patients for this coverage: then only the range of all
    grades keeps the promise.

    scores: (N,) of the true grade of each calibration sample, or (N, M) of M grades that may be the
    true one. weights: how much each score counts, for example p(true grade | label); by default 1.
    coverage: the promised probability, between 0 and 1. groups: (N,) patients; without, every
    sample is its own.

    Examples
    --------
    >>> range_threshold([0.0, 0.1, 0.2, 0.9], coverage=0.6)
    0.2
    >>> range_threshold([0.0, 0.1, 0.2, 0.9], coverage=0.9)
    inf
    """
    if not 0.0 < coverage < 1.0:
        raise SrjtError(
            f"A coverage lies between 0 and 1, for example 0.9; got {coverage:g}.",
            code="out_of_bounds",
            option="coverage",
        )
    s = np.asarray(scores, dtype=np.float64)
    s = s.reshape(len(s), -1)
    matrix = (
        np.ones_like(s)
        if weights is None
        else np.asarray(weights, dtype=np.float64).reshape(s.shape)
    )
    # what a new patient may take away from the sum, relative to the bound: at most its largest row,
    # and all of its negative weights
    worst = coverage * matrix.sum(axis=1) + np.maximum(-matrix, 0.0).sum(axis=1)
    spare = max(float(worst.max(initial=0.0)), coverage)
    w = matrix * patient_weights(groups, len(s))[:, None]
    order = np.argsort(s, axis=None, kind="stable")
    ordered = s.ravel()[order]
    reached = np.cumsum(w.ravel()[order])
    need = coverage * float(w.sum()) + spare
    if not np.isfinite(need):
        return float("inf")
    ends = np.append(ordered[1:] > ordered[:-1], True) if len(ordered) else np.empty(0, dtype=bool)
    short = np.flatnonzero(ends & (reached < need - 1e-9 * (1.0 + abs(need))))
    first = int(short[-1]) + 1 if len(short) else 0
    if first < len(ordered):
        return float(ordered[first])
    return float("inf")


def widest_range_threshold(
    scores: ArrayLike,
    candidates: Sequence[ArrayLike],
    *,
    parts: ArrayLike,
    coverage: float,
    groups: Groups = None,
) -> float:
    """The threshold at which ranges have the promised coverage whichever weights are right in each
    part of the samples.

    The samples of a part, for example those with one label, have the weights of one of the
    candidates, or of any mixture of them; another part may have another's. The coverage is a sum
    over the parts and is linear in the weights, so the worst case is found part by part: Σ over the
    parts of the lowest sum among the candidates must reach the bound of ``range_threshold``. The
    threshold is the highest of those of all combinations.

    scores: (N, M) of M grades that may be the true one. candidates: (N, M) weights, none negative.
    parts: (N,) whole numbers from 0. coverage, groups: as for ``range_threshold``.

    Examples
    --------
    >>> scores, parts = [[0.0, 0.5], [0.0, 0.5], [0.4, 0.0], [0.4, 0.0]], [0, 0, 1, 1]
    >>> first, second = [[1, 0]] * 4, [[0, 1]] * 4
    >>> [range_threshold(scores, weights, coverage=0.3) for weights in (first, second)]
    [0.0, 0.0]
    >>> widest_range_threshold(scores, [first, second], parts=parts, coverage=0.3)
    0.4
    """
    if not 0.0 < coverage < 1.0:
        raise SrjtError(
            f"A coverage lies between 0 and 1, for example 0.9; got {coverage:g}.",
            code="out_of_bounds",
            option="coverage",
        )
    s = np.asarray(scores, dtype=np.float64)
    part = np.asarray(parts, dtype=np.int64)
    rows = [np.asarray(weights, dtype=np.float64).reshape(s.shape) for weights in candidates]
    new_patient = coverage * max(1.0, *(float(one.sum(axis=1).max(initial=0.0)) for one in rows))
    share = patient_weights(groups, len(s))[:, None]
    shared = [one * share for one in rows]

    def holds(threshold: float) -> bool:
        inside = (s <= threshold) - coverage
        sums = [np.bincount(part, (weights * inside).sum(axis=1)) for weights in shared]
        worst = float(np.min(sums, axis=0).sum())
        return worst >= new_patient - 1e-9 * (1.0 + len(s))

    # no weight is negative, so that a higher threshold covers no less: bisection
    possible = np.unique(s)
    if not len(possible) or not holds(float(possible[-1])):
        return float("inf")
    short = -1
    enough = len(possible) - 1
    while enough - short > 1:
        middle = (short + enough) // 2
        if holds(float(possible[middle])):
            enough = middle
        else:
            short = middle
    return float(possible[enough])


def grade_ranges(scores: ArrayLike, thresholds: ArrayLike) -> tuple[Ints, Ints]:
    """The lowest and the highest grade (N,) of each range; the most likely grade alone where no
    grade enters.

    scores: (N, C) from ``range_scores``. thresholds: one for all grades, or (C,) or (N, C), one for
    each grade. Grades between two that enter are filled in.

    Examples
    --------
    >>> low, high = grade_ranges([[0.75, 0.0, 0.5, 0.875]], 0.6)
    >>> low.tolist(), high.tolist()
    ([1], [2])
    """
    s = np.asarray(scores, dtype=np.float64)
    inside = s <= np.asarray(thresholds, dtype=np.float64)
    nothing = ~inside.any(axis=1)
    inside[nothing, s[nothing].argmin(axis=1)] = True
    return inside.argmax(axis=1), s.shape[1] - 1 - inside[:, ::-1].argmax(axis=1)
