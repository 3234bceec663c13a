"""Whether probabilities mean what they say: measures of calibration, and recalibration by
validation labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

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
    >>> Recalibration(slope=0.5, offsets=(0.0, 0.0))([[0.8, 0.2]]).round(3).tolist()
    [[0.667, 0.333]]
    """

    slope: float  # β, the inverse temperature; 1 changes nothing
    offsets: tuple[float, ...]  # b, one per grade; zeros for a temperature alone
    gain: float = 0.0  # mean held-out gain in log-likelihood per label
    samples: int = 0  # labels that it was fitted to
    # whether it makes probabilities of the labels, or of the true grades by verified grades or by
    # what is known about the noise; None: nothing is known
    basis: Literal["labels", "verified", "noise"] | None = None
    # by noise: the share of wrong labels, or the least and the most that it allows for
    wrong_labels: tuple[float, float] | None = None

    def __call__(self, probabilities: ArrayLike) -> Floats:
        """(..., C) → (..., C)."""
        return np.asarray(softmax(self.slope * _log(probabilities) + self.offsets, axis=-1))

    @property
    def is_vector(self) -> bool:
        """Whether the grades have offsets."""
        return bool(np.any(self.offsets))

    @property
    def temperature(self) -> float:
        """1 / slope: above 1 it makes probabilities less extreme."""
        return 1.0 / self.slope


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
    >>> recalibration = fit_recalibration([[0.99, 0.01]] * 4, [0, 0, 0, 1])
    >>> recalibration([[0.99, 0.01]]).round(2).tolist()
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
    >>> recalibration = choose_recalibration(np.eye(2)[right] * 0.98 + 0.01, labels)
    >>> round(recalibration.temperature, 2)
    5.92
    """
    log_p, y, matrix = _checked(probabilities, labels, transition)
    owner = patient_codes(groups, len(y))
    patients = int(owner.max()) + 1 if len(y) else 0
    if len(y) < SMALLEST[0] or patients < SMALLEST[1]:
        return None
    part = owner % _PARTS
    same = Recalibration(slope=1.0, offsets=(0.0,) * log_p.shape[1])
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


def _likelihood(log_p: Floats, labels: Ints, matrix: Floats, fitted: Recalibration) -> Floats:
    """(N,) log p(label | x)."""
    joint = softmax(fitted.slope * log_p + fitted.offsets, axis=1) * matrix.T[labels]
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
        slope=float(np.exp(theta[0])), offsets=tuple(offsets.tolist()), samples=len(labels)
    )
