"""A run on its own held-out sides, as ``srjt predict`` answers: recalibrated, and decoded by its rule."""

from __future__ import annotations

import numpy as np
import torch

from srjt.inference.fitted import fit_after_training
from srjt.inference.grade_rule import describe_rule, grade_rule
from srjt.inference.predict import predict_held_out
from srjt.ordinal.metrics import confusion_matrix, summary
from srjt.training.trained import Trained

__all__ = ["held_out_scores", "rule_in_words"]


def held_out_scores(run: Trained) -> dict[str, dict[str, float]]:
    """Side → metrics of the run's answers; against true grades on the test side.

    Empty where the run has kept no predictions.
    """
    fitted = fit_after_training(run)
    scores = {}
    for name, side in run.held_out.items():
        labels = side.true_labels if name == "test" and side.true_labels is not None else side.labels
        table = predict_held_out(run, side, fitted=fitted)
        predicted = np.array([run.grades.index(grade) for grade in table["grade"]], dtype=np.int64)
        counts = confusion_matrix(
            torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=len(run.grades)
        )
        scores[name] = summary(counts.numpy())
    return scores


def rule_in_words(run: Trained) -> str:
    """What a grade of ``srjt predict`` is: the end of the sentence "A grade is …"."""
    recalibration = fit_after_training(run).recalibration
    rule = grade_rule(run, recalibration=recalibration)
    return describe_rule(run, rule, recalibrated=recalibration is not None)
