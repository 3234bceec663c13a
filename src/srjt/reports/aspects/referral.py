"""What pages say of the decision to refer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srjt.inference.aspects.referral import Decision, Referral, refer_if
from srjt.inference.evaluate import Evaluation
from srjt.inference.predict import Predictions
from srjt.reports.aspects import (
    Facts,
    file_facts,
    key_numbers_of,
    marked_number,
    predicted_numbers,
    sections_of,
)
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


@sections_of.register
def _sections(judged: Decision, evaluation: Evaluation) -> list[Section]:
    grade = evaluation.grades.show(judged.refer_from)
    # the first screen has sensitivity and specificity
    scores = {
        name: score for name, score in judged.operating_point.items() if name.endswith("value")
    }
    rule = f"Refer {refer_if(grade, judged.threshold)}"
    counted = (
        f"{judged.referred:,} of {judged.samples:,} are referred; {judged.positives:,} should be."
    )
    return [
        Section(
            "decision",
            "Decision to refer",
            text=[f"{counted} {judged.found}"],
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
    yield "decision", f"Referral of {answers} {rule}: {', '.join(shown)}. {values['found']}"


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
