"""One row per image with the consensus of its readers, from a table with several readings of each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.manifest import POSTERIOR
from srjt.data.problems import Problem
from srjt.data.sources.several_readers import ReadingsTable, combine, readings_of
from srjt.data.sources.text_table import TextTable
from srjt.errors import SrjtError, suggest
from srjt.readers import Consensus, Readings

__all__ = ["ConsensusRows", "check_several_readings", "consensus_rows"]

CHOICES = ("consensus", "error")


@dataclass(frozen=True, kw_only=True)
class ConsensusRows:
    """A table with one row per image, in the order of the readings' items, and the column of the consensus."""

    table: TextTable
    grade_column: str
    readings: Readings


def check_several_readings(
    choice: str | None, *, grade_column: str | Sequence[str] | None, **only_with_consensus: str | None
) -> bool:
    """Whether the readings of an image are combined. An error for an unknown choice and for options without effect."""
    if choice is not None and choice not in CHOICES:
        raise suggest("several_readings", choice, CHOICES)
    if choice == "consensus":
        return True
    if not (grade_column is None or isinstance(grade_column, str)) and len(grade_column) > 1:
        raise SrjtError(
            f"`grade_column` names {len(grade_column)} columns: add `several_readings='consensus'` to combine them, or "
            "choose one."
        )
    for name, column in only_with_consensus.items():
        if column is not None:
            raise SrjtError(
                f"`{name}` is for several readings of an image: add `several_readings='consensus'`, or "
                "leave it out."
            )
    return False


def consensus_rows(
    loaded: TextTable, *, source: str, grades: Sequence[str] | None = None, **columns: Any
) -> ConsensusRows:
    """Combine the readings of each image. columns: the options of ``reading_columns``.

    The grade of an image is the consensus of its readers. The columns ``readings`` (how many), ``certainty`` and
    ``p_true_0`` … (the probability of each true grade) are added; those that differ between the readings of an image
    are left out.
    """
    found = readings_of(loaded, source=source, grades=grades, images=True, **columns)
    agreed = combine(found.readings)
    rows, chosen = found.row_items, found.columns
    read = np.flatnonzero(rows >= 0)
    first = read[np.unique(rows[read], return_index=True)[1]]  # of each item
    column = "consensus_grade" if chosen.wide else chosen.grades[""]
    varying = _varying(found)
    dropped = {*varying, column}
    kept = [name for name in found.frame.columns if name not in dropped]
    table = found.frame[kept].iloc[first].reset_index(drop=True)
    added = _columns(agreed, found)
    table = table.rename(columns={name: f"{name}_source" for name in added if name in table})
    table[column] = [found.readings.grades[grade] for grade in agreed.grade]
    left_out = f"; left out, because they differ between readings: {', '.join(varying)}" if varying else ""
    notes = [*found.notes, f"grade: the consensus of the readings of each {chosen.noun}{left_out}"]
    unread = [
        Problem("missing-grade", found.lines[row], "no reading of this image can be used")
        for row in np.flatnonzero(rows < 0).tolist()
        if chosen.item is None or found.frame[chosen.item].iloc[row]
    ]
    return ConsensusRows(
        table=replace(
            loaded,
            frame=pd.concat([table, added], axis=1),
            lines=[found.lines[row] for row in first],
            problems=[*found.problems, *unread],
            notes=notes,
        ),
        grade_column=column,
        readings=found.readings,
    )


def _varying(found: ReadingsTable) -> list[str]:
    """The columns that describe a reading, not an image; the image's own and its patient's are kept."""
    chosen = found.columns
    always = {chosen.reader, chosen.date} - {None}
    own = {chosen.item, chosen.group, *chosen.grades.values()} | always
    others = [name for name in found.frame.columns if name not in own]
    read = found.row_items >= 0
    groups = found.frame.loc[read, others].groupby(found.row_items[read])
    differ = {name for name in others if groups[name].nunique().max() > 1}
    return [name for name in found.frame.columns if name in always | differ]


def _columns(agreed: Consensus, found: ReadingsTable) -> pd.DataFrame:
    readings = found.readings
    count = np.bincount(readings.item, minlength=len(readings.items))
    cells = {
        "readings": [str(number) for number in count],
        "certainty": [f"{p:.6f}" for p in agreed.certainty],
    }
    for grade in range(len(readings.grades)):
        cells[POSTERIOR.format(grade)] = [f"{p:.9f}" for p in agreed.posterior[:, grade]]
    return pd.DataFrame(cells, dtype=str)
