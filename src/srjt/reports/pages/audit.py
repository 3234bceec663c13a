"""The page of an audit: how many labels are probably wrong, how good the networks are, the most
doubtful labels."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from srjt.auditing import folder as audit_folder
from srjt.auditing.audit import Audit
from srjt.auditing.scores import READINGS_REMAIN, WITHIN, judges_labels
from srjt.data.grades import Grades
from srjt.errors import SrjtError, count_of, few
from srjt.noise.model import FORMS
from srjt.reports import sections
from srjt.reports.figures import canvas
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
from srjt.reports.table import MISSING, Format, Table, between, data_table

WORST = 60  # labels shown
ROWS = 20  # of readers and patients
BINS = 20

VERDICT: list[Verdict[Any]] = [
    (lambda f: not f.judged, "The networks cannot tell which labels are wrong", "They have not learnt to tell the "
     "grades apart; longer trainings or more samples may help. The order of the labels may be chance."),
    (lambda f: f.several and f.identifiable, "About {f.rate:.0%} of the consensus grades are wrong", "Of "
     "{f.readings:,} readings about {f.readings_wrong:.0%} are."),
    (lambda f: f.identifiable, "About {f.rate:.0%} of the labels are wrong", "{f.suggestion}"),
    (lambda f: True, "Between {f.low:.0%} and {f.high:.0%} of the {f.noun}s are wrong", "{f.suggestion}"),
]  # fmt: skip
SUGGESTIONS: list[Rule[Any]] = [
    (lambda f: f.suggested, "For {f.suggested:,} of {f.samples:,} labels another grade is suggested; about "
     "{f.right:.0%} of these are right."),
    (lambda f: not f.suggested and f.another_likelier, "Another grade is more probable for {f.another_likelier:,} of "
     "{f.samples:,} labels, but none is suggested: the networks may be wrong as often."),
    (lambda f: not f.suggested and not f.another_likelier, "Each of the {f.samples:,} labels is the most probable "
     "grade."),
]  # fmt: skip
WARNINGS: list[Rule[Any]] = [
    (lambda f: "naive" in f.caveat, "The networks do not beat one grade for all."),
    (lambda f: f.several and not f.learnt, READINGS_REMAIN),
    (lambda f: f.verify and f.random, f"To know the rate within ±{WITHIN:.0%}, verify about {{f.verify}}, drawn by "
     "doubt; at random it would be {f.random:,}: {f.sample}."),
    (lambda f: f.verify and not f.random, f"To know the rate within ±{WITHIN:.0%}, verify {{f.verify}}: {{f.sample}}, "
     "or a column verified_grade."),
    (lambda f: f.twins, "{f.twins} of identical images contradict each other, and come first: at most one of each "
     "image's is right."),
    (lambda f: f.patients is None, "There are no patient ids: a label may be judged by networks that were trained on "
     "its patient, which makes wrong labels look right."),
]  # fmt: skip
REMARKS: list[Rule[Any]] = [
    (lambda f: True, "Every label was judged by networks that were not trained on its {f.thing}."),
    (lambda f: True, "The rate is estimated from all {f.samples:,} labels and {f.folds} trainings of {f.epochs}; "
     "srjt train estimates it from less, so its rate may differ."),
    (lambda f: f.judged and f.identifiable, "Error rates have 95 % intervals that hold for every share of wrong labels "
     "within its own interval."),
    (lambda f: f.judged and not f.identifiable, "How many labels are wrong is not known because {f.why}. So there is "
     "the order of doubt, and no probability."),
    (lambda f: f.judged and f.identifiable and f.unseen, "Of labels of grades that the networks do not recognise "
     "({f.unseen}) no probability is shown."),
    (lambda f: f.judged and f.assumption, "{f.assumption}"),
]  # fmt: skip


def audit_facts(
    facts: Mapping[str, Any], summary: Mapping[str, Any], folder: Path | None
) -> SimpleNamespace:
    """What the rules know: the contents of ``audit.json`` (facts) and of ``summary.json``, and
    more."""
    several, suggestions = "readings" in summary, summary.get("suggestions", {})
    noun, twins = "consensus grade" if several else "label", summary.get("twins", {}).get("labels")
    audit = "AUDIT" if folder is None else shlex.quote(str(folder))
    names = Grades(facts["grades"], facts.get("grade_names"))
    unseen = [names.shown[names.index(grade)] for grade in summary.get("unrecognised", ())]
    verified, verify = summary.get("verified", {"labels": 0})["labels"], summary["verify_more"]
    own = {
        "judged": judges_labels(summary),
        "several": several,
        "noun": noun,
        "low": summary["rate_interval"][0],
        "high": summary["rate_interval"][1],
        "why": summary["reason"][:1].lower() + summary["reason"][1:].rstrip("."),
        "unseen": few(unseen),
        "readings_wrong": summary.get("wrong_readings", {}).get("rate"),
        "suggested": suggestions.get("count", 0),
        "right": suggestions.get("expected_right", 0.0),
        "verify": count_of(verify, f"more {noun}" if verified else noun) if verify else "",
        "random": summary.get("verify_random") or 0,
        "sample": f"srjt review {audit} --sample {verified + verify}",
        "twins": count_of(twins, "label") if twins else "",
        "thing": (
            ("sample" if facts["features"] else "image")
            + " or its patient" * bool(summary["patients"])
        ),
        "epochs": count_of(facts["epochs"], "epoch"),
    }
    known = {**facts, **summary["networks"], **summary, **own}
    return SimpleNamespace(**known, suggestion=sentences(SUGGESTIONS, SimpleNamespace(**known))[0])


def audit_page(folder: Path) -> Page:
    """The page for a folder that ``srjt audit`` has written."""
    facts, summary = audit_folder.read_facts(folder), audit_folder.read_summary(folder)
    # a file name need not be valid UTF-8
    scores = audit_folder.read_scores(
        folder, samples=facts["samples"], encoding_errors="surrogateescape"
    )
    readings = None
    if "readings" in summary:
        readings = pd.read_csv(folder / "readings.csv", dtype=str, keep_default_na=False)
        readings = readings.astype({"quality": float})
    return _page(facts, summary, scores, readings, partial(_thumbnail, folder), folder)


@page_of.register(Audit)
def audited_page(found: Audit) -> Page:
    """The page of an audit in memory."""
    picture = sections.pictures_of(found.fitted.manifest)
    return _page(found.facts, found.summary, found.scores, found.readings, picture, found.folder)


def _page(
    facts: Mapping[str, Any],
    summary: Mapping[str, Any],
    scores: pd.DataFrame,
    readings: pd.DataFrame | None,
    picture: Callable[[str], str],
    folder: Path | None,
) -> Page:
    """picture: of the sample with this cell in the column ``image``."""
    grades = Grades(facts["grades"], facts.get("grade_names"))
    f, shown = audit_facts(facts, summary, folder), dict(zip(grades, grades.shown, strict=True))
    scores = scores.astype({"grade": str, "suggested": str, "quality": float})
    worst = scores.head(WORST).replace({"grade": shown, "suggested": shown})
    if not f.judged:
        worst = worst.assign(suggested="")
    # a probability is a number only where it is known how many labels are wrong, and the networks
    # know the grade
    unseen = scores.head(WORST)["grade"].isin(summary.get("unrecognised", ()))
    if "verified_grade" in scores:
        unseen |= scores.head(WORST)["verified_grade"] != ""
    worst = worst.assign(
        quality=worst["quality"].mask(unseen | (not (f.judged and f.identifiable)))
    )
    parts = [doubtful_section(worst, len(scores), f.noun, picture, judged=f.judged)]
    if readings is not None:
        image_of = dict(zip(scores["id"], scores["image"], strict=True))
        worst = readings.head(WORST).replace({"grade": shown, "suggested": shown})
        worst = worst.assign(image=worst["id"].map(image_of).fillna(""))
        if not f.identifiable:
            worst = worst.assign(quality=np.nan)
        parts.append(
            doubtful_section(worst, len(readings), "reading", picture, file="readings.csv")
        )
    parts.append(_rates(f, shown))
    figure = None
    if f.identifiable:
        figure = _matrix(f, grades.shown)
        form = [("likeliest form", f"{f.form} ({f.form_weight:.0%}): {FORMS[f.form]}")]
        figures = [_quality(scores["quality"].to_numpy(np.float64))] if f.judged else []
        parts.append(Section("noise", "Noise", facts=form, figures=figures))
    names = ("source", "samples", "method", "network", "folds", "epochs", "seed", "created")
    entries = {name: str(facts[name]) for name in names}
    entries |= {"samples": f"{f.samples:,}", "srjt": str(f.version)}
    command = "" if folder is None else f"srjt review {shlex.quote(str(folder))}"
    source = Path(facts["source"]).name or ("labels" if folder is None else folder.resolve().name)
    return Page(
        kind=f"Label audit of {source}",
        **said(f, VERDICT, warnings=WARNINGS, remarks=REMARKS),
        key_numbers=_key_numbers(f),
        figure=figure,
        sections=[
            *parts,
            Section("method", "Review and method", code=command, facts=[*entries.items()]),
        ],
    )


def _key_numbers(f: SimpleNamespace) -> list[KeyNumber]:
    interval = between(f.low, f.high, ".0%")
    number = KeyNumber(f"wrong {f.noun}s", interval)
    if f.identifiable:
        number = KeyNumber(f"wrong {f.noun}s", f"{f.rate:.0%}", interval)
    frequent, median = (
        f"always the most frequent: {f.naive_accuracy:.0%}",
        f"always the median: {f.naive_mae:.2f}",
    )
    numbers = [
        number,
        KeyNumber("labels that the networks give", f"{f.accuracy:.0%}", compared=frequent),
        KeyNumber("grades away from the label", f"{f.mae:.2f}", compared=median),
    ]
    if (verified := vars(f).get("verified")) is not None:
        label = f"wrong of {count_of(verified['labels'], 'verified label')}"
        wrong = f"{verified['wrong']:,} ({verified['rate']:.0%})"
        if verified.get("by_doubt"):  # the share among doubtful labels is not that of all
            label, wrong = (
                f"wrong, by {count_of(verified['labels'], 'verified label')}",
                f"{verified['rate']:.0%}",
            )
        numbers.append(KeyNumber(label, wrong, _interval(verified["interval"], ".0%")))
    if (truth := vars(f).get("known")) is not None:
        wrong = f"{int(truth['wrong']):,}"
        numbers.append(KeyNumber("known wrong labels", wrong))
        if "average_precision" in truth:
            label, chance = f"wrong of the {wrong} most doubtful", f"by chance: {truth['rate']:.0%}"
            numbers.append(KeyNumber(label, f"{truth['precision_at_wrong']:.0%}", compared=chance))
    return numbers


# The most doubtful labels and readings, with their images


def _thumbnail(folder: Path, name: str) -> str:
    """The picture of the sample with this cell in the column ``image``; "" if it cannot or may not
    be shown."""
    try:
        return sections.thumbnail(audit_folder.image_file(folder, name))
    except SrjtError:
        return ""


def doubtful_section(
    worst: pd.DataFrame,
    total: int,
    noun: str,
    picture: Callable[[str], str],
    *,
    file: str = "audit.csv",
    judged: bool = True,
) -> Section:
    """A gallery, or without pictures a table.

    worst: id, grade, suggested ("" if none), quality (not a number if it says nothing), image, and
    reader and twins if there are any. file: has all of them. judged: whether their order is that of
    doubt.
    """
    numbers, slug = bool(worst["quality"].notna().any()), file.removesuffix(".csv")
    heading = f"The {len(worst)} most doubtful {noun}s" if judged else "The labels"
    if judged and len(worst) == total:
        heading = f"All {total} {noun}s, the most doubtful first"
    pictures = [picture(str(name)) for name in worst["image"]]
    if any(pictures):
        hint = f"A → B: {noun} A, suggested grade B."
        if numbers:
            hint = f"A number is the probability that the {noun} is right; {hint}"
        tiles = [
            _tile(row, shown) for row, shown in zip(worst.to_dict("records"), pictures, strict=True)
        ]
        return Section(slug, heading, text=[hint] if judged else [], tiles=tiles)
    columns = ["id", "reader", "grade"]
    columns += ["suggested"] if judged else []
    columns += ["quality"] if numbers else []
    table = data_table(
        worst[[name for name in columns if name in worst]].rename(columns={"id": "sample"}),
        title="",
        slug=f"worst-{slug}",
        caption=f"All are in {file}.",
        formats={"quality": _probability},
    )
    return Section(slug, heading, tables=[table])


def _tile(row: Mapping[Any, Any], picture: str) -> Tile:
    number, arrow = not np.isnan(row["quality"]), row["suggested"] not in ("", row["grade"])
    return Tile(
        picture=picture,
        title=f"{row['grade']} → {row['suggested']}" if arrow else row["grade"],
        share=float(row["quality"]) if number else None,
        number=_probability(row["quality"]) if number else "",
        detail=str(row.get("reader", "")),
        text=str(row["id"]) + (f" (identical images, {row['twins']})" if row.get("twins") else ""),
    )


def _probability(value: float) -> str:
    if np.isnan(value):
        return MISSING
    return "< 0.001" if value < 0.0005 else f"{value:.3f}" if value < 0.9995 else "> 0.999"


# Grades, readers and patients; the noise


def _rates(f: SimpleNamespace, names: Mapping[str, str]) -> Section:
    grades = pd.DataFrame(f.networks["grades"])
    grades["recognised"] = grades["recognised"].map({True: "yes", False: "no"})
    if f.judged and f.identifiable:
        grades = grades.join(
            pd.DataFrame(f.grades).set_index("grade")[["rate", "interval"]], on="grade"
        )
    grades["grade"] = grades["grade"].map(lambda grade: names.get(str(grade), str(grade)))
    frames = {"grade": (grades, "By given grade", RECOGNISED)}
    for who, rows in (("reader", f.readers), ("patient", f.patients)):
        if f.judged and rows is not None:
            shown = pd.DataFrame(rows[:ROWS])
            shown[who] = shown[who].astype(str).str.strip().replace("", "(not given)")
            shown = shown.rename(
                columns={"samples": "readings" if f.several and who == "reader" else "labels"}
            )
            unknown = ["rank"] if f.identifiable else ["expected_errors", "rate", "interval"]
            shown = shown.drop(columns=unknown)
            more = (
                f"{len(shown)} of {len(rows):,}; all are in summary.json."
                if len(shown) < len(rows)
                else ""
            )
            title = (
                f"By {who}, most errors first"
                if f.identifiable
                else f"By {who}, most doubtful first"
            )
            frames[who] = shown, title, more
    tables = []
    for who, (frame, title, caption) in frames.items():
        shown = frame[[name for name in (who, *RATES) if name in frame]].rename(columns=RATES)
        table = data_table(
            shown, title=title, slug=f"rates-{who}", caption=caption, formats=RATE_FORMATS
        )
        tables.append(table)
    if rows := (vars(f).get("verified") or {}).get("grades"):
        tables.append(_verified_table(pd.DataFrame(rows), names))
    return Section("rates", "Grades, readers and patients", tables=tables)


def _verified_table(shares: pd.DataFrame, names: Mapping[str, str]) -> Table:
    shares["grade"] = shares["grade"].map(lambda grade: names.get(str(grade), str(grade)))
    headings = {
        "labels": "verified",
        "wrong": "wrong ones",
        "rate": "error rate",
        "interval": "95 % interval",
    }
    return data_table(
        shares.rename(columns=headings),
        title="By given grade, from verified labels",
        slug="rates-verified",
        caption=(
            "The error rate is that of all labels of the grade, each verified one weighted by how"
            " it was drawn."
        ),
        formats=RATE_FORMATS,
    )


def _interval(ends: Any, pattern: str = ".1%") -> str:
    return between(ends[0], ends[1], pattern) if isinstance(ends, (tuple, list)) else ""


RATES = {  # column → its heading
    "rank": "rank", "labels": "labels", "readings": "readings", "recall": "given by the networks",
    "recognised": "recognised", "expected_errors": "expected errors", "rate": "error rate", "interval": "95 % interval",
}  # fmt: skip
RATE_FORMATS: dict[str, Format] = {
    "given by the networks": ".0%", "expected errors": ",.1f", "error rate": ".1%", "95 % interval": _interval
}  # fmt: skip
RECOGNISED = (
    "Recognised: given to samples with this label more often than to others (exact test, 2.5 %)."
    " Other grades are neither suggested nor corrected."
)


def _matrix(f: SimpleNamespace, grades: Sequence[str]) -> canvas.CaptionedFigure:
    matrix = np.asarray(f.matrix, dtype=np.float64)
    rows = "; ".join(" ".join(f"{p:.2f}" for p in row) for row in matrix)
    return canvas.CaptionedFigure(
        name="matrix",
        figure=canvas.transition_figure({"Estimated": matrix}, grades=grades, digits=2),
        caption=(
            "The probability of each label (column) for each true grade (row), averaged over the"
            " forms of noise by how well each explains the labels."
        ),
        alt=f"Estimated probability of each label for each true grade, by row: {rows}",
    )


def _quality(quality: npt.NDArray[np.float64]) -> canvas.CaptionedFigure:
    return canvas.CaptionedFigure(
        name="quality",
        figure=_histogram(quality),
        caption="The probability that each label is right. Review those on the left.",
        alt=(
            "Histogram of label quality; below 0.5:"
            f" {count_of(int((quality < 0.5).sum()), 'label')}."
        ),
    )


@canvas.house_style
def _histogram(quality: npt.NDArray[np.float64]) -> Figure:
    figure = canvas.new_figure(4.6, 2.5)
    axes = figure.add_subplot()
    counts, edges = np.histogram(quality, bins=BINS, range=(0, 1))
    colours = [canvas.PALETTE["vermillion" if edge < 0.5 - 1e-9 else "blue"] for edge in edges[:-1]]
    axes.bar(edges[:-1], counts, width=0.9 / BINS, align="edge", color=colours, alpha=0.8)
    axes.axvline(0.5, color=canvas.GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), xlabel="quality: probability that the label is right", ylabel="labels")
    return figure
