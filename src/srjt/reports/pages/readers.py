"""The pages of several readers: how well they agree, what each of them does, and which readings are
doubtful."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.grades import Grades
from srjt.data.sources.readings import NO_READER, ReadingsTable, combine
from srjt.errors import count_of, few
from srjt.ordinal.metrics import Interval
from srjt.readers.agreement import COEFFICIENTS, WHICH, Agreement
from srjt.readers.consensus import NEW_READER, Consensus
from srjt.readers.readings import ENOUGH, Readings
from srjt.reports.figures.canvas import CaptionedFigure, transition_figure
from srjt.reports.figures.results import bias_figure
from srjt.reports.page import KeyNumber, Page, Rule, Section, Verdict, page_of, said
from srjt.reports.pages.audit import doubtful_section
from srjt.reports.sections import counts_table, interval_frame, thumbnail
from srjt.reports.table import MISSING, Table, between, data_table

# on the page; everything is in the tables beside it
READERS, FIGURE, MATRICES, DOUBTFUL, PAIRS, NEXT, PROBLEMS = 200, 24, 12, 24, 60, 20, 20
IN_TERMINAL = 6  # readers
REMARKABLE = 5  # readings: with as many, always the same grade is remarkable

VERDICT: list[Verdict[Any]] = [
    (lambda f: f.nothing_learnt, "Nothing can be learnt about the readers", "Each {f.noun} has one reading only."),
    (lambda f: not f.determined and f.exact is not None, "Two readers give the same grade in {f.exact:.0%} of all "
     "cases", "How many readings are wrong is not determined."),
    (lambda f: not f.determined, "How many readings are wrong is not determined", ""),
    (lambda f: f.exact is not None and f.trusted == f.items, "Two readers give the same grade in {f.exact:.0%} of all "
     "cases", "About {f.wrong:.0%} of the readings differ from the trusted grades."),
    (lambda f: f.exact is not None, "Two readers give the same grade in {f.exact:.0%} of all cases", "About "
     "{f.wrong:.0%} of the readings and {f.consensus_wrong:.0%} of the consensus grades are wrong."),
    (lambda f: True, "About {f.wrong:.0%} of the readings are wrong", "Of the consensus grades about "
     "{f.consensus_wrong:.0%} are."),
]  # fmt: skip
WARNINGS: list[Rule[Any]] = [
    (lambda f: f.nothing_learnt, f"Let a second reader read {ENOUGH} {{f.noun}}s or more, or add a column of "
     "trusted grades (reference), and until then use the readings, not the consensus; srjt audit looks for wrong "
     "labels with networks instead."),
    (lambda f: not f.determined and not f.nothing_learnt, "{f.reason} Certainties rest on how often readers "
     "usually err."),
    (lambda f: f.no_overlap, "No {f.noun} was read by two readers: what differs between readers may differ between "
     "their {f.noun}s."),
    (lambda f: f.kinds, "The table has problems, listed below: {f.kinds}."),
    (lambda f: f.constant, "Always the same grade, which says nothing about an image: {f.constant}."),
    (lambda f: f.nothing_next and f.trusted == f.items, "Nothing to read next: every {f.noun} has a trusted grade."),
    (lambda f: f.nothing_next and f.trusted < f.items, "Nothing to read next: the table names no readers who could be "
     "asked."),
    (lambda f: f.new_reader, "Every reader has read every {f.noun} in doubt: ask a new reader."),
]  # fmt: skip
REMARKS: list[Rule[Any]] = [
    (lambda f: not f.nothing_learnt, "Intervals are 95 % and resample {f.resampled}."),
    (lambda f: not f.nothing_learnt and f.assumption, "{f.assumption}"),
    (lambda f: f.single and not f.nothing_learnt, "{f.single} of {f.items} {f.noun}s have one reading only."),
]  # fmt: skip


def page_facts(
    table: ReadingsTable,
    agree: Agreement,
    agreed: Consensus,
    *,
    shown: Sequence[str],
    worklist: pd.DataFrame | None,
) -> SimpleNamespace:
    """What the rules know. shown: the grades; worklist: what to read next, if that was asked."""
    readings, columns = table.readings, table.columns
    trusted = 0 if readings.reference is None else int((readings.reference >= 0).sum())
    single = int((np.bincount(readings.item, minlength=len(readings.items)) == 1).sum())
    used = pd.Series(readings.grade).groupby(readings.reader).agg(["size", "nunique", "first"])
    constant = [
        f"{readings.readers[reader]} ({shown[grade]})"
        for reader, number, different, grade in used.itertuples()
        if different == 1 and number >= REMARKABLE
    ]
    kinds = Counter(problem.kind for problem in table.problems)
    of_images = bool(columns.group) or columns.noun == "image"
    return SimpleNamespace(
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
        reason=agreed.reason,
        assumption=agreed.assumption,
        resampled="patients" if columns.patient is not None else "images" if of_images else "items",
        kinds=", ".join(f"{count:,} {kind}" for kind, count in kinds.items()),
        constant=few(constant),
        nothing_next=worklist is not None and worklist.empty,
        new_reader=worklist is not None and NEW_READER in worklist["reader"].tolist(),
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
) -> Page:
    """The page of ``srjt readers``.

    images: (I,) the file of each item, as ``located_images`` finds them; None: the page is for a
    terminal alone. worklist: what to read next, if that was asked.
    """
    readings, shown, sections = table.readings, grades.shown, []
    f = page_facts(table, agree, agreed, shown=shown, worklist=worklist)
    crowd = readings.readers == [NO_READER]
    by = "" if crowd else f" by {count_of(len(readings.readers), 'reader')}"
    numbers = [
        KeyNumber("readings", f"{len(readings):,}", compared=f"of {count_of(f.items, f.noun)}{by}")
    ]
    figure, few = None, None
    if not f.nothing_learnt:
        numbers += _agreement_numbers(agree)
        numbers += _read_again(agree, "same grade" if crowd else "same grade, read again", f.noun)
        numbers += _consensus_numbers(agreed)
        numbers += [_beside_reference(readings)] if f.trusted else []
        frame = _with_right(agree.by_reader, agreed)
        figure, (few, section) = _bias(frame), _readers(frame, [_matrices(agreed, shown)])
        doubtful = _doubtful(readings, agreed, shown, images or [""] * f.items)
        sections = [section, doubtful, _counts(agreed, shown, f"{f.noun}s"), *_agreement(agree)]
    if worklist is not None and len(worklist):
        sections.append(_next(worklist, brief=images is None))
    problems = [
        f"{problem.kind}, {problem.where}: {problem.detail}"
        for problem in table.problems[:PROBLEMS]
    ]
    if len(table.problems) > PROBLEMS:
        problems.append(f"… and {len(table.problems) - PROBLEMS:,} more problems")
    text = [*table.notes, *problems]
    sections.append(
        Section("table", "How the table was understood", text=text, closed=not problems)
    )
    return Page(
        kind=f"Readers of {source}",
        **said(f, VERDICT, warnings=WARNINGS, remarks=REMARKS),
        key_numbers=numbers,
        figure=figure,
        figure_table=few,
        sections=sections,
    )


@page_of.register(Agreement)
def agreement_page(found: Agreement) -> Page:
    """The page of ``srjt.readers.agreement``."""
    few, section = _readers(found.by_reader)
    same = f"Two readers give the same grade in {found.exact.value:.0%} of all cases"
    return Page(
        kind="Agreement",
        title=same if found.shared_items else "No item was read by two readers",
        lead=(
            f"{count_of(len(found.readers), 'reader')},"
            f" {count_of(found.shared_items, 'shared item')}."
        ),
        key_numbers=_agreement_numbers(found),
        figure=_bias(found.by_reader),
        figure_table=few,
        sections=[section, *_agreement(found)],
    )


@page_of.register(Consensus)
def consensus_page(found: Consensus) -> Page:
    """The page of ``srjt.readers.consensus``."""
    single = bool(found.variants.evidence.single.all())  # of nobody anything is known
    facts = SimpleNamespace(
        nothing_learnt=single, noun="item", exact=None, wrong=found.overall_noise_rate, consensus_wrong=found.error,
        determined=found.determined,
    )  # fmt: skip
    (low, high), counts = found.bias_interval, _counts(found, found.grades, "items")
    own = {
        "reader": found.readers,
        "readings": found.readings,
        "bias": found.bias,
        "bias_low": low,
        "bias_high": high,
    }
    frame = _with_right(pd.DataFrame(own), found)
    few, section = _readers(frame, [_matrices(found, found.grades)], than="the true grades")
    return Page(
        kind="Consensus",
        **said(facts, VERDICT),
        key_numbers=[] if single else _consensus_numbers(found),
        figure_table=None if single else few,
        warnings=[] if found.determined else [found.reason],
        remarks=[] if single else [found.assumption],
        sections=[counts] if single else [section, counts],
    )


# Key numbers


OVERALL = {  # label → its name in ``Agreement``, and how it is written
    "same grade": ("exact", ".0%"),
    "at most one grade apart": ("within_one", ".0%"),
    "quadratic κ": ("quadratic", ".2f"),
    "Krippendorff’s α": ("alpha", ".2f"),
}


def _agreement_numbers(found: Agreement) -> list[KeyNumber]:
    numbers = {label: (getattr(found, key), pattern) for label, (key, pattern) in OVERALL.items()}
    return [
        KeyNumber.of(label, number, how)
        for label, (number, how) in numbers.items()
        if np.isfinite(number.value)
    ]


def _read_again(found: Agreement, label: str, noun: str) -> list[KeyNumber]:
    """How often a reader gives the same grade again; of a crowd without names: how often two
    readings agree."""
    again = found.by_reader[found.by_reader["repeated"] > 0]
    if again.empty:
        return []
    same = np.average(again["repeated_exact"], weights=again["repeated"])
    return [KeyNumber(label, f"{same:.0%}", compared=count_of(int(again["repeated"].sum()), noun))]


def _consensus_numbers(found: Consensus) -> list[KeyNumber]:
    if not found.determined:  # the intervals alone
        ends = {
            "wrong readings": found.overall_noise_rate_interval, "wrong consensus grades": found.error_interval,
        }  # fmt: skip
        return [KeyNumber(label, between(low, high, ".0%")) for label, (low, high) in ends.items()]
    wrong = Interval(found.overall_noise_rate, *found.overall_noise_rate_interval)
    numbers = [KeyNumber.of("wrong readings", wrong, ".0%")]
    if found.error >= 1e-9:  # else all are trusted
        error = Interval(found.error, *found.error_interval)
        uncertain = f"{(found.certainty < 0.6).sum():,} less than 60 % certain"
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


def _with_right(by_reader: pd.DataFrame, found: Consensus) -> pd.DataFrame:
    """The readers with the share of their readings that are right."""
    low, high = found.noise_rate_interval
    return by_reader.assign(right=1 - found.noise_rate, right_low=1 - high, right_high=1 - low)


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
    frame, captions = _most_read(frame), list[str]()
    shown = pd.DataFrame({"reader": frame["reader"].astype(str), "readings": frame["readings"]})
    for name, (heading, pattern, meaning) in READER_COLUMNS.items():
        if name == "bias" or (name in frame and frame[name].notna().any()):
            shown[heading] = frame[name].astype(float)
            if f"{name}_low" in frame:  # a heading stands once: they differ in spaces
                shown["95 %" + " " * len(captions)] = _between(frame, pattern, f"{name}_")
            captions.append(f"{heading}: {meaning.format(than=than)}")
    few, every = (
        data_table(
            shown.head(most),
            title=f"{most} of {len(frame):,} with the most readings" if len(frame) > most else "",
            slug="readers",
            caption=f"{'; '.join(captions)}.".capitalize(),
            formats={heading: pattern for heading, pattern, _ in READER_COLUMNS.values()},
        )
        for most in (IN_TERMINAL, READERS)
    )
    return few, Section("readers", "Readers", tables=[every], figures=figures)


def _between(frame: pd.DataFrame, pattern: str, name: str = "") -> list[str]:
    """Intervals as text; a dash where no draw of the bootstrap differs, as of readers who always
    agree."""
    ends = frame[[f"{name}low", f"{name}high"]].to_numpy(float)
    return [between(low, high, pattern) if high - low >= 1e-9 else MISSING for low, high in ends]


def _bias(frame: pd.DataFrame) -> CaptionedFigure | None:
    few = _most_read(frame[frame["bias"].notna()]).head(FIGURE)
    if len(few) < 2:
        return None
    names, bias = few["reader"].astype(str).tolist(), few["bias"].to_numpy(float)
    return CaptionedFigure(
        name="bias",
        figure=bias_figure(names, bias, few[["bias_low", "bias_high"]].to_numpy(float)),
        caption=(
            "How many grades higher each reader grades than other readers of the same items, with"
            " 95 % intervals."
        ),
        alt="; ".join(f"{name} {value:+.2f}" for name, value in zip(names, bias, strict=True)),
    )


def _matrices(found: Consensus, grades: Sequence[str]) -> CaptionedFigure:
    most = np.argsort(-found.readings, kind="stable")[:MATRICES]
    panels = {str(found.readers[reader]): found.matrices[reader] for reader in most}
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
    probability, names = (
        agreed.posterior[readings.item, readings.grade],
        np.array(shown, dtype=object),
    )
    rows = np.argsort(probability, kind="stable")[:DOUBTFUL]
    item = readings.item[rows]
    worst = pd.DataFrame({
        "id": [readings.items[place] for place in item],
        "image": [images[place] for place in item],
        "reader": [readings.readers[place] for place in readings.reader[rows]],
        "grade": names[readings.grade[rows]],
        "suggested": names[agreed.grade[item]],
        "quality": probability[rows],
    })  # fmt: skip
    return doubtful_section(worst, len(readings), "reading", _picture, file="readings.csv")


def _picture(image: str) -> str:
    """The picture of an image; none of a name for which there is no file."""
    return thumbnail(image) if os.path.isabs(image) and os.path.isfile(image) else ""


def _counts(found: Consensus, shown: Sequence[str], counted: str) -> Section:
    counts = np.bincount(found.grade, minlength=len(found.grades)).tolist()
    return Section("grades", "Consensus", tables=[counts_table(shown, counts, counted)])


def _next(worklist: pd.DataFrame, *, brief: bool) -> Section:
    few = worklist.head(NEXT)
    table = data_table(
        few.astype({"reader": str}),
        title=f"The first {len(few)} of {len(worklist):,}",
        slug="next",
        caption=(
            "Gain: by how much the reading is expected to reduce the error of the consensus, in"
            " grades."
        ),
    )
    text = ["One more reading of these helps most."]
    return Section("next", "What to read next", text=text, tables=[table], brief=brief)


# Pairs of readers


PAIR_COLUMNS = {  # of ``Agreement.pairs``, and intervals → their headings
    "first": "reader", "second": "and", "items": "both", "quadratic": "quadratic κ", "interval": "95 % interval",
    "linear": "linear κ", "exact": "same", "within_one": "within one", "difference": "difference", "limits": "limits",
}  # fmt: skip
PAIR_FORMATS = dict.fromkeys(("quadratic κ", "linear κ"), ".2f") | dict.fromkeys(
    ("same", "within one"), ".0%"
)
PAIR_FORMATS["difference"] = "+.2f"


def _agreement(found: Agreement) -> list[Section]:
    """The coefficients of all readers, and each two of them."""
    if found.pairs.empty:
        return []
    overall = {label: getattr(found, name) for name, label in COEFFICIENTS.items()}
    defined = {label: number for label, number in overall.items() if np.isfinite(number.value)}
    coefficients = data_table(
        interval_frame(defined, "coefficient"),
        title="All readers",
        slug="coefficients",
        caption=WHICH,
    )
    names = np.array(found.readers, dtype=object)
    pairs = found.pairs.sort_values("items", ascending=False, kind="stable")
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
