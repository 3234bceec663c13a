"""The page of predictions for new samples: nothing on it needs a label of theirs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.grade_names import display_grade
from srjt.data.manifest import Manifest
from srjt.errors import count_of
from srjt.reports.judged_sides import JudgedSide, judge_sides
from srjt.reports.pages.answers_section import number_cell, scores_table
from srjt.reports.pages.html import Note, Page, Section, Tile
from srjt.reports.pages.model_section import made_section, model_section, run_name
from srjt.reports.pages.thumbnails import thumbnails_of
from srjt.reports.tables.table import Column, Row, Table, TableCell
from srjt.training.trained import Trained

__all__ = ["predictions_page"]

LEAST_CERTAIN = 12
ALL = 500  # answers in the table of the page
NAMED = 50  # samples that were left out


def predictions_page(
    run: Trained,
    predictions: pd.DataFrame,
    *,
    data: Manifest | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    command: str | None = None,
    skipped: Sequence[tuple[str, str]] = (),
) -> Page:
    """The page of a result of ``srjt.predict``.

    data: the samples, for their pictures. sources: the files that they were read from. skipped: (sample, reason) of
    what was left out before, in addition to those that the predictions know of.
    """
    facts = predictions.attrs
    per: tuple[str, ...] = tuple(facts.get("per") or ())
    sides = judge_sides(run)
    judged = sides.get("test") or sides.get("validation")
    sections = [
        _grades(run, predictions, per),
        _referrals(predictions),
        _ranges(run, predictions, str(facts.get("ranges") or "")),
        _least_certain(run, predictions, per, data),
        _every_answer(run, predictions, per),
        _how(facts.get("how") or {}),
        None if judged is None else _expected(judged),
        model_section(run),
        made_section(run, sources=sources, command=command),
    ]
    left_out = [*skipped, *facts.get("skipped", ())]
    notes = [] if judged is None or not judged.naive_warning else [Note(text=judged.naive_warning)]
    return Page(
        kind="Predictions",
        title=run_name(run),
        lead=_lead(run, predictions, per),
        notes=[*notes, *([_left_out(left_out)] if left_out else [])],
        sections=[section for section in sections if section is not None],
    )


def _lead(run: Trained, table: pd.DataFrame, per: tuple[str, ...]) -> str:
    images = int(table["images"].sum()) if per else len(table)
    noun = ("row of features", "rows of features") if len(run.in_shape) == 1 else ("image", "images")
    what = count_of(images, *noun)
    if per:
        what += f", one answer per {' and '.join(per)}: {len(table):,}"
    return f"{what}. No label of theirs is used."


def _left_out(left_out: Sequence[tuple[str, str]]) -> Note:
    lines = [f"{where}: {reason}" for where, reason in left_out[:NAMED]]
    if len(left_out) > NAMED:
        lines.append(f"… and {len(left_out) - NAMED:,} more")
    count = (
        f"{count_of(len(left_out), 'file or row', 'files or rows')} {'is' if len(left_out) == 1 else 'are'}"
    )
    return Note(text=f"{count} left out.", details=[("Which, and why", "\n".join(lines))])


def _shown(run: Trained, grade: object) -> str:
    return display_grade(str(grade), run.grade_names)


def _grades(run: Trained, table: pd.DataFrame, per: tuple[str, ...]) -> Section:
    counts = table["grade"].value_counts()
    text = ["Predicted grades:"]
    training = None
    if run.facts is not None and not per:  # labels are those of images
        training = run.facts.data.get("class_counts")
    if training and sum(training):
        shares = ", ".join(
            f"{_shown(run, grade)}: {count / sum(training):.1%}"
            for grade, count in zip(run.grades, training, strict=True)
        )
        text.insert(0, f"Of the labels that the run was trained on, {shares}.")
    return Section(
        slug="grades",
        heading="Grades",
        text=text,
        counts=[(_shown(run, grade), int(counts.get(grade, 0))) for grade in run.grades],
        counted="answers" if per else "samples",
    )


def _referrals(table: pd.DataFrame) -> Section | None:
    meanings = {"refer": "to refer", "unsure": "unsure, for a person to decide"}
    facts = [
        (meaning, f"{(table[column] == 'yes').sum():,} of {len(table):,}")
        for column, meaning in meanings.items()
        if column in table
    ]
    return Section(slug="decisions", heading="Decisions", facts=facts) if facts else None


def _ranges(run: Trained, table: pd.DataFrame, promise: str) -> Section | None:
    if "grade_low" not in table:
        return None
    place = {grade: c for c, grade in enumerate(run.grades)}
    width = table["grade_high"].map(place) - table["grade_low"].map(place) + 1
    rows = [
        Row(
            cells=(
                TableCell(text=f"{grades}", value=grades),
                TableCell(text=f"{count:,}", value=count),
                TableCell(text=f"{count / len(table):.1%}", value=count / len(table)),
            )
        )
        for grades, count in ((k, int((width == k).sum())) for k in range(1, len(run.grades) + 1))
    ]
    found = Table(
        slug="ranges",
        title="How wide the ranges are",
        caption="",
        columns=(
            Column(name="grades", label="grades in the range", kind="number"),
            Column(name="answers", label="answers", kind="number"),
            Column(name="share", label="share", kind="number"),
        ),
        rows=tuple(rows),
    )
    return Section(slug="ranges", heading="Ranges of grades", text=[promise], tables=[found])


def _how(facts: Mapping[str, str]) -> Section | None:
    if not facts:  # predictions that were stored by an earlier version
        return None
    return Section(slug="how", heading="How these answers came about", facts=list(facts.items()))


def _least_certain(
    run: Trained, table: pd.DataFrame, per: tuple[str, ...], data: Manifest | None
) -> Section | None:
    """The answers with the largest entropy, with a picture of each: of a patient, the image with the highest grade."""
    if len(table) < 2:
        return None
    rows = table["entropy"].to_numpy(np.float64).argsort(kind="stable")[::-1][:LEAST_CERTAIN]
    how = "The answers whose probabilities have the largest entropy"
    heading, slug = "Least certain", "least-certain"
    tiles = []
    column = "highest_image" if per else "image"
    if len(run.in_shape) == 3 and column in table:
        images = [str(image) for image in table[column]]
        picture, largest = thumbnails_of(images, data), np.log(len(run.grades))
        tiles = [
            Tile(
                picture=picture(row),
                title=_shown(run, table["grade"].iloc[row]),
                number=f"{_probability(table, row):.2f}",
                share=min(float(table["entropy"].iloc[row] / largest), 1.0),
                detail="; ".join(
                    filter(None, [*(str(table[name].iloc[row]) for name in per), _range(run, table, row)])
                ),
                text=images[row],
            )
            for row in rows.tolist()
        ]
    if any(tile.picture for tile in tiles):
        shown = f"the predicted grade{', its range' * ('grade_low' in table)} and its probability"
        text = f"{how}: {shown}. The bar is the entropy; it is full where all grades are equally probable."
        if per:
            text += (
                " The picture is the image with the highest grade; of several, the highest expected grade."
            )
        return Section(slug=slug, heading=heading, text=[text], tiles=tiles)
    return Section(
        slug=slug,
        heading=heading,
        text=[f"{how}."],
        tables=[_table(run, table.iloc[rows], per, slug=slug, title="Least certain answers")],
    )


def _range(run: Trained, table: pd.DataFrame, row: int) -> str:
    if "grade_low" not in table:
        return ""
    low, high = (_shown(run, table[name].iloc[row]) for name in ("grade_low", "grade_high"))
    return f"range: {low}" if low == high else f"range: {low} to {high}"


def _probability(table: pd.DataFrame, row: int) -> float:
    """The probability of the predicted grade."""
    return float(table[f"p_{table['grade'].iloc[row]}"].iloc[row])


def _every_answer(run: Trained, table: pd.DataFrame, per: tuple[str, ...]) -> Section:
    shown = table.iloc[:ALL]
    part = f"The first {ALL:,} of {len(table):,} answers." if len(table) > ALL else ""
    return Section(
        slug="every-answer",
        heading="Answers",
        text=[part] if part else [],
        tables=[_table(run, shown, per, slug="answers", title="Answers in the order of the data")],
        closed=len(shown) > 2 * LEAST_CERTAIN,
    )


def _table(run: Trained, table: pd.DataFrame, per: tuple[str, ...], *, slug: str, title: str) -> Table:
    names = [*per, "images"] if per else [name for name in ("image", "patient") if name in table]
    names += [name for name in ("grade", "grade_low", "grade_high", "refer", "unsure") if name in table]
    numbers = [name for name in ("expected_grade", "entropy", "disagreement") if name in table]
    labels = {"grade_low": "lowest", "grade_high": "highest", "expected_grade": "expected grade"}
    rows = []
    for row in range(len(table)):
        cells = [_cell(run, name, table[name].iloc[row]) for name in names]
        cells.append(number_cell(_probability(table, row)))
        cells += [number_cell(float(table[name].iloc[row])) for name in numbers]
        rows.append(Row(cells=tuple(cells)))
    columns = [
        Column(name=name, label=labels.get(name, name), kind="number" if name == "images" else "text")
        for name in names
    ]
    columns.append(Column(name="probability", label="probability", kind="number"))
    columns += [Column(name=name, label=labels.get(name, name), kind="number") for name in numbers]
    return Table(
        slug=slug,
        title=title,
        caption="Probability: of the predicted grade."
        + (" Lowest and highest: the range of grades." if "grade_low" in names else "")
        + (" Disagreement: distance of the networks' probabilities." if "disagreement" in numbers else ""),
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _cell(run: Trained, name: str, value: Any) -> TableCell:
    if name in ("grade", "grade_low", "grade_high"):
        return TableCell(text=_shown(run, value), value=run.grades.index(str(value)))
    return TableCell(text=f"{value:,}", value=value) if name == "images" else TableCell(text=str(value))


def _expected(judged: JudgedSide) -> Section:
    """What the run was worth where labels were known."""
    what = "true grades" if judged.true else "given labels, which may be wrong"
    units = "patients" if judged.samples.patients is not None else "samples"
    text = (
        "Nothing on this page says how good these answers are. The table is of the answers of srjt predict, with its "
        f"default options, for the {count_of(len(judged.labels), 'sample')} of the run's own {judged.name} side, "
        f"compared with their {what}. The 95 % intervals resample {units}."
    )
    return Section(
        slug="expected",
        heading="What to expect",
        text=[text],
        tables=[scores_table(judged.intervals, judged.naive)],
    )
