"""What pages say of ranges of grades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from srjt.errors import count_of
from srjt.inference.evaluate import Evaluation
from srjt.inference.predict import Predictions
from srjt.inference.range_evidence import Assumption
from srjt.inference.ranges import RangeEvaluation, RangePromise
from srjt.reports.aspects import (
    Facts,
    add_to_grades,
    file_facts,
    how_words,
    key_numbers_of,
    sections_of,
    warnings_of,
)
from srjt.reports.page import KeyNumber, Section
from srjt.reports.sections import interval_text, named_grades
from srjt.reports.table import between

FEW = 15  # patients, below which intervals about ranges hold less often than they promise
REREAD = 200  # images whose verified grades make ranges about as narrow as right labels do


def promise_in_words(promise: RangePromise, *, shown: Sequence[str] = ()) -> str:
    """What ranges promise, to whom, what it rests on, and what would make them narrower. shown: the
    names of all grades, if they are known."""
    basis = count_of(promise.samples, "sample")
    units = promise.patients if promise.by_patient else promise.samples
    if promise.per and promise.answers != units:
        basis = f"{count_of(promise.answers, 'answer')} of {basis}"
    if promise.by_patient:
        basis = f"{count_of(promise.patients, 'patient')} ({basis})"
    conditions = "; elsewhere ".join(map(_condition, promise.assumptions))
    text = (
        f"Ranges hold for at least {promise.coverage:.0%} of"
        f" {_promised_for(promise)}{_for_each(promise)}, {conditions}. They are calibrated on"
        f" {basis}"
    )
    # verified grades need no assumption
    if promise.basis in ("corrected", "conservative") and promise.verified_help:
        images = f"{REREAD} random images"
        if promise.per:
            images = "all images of random patients"
        elif promise.samples <= REREAD:
            images = f"all {promise.samples} images"
        text += f"; verified grades of {images} would make them narrower"
    if promise.trivial:
        return f"{text}. Only the range of all grades keeps this promise here."
    if promise.trivial_values:
        values = ", ".join(promise.trivial_values)
        return (
            f"{text}. There are too few samples for {promise.coverage_by} {values}, so the range is"
            " all grades there."
        )
    if promise.trivial_grades:
        which = [f"at position {place}" for place in promise.trivial_grades]
        if shown:
            which = [shown[place] for place in promise.trivial_grades]
        return (
            f"{text}. There are too few samples of grade {' or '.join(which)}, so every range"
            f" contains {'it' if len(which) == 1 else 'them'}."
        )
    return f"{text}."


def _promised_for(promise: RangePromise) -> str:
    """ "new images", "random images of new patients", "new patients, each by …"."""
    units = [f"{name}s" for name in promise.per if name != "patient"]
    what = " and ".join(units) if promise.per else "images"
    if not what:
        what = "new patients"
    elif promise.by_patient:
        what = f"random {what} of new patients"
    else:
        what = f"new {what}"
    return f"{what}, each by the highest of its images" if promise.per else what


def _for_each(promise: RangePromise) -> str:
    """For whom the promise holds; "" for all together."""
    if promise.coverage_by is None:
        return ""
    if promise.coverage_by == "grade":
        return ", for each true grade"
    return f", for each value of {promise.coverage_by}"


def _condition(assumption: Assumption) -> str:
    """The end of a sentence: "if …"."""
    near = "whichever near grade is the true one"
    if assumption.kind == "near" and assumption.labels:
        return f"{near} ({assumption.labels:,} labels are too few to say which are confused)"
    if assumption.kind == "near":
        return f"{near} (labels of one patient contradict the estimated noise)"
    if assumption.kind == "right":
        return "if the calibration labels are right"
    if assumption.kind == "random":
        return "if the verified ones were drawn at random"
    assert assumption.rates is not None
    low, high = assumption.rates
    rate = f"{high:.0%}" if low == high else f"{low:.0%} to {high:.0%}"
    which = {
        "unclear": "unclear images more often than clear ones, and the networks do not repeat their"
        " errors",
        "units": "one by one or together, and the networks do not repeat their errors",
        "class-conditional": "by their true grade alone",
        "class-conditional units": "by the image's true grade alone",
    }
    shares = "if" if low == high else "on average if"
    return f"{shares} {rate} of the calibration labels are wrong, {which[assumption.kind]}"


def _promise_of(values: Mapping[str, Any]) -> RangePromise:
    return TypeAdapter(RangePromise).validate_python(values)


def predicted_promise(predictions: Predictions, *, shown: Sequence[str] = ()) -> str:
    """What the ranges of predictions promise; "" if they have none."""
    values = predictions.attrs["how"].get("range")
    if values is None:
        return ""
    return promise_in_words(_promise_of(values), shown=shown)


@how_words("range")
def _rule(values: Mapping[str, Any]) -> str:
    promise = _promise_of(values)
    share = f"a probability of at least {promise.coverage:g}{_for_each(promise)}"
    if promise.basis == "corrected":
        # images that mislead about the true grade given the label are what the correction cannot
        # see
        share += "; less often where readers and networks err alike"
    return f"contains the true grade with {share}"


@sections_of.register
def _sections(judged: RangeEvaluation, evaluation: Evaluation) -> list[Section]:
    text = promise_in_words(judged.promise, shown=evaluation.grades.shown)
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
    if not set(places) <= set(evaluation.grades_with_ranges):
        return [f"{uncovered}. The ranges hold for all grades together."]
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
