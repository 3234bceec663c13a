"""What the report of an audit says: how noisy the labels are, whose they are, and pictures of the worst."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from srjt.data.images.decode import read_image
from srjt.errors import SrjtError
from srjt.reports.figures.canvas import GREY, PALETTE, CaptionedFigure, house_style, new_figure
from srjt.reports.figures.matrices import matrix_figure
from srjt.reports.pages.html import Note, Page, Section, Tile
from srjt.reports.tables.table import Column, Row, Table, TableCell

__all__ = ["audit_page", "thumbnail"]

WORST = 60  # labels shown
SIDE = 144  # pixels of a thumbnail: sharp also where a screen has two to a point
PATIENTS = 20  # in the table; the rest is in summary.json
BINS = 20


def audit_page(folder: Path) -> Page:
    """The audit in a folder of ``srjt audit``."""
    facts, summary, scores = _read(folder)
    low, high = summary["rate_interval"]
    name = Path(facts["source"]).name or folder.resolve().name
    said = f"About {summary['rate']:.0%} of {len(scores):,} labels are wrong (95 %: {low:.0%} to {high:.0%})."
    if not summary["identifiable"]:
        said = (
            f"How many of {len(scores):,} labels are wrong is not settled; a guess is {summary['rate']:.0%}."
        )
    notes = []
    if not summary["identifiable"]:
        notes.append(
            Note(
                text="The data do not settle how many labels are wrong "
                f"({str(summary['reason']).rstrip('.')}): take the rate and the matrix as a guess. The order of the "
                "labels below still says which ones to look at first."
            )
        )
    elif summary.get("caution"):  # audits made before it was looked for do not have it
        caution = str(summary["caution"])
        notes.append(Note(text=caution[0].upper() + caution[1:]))
    if not facts["columns"]["patient"]:
        notes.append(
            Note(
                text="There are no patient ids: images of one patient may have been learnt from and judged at once, "
                "which makes wrong labels look right."
            )
        )
    sections = [
        _noise(facts, summary, scores),
        _doubtful(folder, summary, scores),
        _rates(summary),
        _made(folder, facts),
    ]
    return Page(
        kind="Label audit",
        title=name,
        lead=f"{said} For {summary['another_likelier']:,} labels another grade is likelier than the one given.",
        notes=notes,
        sections=sections,
    )


def thumbnail(path: Path, *, side: int = SIDE) -> str:
    """An image as a data URI, its longer side ``side`` pixels; "" where it cannot be read."""
    from PIL import Image

    try:
        picture = Image.fromarray(read_image(path))
    except SrjtError:
        return ""
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _noise(facts: Mapping[str, Any], summary: Mapping[str, Any], scores: pd.DataFrame) -> Section:
    low, high = summary["rate_interval"]
    grades = [str(grade) for grade in facts["grades"]]
    panels = {"Estimated": np.asarray(summary["matrix"], dtype=np.float64)}
    known = summary.get("known")
    said = [
        ("noise rate", f"{summary['rate']:.1%} (95 %: {low:.1%} to {high:.1%})"),
        ("form", _FORMS.get(str(summary["form"]), str(summary["form"]))),
        ("expected wrong labels", f"{summary['expected_errors']:,.0f} of {summary['samples']:,}"),
    ]
    if known is not None:
        said.append(("known to be wrong", f"{known['wrong']:,} of {summary['samples']:,}"))
        if "average_precision" in known:
            said.append(
                (
                    "found",
                    f"average precision {known['average_precision']:.3f} (by chance {known['rate']:.3f}); of the "
                    f"{known['wrong']:,} worst labels {known['precision_at_wrong']:.1%} are wrong",
                )
            )
        panels["Known"] = _realised(scores, grades)
    return Section(
        slug="noise",
        heading="Noise",
        facts=said,
        figures=[
            CaptionedFigure(
                name="matrix",
                figure=matrix_figure(
                    panels,
                    grades=grades,
                    rows="true grade",
                    columns="label",
                    write=lambda value, share: f"{value:.2f}",
                ),
                caption="How often a grade (row) gets which label (column). The diagonal is right.",
                alt="Estimated probability of each label for each true grade: "
                + "; ".join(
                    f"{grade}: {', '.join(f'{p:.2f}' for p in row)}"
                    for grade, row in zip(grades, summary["matrix"], strict=True)
                ),
            ),
            CaptionedFigure(
                name="quality",
                figure=_histogram(scores["quality"].to_numpy(np.float64)),
                caption="How likely each label is to be right. What stands at the left is worth a look.",
                alt=f"Histogram of label quality; {int((scores['quality'] < 0.5).sum()):,} labels are below 0.5.",
            ),
        ],
    )


_FORMS = {
    "quasi": "quasi: an error by two grades is half as likely as one by one grade, and so on",
    "truncated": "truncated: errors by one grade only",
    "banded": "banded: each grade with errors of its own, fewer the further away",
}


def _realised(scores: pd.DataFrame, grades: Sequence[str]) -> npt.NDArray[np.float64]:
    """(C, C) shares of each true grade's labels, where the truth is known."""
    counts = pd.crosstab(scores["true_grade"], scores["grade"]).reindex(
        index=list(grades), columns=list(grades), fill_value=0
    )
    joint = counts.to_numpy(np.float64)
    return np.asarray(joint / np.maximum(joint.sum(axis=1, keepdims=True), 1))


def _probability(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 else "< 0.001"


@house_style
def _histogram(quality: npt.NDArray[np.float64]) -> Figure:
    figure = new_figure(4.6, 2.5)
    axes = figure.add_axes((0.16, 0.19, 0.81, 0.75))
    counts, edges = np.histogram(quality, bins=BINS, range=(0, 1))
    colours = [PALETTE["vermillion"] if edge < 0.5 - 1e-9 else PALETTE["blue"] for edge in edges[:-1]]
    axes.bar(edges[:-1], counts, width=0.9 / BINS, align="edge", color=colours, alpha=0.8)
    axes.axvline(0.5, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), xlabel="quality: probability that the label is right", ylabel="labels")
    return figure


def _doubtful(folder: Path, summary: Mapping[str, Any], scores: pd.DataFrame) -> Section:
    worst = scores.head(WORST)
    pictures = [thumbnail(folder / image) if image else "" for image in worst["image"].fillna("")]
    text = [
        f"The {len(worst)} labels that are least likely to be right, worst first: the grade as given → the likeliest "
        "one, and the probability that the given one is right."
    ]
    if not any(pictures):
        return Section(
            slug="doubtful", heading="The most doubtful labels", text=text, tables=[_worst_table(worst)]
        )
    tiles = [
        Tile(
            picture=picture,
            title=_verdict(str(row["grade"]), str(row["suggested"])),
            share=float(row["quality"]),
            number=_probability(row["quality"]),
            text=str(row["id"]),
            right=row["grade"] == row["suggested"],
        )
        for picture, row in zip(pictures, worst.to_dict("records"), strict=True)
    ]
    return Section(slug="doubtful", heading="The most doubtful labels", text=text, tiles=tiles)


def _verdict(grade: str, suggested: str) -> str:
    return f"{grade}, unsure" if grade == suggested else f"{grade} → {suggested}"


def _worst_table(worst: pd.DataFrame) -> Table:
    rows = [
        Row(
            cells=(
                TableCell(text=str(row["id"])),
                TableCell(text=str(row["grade"])),
                TableCell(text=str(row["suggested"])),
                TableCell(text=_probability(row["quality"]), value=float(row["quality"])),
            )
        )
        for row in worst.to_dict("records")
    ]
    return Table(
        slug="worst",
        title="Worst first",
        caption="All labels are in audit.csv.",
        columns=(
            Column(name="id", label="sample"),
            Column(name="grade", label="grade"),
            Column(name="suggested", label="suggested"),
            Column(name="quality", label="quality", kind="number"),
        ),
        rows=tuple(rows),
    )


def _rates(summary: Mapping[str, Any]) -> Section:
    tables = [_rate_table("grade", "By given grade", summary["grades"], "")]
    if summary["readers"] is not None:
        tables.append(_rate_table("reader", "By reader, most errors first", summary["readers"], ""))
    if summary["patients"] is not None:
        few = summary["patients"][:PATIENTS]
        title = "By patient, most errors first"
        if len(few) < len(summary["patients"]):
            title += f": {len(few)} of {len(summary['patients']):,}"
        tables.append(_rate_table("patient", title, few, "All patients are in summary.json."))
    text = [
        "Expected errors are the sum of 1 − quality. The intervals are Wilson's for a share, as if labels were "
        "independent of each other; how sure the estimate of the noise is does not enter them."
    ]
    return Section(slug="rates", heading="Error rates", text=text, tables=tables)


def _rate_table(who: str, title: str, found: Sequence[Mapping[str, Any]], caption: str) -> Table:
    rows = [
        Row(
            cells=(
                TableCell(text=str(row[who]).strip() or "(not given)"),
                TableCell(text=f"{row['samples']:,}", value=float(row["samples"])),
                TableCell(text=f"{row['expected_errors']:,.1f}", value=float(row["expected_errors"])),
                TableCell(text=f"{row['rate']:.1%}", value=float(row["rate"])),
                TableCell(
                    text=f"{row['interval'][0]:.1%} – {row['interval'][1]:.1%}",
                    value=float(row["interval"][0]),
                ),
            )
        )
        for row in found
    ]
    return Table(
        slug=f"rates-{who}",
        title=title,
        caption=caption,
        columns=(
            Column(name=who, label=who),
            Column(name="samples", label="labels", kind="number"),
            Column(name="expected_errors", label="expected errors", kind="number"),
            Column(name="rate", label="error rate", kind="number"),
            Column(name="interval", label="95 % interval", kind="number"),
        ),
        rows=tuple(rows),
    )


def _made(folder: Path, facts: Mapping[str, Any]) -> Section:
    return Section(
        slug="made",
        heading="How it was made",
        text=[
            "Every label was judged by networks that had seen neither its image nor any other of its patient. To go "
            "through the doubtful ones and correct them:"
        ],
        code=f"srjt review {folder}",
        facts=[
            ("source", str(facts["source"])),
            ("samples", f"{facts['samples']:,}"),
            ("method", str(facts["method"])),
            ("network", str(facts["network"])),
            ("folds", str(facts["folds"])),
            ("seed", str(facts["seed"])),
            ("srjt", str(facts["version"])),
            ("made", str(facts["created"])),
        ],
    )


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any], pd.DataFrame]:
    try:
        facts = json.loads((folder / "audit.json").read_text())
        summary = json.loads((folder / "summary.json").read_text())
        names = ("id", "image", "grade", "suggested", "patient", "reader", "true_grade")
        scores = pd.read_csv(
            folder / "audit.csv",
            dtype=dict.fromkeys(names, str),
            keep_default_na=False,
            na_values={"selected": [""]},
            encoding_errors="surrogateescape",
        )
    except FileNotFoundError as problem:
        raise SrjtError(
            f"{folder} is not the folder of an audit: there is no {Path(problem.filename).name} in it."
        ) from None
    except (OSError, ValueError) as problem:
        raise SrjtError(f"The audit in {folder} is damaged or not from srjt ({problem}).") from None
    return facts, summary, scores
