"""What pages say of the decision to refer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from srjt.errors import count_of
from srjt.inference.aspects.referral import Decision, Referral, ThresholdOrigin
from srjt.inference.evaluate import Evaluation
from srjt.inference.predict import Predictions
from srjt.reports.aspects import (
    Facts,
    file_facts,
    how_words,
    key_numbers_of,
    marked_number,
    predicted_numbers,
    sections_of,
)
from srjt.reports.aspects.basics import labels_in_words
from srjt.reports.figures.canvas import GREY, INK, CaptionedFigure
from srjt.reports.figures.results import CURVE, THIN, square_panel
from srjt.reports.page import KeyNumber, Section
from srjt.reports.sections import interval_text, scores_with_intervals
from srjt.reports.table import between

BINARY = {
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "roc_area": "area under the ROC curve",
}


def refer_if(grade: str, threshold: float | None) -> str:
    """A rule in words. grade: the mildest that is referred; threshold: None if the predicted grade
    decides."""
    if threshold is None:
        return f"if predicted grade ≥ {grade}"
    return f"if p(grade ≥ {grade}) ≥ {threshold:.3g}"


def threshold_in_words(origin: ThresholdOrigin, *, missed: bool = False) -> str:
    """Where a threshold comes from. missed: whether the sensitivity is lower on these samples."""
    if origin.kind == "default":
        return "The threshold is the default."
    if origin.kind == "given":
        return "The threshold was given."
    if origin.kind == "grade":
        return "The predicted grade decides."
    answers = count_of(origin.answers, "answer" if origin.pooled else "sample")
    to_refer = f"{origin.positives:,} to refer"
    if origin.patients != origin.positives:
        to_refer += f" of {count_of(origin.patients, 'patient')}"
    new = "patients" if origin.by_patient else "samples"
    text = (
        f"The threshold was chosen on the validation side ({answers}, {to_refer}) for a sensitivity"
        f" of at least {origin.sensitivity:g} on new {new}."
    )
    if not origin.reached:
        most = origin.patients / (origin.patients + 1)
        text += (
            f" So few {new} to refer can guarantee a sensitivity of at most {most:.2g}: the lowest"
            " of their scores is used."
        )
    if origin.views > 1:
        text += f" It was chosen on one view of each image and is applied to {origin.views}."
    if origin.labels is not None:
        text += f" {labels_in_words(origin.labels)}"
    if missed:
        text += " The sensitivity is lower here."
    return text


@how_words("refer")
def _rule(values: Mapping[str, Any]) -> str:
    origin = TypeAdapter(ThresholdOrigin).validate_python(values["origin"])
    return f"{refer_if(values['grade'], values['threshold'])}. {threshold_in_words(origin)}"


@sections_of.register
def _sections(judged: Decision, evaluation: Evaluation) -> list[Section]:
    grade = evaluation.grades.show(judged.refer_from)
    # the first screen has sensitivity and specificity
    scores = {
        name: score for name, score in judged.operating_point.items() if name.endswith("value")
    }
    rule = f"Refer {refer_if(grade, judged.threshold)}"
    counted = (
        f"{judged.referred:,} of {judged.samples:,} are referred, and {judged.positives:,} should"
        " be."
    )
    origin = threshold_in_words(judged.origin, missed=judged.sensitivity_missed)
    return [
        Section(
            "decision",
            "Decision to refer",
            text=[f"{counted} {origin}"],
            tables=[scores_with_intervals({**scores, **judged.areas}, rule)],
            figures=decision_figures(judged, grade=grade),
            brief=True,
        )
    ]


@key_numbers_of.register
def _key_numbers(judged: Decision, evaluation: Evaluation) -> list[KeyNumber]:
    refer = f"refer from {evaluation.grades.show(judged.refer_from)}"
    return [
        KeyNumber.of(name, judged.operating_point[name], compared=refer)
        for name in ("sensitivity", "specificity")
    ]


@predicted_numbers.register
def _predicted(aspect: Referral, predictions: Predictions) -> list[KeyNumber]:
    return marked_number(predictions, "refer", "refer")


@file_facts("decision")
def _facts(values: Mapping[str, Any], answers: str) -> Facts:
    point = {**values["operating_point"], **values["areas"]}
    shown = [
        f"{words} {interval_text(point[name])}" for name, words in BINARY.items() if name in point
    ]
    rule = refer_if(values["refer_from"], values["threshold"])
    origin = values.get("found", "")  # a sentence, in files of srjt 0.2
    if "origin" in values:
        typed = TypeAdapter(ThresholdOrigin).validate_python(values["origin"])
        origin = threshold_in_words(typed, missed=values["sensitivity_missed"])
    yield "decision", f"Referral of {answers} {rule}: {', '.join(shown)}. {origin}"


# The curves of a decision.


def decision_figures(decision: Decision, *, grade: str) -> list[CaptionedFigure]:
    """The ROC curve, where it exists, and the decision curve.

    grade: how people read the grade from which samples are referred.
    """
    referral = f"the referral from grade {grade} on"
    figures = []
    if decision.roc is not None:
        figures.append(_roc(decision, referral))
    return [*figures, _net_benefit(decision, referral)]


def _roc(decision: Decision, referral: str) -> CaptionedFigure:
    assert decision.roc is not None
    curve = decision.roc
    area = decision.areas["roc_area"]
    point = decision.operating_point
    return square_panel(
        [([0, 1], [0, 1], THIN), (curve.false_positive_rate, curve.sensitivity, CURVE)],
        name="roc",
        xlabel="1 − specificity",
        title="Sensitivity",
        point=(1 - point["specificity"].value, point["sensitivity"].value),
        caption=(
            f"ROC curve of {referral}; area {area.value:.3f} ({between(*area[1:])}). The dot is the"
            " operating point, the line that of a random decision."
        ),
        alt=f"ROC curve, area {area.value:.3f}.",
    )


def _net_benefit(decision: Decision, referral: str) -> CaptionedFigure:
    """Near a threshold of 1 a single needless referral costs more than all others together: not all
    is shown."""
    curve = decision.net_benefit
    threshold = decision.threshold
    highest = max(decision.positives / decision.samples, 0.02)
    bottom = -highest / 2
    point = None
    if threshold is not None and 0 < threshold < 1:
        at = float(np.interp(threshold, curve.threshold, curve.model))
        point = (threshold, at) if at >= bottom else None
    everyone = {
        "color": GREY,
        "linewidth": 1.2,
        "linestyle": (0, (5, 2)),
        "label": "refer everyone",
    }
    return square_panel(
        [
            (curve.threshold, curve.model, {**CURVE, "label": "model"}),
            (curve.threshold, curve.refer_all, everyone),
            ([0, 1], [0, 0], {"color": INK, "linewidth": 0.8, "label": "refer nobody"}),
        ],
        name="decision-curve",
        xlabel="threshold",
        title="Net benefit",
        point=point,
        ylim=(bottom, 1.08 * highest),
        legend=True,
        caption=(
            f"Decision curve of {referral}: net benefit per sample if a missed one weighs as much"
            " as (1 − threshold)/threshold needless referrals. Values below"
            f" −{-bottom:.2f} are not shown."
        ),
        alt=(
            "Net benefit of the model, of referring everyone and of referring nobody, by threshold."
        ),
    )
