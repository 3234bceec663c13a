"""Tables and cells of the page of several readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from srjt.data.grade_names import display_grade
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell

__all__ = ["interval_text", "number_cell", "plain_table", "range_cell", "range_text", "said_text"]

SAID = 6  # readings of an item that are shown


def plain_table(
    slug: str,
    title: str,
    caption: str,
    labels: Sequence[str],
    rows: list[Row],
    *,
    text_columns: int = 1,
    text_last: bool = False,
) -> Table:
    """A table of ``rows``. The first columns hold text, and so does the last with ``text_last``; the others numbers."""
    last = len(labels) - 1 if text_last else len(labels)
    columns = tuple(
        Column(name=label, label=label, kind="text" if place < text_columns or place >= last else "number")
        for place, label in enumerate(labels)
    )
    return Table(slug=slug, title=title, caption=caption, columns=columns, rows=tuple(rows))


def number_cell(value: float | None, pattern: str) -> TableCell:
    if value is None:
        return TableCell(text=MISSING)
    return TableCell(text=pattern.format(value).replace("-", "−"), value=float(value))


def range_cell(interval: Sequence[float | None], pattern: str) -> TableCell:
    text = range_text(interval, pattern)
    return TableCell(text=text.replace("-", "−"), value=None if text == MISSING else interval[0])


def range_text(interval: Sequence[float | None], pattern: str) -> str:
    """ "91% to 97%", with decimals where the ends would look the same; a dash where there is no interval."""
    low, high = interval
    if low is None or high is None:
        return MISSING
    for finer in (pattern, *(pattern.replace(".0%", f".{digits}%") for digits in (1, 2))):
        if finer.format(low) != finer.format(high):
            break
    return f"{finer.format(low)} to {finer.format(high)}"


def interval_text(found: Mapping[str, Any], *, percent: bool) -> str:
    pattern = "{:.1%}" if percent else "{:.3f}"
    text = f"{pattern.format(found['value'])} (95 % interval: {range_text(found['interval'], pattern)})"
    return text.replace("-", "−")


def said_text(readings: Sequence[Sequence[str]], names: Mapping[str, str]) -> str:
    """Who said what of an item. readings: reader and grade of each; names: of the grades."""
    few = [f"{reader}: {display_grade(grade, names)}" for reader, grade in readings[:SAID]]
    return ", ".join(few) + (", …" if len(readings) > SAID else "")
