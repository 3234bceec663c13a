"""Sections of a run's page about its answers for held-out samples: scores with intervals, by grade, examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from PIL import Image

from srjt.data.images.decode import BadImageError, read_image
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.matrices import confusion_figure
from srjt.reports.judged_sides import JudgedSide
from srjt.reports.pages.html import Section, Tile, data_uri
from srjt.reports.tables.statistics import METRIC_NAMES
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.paired_tests import LOWER_IS_BETTER

__all__ = ["answers_section", "examples_section"]

EXAMPLES = 6  # of each kind
PICTURE = 144  # pixels
NUMBER: Literal["number"] = "number"


def answers_section(judged: JudgedSide, *, grades: Sequence[str]) -> Section:
    """How good the answers of ``srjt predict`` are on one side. grades: names for display."""
    what = "true grades" if judged.true else "given labels, which may be wrong"
    units = "patients" if judged.samples.patients is not None else "samples"
    groups = len(set(judged.samples.groups or judged.samples.ids))
    text = [
        f"The answers of srjt predict for the {len(judged.labels):,} samples of the {judged.name} side, compared with "
        f"their {what}. A grade is {judged.grade_rule}.",
        f"The 95 % intervals resample {groups:,} {units}"
        + (
            "."
            if judged.samples.patients is not None
            else "; if several samples belong to one patient, they are too narrow."
        )
        + " They do not contain the variation between trainings.",
    ]
    return Section(
        slug="answers",
        heading=f"Answers on the {judged.name} side",
        text=text,
        tables=[_scores(judged), _by_grade(judged, grades)],
        figures=[_confusion(judged, grades)],
    )


def _scores(judged: JudgedSide) -> Table:
    rows = []
    for name, (_, long_name) in METRIC_NAMES.items():
        if name not in judged.intervals:
            continue
        value, low, high = judged.intervals[name]
        naive = getattr(judged.naive, name, None)
        rows.append(
            Row(
                cells=(
                    TableCell(text=f"{long_name} {'↓' if name in LOWER_IS_BETTER else '↑'}"),
                    _number(value),
                    TableCell(text=f"{low:.3f} – {high:.3f}" if math.isfinite(low) else MISSING),
                    MISSING_CELL if naive is None else _number(naive),
                )
            )
        )
    return Table(
        slug="answers-scores",
        title="Scores",
        caption="Naive: always the most frequent training label (accuracy), always their median (MAE)."
        if judged.naive is not None
        else "",
        columns=(
            Column(name="metric", label="metric"),
            Column(name="value", label="value", kind=NUMBER),
            Column(name="interval", label="95 % interval", kind=NUMBER),
            Column(name="naive", label="naive", kind=NUMBER),
        ),
        rows=tuple(rows),
    )


def _by_grade(judged: JudgedSide, grades: Sequence[str]) -> Table:
    rows = [
        Row(
            cells=(
                TableCell(text=grade),
                TableCell(text=f"{samples:,}", value=samples),
                *(_number(value) for value in values),
            )
        )
        for grade, (samples, *values) in zip(grades, judged.by_grade(), strict=True)
    ]
    return Table(
        slug="answers-by-grade",
        title="By grade",
        caption="Recall: share of the grade's samples that are predicted right. Precision: share of its predictions "
        "that are right. MAE: of the grade's samples.",
        columns=(
            Column(name="grade", label="grade"),
            Column(name="samples", label="samples", kind=NUMBER),
            Column(name="recall", label="recall", kind=NUMBER),
            Column(name="precision", label="precision", kind=NUMBER),
            Column(name="mae", label="MAE", kind=NUMBER),
        ),
        rows=tuple(rows),
    )


MISSING_CELL = TableCell(text=MISSING)


def _number(value: float) -> TableCell:
    return TableCell(text=f"{value:.3f}", value=float(value)) if math.isfinite(value) else MISSING_CELL


def _confusion(judged: JudgedSide, grades: Sequence[str]) -> CaptionedFigure:
    counts = judged.confusion.astype(np.float64)
    rows = "true grade" if judged.true else "given label"
    return CaptionedFigure(
        name=f"answers-{judged.name}",
        figure=confusion_figure({f"{judged.name.capitalize()} side": counts}, grades=grades, rows=rows),
        caption="Confusion matrix; every sample counts once. Colour and percentage: share of the row; below it the "
        "count.",
        alt=f"Confusion matrix. Share predicted correctly: {np.trace(counts) / max(counts.sum(), 1):.2f}.",
    )


def examples_section(judged: JudgedSide, *, grades: Sequence[str]) -> Section | None:
    """Examples of right, near and far answers with their images; None if no image file is there any more."""
    distance = np.abs(judged.predicted - judged.labels)
    kinds = {"right": distance == 0, "off by one": distance == 1, "off by more": distance > 1}
    tiles = []
    for kind, mask in kinds.items():
        rows = _spread(np.flatnonzero(mask), judged)
        pictures = [(row, picture) for row in rows if (picture := _picture(judged, row))]
        tiles += [
            Tile(
                picture=picture,
                title=grades[judged.labels[row]]
                if kind == "right"
                else f"{grades[judged.labels[row]]} → {grades[judged.predicted[row]]}",
                number=kind,
                text=judged.samples.ids[row],
            )
            for row, picture in pictures[:EXAMPLES]
        ]
    if not tiles:
        return None
    what = "true grade" if judged.true else "given label"
    text = (
        f"Up to {EXAMPLES} answers of each kind, chosen at random, of different patients where there are enough. "
        f"“A → B”: {what} A, predicted B."
    )
    return Section(slug="examples", heading="Examples", text=[text], tiles=tiles)


def _spread(rows: np.ndarray, judged: JudgedSide) -> list[int]:
    """Rows in a reproducible random order: one of each group first."""
    order = np.random.default_rng(0).permutation(rows).tolist()
    owners = judged.samples.groups or judged.samples.ids
    seen: set[str] = set()
    first = [row for row in order if not (owners[row] in seen or seen.add(owners[row]))]  # type: ignore[func-returns-value]
    return [*first, *(row for row in order if row not in set(first))][: 4 * EXAMPLES]


def _picture(judged: JudgedSide, row: int) -> str:
    if judged.samples.images is None:
        return ""
    try:
        return data_uri(
            Image.fromarray(read_image(judged.samples.images[row], size=PICTURE, resize="squash"))
        )
    except (BadImageError, MemoryError):
        return ""
