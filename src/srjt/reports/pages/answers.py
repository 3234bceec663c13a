"""The pages about samples without labels: predictions, where the networks look, and how many
patients a study needs."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.checks import data_uri, thumbnail
from srjt.data.manifest import Manifest
from srjt.errors import count_of
from srjt.inference.aspects import registered_aspects
from srjt.inference.evaluate import Evaluation, best_side
from srjt.inference.explain import Explanation, overlay, resized_square
from srjt.inference.options import Answering
from srjt.inference.predict import Predictions
from srjt.inference.sample_size import SamplePlan
from srjt.ordinal.metrics import METRICS
from srjt.reports.aspects import aspect_predicted_numbers, counted_yes
from srjt.reports.page import (
    KeyNumber,
    Page,
    Rule,
    Section,
    Tile,
    Verdict,
    page_of,
    said,
    sentences,
)
from srjt.reports.pages.evaluation import (
    answered,
    evaluation_facts,
    never_predicted,
    what_helps,
)
from srjt.reports.sections import named_grades, pictures_of, run_name, run_section, small
from srjt.reports.table import Table, between, data_table

LEAST_CERTAIN = 12
ALL = 500  # answers in the table of the page
PICTURES = 100  # of them with a picture: each image is read
NAMED = 50  # samples that were left out

VERDICT: list[Verdict[Any]] = [
    (
        lambda f: f.verdict == "not better",
        "No better than one grade for all, by {f.metric}",
        "{f.counted}. {f.error}",
    ),
    (
        lambda f: f.verdict == "unclear",
        "Not clearly better than one grade for all, by {f.metric}",
        "{f.counted}. {f.error}",
    ),
    (lambda f: True, "{f.counted}", "{f.error}"),
]
# missed: grades that neither these answers nor those for the held-out side, where they occur, give;
# outside: grades of training labels that no range contains
WARNINGS: list[Rule[Any]] = [
    (
        lambda f: f.missed,
        "{f.missed} never predicted, neither here nor on the {f.side} side, where "
        "{f.missed_samples:,} of {f.side_samples:,} have {f.it}. What helps: {f.helps}.",
    ),
    (
        lambda f: f.outside,
        "{f.outside} in none of the ranges, whose promise is for all grades together: "
        "srjt predict --coverage-by grade promises it for each grade.",
    ),
]
REMARKS: list[Rule[Any]] = [
    (lambda f: f.ranges, "{f.ranges}"),  # the first remark is all that a terminal shows
    (lambda f: True, "A predicted grade is {f.grade_rule}."),
    (
        lambda f: True,
        "No label of these samples is used: nothing here says how good the answers are.",
    ),
]


def prediction_facts(
    predictions: Predictions, expected: Evaluation | None = None
) -> SimpleNamespace:
    """What the page knows. counts: of each grade. expected: the answers for the run's own held-out
    side."""
    run = predictions.run
    how = predictions.attrs["how"]
    per = tuple(predictions.attrs["per"])
    images = int(predictions["images"].sum()) if per else len(predictions)
    counts = predictions["grade"].value_counts().reindex(list(run.grades), fill_value=0)
    error = "How good the answers are is not known: the run held no samples out."
    judged_facts = None
    if expected is not None:
        value, low, high = expected.intervals["mae"]
        judged_facts = evaluation_facts(expected)
        judged = f"{judged_facts.samples}, by {expected.judged_by}"
        if predictions.asked.views > 1:
            judged += ", of one view of each"
        if predictions.asked.calibrate_on is not None:
            judged += ", calibrated on the validation side"
        interval = between(low, high, ".2f")
        error = (
            f"Expect an answer to be {value:.2f} grades off on average ({interval}), as on the"
            f" run's {judged}."
        )
        error += _beside_one_grade(judged_facts)
    elif run.held_out and per:
        lacking = (
            name for name in per if any(name not in side.table for side in run.held_out.values())
        )
        error = (
            f"How good the answers are is not known: the run keeps no {' and '.join(lacking)} of"
            " what it held out."
        )

    of = answered(len(predictions), images, per, features=len(run.in_shape) == 1)
    most = " or ".join(
        run.grades.show(str(grade)) for grade in counts.index[counts == counts.max()]
    )
    counted = f"{of}: {'' if counts.max() == len(predictions) else 'most often '}grade {most}"
    referred = counted_yes(predictions, "refer")
    if referred is not None:
        counted = f"Refer {referred:,} of {of}"
    return SimpleNamespace(
        answers=len(predictions),
        per=per,
        counts=counts,
        counted=counted,
        grade_rule=how["grade"],
        ranges=predictions.attrs["ranges"],
        error=error,
        verdict="unknown" if judged_facts is None else judged_facts.verdict,
        metric="" if judged_facts is None else judged_facts.metric,
        outside=named_grades(run.grades, _outside_ranges(predictions)),
        **_never_predicted(counts, expected, ranges=predictions.asked.coverage is not None),
    )


def _beside_one_grade(judged: SimpleNamespace) -> str:
    """The same of one grade for all, as a further sentence; "" if it is not known."""
    if judged.verdict == "unknown":
        return ""
    if judged.purpose == "mae":
        return f" One grade for all: {judged.naive:.2f}."
    return f" By {judged.metric}: {judged.score:.3f}, and {judged.naive:.3f} for one grade for all."


def _never_predicted(
    counts: pd.Series[int], expected: Evaluation | None, *, ranges: bool
) -> dict[str, Any]:
    """The grades that are never predicted, neither here nor on the held-out side, where they
    occur."""
    if expected is None:
        return {"missed": ""}
    places = [place for place in never_predicted(expected) if counts.iloc[place] == 0]
    return {
        "missed": named_grades(expected.grades, places),
        "missed_samples": int(np.asarray(expected.confusion).sum(axis=1)[places].sum()),
        "it": "it" if len(places) == 1 else "them",
        "side": f"run's {expected.side}",
        "side_samples": expected.samples,
        "helps": what_helps(expected, ranges=ranges),
    }


def _outside_ranges(predictions: Predictions) -> list[int]:
    """The places of the grades of training labels that no range contains; none where each grade has
    its promise."""
    if (
        predictions.asked.coverage is None
        or predictions.asked.coverage_by == "grade"
        or not len(predictions)
    ):
        return []
    grades = predictions.run.grades
    low, high = (predictions[name].map(grades.index) for name in ("grade_low", "grade_high"))
    trained = predictions.run.facts.data.get("class_counts") or []
    return [
        place
        for place, labels in enumerate(trained)
        if labels and not ((low <= place) & (place <= high)).any()
    ]


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
    how = predictions.attrs["how"]
    expected = best_side(run, _graded_alike(predictions.asked))
    facts = prediction_facts(predictions, expected)
    warnings = sentences(WARNINGS, facts)
    details = []
    if left_out := [*skipped, *predictions.attrs["skipped"]]:
        lines = [f"{where}: {reason}" for where, reason in left_out[:NAMED]]
        if len(left_out) > NAMED:
            lines.append(f"… and {len(left_out) - NAMED:,} more")
        warnings.append(f"{count_of(len(left_out), 'file or row', 'files or rows')} left out.")
        details.append(("Which, and why", "\n".join(lines)))
    return Page(
        kind=f"Predictions of {run_name(run)}",
        **said(facts, VERDICT, remarks=REMARKS),
        key_numbers=_key_numbers(predictions, facts),
        warnings=warnings,
        details=details,
        sections=[
            Section(
                "every-answer", "Answers", tables=[_table(predictions, data, pictures=pictures)]
            ),
            *_least_certain(predictions, facts, data),
            Section("how", "How these answers came about", facts=[*how.items()], closed=True),
            run_section(run, sources=sources, command=command),
        ],
    )


def _key_numbers(predictions: Predictions, facts: SimpleNamespace) -> list[KeyNumber]:
    """How many answers aspects have marked, and of each grade, beside the training labels."""
    run = predictions.run
    trained = [] if facts.per else run.facts.data.get("class_counts", [])
    numbers = aspect_predicted_numbers(predictions)
    for place, (grade, count) in enumerate(facts.counts.items()):
        beside = ""
        if any(trained):
            beside = f"training labels: {trained[place] / sum(trained):.0%}"
        label = f"grade {run.grades.show(grade)}"
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
    wanted = [*per, "images"] if per else ["image"]
    wanted += graded
    for aspect in registered_aspects():
        wanted += [name for name in aspect.added_columns if name not in graded]
    wanted += ["probability", *([] if per else ["patient"]), *numbers]
    frame = pd.DataFrame(predictions[:ALL])
    frame["probability"] = frame.apply(_probability, axis=1)
    frame = frame[[name for name in wanted if name in frame]]
    for name in {*graded} & {*frame}:
        shown = frame[name].map(dict(zip(grades, grades.shown, strict=True)))
        frame[name] = pd.Categorical(shown, categories=grades.shown, ordered=True)
    caption = "Probability: of the predicted grade."
    if "disagreement" in frame:
        caption += " Disagreement: distance of the networks' probabilities."
    part = f"The first {ALL:,} of {len(predictions):,}" if len(predictions) > ALL else ""
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
    predictions: Predictions, facts: SimpleNamespace, data: Manifest | None
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
            ends = dict.fromkeys(grades.show(answer[name]) for name in ("grade_low", "grade_high"))
            whose.append(f"range {' to '.join(ends)}")
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
    shown = any(tile.picture for tile in tiles)
    return [Section("least-certain", "Least certain", text=[text], tiles=tiles)] if shown else []


def _graded_alike(asked: Answering) -> Answering:
    """The options of the grades alone, as far as the predictions that a run keeps can be answered
    by them."""
    names = ("network", "optimise", "decoding", "label_noise", "recalibrate", "per", "pool")
    return Answering(**{name: getattr(asked, name) for name in names})


# The page of ``srjt explain``: each image, where each network looks, and similar training images.

PICTURE = 240  # pixels: about twice the size on the page, for high-resolution screens
SIMILAR = 144
EXPLAINED = (
    "Each map has its own scale, in grades. It shows what the network used, not what is there: it"
    " is no evidence that a grade is right."
)


@page_of.register(Explanation)
def explain_page(found: Explanation, *, title: str = "run") -> Page:
    """The page for a result of ``srjt.explain``; ``title`` names the run."""
    numbers = []
    if (alike := found.network_correlation) is not None:
        numbers = [
            KeyNumber("correlation of the two networks' maps", f"{alike:.2f}".replace("-", "−"))
        ]
    size = f"{found.maps.shape[2]} × {found.maps.shape[3]}"
    skipped = f"Files or rows that could not be read: {len(found.skipped):,}."
    tiles = [_image(found, row) for row in range(len(found.images))]
    return Page(
        kind=f"Explanation of {title}",
        title=f"Where {'the network looks' if len(found.maps) == 1 else 'the two networks look'}",
        lead=(
            f"{count_of(len(found.images), 'image')}: orange raises the expected grade, blue"
            " lowers it."
        ),
        key_numbers=numbers,
        warnings=[skipped] if found.skipped else [],
        remarks=[EXPLAINED, f"Maps are coarse: the last feature map has {size} places."],
        sections=[Section("images", "Images", tiles=tiles, brief=True)],
    )


def _image(found: Explanation, row: int) -> Tile:
    prediction = found.predictions.iloc[row]
    image = found.images[row]
    maps = found.maps[:, row]
    show = found.grades.show
    probabilities = ", ".join(
        f"{show(grade)}: {prediction[f'p_{grade}']:.2f}" for grade in found.grades
    )
    names = ["network"] if len(maps) == 1 else [f"network {k}" for k in range(1, len(maps) + 1)]
    training: Any = found.training
    places = () if found.neighbours is None or training is None else found.neighbours[row]
    labels = [
        f"labelled {show(training.grades[training.labels[at]])}: {training.ids[at]}"
        for at in places
    ]
    pictures = [thumbnail(training, at, size=SIMILAR) for at in places]
    return Tile(
        picture=data_uri(resized_square(image, PICTURE)),
        title=f"grade {show(str(prediction['grade']))}",
        number=f"expected {prediction['expected_grade']:.2f}",
        detail=probabilities,
        text=str(prediction["image"]),
        beside=[
            (data_uri(overlay(image, heat, side=PICTURE)), f"{name}, ± {np.abs(heat).max():.2g}")
            for name, heat in zip(names, maps, strict=True)
        ],
        similar=list(zip(pictures, labels, strict=True)),
    )


# How many patients a study needs.

PLANNED: list[Verdict[Any]] = [
    (
        lambda f: f.metric == "noise-rate",
        "Verify {f.images:,} labels, drawn at random",
        "The share of wrong labels is then known within ± {f.half_width:g}.",
    ),
    (
        lambda f: True,
        "{f.patients:,} patients give the {f.name} within ± {f.half_width:g}",
        "More patients do not help "
        "against wrong labels: have images read several times, or verify a random part.",
    ),
]
NOTES: list[Rule[Any]] = [
    (
        lambda f: f.plausible,
        "A pilot of {f.pilot} patients tells this number roughly: {f.plausible[0]:,} to"
        " {f.plausible[1]:,} patients are plausible. Plan for more than {f.patients:,}, or"
        " have a larger pilot.",
    ),
    (
        lambda f: f.pilot > 0,
        "Patients are taken to differ as much as those of the pilot; elsewhere they may differ "
        "more.",
    ),
    (
        lambda f: f.metric == "mae" and not f.pilot and "spread" not in f.assumed,
        "Errors are taken to be by one grade: "
        "if some are by more, give their spread, or more patients are needed than said here.",
    ),
    (
        lambda f: f.metric == "qwk" and not f.pilot,
        "The deviation of κ depends much on how frequent the grades are: give their shares."
        " Of errors by one grade and errors in the severity, the kind that needs more"
        " patients is assumed; rare errors by many grades need still more: have a pilot.",
    ),
]


def _width_formula(plan: SamplePlan) -> str:
    """How a half-width follows from the number of patients."""
    roughly = f"t · {plan.deviation:.2f} / √patients"
    words = (
        f"{plan.deviation:.2f} is the standard deviation between patients, t is Student's quantile"
        " (1.96 for many)"
    )
    if plan.metric == "qwk":
        return (
            f"{roughly} + {plan.error / 2.0:.2f} / patients: {words}; an error that has not"
            " occurred adds the rest."
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
    name = (
        METRICS[plan.metric].long_name if plan.metric in METRICS else plan.metric.replace("-", " ")
    )
    table = data_table(
        plan.table.rename(columns={"half_width": "± half-width"}),
        title="",
        caption=_width_formula(plan),
        formats={"± half-width": ".3g"},
        slug="plan",
    )
    assumed = [
        (option.replace("_", " "), value if isinstance(value, str) else f"{value:g}")
        for option, value in plan.assumed.items()
    ]
    sections = [
        *([Section("assumed", "Assumed", facts=assumed)] if assumed else []),
        Section("widths", "Other half-widths", tables=[table], brief=True),
    ]
    if len(plan.readings):
        readings = data_table(
            plan.readings.rename(columns={"wrong": "wrong medians"}),
            title="Readings of each image",
            caption="At most, if readers err independently of each other.",
            formats={"wrong medians": ".1%", "readings": ".0f"},
            slug="readings",
        )
        sections.append(Section("readings", "Readings", tables=[readings], brief=True))
    other = "patients" if plan.metric == "noise-rate" else "images"
    return Page(
        kind="Plan",
        **said(SimpleNamespace(**vars(plan), name=name), PLANNED, remarks=NOTES),
        key_numbers=[
            KeyNumber(
                name, f"{plan.value:.3f}", interval=f"± {plan.half_width:g}", compared=plan.source
            ),
            KeyNumber(other, f"{getattr(plan, other):,}"),
        ],
        sections=sections,
    )
