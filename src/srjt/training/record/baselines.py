"""Naive baselines of a run: the scores of one grade for all samples, on the same sides as the run's own scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from srjt.ordinal.baselines import NaiveBaseline, naive_baseline
from srjt.training.record.run_folder import read_facts, read_summary

__all__ = ["NAIVE", "compare_with_naive", "run_baselines"]

NAIVE = "naive: always the most frequent training label (accuracy), always their median (MAE)"


def run_baselines(folder: Path) -> dict[str, NaiveBaseline]:
    """Side → its naive baseline, for the sides of a finished run."""
    training = read_facts(folder).data.get("class_counts")
    if not training:
        return {}
    confusions = read_summary(folder).get("confusion", {})
    # every network has judged every sample once, so that the rows of one network's counts are the side's labels
    return {
        side: naive_baseline(training, np.asarray(counts)[0].sum(axis=1))
        for side, counts in confusions.items()
    }


def compare_with_naive(side: str, *, accuracy: float, mae: float, naive: NaiveBaseline) -> str:
    """A sentence if the scores do not beat the naive baseline, else an empty string."""
    worse = []
    if accuracy <= naive.accuracy:
        worse.append(
            f"accuracy {accuracy:.3f}, and {naive.accuracy:.3f} by always predicting the most frequent training label"
        )
    if mae >= naive.mae:
        worse.append(f"MAE {mae:.3f}, and {naive.mae:.3f} by always predicting the median training label")
    return f"This run does not beat a naive prediction on {side}: {'; '.join(worse)}." if worse else ""
