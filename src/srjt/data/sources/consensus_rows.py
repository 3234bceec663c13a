"""A table with several readings of an image as one row per image, with the consensus of its
readers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from srjt.data.manifest import POSTERIOR, Ints
from srjt.data.options import ReadOptions, picked
from srjt.data.problems import Problem
from srjt.data.sources.readings import (
    ReadingColumns,
    combinable_readings,
    combine,
    has_grade_column,
    reading_columns,
    wide_columns,
)
from srjt.data.sources.table import Table
from srjt.errors import Option, SrjtError, few
from srjt.readers.readings import Readings


def combines_readings(options: ReadOptions, table: Table) -> bool:
    """Whether the readings of an image are combined. An error for options without effect, and for a
    table without a column of grades but with one for each of several readers."""
    if options.several_readings == "consensus":
        return True
    unused = list(picked(options.given, ("reader_column", "reference_column")))
    if isinstance(options.grade_column, tuple) and len(options.grade_column) > 1:
        unused.append("grade_column")
    if unused:
        raise SrjtError(
            Option(unused[0]),
            " is for several readings of an image: add ",
            Option("several_readings", "consensus"),
            ".",
            code="missing_option",
        )
    if options.grade_column or has_grade_column(table.frame):
        return False
    if readers := wide_columns(table.frame):
        raise SrjtError(
            f"{table.name} has the grades of {len(readers)} readers ({few(readers, 6)}): combine"
            " them with ",
            Option("several_readings", "consensus"),
            ", compare them with srjt readers, or choose one with ",
            Option("grade_column"),
            ".",
            code="missing_option",
        )
    return False


def consensus_rows(table: Table, options: ReadOptions) -> tuple[Table, str, Readings]:
    """A table with one row per image, in the order of the readings' items; its column of grades;
    all readings.

    The grade of an image is the consensus of its readers. The columns ``readings`` (how many),
    ``certainty`` and ``p_true_0`` … (the probability of each true grade) are added; those that
    differ between the readings of an image are left out.
    """
    roles = {name: options.roles[name] for name in ("image", "patient")}
    given = {**roles, "reader": options.reader_column, "reference": options.reference_column}
    chosen = reading_columns(table, given, grade_column=options.grade_column, images=True)
    reading = combinable_readings(table, chosen, options.grades)
    readings = reading.readings
    agreed = combine(readings)
    column = "consensus_grade" if chosen.wide else chosen.grades[""]
    counts = np.bincount(readings.item, minlength=len(readings.items))
    added = {
        column: [readings.grades[grade] for grade in agreed.grade],
        "readings": list(map(str, counts)),
        "certainty": list(map("{:.6f}".format, agreed.certainty)),
    }
    for grade, shares in enumerate(agreed.posterior.T):
        added[POSTERIOR.format(grade)] = list(map("{:.9f}".format, shares))
    varying = _varying_columns(table.frame, chosen, reading.row_items)
    kept = table.frame.drop(columns=[*varying, column], errors="ignore").iloc[reading.first_rows]
    kept = kept.reset_index(drop=True).rename(columns={name: f"{name}_source" for name in added})
    note = f"grade: the consensus of the readings of each {chosen.noun}"
    if varying:
        note += f"; left out, because they differ between readings: {', '.join(varying)}"
    problems = list(reading.problems)
    for row in np.flatnonzero(reading.row_items < 0).tolist():
        if chosen.item is None or table.frame[chosen.item].iloc[row]:
            detail = "no reading of this image can be used"
            problems.append(Problem("missing-grade", table.lines[row], detail))
    combined = replace(
        table,
        frame=pd.concat([kept, pd.DataFrame(added, dtype=str)], axis=1),
        lines=[table.lines[row] for row in reading.first_rows],
        problems=problems,
        notes=[*reading.notes, note],
    )
    return combined, column, readings


def _varying_columns(frame: pd.DataFrame, chosen: ReadingColumns, row_items: Ints) -> list[str]:
    """The columns that describe a reading and not an image."""
    of_image = {chosen.item, chosen.group, *chosen.grades.values()}
    others = [name for name in frame.columns if name not in of_image]
    values = frame.loc[row_items >= 0, others].groupby(row_items[row_items >= 0])
    of_reading = (chosen.reader, chosen.date)
    return [name for name in others if name in of_reading or values[name].nunique().max() > 1]
