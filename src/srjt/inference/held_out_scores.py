"""A run on its own held-out sides, as ``srjt predict`` answers: recalibrated, and decoded by its rule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from srjt.inference.fitted import fit_after_training
from srjt.inference.grade_rule import describe_rule, grade_rule
from srjt.inference.predict import predict_held_out
from srjt.ordinal.metrics import confusion_matrix, summary
from srjt.training.record.baselines import baseline_from, compare_with_naive
from srjt.training.trained import Trained

__all__ = ["held_out_scores", "naive_warning", "rule_in_words"]


def held_out_scores(run: Trained) -> dict[str, dict[str, float]]:
    """Side → metrics of the run's answers; against true grades on the test side.

    Empty where the run has kept no predictions.
    """
    return {name: summary(counts) for name, counts in _confusions(run).items()}


def naive_warning(run: Trained) -> str:
    """A sentence if the run does not beat a naive prediction on its test side (else validation); else ""."""
    found = _confusions(run)
    side = "test" if "test" in found else "validation"
    if side not in found or run.facts is None:
        return ""
    naive = baseline_from(run.facts, found[side].sum(axis=1))
    if naive is None:
        return ""
    purpose = run.config.optimise
    score = summary(found[side])[purpose]
    return compare_with_naive(f"the {side} side", score=score, naive=getattr(naive, purpose), purpose=purpose)


def _confusions(run: Trained) -> dict[str, npt.NDArray[np.int64]]:
    """Side → (C, C) counts by label and answer."""
    fitted = fit_after_training(run)
    counts = {}
    for name, side in run.held_out.items():
        labels = side.true_labels if name == "test" and side.true_labels is not None else side.labels
        table = predict_held_out(run, side, fitted=fitted)
        predicted = np.array([run.grades.index(grade) for grade in table["grade"]], dtype=np.int64)
        counts[name] = confusion_matrix(
            torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=len(run.grades)
        ).numpy()
    return counts


def rule_in_words(run: Trained) -> str:
    """What a grade of ``srjt predict`` is: the end of the sentence "A grade is …"."""
    recalibration = fit_after_training(run).recalibration
    rule = grade_rule(run, recalibration=recalibration)
    return describe_rule(run, rule, recalibrated=recalibration is not None)
