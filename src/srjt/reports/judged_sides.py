"""A run judged on its own held-out sides, as ``srjt predict`` would answer: for its page and its model card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from srjt.inference.fitted import Fitted, fit_after_training
from srjt.inference.predict import predict_held_out
from srjt.ordinal.baselines import NaiveBaseline
from srjt.ordinal.decoding import Decoding
from srjt.ordinal.intervals import Interval, bootstrap_metrics
from srjt.ordinal.metrics import confusion_matrix
from srjt.ordinal.purpose import Purpose
from srjt.training.record.baselines import baseline_from, compare_with_naive
from srjt.training.record.held_out import HeldOut
from srjt.training.trained import Trained, load_run

__all__ = ["GradeScores", "JudgedSide", "judge_side", "judge_sides", "judged_run", "scores_by_grade"]

RESAMPLES = 1000
Ints = npt.NDArray[np.int64]
GradeScores = tuple[int, float, float, float]


@dataclass(frozen=True, kw_only=True)
class JudgedSide:
    """The answers of a run for the N samples of one side, and what they are worth."""

    name: str  # "validation" or "test"
    samples: HeldOut
    labels: Ints  # (N,) what the answers are judged by
    true: bool  # whether these are the true grades
    predicted: Ints  # (N,)
    severity: npt.NDArray[np.float64]  # (N,) expected grades
    grade_rule: str  # what a grade is: the end of a sentence
    intervals: dict[str, Interval]
    confusion: Ints  # (C, C), each sample once
    naive: NaiveBaseline | None
    purpose: Purpose  # the metric that the grades are for

    @property
    def naive_warning(self) -> str:
        """A sentence if one grade for all samples scores as well as these answers; else ""."""
        if self.naive is None:
            return ""
        return compare_with_naive(
            f"the {self.name} side",
            score=self.intervals[self.purpose].value,
            naive=getattr(self.naive, self.purpose),
            purpose=self.purpose,
        )

    def by_grade(self) -> list[GradeScores]:
        return scores_by_grade(self.confusion)


def scores_by_grade(counts: Ints) -> list[GradeScores]:
    """(C, C) → per grade: samples, share predicted right, share of its predictions that are right, MAE; nan if none."""
    found = []
    distance = np.abs(np.arange(len(counts))[:, None] - np.arange(len(counts)))
    for grade in range(len(counts)):
        samples, answers = counts[grade].sum(), counts[:, grade].sum()
        right = counts[grade, grade]
        found.append((
            int(samples),
            right / samples if samples else np.nan,
            right / answers if answers else np.nan,
            (counts[grade] * distance[grade]).sum() / samples if samples else np.nan,
        ))  # fmt: skip
    return found


def judged_run(folder: Path) -> tuple[Trained, dict[str, JudgedSide]] | None:
    """A finished run with each of its held-out sides; None if its weights have been deleted."""
    if not (folder / "weights.safetensors").exists():
        return None
    run = load_run(folder, device="cpu")
    return run, judge_sides(run)


def judge_sides(
    run: Trained,
    *,
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
    recalibrate: bool = True,
) -> dict[str, JudgedSide]:
    """Each held-out side of a run, answered as ``srjt predict`` answers with these options."""
    fitted = fit_after_training(run, recalibrate=recalibrate)
    return {
        name: judge_side(run, name, fitted=fitted, optimise=optimise, decoding=decoding)
        for name in run.held_out
    }


def judge_side(
    run: Trained,
    name: str,
    *,
    fitted: Fitted,
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
) -> JudgedSide:
    """The test side is judged by its true grades where they are known, the validation side by its labels as given."""
    side = run.held_out[name]
    true = name == "test" and side.true_labels is not None
    labels = side.true_labels if name == "test" and side.true_labels is not None else side.labels
    table = predict_held_out(run, side, optimise=optimise, decoding=decoding, fitted=fitted)
    place = {grade: c for c, grade in enumerate(run.grades)}
    predicted = np.array([place[grade] for grade in table["grade"]], dtype=np.int64)
    classes = len(run.grades)
    counts = confusion_matrix(
        torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=classes
    ).numpy()
    return JudgedSide(
        name=name,
        samples=side,
        labels=labels,
        true=true,
        predicted=predicted,
        severity=table["expected_grade"].to_numpy(np.float64),
        grade_rule=table.attrs["grade_rule"],
        intervals=bootstrap_metrics(
            labels, predicted, num_classes=classes, groups=side.groups, resamples=RESAMPLES
        ),
        confusion=counts,
        naive=None if run.facts is None else baseline_from(run.facts, counts.sum(axis=1)),
        purpose=optimise or run.config.optimise,
    )
