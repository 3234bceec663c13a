"""Naive baselines of a run: the scores of one grade for all samples, on the same sides as the run's own scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt.ordinal.baselines import NaiveBaseline, naive_baseline
from srjt.training.record.run_folder import RunFacts, read_facts, read_summary

__all__ = ["NAIVE", "baseline_from", "baseline_on", "compare_with_naive", "not_beaten", "run_baselines"]

NAIVE = "naive: always the most frequent training label (accuracy), always their median (MAE)"


def run_baselines(folder: Path) -> dict[str, NaiveBaseline]:
    """Side → its naive baseline, for the sides of a finished run."""
    found = {}
    for side, confusion in read_summary(folder).get("confusion", {}).items():
        # every network has judged every sample once: the rows of one network's counts are the labels of the side
        if (baseline := baseline_on(folder, np.asarray(confusion)[0].sum(axis=1))) is not None:
            found[side] = baseline
    return found


def baseline_on(folder: Path, counts: npt.ArrayLike) -> NaiveBaseline | None:
    """The naive baseline of a run on samples with ``counts`` (C,) per grade; None if there are no samples, or if the
    run does not know its training labels."""
    return baseline_from(read_facts(folder), counts)


def baseline_from(facts: RunFacts, counts: npt.ArrayLike) -> NaiveBaseline | None:
    """``baseline_on`` for a run whose facts are at hand, also for one without a folder."""
    training = facts.data.get("class_counts", [])
    if not len(training) == len(np.asarray(counts)) == len(facts.grades):
        return None
    return naive_baseline(training, counts) if any(training) and np.any(counts) else None


def not_beaten(*, accuracy: float, mae: float, naive: NaiveBaseline) -> tuple[bool, bool]:
    """Whether the scores do not beat the naive baseline: in accuracy, and in MAE.

    Perfect scores cannot be beaten: they pass, also where one grade for all is right.
    """
    return accuracy <= naive.accuracy and accuracy < 1.0, mae >= naive.mae and mae > 0.0


def compare_with_naive(
    side: str, who: str = "This run does", /, *, accuracy: float, mae: float, naive: NaiveBaseline
) -> str:
    """A sentence if the scores do not beat the naive baseline, else an empty string. who: its beginning."""
    worse = []
    less_accurate, further_off = not_beaten(accuracy=accuracy, mae=mae, naive=naive)
    if less_accurate:
        worse.append(
            f"accuracy {accuracy:.3f}, and {naive.accuracy:.3f} by always predicting the most frequent training label"
        )
    if further_off:
        worse.append(f"MAE {mae:.3f}, and {naive.mae:.3f} by always predicting the median training label")
    return f"{who} not beat a naive prediction on {side}: {'; '.join(worse)}." if worse else ""
