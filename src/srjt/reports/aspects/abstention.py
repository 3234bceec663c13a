"""What pages say of answers that are left to a person."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from srjt.inference.aspects.abstention import Abstaining, Abstention
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
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.results import CURVE, square_panel
from srjt.reports.flags import as_typed
from srjt.reports.page import KeyNumber, Section
from srjt.reports.sections import scores_with_intervals


@how_words("unsure")
def _rule(values: Mapping[str, Any]) -> str:
    measure = "the probability of the grade"
    if values["about"] == "referral":
        measure = "the distance from the threshold, from 0 to 1 on its side,"
    share = f"at most {values['share']:.3g} of the validation side"
    return f"if {measure} is below {values['cut']:.3g}, as it is for {share}"


@sections_of.register
def _sections(judged: Abstention, evaluation: Evaluation) -> list[Section]:
    if judged.wanted is None:
        return []
    left = f"{judged.share:.1%} of the answers"
    if math.isfinite(judged.errors_left):
        left += f" and {judged.errors_left:.0%} of the wrong ones"
    origin = "The cut was chosen on the validation side."
    if judged.problem:
        origin = f"The cut was chosen on these samples. {as_typed(judged.problem)}"
    # the first screen has the accuracy
    kept = {name: score for name, score in judged.kept.items() if name != "accuracy"}
    tables = []
    if kept:
        title = f"Without the {judged.share:.1%} least confident answers"
        tables = [scores_with_intervals(kept, title)]
    return [
        Section(
            "abstention",
            "Abstention",
            text=[f"{left} are left to a person. {origin}"],
            tables=tables,
            figures=[risk_coverage_figure(judged)],
            brief=True,
        )
    ]


@key_numbers_of.register
def _key_numbers(judged: Abstention, evaluation: Evaluation) -> list[KeyNumber]:
    if "accuracy" not in judged.kept:
        return []
    left = f"{judged.share:.1%} left to a person"
    return [KeyNumber.of("right answers of the rest", judged.kept["accuracy"], compared=left)]


@predicted_numbers.register
def _predicted(aspect: Abstaining, predictions: Predictions) -> list[KeyNumber]:
    return marked_number(predictions, "unsure", "unsure: a person decides")


@file_facts("abstention", items={"stard-ai": ["19"]})
def _facts(values: Mapping[str, Any], answers: str) -> Facts:
    if values["wanted"] is not None:
        left = f"{values['share']:.0%} of {answers}, the least sure, were left to a person."
        yield "abstention", left


def risk_coverage_figure(judged: Abstention) -> CaptionedFigure:
    """The share of wrong answers among the most confident samples."""
    answers = "referrals" if judged.about == "referral" else "grades"
    coverage, risk = judged.curve
    kept = 1 - judged.share
    return square_panel(
        [(coverage, risk, CURVE)],
        name="risk-coverage",
        xlabel="share of samples with an answer",
        title="Share of wrong answers",
        point=(kept, float(np.interp(kept, coverage, risk))),
        ylim=(0, max(1.1 * float(risk.max()), 0.01)),
        caption=(
            f"Share of wrong {answers} if the least confident answers are left to a person. The dot"
            f" leaves {judged.share:.1%} to a person."
        ),
        alt=f"Risk–coverage curve; without abstention {risk[-1]:.3f} of the {answers} are wrong.",
    )
