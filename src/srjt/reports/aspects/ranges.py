"""What pages say of ranges of grades."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from srjt.inference.evaluate import Evaluation
from srjt.inference.ranges import RangeEvaluation
from srjt.reports.aspects import (
    Facts,
    add_to_grades,
    file_facts,
    key_numbers_of,
    sections_of,
    warnings_of,
)
from srjt.reports.page import KeyNumber, Section
from srjt.reports.sections import interval_text, named_grades
from srjt.reports.table import between

FEW = 15  # patients, below which intervals about ranges hold less often than they promise


@sections_of.register
def _sections(judged: RangeEvaluation, evaluation: Evaluation) -> list[Section]:
    text = judged.promise
    if judged.coverage.high < judged.promised:
        text += f" Here fewer do: {between(*judged.coverage[1:], '.0%')}."
    if evaluation.patients is not None and 0 < evaluation.patients < FEW:
        text += " With so few patients, the intervals of coverage and width are too short."
    return [Section("ranges", "Ranges of grades", text=[text], brief=True)]


@key_numbers_of.register
def _key_numbers(judged: RangeEvaluation, evaluation: Evaluation) -> list[KeyNumber]:
    promised = f"promised: {judged.promised:g}"
    grades = f"of {len(evaluation.grades)}"
    return [
        KeyNumber.of("coverage of the ranges", judged.coverage, compared=promised),
        KeyNumber.of("grades in a range", judged.width, compared=grades),
    ]


@warnings_of.register
def _warnings(judged: RangeEvaluation, evaluation: Evaluation) -> list[str]:
    """Grades that samples have and that the range of none of them contains."""
    places = [
        place
        for place, (samples, coverage) in enumerate(judged.grades)
        if samples and coverage.value == 0
    ]
    if not places:
        return []
    uncovered = f"{named_grades(evaluation.grades, places)} in none of the ranges"
    if evaluation.coverage_by == "grade":
        return [f"{uncovered}."]
    return [
        f"{uncovered}. The ranges hold for all grades together; with srjt predict --coverage-by"
        " grade they hold for each grade."
    ]


@add_to_grades.register
def _by_grade(judged: RangeEvaluation, evaluation: Evaluation, table: pd.DataFrame) -> str:
    coverage = [interval for _, interval in judged.grades]
    table["coverage"] = [interval.value for interval in coverage]
    table["95 %, coverage"] = [between(*interval[1:]) for interval in coverage]
    caption = "Coverage: how often the range contains the grade"
    return caption + ("; all patients count equally." if evaluation.by_patient else ".")


@file_facts("ranges")
def _facts(values: Mapping[str, Any], answers: str) -> Facts:
    covered = interval_text(values["coverage"], ".0%")
    width = interval_text(values["width"], ".1f")
    promise = f"Ranges that promise {values['promised']:.0%}, of {answers},"
    yield "ranges", f"{promise} hold the grade for {covered}; grades in one: {width}."
