"""Recalibration: probabilities that mean what they say, from labels that may be wrong.

The recalibrated probabilities are r(x) ∝ p(x)^β · exp(b). β is an inverse temperature, below 1 for an over-confident
network; b holds one offset per grade (vector scaling), or zeros. Labels are wrong by a matrix P, so the labels'
probabilities are r(x) P. β and b maximise their likelihood: r speaks of the true grade, not of the label. With P = I
this is ordinary temperature and vector scaling.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize  # type: ignore[import-untyped]

from srjt.errors import SrjtError

__all__ = ["FLOOR", "SMALLEST", "Recalibration", "choose_recalibration", "fit_recalibration"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SMALLEST = (100, 20)  # labels and patients below which nothing is recalibrated
FLOOR = 1e-12  # networks round small probabilities to zero
_PARTS = 5  # of the patients, each held out once
_SLOPES = (0.05, 20.0)  # of β: beyond, the labels say nothing


@dataclass(frozen=True, kw_only=True)
class Recalibration:
    """p → p^slope · exp(offsets), normalised.

    Attributes
    ----------
    slope : float
        β, the inverse temperature; 1 changes nothing.
    offsets : ndarray, shape (C,)
        b, one offset per grade; zeros for a temperature alone.
    gain : float
        Mean held-out gain in log-likelihood per label.
    samples : int
        Labels that it was fitted to.
    meaning : str
        What the recalibrated probabilities are probabilities of, where it is known.

    Examples
    --------
    >>> import numpy as np
    >>> from srjt.ordinal.recalibration import Recalibration
    >>> Recalibration(slope=0.5, offsets=np.zeros(2))([[0.8, 0.2]]).round(3).tolist()
    [[0.667, 0.333]]
    """

    slope: float
    offsets: Floats
    gain: float = 0.0
    samples: int = 0
    meaning: str = ""

    def __call__(self, probabilities: npt.ArrayLike) -> Floats:
        """(..., C) → (..., C)."""
        logits = self.slope * _log(probabilities) + self.offsets
        return _softmax(logits)

    @property
    def is_vector(self) -> bool:
        """Whether the grades have offsets."""
        return bool(np.any(self.offsets))

    def __str__(self) -> str:
        temperature = f"temperature {1.0 / self.slope:.2f}"
        name = f"{temperature} and an offset per grade" if self.is_vector else temperature
        return f"{name}; {self.meaning}" if self.meaning else name


def fit_recalibration(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    transition: npt.ArrayLike | None = None,
    vector: bool = False,
) -> Recalibration:
    """Fit a temperature, or a temperature and one offset per grade, by maximum likelihood of the labels.

    Parameters
    ----------
    probabilities : array-like, shape (N, C)
        Of networks that have not seen these samples.
    labels : array-like of int, shape (N,)
        Their grades, which may be wrong.
    transition : array-like, shape (C, C), optional
        P[i, j] = Pr(label = j | true grade = i). Default: the labels are right.
    vector : bool
        Also fit an offset per grade. A normal prior with standard deviation 1 keeps the offsets of rare grades finite.

    Returns
    -------
    Recalibration

    Examples
    --------
    >>> from srjt.ordinal.recalibration import fit_recalibration
    >>> found = fit_recalibration([[0.99, 0.01]] * 4, [0, 0, 0, 1])
    >>> found([[0.99, 0.01]]).round(2).tolist()
    [[0.75, 0.25]]
    """
    log_p, y, matrix = _checked(probabilities, labels, transition)
    return _fit(log_p, y, matrix, vector=vector)


def choose_recalibration(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    transition: npt.ArrayLike | None = None,
    groups: Sequence[Hashable] | None = None,
    vector: bool = True,
) -> Recalibration | None:
    """No recalibration, a temperature, or vector scaling: the simplest that predicts held-out labels well.

    Patients are held out in five parts. A richer form is chosen if it raises the held-out log-likelihood by more than
    one standard error over patients.

    Parameters
    ----------
    probabilities, labels, transition
        As for ``fit_recalibration``.
    groups : sequence, length N, optional
        Patients. Default: every sample is its own.
    vector : bool
        Whether an offset per grade may be chosen.

    Returns
    -------
    Recalibration or None
        None if nothing is gained, or with fewer than 100 labels or 20 patients.

    Examples
    --------
    >>> import numpy as np
    >>> from srjt.ordinal.recalibration import choose_recalibration
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, size=200)
    >>> right = np.where(rng.random(200) < 0.75, labels, 1 - labels)
    >>> found = choose_recalibration(np.eye(2)[right] * 0.98 + 0.01, labels)
    >>> str(found)
    'temperature 5.92'
    """
    log_p, y, matrix = _checked(probabilities, labels, transition)
    owner = _owners(groups, len(y))
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
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, transition: npt.ArrayLike | None
) -> tuple[Floats, Ints, Floats]:
    log_p, y = _log(probabilities), np.asarray(labels, dtype=np.int64)
    if log_p.ndim != 2 or y.shape != log_p.shape[:1] or not len(y):
        raise SrjtError(
            f"Recalibration needs probabilities (N, C) and labels (N,); their shapes are {log_p.shape} and {y.shape}."
        )
    classes = log_p.shape[1]
    matrix = np.eye(classes) if transition is None else np.asarray(transition, dtype=np.float64)
    if matrix.shape != (classes, classes):
        raise SrjtError(
            f"A transition matrix of {classes} grades is {classes} × {classes}, not {matrix.shape}."
        )
    return log_p, y, matrix


def _owners(groups: Sequence[Hashable] | None, samples: int) -> Ints:
    if groups is None:
        return np.arange(samples)
    return np.unique(np.asarray([str(group) for group in groups]), return_inverse=True)[1].astype(np.int64)


def _log(probabilities: npt.ArrayLike) -> Floats:
    return np.log(np.maximum(np.asarray(probabilities, dtype=np.float64), FLOOR))


def _softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _likelihood(log_p: Floats, labels: Ints, matrix: Floats, how: Recalibration) -> Floats:
    """(N,) log p(label | x)."""
    joint = _softmax(how.slope * log_p + how.offsets) * matrix.T[labels]
    return np.asarray(np.log(np.maximum(joint.sum(axis=1), FLOOR)))


def _fit(
    log_p: Floats, labels: Ints, matrix: Floats, *, vector: bool, start: Recalibration | None = None
) -> Recalibration:
    given = matrix.T[labels]  # (N, C): p(label | true grade)
    classes = log_p.shape[1]

    def loss(theta: Floats) -> tuple[float, Floats]:
        slope, offsets = np.exp(theta[0]), theta[1:] if vector else 0.0
        r = _softmax(slope * log_p + offsets)
        joint = r * given
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
    return Recalibration(slope=float(np.exp(theta[0])), offsets=np.asarray(offsets), samples=len(labels))
