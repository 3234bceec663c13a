"""The pages about samples without labels: predictions, where the networks look, and how many
patients a study needs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.manifest import Manifest
from srjt.data.thumbnails import data_uri, thumbnail
from srjt.errors import count_of
from srjt.inference.aspects import registered_aspects
from srjt.inference.calibrated_run import calibrate_grades, grades_with_ranges
from srjt.inference.evaluate import Evaluation, best_side
from srjt.inference.explain import Explanation, overlay, resized_square
from srjt.inference.options import Answering
from srjt.inference.predict import Predictions
from srjt.inference.sample_size import SamplePlan
from srjt.ordinal.baseline import Verdict as GainVerdict
from srjt.ordinal.metrics import METRICS
from srjt.reports.aspects import aspect_predicted_numbers, counted_yes, how_in_words
from srjt.reports.aspects.ranges import predicted_promise
from srjt.reports.page import KeyNumber, Page, Section, Tile, page_of
from srjt.reports.pages.evaluation import (
    EvaluationFacts,
    answered,
    evaluation_facts,
    never_predicted,
    what_helps,
)
from srjt.reports.sections import (
    named_grades,
    pictures_of,
    run_name,
    run_section,
    shared_patients,
    small,
)
from srjt.reports.table import Table, between, data_table

LEAST_CERTAIN = 12
ALL = 500  # answers in the table of the page
PICTURES = 100  # of them with a picture: each image is read
NAMED = 50  # samples that were left out


@dataclass(frozen=True, kw_only=True)
class Missed:
    """Grades that are never predicted, neither here nor on the held-out side, where they occur."""

    missed: str = ""
    missed_samples: int = 0
    it: str = ""  # "it", "them": the missed grades
    side: str = ""
    side_samples: int = 0
    helps: str = ""


@dataclass(frozen=True, kw_only=True)
class PredictionFacts:
    """What the page knows."""

    answers: int
    per: tuple[str, ...]
    counts: pd.Series[int]  # of each grade
    counted: str  # "120 images: most often grade 2"
    grade_rule: str
    ranges: str  # what they promise
    error: str  # what to expect of an answer
    verdict: GainVerdict
    side: str  # of the run, by which the verdict is
    metric: str
    missed: Missed
    outside: str  # grades of training labels that no range contains
    each_grade: bool  # whether ranges that hold for each grade would tell something of them
    samples: int  # images or rows; answers may be of patients
    seen: int | None  # samples of the training side; None: not known


def verdict_of(f: PredictionFacts) -> tuple[str, str]:
    """Title and lead of the page of predictions."""
    if f.verdict == "not better":
        return f"No better than one grade for all, by {f.metric}", f"{f.counted}. {f.error}"
    if f.verdict == "unclear":
        title = f"Not clearly better than one grade for all, by {f.metric} on the {f.side} side"
        return title, f"{f.counted}. {f.error}"
    return f.counted, f.error


def warnings_of(f: PredictionFacts) -> Iterator[str]:
    """What makes these answers look better than they are, and grades that they leave out."""
    if f.seen:
        yield (
            f"The run was trained on {f.seen:,} of these {f.samples:,} samples (column"
            " in_training): its answers for new ones are usually worse."
        )
    if f.missed.missed:
        never = f.missed
        yield (
            f"{never.missed} never predicted, neither here nor on the {never.side} side, where"
            f" {never.missed_samples:,} of {never.side_samples:,}"
            f" {'has' if never.missed_samples == 1 else 'have'} {never.it}. What helps:"
            f" {never.helps}."
        )
    if f.outside:
        advice = "."
        if f.each_grade:
            advice = "; with srjt predict --coverage-by grade they hold for each grade."
        yield f"{f.outside} in none of the ranges. The ranges hold for all grades together{advice}"


def remarks_of(f: PredictionFacts) -> Iterator[str]:
    """How the answers came about. The first remark is all that a terminal shows."""
    if f.ranges:
        yield f.ranges
    yield f"A predicted grade is {f.grade_rule}."
    yield "No label of these samples is used: nothing here says how good the answers are."


def prediction_facts(
    predictions: Predictions, expected: Evaluation | None = None
) -> PredictionFacts:
    """What the page knows. expected: the answers for the run's own held-out side."""
    run = predictions.run
    per = tuple(predictions.attrs["per"])
    images = len(predictions)
    if per:
        images = int(predictions["images"].sum())
    counts = predictions["grade"].value_counts().reindex(list(run.grades), fill_value=0)
    verdict: GainVerdict = "unknown"
    side = ""
    metric = ""
    if expected is not None:
        side = expected.side
        judged = evaluation_facts(expected)
        verdict = judged.verdict
        metric = judged.metric
    answers = answered(len(predictions), images, per, features=len(run.in_shape) == 1)
    most = " or ".join(map(run.grades.show, counts.index[counts == counts.max()].astype(str)))
    often = "most often " if counts.max() < len(predictions) else ""
    counted = f"{answers}: {often}grade {most}"
    referred = counted_yes(predictions, "refer")
    if referred is not None:
        counted = f"Refer {referred:,} of {answers}"
    outside = _outside_ranges(predictions)
    return PredictionFacts(
        answers=len(predictions),
        per=per,
        counts=counts,
        counted=counted,
        grade_rule=how_in_words(predictions)["grade"],
        ranges=predicted_promise(predictions, shown=run.grades.shown),
        error=_expected_error(predictions, expected),
        verdict=verdict,
        side=side,
        metric=metric,
        outside=named_grades(run.grades, outside),
        each_grade=bool(outside) and _have_ranges(predictions, outside),
        samples=images,
        seen=predictions.attrs["seen_in_training"],
        missed=_never_predicted(
            counts, expected, ranges=predictions.answering.coverage is not None
        ),
    )


def _expected_error(predictions: Predictions, expected: Evaluation | None) -> str:
    """How far off answers are likely to be, by those for the held-out side."""
    run = predictions.run
    per = predictions.attrs["per"]
    if expected is not None:
        judged = evaluation_facts(expected)
        value, low, high = expected.intervals["mae"]
        side = f"{judged.samples}, by {expected.judged_by}"
        if predictions.answering.views > 1:
            side += ", of one view of each"
        if predictions.answering.calibrate_on is not None:
            side += ", calibrated on the validation side"
        beside = _beside_one_grade(judged)
        if doubt := shared_patients(run.facts.data):
            beside += f" {doubt}"
        return (
            f"Expect an answer to be {value:.2f} grades off on average"
            f" ({between(low, high, '.2f')}), as on the run's {side}.{beside}"
        )
    if not (run.held_out and per):
        return "How good the answers are is not known: the run held no samples out."
    lacking = []
    for name in per:
        if any(name not in side.table for side in run.held_out.values()):
            lacking.append(name)
    return (
        f"How good the answers are is not known: the run keeps no {' and '.join(lacking)} of what"
        " it held out."
    )


def _beside_one_grade(judged: EvaluationFacts) -> str:
    """The same of one grade for all, as a further sentence; "" if it is not known."""
    if judged.verdict == "unknown":
        return ""
    if judged.evaluation.purpose == "mae":
        return f" One grade for all would be {judged.naive:.2f} off."
    return f" By {judged.metric}: {judged.score:.3f}, and {judged.naive:.3f} for one grade for all."


def _never_predicted(
    counts: pd.Series[int], expected: Evaluation | None, *, ranges: bool
) -> Missed:
    if expected is None:
        return Missed()
    places = [place for place in never_predicted(expected) if counts.iloc[place] == 0]
    return Missed(
        missed=named_grades(expected.grades, places),
        missed_samples=int(np.asarray(expected.confusion).sum(axis=1)[places].sum()),
        it="it" if len(places) == 1 else "them",
        side=f"run's {expected.side}",
        side_samples=expected.samples,
        helps=what_helps(expected, places, ranges=ranges),
    )


def _outside_ranges(predictions: Predictions) -> list[int]:
    """The places of the grades of training labels that no range contains; none where each grade has
    its promise."""
    if (
        predictions.answering.coverage is None
        or predictions.answering.coverage_by == "grade"
        or not len(predictions)
    ):
        return []
    grades = predictions.run.grades
    low = predictions["grade_low"].map(grades.index)
    high = predictions["grade_high"].map(grades.index)
    outside = []
    for place, labels in enumerate(predictions.run.facts.data.class_counts):
        if labels and not ((low <= place) & (place <= high)).any():
            outside.append(place)
    return outside


def _have_ranges(predictions: Predictions, places: Sequence[int]) -> bool:
    """Whether ranges that hold for each grade can leave these grades out."""
    answering = predictions.answering
    if answering.calibrate_on is not None:  # these samples would have to be predicted again
        return True
    return set(places) <= set(grades_with_ranges(calibrate_grades(predictions.run, answering)))


@page_of.register(Predictions)
def predictions_page(
    predictions: Predictions,
    *,
    data: Manifest | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    command: str | None = None,
    skipped: Sequence[tuple[str, str]] = (),
    pictures: bool = True,
) -> Page:
    """The page of a result of ``srjt.predict``.

    data: the samples, for their pictures. pictures: whether the table of answers has some, too.
    sources: the files that they were read from. skipped: (sample, reason) of what was left out
    before, in addition to those that the predictions know of.
    """
    run = predictions.run
    expected = best_side(run, _graded_alike(predictions.answering))
    facts = prediction_facts(predictions, expected)
    title, lead = verdict_of(facts)
    warnings = list(warnings_of(facts))
    details = []
    remarks = list(remarks_of(facts))
    # further rows of an image: it has an answer
    answered = set(predictions["image"]) if "image" in predictions else set()
    every = [*skipped, *predictions.attrs["skipped"]]
    left_out = [one for one in every if one[0] not in answered]
    if repeated := len(every) - len(left_out):
        remarks.append(f"Images in several rows, with one answer each: {repeated:,}.")
    if left_out:
        lines = [f"{where}: {reason}" for where, reason in left_out[:NAMED]]
        if len(left_out) > NAMED:
            lines.append(f"… and {len(left_out) - NAMED:,} more")
        warnings.append(f"{count_of(len(left_out), 'file or row', 'files or rows')} left out.")
        details.append(("Which, and why", "\n".join(lines)))
    rules = list(how_in_words(predictions).items())
    return Page(
        kind=f"Predictions of {run_name(run)}",
        title=title,
        lead=lead,
        remarks=remarks,
        key_numbers=_key_numbers(predictions, facts),
        warnings=warnings,
        details=details,
        sections=[
            Section(
                "every-answer", "Answers", tables=[_table(predictions, data, pictures=pictures)]
            ),
            *_least_certain(predictions, facts, data),
            Section("how", "How these answers came about", facts=rules, closed=True),
            run_section(run, sources=sources, command=command),
        ],
    )


def _key_numbers(predictions: Predictions, facts: PredictionFacts) -> list[KeyNumber]:
    """How many answers aspects have marked, and of each grade, beside the training labels."""
    run = predictions.run
    trained: Sequence[int] = []
    if not facts.per:  # labels are of images
        trained = run.facts.data.class_counts
    numbers = aspect_predicted_numbers(predictions)
    for place, (grade, count) in enumerate(facts.counts.items()):
        beside = ""
        if any(trained):
            beside = f"training labels: {trained[place] / sum(trained):.0%}"
        label = f"grade {run.grades.show(str(grade))}"
        share = f"{count / max(facts.answers, 1):.0%}"
        numbers.append(KeyNumber(label, f"{count:,}", share, beside))
    return numbers


def _table(predictions: Predictions, data: Manifest | None, *, pictures: bool) -> Table:
    """One row per answer; the numbers that few people read are behind a switch."""
    labels = {"grade_low": "lowest", "grade_high": "highest", "expected_grade": "expected grade"}
    per = predictions.attrs["per"]
    grades = predictions.run.grades
    graded = ["grade", "grade_low", "grade_high"]
    numbers = ["expected_grade", "entropy", "disagreement"]
    # on a telephone only the first columns are seen without scrolling
    whose = [*per, "images"] if per else ["image"]
    added = [name for aspect in registered_aspects() for name in aspect.added_columns]
    wanted = dict.fromkeys([*whose, *graded, *added, "probability"])
    if not per:
        wanted["patient"] = None
    wanted |= dict.fromkeys(numbers)
    frame = pd.DataFrame(predictions[:ALL])
    frame["probability"] = frame.apply(_probability, axis=1)
    frame = frame[[name for name in wanted if name in frame]]
    for name in {*graded} & {*frame}:
        shown = frame[name].map(dict(zip(grades, grades.shown, strict=True)))
        frame[name] = pd.Categorical(shown, categories=grades.shown, ordered=True)
    caption = "Probability: of the predicted grade."
    if "disagreement" in frame:
        caption += " Disagreement: distance of the networks' probabilities."
    part = ""
    if len(predictions) > ALL:
        part = f"The first {ALL:,} of {len(predictions):,}"
    extra = [labels.get(name, name) for name in numbers]
    table = data_table(
        frame.rename(columns=labels), title=part, caption=caption, slug="answers", extra=extra
    )
    if not pictures or len(predictions.run.in_shape) == 1:
        return table
    picture = pictures_of(data)
    rows = list(table.rows)
    images = predictions["highest_image" if per else "image"][:PICTURES]
    for place, image in enumerate(images):
        first, *others = rows[place].cells
        rows[place] = replace(
            rows[place], cells=(replace(first, picture=small(picture(str(image)))), *others)
        )
    return replace(table, rows=tuple(rows))


def _probability(answer: Any) -> float:
    """Of the predicted grade."""
    return float(answer[f"p_{answer['grade']}"])


def _least_certain(
    predictions: Predictions, facts: PredictionFacts, data: Manifest | None
) -> list[Section]:
    """Pictures of the answers with the largest entropy; none without images, or of one answer."""
    if facts.answers < 2 or len(predictions.run.in_shape) == 1:
        return []
    grades = predictions.run.grades
    tiles = []
    picture = pictures_of(data)
    for answer in predictions.nlargest(LEAST_CERTAIN, "entropy").to_dict("records"):
        image = str(answer["highest_image" if facts.per else "image"])
        whose = [", ".join(f"{name} {answer[name]}" for name in facts.per)]
        if "grade_low" in answer:
            ends = map(grades.show, (answer["grade_low"], answer["grade_high"]))
            whose.append(f"range {' to '.join(dict.fromkeys(ends))}")
        tile = Tile(
            picture=picture(image),
            title=f"grade {grades.show(answer['grade'])}",
            number=f"p {_probability(answer):.2f}",
            share=min(answer["entropy"] / math.log(len(grades)), 1.0),
            detail=": ".join(filter(None, whose)),  # "patient 3: range 0 to 2"
            text=image,
        )
        tiles.append(tile)
    text = "Largest entropy first; the bar is full where all grades are equally probable."
    if facts.per:
        text += " Of the images of an answer, the one with the highest grade is shown."
    if not any(tile.picture for tile in tiles):
        return []
    return [Section("least-certain", "Least certain", text=[text], tiles=tiles)]


def _graded_alike(answering: Answering) -> Answering:
    """The options of the grades alone, as far as the predictions that a run keeps can be answered
    by them."""
    names = ("network", "target_metric", "decoding", "label_noise", "recalibrate", "per", "pool")
    return Answering(**{name: getattr(answering, name) for name in names})


# The page of ``srjt explain``: each image, where each network looks, and similar training images.

PICTURE = 240  # pixels: about twice the size on the page, for high-resolution screens
SIMILAR = 144
EXPLAINED = (
    "Each map has its own scale, in grades. It shows what the network used, not what is there: it"
    " is no evidence that a grade is right."
)


@page_of.register(Explanation)
def explain_page(explanation: Explanation, *, title: str = "run") -> Page:
    """The page for a result of ``srjt.explain``; ``title`` names the run."""
    numbers = []
    if (alike := explanation.network_correlation) is not None:
        numbers = [
            KeyNumber("correlation of the two networks' maps", f"{alike:.2f}".replace("-", "−"))
        ]
    size = f"{explanation.maps.shape[2]} × {explanation.maps.shape[3]}"
    warnings = []
    if explanation.skipped:
        warnings.append(f"Files or rows that could not be read: {len(explanation.skipped):,}.")
    networks = "the two networks look"
    if len(explanation.maps) == 1:
        networks = "the network looks"
    tiles = [_image(explanation, row) for row in range(len(explanation.images))]
    return Page(
        kind=f"Explanation of {title}",
        title=f"Where {networks}",
        lead=(
            f"{count_of(len(explanation.images), 'image')}: orange raises the expected grade, blue"
            " lowers it."
        ),
        key_numbers=numbers,
        warnings=warnings,
        remarks=[
            EXPLAINED,
            "Maps are coarse: they show the part of the grade that passes through the last feature"
            f" map, which has {size} places.",
        ],
        sections=[Section("images", "Images", tiles=tiles, brief=True)],
        has_ids_option=False,
    )


def _image(explanation: Explanation, row: int) -> Tile:
    prediction = explanation.predictions.iloc[row]
    image = explanation.images[row]
    maps = explanation.maps[:, row]
    show = explanation.grades.show
    probabilities = ", ".join(
        f"{show(grade)}: {prediction[f'p_{grade}']:.2f}" for grade in explanation.grades
    )
    beside = []
    for number, heat in enumerate(maps, start=1):
        name = f"network {number}" if len(maps) > 1 else "network"
        text = f"{name}, ± {np.abs(heat).max():.2g}"
        beside.append((data_uri(overlay(image, heat, side=PICTURE)), text))
    similar = []
    training = explanation.training
    if explanation.neighbours is not None and training is not None:
        for at in explanation.neighbours[row]:
            grade = show(training.grades[training.labels[at]])
            picture = thumbnail(training, at, size=SIMILAR)
            similar.append((picture, f"labelled {grade}: {training.ids[at]}"))
    return Tile(
        picture=data_uri(resized_square(image, PICTURE)),
        title=f"grade {show(str(prediction['grade']))}",
        number=f"expected {prediction['expected_grade']:.2f}",
        detail=probabilities,
        text=str(prediction["image"]),
        beside=beside,
        similar=similar,
    )


# How many patients a study needs.


def plan_verdict(plan: SamplePlan) -> tuple[str, str]:
    """Title and lead: the number that is needed."""
    if plan.metric == "noise-rate":
        known = f"is then known within ± {plan.half_width:g}."
        if plan.labels:
            title = f"Verify {plan.images:,} of the {plan.labels:,} labels, drawn at random"
            return title, f"The share of wrong labels {known}"
        title = f"Verify {plan.images:,} labels of a large data set, drawn at random"
        return title, f"The share of wrong labels {known} A small data set needs fewer."
    title = (
        f"{plan.patients:,} patients give the {_planned_name(plan)} within ± {plan.half_width:g}"
    )
    lead = (
        "More patients do not help against wrong labels: have images read several times, or verify"
        " a random part."
    )
    return title, lead


def plan_notes(plan: SamplePlan) -> Iterator[str]:
    """What the number rests on."""
    if plan.plausible:
        low, high = plan.plausible
        yield (
            f"A pilot of {plan.pilot} patients tells this number roughly: {low:,} to {high:,}"
            f" patients are plausible. Plan for more than {plan.patients:,}, or have a larger"
            " pilot."
        )
    if plan.pilot > 0:
        yield (
            "Patients are taken to differ as much as those of the pilot; elsewhere they may differ"
            " more."
        )
    if plan.metric == "mae" and not plan.pilot and "spread" not in plan.assumed:
        yield (
            "Errors are taken to be by one grade: if some are by more, give their spread, or more"
            " patients are needed than said here."
        )
    if plan.metric == "qwk" and not plan.pilot:
        yield (
            "The deviation of κ depends much on how frequent the grades are: give their shares. Of"
            " errors by one grade and errors in the severity, the kind that needs more patients is"
            " assumed; rare errors by many grades need still more: have a pilot."
        )


def _planned_name(plan: SamplePlan) -> str:
    if plan.metric in METRICS:
        return METRICS[plan.metric].long_name
    return plan.metric.replace("-", " ")


def _one_label_each(plan: SamplePlan) -> bool:
    """Whether labels are planned, and patients are as many."""
    return plan.metric == "noise-rate" and plan.images_per_patient == 1.0


def _width_formula(plan: SamplePlan) -> str:
    """How a half-width follows from the number of patients."""
    units = "labels" if _one_label_each(plan) else "patients"
    roughly = f"t · {plan.deviation:.2f} / √{units}"
    words = (
        f"{plan.deviation:.2f} is the standard deviation between {units}, t is Student's quantile"
        " (1.96 for many)"
    )
    if plan.metric == "qwk":
        return (
            f"{roughly} + {plan.error / 2.0:.2f} / patients: {words}; an error that has not"
            " occurred adds the rest."
        )
    if plan.metric == "noise-rate" and plan.labels:
        return (
            f"About {roughly} · √(1 − the share of the {plan.labels:,} labels that is verified):"
            f" {words}."
        )
    if plan.metric == "noise-rate":
        return f"About {roughly}: {words}."
    return (
        f"With many patients {roughly}: {words}; with few errors the interval is wider, as for a"
        " share."
    )


@page_of.register(SamplePlan)
def plan_page(plan: SamplePlan) -> Page:
    """The number as a sentence, and what other half-widths take."""
    title, lead = plan_verdict(plan)
    headings = {"half_width": "± half-width"}
    shown = plan.table
    each = f"{plan.images_per_patient:.3g} of each patient"
    number = KeyNumber("images", f"{plan.images:,}", compared=each)
    if plan.metric == "noise-rate":
        headings["images"] = "labels"
        number = KeyNumber("labels", f"{plan.images:,}", compared=each)
    if _one_label_each(plan):
        shown = shown.drop(columns="patients")
        number = KeyNumber("labels", f"{plan.images:,}")
    table = data_table(
        shown.rename(columns=headings),
        title="",
        caption=_width_formula(plan),
        formats={"± half-width": ".3g"},
        slug="plan",
    )
    assumed = []
    for option, value in plan.assumed.items():
        text = value if isinstance(value, str) else f"{value:g}"
        assumed.append((option.replace("_", " "), text))
    sections = [Section("widths", "Other half-widths", tables=[table], brief=True)]
    if assumed:
        sections.insert(0, Section("assumed", "Assumed", facts=assumed))
    if len(plan.readings):
        readings = data_table(
            plan.readings.rename(columns={"wrong": "wrong medians"}),
            title="Readings of each image",
            caption="At most, if readers err independently of each other.",
            formats={"wrong medians": ".1%", "readings": ".0f"},
            slug="readings",
        )
        sections.append(Section("readings", "Readings", tables=[readings], brief=True))
    return Page(
        kind="Plan",
        title=title,
        lead=lead,
        remarks=list(plan_notes(plan)),
        key_numbers=[
            KeyNumber(
                _planned_name(plan),
                f"{plan.value:.3f}",
                interval=f"± {plan.half_width:g}",
                compared=plan.source,
            ),
            number,
        ],
        sections=sections,
    )
