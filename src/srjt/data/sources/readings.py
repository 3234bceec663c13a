"""Tables with several readers: find the columns, read the dates, settle rows that repeat or
contradict each other.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import (
    MISSING,
    UNKNOWN_PATIENT,
    Grading,
    filled,
    grade_values,
    refuse_too_many,
)
from srjt.data.manifest import Ints
from srjt.data.names import join_names, one_spelling
from srjt.data.problems import Problem
from srjt.data.sources import table as tables
from srjt.data.sources.table import SYNONYMS, Table, load_table
from srjt.errors import Option, SrjtError, count_of, few
from srjt.files import as_path
from srjt.readers.consensus import Consensus, consensus
from srjt.readers.readings import Readings

Times = npt.NDArray[np.datetime64]

# Find the columns of a table with several readers: one row per reading (long), or one column per
# reader (wide).

READER_WORDS = (
    *(
        "reader",
        "grader",
        "annotator",
        "rater",
        "observer",
        "doctor",
        "physician",
        "clinician",
        "expert",
    ),
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
        *("adjudication", "histology", "histologygrade", "biopsy"),
        *("goldstandard", "goldgrade", "groundtruth"),
    ),
    "date": (
        "date",
        "readingdate",
        "readdate",
        "readat",
        "gradedat",
        "reviewedat",
        "datetime",
        "timestamp",
    ),
}
# "grade_date" is no reader's grade
_NO_READER = frozenset(
    (
        *(
            "true",
            "clean",
            "noisy",
            "given",
            "verified",
            "reference",
            "adjudicated",
            "histology",
            "gold",
            "published",
        ),
        *(
            "consensus",
            "final",
            "majority",
            "mean",
            "median",
            "suggested",
            "predicted",
            "original",
            "source",
            "old",
        ),
        *(
            "new",
            "name",
            "names",
            "text",
            "id",
            "date",
            "time",
            "count",
            "comment",
            "reader",
            "certainty",
        ),
    )
)
NO_READER = "(not given)"  # the name of a reader without one


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
        """The column whose values intervals resample: patients, or images that have several
        items."""
        if self.patient is None and self.image != self.item:
            return self.image
        return self.patient


def reading_columns(
    table: Table,
    given: Mapping[str, str | None],
    *,
    grade_column: str | Sequence[str] | None = None,
    images: bool = False,
) -> ReadingColumns:
    """Choose the columns of a table of readings: those that the user gives, others by their usual
    names.

    given: the column of a role. grade_column: a name or a pattern such as ``"grade_*"``, or several
    of them: a wide table. images: an item is an image, also if the table has a column of items.
    """
    patterns = [grade_column] if isinstance(grade_column, str) else list(grade_column or ())
    matched = tables.match_columns(table, patterns, role="grade")
    roles = {**given, "grade": None}
    wide = []
    if len(matched) == 1:
        roles["grade"] = matched[0]
    else:
        wide = matched
    synonyms = dict(READING_SYNONYMS)
    if images or given.get("image") is not None:
        del synonyms["item"]
    chosen, notes = tables.choose_columns(
        table, roles, without=wide, required=(), synonyms=synonyms
    )
    if not matched and "reader" not in chosen:
        wide = wide_columns(table.frame)
    item = chosen.get("item") or chosen.get("image")
    if wide:
        grades = _reader_names(wide)
        said_later = {"reference", "grade", "reader", "date"}
        chosen.pop("reader", None)
        chosen.pop("date", None)
    else:
        if "grade" not in chosen or item is None:
            raise _missing_columns(table, grade="grade" not in chosen, image=item is None)
        grades = {"": chosen["grade"]}
        said_later = {"reference"}
    return ReadingColumns(
        item=item,
        noun="item" if chosen.get("item") else "image",
        reader=chosen.get("reader"),
        grades=grades,
        wide=bool(wide),
        image=chosen.get("image"),
        patient=chosen.get("patient"),
        reference=chosen.get("reference"),
        date=chosen.get("date"),
        notes=tuple(notes[name] for name in notes if name not in said_later),
    )


def _missing_columns(table: Table, **missing: bool) -> SrjtError:
    """The error for a table that lacks the columns of these roles."""
    roles = [role for role, is_missing in missing.items() if is_missing]
    options: list[object] = []
    for role in roles:
        options += [" and " if options else "", Option(f"{role}_column")]
    return SrjtError(
        f"No column of {table.name} looks like the {' or the '.join(roles)}: name",
        " them with " if len(roles) > 1 else " it with ",
        *options,
        f". Columns: {few(table.frame.columns, tables.SHOWN)}.",
        code="missing_column",
    )


def wide_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that look like the grades of two or more readers, such as grade_anna and
    grade_bo; [] if none do."""
    groups: dict[str, list[str]] = {}
    numbered = re.compile(rf"(?:{'|'.join(READER_WORDS)}|r)[\W_]*(?:\d+|[a-z])")
    for column in map(str, frame.columns):
        words = list(filter(None, re.split(r"[\W_]+", column.casefold())))
        if numbered.fullmatch(column.casefold()):
            groups.setdefault("reader", []).append(column)
        elif len(words) > 1 and words[0] in SYNONYMS["grade"] and not _NO_READER & set(words[1:]):
            groups.setdefault(f"{words[0]} …", []).append(column)
        elif len(words) > 1 and words[-1] in SYNONYMS["grade"] and not _NO_READER & set(words[:-1]):
            groups.setdefault(f"… {words[-1]}", []).append(column)
    widest: list[str] = []
    for names in groups.values():
        # the columns that have a value in common with another one: "score_site" is no reader's
        # grade
        values = {name: set(filled(frame[name])) for name in names}
        columns_with = Counter(itertools.chain.from_iterable(values.values()))
        common = {value for value, columns in columns_with.items() if columns > 1}
        same_scale = [name for name in names if values[name] & common]
        if len(same_scale) > max(1, len(widest)):
            widest = same_scale
    return widest


def has_grade_column(frame: pd.DataFrame) -> bool:
    """Whether a column has a usual name of a grade, without that of a reader."""
    return any(tables.plain_name(str(column)) in SYNONYMS["grade"] for column in frame.columns)


def _reader_names(columns: Sequence[str]) -> dict[str, str]:
    """{"anna": "grade_anna", "bo": "grade_bo"}: the names without the words that all columns have
    in common."""
    parts = [re.split(r"([\W_]+)", column) for column in columns]
    both_ends = (parts, [words[::-1] for words in parts])
    start, end = (len(os.path.commonprefix(words)) for words in both_ends)  # noqa: RUF071, lists of words
    names = ["".join(words[start : len(words) - end]) for words in parts]
    usable = all(names) and len(set(names)) == len(names)
    return dict(zip(names if usable else columns, columns, strict=True))


# The dates of readings. Day and month are never guessed.

# besides ISO 8601; a column has one of them
FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M")


def parse_dates(cells: Sequence[str], *, column: str) -> Times:
    """(M,) times in seconds, UTC where a zone is given; NaT for an empty cell, or one that is no
    date."""
    times = _parse(cells, "ISO8601")
    first = next((cell for cell in cells if cell), "")
    if not first or not np.isnat(times).all():
        return times
    read = [_parse(cells, pattern) for pattern in FORMATS]
    dated = [int((~np.isnat(times)).sum()) for times in read]
    if not max(dated):
        raise SrjtError(
            f"The column {column!r} holds no date such as 2024-05-31, but {first[:40]!r}: choose"
            " another ",
            Option("date_column"),
            ".",
            code="wrong_values",
        )
    best, *others = [read[row] for row in np.flatnonzero(np.array(dated) == max(dated))]
    differ = np.zeros(len(cells), dtype=bool)
    for other in others:
        differ |= (other != best) & ~np.isnat(best)
    if differ.any():
        date = cells[int(differ.argmax())]
        raise SrjtError(
            f"The dates in {column!r}, such as {date[:40]!r}, may be day/month or month/day: write"
            " 2024-05-31.",
            code="ambiguous",
            option="date_column",
        )
    return best


def _parse(cells: Sequence[str], pattern: str) -> Times:
    times = pd.to_datetime(
        pd.Series(list(cells), dtype=object), format=pattern, errors="coerce", utc=True
    )
    return times.dt.tz_localize(None).to_numpy().astype("datetime64[s]")


# The readings of a table.


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
    >>> cells = {"image": ["a", "a", "b", "b"], "reader": ["x", "y"] * 2, "grade": [0, 1, 2, 2]}
    >>> table = srjt.data.read_readings(pd.DataFrame(cells))
    >>> len(table.readings.items), table.readings.readers
    (2, ['x', 'y'])
    """

    readings: Readings
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    frame: pd.DataFrame
    rows: Ints
    row_items: Ints
    columns: ReadingColumns

    @property
    def first_rows(self) -> Ints:
        """(I,) the first row of each item."""
        read = np.flatnonzero(self.row_items >= 0)
        return read[np.unique(self.row_items[read], return_index=True)[1]]


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

    A long table has one row per reading (image, reader, grade), a wide one a column per reader
    (``grade_anna``, ``grade_bo``). Empty cells are readings that were not made. The images
    themselves are not needed.

    Parameters
    ----------
    source : path or DataFrame
        A CSV, TSV, Excel or Parquet file, or a table in memory.
    image_column, reader_column, patient_column : str, optional
        Columns. Default: found by their usual names. The first may be a column of items, such as
        lesions.
    grade_column : str or sequence of str, optional
        The column of grades, or the columns of all readers, also by a pattern such as
        ``"grade_*"``.
    reference_column : str, optional
        Trusted grades: adjudicated, or from histology. Empty where there is none.
    date_column : str, optional
        When each reading was made.
    grades : sequence of str, optional
        Names of the grades, mildest first. Default: whole numbers, or names that end in numbers, in
        their order.

    Returns
    -------
    ReadingsTable
        The readings, what was left out, and notes on how the table was understood.

    Examples
    --------
    >>> import pandas as pd
    >>> import srjt
    >>> table = pd.DataFrame({"image": ["a", "b"], "grade_kim": [0, 2], "grade_lee": [1, None]})
    >>> loaded = srjt.data.read_readings(table, grade_column="grade_*", grades=["0", "1", "2"])
    >>> loaded.readings.readers, len(loaded.readings)
    (['kim', 'lee'], 3)
    """
    if not isinstance(source, pd.DataFrame):
        source = as_path(source, "Readings are read from a path or a DataFrame")
    given = {
        "image": image_column,
        "reader": reader_column,
        "patient": patient_column,
        "reference": reference_column,
        "date": date_column,
    }
    table = load_table(source)
    return combinable_readings(
        table, reading_columns(table, given, grade_column=grade_column), grades
    )


def combine(readings: Readings, **options: Any) -> Consensus:
    """The consensus of a table's readings. Readers without names are a crowd: their readings are
    independent.

    options: of ``consensus``.
    """
    crowd = readings.readers == [NO_READER]
    return consensus(readings, repeats="independent" if crowd else "one reading", **options)


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """The grades of a table as they are written, row by row."""

    texts: list[str]
    rows: Ints  # of the table
    readers: npt.NDArray[np.object_]
    grading: Grading  # of the texts, and then of the references
    empty: int

    @property
    def codes(self) -> Ints:
        return self.grading.codes[: len(self.texts)]

    @property
    def references(self) -> Ints:
        return self.grading.codes[len(self.texts) :]


def _read_cells(
    table: Table,
    chosen: ReadingColumns,
    grades: Sequence[str] | None,
    items: npt.NDArray[np.object_],
    problems: list[Problem],
) -> _Cells:
    frame = table.frame
    # wide tables row by row, so that an item's readings stay together
    texts = frame[list(chosen.grades.values())].to_numpy(dtype=object).reshape(-1).tolist()
    rows = np.repeat(np.arange(len(frame)), len(chosen.grades))
    readers = np.array([NO_READER] * len(texts), dtype=object)
    if chosen.wide:
        readers = np.tile(np.array(list(chosen.grades), dtype=object), len(frame))
    elif chosen.reader is not None:
        readers = frame[chosen.reader].replace("", NO_READER).to_numpy(dtype=object)
    references: list[str] = []
    if chosen.reference:
        references = frame[chosen.reference].tolist()
    for column in chosen.grades.values():
        if grades is None:
            grades = table.scales.get(column)
    # all readings and references at once: a grade may occur in only one column
    grading = grade_values([*texts, *references], names=grades)
    if grades is None:
        refuse_too_many(grading.names, samples=len(grading.codes))
    empty = 0
    for place, (kind, detail) in grading.invalid.items():
        if kind == "missing-grade":
            empty += place < len(texts)
            continue
        row = place - len(texts)
        whose = f"column {chosen.reference}"
        if place < len(texts):
            row = rows[place]
            whose = readers[place]
        detail = f"{table.lines[row]}, {whose}: {detail}; this reading is left out"
        problems.append(Problem(kind, items[row], detail))
    return _Cells(texts=texts, rows=rows, readers=readers, grading=grading, empty=empty)


def combinable_readings(
    table: Table, chosen: ReadingColumns, grades: Sequence[str] | None
) -> ReadingsTable:
    frame = table.frame
    problems = list(table.problems)
    items = np.array(table.lines if chosen.item is None else frame[chosen.item], dtype=object)
    unnamed = _unnamed_rows(items, table, problems)

    cells = _read_cells(table, chosen, grades, items, problems)
    usable = (cells.codes >= 0) & ~unnamed[cells.rows]
    times = None
    if chosen.date:
        times = parse_dates(frame[chosen.date].tolist(), column=chosen.date)
        keys = pd.DataFrame(
            {"item": items, "reader": cells.readers, "grade": cells.texts, "time": times}
        )
        usable &= ~_repeated(keys, usable, table.lines, problems)
        times = times[usable]
    if not usable.any():
        raise SrjtError(
            f"{table.name} has no reading that can be used: no grade is one of the scale.",
            code="unusable_samples",
        )
    kept = cells.rows[usable]
    item_codes, item_names = pd.factorize(items[kept])
    reader_codes, reader_names = pd.factorize(cells.readers[usable])
    row_items = np.where(unnamed, -1, pd.Index(item_names).get_indexer(pd.Index(items)))
    readings = Readings(
        items=item_names.tolist(),
        readers=reader_names.tolist(),
        grades=cells.grading.names,
        item=item_codes,
        reader=reader_codes,
        grade=cells.codes[usable],
        times=times,
    )
    if chosen.group is not None:
        frame = frame.assign(**{chosen.group: one_spelling(frame[chosen.group].tolist())})
        groups = _groups(frame[chosen.group], row_items, readings.items, problems)
        readings = replace(readings, groups=groups)
    if len(cells.references):
        trusted = _references(cells.references, row_items, readings, problems)
        readings = replace(readings, reference=trusted)
    understood = _notes(readings, chosen, table.name, empty=cells.empty)
    return ReadingsTable(
        readings=readings,
        problems=tuple(problems),
        notes=(*table.notes, *understood, f"grades: {cells.grading.note}"),
        frame=frame,
        rows=kept,
        row_items=row_items,
        columns=chosen,
    )


def _repeated(
    readings: pd.DataFrame,
    usable: npt.NDArray[np.bool_],
    lines: Sequence[str],
    problems: list[Problem],
) -> npt.NDArray[np.bool_]:
    """(M,) which readings repeat another one. Without dates a second reading may look like a
    repeated row."""
    repeated = readings.duplicated() & usable & readings["time"].notna()
    for row in np.flatnonzero(repeated).tolist():
        detail = f"{lines[row]}: the same reading of {readings['reader'][row]} at the same time"
        problems.append(Problem("duplicate-row", readings["item"][row], detail))
    return repeated.to_numpy()


def _unnamed_rows(
    items: npt.NDArray[np.object_], table: Table, problems: list[Problem]
) -> npt.NDArray[np.bool_]:
    """(N,) which rows name no image; an error if none does."""
    unnamed = pd.Series(items).str.casefold().isin(MISSING).to_numpy()
    for row in np.flatnonzero(unnamed).tolist():
        problems.append(Problem("missing-image", table.lines[row], "the row has no image"))
    if unnamed.all():
        raise SrjtError(
            f"No row of {table.name} names its image: choose another column with ",
            Option("image_column"),
            ".",
            code="missing_column",
        )
    return np.asarray(unnamed, dtype=bool)


def _groups(
    column: pd.Series[str], row_items: Ints, items: list[str], problems: list[Problem]
) -> list[str]:
    """(I,) the patient of each item: the first that its rows name, or one of its own."""
    patients = column.where(~column.str.casefold().isin(MISSING))
    two = _first_two(patients, row_items)
    for item, first, second in two[two[1].notna()].itertuples(name=None):
        detail = f"patients {first} and {second}: the first is used"
        problems.append(Problem("conflicting-patients", items[item], detail))
    unknown = UNKNOWN_PATIENT + pd.Series(items, dtype=object)
    return two[0].fillna(unknown).tolist()


def _references(codes: Ints, row_items: Ints, readings: Readings, problems: list[Problem]) -> Ints:
    """(I,) the trusted grade of each item, −1 if there is none, or several that differ."""
    two = _first_two(pd.Series(codes).where(codes >= 0), row_items)
    for item, *pair in two[two[1].notna()].astype(int).itertuples(name=None):
        first, second = (readings.grades[code] for code in pair)
        detail = f"references {first} and {second}: none is used"
        problems.append(Problem("conflicting-reference", readings.items[item], detail))
    return two[0].where(two[1].isna()).fillna(-1).to_numpy(np.int64)


def _first_two(values: pd.Series[Any], row_items: Ints) -> pd.DataFrame:
    """(N,) values of rows, NaN: none, and their items → (I, 2) the first two different values of
    each item."""
    pairs = pd.DataFrame({"item": row_items, "value": values.to_numpy()})
    pairs = pairs[(row_items >= 0) & pairs["value"].notna()].drop_duplicates()
    place = pairs.groupby("item").cumcount()
    two = pairs[place < 2].assign(place=place).pivot(index="item", columns="place", values="value")
    return two.reindex(index=range(row_items.max() + 1), columns=range(2))


def _notes(readings: Readings, chosen: ReadingColumns, source: str, *, empty: int) -> list[str]:
    """How the table was understood."""
    columns = few(map(repr, chosen.grades.values()), 6)
    layout = f"one column per reader ({columns})" if chosen.wide else "one row per reading"
    nobody = readings.readers == [NO_READER]
    counted = f"{count_of(len(readings), 'reading')} of"
    counted += f" {count_of(len(readings.items), chosen.noun)}"
    if not nobody:
        counted += f" by {count_of(len(readings.readers), 'reader')}"
    each = _readings_of_each(readings, chosen.noun)
    notes = [f"{source}: {layout}", *chosen.notes, f"{counted}, {each}"]
    if chosen.item is None:
        notes.append("no column of images: each row is an image of its own")
    if nobody:
        notes.append("no column of readers: they count as different readers who are equally good")
    elif NO_READER in readings.readers:
        unnamed = np.count_nonzero(readings.reader == readings.readers.index(NO_READER))
        notes.append(f"readings without a reader count as those of one, {NO_READER!r}: {unnamed:,}")
    if empty:
        notes.append(f"empty cells, readings that were not made: {empty:,}")
    if readings.reference is not None:
        trusted = f"{chosen.noun}s with a trusted grade: {(readings.reference >= 0).sum():,}"
        notes.append(f"reference: column {chosen.reference!r}; {trusted}")
    if readings.times is not None:
        without = int(np.isnat(readings.times).sum())
        notes.append(f"readings without a date that can be read: {without:,}")
        if not without:
            notes[-1] = "all readings have a date"
    return notes


def describe_readers(readings: Readings, chosen: ReadingColumns) -> str:
    """What the table says about its readers, in one sentence; "" if nothing tells of several
    readers."""
    if len(readings.readers) < 2 and np.bincount(readings.item).max() < 2:
        return ""
    where = f"column {chosen.reader}" if chosen.reader else "not named"
    if chosen.wide:
        where = f"columns {few(chosen.grades.values(), 6)}"
    count = count_of(len(readings.readers), "reader")
    return f"{count} ({where}), {_readings_of_each(readings, chosen.noun)}."


def _readings_of_each(readings: Readings, noun: str) -> str:
    each = np.bincount(readings.item)
    most = count_of(int(each.max()), "reading")
    if each.min() < each.max():
        return f"{each.min():,} to {most} of each {noun}"
    return f"{most} of each {noun}"


def select_readings(readings: Readings, ids: Sequence[str]) -> Readings:
    """The readings of these samples, which become the items in this order; the others are left
    out."""
    order = join_names(ids, readings.items, wanted_in="the samples", known_in="the readings")
    if not (order >= 0).any():
        raise SrjtError(
            f"There is no reading of any of the {len(ids):,} samples, such as"
            f" {few(map(repr, ids))}; the readings name {few(map(repr, readings.items))}.",
            code="no_match",
        )
    place = np.full(len(readings.items), -1, dtype=np.int64)
    place[order[order >= 0]] = np.flatnonzero(order >= 0)
    known = readings.rows(place[readings.item] >= 0)
    groups = readings.groups
    if groups is not None:
        groups = np.where(order >= 0, np.array(groups, dtype=object)[order], list(ids)).tolist()
    reference = readings.reference
    if reference is not None:
        reference = np.where(order >= 0, reference[order], -1)
    return replace(
        known, items=list(ids), item=place[known.item], groups=groups, reference=reference
    )
