"""Naive baselines of a run: the scores of one grade for all samples, on the same sides as the
run's own scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt.ordinal import Purpose
from srjt.ordinal.baseline import Gain
from srjt.ordinal.metrics import NaiveBaseline, naive_baseline
from srjt.training.folder import RunFacts, read_facts, read_summary

NAIVE = "one grade for all: always the most frequent training label; for MAE always their median"


def run_baselines(folder: Path) -> dict[str, NaiveBaseline]:
    """Side → its naive baseline, for the sides of a finished run."""
    facts = read_facts(folder)
    confusions = read_summary(folder)["confusion"]
    # every network has judged every sample once: the rows of one network's counts are the labels of
    # the side
    counts = {side: np.asarray(confusion)[0].sum(axis=1) for side, confusion in confusions.items()}
    baselines = {side: baseline_from(facts, labels) for side, labels in counts.items()}
    return {side: baseline for side, baseline in baselines.items() if baseline is not None}


def baseline_from(facts: RunFacts, counts: npt.ArrayLike) -> NaiveBaseline | None:
    """The naive baseline of a run on samples with ``counts`` (C,) per grade; None if there are no
    samples, or if the run does not know its training labels."""
    training = facts.data.class_counts
    if not len(training) == len(np.asarray(counts)) == len(facts.grades):
        return None
    if any(training) and np.any(counts):
        return naive_baseline(training, counts)
    return None


def not_beaten(score: float, naive: float, *, purpose: Purpose) -> bool:
    """Whether a score in the metric that the grades are for does not beat that of one grade for all
    samples.

    Only this metric is judged: grades with the least absolute error may be less accurate than the
    most frequent one. A perfect score cannot be beaten, so it passes, also where one grade for all
    is right.
    """
    return Gain(metric=purpose, score=score, naive=naive).verdict == "not better"
