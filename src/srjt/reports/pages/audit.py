"""The page of an audit: how many labels are probably wrong, how good the networks are, the most doubtful labels."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from srjt.auditing.audit import Audit, look_maps, map_problem
from srjt.auditing.folder import image_file, read_audit, read_facts, read_scores, read_summary
from srjt.auditing.scores import WITHIN, judges_labels
from srjt.data.checks import data_uri
from srjt.data.grades import Grades
from srjt.data.images.decode import BadImageError
from srjt.errors import SrjtError, count_of
from srjt.noise.model import FORMS
from srjt.reports.figures.canvas import (
    GREY,
    PALETTE,
    CaptionedFigure,
    house_style,
    new_figure,
    transition_figure,
)
from srjt.reports.page import KeyNumber, Page, Rule, Section, Tile, first_sentence, page_of, sentences
from srjt.reports.sections import thumbnail as file_thumbnail
from srjt.reports.sections import thumbnails_of
from srjt.reports.table import Table, between, data_table

WORST = 60  # labels shown
PATIENTS = 20  # in the table; all are in summary.json
BINS = 20

LEAD: list[Rule[Any]] = [
    (lambda f: not f.judged, "The networks have not learnt to tell the grades apart: they cannot say which labels "
     "are wrong."),
    (lambda f: f.several, "About {f.wrong:.0%} of {f.samples:,} consensus grades and {f.wrong_readings:.0%} of "
     "{f.readings:,} readings are expected to be wrong."),
    (lambda f: f.identifiable, "About {f.rate:.0%} of {f.samples:,} labels are wrong ({f.low:.0%} to {f.high:.0%})."),
    (lambda f: True, "How many of {f.samples:,} labels are wrong is not known: {f.low:.0%} to {f.high:.0%}."),
]  # fmt: skip
SUGGESTIONS: list[Rule[Any]] = [
    (lambda f: f.judged and f.suggested, "For {f.suggested} another grade is suggested; about {f.right:.0%} of "
     "these are right."),
    (lambda f: f.judged and f.another and f.suggested == "", "Another grade is more probable for {f.another}, but "
     "none is suggested: where networks and labels differ, the networks may be wrong as often."),
]  # fmt: skip
WARNINGS: list[Rule[Any]] = [
    (lambda f: f.not_beaten, "The networks do not beat one grade for all: they are {f.mae:.2f} grades from the "
     "labels, and always the median would be {f.naive_mae:.2f}."),
    (lambda f: not f.judged, "Longer trainings or more samples may help. The order of the labels may be chance."),
    (lambda f: f.several and not f.learnt, "The networks have not learnt to tell the grades apart: what is said "
     "here rests on the readings."),
    (lambda f: f.verify, "Verify {f.verify}, drawn at random, to know the rate within ±{f.within:.0%}."),
    (lambda f: f.twins, "{f.twins} of identical images contradict each other, and come first: at most one of each "
     "image's is right."),
    (lambda f: not f.patients, "There are no patient ids: a label may be judged by networks that were trained on "
     "its patient, which makes wrong labels look right."),
]  # fmt: skip
REMARKS: list[Rule[Any]] = [
    (lambda f: f.patients, "Every label was judged by networks that were trained neither on its {f.thing} nor on "
     "its patient."),
    (lambda f: not f.patients, "Every label was judged by networks that were not trained on its {f.thing}."),
    (lambda f: True, "The rate is estimated from all {f.samples:,} labels and {f.folds} trainings of {f.epochs}; "
     "srjt train estimates it from less, so its rate may differ."),
    (lambda f: f.judged, "Expected errors are the sum of 1 − quality, the probability that a label is right. Their "
     "intervals treat labels as independent, and do not contain the uncertainty of the noise rate."),
    (lambda f: f.judged and not f.identifiable, "The rate is not known because {f.reason}."),
    (lambda f: f.judged and f.assumption, "{f.assumption}."),
]  # fmt: skip


def audit_facts(facts: Mapping[str, Any], summary: Mapping[str, Any]) -> SimpleNamespace:
    """What the rules know. facts: of ``audit.json``; summary: of ``summary.json``."""
    several, networks = "readings" in summary, summary["networks"]
    low, high = summary["rate_interval"]
    suggestions, noun = summary.get("suggestions"), "consensus grade" if several else "label"
    wrong_readings = sum(row["expected_errors"] for row in summary["readers"]) if several else 0.0
    own = {
        "judged": judges_labels(summary),
        "several": several,
        "noun": noun,
        "low": low,
        "high": high,
        "reason": str(summary["reason"]).rstrip("."),
        "assumption": str(summary["assumption"]).rstrip("."),
        "wrong": summary["expected_errors"] / summary["samples"],
        "wrong_readings": wrong_readings / summary["readings"] if several else 0.0,
        # None: of an audit of readings, which suggest by themselves
        "suggested": None if suggestions is None else _count(suggestions["count"], noun),
        "right": 0.0 if suggestions is None else suggestions["expected_right"],
        "another": _count(summary["another_likelier"], noun),
        "not_beaten": "naive" in summary["caveat"],
        "verify": _count(summary["verify_more"], f"{'more ' if 'verified' in summary else ''}{noun}"),
        "within": WITHIN,
        "twins": _count(summary["twins"]["labels"], "label") if "twins" in summary else "",
        "patients": summary["patients"] is not None,
        "thing": "sample" if facts["features"] else "image",
        "folds": facts["folds"],
        "epochs": count_of(facts["epochs"], "epoch"),
    }
    return SimpleNamespace(**{**summary, **networks, **own})


def _count(number: int, noun: str) -> str:
    return count_of(number, noun) if number else ""


def audit_page(folder: Path, *, maps: bool = False, grade_names: Mapping[str, str] | None = None) -> Page:
    """The page for a folder that ``srjt audit`` has written.

    maps: with where the networks look. grade_names: instead of the audit's own.
    """
    facts, summary = read_facts(folder), read_summary(folder)
    # a file name need not be valid UTF-8
    scores = read_scores(folder, facts, encoding_errors="surrogateescape")
    try:
        return _page(
            facts,
            summary,
            scores,
            readings=_read_readings(folder) if "readings" in summary else None,
            picture=partial(thumbnail, folder),
            grades=Grades(facts["grades"], facts.get("grade_names")).named(grade_names),
            folder=folder,
            looks=_look_maps(folder, min(WORST, len(scores))) if maps else None,
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise SrjtError(f"The audit in {folder} is damaged or not from srjt ({problem}).") from None


@page_of.register(Audit)
def audited_page(found: Audit) -> Page:
    """The page of an audit in memory."""
    samples = found.fitted.manifest
    names = [str(name) for name in samples.table["image"]]
    of_row, row_of = thumbnails_of(names, samples), {name: row for row, name in enumerate(names)}
    return _page(
        found.facts,
        found.summary,
        found.scores.copy(),
        readings=found.readings,
        picture=lambda name: of_row(row_of[name]) if name in row_of else "",
        grades=Grades(found.facts["grades"], found.facts.get("grade_names")),
        folder=found.folder,
    )


def _page(
    facts: Mapping[str, Any],
    summary: Mapping[str, Any],
    scores: pd.DataFrame,
    *,
    readings: pd.DataFrame | None,
    picture: Callable[[str], str],
    grades: Grades,
    folder: Path | None,
    looks: list[list[str]] | None = None,
) -> Page:
    """picture: of the sample with this cell in the column ``image``. looks: where the networks look, by line."""
    shown = dict(zip(grades, grades.shown, strict=True))
    scores["quality"] = scores["quality"].astype(np.float64)
    for column in {"grade", "suggested", "true_grade"} & set(scores.columns):
        scores[column] = scores[column].map(lambda grade: shown.get(str(grade), str(grade)))
    f = audit_facts(facts, summary)
    readings_section = None
    if readings is not None:
        image_of = dict(zip(scores["id"], scores["image"], strict=True))
        worst = readings.head(WORST).replace({"grade": shown, "suggested": shown})
        worst = worst.assign(image=worst["id"].map(image_of).fillna(""))
        columns = ["id", "reader", "grade", "suggested", "quality"]
        readings_section = _doubtful(worst, len(readings), "reading", picture, columns, file="readings.csv")
    entries, figures = _noise(f, summary, scores, grades.shown)
    noise = Section("noise", "Noise", facts=entries, figures=figures[1:])
    source = Path(facts["source"]).name
    return Page(
        kind="Label audit",
        title=source or ("Labels" if folder is None else folder.resolve().name),
        lead=" ".join(filter(None, (first_sentence(LEAD, f), first_sentence(SUGGESTIONS, f)))),
        key_numbers=_key_numbers(f, summary),
        figure=figures[0] if figures else None,
        warnings=sentences(WARNINGS, f),
        remarks=[text[0].upper() + text[1:] for text in sentences(REMARKS, f)],
        sections=[
            *filter(
                None,
                [
                    _doubtful_labels(scores, f, picture, looks),
                    readings_section,
                    _rates(f, summary, shown),
                    noise if noise.facts or noise.figures else None,
                    _method(folder, facts),
                ],
            )
        ],
    )


def _key_numbers(f: SimpleNamespace, summary: Mapping[str, Any]) -> list[KeyNumber]:
    guess = "" if f.identifiable or not f.judged else f"a guess: {f.rate:.0%}"
    interval, rate = between(f.low, f.high, ".0%"), f"{f.rate:.0%}"
    numbers = [
        KeyNumber(
            "wrong labels, without the readings" if f.several else "wrong labels",
            *((rate, interval) if f.identifiable else (interval, "")),
            compared=guess,
        ),
        KeyNumber(
            "labels that the networks give",
            f"{f.accuracy:.0%}",
            compared=f"always the most frequent: {f.naive_accuracy:.0%}",
        ),
        KeyNumber(
            "grades away from the label", f"{f.mae:.2f}", compared=f"always the median: {f.naive_mae:.2f}"
        ),
    ]
    if (verified := summary.get("verified")) is not None:
        label = f"wrong of {count_of(verified['labels'], 'verified label')}"
        wrong = f"{verified['wrong']:,} ({verified['rate']:.0%})"
        numbers.append(KeyNumber(label, wrong, _interval(verified["interval"], ".0%")))
    if (truth := summary.get("known")) is not None:
        wrong = f"{int(truth['wrong']):,}"
        numbers.append(KeyNumber("known wrong labels", wrong))
        if "average_precision" in truth:
            label, chance = f"wrong of the {wrong} most doubtful", f"by chance: {truth['rate']:.0%}"
            numbers.append(KeyNumber(label, f"{truth['precision_at_wrong']:.0%}", compared=chance))
    return numbers


# The most doubtful labels and readings, with their images


def thumbnail(folder: Path, name: str) -> str:
    """The picture of the sample with this cell in the column ``image``; "" if it cannot or may not be shown."""
    try:
        return file_thumbnail(image_file(folder, name))
    except SrjtError:
        return ""


def gallery(
    rows: pd.DataFrame, pictures: Sequence[str], more: Sequence[Sequence[str]] | None = None
) -> list[Tile]:
    """A tile per doubtful label or reading.

    rows: id, grade, suggested ("" if none), quality (not a number if it says nothing), and reader and twins if there
    are any. more: further pictures of each.
    """
    tiles = []
    for place, row in enumerate(rows.to_dict("records")):
        unjudged = bool(np.isnan(row["quality"]))
        same = row["suggested"] in (row["grade"], "")
        tiles.append(
            Tile(
                picture=pictures[place],
                title=row["grade"] if same or unjudged else f"{row['grade']} → {row['suggested']}",
                share=None if unjudged else float(row["quality"]),
                number="" if unjudged else _probability(row["quality"]),
                detail=str(row.get("reader", "")),
                text=str(row["id"]) + (f" (identical images, {row['twins']})" if row.get("twins") else ""),
                more=more[place] if more else (),
                right=not unjudged and row["grade"] == row["suggested"],
            )
        )
    return tiles


def _probability(value: float) -> str:
    return "< 0.001" if value < 0.0005 else f"{value:.3f}" if value < 0.9995 else "> 0.999"


def _doubtful_labels(
    scores: pd.DataFrame, f: SimpleNamespace, picture: Callable[[str], str], looks: list[list[str]] | None
) -> Section:
    worst = scores.head(WORST)
    if not f.judged:
        worst = worst.assign(suggested="", quality=np.nan)
    columns = ["id", "grade", "suggested", "quality"] if f.judged else ["id", "grade"]
    section = _doubtful(worst, len(scores), f.noun, picture, columns, file="audit.csv", looks=looks)
    hint = (
        "A number is the probability that the label is right; A → B: label A, suggested grade B." * f.judged
    )
    if looks is not None:
        hint += " Where they look: orange raises the expected grade of the networks, blue lowers it."
    heading = section.heading if f.judged else "The labels"
    return replace(section, slug="doubtful", hint=hint.strip() if section.tiles else "", heading=heading)


def _doubtful(
    worst: pd.DataFrame,
    total: int,
    noun: str,
    picture: Callable[[str], str],
    columns: list[str],
    *,
    file: str,
    looks: list[list[str]] | None = None,
) -> Section:
    """A gallery, or without pictures a table. file: that has all of them."""
    heading = f"The {len(worst)} most doubtful {noun}s"
    if len(worst) == total:
        heading = f"All {total} {noun}s, the most doubtful first"
    pictures = [picture(str(name)) for name in worst["image"]]
    if any(pictures):
        return Section(f"{noun}s", heading, tiles=gallery(worst, pictures, looks))
    table = data_table(
        worst[columns].replace({"suggested": {"": "none"}}).rename(columns={"id": "sample"}),
        title="",
        slug="worst",
        caption=f"All are in {file}.",
        formats={"quality": _probability},
    )
    return Section(f"{noun}s", heading, tables=[table])


def _read_readings(folder: Path) -> pd.DataFrame:
    path = folder / "readings.csv"
    try:
        readings = pd.read_csv(path, dtype=str, keep_default_na=False)
        return readings.astype({"quality": float})
    except (OSError, ValueError, KeyError) as problem:
        raise SrjtError(f"{path} cannot be read ({problem}): run srjt audit again.") from None


def _look_maps(folder: Path, count: int) -> list[list[str]]:
    """Where the networks look, for the first lines of the audit; an empty list for an image that cannot be read."""
    audit = read_audit(folder)
    if (problem := map_problem(audit)) is not None:
        raise SrjtError(problem)
    pictures: list[list[str]] = []
    for line in range(count):
        try:
            pictures.append([data_uri(picture) for picture in look_maps(audit, line)[1]])
        except BadImageError:
            pictures.append([])
    return pictures


# Grades, readers and patients; the noise


def _rates(f: SimpleNamespace, summary: Mapping[str, Any], names: Mapping[str, str]) -> Section:
    grades = pd.DataFrame(summary["networks"]["grades"])
    grades["recognised"] = grades["recognised"].map({True: "yes", False: "no"})
    columns = {"labels": "labels", "recall": "given by the networks", "recognised": "recognised"}
    if f.judged:
        rates = pd.DataFrame(summary["grades"]).set_index("grade")
        grades = grades.join(rates[["rate", "interval"]], on="grade")
        grades["interval"] = [_interval(ends) for ends in grades["interval"]]
        columns |= {"rate": "error rate", "interval": "95 % interval"}
    grades["grade"] = [names.get(str(grade), str(grade)) for grade in grades["grade"]]
    tables = [
        data_table(
            grades[["grade", *columns]].rename(columns=columns),
            title="By given grade",
            slug="rates-grade",
            caption="Recognised: given to samples with this label more often than to others, beyond two standard "
            "errors. Other grades are neither suggested nor corrected.",
            formats={"given by the networks": ".0%", "error rate": ".1%"},
        )
    ]
    for who in ("reader", "patient"):
        if f.judged and summary[f"{who}s"] is not None:
            counted = "readings" if f.several and who == "reader" else "labels"
            tables.append(_rate_table(who, summary[f"{who}s"], counted))
    return Section("rates", "Grades, readers and patients", tables=tables)


def _interval(ends: Any, pattern: str = ".1%") -> str:
    return between(ends[0], ends[1], pattern) if isinstance(ends, (tuple, list)) else ""


def _rate_table(who: str, rows: Sequence[Mapping[str, Any]], counted: str) -> Table:
    few = pd.DataFrame(rows if who == "reader" else rows[:PATIENTS])
    few[who] = few[who].astype(str).str.strip().replace("", "(not given)")
    few["interval"] = few["interval"].map(_interval)
    columns = {
        who: who,
        "samples": counted,
        "expected_errors": "expected errors",
        "rate": "error rate",
        "interval": "95 % interval",
    }
    return data_table(
        few[list(columns)].rename(columns=columns),
        title=f"By {who}, most errors first",
        slug=f"rates-{who}",
        caption=f"{len(few)} of {len(rows):,}; all are in summary.json." if len(few) < len(rows) else "",
        formats={"expected errors": ",.1f", "error rate": ".1%"},
    )


def _noise(
    f: SimpleNamespace, summary: Mapping[str, Any], scores: pd.DataFrame, grades: Sequence[str]
) -> tuple[list[tuple[str, str]], list[CaptionedFigure]]:
    """Facts and figures: the estimated and the known matrix, and the quality of all labels."""
    panels: dict[str, npt.NDArray[np.float64]] = {}
    entries, figures = [], []
    if f.judged or f.identifiable:
        panels["Estimated"] = np.asarray(summary["matrix"], dtype=np.float64)
        form = f"{summary['form']} ({summary['form_weight']:.0%}): {form_meaning(summary)}"
        entries = [
            ("likeliest form", form),
            ("matrix", "a mean over all forms, by how well each explains the labels"),
        ]
    if "known" in summary:
        counts = pd.crosstab(scores["true_grade"], scores["grade"])
        joint = counts.reindex(index=list(grades), columns=list(grades), fill_value=0).to_numpy(np.float64)
        panels["Known"] = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1)
    if panels:
        kind, matrix = next(iter(panels.items()))
        rows = (
            f"{name}: {', '.join(f'{p:.2f}' for p in row)}" for name, row in zip(grades, matrix, strict=True)
        )
        figures.append(
            CaptionedFigure(
                name="matrix",
                figure=transition_figure(panels, grades=grades, digits=2),
                caption="The probability of each label (column) for each true grade (row).",
                alt=f"{kind} probability of each label for each true grade: {'; '.join(rows)}",
            )
        )  # fmt: skip
    if f.judged:
        quality = scores["quality"].to_numpy(np.float64)
        low = count_of(int((quality < 0.5).sum()), "label")
        figures.append(
            CaptionedFigure(
                name="quality",
                figure=_histogram(quality),
                caption="The probability that each label is right. Review those on the left.",
                alt=f"Histogram of label quality; below 0.5: {low}.",
            )
        )
    return entries, figures


def form_meaning(summary: Mapping[str, Any]) -> str:
    """The form of the noise in words."""
    two = summary["form"] == "quasi" and len(summary["matrix"]) == 2
    return "both grades are mistaken equally often" if two else FORMS[summary["form"]]


@house_style
def _histogram(quality: npt.NDArray[np.float64]) -> Figure:
    figure = new_figure(4.6, 2.5)
    axes = figure.add_subplot()
    counts, edges = np.histogram(quality, bins=BINS, range=(0, 1))
    colours = [PALETTE["vermillion"] if edge < 0.5 - 1e-9 else PALETTE["blue"] for edge in edges[:-1]]
    axes.bar(edges[:-1], counts, width=0.9 / BINS, align="edge", color=colours, alpha=0.8)
    axes.axvline(0.5, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), xlabel="quality: probability that the label is right", ylabel="labels")
    return figure


def _method(folder: Path | None, facts: Mapping[str, Any]) -> Section:
    names = ("source", "samples", "method", "network", "folds", "epochs", "seed", "created")
    entries = [(name, f"{facts[name]:,}" if name == "samples" else str(facts[name])) for name in names]
    return Section(
        "method",
        "Review and method",
        code="" if folder is None else f"srjt review {shlex.quote(str(folder))}",
        facts=[*entries, ("srjt", str(facts["version"]))],
    )
