"""Readers and networks together: p(true grade | image, all its readings), and which reading is doubtful."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.formulas import neutralise_formula
from srjt.data.sources.several_readers import combine
from srjt.readers import Readings
from srjt.training.crossfit import CrossFit

__all__ = ["combined_posterior", "score_readings"]

Floats = npt.NDArray[np.float64]
DIGITS = 6


def combined_posterior(readings: Readings, fitted: CrossFit) -> Floats:
    """(N, C) p(true grade | image, all readings): the networks, which were not trained on the image, are a witness
    whose errors may be those of the readers (see ``srjt.readers.consensus``). Verified grades are references."""
    verified = fitted.manifest.verified_labels
    if verified is not None:
        known = -1 if readings.reference is None else readings.reference
        readings = replace(readings, reference=np.where(verified >= 0, verified, known))
    agreed = combine(readings, probabilities=fitted.probabilities)
    return np.asarray(agreed.posterior, dtype=np.float64)


def score_readings(readings: Readings, posterior: Floats) -> pd.DataFrame:
    """One row per reading, the most doubtful first. Quality is the probability that the reading is right."""
    names = np.array(readings.grades, dtype=object)
    suggested = posterior.argmax(axis=1)[readings.item]
    table = pd.DataFrame(
        {
            "id": np.array(readings.items, dtype=object)[readings.item],
            "reader": np.array([neutralise_formula(name) for name in readings.readers], dtype=object)[
                readings.reader
            ],
            "grade": names[readings.grade],
            "suggested": names[suggested],
            "quality": posterior[readings.item, readings.grade].round(DIGITS),
            "distance": np.abs(suggested - readings.grade),
        }
    )
    ranked = table.sort_values(["quality", "id", "reader"], kind="stable")
    ranked.insert(0, "rank", np.arange(1, len(ranked) + 1))
    return ranked.reset_index(drop=True)
