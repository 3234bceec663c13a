"""Pages about answers: predictions for new samples, where the networks look, and the sections that compare
answers with labels.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.checks import data_uri
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.manifest import Manifest
from srjt.errors import count_of
from srjt.inference.explain import Explanation, overlay, resized_square
from srjt.ordinal.intervals import Interval
from srjt.ordinal.metrics import METRICS, NaiveBaseline
from srjt.reports.figures.canvas import CaptionedFigure, confusion_figure
from srjt.reports.page import Note, Page, Section, Tile
from srjt.reports.run_summary import GradeScores, JudgedSide, judge_sides
from srjt.reports.sections import made_section, model_section, run_name, thumbnail, thumbnails_of
from srjt.reports.statistics import METRIC_NAMES
from srjt.reports.table import MISSING, Column, Row, Table, TableCell
from srjt.training.folder import NAIVE
from srjt.training.trained import Trained

# Sections about answers for samples with labels: scores with intervals, by grade, examples.

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


# The page of predictions for new samples: nothing on it needs a label of theirs.

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
    return run.grades.show(str(grade))


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


# The page of ``srjt explain``: each image, where each network looks, and similar training images.

PICTURE = 320  # pixels: about twice the size on the page, for high-resolution screens
SIMILAR = 144


def explain_page(found: Explanation, *, title: str) -> Page:
    """The page for a result of ``srjt.explain``; ``title`` names the run."""
    samples, networks = len(found.images), len(found.maps)
    images = count_of(samples, "image")
    return Page(
        kind="Explanation",
        title=title,
        lead=f"{images}, and where {'the network looks' if networks == 1 else 'the two networks look'}.",
        notes=[Note(text=f"{len(found.skipped):,} could not be read and are left out.")]
        if found.skipped
        else [],
        sections=[
            _how_to_read(found),
            Section(slug="images", heading="Images", parts=[_image(found, row) for row in range(samples)]),
        ],
    )


def _how_to_read(found: Explanation) -> Section:
    text = [
        "Orange places raise the expected grade, blue places lower it. The stronger the colour, the more; each map has "
        "its own scale, given in grades. Maps are coarse: the network's last feature map has "
        f"{found.maps.shape[2]} × {found.maps.shape[3]} places.",
        "A map shows what the network used, not what is there. It is no evidence that a prediction is right.",
    ]
    facts = []
    if found.network_correlation is not None:
        facts.append(("rank correlation of the two networks' maps", f"{found.network_correlation:.2f}"))
    if found.random_correlation is not None:
        facts.append(("… with maps of networks with random weights", f"{found.random_correlation:.2f}"))
        text.append(
            "As a check, the maps are compared with those of networks with random weights: a correlation near 1 would "
            "mean that the maps show the image and not what was learnt."
        )
    return Section(slug="how-to-read", heading="How to read the maps", text=text, facts=facts)


def _image(found: Explanation, row: int) -> Section:
    prediction = found.predictions.iloc[row]
    grades = [name.removeprefix("p_") for name in found.predictions.columns if name.startswith("p_")]
    image, maps = found.images[row], found.maps[:, row]
    tiles = [Tile(picture=data_uri(resized_square(image, PICTURE)), title="image")]
    tiles += [
        Tile(
            picture=data_uri(overlay(image, heat, side=PICTURE)),
            title="where it looks" if len(maps) == 1 else f"network {number}",
            number=f"scale ± {np.abs(heat).max():.2g}",
        )
        for number, heat in enumerate(maps, start=1)
    ]
    probabilities = ", ".join(
        f"{found.grades.show(grade)}: {prediction[f'p_{grade}']:.2f}" for grade in grades
    )
    return Section(
        slug=f"image-{row + 1}",
        heading=str(prediction["image"]),
        facts=[
            ("predicted grade", found.grades.show(str(prediction["grade"]))),
            ("expected grade", f"{prediction['expected_grade']:.2f}"),
            ("probabilities", probabilities),
        ],
        large_tiles=tiles,
        tiles=_similar(found, row),
    )


def _similar(found: Explanation, row: int) -> list[Tile]:
    if found.neighbours is None or found.training is None:
        return []
    names, labels, ids = found.training.grades, found.training.labels, found.training.ids
    return [
        Tile(
            picture=_training_picture(found, place),
            title=f"labelled {found.grades.show(names[labels[place]])}",
            number=f"similar {rank}",
            text=ids[place],
        )
        for rank, place in enumerate(found.neighbours[row], start=1)
    ]


def _training_picture(found: Explanation, row: int) -> str:
    assert found.training is not None
    try:
        if found.training.arrays is None:
            pixels = read_image(found.training.paths[row], size=SIMILAR, resize="squash")
        else:
            pixels = np.asarray(found.training.arrays[row], dtype=np.uint8)
    except BadImageError:
        return ""
    return data_uri(resized_square(pixels, SIMILAR))
