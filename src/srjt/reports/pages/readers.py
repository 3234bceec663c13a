"""The pages of several readers: how well they agree, what each of them does, and which readings are
doubtful."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.grades import Grades
from srjt.data.sources.readings import NO_READER, ReadingsTable, combine
from srjt.errors import count_of, few
from srjt.ordinal.intervals import Interval
from srjt.readers.agreement import COEFFICIENTS, WHICH, Agreement
from srjt.readers.consensus import Consensus
from srjt.readers.next_readings import NEW_READER
from srjt.readers.readings import ENOUGH, Readings
from srjt.readers.repeats import Repeated, repeats_of
from srjt.reports.figures.canvas import CaptionedFigure, transition_figure
from srjt.reports.figures.results import bias_figure
from srjt.reports.page import KeyNumber, Page, Section, page_of
from srjt.reports.pages.audit import doubtful_section
from srjt.reports.pages.repeats import repeats_sections, too_soon
from srjt.reports.sections import counts_table, interval_frame, thumbnail
from srjt.reports.table import MISSING, Format, Table, between, data_table

# on the page; everything is in the tables beside it
READERS = 200
FIGURE = 24  # readers in the figure
MATRICES = 12
DOUBTFUL = 24
PAIRS = 60
NEXT = 20
PROBLEMS = 20
IN_TERMINAL = 6  # readers
REMARKABLE = 5  # readings: with as many, always the same grade is remarkable


@dataclass(frozen=True, kw_only=True)
class ReadersFacts:
    """What the sentences are about; "" where there is nothing to say."""

    noun: str  # what was read: "image", "item"
    nothing_learnt: bool  # about how readers err
    exact: float | None  # share of pairs of readings with the same grade
    wrong: float  # share of the readings
    consensus_wrong: float
    determined: bool  # whether the readings determine how many are wrong
    reason: str = ""  # why not
    assumption: str = ""
    items: int = 0
    trusted: int = 0  # items with a trusted grade
    single: int = 0  # items with one reading
    no_overlap: bool = False
    resampled: str = ""
    kinds: str = ""  # of problems in the table
    constant: str = ""  # readers who always give the same grade
    nothing_next: bool = False
    new_reader: bool = False
    second: int = 0  # second readings of an item by the same reader
    soon: int = 0  # of these, less than a week after the first
    or_reference: str = ""  # what else helps, where there is a table


def verdict_of(f: ReadersFacts) -> tuple[str, str]:
    """Title and lead of the page."""
    if f.nothing_learnt:
        return "Nothing can be learnt about the readers", f"Each {f.noun} has one reading only."
    if not f.determined and f.exact is not None:
        title = f"Two readers give the same grade in {f.exact:.0%} of all cases"
        lead = "How many readings are wrong is not determined."
        return title, lead
    if not f.determined:
        return "How many readings are wrong is not determined", ""
    if f.exact is not None and f.trusted == f.items:
        title = f"Two readers give the same grade in {f.exact:.0%} of all cases"
        lead = f"About {f.wrong:.0%} of the readings differ from the trusted grades."
        return title, lead
    if f.exact is not None:
        title = f"Two readers give the same grade in {f.exact:.0%} of all cases"
        lead = (
            f"About {f.wrong:.0%} of the readings and {f.consensus_wrong:.0%} of the consensus"
            " grades are wrong."
        )
        return title, lead
    title = f"About {f.wrong:.0%} of the readings are wrong"
    lead = f"About {f.consensus_wrong:.0%} of the consensus grades are wrong."
    return title, lead


def warnings_of(f: ReadersFacts) -> Iterator[str]:
    """What to know before using the consensus, and what to do."""
    if f.nothing_learnt:
        yield (
            f"Let a second reader read {ENOUGH} {f.noun}s or more{f.or_reference}, and until then"
            " use the readings, not the consensus; srjt audit looks for wrong labels with networks"
            " instead."
        )
    if not f.determined and not f.nothing_learnt:
        yield f"{f.reason} The certainties assume that they err as often as is usual."
    if f.no_overlap:
        yield (
            f"No {f.noun} was read by two readers: what differs between readers may differ between"
            f" their {f.noun}s."
        )
    if f.kinds:
        yield f"The table has problems, listed below: {f.kinds}."
    if f.constant:
        yield f"Always the same grade, which says nothing about an image: {f.constant}."
    if f.soon:
        yield too_soon(f.soon, f.second)
    if f.nothing_next and f.trusted == f.items:
        yield f"Nothing to read next: every {f.noun} has a trusted grade."
    if f.nothing_next and f.trusted < f.items:
        yield "Nothing to read next: the table names no readers who could be asked."
    if f.new_reader:
        yield f"Every reader has read every {f.noun} in doubt: ask a new reader."


def remarks_of(f: ReadersFacts) -> Iterator[str]:
    """How the numbers were computed."""
    if not f.nothing_learnt:
        yield f"Intervals are 95 % and resample {f.resampled}."
    if not f.nothing_learnt and f.assumption:
        yield f.assumption
    if f.single and not f.nothing_learnt:
        yield f"{f.single} of {f.items} {f.noun}s have one reading only."


def page_facts(
    table: ReadingsTable,
    agree: Agreement,
    agreed: Consensus,
    *,
    shown: Sequence[str],
    worklist: pd.DataFrame | None,
    repeats: Repeated | None = None,
    study: bool = False,
) -> ReadersFacts:
    """What the sentences are about.

    shown: the grades. worklist: what to read next, if that was asked. repeats: of the readings.
    study: whether they are of the folder of a study.
    """
    readings = table.readings
    columns = table.columns
    trusted = 0 if readings.reference is None else int((readings.reference >= 0).sum())
    single = int((np.bincount(readings.item, minlength=len(readings.items)) == 1).sum())
    used = pd.Series(readings.grade).groupby(readings.reader).agg(["size", "nunique", "first"])
    constant = []
    for reader, number, different, grade in used.itertuples():
        if different == 1 and number >= REMARKABLE:
            constant.append(f"{readings.readers[reader]} ({shown[grade]})")
    kinds = Counter(problem.kind for problem in table.problems)
    resampled = "items"
    if columns.patient is not None:
        resampled = "patients"
    elif columns.group or columns.noun == "image":
        resampled = "images"
    return ReadersFacts(
        noun=columns.noun,
        items=len(readings.items),
        trusted=trusted,
        single=single,
        # nothing tells how readers err: certainties would come from the defaults of the model alone
        nothing_learnt=single == len(readings.items)
        and not trusted
        and agreed.network_power is None,
        exact=agree.exact.value if agree.shared_items else None,
        no_overlap=len(readings.readers) > 1 and not agree.shared_items,
        wrong=agreed.overall_noise_rate,
        consensus_wrong=agreed.error,
        determined=agreed.determined,
        reason="" if agreed.undetermined is None else agreed.undetermined.sentence_of(columns.noun),
        assumption=agreed.basis.sentence_of(columns.noun),
        resampled=resampled,
        kinds=", ".join(f"{count:,} {kind}" for kind, count in kinds.items()),
        constant=few(constant),
        nothing_next=worklist is not None and worklist.empty,
        new_reader=worklist is not None and NEW_READER in worklist["reader"].tolist(),
        second=0 if repeats is None else repeats.items,
        soon=0 if repeats is None else repeats.soon,
        or_reference="" if study else ", or add a column of trusted grades (reference)",
    )


def readers_page(
    table: ReadingsTable,
    agree: Agreement,
    agreed: Consensus,
    *,
    source: str,
    grades: Grades,
    images: Sequence[str] | None = None,
    worklist: pd.DataFrame | None = None,
    study: bool = False,
) -> Page:
    """The page of ``srjt readers``.

    images: (I,) the file of each item, as ``located_images`` finds them; None: the page is for a
    terminal alone. worklist: what to read next, if that was asked. study: whether
    the readings are of the folder of a study.
    """
    readings = table.readings
    shown = grades.shown
    sections: list[Section] = []
    crowd = readings.readers == [NO_READER]
    repeats = None if crowd else repeats_of(readings)
    about: dict[str, Any] = {"worklist": worklist, "repeats": repeats, "study": study}
    f = page_facts(table, agree, agreed, shown=shown, **about)
    by = "" if crowd else f" by {count_of(len(readings.readers), 'reader')}"
    counted = f"{count_of(len(readings), 'reading')} of {count_of(f.items, f.noun)}{by}."
    numbers: list[KeyNumber] = []
    figure = None
    most_read = None
    if not f.nothing_learnt:
        numbers += _agreement_numbers(agree)
        numbers += _read_again(agree, crowd=crowd, noun=f.noun)
        numbers += _consensus_numbers(agreed)
        numbers += [_beside_reference(readings)] if f.trusted else []
        frame = _with_right(agree.by_reader, agreed)
        figure = _bias(frame, f.noun)
        same = f"other readers of the same {f.noun}s"
        most_read, section = _readers(frame, [_matrices(agreed, shown)], than=same)
        doubtful = _doubtful(readings, agreed, shown, images or [""] * f.items)
        sections = [section, doubtful, _counts(agreed, shown, f"{f.noun}s"), *_agreement(agree)]
        sections += repeats_sections(repeats, f.noun)
    if worklist is not None and len(worklist):
        sections.append(_next(worklist, brief=images is None))
    problems = []
    for problem in table.problems[:PROBLEMS]:
        problems.append(f"{problem.kind}, {problem.where}: {problem.detail}")
    if len(table.problems) > PROBLEMS:
        problems.append(f"… and {len(table.problems) - PROBLEMS:,} more problems")
    text = [*table.notes, *problems]
    sections.append(
        Section(
            "table",
            "How the table was understood",
            text=text,
            closed=not problems,
            brief=bool(problems),
        )
    )
    title, lead = verdict_of(f)
    return Page(
        kind=f"Readers of {source}",
        title=title,
        lead=f"{lead} {counted}".strip(),
        warnings=list(warnings_of(f)),
        remarks=list(remarks_of(f)),
        key_numbers=numbers,
        figure=figure,
        figure_table=most_read,
        sections=sections,
        has_ids_option=False,
    )


@page_of.register(Agreement)
def agreement_page(agree: Agreement) -> Page:
    """The page of ``srjt.readers.agreement``."""
    few, section = _readers(agree.by_reader)
    same = f"Two readers give the same grade in {agree.exact.value:.0%} of all cases"
    return Page(
        kind="Agreement",
        title=same if agree.shared_items else "No item was read by two readers",
        lead=(
            f"{count_of(len(agree.readers), 'reader')},"
            f" {count_of(agree.shared_items, 'shared item')}."
        ),
        key_numbers=_agreement_numbers(agree),
        figure=_bias(agree.by_reader),
        figure_table=few,
        sections=[section, *_agreement(agree)],
    )


@page_of.register(Consensus)
def consensus_page(agreed: Consensus) -> Page:
    """The page of ``srjt.readers.consensus``."""
    single = bool(agreed.variants.evidence.single.all())  # of nobody anything is known
    facts = ReadersFacts(
        nothing_learnt=single,
        noun="item",
        exact=None,
        wrong=agreed.overall_noise_rate,
        consensus_wrong=agreed.error,
        determined=agreed.determined,
    )
    title, lead = verdict_of(facts)
    page = Page(
        kind="Consensus",
        title=title,
        lead=lead,
        warnings=[] if agreed.determined else [agreed.reason],
        sections=[_counts(agreed, agreed.grades, "items")],
    )
    if single:
        return page
    low, high = agreed.bias_interval
    by_reader = pd.DataFrame(
        {
            "reader": agreed.readers,
            "readings": agreed.readings,
            "bias": agreed.bias,
            "bias_low": low,
            "bias_high": high,
        }
    )
    frame = _with_right(by_reader, agreed)
    most_read, section = _readers(frame, [_matrices(agreed, agreed.grades)], than="the true grades")
    return replace(
        page,
        key_numbers=_consensus_numbers(agreed),
        figure_table=most_read,
        remarks=[agreed.assumption],
        sections=[section, *page.sections],
    )


# Key numbers


def _agreement_numbers(agree: Agreement) -> list[KeyNumber]:
    """How often two readers agree, and the coefficient to report: see ``WHICH``. The section of the
    agreement has all of them."""
    numbers = []
    if np.isfinite(agree.exact.value):
        close = f"at most one apart: {agree.within_one.value:.0%}"
        numbers.append(KeyNumber.of("same grade", agree.exact, ".0%", compared=close))
    name = "quadratic" if len(agree.readers) == 2 else "alpha"
    coefficient: Interval = getattr(agree, name)
    if np.isfinite(coefficient.value):
        numbers.append(KeyNumber.of(COEFFICIENTS[name], coefficient, ".2f"))
    return numbers


def _read_again(agree: Agreement, *, crowd: bool, noun: str) -> list[KeyNumber]:
    """How often a reader gives the same grade again; of a crowd without names: how often two
    readings agree."""
    again = agree.by_reader[agree.by_reader["repeated"] > 0]
    if again.empty:
        return []
    same = np.average(again["repeated_exact"], weights=again["repeated"])
    label, counted = "same grade, read again", "second reading"
    if crowd:
        label, counted = "same grade", noun
    number = count_of(int(again["repeated"].sum()), counted)
    return [KeyNumber(label, f"{same:.0%}", compared=number)]


def _consensus_numbers(agreed: Consensus) -> list[KeyNumber]:
    if not agreed.determined:  # the intervals alone
        readings = between(*agreed.overall_noise_rate_interval, ".0%")
        grades = between(*agreed.error_interval, ".0%")
        return [KeyNumber("wrong readings", readings), KeyNumber("wrong consensus grades", grades)]
    wrong = Interval(agreed.overall_noise_rate, *agreed.overall_noise_rate_interval)
    numbers = [KeyNumber.of("wrong readings", wrong, ".0%")]
    if agreed.error >= 1e-9:  # else all are trusted
        error = Interval(agreed.error, *agreed.error_interval)
        uncertain = f"{(agreed.certainty < 0.6).sum():,} less than 60 % certain"
        numbers.append(KeyNumber.of("wrong consensus grades", error, ".0%", compared=uncertain))
    return numbers


def _beside_reference(readings: Readings) -> KeyNumber:
    """How often the consensus that does not know the trusted grades is equal to them, and single
    readings."""
    trusted = np.asarray(readings.reference)
    blind = combine(replace(readings, reference=None)).grade
    off = np.abs(blind - trusted)[trusted >= 0]
    single = np.abs(readings.grade - trusted[readings.item])[trusted[readings.item] >= 0]
    errors = f"off by {off.mean():.2f} and {single.mean():.2f} grades"
    return KeyNumber(
        f"equal to {count_of(len(off), 'trusted grade')}",
        f"{(off == 0).mean():.0%}",
        compared=f"single readings: {(single == 0).mean():.0%}; {errors}",
    )


# Each reader


# of ``Agreement.by_reader``, and right → heading, how it is written, what it means
READER_COLUMNS = {
    "right": ("right", ".0%", "expected share of right readings"),
    "bias": ("higher", "+.2f", "mean difference from {than}, in grades"),
    "repeated_exact": ("again", ".0%", "the same grade when read again"),
    "drift": ("drift", "+.2f", "change of “higher” in a year"),
}


def _with_right(by_reader: pd.DataFrame, agreed: Consensus) -> pd.DataFrame:
    """The readers with the share of their readings that are right."""
    low, high = agreed.noise_rate_interval
    right = 1 - agreed.noise_rate if agreed.determined else np.nan
    return by_reader.assign(right=right, right_low=1 - high, right_high=1 - low)


def _most_read(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values("readings", ascending=False, kind="stable")


def _readers(
    frame: pd.DataFrame,
    figures: Sequence[CaptionedFigure] = (),
    *,
    than: str = "other readers of the same items",
) -> tuple[Table, Section]:
    """A table for a terminal, and the section. frame: reader, readings, and of ``READER_COLUMNS``
    what is known."""
    frame = _most_read(frame)
    captions: list[str] = []
    shown = pd.DataFrame({"reader": frame["reader"].astype(str), "readings": frame["readings"]})
    for name, (heading, pattern, meaning) in READER_COLUMNS.items():
        known = [column for column in (name, f"{name}_low") if column in frame]
        if name == "bias" or frame[known].notna().any(axis=None):
            shown[heading] = frame[name].astype(float)
            if f"{name}_low" in frame:  # a heading stands once: they differ in spaces
                shown["95 %" + " " * len(captions)] = _between(frame, pattern, f"{name}_")
            captions.append(f"{heading}: {meaning.format(than=than)}")
    formats = {heading: pattern for heading, pattern, _ in READER_COLUMNS.values()}
    caption = f"{'; '.join(captions)}.".capitalize()

    def table(most: int) -> Table:
        title = f"{most} of {len(frame):,} with the most readings" if len(frame) > most else ""
        return data_table(
            shown.head(most), title=title, slug="readers", caption=caption, formats=formats
        )

    section = Section("readers", "Readers", tables=[table(READERS)], figures=figures)
    return table(IN_TERMINAL), section


def _between(frame: pd.DataFrame, pattern: str, name: str = "") -> list[str]:
    """Intervals as text; a dash where no draw of the bootstrap differs, as of readers who always
    agree."""
    ends = frame[[f"{name}low", f"{name}high"]].to_numpy(float)
    return [between(low, high, pattern) if high - low >= 1e-9 else MISSING for low, high in ends]


def _bias(frame: pd.DataFrame, noun: str = "item") -> CaptionedFigure | None:
    shown = _most_read(frame[frame["bias"].notna()]).head(FIGURE)
    if len(shown) < 2:
        return None
    names = shown["reader"].astype(str).tolist()
    bias = shown["bias"].to_numpy(float)
    return CaptionedFigure(
        name="bias",
        figure=bias_figure(names, bias, shown[["bias_low", "bias_high"]].to_numpy(float)),
        caption=(
            f"How many grades higher each reader grades than other readers of the same {noun}s,"
            " with 95 % intervals."
        ),
        alt="; ".join(f"{name} {value:+.2f}" for name, value in zip(names, bias, strict=True)),
    )


def _matrices(agreed: Consensus, grades: Sequence[str]) -> CaptionedFigure:
    most = np.argsort(-agreed.readings, kind="stable")[:MATRICES]
    panels = {str(agreed.readers[reader]): agreed.matrices[reader] for reader in most}
    return CaptionedFigure(
        name="matrices",
        figure=transition_figure(panels, grades=grades, digits=2, columns="read as"),
        caption="What each reader says (column) for each true grade (row), by the model.",
        alt="Matrices of the readers: the probability of each reading for each true grade",
    )


# Readings and items


def _doubtful(
    readings: Readings, agreed: Consensus, shown: Sequence[str], images: Sequence[str]
) -> Section:
    """The readings that are least probably right, given all readings."""
    probability = agreed.posterior[readings.item, readings.grade]
    names = np.array(shown, dtype=object)
    rows = np.argsort(probability, kind="stable")[:DOUBTFUL]
    item = readings.item[rows]
    worst = pd.DataFrame(
        {
            "id": [readings.items[place] for place in item],
            "image": [images[place] for place in item],
            "reader": [readings.readers[place] for place in readings.reader[rows]],
            "grade": names[readings.grade[rows]],
            "suggested": names[agreed.grade[item]],
            "quality": probability[rows],
        }
    )
    return doubtful_section(worst, len(readings), "reading", _picture, file="readings.csv")


def _picture(image: str) -> str:
    """The picture of an image; none of a name for which there is no file."""
    return thumbnail(image) if os.path.isabs(image) and os.path.isfile(image) else ""


def _counts(agreed: Consensus, shown: Sequence[str], counted: str) -> Section:
    counts = np.bincount(agreed.grade, minlength=len(agreed.grades)).tolist()
    return Section("grades", "Consensus", tables=[counts_table(shown, counts, counted)])


REDUCED = {
    "consensus": "the error of the consensus, in grades",
    "readers": "the variance of the reader's error rate",
    "model": "the variance of the network's absolute error",
}


def _next(worklist: pd.DataFrame, *, brief: bool) -> Section:
    few = worklist.head(NEXT)
    reduced = REDUCED[worklist.attrs.get("goal", "consensus")]
    table = data_table(
        few.astype({"reader": str}),
        title=f"The first {len(few)} of {len(worklist):,}",
        slug="next",
        caption=f"Gain: the expected reduction of {reduced}." if "gain" in few else "",
    )
    text = ["One more reading of these helps most."]
    if "gain" not in few:
        text = ["These are drawn at random."]
    elif (few["gain"] == "").any():
        text = ["First what was to be read before; then the new readers' part, drawn at random."]
    return Section("next", "What to read next", text=text, tables=[table], brief=brief)


# Pairs of readers


PAIR_COLUMNS = {  # of ``Agreement.pairs``, and intervals → their headings
    "first": "reader",
    "second": "and",
    "items": "both",
    "quadratic": "quadratic κ",
    "interval": "95 % interval",
    "linear": "linear κ",
    "exact": "same",
    "within_one": "within one",
    "difference": "difference",
    "limits": "limits",
}
PAIR_FORMATS: dict[str, Format] = {
    "quadratic κ": ".2f",
    "linear κ": ".2f",
    "same": ".0%",
    "within one": ".0%",
    "difference": "+.2f",
}


def _agreement(agree: Agreement) -> list[Section]:
    """The coefficients of all readers, and each two of them."""
    if agree.pairs.empty:
        return []
    overall = {label: getattr(agree, name) for name, label in COEFFICIENTS.items()}
    defined = {label: number for label, number in overall.items() if np.isfinite(number.value)}
    coefficients = data_table(
        interval_frame(defined, "coefficient"),
        title="All readers",
        slug="coefficients",
        caption=WHICH,
    )
    names = np.array(agree.readers, dtype=object)
    pairs = agree.pairs.sort_values("items", ascending=False, kind="stable")
    few = pairs.head(PAIRS)
    few = few.assign(
        first=names[few["first"]],
        second=names[few["second"]],
        interval=_between(few, ".2f"),
        limits=_between(few, "+.1f", "limit_"),
    )
    more = f", {len(few)} of {len(pairs):,}" if len(few) < len(pairs) else ""
    table = data_table(
        few[list(PAIR_COLUMNS)].rename(columns=PAIR_COLUMNS),
        title=f"Pairs of readers{more}",
        slug="pairs",
        caption="Difference: first − second, in grades; limits: of agreement, by Bland and Altman.",
        formats=PAIR_FORMATS,
    )
    return [Section("agreement", "Agreement", tables=[coefficients, table])]
