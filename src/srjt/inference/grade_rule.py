"""The rule by which a run's probabilities become grades, fitted to its validation side where that helps."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from srjt.errors import SrjtError
from srjt.methods import Method
from srjt.ordinal.decoding import Decoding
from srjt.ordinal.grade_rules import GradeRule, grade_rule_for
from srjt.ordinal.metrics import confusion_matrix, summary
from srjt.ordinal.purpose import Purpose
from srjt.training.trained import Trained

__all__ = [
    "WhichNetwork",
    "decoded_grades",
    "describe_rule",
    "grade_rule",
    "held_out_scores",
    "probabilities_of",
    "uses_own_rule",
]

WhichNetwork = Literal["ensemble", "1", "2"]


def grade_rule(
    run: Trained,
    *,
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
    network: WhichNetwork = "ensemble",
) -> GradeRule:
    """The rule for this run and purpose.

    Parameters
    ----------
    run : Trained
    optimise : {"mae", "accuracy", "qwk", "macro_f1"}, optional
        The metric that the grades are for. Default: that of the run.
    decoding : {"argmax", "median", "expected"}, optional
        The rule itself, whatever the metric.
    network : {"ensemble", "1", "2"}
        The network whose predictions for the validation side thresholds are fitted to.

    Returns
    -------
    GradeRule
    """
    if decoding is not None:
        return GradeRule(how=decoding)
    side = run.held_out.get("validation")
    known = None if side is None else torch.from_numpy(probabilities_of(side.probabilities, network))
    return grade_rule_for(
        optimise or run.config.optimise, validation=known, soft_labels=run.method.learnt_soft_labels()
    )


def probabilities_of(
    probabilities: npt.NDArray[np.float32], network: WhichNetwork
) -> npt.NDArray[np.float32]:
    """(K, N, C) → (N, C): the mean of the networks, or one of them."""
    if network == "ensemble":
        return np.ascontiguousarray(probabilities.mean(axis=0))
    if int(network) <= len(probabilities):
        return np.ascontiguousarray(probabilities[int(network) - 1])
    raise SrjtError(f"This run has {len(probabilities)} network(s): there is no network {network}.")


def decoded_grades(
    rule: GradeRule,
    probabilities: npt.NDArray[np.float32],
    grades: npt.NDArray[np.int64],
    *,
    network: WhichNetwork = "ensemble",
) -> npt.NDArray[np.int64]:
    """(K, N, C) probabilities and (K, N) grades by the method's own rule → (N,) grades.

    The most likely grade of a single network is the method's own grade, which differs for Garg.
    """
    if rule.how == "argmax" and (network != "ensemble" or len(probabilities) == 1):
        return np.asarray(grades[0 if network == "ensemble" else int(network) - 1])
    return np.asarray(rule.grades(torch.from_numpy(probabilities_of(probabilities, network))).numpy())


def uses_own_rule(run: Trained, rule: GradeRule, *, network: WhichNetwork = "ensemble") -> bool:
    """Whether grades are those of a method with a rule of its own, instead of the most likely ones."""
    single = network != "ensemble" or run.method.networks == 1
    return rule.how == "argmax" and single and type(run.method).grades is not Method.grades


def describe_rule(run: Trained, rule: GradeRule, *, network: WhichNetwork = "ensemble") -> str:
    """What a grade is: the end of the sentence "A grade is …"."""
    if uses_own_rule(run, rule, network=network):
        return str(rule).replace("the most likely grade", f"what {run.config.method} itself decides on", 1)
    return str(rule)


def held_out_scores(run: Trained) -> dict[str, dict[str, float]]:
    """Side → metrics of the networks' mean with the run's own rule; against true grades on the test side.

    Empty where the run has kept no predictions.
    """
    rule = grade_rule(run)
    scores = {}
    for name, side in run.held_out.items():
        labels = side.true_labels if name == "test" and side.true_labels is not None else side.labels
        p = torch.from_numpy(side.probabilities)
        predicted = decoded_grades(rule, side.probabilities, run.method.grades_of(p).numpy())
        counts = confusion_matrix(
            torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=len(run.grades)
        )
        scores[name] = summary(counts.numpy())
    return scores
