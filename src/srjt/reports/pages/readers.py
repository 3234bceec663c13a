"""The page of ``srjt readers``: how well the readers agree, what each of them does, and the consensus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from srjt.data.grades import Grades
from srjt.reports.figures.canvas import CaptionedFigure, matrix_figure
from srjt.reports.figures.results import bias_figure, drift_figure, kappa_figure
from srjt.reports.page import Note, Page, Section
from srjt.reports.reader_facts import next_sentence, nothing_learnt
from srjt.reports.table import (
    Row,
    Table,
    TableCell,
    interval_text,
    number_cell,
    plain_table,
    range_cell,
    said_text,
)

# on the page; everything is in readers.json and in the tables
READERS, HEAT_MAP, MATRICES, DRIFTING, PAIRS, ITEMS, NEXT, PROBLEMS = 200, 24, 12, 8, 60, 40, 30, 20


_BIAS = {
    "others": "how many grades higher a reader is than the others who read the same",
    "model": "how many grades higher than the truth a reader is, by the model, because no two readers read the same",
}


def readers_page(facts: Mapping[str, Any]) -> Page:
    """The page for the facts that ``reader_facts`` has collected."""
    grades = Grades(facts["grades"], facts["grade_names"])
    sections = [
        _agreement(facts),
        _readers(facts, grades.shown),
        _consensus(facts, grades),
        _doubtful(facts, grades),
    ]
    if nothing_learnt(facts):
        sections = [_consensus(facts, grades)]
    if facts.get("next"):
        sections.append(_next(facts))
    return Page(
        kind="Several readers",
        title=str(facts["source"]),
        lead=str(facts["lead"]),
        notes=[Note(text=sentence) for sentence in facts["findings"]],
        sections=[*sections, _understood(facts)],
    )


def _agreement(facts: Mapping[str, Any]) -> Section:
    found = facts["agreement"]
    if found is None:
        text = [f"No {facts['noun']} was read by two readers, so there is no agreement to report."]
        return Section(slug="agreement", heading="Agreement", text=text)
    names = {
        "krippendorff": "Krippendorff’s α (ordinal)",
        "quadratic": "quadratically weighted κ of all pairs of readings",
        "exact": "same grade",
        "within_one": "same grade or the next one",
    }
    entries = [(label, interval_text(found[name], percent=name in ("exact", "within_one")))
               for name, label in names.items() if found.get(name) is not None]  # fmt: skip
    shown = facts["heat_map"]
    figures = []
    if len(shown["readers"]) > 1:
        values = np.array(
            [[np.nan if v is None else v for v in row] for row in shown["kappa"]], dtype=np.float64
        )
        figures.append(
            CaptionedFigure(
                name="kappa",
                figure=kappa_figure(shown["readers"], values),
                caption="Quadratically weighted κ of each two readers"
                + (f", the {len(shown['readers'])} with the most readings" if shown["some"] else "")
                + ". A dash: too few readings in common.",
                alt="κ of each two readers; see the table of pairs",
            )
        )
    tables = [_pairs(facts)] if facts["pairs"] else []
    text = [f"Intervals are 95 % and resample {facts['resampled']}."]
    return Section(
        slug="agreement",
        heading="Agreement",
        text=text,
        facts=entries,
        figures=figures,
        tables=tables,
        closed=True,
    )


def _pairs(facts: Mapping[str, Any]) -> Table:
    few = facts["pairs"][:PAIRS]
    rows = [
        Row(
            cells=(
                TableCell(text=str(pair["readers"][0])),
                TableCell(text=str(pair["readers"][1])),
                number_cell(pair["both"], "{:,.0f}"),
                number_cell(pair["quadratic"], "{:.2f}"),
                range_cell(pair["interval"], "{:.2f}"),
                number_cell(pair["linear"], "{:.2f}"),
                number_cell(pair["exact"], "{:.0%}"),
                number_cell(pair["within_one"], "{:.0%}"),
            )
        )
        for pair in few
    ]
    more = f": {len(few)} of {len(facts['pairs']):,}" if len(few) < len(facts["pairs"]) else ""
    return plain_table(
        "pairs",
        f"Pairs of readers, the most {facts['noun']}s in common first{more}",
        "",
        ("reader", "and", "both", "κ quadratic", "95 % interval", "κ linear", "same", "within one"),
        rows,
        text_columns=2,
    )


def _readers(facts: Mapping[str, Any], grades: Sequence[str]) -> Section:
    readers = facts["readers"]
    few = readers[:READERS]
    title = "Readers, the most readings first"
    if len(few) < len(readers):
        title += f": {len(few)} of {len(readers):,}"
    rows = [
        Row(
            cells=(
                TableCell(text=str(reader["name"])),
                number_cell(reader["readings"], "{:,.0f}"),
                number_cell(reader["right"], "{:.0%}"),
                range_cell(reader["right_interval"], "{:.0%}"),
                number_cell(reader["bias"], "{:+.2f}"),
                range_cell(reader["bias_interval"], "{:+.2f}"),
                number_cell(reader["repeated"], "{:.0%}"),
            )
        )
        for reader in few
    ]
    table = plain_table(
        "readers",
        title,
        f"Right: the expected share of right readings. Higher: {_BIAS[facts['bias_beside']]}. Again: how often the "
        "reader gives the same grade once more. All readers are in readers.json.",
        ("reader", "readings", "right", "95 % interval", "higher", "95 % interval", "again"),
        rows,
    )
    return Section(slug="readers", heading="Readers", tables=[table], figures=_reader_figures(facts, grades))


def _reader_figures(facts: Mapping[str, Any], grades: Sequence[str]) -> list[CaptionedFigure]:
    few = [reader for reader in facts["readers"] if reader["bias"] is not None][:HEAT_MAP]
    figures = []
    if len(few) > 1:
        bias = np.array([reader["bias"] for reader in few])
        figures.append(
            CaptionedFigure(
                name="bias",
                figure=bias_figure(
                    [str(r["name"]) for r in few],
                    bias,
                    np.array([r["bias_interval"] for r in few], dtype=np.float64),
                ),
                caption=f"{_BIAS[facts['bias_beside']].capitalize()}, with 95 % intervals.",
                alt="; ".join(f"{reader['name']} {reader['bias']:+.2f}" for reader in few),
            )
        )
    matrices = {str(reader["name"]): reader["matrix"] for reader in facts["readers"][:MATRICES]}
    figures.append(
        CaptionedFigure(
            name="matrices",
            figure=matrix_figure(
                matrices,
                grades=grades,
                rows="true grade",
                columns="read as",
                write=lambda value, share: f"{value:.2f}",
            ),
            caption="What each reader says (column) for each true grade (row), as the model estimates it. A reader "
            "with few readings is drawn towards the average reader.",
            alt="Matrices of the readers: the probability of each reading for each true grade",
        )
    )
    if facts["drift"]:
        series = {
            name: (np.array(of["dates"], dtype="datetime64[D]"), np.array(of["bias"]))
            for name, of in list(facts["drift"].items())[:DRIFTING]
        }
        figures.append(
            CaptionedFigure(
                name="drift",
                figure=drift_figure(series),
                caption="How many grades each reader is above the consensus, over time.",
                alt="Difference from the consensus over time, a line per reader",
            )
        )
    return figures


def _consensus(facts: Mapping[str, Any], grades: Grades) -> Section:
    found, noun = facts["consensus"], facts["noun"]
    rows = [
        Row(
            cells=(
                TableCell(text=str(item["id"])),
                TableCell(text=grades.show(str(item["grade"]))),
                number_cell(item["certainty"], "{:.2f}"),
                TableCell(text=said_text(item["said"], grades)),
            )
        )
        for item in ([] if nothing_learnt(facts) else found["doubtful"][:ITEMS])
    ]
    table = plain_table(
        "doubtful-items",
        f"The {len(rows)} least certain {noun}s",
        "All of them are in consensus.csv.",
        (noun, "consensus", "certainty", "readings"),
        rows,
        text_columns=2,
        text_last=True,
    )
    text = list(found["sentences"])
    if found["uncertain"] and not facts["next"] and not nothing_learnt(facts):
        text.append("srjt readers --next N lists what to read once more.")
    return Section(
        slug="consensus",
        heading="Consensus",
        text=text,
        counts=list(zip(grades.shown, found["counts"], strict=True)),
        tables=[table] if rows else [],
        closed=True,
    )


def _doubtful(facts: Mapping[str, Any], grades: Grades) -> Section:
    rows = [
        Row(
            cells=(
                TableCell(text=str(reading["id"])),
                TableCell(text=str(reading["reader"])),
                TableCell(text=grades.show(str(reading["grade"]))),
                TableCell(text=grades.show(str(reading["consensus"]))),
                number_cell(reading["probability"], "{:.3f}"),
            )
        )
        for reading in facts["doubtful_readings"]
    ]
    table = plain_table(
        "doubtful-readings",
        f"The {len(rows)} most doubtful readings",
        "The probability that a reading is right, given all readings. All of them are in readings.csv.",
        (facts["noun"], "reader", "read as", "consensus", "right"),
        rows,
        text_columns=4,
    )
    return Section(slug="doubtful", heading="Doubtful readings", tables=[table], closed=True)


def _next(facts: Mapping[str, Any]) -> Section:
    rows = [
        Row(
            cells=(
                TableCell(text=str(row[facts["noun"]])),
                TableCell(text=str(row["reader"])),
                number_cell(row["gain"], "{:.3f}"),
            )
        )
        for row in facts["next"][:NEXT]
    ]
    table = plain_table(
        "next",
        f"The first {len(rows)} of {len(facts['next']):,}",
        "Gain: by how much the reading is expected to reduce the error of the consensus, in grades.",
        (facts["noun"], "reader", "gain"),
        rows,
        text_columns=2,
    )
    return Section(
        slug="next",
        heading="What to read next",
        text=[next_sentence(facts)],
        code=str(facts["review_command"]),
        tables=[table],
    )


def _understood(facts: Mapping[str, Any]) -> Section:
    problems = facts["problems"]
    text = [f"{len(problems):,} problems; the first of them:"] if len(problems) > PROBLEMS else []
    listed = [f"{p['kind']}, {p['where']}: {p['detail']}" for p in problems[:PROBLEMS]]
    return Section(
        slug="table", heading="How the table was understood", text=[*facts["notes"], *text, *listed]
    )
