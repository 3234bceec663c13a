"""What pages say of the grades and probabilities of a run: what a grade is, how probabilities were
recalibrated, and which samples the run knew before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srjt.errors import count_of
from srjt.inference.evaluate import Evaluation, Leakage, Overlap
from srjt.ordinal import Purpose
from srjt.ordinal.calibration import Recalibration
from srjt.ordinal.decoding import FEWEST, GradeRule
from srjt.reports.aspects import how_words

DECODINGS = {
    "argmax": "the most likely grade",
    "median": "the median",
    "expected": "the rounded expected grade",
}
PURPOSES: dict[Purpose, str] = {
    "mae": "the least absolute error",
    "accuracy": "accuracy",
    "qwk": "quadratic κ",
    "macro_f1": "macro-F1",
}
ADVICE = {
    "validation": "Evaluate samples of other patients, such as the test side.",
    "calibrate_on": "Calibrate on samples of other patients.",
}


def grade_in_words(rule: GradeRule) -> str:
    """What a grade is, and what that is best for: the end of the sentence "A grade is …"."""
    if rule.method:
        text = f"what {rule.method} itself decides on"
    elif rule.decoding == "thresholds":
        cuts = ", ".join(f"{cut:.3f}" for cut in rule.thresholds)
        text = f"the expected grade, cut at {cuts}"
    else:
        text = DECODINGS[rule.decoding]
    if rule.undoes_soft_labels:
        text += " after undoing the soft labels"
    if rule.purpose is not None:
        text += f", for {PURPOSES[rule.purpose]}"
    if rule.without_fit:
        text += f" (thresholds need kept predictions for at least {FEWEST} validation samples)"
    if rule.rejected:
        text += " (by the labels of the validation side it is better than fitted thresholds)"
    return text


@how_words("grade")
def _grade(values: Mapping[str, Any]) -> str:
    return grade_in_words(GradeRule(**values))


def recalibration_in_words(recalibration: Recalibration) -> str:
    """The temperature, and what the recalibrated probabilities are probabilities of."""
    text = f"temperature {recalibration.temperature:.2f}"
    if recalibration.is_vector:
        text += " and an offset per grade"
    if recalibration.basis == "labels":
        return f"{text}; they are probabilities of the label"
    if recalibration.basis == "verified":
        return f"{text}; they are probabilities of the true grade, by verified grades"
    if recalibration.wrong_labels is None:
        return text
    low, high = recalibration.wrong_labels
    if low == high:
        share = f"a share of {low:.2f} of the labels is wrong"
        return f"{text}; they are probabilities of the true grade, if {share}"
    return f"{text}; as much as any share of wrong labels from {low:.2f} to {high:.2f} demands"


@how_words("recalibration")
def _recalibration(values: Mapping[str, Any] | None) -> str:
    return "none" if values is None else recalibration_in_words(Recalibration(**values))


def leakage_in_words(leakage: Leakage, evaluation: Evaluation) -> str:
    """A sentence about samples that the run was, or may have been, trained on."""
    if leakage.samples:
        return (
            f"The run was trained on {leakage.samples:,} of these {evaluation.images:,} samples:"
            " the scores look too good."
        )
    return (
        f"{count_of(leakage.patients, 'patient has', 'patients have')} the name of one that the run"
        f" was trained on, such as {leakage.example}: if they are the same people, what is measured"
        " on them does not hold for others."
    )


def overlap_in_words(overlap: Overlap) -> str:
    """Sentences about samples that something was fitted to."""
    patients = ""
    if overlap.patients is not None:
        patients = f" and {count_of(overlap.patients, 'patient')}, by name,"
    return (
        f"{count_of(overlap.samples, 'sample')}{patients} are among those that were used to fit"
        f" {' and '.join(overlap.fitted)}: the scores look too good. {ADVICE[overlap.to]}"
    )
