"""The facts of ``srjt readers`` and their page: how well the readers agree, what each does, the doubtful readings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from srjt._version import __version__
from srjt.data.grades import Grades
from srjt.data.sources.readers_folder import read_readers_folder
from srjt.data.sources.readings import NO_READER, ReadingsTable, combine
from srjt.errors import count_of
from srjt.ordinal.metrics import Interval
from srjt.progress import plain
from srjt.readers.agreement import COEFFICIENTS, WHICH, Agreement
from srjt.readers.consensus import NEW_READER, Consensus
from srjt.readers.readings import ENOUGH, Readings
from srjt.reports.figures.canvas import CaptionedFigure, transition_figure
from srjt.reports.figures.results import bias_figure, drift_figure, kappa_figure
from srjt.reports.page import KeyNumber, Page, Rule, Section, Verdict, page_of, said, sentences
from srjt.reports.pages.audit import doubtful_section, thumbnail
from srjt.reports.pages.evaluation import interval_frame
from srjt.reports.sections import listed
from srjt.reports.table import MISSING, Table, between, data_table

DOUBTFUL = 24  # items and readings
PERIODS = 12  # at most this many points of a reader's drift
LEAST = 10  # readings of a point, at least
OWN_COLUMNS = {"consensus", "probability", "gain"}  # of a table that srjt readers has written


def reader_facts(
    table: ReadingsTable,
    agreement: Agreement,
    agreed: Consensus,
    *,
    source: str,
    probabilities: str | None = None,
    probabilities_sha256: str | None = None,
    grade_names: Mapping[str, str] = MappingProxyType({}),
    worklist: pd.DataFrame | None = None,
    review_command: str = "",
) -> dict[str, Any]:
    """The facts of a table of readings; None stands where a number or an interval is undefined.

    probabilities: a network's file, and its SHA-256; worklist: what to read next; review_command: how to read it.
    """
    readings, columns = table.readings, table.columns
    of_images = bool(columns.group) or columns.noun == "image"
    names = np.array(readings.readers, dtype=object)
    pairs = agreement.pairs.sort_values("items", ascending=False, kind="stable")
    pairs = pairs.assign(first=names[pairs["first"]], second=names[pairs["second"]])
    overall = {name: getattr(agreement, name) for name in (*COEFFICIENTS, "exact", "within_one")}
    facts = {
        "srjt": __version__,
        "source": source,
        "noun": columns.noun,
        "grades": list(readings.grades),
        "grade_names": dict(grade_names),
        "probabilities": probabilities,
        "probabilities_sha256": probabilities_sha256,
        "items": len(readings.items),
        "number_of_readings": len(readings),
        "resampled": "patients" if columns.patient is not None else "images" if of_images else "items",
        "agreement": {n: ends(v) for n, v in overall.items()} if agreement.shared_items else None,
        "pairs": pairs,
        "readers": _each_reader(readings, agreement, agreed),
        "drift": drift(readings, agreed),
        "consensus": _consensus(readings, agreed),
        "doubtful_readings": _doubtful_readings(readings, agreed),
        "reference": _reference(readings),
        "unused_columns": unused_columns(table),
        "notes": list(table.notes),
        "problems": [{"kind": p.kind, "where": p.where, "detail": p.detail} for p in table.problems],
        "next": worklist,
        "review_command": review_command,
    }
    as_values: dict[str, Any] = plain(facts)
    return as_values


def ends(interval: Interval) -> dict[str, float] | None:
    """An interval as plain values; None if it is undefined."""
    return None if np.isnan(interval.value) else interval._asdict()


def _each_reader(readings: Readings, agreement: Agreement, agreed: Consensus) -> pd.DataFrame:
    """Of each reader, the one with the most readings first: the columns of ``Agreement.by_reader`` and the share of
    right readings. The bias is that beside the others who read the same items; nobody else: none."""
    used = np.zeros((len(readings.readers), len(readings.grades)), dtype=np.int64)
    np.add.at(used, (readings.reader, readings.grade), 1)
    wrong_low, wrong_high = agreed.noise_rate_interval
    frame = agreement.by_reader.assign(
        name=readings.readers,
        readings=used.sum(axis=1),
        by_grade=pd.Series(used.tolist(), dtype=object),
        right=1 - agreed.noise_rate,
        right_low=1 - wrong_high,
        right_high=1 - wrong_low,
        matrix=pd.Series(np.round(agreed.matrices, 6).tolist(), dtype=object),
    )
    return frame.drop(columns="reader").sort_values("readings", ascending=False, kind="stable")


def drift(readings: Readings, agreed: Consensus) -> dict[str, tuple[list[str], list[float]]]:
    """Reader → dates and mean differences from the consensus in grades, over periods of equally many readings.

    Only readers with dates in two periods or more, the most readings first; empty without dates.
    """
    if readings.times is None:
        return {}
    expected = agreed.posterior @ np.arange(len(readings.grades))
    difference, series = readings.grade - expected[readings.item], {}
    number = np.bincount(readings.reader, minlength=len(readings.readers))
    for reader in np.argsort(-number, kind="stable").tolist():
        own = np.flatnonzero((readings.reader == reader) & ~np.isnat(readings.times))
        periods = min(PERIODS, len(own) // LEAST)
        if periods < 2:
            continue
        parts = np.array_split(own[np.argsort(readings.times[own], kind="stable")], periods)
        dates = [str(readings.times[part[len(part) // 2]].astype("datetime64[D]")) for part in parts]
        series[readings.readers[reader]] = (dates, [float(difference[part].mean()) for part in parts])
    return series


def _consensus(readings: Readings, agreed: Consensus) -> dict[str, Any]:
    """The counts of the grades, how certain they are, and the least certain items with who said what."""
    least = np.argsort(agreed.certainty, kind="stable")[:DOUBTFUL]
    least = least[agreed.certainty[least] < 0.999]
    readers, grades = np.array(readings.readers, dtype=object), np.array(readings.grades, dtype=object)
    pairs = np.column_stack([readers[readings.reader], grades[readings.grade]])
    doubtful = pd.DataFrame({
        "id": [readings.items[item] for item in least],
        "grade": grades[agreed.grade[least]],
        "certainty": agreed.certainty[least],
        "said": [pairs[readings.item == item].tolist() for item in least],
    })  # fmt: skip
    return {
        "counts": np.bincount(agreed.grade, minlength=len(readings.grades)),
        "determined": agreed.determined,
        "reason": agreed.reason,
        "assumption": agreed.assumption,
        "expected_wrong": float((1 - agreed.certainty).sum()),
        "wrong_readings": ends(Interval(agreed.overall_noise_rate, *agreed.overall_noise_rate_interval)),
        "uncertain": int((agreed.certainty < 0.6).sum()),
        "single": int((np.bincount(readings.item, minlength=len(readings.items)) == 1).sum()),
        "doubtful": doubtful,
    }


def _doubtful_readings(readings: Readings, agreed: Consensus) -> pd.DataFrame:
    """The readings that are least probably right, given all readings."""
    probability = agreed.posterior[readings.item, readings.grade]
    rows = np.argsort(probability, kind="stable")[:DOUBTFUL]
    item, names = readings.item[rows], np.array(readings.grades, dtype=object)
    return pd.DataFrame({
        "id": np.array(readings.items, dtype=object)[item],
        "reader": np.array(readings.readers, dtype=object)[readings.reader[rows]],
        "grade": names[readings.grade[rows]],
        "consensus": names[agreed.grade[item]],
        "probability": probability[rows],
    })  # fmt: skip


def _reference(readings: Readings) -> dict[str, Any] | None:
    """How readings, and the consensus without the reference, agree with it; None if there is none."""
    if readings.reference is None or not (readings.reference >= 0).any():
        return None
    items = np.flatnonzero(readings.reference >= 0)
    truth = readings.reference[readings.item]
    judged = truth >= 0
    blind = combine(replace(readings, reference=None))
    missed = blind.grade[items] - readings.reference[items]
    return {
        "items": len(items),
        "readings": int(judged.sum()),
        "readings_equal": float((readings.grade == truth)[judged].mean()),
        "readings_error": float(np.abs(readings.grade - truth)[judged].mean()),
        "consensus_equal": float((missed == 0).mean()),
        "consensus_error": float(np.abs(missed).mean()),
    }


def unused_columns(table: ReadingsTable) -> list[str]:
    """The columns of the table that were not used."""
    chosen = table.columns
    roles = (chosen.item, chosen.reader, chosen.image, chosen.patient, chosen.reference, chosen.date)
    used = {*roles, *chosen.grades.values(), *OWN_COLUMNS}
    return [str(name) for name in table.frame.columns if name not in used]


# on the page; everything is in readers.json and in the tables
READERS, HEAT_MAP, MATRICES, DRIFTING, PAIRS, NEXT, PROBLEMS, SAID = 200, 24, 12, 8, 60, 20, 20, 6
OVERALL = {  # label → its name in ``Agreement``, and how it is written
    "same grade": ("exact", ".0%"),
    "at most one grade apart": ("within_one", ".0%"),
    "quadratic κ": ("quadratic", ".2f"),
    "Krippendorff’s α": ("alpha", ".2f"),
}
IN_TERMINAL = 6  # readers
REMARKABLE = 5  # readings: with as many, always the same grade is remarkable

VERDICT: list[Verdict[Any]] = [
    (lambda f: f.nothing_learnt, "Nothing can be learnt about the readers", "Each {f.noun} has one reading only."),
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
    (lambda f: f.problems, "The table has problems, listed below: {f.kinds}."),
    (lambda f: f.constant, "Always the same grade, which says nothing about an image: {f.constant}."),
]  # fmt: skip
REMARKS: list[Rule[Any]] = [
    (lambda f: not f.nothing_learnt, "Intervals are 95 % and resample {f.resampled}."),
    (lambda f: not f.nothing_learnt and f.assumption, "{f.assumption}"),
    (lambda f: f.single and not f.nothing_learnt, "{f.single} of {f.items} {f.noun}s have one reading only."),
]  # fmt: skip
NEXT_READINGS: list[Rule[Any]] = [
    (lambda f: f.next and f.known_readers, "One more reading of these helps most."),
    (lambda f: f.next, "Every reader has read every {f.noun}{f.without_trusted}. Ask a new reader: one more "
     "reading of these helps most."),
    (lambda f: f.trusted == f.items, "Nothing to read next: every {f.noun} has a trusted grade."),
    (lambda f: True, "Nothing to read next: the table names no readers who could be asked."),
]  # fmt: skip


def page_facts(facts: Mapping[str, Any]) -> SimpleNamespace:
    """What the rules know: the facts that ``reader_facts`` has collected, those about the consensus, and more."""
    agreed, readers, scale = (
        facts["consensus"],
        facts["readers"],
        Grades(facts["grades"], facts["grade_names"]),
    )
    trusted = 0 if facts["reference"] is None else facts["reference"]["items"]
    alone = facts["reference"] is None and facts["probabilities"] is None
    constant = [
        f"{reader['name']} ({scale.shown[int(np.argmax(reader['by_grade']))]})"
        for reader in readers
        if max(reader["by_grade"]) == reader["readings"] >= REMARKABLE
    ]
    kinds = Counter(problem["kind"] for problem in facts["problems"])
    own = {
        "scale": scale,
        # nothing tells how readers err: certainties would come from the defaults of the model alone
        "nothing_learnt": alone and agreed["single"] == facts["items"],
        "exact": ((facts["agreement"] or {}).get("exact") or {}).get("value"),
        "wrong": (agreed["wrong_readings"] or {"value": 0.0})["value"],
        "consensus_wrong": agreed["expected_wrong"] / facts["items"],
        "no_overlap": len(readers) > 1 and facts["agreement"] is None,
        "kinds": ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()),
        "constant": listed(constant, 3),
        "known_readers": any(row["reader"] != NEW_READER for row in facts["next"] or ()),
        "trusted": trusted,
        "without_trusted": " without a trusted grade" if trusted else "",
    }
    return SimpleNamespace(**{**facts, **agreed, **own})


def readers_page(facts: Mapping[str, Any], folder: Path | None = None) -> Page:
    """The page for the facts that ``reader_facts`` has collected. folder: that of srjt readers, for the images."""
    f, frame, figure, few, sections = page_facts(facts), pd.DataFrame(facts["readers"]), None, None, []
    if not f.nothing_learnt:
        figure, (few, readers) = _bias(frame), _readers(frame, _reader_figures(f))
        sections = [readers, *_doubtful(f, folder), *_agreement(f)]
    if f.next is not None:
        sections.append(_next(f, folder))
    problems = [f"{p['kind']}, {p['where']}: {p['detail']}" for p in f.problems[:PROBLEMS]]
    if len(f.problems) > PROBLEMS:
        problems.append(f"… and {len(f.problems) - PROBLEMS:,} more problems")
    unused = [f"columns that were not used: {', '.join(f.unused_columns)}"] if f.unused_columns else []
    text = [*f.notes, *unused, *problems]
    understood = Section("table", "How the table was understood", text=text, closed=not problems)
    return Page(
        kind=f"Readers of {f.source}",
        **said(f, VERDICT, warnings=WARNINGS, remarks=REMARKS),
        key_numbers=_key_numbers(f),
        figure=figure,
        figure_table=few,
        sections=[*sections, understood],
    )


@page_of.register(Agreement)
def agreement_page(found: Agreement) -> Page:
    """The page of ``srjt.readers.agreement``; ``found.pairs`` has the pairs of readers."""
    frame = found.by_reader.assign(name=found.readers)
    few, section = _readers(frame)
    same = f"Two readers give the same grade in {found.exact.value:.0%} of all cases"
    return Page(
        kind="Agreement",
        title=same if found.shared_items else "No item was read by two readers",
        lead=f"{count_of(len(found.readers), 'reader')}, {count_of(found.shared_items, 'shared item')}.",
        key_numbers=_overall({key: ends(getattr(found, key)) for key, _ in OVERALL.values()}),
        figure=_bias(frame),
        figure_table=few,
        sections=[section],
    )


@page_of.register(Consensus)
def consensus_page(found: Consensus) -> Page:
    """The page of ``srjt.readers.consensus``."""
    single = bool(found.variants.evidence.single.all())  # of nobody anything is known
    (wrong_low, wrong_high), (low, high) = found.noise_rate_interval, found.bias_interval
    frame = pd.DataFrame({
        "name": found.readers, "readings": found.readings,
        "right": 1 - found.noise_rate, "right_low": 1 - wrong_high, "right_high": 1 - wrong_low,
        "bias": found.bias, "bias_low": low, "bias_high": high,
    }).sort_values("readings", ascending=False, kind="stable")  # fmt: skip
    matrices = _matrices(found.readers, found.matrices, found.grades)
    few, section = _readers(frame, [matrices], than="the true grades")
    numbers = {
        "wrong readings": Interval(found.overall_noise_rate, *found.overall_noise_rate_interval),
        "wrong consensus grades": Interval(found.error, *found.error_interval),
    }
    facts = SimpleNamespace(
        nothing_learnt=single, noun="item", exact=None, wrong=found.overall_noise_rate, consensus_wrong=found.error
    )  # fmt: skip
    counts = zip(found.grades, np.bincount(found.grade, minlength=len(found.grades)).tolist(), strict=True)
    return Page(
        kind="Consensus",
        **said(facts, VERDICT),
        key_numbers=[] if single else [KeyNumber.of(label, n, ".0%") for label, n in numbers.items()],
        figure_table=None if single else few,
        warnings=[] if found.determined else [found.reason],
        remarks=[] if single else [found.assumption],
        sections=[
            *([] if single else [section]),
            Section("consensus", "Consensus", counts=list(counts), counted="items"),
        ],
    )


def _key_numbers(f: SimpleNamespace) -> list[KeyNumber]:
    crowd, reference = [reader["name"] for reader in f.readers] == [NO_READER], f.reference
    by = "" if crowd else f" by {count_of(len(f.readers), 'reader')}"
    of = f"of {count_of(f.items, f.noun)}{by}"
    numbers = [KeyNumber("readings", f"{f.number_of_readings:,}", compared=of)]
    if f.nothing_learnt:
        return numbers
    numbers += _overall(f.agreement or {})
    # of a crowd without names: two readings of the same item
    if count := sum(reader["repeated"] for reader in f.readers):
        same = sum(reader["repeated"] * (reader["repeated_exact"] or 0) for reader in f.readers)
        label = "same grade" if crowd else "same grade, read again"
        numbers.append(KeyNumber(label, f"{same / count:.0%}", compared=count_of(count, f.noun)))
    if f.wrong_readings:
        numbers.append(KeyNumber.of("wrong readings", _interval(f.wrong_readings), ".0%"))
    if f.trusted < f.items:
        uncertain = f"{f.uncertain:,} less than 60 % certain"
        numbers.append(KeyNumber("wrong consensus grades", f"{f.consensus_wrong:.0%}", compared=uncertain))
    if reference is not None:
        label = f"equal to {count_of(reference['items'], 'trusted grade')}"
        errors = f"off by {reference['consensus_error']:.2f} and {reference['readings_error']:.2f} grades"
        compared = f"single readings: {reference['readings_equal']:.0%}; {errors}"
        numbers.append(KeyNumber(label, f"{reference['consensus_equal']:.0%}", compared=compared))
    return numbers


def _overall(agreement: Mapping[str, Any]) -> list[KeyNumber]:
    return [
        KeyNumber.of(label, _interval(value), pattern)
        for label, (key, pattern) in OVERALL.items()
        if (value := agreement.get(key))
    ]


def _interval(ends: Mapping[str, Any]) -> Interval:
    return Interval(*(np.nan if ends[name] is None else ends[name] for name in Interval._fields))


def _between(frame: pd.DataFrame, pattern: str, name: str = "") -> list[str]:
    """Intervals as text; a dash where no draw of the bootstrap differs, as of readers who always agree."""
    ends = frame[[f"{name}low", f"{name}high"]].to_numpy(float)
    return [between(low, high, pattern) if high - low >= 1e-9 else MISSING for low, high in ends]


READER_COLUMNS = {  # column of ``reader_facts`` → heading, how it is written, what it means
    "right": ("right", ".0%", "expected share of right readings"),
    "bias": ("higher", "+.2f", "mean difference from {than}, in grades"),
    "repeated_exact": ("again", ".0%", "the same grade when read again"),
    "drift": ("drift", "+.2f", "change of “higher” in a year"),
}


def _readers(
    frame: pd.DataFrame,
    figures: Sequence[CaptionedFigure] = (),
    *,
    than: str = "other readers of the same items",
) -> tuple[Table, Section]:
    """A table for a terminal, and the section. frame: the columns of ``reader_facts``, as far as they are known."""
    shown = pd.DataFrame({"reader": frame["name"].astype(str), "readings": frame["readings"]})
    captions: list[str] = []
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


def _bias(frame: pd.DataFrame) -> CaptionedFigure | None:
    few = frame[frame["bias"].notna()].head(HEAT_MAP)
    if len(few) < 2:
        return None
    names, bias = few["name"].astype(str).tolist(), few["bias"].to_numpy(float)
    return CaptionedFigure(
        name="bias",
        figure=bias_figure(names, bias, few[["bias_low", "bias_high"]].to_numpy(float)),
        caption="How many grades higher each reader grades than other readers of the same items, with 95 % intervals.",
        alt="; ".join(f"{name} {value:+.2f}" for name, value in zip(names, bias, strict=True)),
    )


def _matrices(readers: Sequence[Any], matrices: Any, grades: Sequence[str]) -> CaptionedFigure:
    panels = {str(name): matrix for name, matrix in zip(readers, matrices[:MATRICES], strict=False)}
    return CaptionedFigure(
        name="matrices",
        figure=transition_figure(panels, grades=grades, digits=2, columns="read as"),
        caption="What each reader says (column) for each true grade (row), by the model.",
        alt="Matrices of the readers: the probability of each reading for each true grade",
    )


def _reader_figures(f: SimpleNamespace) -> list[CaptionedFigure]:
    names, matrices = ([reader[key] for reader in f.readers] for key in ("name", "matrix"))
    figures = [_matrices(names, matrices, f.scale.shown)]
    if f.drift:
        series = {
            name: (np.array(dates, dtype="datetime64[D]"), np.array(values))
            for name, (dates, values) in list(f.drift.items())[:DRIFTING]
        }
        figure = CaptionedFigure(
            name="drift",
            figure=drift_figure(series),
            caption="How many grades each reader is above the consensus, over time.",
            alt="Difference from the consensus over time, a line per reader",
        )
        figures.append(figure)
    return figures


def _doubtful(f: SimpleNamespace, folder: Path | None) -> list[Section]:
    """The readings that are least probably right, and the items of which the consensus is least certain."""
    read, show = None if folder is None else read_readers_folder(folder), f.scale.show
    images = {} if read is None else dict(zip(read.ids, read.images, strict=True))

    def picture(item: str) -> str:
        return thumbnail(folder, images[item]) if folder is not None and images.get(item) else ""

    def who_said(readings: Sequence[Sequence[str]]) -> str:
        few = [f"{reader}: {show(grade)}" for reader, grade in readings[:SAID]]
        return ", ".join(few) + (", …" if len(readings) > SAID else "")

    readings = pd.DataFrame(f.doubtful_readings)
    readings = readings.rename(columns={"consensus": "suggested", "probability": "quality"})
    readings = readings.assign(image=readings["id"], **readings[["grade", "suggested"]].map(show))
    made = [doubtful_section(readings, f.number_of_readings, "reading", picture, file="readings.csv")]
    if f.doubtful:
        items = pd.DataFrame(f.doubtful).rename(columns={"certainty": "quality", "said": "reader"})
        items = items.assign(image=items["id"], suggested="", grade=items["grade"].map(show))
        items["reader"] = items["reader"].map(who_said)
        made.append(doubtful_section(items, f.items, "consensus grade", picture, file="consensus.csv"))
    counts = list(zip(f.scale.shown, f.counts, strict=True))
    return [*made, Section("grades", "Consensus", counts=counts, counted=f"{f.noun}s")]


PAIR_COLUMNS = {  # of ``Agreement.pairs``, and intervals → their headings
    "first": "reader", "second": "and", "items": "both", "quadratic": "quadratic κ", "interval": "95 % interval",
    "linear": "linear κ", "exact": "same", "within_one": "within one", "difference": "difference", "limits": "limits",
}  # fmt: skip
PAIR_FORMATS = dict.fromkeys(("quadratic κ", "linear κ"), ".2f") | dict.fromkeys(("same", "within one"), ".0%")
PAIR_FORMATS["difference"] = "+.2f"


def _agreement(f: SimpleNamespace) -> list[Section]:
    """Each two readers: κ as a picture and all numbers as a table."""
    pairs = pd.DataFrame(f.pairs)
    if pairs.empty:
        return []
    names = [reader["name"] for reader in f.readers[:HEAT_MAP]]
    both = pd.concat([pairs, pairs.rename(columns={"first": "second", "second": "first"})])
    kappa = both.pivot_table(index="first", columns="second", values="quadratic", aggfunc="first")
    few = pairs.head(PAIRS)
    few = few.assign(interval=_between(few, ".2f"), limits=_between(few, "+.1f", "limit_"))
    overall = {name: _interval(value) for key, name in COEFFICIENTS.items() if (value := f.agreement[key])}
    frame = interval_frame(overall, "coefficient")
    coefficients = data_table(frame, title="All readers", slug="coefficients", caption=WHICH)
    more = f", {len(few)} of {len(pairs):,}" if len(few) < len(pairs) else ""
    table = data_table(
        few[list(PAIR_COLUMNS)].rename(columns=PAIR_COLUMNS).astype(dict.fromkeys(PAIR_FORMATS, float)),
        title=f"Pairs of readers{more}",
        slug="pairs",
        caption="Difference: first − second, in grades; limits: of agreement, by Bland and Altman.",
        formats=PAIR_FORMATS,
    )
    figure = CaptionedFigure(
        name="kappa",
        figure=kappa_figure([*map(str, names)], kappa.reindex(index=names, columns=names).to_numpy(float)),
        caption="Quadratic κ of each two readers. A dash: too few readings in common.",
        alt="κ of each two readers; see the table of pairs",
    )
    return [Section("agreement", "Agreement", tables=[coefficients, table], figures=[figure])]


def _next(f: SimpleNamespace, folder: Path | None) -> Section:
    text, tables = sentences(NEXT_READINGS, f)[:1], []
    if f.next:
        frame = pd.DataFrame(f.next[:NEXT])
        table = data_table(
            frame[[f.noun, "reader", "gain"]].astype({"reader": str}),
            title=f"The first {len(frame)} of {len(f.next):,}",
            slug="next",
            caption="Gain: by how much the reading is expected to reduce the error of the consensus, in grades.",
        )
        tables.append(table)
    brief = folder is None or not f.known_readers  # else a terminal says where the list is
    code = str(f.review_command) if f.next else ""
    return Section("next", "What to read next", text=text, code=code, tables=tables, brief=brief)
