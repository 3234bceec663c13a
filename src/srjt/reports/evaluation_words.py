"""Sentences about an evaluation, for the terminal and for its page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from srjt.data.grade_names import display_grade
from srjt.errors import count_of
from srjt.inference.decide import refer_if
from srjt.inference.overlap import are_row_numbers, shared_labels

if TYPE_CHECKING:
    from srjt.data.manifest import Manifest
    from srjt.inference.abstain import Abstention
    from srjt.inference.decide import Decision
    from srjt.inference.evaluation import Evaluation
    from srjt.training.trained import Trained

__all__ = [
    "SCORE_NAMES",
    "abstention_words",
    "decision_words",
    "label_name",
    "no_patients",
    "refer_rule",
    "trained_on_words",
    "what_was_judged",
]

SCORE_NAMES = {
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "positive_predictive_value": "positive predictive value",
    "negative_predictive_value": "negative predictive value",
    "roc_area": "area under the ROC curve",
    "average_precision": "average precision",
    "accuracy": "share of right answers",
}


def label_name(found: Evaluation) -> str:
    """What the answer for one sample is compared with: "true grade", "given grade" or "consensus grade"."""
    return found.judged_by.removesuffix("s")


def what_was_judged(found: Evaluation, *, features: bool) -> str:
    """One sentence: how many samples, and by which labels they are judged. features: rows of them, not images."""
    seen = f", {found.views} views of each" if found.views > 1 else ""
    noun = ("row of features", "rows of features") if features else ("image", "images")
    if not found.per:
        whose = f"its {label_name(found)}" if found.samples == 1 else f"their {found.judged_by}"
        return f"{count_of(found.samples, *noun)}{seen}, judged by {whose}."
    how = {"highest": "the highest grade", "mean": "the mean", "learned": "a learned pooling"}[found.pool]
    sentence = (
        f"{count_of(found.images, *noun)}{seen}, pooled per {' and '.join(found.per)} to "
        f"{count_of(found.samples, 'answer')} by {how}, "
        f"judged by the highest of their {found.judged_by}."
    )
    if found.learned_pooling is not None:
        exponent, weight = found.learned_pooling
        sentence += f" Fitted on the validation side: exponent {exponent:.2g}, weight {weight:.2g}."
        sentence += f" {found.pooling_labels}"
    if found.judged_by != "true grades":
        sentence += " The highest of several labels is too high where labels are wrong."
    if found.unknown_units:
        has, is_judged = ("has", "is") if found.unknown_units == 1 else ("have", "are")
        sentence += (
            f" {found.unknown_units:,} {has} no {' or '.join(found.per)} and {is_judged} judged alone."
        )
    return sentence


def refer_rule(decision: Decision, names: Mapping[str, str]) -> str:
    """The rule of a decision."""
    return f"Refer {refer_if(display_grade(decision.refer_from, names), decision.threshold)}"


def decision_words(decision: Decision) -> str:
    """How many are referred and should be, and where the threshold comes from."""
    words = (
        f"{decision.referred:,} of {decision.samples:,} {'is' if decision.referred == 1 else 'are'} referred; "
        f"{decision.positives:,} should be. "
        f"{decision.found}"
    )
    if decision.areas:
        return words
    every = "Every" if decision.positives else "No"
    return f"{words} {every} sample has that grade or more: there are no curves to draw."


def abstention_words(abstention: Abstention) -> str:
    """How many of the wrong answers are left to a person, and where the cut comes from."""
    if math.isnan(abstention.errors_left):
        return abstention.found
    share = f"{abstention.errors_left:.0%} of all wrong answers are among those left to a person."
    return f"{share} {abstention.found}"


def no_patients(what: str) -> str:
    """What is wrong with intervals of samples without patients. what: "images", "rows of features"."""
    return f"No patient ids: the intervals resample {what} and are probably too narrow."


def trained_on_words(run: Trained, data: Manifest) -> str:
    """A sentence if samples are training samples, or have their ids; else ""."""
    if seen := len(run.trained_on(data)):
        return f"The run was trained on {seen:,} of these {len(data):,} samples: the numbers below look too good."
    shared = shared_labels(run.training_labels, data)
    if not shared:
        return ""
    names = ("id", "ids")
    if are_row_numbers(data):
        same = all(kept == given for kept, given in shared)
        names = ("row number and grade", f"row numbers and {'' if same else 'many of the '}grades")
    have = f"has the {names[0]} of a sample" if len(shared) == 1 else f"have the {names[1]} of samples"
    return (
        f"{len(shared):,} of them {have} that this run was trained on: if they are the same samples, the "
        "numbers below look too good."
    )
