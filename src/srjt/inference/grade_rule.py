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
from srjt.ordinal.purpose import Purpose
from srjt.ordinal.recalibration import Recalibration
from srjt.training.trained import Trained

__all__ = [
    "WhichNetwork",
    "decoded_grades",
    "describe_rule",
    "grade_rule",
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
    recalibration: Recalibration | None = None,
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
    recalibration : Recalibration, optional
        How the probabilities are recalibrated before the rule is applied. Soft labels need no undoing then.

    Returns
    -------
    GradeRule
    """
    if decoding is not None:
        return GradeRule(how=decoding)
    side = run.held_out.get("validation")
    known = None if side is None else probabilities_of(side.probabilities, network)
    if known is not None and recalibration is not None:
        known = recalibration(known).astype(np.float32)
    return grade_rule_for(
        optimise or run.config.optimise,
        validation=None if known is None else torch.from_numpy(known),
        labels=None if side is None else torch.from_numpy(side.labels),
        soft_labels=run.method.learnt_soft_labels() if recalibration is None else None,
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
    recalibration: Recalibration | None = None,
) -> npt.NDArray[np.int64]:
    """(K, N, C) probabilities and (K, N) grades by the method's own rule → (N,) grades.

    The most likely grade of a single network is the method's own grade, which differs for Garg and CORN, unless its
    probabilities are recalibrated.
    """
    single = network != "ensemble" or len(probabilities) == 1
    if rule.how == "argmax" and single and recalibration is None:
        return np.asarray(grades[0 if network == "ensemble" else int(network) - 1])
    chosen = probabilities_of(probabilities, network)
    if recalibration is not None:
        chosen = recalibration(chosen).astype(np.float32)
    return np.asarray(rule.grades(torch.from_numpy(chosen)).numpy())


def uses_own_rule(
    run: Trained, rule: GradeRule, *, network: WhichNetwork = "ensemble", recalibrated: bool = False
) -> bool:
    """Whether grades are those of a method with a rule of its own, instead of the most likely ones."""
    single = network != "ensemble" or run.method.networks == 1
    own = type(run.method).grades is not Method.grades
    return rule.how == "argmax" and single and own and not recalibrated


def describe_rule(
    run: Trained, rule: GradeRule, *, network: WhichNetwork = "ensemble", recalibrated: bool = False
) -> str:
    """What a grade is: the end of the sentence "A grade is …"."""
    if uses_own_rule(run, rule, network=network, recalibrated=recalibrated):
        return str(rule).replace("the most likely grade", f"what {run.config.method} itself decides on", 1)
    return str(rule)
