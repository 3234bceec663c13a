"""Sections about answers for samples with labels: scores with intervals, by grade, examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from srjt.errors import count_of
from srjt.ordinal.baselines import NaiveBaseline
from srjt.ordinal.intervals import Interval
from srjt.ordinal.metrics import METRICS
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.matrices import confusion_figure
from srjt.reports.judged_sides import GradeScores, JudgedSide
from srjt.reports.pages.html import Section, Tile
from srjt.reports.pages.thumbnails import thumbnail
from srjt.reports.tables.statistics import METRIC_NAMES
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell
from srjt.training.record.baselines import NAIVE

__all__ = [
    "answers_section",
    "by_grade_table",
    "confusion_of",
    "describe_examples",
    "example_tiles",
    "examples_section",
    "number_cell",
    "scores_table",
]

EXAMPLES = 6  # of each kind
NUMBER: Literal["number"] = "number"
Ints = npt.NDArray[np.int64]


def answers_section(judged: JudgedSide, *, grades: Sequence[str]) -> Section:
    """How good the answers of ``srjt predict`` are on one side. grades: names for display."""
    what = "true grades" if judged.true else "given labels, which may be wrong"
    unit = "patient" if judged.samples.patients is not None else "sample"
    groups = count_of(len(set(judged.samples.groups or judged.samples.ids)), unit)
    text = [
        f"The answers of srjt predict for the {count_of(len(judged.labels), 'sample')} of the {judged.name} side, "
        f"compared with their {what}. A grade is {judged.grade_rule}.",
        f"The 95 % intervals resample {groups}"
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
        tables=[
            scores_table(judged.intervals, judged.naive),
            by_grade_table(judged.by_grade(), grades),
        ],
        figures=[
            confusion_of(
                judged.confusion,
                grades,
                title=f"{judged.name.capitalize()} side",
                rows="true grade" if judged.true else "given grade",
            )
        ],
    )


def scores_table(intervals: Mapping[str, Interval], naive: NaiveBaseline | None) -> Table:
    """Every metric with its interval, beside the naive baseline if there is one."""
    rows = []
    for name, (_, long_name) in METRIC_NAMES.items():
        if name not in intervals:
            continue
        value, low, high = intervals[name]
        trivial = getattr(naive, name, None)
        rows.append(
            Row(
                cells=(
                    TableCell(text=f"{long_name} {'↓' if METRICS[name].lower_is_better else '↑'}"),
                    number_cell(value),
                    TableCell(text=f"{low:.3f} – {high:.3f}" if math.isfinite(low) else MISSING),
                    *([] if naive is None else [MISSING_CELL if trivial is None else number_cell(trivial)]),
                )
            )
        )
    return Table(
        slug="answers-scores",
        title="Scores",
        caption="" if naive is None else f"N{NAIVE[1:]}.",
        columns=(
            Column(name="metric", label="metric"),
            Column(name="value", label="value", kind=NUMBER),
            Column(name="interval", label="95 % interval", kind=NUMBER),
            *([] if naive is None else [Column(name="naive", label="naive", kind=NUMBER)]),
        ),
        rows=tuple(rows),
    )


def by_grade_table(scores: Sequence[GradeScores], grades: Sequence[str]) -> Table:
    """Recall, precision and error of each grade."""
    rows = [
        Row(
            cells=(
                TableCell(text=grade),
                TableCell(text=f"{samples:,}", value=samples),
                *(number_cell(value) for value in values),
            )
        )
        for grade, (samples, *values) in zip(grades, scores, strict=True)
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


def number_cell(value: float) -> TableCell:
    """A score with three decimals, or a dash."""
    return TableCell(text=f"{value:.3f}", value=float(value)) if math.isfinite(value) else MISSING_CELL


def confusion_of(
    confusion: npt.ArrayLike, grades: Sequence[str], *, title: str, rows: str
) -> CaptionedFigure:
    """The confusion matrix (C, C), rows by label."""
    counts = np.asarray(confusion, dtype=np.float64)
    return CaptionedFigure(
        name=f"answers-{title.split()[0].lower()}",
        figure=confusion_figure({title: counts}, grades=grades, rows=rows),
        caption="Confusion matrix; every sample counts once. Colour and percentage: share of the row; below it the "
        "count.",
        alt=f"Confusion matrix. Share predicted correctly: {np.trace(counts) / max(counts.sum(), 1):.2f}.",
    )


def examples_section(judged: JudgedSide, *, grades: Sequence[str]) -> Section | None:
    """Examples of right, near and far answers with their images; None if no image file is there any more."""
    images = judged.samples.images
    if images is None:
        return None
    tiles = example_tiles(
        judged.labels,
        judged.predicted,
        grades=grades,
        ids=judged.samples.ids,
        owners=judged.samples.groups,
        picture=lambda row: thumbnail(images[row]),
    )
    if not tiles:
        return None
    return Section(
        slug="examples",
        heading="Examples",
        text=[describe_examples("true grade" if judged.true else "given grade")],
        tiles=tiles,
    )


def describe_examples(label: str) -> str:
    """What the tiles of ``example_tiles`` are. label: what the answers are compared with."""
    return (
        f"Up to {EXAMPLES} answers of each kind, chosen at random, of different patients where there are enough. "
        f"“A → B”: {label} A, predicted B."
    )


def example_tiles(
    labels: Ints,
    predicted: Ints,
    *,
    grades: Sequence[str],
    ids: Sequence[str],
    owners: Sequence[str] | None,
    picture: Callable[[int], str],
) -> list[Tile]:
    """Some answers that are right, off by one and off by more, of those whose picture is there."""
    distance = np.abs(predicted - labels)
    kinds = {"right": distance == 0, "off by one": distance == 1, "off by more": distance > 1}
    tiles = []
    for kind, mask in kinds.items():
        rows = _spread(np.flatnonzero(mask), owners=owners or ids)
        pictures = [(row, shown) for row in rows if (shown := picture(row))]
        tiles += [
            Tile(
                picture=shown,
                title=grades[labels[row]]
                if kind == "right"
                else f"{grades[labels[row]]} → {grades[predicted[row]]}",
                number=kind,
                text=ids[row],
            )
            for row, shown in pictures[:EXAMPLES]
        ]
    return tiles


def _spread(rows: Ints, *, owners: Sequence[str]) -> list[int]:
    """Rows in a reproducible random order: one of each group first."""
    order = np.random.default_rng(0).permutation(rows).tolist()
    seen: set[str] = set()
    first = [row for row in order if not (owners[row] in seen or seen.add(owners[row]))]  # type: ignore[func-returns-value]
    return [*first, *(row for row in order if row not in set(first))][: 4 * EXAMPLES]
