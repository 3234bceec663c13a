"""The page of an audit: how many labels are probably wrong, how good the networks are, the most
doubtful labels."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from srjt.auditing import folder as audit_folder
from srjt.auditing.audit import Audit, DoubtfulLabels
from srjt.auditing.scores import READINGS_REMAIN, WITHIN, caveats, judges_labels
from srjt.auditing.verification import more_of_patients
from srjt.data.grades import Grades, positions
from srjt.data.thumbnails import thumbnail
from srjt.errors import SrjtError, count_of, few
from srjt.noise.matrices import Floats
from srjt.noise.model import FORMS
from srjt.reports import sections
from srjt.reports.figures import canvas
from srjt.reports.page import KeyNumber, Page, Section, Tile, page_of
from srjt.reports.table import MISSING, Format, Table, between, data_table
from srjt.training.config import ODDS

WORST = 60  # labels shown
ROWS = 20  # of readers and patients
BINS = 20


@dataclass(frozen=True, kw_only=True)
class AuditFacts:
    """What the sentences are about."""

    judged: bool  # whether the networks say anything about single labels
    learnt: bool
    caveat: str
    several: bool  # readers
    noun: str  # what is judged: "label", "consensus grade"
    thing: str  # what the networks that judge it were not trained on
    samples: int
    folds: int
    epochs: str  # such as " of 30 epochs"; "" if there are none
    has_patients: bool
    identifiable: bool  # whether the labels determine how many of them are wrong
    rate: float
    low: float
    high: float
    why: str  # it is not identifiable
    assumption: str
    unseen: str  # grades that the networks do not recognise
    readings: int
    readings_wrong: float | None
    suggested: int  # labels for which another grade is suggested
    right: float  # share of these suggestions that are expected to be right
    another_likelier: int
    verified: int  # labels
    verify: str  # how many labels to verify: "56 labels", "107 more labels (167 in all)"
    more: str  # when more are needed
    random: int  # how many it would be at random; 0: as many
    sample: str  # the command that draws them; "" if there are no images to show
    twins: str  # labels of identical images that contradict each other


def verdict_of(f: AuditFacts) -> tuple[str, str]:
    """Title and lead of the page."""
    if not f.judged:
        title = "The networks cannot tell which labels are wrong"
        lead = (
            "The networks have not learnt to tell the grades apart; more samples may help. The"
            " order of the labels may be chance."
        )
        return title, lead
    if f.several and f.identifiable:
        title = f"About {f.rate:.0%} of the consensus grades are wrong"
        lead = f"About {f.readings_wrong:.0%} of the {f.readings:,} readings are wrong."
        return title, lead
    if f.identifiable:
        return f"About {f.rate:.0%} of the labels are wrong", suggestion_of(f)
    title = f"Between {f.low:.0%} and {f.high:.0%} of the {f.noun}s are wrong (95 % interval)"
    return title, suggestion_of(f)


def suggestion_of(f: AuditFacts) -> str:
    """How many labels another grade is suggested for."""
    if f.suggested:
        suggested = f"For {f.suggested:,} of {f.samples:,} labels another grade is suggested"
        # without a rate, an audit has an order of the labels and no probabilities
        if not f.identifiable:
            return f"{suggested}."
        return f"{suggested}; the model expects about {f.right:.0%} of these to be right."
    if f.another_likelier:
        return (
            f"Another grade is more probable for {f.another_likelier:,} of {f.samples:,} labels,"
            " but none is suggested, because the networks are not reliable enough."
        )
    return f"Each of the {f.samples:,} labels is the most probable grade."


def warnings_of(f: AuditFacts) -> Iterator[str]:
    """What to know before using the page."""
    if "naive" in f.caveat:
        yield "The networks do not beat one grade for all."
    if f.several and not f.learnt:
        yield READINGS_REMAIN
    if f.verify and not f.sample:
        yield (
            f"To know the rate within ±{WITHIN:.0%}, let an expert grade {f.verify}, drawn at"
            " random, and give these grades in a column verified_grade."
        )
    if f.verify and f.random:
        yield (
            f"About {f.verify} drawn by doubt ({f.random:,} if drawn at random) tell the rate"
            f" within ±{WITHIN:.0%}.{f.more} To verify them: {f.sample}."
        )
    if f.verify and f.sample and not f.random:
        yield (
            f"To know the rate within ±{WITHIN:.0%}, verify {f.verify}, or give their grades in a"
            f" column verified_grade: {f.sample}."
        )
    if f.twins:
        yield (
            f"{f.twins} of identical images contradict each other. They come first, because at most"
            " one label of each image can be right."
        )
    if not f.has_patients:
        yield (
            "There are no patient ids: a label may be judged by networks that were trained on its"
            " patient, which makes wrong labels look right."
        )


def at_once(facts: Mapping[str, Any]) -> bool:
    """Whether the trainings of an audit have no epochs."""
    return str(facts["network"]).split(" + ")[-1] == ODDS


def remarks_of(f: AuditFacts) -> Iterator[str]:
    """How it was made."""
    yield f"Every label was judged by networks that were not trained on its {f.thing}."
    if f.identifiable and not f.verified:
        yield (
            f"The rate is estimated from all {f.samples:,} labels and {f.folds}"
            f" trainings{f.epochs}; srjt train estimates it from less, so its rate may differ."
        )
    if f.judged and f.identifiable:
        yield (
            "Error rates have 95 % intervals that hold for every share of wrong labels within its"
            " own interval."
        )
    if f.judged and not f.identifiable:
        yield (
            f"How many labels are wrong is not known because {f.why}. Therefore the labels are"
            " ordered by doubt, without probabilities."
        )
    if f.judged and f.identifiable and f.unseen:
        yield (
            "No probability is shown for labels of grades that the networks do not recognise"
            f" ({f.unseen})."
        )
    if f.judged and f.assumption:
        yield f.assumption


def labels_to_verify_first(summary: Mapping[str, Any]) -> int:
    """The size of the sample to verify before labels are reviewed, because it is not known how many
    are wrong; 0: it is known."""
    if summary["identifiable"] or not summary["verify_more"]:
        return 0
    verified: int = summary.get("verified", {"labels": 0})["labels"]
    return verified + int(summary["verify_more"])


def audit_facts(
    facts: Mapping[str, Any], summary: Mapping[str, Any], folder: Path | None, *, images: bool
) -> AuditFacts:
    """What the sentences are about: from ``audit.json`` (facts) and ``summary.json``. images:
    whether there are some to show."""
    several = "readings" in summary
    noun = "consensus grade" if several else "label"
    thing = "sample" if facts["features"] else "image"
    suggestions = summary.get("suggestions", {})
    twins = summary.get("twins", {}).get("labels")
    audit = "AUDIT" if folder is None else shlex.quote(str(folder))
    names = Grades(facts["grades"], facts.get("grade_names"))
    unseen = [names.shown[names.index(grade)] for grade in summary.get("unrecognised", ())]
    verified = summary.get("verified", {"labels": 0})["labels"]
    by_doubt, at_random = summary["verify_more"], summary.get("verify_random") or 0
    verify = by_doubt if images or not at_random else at_random
    to_verify = ""
    if verify:
        to_verify = count_of(verify, noun)
        if verified:
            more = count_of(verify, f"more {noun}")
            to_verify = f"{more} ({verified + verify:,} in all)"
    return AuditFacts(
        judged=judges_labels(summary),
        learnt=summary["learnt"],
        caveat=summary["caveat"],
        several=several,
        noun=noun,
        thing=f"{thing} or its patient" if summary["patients"] else thing,
        samples=summary["samples"],
        folds=facts["folds"],
        epochs="" if at_once(facts) else f" of {count_of(facts['epochs'], 'epoch')}",
        has_patients=summary["patients"] is not None,
        identifiable=summary["identifiable"],
        rate=summary["rate"],
        low=summary["rate_interval"][0],
        high=summary["rate_interval"][1],
        why=summary["reason"][:1].lower() + summary["reason"][1:].rstrip("."),
        assumption=summary["assumption"],
        unseen=few(unseen),
        readings=summary.get("readings", 0),
        readings_wrong=summary.get("wrong_readings", {}).get("rate"),
        suggested=suggestions.get("count", 0),
        right=suggestions.get("expected_right", 0.0),
        another_likelier=summary["another_likelier"],
        verified=verified,
        verify=to_verify,
        more=more_of_patients(summary),
        random=at_random if images else 0,
        sample=f"srjt review {audit} --sample {verified + verify}" if images else "",
        twins=count_of(twins, "label") if twins else "",
    )


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
def audited_page(made: Audit) -> Page:
    """The page of an audit in memory."""
    picture = sections.pictures_of(made.fitted.manifest)
    return _page(made.facts, made.summary, made.scores, made.readings, picture, made.folder)


@page_of.register(DoubtfulLabels)
def doubtful_page(doubtful: DoubtfulLabels) -> Page:
    """The most doubtful labels alone, all with their pictures."""
    worst = doubtful.table.assign(image=doubtful.table["id"])
    if not doubtful.judged:
        worst = worst.assign(suggested="")
    worst = worst.assign(quality=doubtful.quality)
    place = positions(doubtful.samples.ids)

    def picture(name: str) -> str:
        return thumbnail(doubtful.samples, place[name], size=sections.PICTURE)

    section = doubtful_section(worst, None, "label", picture, judged=doubtful.judged)
    return Page(
        kind="Label audit",
        title=doubtful.samples.describe(),
        lead="",
        warnings=[doubtful.caveat] if doubtful.caveat else [],
        sections=[replace(section, brief=True)],
        tiles=len(worst),
    )


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
    f = audit_facts(facts, summary, folder, images=bool((scores["image"] != "").any()))
    shown = dict(zip(grades, grades.shown, strict=True))
    scores = scores.astype({"grade": str, "suggested": str, "quality": float})
    worst = scores.head(WORST).replace({"grade": shown, "suggested": shown})
    if not f.judged:
        worst = worst.assign(suggested="")
    # a probability is a number only where it is known how many labels are wrong, and the networks
    # know the grade
    no_number = caveats(scores, summary) != ""
    if "verified_grade" in scores:  # known, so that there is nothing to doubt
        no_number |= scores["verified_grade"] != ""
    worst = worst.assign(quality=worst["quality"].mask(no_number))
    parts = [doubtful_section(worst, len(scores), f.noun, picture, judged=f.judged)]
    if readings is not None:
        parts.append(_doubtful_readings(readings, scores, shown, picture, numbers=f.identifiable))
    parts.append(_rates(f, summary, shown))
    figure = None
    if f.identifiable:
        averaged = _form_weight(summary) != "100%"
        figure = _matrix(summary["matrix"], grades.shown, averaged=averaged)
        left = scores["quality"][~no_number].to_numpy(np.float64)
        parts.append(_noise(summary, left, all_labels=not (f.verified or f.unseen)))
    source = Path(facts["source"]).name or "labels"
    if not Path(facts["source"]).name and folder is not None:
        source = folder.resolve().name
    title, lead = verdict_of(f)
    return Page(
        kind=f"Label audit of {source}",
        title=title,
        lead=lead,
        warnings=list(warnings_of(f)),
        remarks=list(remarks_of(f)),
        key_numbers=_key_numbers(f, summary),
        figure=figure,
        sections=[*parts, _method(facts, f.samples, folder)],
    )


def _doubtful_readings(
    readings: pd.DataFrame,
    scores: pd.DataFrame,
    shown: Mapping[str, str],
    picture: Callable[[str], str],
    *,
    numbers: bool,
) -> Section:
    """numbers: whether the probabilities that the readings are right are known."""
    image_of = dict(zip(scores["id"], scores["image"], strict=True))
    worst = readings.head(WORST).replace({"grade": shown, "suggested": shown})
    worst = worst.assign(image=worst["id"].map(image_of).fillna(""))
    if not numbers:
        worst = worst.assign(quality=np.nan)
    return doubtful_section(worst, len(readings), "reading", picture, file="readings.csv")


def _form_weight(summary: Mapping[str, Any]) -> str:
    """The share of the likeliest form of the noise among the forms that the matrix averages."""
    return f"{summary['form_weight']:.0%}"


def _noise(summary: Mapping[str, Any], qualities: Floats, *, all_labels: bool) -> Section:
    """qualities: of the labels whose probability is known. all_labels: whether these are all."""
    form = summary["form"]
    likeliest = f"{form} ({_form_weight(summary)}): {FORMS[form]}"
    figures = []
    if len(qualities):
        figures.append(_quality(qualities, all_labels=all_labels))
    return Section("noise", "Noise", facts=[("likeliest form", likeliest)], figures=figures)


def _method(facts: Mapping[str, Any], samples: int, folder: Path | None) -> Section:
    """How the audit was made, and the command that reviews its labels."""
    names = ("source", "samples", "method", "network", "folds", "epochs", "seed", "created")
    entries = {name: str(facts[name]) for name in names}
    if at_once(facts):
        del entries["epochs"]
    entries |= {"samples": f"{samples:,}", "srjt": str(facts["version"])}
    command = "" if folder is None else f"srjt review {shlex.quote(str(folder))}"
    return Section("method", "Review and method", code=command, facts=[*entries.items()])


def _key_numbers(f: AuditFacts, summary: Mapping[str, Any]) -> list[KeyNumber]:
    interval = between(f.low, f.high, ".0%")
    number = KeyNumber(f"wrong {f.noun}s", interval)
    if f.identifiable:
        number = KeyNumber(f"wrong {f.noun}s", f"{f.rate:.0%}", interval)
    networks = summary["networks"]
    frequent = f"always the most frequent: {networks['naive_accuracy']:.0%}"
    median = f"always the median: {networks['naive_mae']:.2f}"
    numbers = [
        number,
        KeyNumber(
            "labels that the networks agree with", f"{networks['accuracy']:.0%}", compared=frequent
        ),
        KeyNumber(
            "mean distance from the label, in grades", f"{networks['mae']:.2f}", compared=median
        ),
    ]
    if (verified := summary.get("verified")) is not None:
        wrong = f"wrong: {verified['wrong']:,}"
        if verified.get("by_doubt"):  # the share among doubtful labels is not that of all
            wrong += "; doubtful ones were drawn more often"
        numbers.append(KeyNumber("verified labels", f"{verified['labels']:,}", compared=wrong))
    if (truth := summary.get("known")) is not None:
        wrong = f"{int(truth['wrong']):,}"
        numbers.append(KeyNumber("known wrong labels", wrong))
        if "average_precision" in truth:
            label = f"wrong of the {wrong} most doubtful"
            chance = f"by chance: {truth['rate']:.0%}"
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
    total: int | None,
    noun: str,
    picture: Callable[[str], str],
    *,
    file: str = "audit.csv",
    judged: bool = True,
) -> Section:
    """A gallery, or without pictures a table.

    worst: id, grade, suggested ("" if none), quality (not a number if it says nothing), image, and
    reader and twins if there are any. total: how many ``file`` has; None: there is no file. judged:
    whether their order is that of doubt.
    """
    numbers = bool(worst["quality"].notna().any())
    slug = file.removesuffix(".csv")
    heading = f"The {len(worst)} most doubtful {noun}s" if judged else "The labels"
    if judged and len(worst) == total:
        heading = f"All {total} {noun}s, the most doubtful first"
    pictures = [picture(str(name)) for name in worst["image"]]
    if any(pictures):
        if ((worst["suggested"] == "") | (worst["suggested"] == worst["grade"])).all():
            worst = worst.assign(suggested="")  # to filter by it would be of no use
        tiles = []
        for row, shown in zip(worst.to_dict("records"), pictures, strict=True):
            tiles.append(_tile(row, shown, noun=noun.split()[-1]))
        hints = []
        if judged and numbers:
            hints.append(f"The number is the probability that the {noun} is right.")
        if judged and any(ARROW in tile.title for tile in tiles):
            hints.append(f"A {ARROW} B means {noun} A, suggested grade B.")
        return Section(slug, heading, text=[" ".join(hints)] if hints else [], tiles=tiles)
    columns = ["id", "reader", "grade"]
    if judged:
        columns.append("suggested")
    if numbers:
        columns.append("quality")
    table = data_table(
        worst[[name for name in columns if name in worst]].rename(columns={"id": "sample"}),
        title="",
        slug=f"worst-{slug}",
        caption="" if total is None else f"All are in {file}.",
        formats={"quality": _probability},
    )
    return Section(slug, heading, tables=[table])


ARROW = "→"
TILE_KEYS = ("suggested", "patient", "reader")  # columns by which a gallery can be filtered


def _tile(row: Mapping[Any, Any], picture: str, *, noun: str) -> Tile:
    title = f"{noun} {row['grade']}"
    if row["suggested"] not in ("", row["grade"]):
        title = f"{title} {ARROW} {row['suggested']}"
    details = [str(row.get("reader", ""))]
    if row.get("twins"):
        details.append(f"identical images, {row['twins']}")
    keys = {noun: str(row["grade"])}
    for name in TILE_KEYS:
        if row.get(name, "") != "":
            keys[name] = str(row[name])
    tile = Tile(
        picture=picture,
        title=title,
        detail=", ".join(filter(None, details)),
        text=str(row["id"]),
        keys=keys,
    )
    if np.isnan(row["quality"]):
        return tile
    return replace(tile, share=float(row["quality"]), number=_probability(row["quality"]))


def _probability(value: float) -> str:
    if np.isnan(value):
        return MISSING
    if value < 0.0005:
        return "< 0.001"
    return f"{value:.3f}" if value < 0.9995 else "> 0.999"


# Grades, readers and patients; the noise


def _rates(f: AuditFacts, summary: Mapping[str, Any], names: Mapping[str, str]) -> Section:
    caption = RECOGNISED
    verified = (summary.get("verified") or {}).get("grades")
    if verified:
        caption += (
            " Where labels are verified, the error rate rests on these, each weighted by how it was"
            " drawn."
        )
    by_grade = _by_grade(f, summary, names, verified)
    tables = [_rates_table("grade", by_grade, "By given grade", caption)]
    order = "most errors first" if f.identifiable else "most doubtful first"
    for who in ("reader", "patient"):
        rows = summary[f"{who}s"]
        if f.judged and rows is not None:
            shown = _by_person(who, rows[:ROWS], f)
            more = ""
            if len(shown) < len(rows):
                more = f"{len(shown)} of {len(rows):,}; all are in summary.json."
            tables.append(_rates_table(who, shown, f"By {who}, {order}", more))
    return Section("rates", "Grades, readers and patients", tables=tables)


def _rates_table(who: str, frame: pd.DataFrame, title: str, caption: str) -> Table:
    columns = [name for name in (who, *RATES) if name in frame]
    shown = frame[columns].rename(columns=RATES)
    return data_table(
        shown, title=title, slug=f"rates-{who}", caption=caption, formats=RATE_FORMATS
    )


def _by_grade(
    f: AuditFacts,
    summary: Mapping[str, Any],
    names: Mapping[str, str],
    verified: Sequence[Mapping[str, Any]] | None,
) -> pd.DataFrame:
    """verified: what the verified labels say of each grade that has some."""
    grades = pd.DataFrame(summary["networks"]["grades"])
    grades["recognised"] = grades["recognised"].map({True: "yes", False: "no"})
    rates = pd.DataFrame(columns=["rate", "interval"])
    if f.judged and f.identifiable:
        rates = pd.DataFrame(summary["grades"]).set_index("grade")[["rate", "interval"]]
    if verified:
        shares = pd.DataFrame(verified).set_index("grade").rename(columns={"labels": "verified"})
        rates = shares.reindex(grades["grade"]).combine_first(rates)
        counts = ["verified", "wrong"]
        rates[counts] = rates[counts].fillna(0).astype(int)
    if len(rates):
        grades = grades.join(rates, on="grade")
    grades["grade"] = grades["grade"].map(lambda grade: names.get(str(grade), str(grade)))
    return grades


def _by_person(who: str, rows: Sequence[Mapping[str, Any]], f: AuditFacts) -> pd.DataFrame:
    """The rates of readers or patients, as far as they are known."""
    shown = pd.DataFrame(rows)
    shown[who] = shown[who].astype(str).str.strip().replace("", "(not given)")
    counted = "readings" if f.several and who == "reader" else "labels"
    unknown = ["rank"] if f.identifiable else ["expected_errors", "rate", "interval"]
    return shown.rename(columns={"samples": counted}).drop(columns=unknown)


def _interval(ends: Any, pattern: str = ".1%") -> str:
    if not isinstance(ends, (tuple, list)):
        return ""
    return between(ends[0], ends[1], pattern)


RATES = {  # column → its heading
    "rank": "rank",
    "labels": "labels",
    "readings": "readings",
    "recall": "given by the networks",
    "recognised": "recognised",
    "verified": "verified",
    "wrong": "wrong of these",
    "expected_errors": "expected errors",
    "rate": "error rate",
    "interval": "95 % interval",
}
RATE_FORMATS: dict[str, Format] = {
    "given by the networks": ".0%",
    "expected errors": ",.1f",
    "error rate": ".1%",
    "95 % interval": _interval,
}
RECOGNISED = (
    "Recognised: the networks predict this grade more often for samples that have this label than"
    " for others (exact test, 2.5 %). Other grades are neither suggested nor corrected."
)


def _matrix(
    probabilities: Sequence[Sequence[float]], grades: Sequence[str], *, averaged: bool
) -> canvas.CaptionedFigure:
    """averaged: whether several forms of noise explain the labels."""
    matrix = np.asarray(probabilities, dtype=np.float64)
    rows = "; ".join(" ".join(f"{p:.2f}" for p in row) for row in matrix)
    caption = "The probability of each label (column) for each true grade (row)"
    if averaged:
        caption += ", averaged over the forms of noise by how well each explains the labels"
    return canvas.CaptionedFigure(
        name="matrix",
        figure=canvas.transition_figure({"Estimated": matrix}, grades=grades, digits=2),
        caption=f"{caption}.",
        alt=f"Estimated probability of each label for each true grade, by row: {rows}",
    )


def _quality(quality: npt.NDArray[np.float64], *, all_labels: bool) -> canvas.CaptionedFigure:
    """all_labels: whether none is left out because it is verified, or of a grade that the networks
    do not recognise."""
    which = "each label" if all_labels else "each label that is not verified and has a probability"
    return canvas.CaptionedFigure(
        name="quality",
        figure=_histogram(quality),
        caption=(
            f"The probability that {which} is right. Those left of the dashed line (orange) are"
            " more likely wrong than right."
        ),
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
    doubtful = edges[:-1] < 0.5 - 1e-9
    colours = np.where(doubtful, canvas.PALETTE["vermillion"], canvas.PALETTE["blue"]).tolist()
    axes.bar(edges[:-1], counts, width=0.9 / BINS, align="edge", color=colours, alpha=0.8)
    axes.axvline(0.5, color=canvas.GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), xlabel="quality: probability that the label is right", ylabel="labels")
    return figure
