"""Tables with several readers: find the columns, read the dates, settle rows that repeat or contradict each
other, and say how the table was understood.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import MISSING, Grading, grade_values, refuse_too_many
from srjt.data.manifest import Problem
from srjt.data.sources.columns import (
    SYNONYMS,
    TextTable,
    choose_columns,
    from_frame,
    load_table,
    looks_like_grades,
    values_of,
    with_common_values,
)
from srjt.errors import SrjtError, count_of, unknown_name
from srjt.files import as_path
from srjt.readers.consensus import Consensus, consensus
from srjt.readers.readings import Readings

# Find the columns of a table with several readers: one row per reading (long), or one column per reader
# (wide).

READER_WORDS = (
    *("reader", "grader", "annotator", "rater", "observer", "doctor", "physician", "clinician", "expert"),
    *("radiologist", "pathologist", "labeller", "labeler", "reviewer", "coder", "worker"),
)
READING_SYNONYMS: dict[str, tuple[str, ...]] = {
    # before the image: one image may have several items, such as lesions or regions
    "item": ("item", "itemid", "sample", "sampleid", "lesion", "lesionid", "nodule", "noduleid"),
    "image": SYNONYMS["image"],
    "grade": SYNONYMS["grade"],
    "reader": tuple(word + end for word in READER_WORDS for end in ("", "id", "name")),
    "patient": SYNONYMS["patient"],
    "reference": (
        *("reference", "referencegrade", "referencestandard", "adjudicated", "adjudicatedgrade"),
        *(
            "adjudication",
            "histology",
            "histologygrade",
            "biopsy",
            "goldstandard",
            "goldgrade",
            "groundtruth",
        ),
    ),
    "date": ("date", "readingdate", "readdate", "readat", "gradedat", "reviewedat", "datetime", "timestamp"),
}
# "grade_date" is no reader's grade
_NO_READER = frozenset(
    (
        *("true", "clean", "noisy", "given", "verified", "reference", "adjudicated", "histology", "gold", "published"),
        *("consensus", "final", "majority", "mean", "median", "suggested", "predicted", "original", "source", "old"),
        *("new", "name", "names", "text", "id", "date", "time", "count", "comment", "reader", "certainty"),
    )
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReadingColumns:
    """The columns that hold the readings; None where there is no such column."""

    item: str | None  # None: each row of a wide table is an item
    noun: str  # what an item is called: "image", or "item" if an image has several
    reader: str | None  # None: a wide table, or readers are not known
    grades: dict[str, str]  # wide: reader → column; long: {"": column}
    wide: bool
    image: str | None
    patient: str | None
    reference: str | None
    date: str | None
    notes: tuple[str, ...]

    @property
    def group(self) -> str | None:
        """The column whose values intervals resample: patients, or images that have several items."""
        return self.patient or (self.image if self.image != self.item else None)


def reading_columns(
    frame: pd.DataFrame,
    *,
    source: str,
    grade_column: str | Sequence[str] | None = None,
    images: bool = False,
    **others: str | None,
) -> ReadingColumns:
    """Choose the columns of a table of readings: those that the user gives, others by their usual names.

    grade_column: a name or a pattern such as ``"grade_*"``, or several of them: a wide table. images: an item is an
    image, also if the table has a column of items. others: ``image_column``, ``reader_column`` and so on.
    """
    columns = [str(column) for column in frame.columns]
    patterns = [grade_column] if isinstance(grade_column, str) else list(grade_column or ())
    matched = _matching(columns, patterns, source=source)
    given = {name.removesuffix("_column"): column for name, column in others.items()}
    given["grade"] = matched[0] if len(matched) == 1 else None
    known = dict(READING_SYNONYMS)
    if images or given.get("image") is not None:
        del known["item"]
    several = set(matched) if len(matched) > 1 else set()
    free = [column for column in columns if column not in several]
    chosen, notes = choose_columns(free, given, source=source, required=(), synonyms=known)
    wide = matched if len(matched) > 1 else []
    if not matched and "reader" not in chosen:
        wide = wide_columns(frame)
    if not wide and "grade" not in chosen:
        raise SrjtError(
            f"No column of {source} looks like the grade: give its name with `grade_column`, or the columns of all "
            f"readers. Columns: {', '.join(columns)}."
            f"{looks_like_grades(frame, taken=tuple(chosen.values()), combine=False)}"
        )
    item = chosen.get("item") or chosen.get("image")
    if item is None and not wide:
        raise SrjtError(
            f"No column of {source} looks like the image: give its name with `image_column`. "
            f"Columns: {', '.join(columns)}."
        )
    notes = [note for note in notes if not note.startswith("reference:")]  # said with their number
    if wide:
        notes = [note for note in notes if not note.startswith(("grade:", "reader:", "date:"))]
    return ReadingColumns(
        item=item,
        noun="item" if chosen.get("item") else "image",
        reader=None if wide else chosen.get("reader"),
        grades=_reader_names(wide) if wide else {"": chosen["grade"]},
        wide=bool(wide),
        image=chosen.get("image"),
        patient=chosen.get("patient"),
        reference=chosen.get("reference"),
        date=None if wide else chosen.get("date"),
        notes=tuple(notes),
    )


def wide_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that look like the grades of two or more readers, such as grade_anna and grade_bo; [] if none do."""
    groups: dict[str, list[str]] = {}
    numbered = re.compile(rf"(?:{'|'.join(READER_WORDS)}|r)[\W_]*(?:\d+|[a-z])")
    for column in map(str, frame.columns):
        words = [word for word in re.split(r"[\W_]+", column.casefold()) if word]
        if numbered.fullmatch(column.casefold()):
            groups.setdefault("reader", []).append(column)
        elif len(words) > 1 and words[0] in SYNONYMS["grade"] and not _NO_READER & set(words[1:]):
            groups.setdefault(f"{words[0]} …", []).append(column)
        elif len(words) > 1 and words[-1] in SYNONYMS["grade"] and not _NO_READER & set(words[:-1]):
            groups.setdefault(f"… {words[-1]}", []).append(column)
    # the columns that have a value in common with another one: "score_site" is no reader's grade
    same_scale = [
        with_common_values({name: values_of(frame[name]) for name in names}) for names in groups.values()
    ]
    widest = max(same_scale, key=len, default=[])
    return widest if len(widest) > 1 else []


def has_grade_column(frame: pd.DataFrame) -> bool:
    """Whether a column has a usual name of a grade, without that of a reader."""
    columns = [str(column) for column in frame.columns]
    return bool(choose_columns(columns, {}, source="", required=(), synonyms={"grade": SYNONYMS["grade"]})[0])


def refuse_columns_of_readers(frame: pd.DataFrame, *, source: str) -> None:
    """An error for a table without a column of grades but with one for each of several readers."""
    readers = [] if has_grade_column(frame) else wide_columns(frame)
    if readers:
        raise SrjtError(
            f"{source} has the grades of {len(readers)} readers ({_few(readers)}): combine them with "
            "`several_readings='consensus'`, compare them with srjt readers, or choose one with `grade_column`."
        )


def _matching(columns: Sequence[str], patterns: Sequence[str], *, source: str) -> list[str]:
    """The columns with these names, or that match these patterns, in the order of the table."""
    found: set[str] = set()
    for pattern in patterns:
        matches = [pattern] if pattern in columns else fnmatch.filter(columns, pattern)
        if not matches:
            raise unknown_name(f"column (for the grade, in {source})", pattern, columns)
        found |= set(matches)
    return [column for column in columns if column in found]


def _reader_names(columns: Sequence[str]) -> dict[str, str]:
    """{"anna": "grade_anna", "bo": "grade_bo"}: the names without the words that all columns have in common."""
    parts = [re.split(r"([\W_]+)", column) for column in columns]
    start, end = _common(parts), _common([words[::-1] for words in parts])
    names = ["".join(words[start : len(words) - end]) for words in parts]
    usable = all(names) and len(set(names)) == len(names)
    return dict(zip(names if usable else columns, columns, strict=True))


def _common(parts: Sequence[Sequence[str]]) -> int:
    """How many of the first words are the same in all names."""
    same = (len(set(words)) == 1 for words in zip(*parts, strict=False))
    return next((count for count, equal in enumerate(same) if not equal), 0)


# The dates of readings. Day and month are never guessed.

Times = npt.NDArray[np.datetime64]

# besides ISO 8601; a column has one of them
FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M")


def parse_dates(cells: Sequence[str], *, column: str) -> Times:
    """(M,) times in seconds, UTC where a zone is given; NaT for an empty cell, or one that is no date."""
    found = _parse(cells, "ISO8601")
    filled = np.array([bool(cell) for cell in cells])
    if filled.any() and not (~np.isnat(found)).any():
        read = {pattern: _parse(cells, pattern) for pattern in FORMATS}
        best = max(int((~np.isnat(times)).sum()) for times in read.values())
        good = [pattern for pattern, times in read.items() if (~np.isnat(times)).sum() == best]
        first = next(cell for cell in cells if cell)
        if not best:
            raise SrjtError(
                f"The column {column!r} holds no date that can be read; the first is {first[:40]!r}: write them as "
                "2024-05-31, or choose another column with `date_column`."
            )
        found = read[good[0]]
        if any((read[other] != found)[~np.isnat(found)].any() for other in good[1:]):
            raise SrjtError(
                f"The dates in the column {column!r}, such as {first[:40]!r}, may be day/month or month/day: write "
                "them as 2024-05-31."
            )
    return found


def _parse(cells: Sequence[str], pattern: str) -> Times:
    times = pd.to_datetime(pd.Series(list(cells), dtype=object), format=pattern, errors="coerce", utc=True)
    return times.dt.tz_localize(None).to_numpy().astype("datetime64[s]")


# Rows of a table of readings that repeat or contradict each other.

Ints = npt.NDArray[np.int64]


def repeated_rows(
    items: list[str],
    names: list[str],
    cells: list[str],
    times: npt.NDArray[np.datetime64],
    lines: Sequence[str],
    usable: npt.NDArray[np.bool_],
    problems: list[Problem],
) -> npt.NDArray[np.bool_]:
    """(N,) rows of a long table that repeat a reading with its date. Without dates a second reading may look so."""
    keys = pd.DataFrame({"item": items, "reader": names, "grade": cells, "time": times})
    repeated = keys.duplicated().to_numpy() & usable & ~np.isnat(times)
    for row in np.flatnonzero(repeated).tolist():
        detail = f"{lines[row]}: the same reading of {names[row]} at the same time"
        problems.append(Problem("duplicate-row", items[row], detail))
    return np.asarray(repeated, dtype=bool)


def _first_values(codes: Ints, row_items: Ints) -> tuple[Ints, Ints, Ints]:
    """(N,) codes of rows and their items, −1: none → the first code of each item (I,), −1 without one; the items with
    another code, and the first such code of each."""
    rows = np.flatnonzero(row_items >= 0)
    first = np.full(int(row_items.max()) + 1, -1, dtype=np.int64)
    named, places = np.unique(row_items[rows], return_index=True)
    first[named] = codes[rows[places]]
    other = rows[codes[rows] != first[row_items[rows]]]
    items, places = np.unique(row_items[other], return_index=True)
    return first, items, codes[other[places]]


def item_groups(cells: list[str], items: list[str], row_items: Ints, problems: list[Problem]) -> list[str]:
    """(I,) the patient of each item; an unknown one is a patient of its own."""
    codes, names = pd.factorize(np.array(cells, dtype=object))
    unknown = np.isin(codes, [code for code, name in enumerate(names) if name.casefold() in MISSING])
    rows = np.flatnonzero(row_items >= 0)
    example = rows[np.unique(row_items[rows], return_index=True)[1]]  # a row of each item
    own = [f"unknown: {items[row]}" for row in example.tolist()]
    codes[unknown] = len(names) + np.maximum(row_items[unknown], 0)
    patients = [*names, *own]
    first, conflicting, second = _first_values(codes, row_items)
    for item, code in zip(conflicting.tolist(), second.tolist(), strict=True):
        detail = f"patients {patients[first[item]]} and {patients[code]}: the first is used"
        problems.append(Problem("conflicting-patients", items[example[item]], detail))
    return [patients[code] for code in first.tolist()]


def item_references(
    codes: Ints, items: list[str], row_items: Ints, grades: Sequence[str], problems: list[Problem]
) -> Ints:
    """(I,) the reference of each item, −1 where there is none or where its rows contradict each other."""
    reference = np.full(int(row_items.max()) + 1, -1, dtype=np.int64)
    filled = np.flatnonzero((codes >= 0) & (row_items >= 0))  # an empty cell contradicts nothing
    if not len(filled):
        return reference
    first, conflicting, second = _first_values(codes[filled], row_items[filled])
    reference[: len(first)] = first
    name_of = dict(zip(row_items[filled].tolist(), (items[row] for row in filled.tolist()), strict=True))
    for item, code in zip(conflicting.tolist(), second.tolist(), strict=True):
        detail = f"references {grades[first[item]]} and {grades[code]}: none is used"
        problems.append(Problem("conflicting-reference", name_of[item], detail))
    reference[conflicting] = -1
    return reference


# How a table with several readers was understood, in sentences.

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
        unnamed = int((readings.reader == readings.readers.index(NO_READER)).sum())
        notes.append(f"readings without a reader count as those of one reader, {NO_READER!r}: {unnamed:,}")
    if empty:
        notes.append(f"empty cells, readings that were not made: {empty:,}")
    if readings.reference is not None:
        known = int((readings.reference >= 0).sum())
        notes.append(
            f"reference: column {chosen.reference!r}; {chosen.noun}s with a trusted grade: {known:,}"
        )
    if readings.times is not None:
        notes.append(f"dates: readings without one that can be read: {np.isnat(readings.times).sum():,}")
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


# Tables with several readers: their readings, and one row per image with the consensus of its readers.


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
    lines: Sequence[str]
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
        loaded, name = load_table(path / "labels.csv" if path.is_dir() else path), path.name
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


def combine(readings: Readings, **options: Any) -> Consensus:
    """The consensus of a table's readings. Readers without names are a crowd: their readings are independent.

    options: of ``consensus``.
    """
    crowd = readings.readers == [NO_READER]
    return consensus(readings, repeats="independent" if crowd else "one reading", **options)


def readings_of(
    loaded: TextTable, *, source: str, grades: Sequence[str] | None = None, **columns: Any
) -> ReadingsTable:
    """The readings of a table that is loaded already. columns: the options of ``reading_columns``."""
    frame, lines = loaded.frame, loaded.lines
    chosen = reading_columns(frame, source=source, **columns)
    problems = list(loaded.problems)
    items = list(lines) if chosen.item is None else frame[chosen.item].tolist()
    nameless = {item for item in set(items) if item.casefold() in MISSING}
    unnamed = np.array([item in nameless for item in items])
    without = np.flatnonzero(unnamed).tolist()
    problems += [Problem("missing-image", lines[row], "the row has no image") for row in without]
    if unnamed.all():
        raise SrjtError(f"No row of {source} names its image: choose another column with `image_column`.")

    readers = list(chosen.grades) if chosen.wide else [NO_READER] * len(frame)
    if not chosen.wide and chosen.reader is not None:
        readers = [name or NO_READER for name in frame[chosen.reader]]
    # wide tables row by row, so that an item's readings stay together
    cells = frame[list(chosen.grades.values())].to_numpy(dtype=object).reshape(-1).tolist()
    rows = np.repeat(np.arange(len(frame)), len(chosen.grades))
    names = readers * len(frame) if chosen.wide else readers
    references = frame[chosen.reference].tolist() if chosen.reference else []
    # all readings and references at once: a grade may occur in only one column
    try:
        grading = grade_values([*cells, *references], names=grades)
    except SrjtError as problem:
        raise SrjtError(f"{problem}{_only_one_reader_says(cells, names, wide=chosen.wide)}") from None
    if grades is None:
        refuse_too_many(grading.names, samples=len(cells) + len(references))
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
    groups = reference = None
    if chosen.group is not None:
        groups = item_groups(frame[chosen.group].tolist(), items, row_items, problems)
    if references:
        reference = item_references(reference_codes, items, row_items, grading.names, problems)
    readings = Readings(
        items=item_names.tolist(),
        readers=reader_names.tolist(),
        grades=grading.names,
        item=item_codes,
        reader=reader_codes,
        grade=codes[usable],
        groups=groups,
        reference=reference,
        times=None if times is None else times[usable],
    )
    notes = table_notes(readings, chosen, source=source, empty=empty, grading=grading)
    return ReadingsTable(
        readings=readings,
        problems=tuple(problems),
        notes=(*loaded.notes, *notes),
        frame=frame,
        lines=lines,
        rows=kept,
        row_items=row_items,
        columns=chosen,
    )


def _only_one_reader_says(cells: list[str], names: list[str], *, wide: bool) -> str:
    """Values that one reader alone has used: where a scale is broken, it is most often there."""
    users: dict[str, set[str]] = {}
    for cell, name in zip(cells, names, strict=True):
        if cell.casefold() not in MISSING:
            users.setdefault(cell, set()).add(name)
    alone = sorted((next(iter(who)), cell) for cell, who in users.items() if len(who) == 1)
    if len(set(names)) < 2 or not 0 < len(alone) <= 3:
        return ""
    said = ", ".join(f"{cell!r} ({who})" for who, cell in alone)
    return f" Only one {'column' if wide else 'reader'} has {said}."
