"""Whether probabilities mean what they say, and how good they are for grades with an order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["CalibrationBin", "calibration_bins", "expected_calibration_error", "ranked_probability_score"]

Floats = npt.NDArray[np.float64]


class CalibrationBin(NamedTuple):
    confidence: float  # mean probability of the predicted grade in this bin
    accuracy: float  # share of them that was right
    samples: int


def calibration_bins(
    probabilities: npt.ArrayLike, true: npt.ArrayLike, *, bins: int = 15
) -> list[CalibrationBin]:
    """(N, C), (N,) → the non-empty bins of equal width over the probability of the predicted grade."""
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
    """The mean gap between confidence and accuracy over bins, weighted by their samples."""
    found = calibration_bins(probabilities, true, bins=bins)
    return sum(b.samples * abs(b.confidence - b.accuracy) for b in found) / sum(b.samples for b in found)


def ranked_probability_score(probabilities: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """Mean squared distance of the cumulative distributions, summed over thresholds: 0 is perfect.

    Unlike the Brier score it forgives probability on a neighbouring grade more than on a distant one.
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(true, dtype=np.int64)
    reached = p.cumsum(axis=1)[:, :-1]
    truth = y[:, None] <= np.arange(p.shape[1] - 1)
    return float(((reached - truth) ** 2).sum(axis=1).mean())
