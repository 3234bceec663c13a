"""How a table with several readers was understood, in sentences."""

from __future__ import annotations

import numpy as np

from srjt.data.grades import Grading
from srjt.data.sources.reading_columns import ReadingColumns
from srjt.errors import count_of
from srjt.readers import Readings

__all__ = ["NO_READER", "describe_readers", "table_notes"]

NO_READER = "(not given)"  # the name of a reader without one


def table_notes(
    readings: Readings, chosen: ReadingColumns, *, source: str, empty: int, grading: Grading
) -> list[str]:
    """How the table was understood."""
    columns = _few([repr(column) for column in chosen.grades.values()])
    count = len(readings.readers)
    by = "" if readings.readers == [NO_READER] else f" by {count_of(count, 'reader')}"
    notes = [
        f"{source}: one column per reader ({columns})" if chosen.wide else f"{source}: one row per reading",
        *chosen.notes,
        f"{count_of(len(readings), 'reading')} of {count_of(len(readings.items), chosen.noun)}{by}, "
        f"{_readings_of_each(readings, chosen.noun)}",
        f"grades: {grading.note}",
    ]
    if chosen.item is None:
        notes.append("no column of images: each row is an image of its own")
    if not chosen.wide and chosen.reader is None:
        several = np.bincount(readings.item).max() > 1
        who = ": the readings count as those of different readers who are equally good" if several else ""
        notes.append(f"no column of readers{who}")
    elif NO_READER in readings.readers:
        at = readings.readers.index(NO_READER)
        unnamed = int((readings.reader == at).sum())
        one, many = "reading without a reader counts as that", "readings without a reader count as those"
        notes.append(f"{count_of(unnamed, one, many)} of one reader, {NO_READER!r}")
    if empty:
        notes.append(f"empty cells, readings that were not made: {empty:,}")
    if readings.reference is not None:
        known = int((readings.reference >= 0).sum())
        notes.append(
            f"reference: column {chosen.reference!r}; {chosen.noun}s with a trusted grade: {known:,}"
        )
    if readings.times is not None:
        unknown = int(np.isnat(readings.times).sum())
        notes.append(
            f"dates: {count_of(unknown, 'reading has', 'readings have')} none that can be read"
            if unknown
            else "dates: all readings have one"
        )
    return notes


def describe_readers(readings: Readings, chosen: ReadingColumns) -> str:
    """What the table says about its readers, in one sentence; "" if nothing tells of several readers."""
    if len(readings.readers) < 2 and np.bincount(readings.item).max() < 2:
        return ""
    if chosen.wide:
        where = f"columns {_few(list(chosen.grades.values()))}"
    else:
        where = f"column {chosen.reader}" if chosen.reader else "not named"
    count = len(readings.readers)
    return f"{count_of(count, 'reader')} ({where}), {_readings_of_each(readings, chosen.noun)}."


def _few(names: list[str]) -> str:
    return ", ".join(names[:6]) + (", …" if len(names) > 6 else "")


def _readings_of_each(readings: Readings, noun: str) -> str:
    each = np.bincount(readings.item)
    low, high = int(each.min()), int(each.max())
    if low == high:
        return f"{count_of(low, 'reading')} of each {noun}"
    return f"{low:,} to {high:,} readings of each {noun}"
