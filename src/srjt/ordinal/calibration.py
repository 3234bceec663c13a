"""Calibration of probabilities, and their score for ordered grades."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["CalibrationBin", "calibration_bins", "expected_calibration_error", "ranked_probability_score"]

Floats = npt.NDArray[np.float64]


class CalibrationBin(NamedTuple):
    """Samples whose predicted grade has a similar probability.

    Attributes
    ----------
    confidence : float
        Mean probability of the predicted grade.
    accuracy : float
        Share of samples that are predicted right.
    samples : int
    """

    confidence: float
    accuracy: float
    samples: int


def calibration_bins(
    probabilities: npt.ArrayLike, true: npt.ArrayLike, *, bins: int = 15
) -> list[CalibrationBin]:
    """Bins of equal width over the probability of the predicted grade, without the empty ones.

    Parameters
    ----------
    probabilities : array-like, shape (N, C)
    true : array-like of int, shape (N,)
        True grades.
    bins : int
        Number of bins.

    Returns
    -------
    list of CalibrationBin

    Examples
    --------
    >>> from srjt.ordinal.calibration import calibration_bins
    >>> calibration_bins([[0.75, 0.25], [0.75, 0.25]], [0, 1])
    [CalibrationBin(confidence=0.75, accuracy=0.5, samples=2)]
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(true, dtype=np.int64)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    which = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    return [
        CalibrationBin(
            float(confidence[which == b].mean()), float(right[which == b].mean()), int((which == b).sum())
        )
        for b in range(bins)
        if (which == b).any()
    ]


def expected_calibration_error(probabilities: npt.ArrayLike, true: npt.ArrayLike, *, bins: int = 15) -> float:
    """Mean gap between confidence and accuracy over the bins, weighted by their samples.

    Parameters
    ----------
    probabilities : array-like, shape (N, C)
    true : array-like of int, shape (N,)
        True grades.
    bins : int
        Number of bins.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.calibration import expected_calibration_error
    >>> expected_calibration_error([[0.75, 0.25], [0.75, 0.25]], [0, 1])
    0.25
    """
    found = calibration_bins(probabilities, true, bins=bins)
    return sum(b.samples * abs(b.confidence - b.accuracy) for b in found) / sum(b.samples for b in found)


def ranked_probability_score(probabilities: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """Squared distance of the cumulative distributions, summed over thresholds, averaged over samples: 0 is perfect.

    Unlike the Brier score, it penalises probability on a neighbouring grade less than on a distant one.

    Parameters
    ----------
    probabilities : array-like, shape (N, C)
    true : array-like of int, shape (N,)
        True grades.

    Returns
    -------
    float

    Examples
    --------
    >>> from srjt.ordinal.calibration import ranked_probability_score
    >>> ranked_probability_score([[1.0, 0.0, 0.0]], [0])
    0.0
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(true, dtype=np.int64)
    reached = p.cumsum(axis=1)[:, :-1]
    truth = y[:, None] <= np.arange(p.shape[1] - 1)
    return float(((reached - truth) ** 2).sum(axis=1).mean())
