"""The pages of answers for new samples, which need no label of theirs: predictions, and where the networks look."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.checks import data_uri, thumbnail
from srjt.data.manifest import Manifest
from srjt.errors import count_of
from srjt.inference.decide import DECISION_COLUMNS
from srjt.inference.evaluate import Evaluation, best_side
from srjt.inference.explain import Explanation, overlay, resized_square
from srjt.inference.options import Answering
from srjt.reports.page import (
    KeyNumber,
    Note,
    Page,
    Rule,
    Section,
    Tile,
    first_sentence,
    notes_of,
    present,
    sentences,
)
from srjt.reports.pages.evaluation import evaluation_facts, scores_table, verdict
from srjt.reports.sections import made_section, model_section, run_name, thumbnails_of
from srjt.reports.table import Table, data_table
from srjt.training.trained import Trained

LEAST_CERTAIN = 12
ALL = 500  # answers in the table of the page
NAMED = 50  # samples that were left out


# Predictions: sentences.


VERDICT: list[Rule[Any]] = [
    (lambda f: f.refer >= 0 and bool(f.per), "Refer {f.refer:,} of {f.answers:,}: {f.images}, one answer per "
     "{f.per}."),
    (lambda f: f.refer >= 0, "Refer {f.refer:,} of {f.images}."),
    (lambda f: bool(f.per), "{f.images}, one answer per {f.per} ({f.answers:,}): {f.counts}."),
    (lambda f: True, "{f.images}: {f.counts}."),
]  # fmt: skip
NOTES: list[Rule[Any]] = [
    (lambda f: bool(f.ranges), "{f.ranges}"),
    (lambda f: True, "A grade is {f.grade_rule}."),
    (lambda f: bool(f.recalibration), "Probabilities are recalibrated: {f.recalibration}."),
    (lambda f: f.views > 1, "Probabilities are averaged over {f.views} views of each image."),
    (lambda f: True, "No label of these samples is used: nothing here says how good the answers are."),
]  # fmt: skip


def prediction_facts(run: Trained, table: pd.DataFrame, *, left_out: int = 0) -> SimpleNamespace:
    """What the sentences about a result of ``srjt.predict`` are about. refer, unsure: −1 if nobody asked."""
    attributes = table.attrs
    per = tuple(attributes.get("per") or ())
    noun = ("row of features", "rows of features") if len(run.in_shape) == 1 else ("image", "images")
    counts, how = table["grade"].value_counts(), attributes.get("how") or {}
    shares = [f"{counts.get(grade, 0):,} of grade {run.grades.show(grade)}" for grade in run.grades]

    def marked(column: str) -> int:  # a column of the source may have the same name
        return int((table[column] == "yes").sum()) if column in how and column in table else -1

    return SimpleNamespace(
        images=count_of(int(table["images"].sum()) if per else len(table), *noun),
        answers=len(table),
        per=" and ".join(per),
        refer=marked("refer"),
        unsure=marked("unsure"),
        counts=", ".join(shares),
        grade_rule=str(attributes["grade_rule"]),
        recalibration=str(attributes.get("recalibration") or ""),
        ranges=str(attributes.get("ranges") or ""),
        views=int(attributes.get("views") or 1),
        left_out=left_out,
    )


# Predictions: the page.


def predictions_page(
    run: Trained,
    predictions: pd.DataFrame,
    *,
    data: Manifest | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    command: str | None = None,
    skipped: Sequence[tuple[str, str]] = (),
    brief: bool = False,
) -> Page:
    """The page of a result of ``srjt.predict``.

    data: the samples, for their pictures. sources: the files that they were read from. skipped: (sample, reason) of
    what was left out before, in addition to those that the predictions know of. brief: only what a terminal shows.
    """
    per: tuple[str, ...] = tuple(predictions.attrs.get("per") or ())
    left_out = [*skipped, *predictions.attrs.get("skipped", ())]
    facts = prediction_facts(run, predictions, left_out=len(left_out))
    expected = best_side(run, Answering(per=per) if per == ("patient",) else None)
    sections = (
        []
        if brief
        else present(
            _answers(run, predictions, per),
            _least_certain(run, predictions, per, data),
            _ranges(run, predictions),
            None if expected is None else _expected(expected),
            _how(predictions.attrs.get("how") or {}),
            model_section(run),
            made_section(run, sources=sources, command=command),
        )
    )
    warnings = [] if expected is None or evaluation_facts(expected).beaten else [Note(text=verdict(expected))]
    return Page(
        kind="Predictions",
        title=run_name(run),
        lead=first_sentence(VERDICT, facts),
        key_numbers=_key_numbers(run, predictions, facts, expected),
        notes=[
            *warnings,
            *([_left_out(left_out)] if left_out else []),
            *notes_of([], sentences(NOTES, facts)),
        ],
        sections=sections,
    )


def _key_numbers(
    run: Trained, table: pd.DataFrame, facts: SimpleNamespace, expected: Evaluation | None
) -> list[KeyNumber]:
    """How many answers of each grade, beside the training labels; how many to refer; what error to expect."""
    counts, how = table["grade"].value_counts(), table.attrs.get("how") or {}
    trained = [] if facts.per else run.facts.data.get("class_counts", [])
    rows = [
        ("refer", facts.refer, how.get("refer", "")),
        ("unsure: a person decides", facts.unsure, how.get("unsure", "")),
    ]
    for place, grade in enumerate(run.grades):
        share = f"training labels: {trained[place] / sum(trained):.0%}" if trained and sum(trained) else ""
        rows.append((f"grade {run.grades.show(grade)}", int(counts.get(grade, 0)), share))
    numbers = [
        KeyNumber(label, f"{count:,}", f"{count / max(len(table), 1):.0%}", str(beside))
        for label, count, beside in rows
        if count >= 0
    ]
    if expected is not None:
        where = f"on the run's {expected.side} side"
        error = KeyNumber.of(
            "mean absolute error to expect", expected.intervals["mae"], ".2f", compared=where
        )
        numbers.append(error)
    return numbers


def _left_out(left_out: Sequence[tuple[str, str]]) -> Note:
    lines = [f"{where}: {reason}" for where, reason in left_out[:NAMED]]
    if len(left_out) > NAMED:
        lines.append(f"… and {len(left_out) - NAMED:,} more")
    text = f"{count_of(len(left_out), 'file or row', 'files or rows')} left out."
    return Note(text=text, details=[("Which, and why", "\n".join(lines))])


def _answers(run: Trained, table: pd.DataFrame, per: tuple[str, ...]) -> Section:
    part = [f"The first {ALL:,} of {len(table):,} answers."] if len(table) > ALL else []
    answers = _table(run, table.iloc[:ALL], per, slug="answers", title="Answers in the order of the data")
    return Section("every-answer", "Answers", text=part, tables=[answers])


def _table(run: Trained, table: pd.DataFrame, per: tuple[str, ...], *, slug: str, title: str) -> Table:
    labels = {"grade_low": "lowest", "grade_high": "highest", "expected_grade": "expected grade"}
    names = [*per, "images"] if per else [name for name in ("image", "patient") if name in table]
    names += [name for name in ("grade", "grade_low", "grade_high", *DECISION_COLUMNS) if name in table]
    frame = table[names].reset_index(drop=True).copy()
    for name in {"grade", "grade_low", "grade_high"} & set(names):
        places = [run.grades.index(str(grade)) for grade in table[name]]
        shown = pd.Index(run.grades.shown)
        if shown.is_unique:
            frame[name] = pd.Categorical.from_codes(places, categories=shown, ordered=True)
    frame["probability"] = [_probability(table, row) for row in range(len(table))]
    for name in ("expected_grade", "entropy", "disagreement"):
        if name in table:
            frame[name] = table[name].to_numpy(np.float64)
    caption = "Probability: of the predicted grade."
    if "disagreement" in table:
        caption += " Disagreement: distance of the networks' probabilities."
    return data_table(frame.rename(columns=labels), title=title, caption=caption, slug=slug)


def _probability(table: pd.DataFrame, row: int) -> float:
    """The probability of the predicted grade."""
    return float(table[f"p_{table['grade'].iloc[row]}"].iloc[row])


def _ranges(run: Trained, table: pd.DataFrame) -> Section | None:
    if "grade_low" not in table:
        return None
    place = {grade: c for c, grade in enumerate(run.grades)}
    width = table["grade_high"].map(place) - table["grade_low"].map(place) + 1
    sizes = range(1, len(run.grades) + 1)
    frame = pd.DataFrame({"grades in the range": sizes, "answers": [int((width == k).sum()) for k in sizes]})
    frame["share"] = frame["answers"] / max(len(table), 1)
    made = data_table(frame, title="How wide the ranges are", formats={"share": ".1%"}, slug="ranges")
    return Section("ranges", "Ranges of grades", tables=[made])


def _how(how: Mapping[str, str]) -> Section | None:
    if not how:
        return None
    return Section("how", "How these answers came about", facts=list(how.items()), closed=True)


def _least_certain(
    run: Trained, table: pd.DataFrame, per: tuple[str, ...], data: Manifest | None
) -> Section | None:
    """The answers with the largest entropy, with a picture of each: of a patient, the image with the highest grade."""
    if len(table) < 2:
        return None
    rows = table["entropy"].to_numpy(np.float64).argsort(kind="stable")[::-1][:LEAST_CERTAIN]
    heading, slug = "Least certain", "least-certain"
    column, tiles = "highest_image" if per else "image", []
    if len(run.in_shape) == 3 and column in table:
        images = [str(image) for image in table[column]]
        picture, most = thumbnails_of(images, data), np.log(len(run.grades))
        tiles = [
            Tile(
                picture=picture(row),
                title=f"grade {run.grades.show(str(table['grade'].iloc[row]))}",
                number=f"p {_probability(table, row):.2f}",
                share=min(float(table["entropy"].iloc[row] / most), 1.0),
                detail=_whose_range(run, table, row, per),
                text=images[row],
            )
            for row in rows.tolist()
        ]
    if not any(tile.picture for tile in tiles):
        largest = _table(run, table.iloc[rows], per, slug=slug, title="Largest entropy first")
        return Section(slug, heading, tables=[largest])
    text = "Largest entropy first; the bar is full where all grades are equally probable."
    if per:
        text += f" The picture is the {' and '.join(per)}'s image with the highest grade."
    return Section(slug, heading, text=[text], tiles=tiles)


def _whose_range(run: Trained, table: pd.DataFrame, row: int, per: tuple[str, ...]) -> str:
    """Whose answer it is, and the range: "patient 3: range 0 to 2"."""
    whose = ", ".join(f"{name} {table[name].iloc[row]}" for name in per)
    if "grade_low" not in table:
        return whose
    low, high = (run.grades.show(str(table[name].iloc[row])) for name in ("grade_low", "grade_high"))
    shown = f"range {low}" if low == high else f"range {low} to {high}"
    return f"{whose}: {shown}" if whose else shown


def _expected(expected: Evaluation) -> Section:
    """What the run was worth where labels were known."""
    text = f"{verdict(expected)} Compared with {expected.judged_by}, with the default options."
    return Section("expected", "What to expect", text=[text], tables=[scores_table(expected)])


# The page of ``srjt explain``: each image, where each network looks, and similar training images.

PICTURE = 240  # pixels: about twice the size on the page, for high-resolution screens
SIMILAR = 144
EXPLAINED = (
    "Orange places raise the expected grade, blue places lower it; each map has its own scale, in grades. A map shows "
    "what the network used, not what is there: it is no evidence that a grade is right."
)
RANDOM = "A correlation near 1 with networks of random weights would mean that maps show the image, not what is learnt."


def explain_page(found: Explanation, *, title: str = "run") -> Page:
    """The page for a result of ``srjt.explain``; ``title`` names the run."""
    names = {
        "correlation of the two networks' maps": found.network_correlation,
        "… with networks of random weights": found.random_correlation,
    }
    numbers = [
        KeyNumber(label, f"{value:.2f}".replace("-", "−"))
        for label, value in names.items()
        if value is not None
    ]
    size = f"{found.maps.shape[2]} × {found.maps.shape[3]}"
    remarks = [EXPLAINED, f"Maps are coarse: the last feature map has {size} places."]
    if found.random_correlation is not None:
        remarks.append(RANDOM)
    skipped = f"{len(found.skipped):,} could not be read and are left out."
    tiles = [_image(found, row) for row in range(len(found.images))]
    return Page(
        kind=f"Explanation of {title}",
        title=f"Where {'the network looks' if len(found.maps) == 1 else 'the two networks look'}",
        lead=f"{count_of(len(found.images), 'image')}: orange raises the expected grade, blue lowers it.",
        key_numbers=numbers,
        notes=notes_of([skipped] if found.skipped else [], remarks),
        sections=[Section("images", "Images", large_tiles=tiles, brief=True)],
    )


def _image(found: Explanation, row: int) -> Tile:
    prediction, image, maps = found.predictions.iloc[row], found.images[row], found.maps[:, row]
    grades = [name.removeprefix("p_") for name in found.predictions.columns if name.startswith("p_")]
    probabilities = ", ".join(
        f"{found.grades.show(grade)}: {prediction[f'p_{grade}']:.2f}" for grade in grades
    )
    names = ["network"] if len(maps) == 1 else [f"network {k}" for k in range(1, len(maps) + 1)]
    return Tile(
        picture=data_uri(resized_square(image, PICTURE)),
        title=f"grade {found.grades.show(str(prediction['grade']))}",
        number=f"expected {prediction['expected_grade']:.2f}",
        detail=probabilities,
        text=str(prediction["image"]),
        beside=[
            (data_uri(overlay(image, heat, side=PICTURE)), f"{name}, ± {np.abs(heat).max():.2g}")
            for name, heat in zip(names, maps, strict=True)
        ],
        more=_similar(found, row),
        more_title="similar training images",
    )


def _similar(found: Explanation, row: int) -> list[tuple[str, str]]:
    """(picture, label) of each similar training image."""
    if found.neighbours is None or found.training is None:
        return []
    training: Any = found.training
    return [
        (
            thumbnail(training, place, size=SIMILAR),
            f"labelled {found.grades.show(training.grades[training.labels[place]])}: {training.ids[place]}",
        )
        for place in found.neighbours[row]
    ]
