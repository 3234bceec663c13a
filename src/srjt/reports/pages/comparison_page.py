"""The page of a comparison of runs."""

from __future__ import annotations

import math

from srjt.errors import count_of
from srjt.inference.compare import Comparison
from srjt.ordinal.metrics import METRICS
from srjt.reports.figures.comparison_figures import forest_figure
from srjt.reports.pages.html import Note, Page, Section
from srjt.reports.tables.statistics import decimals
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell

__all__ = ["comparison_notes", "comparison_page", "describe_samples", "p_value_note"]


def comparison_page(comparison: Comparison) -> Page:
    """The differences as a figure and as a table."""
    first = comparison.runs[0]
    return Page(
        kind="Comparison",
        title=f"{', '.join(comparison.runs[1:])} against {first}",
        lead=describe_samples(comparison),
        notes=[Note(text=text) for text in comparison_notes(comparison)],
        sections=[
            Section(slug="figure", heading="Differences", figures=[forest_figure(comparison)]),
            Section(slug="numbers", heading="Numbers", tables=[_table(comparison)]),
        ],
    )


def describe_samples(comparison: Comparison) -> str:
    """How many samples, and by which labels they are judged."""
    patients = f" of {count_of(comparison.patients, 'patient')}" if comparison.patients else ""
    return f"{count_of(comparison.samples, 'test sample')}{patients}, judged by their {comparison.judged_by}."


def comparison_notes(comparison: Comparison) -> list[str]:
    """What the numbers cannot say, as sentences."""
    notes = [
        f"{run} was trained on {count:,} of the samples, or on others with their ids: its numbers look too good."
        for run, count in comparison.trained_on.items()
    ]
    if comparison.patients is None:
        notes.append("No patient ids: the intervals resample samples and are probably too narrow.")
    return [*notes, comparison.about_seeds]


def p_value_note(comparison: Comparison) -> str:
    """Where the intervals and p-values come from, and what they are corrected for."""
    corrected = (
        " The last column corrects each metric for the number of runs, by Holm."
        if len(comparison.runs) > 2
        else ""
    )
    return (
        "Intervals and two-sided p-values from the same bootstrap draws for all runs. They are not corrected for the "
        f"number of metrics.{corrected}"
    )


def _table(comparison: Comparison) -> Table:
    first, several = comparison.runs[0], len(comparison.runs) > 2
    rows, last = [], ""
    for row in comparison.differences:
        metric = METRICS[row.metric]
        numbers = (row.first, row.value)
        cells = [
            TableCell(text=row.run),
            TableCell(text=f"{metric.long_name} {'↓' if metric.lower_is_better else '↑'}"),
            *(_cell(number) for number in numbers),
            *(_cell(number, signed=True) for number in row.difference),
            _cell(row.p_value),
            *([_cell(row.adjusted)] if several else []),
        ]
        rows.append(Row(cells=tuple(cells), rule=bool(last) and row.run != last))
        last = row.run
    interval = f"{comparison.level:.0%} interval"
    columns = [
        Column(name="run", label="run"),
        Column(name="metric", label="metric"),
        Column(name="first", label=first, kind="number"),
        Column(name="value", label="this run", kind="number"),
        Column(name="difference", label="difference", kind="number"),
        Column(name="low", label="from", group=interval, kind="number"),
        Column(name="high", label="to", group=interval, kind="number"),
        Column(name="p", label="p", kind="number"),
        *([Column(name="adjusted", label="p, Holm", kind="number")] if several else []),
    ]
    return Table(
        slug="differences",
        title=f"Differences from {first}",
        caption=p_value_note(comparison),
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _cell(number: float, *, signed: bool = False) -> TableCell:
    if not math.isfinite(number):
        return TableCell(text=MISSING)
    return TableCell(text=decimals(number, signed=signed), value=number)
