"""Tables with several readers: their readings, and one row per image with the consensus of its readers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import MISSING, Grading, grade_values, refuse_too_many
from srjt.data.problems import Problem
from srjt.data.sources.reading_columns import ReadingColumns, reading_columns
from srjt.data.sources.reading_conflicts import item_groups, item_references, repeated_rows
from srjt.data.sources.reading_dates import parse_dates
from srjt.data.sources.reading_notes import NO_READER, table_notes
from srjt.data.sources.text_table import TextTable, from_frame, load
from srjt.errors import SrjtError
from srjt.files import as_path
from srjt.readers import Consensus, Readings, consensus

__all__ = ["ReadingsTable", "combine", "read_readings", "readings_of"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ReadingsTable:
    """A table with several readers, as it was understood.

    Attributes
    ----------
    readings : Readings
        Every grade that can be used.
    problems : tuple of Problem
        Readings that were left out, and contradictions.
    notes : tuple of str
        How the table was understood, for people.
    frame : DataFrame
        The table, all cells as text.
    rows : (M,) array of int
        The row of ``frame`` that each reading comes from.
    row_items : (N,) array of int
        The item of each row of ``frame``, −1 if it has no usable reading.
    columns : ReadingColumns
        Which column is which.

    Examples
    --------
    >>> import pandas as pd
    >>> import srjt
    >>> graded = pd.DataFrame({"image": ["a", "a", "b", "b"], "reader": ["x", "y"] * 2, "grade": [0, 1, 2, 2]})
    >>> table = srjt.data.read_readings(graded)
    >>> len(table.readings.items), table.readings.readers
    (2, ['x', 'y'])
    """

    readings: Readings
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    frame: pd.DataFrame
    lines: list[str]
    rows: Ints
    row_items: Ints
    columns: ReadingColumns


def read_readings(
    source: str | os.PathLike[str] | pd.DataFrame,
    *,
    image_column: str | None = None,
    grade_column: str | Sequence[str] | None = None,
    reader_column: str | None = None,
    patient_column: str | None = None,
    reference_column: str | None = None,
    date_column: str | None = None,
    grades: Sequence[str] | None = None,
) -> ReadingsTable:
    """Read the grades that several readers gave to the same images.

    A long table has one row per reading (image, reader, grade), a wide one a column per reader (``grade_anna``,
    ``grade_bo``). Empty cells are readings that were not made. The images themselves are not needed.

    Parameters
    ----------
    source : path or DataFrame
        A CSV, TSV, Excel or Parquet file, or a table in memory.
    image_column, reader_column, patient_column : str, optional
        Columns. Default: found by their usual names. The first may be a column of items, such as lesions.
    grade_column : str or sequence of str, optional
        The column of grades, or the columns of all readers, also by a pattern such as ``"grade_*"``.
    reference_column : str, optional
        Trusted grades: adjudicated, or from histology. Empty where there is none.
    date_column : str, optional
        When each reading was made.
    grades : sequence of str, optional
        Names of the grades, mildest first. Default: whole numbers, or names that end in numbers, in their order.

    Returns
    -------
    ReadingsTable
        The readings, what was left out, and notes on how the table was understood.

    Examples
    --------
    >>> import pandas as pd
    >>> import srjt
    >>> table = pd.DataFrame({"image": ["a", "b"], "grade_kim": [0, 2], "grade_lee": [1, None]})
    >>> found = srjt.data.read_readings(table, grade_column="grade_*", grades=["0", "1", "2"])
    >>> found.readings.readers, len(found.readings)
    (['kim', 'lee'], 3)
    """
    if isinstance(source, pd.DataFrame):
        loaded, name = from_frame(source), "the table"
    else:
        path = as_path(source, "Readings are read from a path or a DataFrame")
        if not os.path.exists(path):
            raise SrjtError(f"{path} does not exist.")
        loaded, name = load(path / "labels.csv" if path.is_dir() else path), path.name
    if not len(loaded.frame):
        raise SrjtError(f"{name[0].upper()}{name[1:]} has no rows.")
    return readings_of(
        loaded,
        source=name,
        grades=grades,
        image_column=image_column,
        grade_column=grade_column,
        reader_column=reader_column,
        patient_column=patient_column,
        reference_column=reference_column,
        date_column=date_column,
    )


def combine(readings: Readings, *, probabilities: npt.ArrayLike | None = None) -> Consensus:
    """The consensus of a table's readings. Readers without names are a crowd: their readings are independent."""
    crowd = readings.readers == [NO_READER]
    return consensus(readings, probabilities=probabilities, repeats="independent" if crowd else "one reading")


def readings_of(
    loaded: TextTable, *, source: str, grades: Sequence[str] | None = None, **columns: Any
) -> ReadingsTable:
    """The readings of a table that is loaded already. columns: the options of ``reading_columns``."""
    frame, lines = loaded.frame, loaded.lines
    chosen = reading_columns(frame, source=source, **columns)
    problems = list(loaded.problems)
    items = lines if chosen.item is None else frame[chosen.item].tolist()
    nameless = {item for item in set(items) if item.casefold() in MISSING}
    unnamed = np.array([item in nameless for item in items])
    problems += [
        Problem("missing-image", lines[row], "the row has no image")
        for row in np.flatnonzero(unnamed).tolist()
    ]
    if unnamed.all():
        raise SrjtError(f"No row of {source} names its image: choose another column with `image_column`.")

    readers = list(chosen.grades) if chosen.wide else _reader_cells(frame, chosen)
    # wide tables row by row, so that an item's readings stay together
    cells = frame[list(chosen.grades.values())].to_numpy(dtype=object).reshape(-1).tolist()
    rows = np.repeat(np.arange(len(frame)), len(chosen.grades))
    names = readers * len(frame) if chosen.wide else readers
    references = frame[chosen.reference].tolist() if chosen.reference else []
    grading = _grading([*cells, *references], grades=grades, names=names, wide=chosen.wide)

    codes, reference_codes = grading.codes[: len(cells)], grading.codes[len(cells) :]
    empty = 0
    for position, (kind, detail) in grading.invalid.items():
        at = position if position < len(cells) else position - len(cells)
        row = int(rows[at]) if position < len(cells) else at
        if kind == "missing-grade":
            empty += position < len(cells)
            continue
        whose = names[at] if position < len(cells) else f"column {chosen.reference}"
        problems.append(
            Problem(kind, items[row], f"{lines[row]}, {whose}: {detail}; this reading is left out")
        )

    usable = (codes >= 0) & ~unnamed[rows]
    times = parse_dates(frame[chosen.date].tolist(), column=chosen.date) if chosen.date else None
    if times is not None:
        usable &= ~repeated_rows(items, names, cells, times, lines, usable, problems)
    if not usable.any():
        raise SrjtError(
            f"{source} has no reading that can be used: every grade is missing or not one of the scale."
        )
    kept = rows[usable]
    item_codes, item_names = pd.factorize(np.array(items, dtype=object)[kept])
    reader_codes, reader_names = pd.factorize(np.array(names, dtype=object)[usable])
    row_items = np.where(unnamed, -1, pd.Index(item_names).get_indexer(pd.Index(items)))
    readings = Readings(
        items=item_names.tolist(),
        readers=reader_names.tolist(),
        grades=grading.names,
        item=item_codes,
        reader=reader_codes,
        grade=codes[usable],
        groups=None
        if chosen.group is None
        else item_groups(frame[chosen.group].tolist(), items, row_items, problems),
        reference=item_references(reference_codes, items, row_items, grading.names, problems)
        if references
        else None,
        times=None if times is None else times[usable],
    )
    notes = table_notes(readings, chosen, source=source, empty=empty, grading=grading)
    return ReadingsTable(
        readings=readings,
        problems=tuple(problems),
        notes=(*loaded.notes, *notes),
        frame=frame,
        lines=list(lines),
        rows=kept,
        row_items=row_items,
        columns=chosen,
    )


def _reader_cells(frame: pd.DataFrame, chosen: ReadingColumns) -> list[str]:
    if chosen.reader is None:
        return [NO_READER] * len(frame)
    return [name or NO_READER for name in frame[chosen.reader].tolist()]


def _grading(cells: list[str], *, grades: Sequence[str] | None, names: list[str], wide: bool) -> Grading:
    """The codes of all readings and references at once: a grade may occur in only one column."""
    try:
        grading = grade_values(cells, names=grades)
    except SrjtError as problem:
        raise SrjtError(f"{problem}{_only_one_reader_says(cells, names, wide=wide)}") from None
    if grades is None:
        refuse_too_many(grading.names, samples=len(cells))
    return grading


def _only_one_reader_says(cells: list[str], names: list[str], *, wide: bool) -> str:
    """Values that one reader alone has used: where a scale is broken, it is most often there."""
    users: dict[str, set[str]] = {}
    for cell, name in zip(cells, names, strict=False):  # references follow the readings
        if cell.casefold() not in MISSING:
            users.setdefault(cell, set()).add(name)
    alone = sorted((next(iter(who)), cell) for cell, who in users.items() if len(who) == 1)
    if len(set(names)) < 2 or not 0 < len(alone) <= 3:
        return ""
    said = ", ".join(f"{cell!r} ({who})" for who, cell in alone)
    return f" Only one {'column' if wide else 'reader'} has {said}."
