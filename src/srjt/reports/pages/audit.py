"""The page of an audit: the noise estimate, the most doubtful labels and readings with small pictures, error
rates.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from srjt.auditing.folder import (
    estimate_start,
    estimated_from,
    form_sentence,
    image_file,
    label_noun,
    read_audit,
    read_facts,
    read_scores,
    read_summary,
    readers_sentence,
)
from srjt.auditing.scores import (
    MAY_HELP,
    judges_labels,
    networks_sentence,
    suggestions_sentence,
    undetermined,
    verification_plan,
    verified_alone,
)
from srjt.data.checks import data_uri
from srjt.data.grades import Grades
from srjt.data.images.decode import BadImageError, read_image
from srjt.errors import SrjtError, count_of
from srjt.reports.figures.canvas import GREY, PALETTE, CaptionedFigure, house_style, matrix_figure, new_figure
from srjt.reports.page import Note, Page, Section, Tile
from srjt.reports.table import Column, Row, Table, TableCell

# The section about the noise on the page of an audit: rate, form, matrix, and how likely labels are right.

BINS = 20


def noise_section(facts: Mapping[str, Any], summary: Mapping[str, Any], scores: pd.DataFrame) -> Section:
    low, high = summary["rate_interval"]
    judged = judges_labels(summary)
    grades = [str(grade) for grade in facts["grades"]]
    known = summary.get("known")
    panels = {}
    term = "noise rate, without the single readings" if "readings" in summary else "noise rate"
    if judged or summary["identifiable"]:
        guess = "" if summary["identifiable"] else "a guess: "
        entries = [
            (term, f"{guess}{summary['rate']:.1%} (95 % interval: {low:.1%} to {high:.1%})"),
            *_verified_entry(summary),
            ("likeliest form of noise", form_sentence(summary)),
        ]
        panels["Estimated"] = np.asarray(summary["matrix"], dtype=np.float64)
    else:
        entries = [(term, f"not determined: {low:.1%} to {high:.1%}"), *_verified_entry(summary)]
    if judged:
        entries.append(
            (
                f"expected wrong {label_noun(summary)}s",
                f"{summary['expected_errors']:,.0f} of {summary['samples']:,}",
            )
        )
    if known is not None:
        entries.append(("known wrong labels", f"{known['wrong']:,} of {summary['samples']:,}"))
        if "average_precision" in known:
            entries.append(
                (
                    "ranking",
                    f"average precision {known['average_precision']:.1%} (by chance {known['rate']:.1%}); of the "
                    f"{known['wrong']:,} most doubtful labels {known['precision_at_wrong']:.1%} are wrong",
                )
            )
        panels["Known"] = _known_matrix(scores, grades)
    return Section(
        slug="noise",
        heading="Noise",
        text=[_source(facts, readers="readings" in summary)] if "epochs" in facts else [],
        facts=entries,
        figures=[
            *([_matrix(panels, grades)] if panels else []),
            *([_quality(scores["quality"].to_numpy(np.float64))] if judged else []),
        ],
    )


def _matrix(panels: Mapping[str, npt.NDArray[np.float64]], grades: Sequence[str]) -> CaptionedFigure:
    kind, matrix = next(iter(panels.items()))
    rows = (
        f"{grade}: {', '.join(f'{p:.2f}' for p in row)}" for grade, row in zip(grades, matrix, strict=True)
    )
    return CaptionedFigure(
        name="matrix",
        figure=matrix_figure(
            panels,
            grades=grades,
            rows="true grade",
            columns="label",
            write=lambda value, share: f"{value:.2f}",
        ),
        caption="The probability of each label (column) for each true grade (row). The diagonal is correct labels.",
        alt=f"{kind} probability of each label for each true grade: {'; '.join(rows)}",
    )


def _quality(quality: npt.NDArray[np.float64]) -> CaptionedFigure:
    return CaptionedFigure(
        name="quality",
        figure=_histogram(quality),
        caption="The probability that each label is right. Review those on the left.",
        alt=f"Histogram of label quality; below 0.5: {count_of(int((quality < 0.5).sum()), 'label')}.",
    )


def _source(facts: Mapping[str, Any], *, readers: bool) -> str:
    return estimated_from(
        samples=int(facts["samples"]),
        folds=int(facts["folds"]),
        epochs=int(facts["epochs"]),
        readers=readers,
    )


def _verified_entry(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "verified" not in summary:
        return []
    return [("verified labels alone", verified_alone(summary["verified"]))]


def _known_matrix(scores: pd.DataFrame, grades: Sequence[str]) -> npt.NDArray[np.float64]:
    """(C, C) proportions of the labels for each known true grade."""
    counts = pd.crosstab(scores["true_grade"], scores["grade"]).reindex(
        index=list(grades), columns=list(grades), fill_value=0
    )
    joint = counts.to_numpy(np.float64)
    return np.asarray(joint / np.maximum(joint.sum(axis=1, keepdims=True), 1))


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


# The most doubtful readings, as a section of a page.

SHOWN = 40


def doubtful_readings(folder: Path, *, grades: Grades) -> Section:
    """Of an audit of several readers: who said what, and how likely it is right."""
    path = folder / "readings.csv"
    try:
        found = pd.read_csv(path, dtype=str, keep_default_na=False)
        found["quality"] = found["quality"].astype(float)
    except (OSError, ValueError, KeyError) as problem:
        raise SrjtError(f"{path} cannot be read ({problem}): run srjt audit again.") from None
    few = found.head(SHOWN)
    which = (
        "All readings"
        if len(few) == len(found)
        else f"The {len(few)} most doubtful of {len(found):,} readings"
    )
    rows = [
        Row(
            cells=(
                TableCell(text=str(row["id"])),
                TableCell(text=str(row["reader"])),
                TableCell(text=grades.show(str(row["grade"]))),
                TableCell(text=grades.show(str(row["suggested"]))),
                TableCell(text=f"{row['quality']:.3f}", value=float(row["quality"])),
            )
        )
        for row in few.to_dict("records")
    ]
    table = Table(
        slug="readings",
        title="Most doubtful first",
        caption="Quality is the probability that a reading is right. All readings are in readings.csv.",
        columns=(
            Column(name="id", label="sample"),
            Column(name="reader", label="reader"),
            Column(name="grade", label="read as"),
            Column(name="suggested", label="most probable"),
            Column(name="quality", label="quality", kind="number"),
        ),
        rows=tuple(rows),
    )
    return Section(slug="readings", heading="The most doubtful readings", text=[f"{which}."], tables=[table])


# The report of an audit: the noise estimate, the most doubtful labels with thumbnails, and error rates.

WORST = 60  # labels shown
THUMBNAIL_SIZE = 144  # pixels: twice the size on the page, for high-resolution screens
PATIENTS = 20  # in the table; all are in summary.json


def audit_page(folder: Path, *, maps: bool = False, grade_names: Mapping[str, str] | None = None) -> Page:
    """The page for a folder that ``srjt audit`` has written.

    maps: with where the networks look. grade_names: instead of the audit's own.
    """
    facts, summary = read_facts(folder), read_summary(folder)
    scores = read_scores(
        folder, facts, encoding_errors="surrogateescape"
    )  # a file name need not be valid UTF-8
    grades = Grades(facts["grades"], facts.get("grade_names")).named(grade_names)
    try:
        scores["quality"] = scores["quality"].astype(np.float64)
        shown = dict(zip(grades, grades.shown, strict=True))
        facts = {**facts, "grades": grades.shown, "as_read": grades}
        summary = {**summary, "grades": [{**row, "grade": _named(row, shown)} for row in summary["grades"]]}
        for column in {"grade", "suggested", "true_grade"} & set(scores.columns):
            scores[column] = scores[column].map(lambda grade: shown.get(grade, grade))
        return _page(folder, facts, summary, scores, names=shown, maps=maps)
    except (KeyError, TypeError, ValueError) as problem:
        raise SrjtError(f"The audit in {folder} is damaged or not from srjt ({problem}).") from None


def _named(row: Mapping[str, Any], shown: Mapping[str, str]) -> str:
    grade = str(row["grade"])
    return shown.get(grade, grade)


def _page(
    folder: Path,
    facts: Mapping[str, Any],
    summary: Mapping[str, Any],
    scores: pd.DataFrame,
    *,
    names: Mapping[str, str],
    maps: bool,
) -> Page:
    low, high = summary["rate_interval"]
    noun, judged = label_noun(summary), judges_labels(summary)
    labels = count_of(len(scores), noun)
    if several := readers_sentence(summary):
        rate = several
    elif summary["identifiable"]:
        rate = f"About {summary['rate']:.0%} of {labels} are wrong (95 % interval: {low:.0%} to {high:.0%})."
    elif judged:
        rate = (
            f"The data do not determine how many of {labels} are wrong: {low:.0%} to {high:.0%}; a guess is "
            f"{summary['rate']:.0%}."
        )
    else:
        rate = undetermined(summary, labels)
    lead = [str(summary.get("caveat", "")), networks_sentence(summary, names), rate]
    if judged:
        lead.append(suggestions_sentence(summary, noun) or _another_likelier(summary, noun))
    notes = []
    if not judged and not summary["identifiable"]:
        notes.append(Note(text=f"{MAY_HELP} {verification_plan(summary)}"))
    elif not summary["identifiable"]:
        guess_only = (
            f"The data do not determine how many {noun}s are wrong ({str(summary['reason']).rstrip('.')}): use the "
            "rate and the matrix as a guess only."
        )
        sentences = [
            estimate_start(summary, guess_only),
            "The ranking of the labels can be useful all the same." if summary.get("learnt", True) else "",
            str(summary.get("assumption", "")),
            verification_plan(summary),
        ]
        notes.append(Note(text=" ".join(sentence for sentence in sentences if sentence)))
    elif note := str(summary.get("assumption") or ""):
        notes.append(Note(text=f"{note[0].upper()}{note[1:]} {verification_plan(summary)}".strip()))
    if "readings" in summary:
        notes.append(
            Note(
                text="Several readers graded these samples, and a label is their consensus. How likely it is right "
                "follows from all readings of the sample and from the networks; the noise rate below is estimated "
                "from the consensus and the networks alone."
            )
        )
    if not facts["columns"]["patient"]:
        notes.append(
            Note(
                text="There are no patient ids. If several samples belong to one patient, a label may have been judged "
                "by networks that were trained on that patient, which makes wrong labels look right."
            )
        )
    return Page(
        kind="Label audit",
        title=Path(facts["source"]).name or folder.resolve().name,
        lead=" ".join(sentence for sentence in lead if sentence),
        notes=notes,
        sections=[
            *([_networks(summary["networks"], names)] if "networks" in summary else []),
            noise_section(facts, summary, scores),
            _doubtful(folder, scores, maps=maps, judged=judged),
            *([doubtful_readings(folder, grades=facts["as_read"])] if "readings" in summary else []),
            *([_rates(summary)] if judged else []),
            _method(folder, facts, judged=judged),
        ],
    )


def _networks(found: Mapping[str, Any], names: Mapping[str, str]) -> Section:
    """What the networks are worth, before anything that rests on them."""
    rows = tuple(
        Row(
            cells=(
                TableCell(text=names.get(str(row["grade"]), str(row["grade"]))),
                TableCell(text=f"{row['labels']:,}", value=float(row["labels"])),
                TableCell(text=f"{row['recall']:.0%}", value=float(row["recall"])),
                TableCell(text="yes" if row["recognised"] else "no"),
            )
        )
        for row in found["grades"]
    )
    table = Table(
        slug="recall",
        title="Recall of each given grade",
        caption="Recognised: the networks give the grade more often to samples with this label than to others, beyond "
        "two standard errors. No grade is suggested from or to one that is not recognised.",
        columns=(
            Column(name="grade", label="grade"),
            Column(name="labels", label="labels", kind="number"),
            Column(name="recall", label="recall", kind="number"),
            Column(name="recognised", label="recognised"),
        ),
        rows=rows,
    )
    return Section(
        slug="networks",
        heading="Networks",
        text=[
            "Held-out grades of the networks, compared with the labels, which are partly wrong themselves."
        ],
        facts=[
            (
                "accuracy",
                f"{found['accuracy']:.1%}; always the most frequent label: {found['naive_accuracy']:.1%}",
            ),
            ("MAE", f"{found['mae']:.3f}; always the median label: {found['naive_mae']:.3f}"),
        ],
        tables=[table],
    )


def thumbnail(folder: Path, name: str, *, size: int = THUMBNAIL_SIZE) -> str:
    """A sample's image as a data URI, its longer side ``size`` pixels; "" if it cannot be read or may not be shown.

    name: the sample's cell in the column ``image``.
    """
    from PIL import Image

    try:
        image = Image.fromarray(read_image(image_file(folder, name)))
    except (SrjtError, MemoryError):
        return ""
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    return data_uri(image)


def _probability(value: float) -> str:
    if value < 0.0005:
        return "< 0.001"
    return f"{value:.3f}" if value < 0.9995 else "> 0.999"


def _doubtful(folder: Path, scores: pd.DataFrame, *, maps: bool, judged: bool) -> Section:
    """judged: with the suggested grades and the probabilities."""
    worst = scores.head(WORST)
    looks = _look_maps(folder, len(worst)) if maps else [[]] * len(worst)
    pictures = [thumbnail(folder, name) for name in worst["image"]]
    which = "All labels" if len(worst) == len(scores) else f"The {len(worst)} most doubtful labels"
    heading = "The most doubtful labels"
    text = [f"{which}, the most doubtful first, with the probability that each one is right."]
    if not judged:
        heading, which = (
            "The labels",
            "All labels" if len(worst) == len(scores) else f"The first {len(worst)} labels",
        )
        text = [f"{which}, in the order of the list, which may be chance."]
    if not any(pictures):
        table = _worst_table(worst, judged=judged)
        return Section(slug="doubtful", heading=heading, text=text, tables=[table])
    if judged:
        text.append("“A → B” is a label A for which grade B is suggested.")
    if any(looks):
        text.append("Where they look: orange raises the expected grade of the networks, blue lowers it.")
    if "twins" in worst:
        text.append(
            "The first ones are identical images with different labels, side by side: one of these labels is wrong for "
            "certain."
        )
    tiles = [
        Tile(
            picture=picture,
            title=_change(str(row["grade"]), str(row["suggested" if judged else "grade"])),
            share=float(row["quality"]) if judged else None,
            number=_probability(row["quality"]) if judged else "",
            text=str(row["id"]) + (f" (identical images, {row['twins']})" if row.get("twins") else ""),
            more=look,
            right=judged and row["grade"] == row["suggested"],
        )
        for picture, look, row in zip(pictures, looks, worst.to_dict("records"), strict=True)
    ]
    return Section(slug="doubtful", heading=heading, text=text, tiles=tiles)


def _look_maps(folder: Path, count: int) -> list[list[str]]:
    """Where the networks look, for the first lines of the audit; an empty list for an image that cannot be read."""
    from srjt.auditing.audit import look_maps, map_problem

    audit = read_audit(folder)
    if (problem := map_problem(audit)) is not None:
        raise SrjtError(problem)
    found = []
    for line in range(count):
        try:
            found.append([data_uri(picture) for picture in look_maps(audit, line)])
        except BadImageError:
            found.append([])
    return found


def _change(grade: str, suggested: str) -> str:
    return grade if suggested in (grade, "") else f"{grade} → {suggested}"


def _another_likelier(summary: Mapping[str, Any], noun: str) -> str:
    another = count_of(summary["another_likelier"], noun)
    return f"For {another} another grade is more probable than the given one."


def _worst_table(worst: pd.DataFrame, *, judged: bool) -> Table:
    shown = 4 if judged else 2  # columns
    rows = [
        Row(
            cells=(
                TableCell(text=str(row["id"])),
                TableCell(text=str(row["grade"])),
                TableCell(text=str(row["suggested"]) or "none"),
                TableCell(text=_probability(row["quality"]), value=float(row["quality"])),
            )[:shown]
        )
        for row in worst.to_dict("records")
    ]
    return Table(
        slug="worst",
        title="Most doubtful first" if judged else "In the order of the list",
        caption="All labels are in audit.csv.",
        columns=(
            Column(name="id", label="sample"),
            Column(name="grade", label="grade"),
            Column(name="suggested", label="suggested"),
            Column(name="quality", label="quality", kind="number"),
        )[:shown],
        rows=tuple(rows),
    )


def _rates(summary: Mapping[str, Any]) -> Section:
    tables = [_rate_table("grade", "By given grade", summary["grades"], "")]
    if summary["readers"] is not None:
        each = "readings" if "readings" in summary else "labels"
        tables.append(
            _rate_table("reader", "By reader, most errors first", summary["readers"], "", each=each)
        )
    if summary["patients"] is not None:
        few = summary["patients"][:PATIENTS]
        title = "By patient, most errors first"
        if len(few) < len(summary["patients"]):
            title += f": {len(few)} of {len(summary['patients']):,}"
        tables.append(_rate_table("patient", title, few, "All patients are in summary.json."))
    text = [
        "Expected errors are the sum of 1 − quality, where quality is the probability that a label is right. The "
        "intervals are Wilson intervals: they treat labels as independent, and do not include the uncertainty of the "
        "noise estimate."
    ]
    return Section(slug="rates", heading="Error rates", text=text, tables=tables)


def _rate_table(
    who: str, title: str, found: Sequence[Mapping[str, Any]], caption: str, *, each: str = "labels"
) -> Table:
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
            Column(name="samples", label=each, kind="number"),
            Column(name="expected_errors", label="expected errors", kind="number"),
            Column(name="rate", label="error rate", kind="number"),
            Column(name="interval", label="95 % interval", kind="number"),
        ),
        rows=tuple(rows),
    )


def _method(folder: Path, facts: Mapping[str, Any], *, judged: bool) -> Section:
    sample = "sample" if facts.get("features") else "image"
    excluded = f"not trained on its {sample}"
    if facts["columns"]["patient"]:
        excluded = f"trained on neither its {sample} nor any other {sample} of the same patient"
    return Section(
        slug="method",
        heading="Method",
        text=[
            f"Every label was judged by networks that were {excluded}. To review and correct "
            f"{'the doubtful' if judged else 'the'} labels:"
        ],
        code=f"srjt review {shlex.quote(str(folder))}",
        facts=[
            ("source", str(facts["source"])),
            ("samples", f"{facts['samples']:,}"),
            ("method", str(facts["method"])),
            ("network", str(facts["network"])),
            ("folds", str(facts["folds"])),
            *([("epochs", str(facts["epochs"]))] if "epochs" in facts else []),
            ("seed", str(facts["seed"])),
            ("srjt", str(facts["version"])),
            ("created", str(facts["created"])),
        ],
    )
