"""Naive baselines of a run: the scores of one grade for all samples, on the same sides as the run's own scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt.ordinal.baselines import NaiveBaseline, naive_baseline
from srjt.ordinal.metrics import METRICS
from srjt.ordinal.purpose import Purpose
from srjt.training.record.run_folder import RunFacts, read_facts, read_summary

__all__ = ["NAIVE", "baseline_from", "baseline_on", "compare_with_naive", "not_beaten", "run_baselines"]

NAIVE = "naive: always the most frequent training label; for MAE always their median"


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


def not_beaten(score: float, naive: float, *, purpose: Purpose) -> bool:
    """Whether a score in the metric that the grades are for does not beat that of one grade for all samples.

    Only this metric is judged: grades with the least absolute error may be less accurate than the most frequent one.
    A perfect score cannot be beaten, so it passes, also where one grade for all is right.
    """
    lower = METRICS[purpose].lower_is_better
    gain = naive - score if lower else score - naive
    return gain <= 1e-9 and score != (0.0 if lower else 1.0)  # equal sums differ in their last digits


def compare_with_naive(
    side: str, who: str = "This run does", /, *, score: float, naive: float, purpose: Purpose
) -> str:
    """A sentence if the score does not beat the naive one, else an empty string. who: its beginning."""
    if not not_beaten(score, naive, purpose=purpose):
        return ""
    name, always = ("MAE", "median") if purpose == "mae" else (METRICS[purpose].long_name, "most frequent")
    return (
        f"{who} not beat a naive prediction on {side}: {name} {score:.3f}, and {naive:.3f} by always predicting the "
        f"{always} training label."
    )
