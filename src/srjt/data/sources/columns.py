"""Tables as they come: read a CSV, TSV, Excel or Parquet file as text, find its columns by their usual names,
find the image files that it names, and say what a source that lacks something looks like.
"""

from __future__ import annotations

import csv
import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import MISSING, as_text
from srjt.data.images.decode import IMAGE_SUFFIXES
from srjt.data.manifest import Manifest, Problem
from srjt.errors import SrjtError, count_of, missing_extra, unknown_name
from srjt.files import check_regular_file
from srjt.readers.readings import Readings

# Tables in Excel workbooks (.xlsx).


def read_excel(path: Path) -> tuple[list[str], list[list[str]], list[str], list[str]]:
    """The header, the rows that are not empty, their positions, and notes. The first sheet is read.

    Of a formula the value counts that Excel computed last. Cells beyond the header count only if they are filled.
    """
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise missing_extra("openpyxl", "excel", "Reading Excel files") from None
    try:
        workbook = load_workbook(path, read_only=True, data_only=True)
        try:
            sheets = workbook.worksheets
            # a file may claim all 16,384 columns: only cells that exist are read
            sheets[0].reset_dimensions()
            rows = [
                (number, _without_empty_end([as_text(value) for value in values]))
                for number, values in enumerate(sheets[0].iter_rows(values_only=True), start=1)
                if any(value not in (None, "") for value in values)
            ]
        finally:
            workbook.close()
    except Exception as problem:  # damaged archives and XML make openpyxl raise almost any exception
        reason = " ".join(str(problem).split()) or type(problem).__name__
        raise SrjtError(f"{path} cannot be read as an Excel file: {reason.rstrip('.')}.") from None
    if not rows:
        raise SrjtError(f"{path} has no rows below its header: its first sheet is empty.")
    (_, header), *body = rows
    cells = [row + [""] * (len(header) - len(row)) for _, row in body]
    others = len(sheets) - 1
    not_read = f"; {count_of(others, 'other sheet is', 'other sheets are')} not read" if others else ""
    positions = [f"row {number}" for number, _ in body]
    return header, cells, positions, [f"sheet {sheets[0].title!r}{not_read}"]


def _without_empty_end(cells: list[str]) -> list[str]:
    filled = next((count for count in range(len(cells), 0, -1) if cells[count - 1]), 0)
    return cells[:filled]


# Read a CSV, TSV, Excel or Parquet file as a table of text.

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".xlsx")


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text: nothing is converted to numbers, so that patient 007 stays 007."""

    frame: pd.DataFrame
    lines: Sequence[str]  # (N,) the position of each row in the file, such as "line 7"
    problems: list[Problem]
    notes: list[str] = field(default_factory=list)


def load_table(path: Path) -> TextTable:
    """Read all cells of a table as text. Rows with too many or too few cells are left out, as problems."""
    check_regular_file(path)
    if path.suffix.lower() == ".parquet":
        return from_frame(read_parquet(path), first=1)
    malformed: dict[int, str] = {}
    notes: list[str] = []
    if path.suffix.lower() == ".xlsx":
        header, rows, lines, notes = read_excel(path)
    else:
        header, rows, lines, malformed = _read_csv(path)
    if not rows:
        raise SrjtError(f"{path} has no rows below its header.")
    refuse_repeated(header, path)
    width = len(header)
    for row, cells in enumerate(rows):
        if len(cells) != width:
            malformed[row] = f"{count_of(len(cells), 'cell')} where the header has {width}"
    problems = [Problem("malformed-row", lines[row], malformed[row]) for row in sorted(malformed)]
    if malformed:
        good = [row for row in range(len(rows)) if row not in malformed]
        rows, lines = [rows[row] for row in good], [lines[row] for row in good]
    if not rows:
        raise SrjtError(
            f"No row of {path} can be used; the first, {problems[0].where}: {problems[0].detail}."
        )
    frame = pd.DataFrame(rows, columns=header, dtype=str)
    return TextTable(frame=frame, lines=lines, problems=problems, notes=notes)


def _read_csv(path: Path) -> tuple[list[str], list[list[str]], list[str], dict[int, str]]:
    """The header; the rows that are not empty and their positions; by row, the reason against some of them."""
    rows: list[list[str]] = []
    numbers: list[int] = []
    several_lines: dict[int, int] = {}  # a row with a cell of several lines → the line in which it ends
    line = 0
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            # Spreadsheets write semicolons in countries where the comma is the decimal point.
            delimiter = max("\t;,", key=first.count)
            # strict: a quote that is never closed is an error; otherwise it hides all rows that follow
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for cells in reader:
                start, line = line + 1, reader.line_num
                if not any(cells):
                    continue
                if line > start:
                    several_lines[len(rows)] = line
                rows.append([*map(str.strip, cells)])
                numbers.append(start)
    except UnicodeDecodeError:
        raise SrjtError(f"{path} is not UTF-8 text: save it again as “CSV UTF-8”.") from None
    except csv.Error as problem:
        reason = "a quote is opened and never closed" if "end of data" in str(problem) else str(problem)
        raise SrjtError(
            f"{path} cannot be read as a table: {reason}, in the row that begins in line {line + 1}."
        ) from None
    if not rows:
        raise SrjtError(f"{path} has no rows below its header.")
    reason = "the quoted cell that ends in line {} contains other rows: a quote is not closed"
    with_rows = _rows_with_rows(rows, several_lines, delimiter)
    malformed = {row - 1: reason.format(several_lines[row]) for row in with_rows}
    return rows[0], rows[1:], [f"line {number}" for number in numbers[1:]], malformed


def _rows_with_rows(rows: list[list[str]], several_lines: Collection[int], delimiter: str) -> Iterator[int]:
    """The rows with a cell that contains other rows: one of its further lines has as many cells as the header, and
    one of these, such as a grade, is in the same column of another row. Prose hardly ever is so."""
    columns = len(rows[0])
    if not several_lines or columns < 2:
        return
    others = [cells for row, cells in enumerate(rows) if row and row not in several_lines]
    seen = [{cells[column] for cells in others if column < len(cells)} - {""} for column in range(columns)]
    for row in several_lines:
        lines = [line for cell in rows[row] for line in cell.splitlines()[1:]]
        for cells in csv.reader(lines, delimiter=delimiter):
            if len(cells) == columns and any(
                cell.strip() in values for cell, values in zip(cells, seen, strict=True)
            ):
                yield row
                break


def refuse_repeated(columns: Sequence[str], source: str | Path) -> None:
    """Raise an error for two columns of the same name."""
    twice = [column for column, count in Counter(columns).items() if count > 1]
    if twice:
        raise SrjtError(f"{source} has two columns named {min(twice)!r}.")


def rows_from(first: int, count: int) -> list[str]:
    """(count,) the positions of rows that are counted from ``first``."""
    return [f"row {row}" for row in range(first, first + count)]


def from_frame(frame: pd.DataFrame, *, first: int = 0) -> TextTable:
    """The cells of a table in memory as text. first: the number of its first row in messages."""
    refuse_repeated([str(column) for column in frame.columns], "The table")
    cells = {str(column): frame[column].map(as_text).astype(str) for column in frame.columns}
    text = pd.DataFrame(cells).reset_index(drop=True)
    return TextTable(frame=text, lines=rows_from(first, len(text)), problems=[])


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file; rows are numbered from 0."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise missing_extra("pyarrow", "parquet", "Reading Parquet files") from None
    check_regular_file(path)
    try:
        frame = pd.read_parquet(path, engine="pyarrow").reset_index(drop=True)
    except Exception as problem:  # damaged files make pyarrow raise almost any exception
        reason = " ".join(str(problem).split()) or type(problem).__name__
        raise SrjtError(f"{path} cannot be read as Parquet: {reason.rstrip('.')}.") from None
    refuse_repeated([str(column) for column in frame.columns], path)
    return frame


# What a source that lacks something looks like, and how to read it: the second half of an error message.

# names of columns of features
NUMBERED = re.compile(r"^(f|feat|feature|emb|embedding|x|v|dim)[_.-]?\d+$", re.IGNORECASE)  # f0, emb_12, …
MOST_GRADES = 12  # a column with more different values is a measurement
FEWEST_FEATURES = 3


def looks_like_features(frame: pd.DataFrame, *, taken: Sequence[str] | None = None) -> str:
    """A sentence if columns have the names of features, or if those that are not ``taken`` are numbers; else ""."""
    numbered = [column for column in map(str, frame.columns) if NUMBERED.match(column)]
    if len(numbered) > 1:
        patterns = list(dict.fromkeys(re.sub(r"\d+$", "*", column) for column in numbered))
        how = f"`feature_columns={','.join(patterns)!r}`"
        ends = f"{numbered[0]} … {numbered[-1]}"
        return f" It has {len(numbered)} columns of features, {ends}: srjt train reads them with {how}."
    free = [] if taken is None else [column for column in map(str, frame.columns) if column not in taken]
    numbers = [name for name in free if pd.to_numeric(frame[name], errors="coerce").notna().all()]
    if len(numbers) < FEWEST_FEATURES:
        return ""
    what = f"{len(numbers)} columns of numbers, {numbers[0]} … {numbers[-1]}"
    return f" If its {what}, are features, name them with `feature_columns`."


def looks_like_grades(frame: pd.DataFrame, *, taken: Sequence[str], combine: bool = True) -> str:
    """A sentence if one column, or those of several readers, have a few values in common as grades have; else "".

    combine: whether the grades of several readers have to be combined.
    """
    values = {column: values_of(frame[column]) for column in map(str, frame.columns) if column not in taken}
    few = {column: cells for column, cells in values.items() if 1 < len(cells) <= MOST_GRADES}
    readers = with_common_values(few)
    if len(readers) > 1:
        how = " `several_readings='consensus'`" if combine else ""
        names = f"{', '.join(readers[:-1])} and {readers[-1]}"
        return f" If {names} are the grades of {len(readers)} readers: `grade_column={readers}`{how}."
    return f" If {next(iter(few))} is the grade: `grade_column={next(iter(few))!r}`." if len(few) == 1 else ""


def with_common_values(values: Mapping[str, set[str]]) -> list[str]:
    """The columns that have a value in common with another one. values: those of each column."""
    columns_with = Counter(value for cells in values.values() for value in cells)
    return [column for column, cells in values.items() if any(columns_with[value] > 1 for value in cells)]


def folder_without_grades(folder: Path) -> str:
    """What a folder has that is not one of the sources."""
    tables = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in TABLE_SUFFIXES]
    table = f"If {tables[0]} has the grades" if len(tables) == 1 else "With a table of images and grades"
    return (
        f"{folder} has no images in subfolders, one per grade. {table}, give it in place of the folder, with "
        f"`images={str(folder)!r}`."
    )


def no_image_exists(manifest: Manifest) -> str:
    """The error if no image is where it is looked for, with the folder beside the table that has the first one."""
    name = str(manifest.table["image"].iloc[0])
    beside = [folder for folder in sorted(manifest.root.glob("*/")) if os.path.isfile(folder / name)]
    where = "`images`" if not beside else f"`images={os.path.relpath(beside[0])!r}`"
    return (
        f"None of the {len(manifest):,} images exists; the first is {manifest.paths[0]}: give their folder with "
        f"{where}.{looks_like_features(manifest.table)}"
    )


def values_of(column: pd.Series[str]) -> set[str]:
    """The different cells of a column that are not empty."""
    return {cell for cell in set(column.astype(str)) if cell.casefold() not in MISSING}


# Choose the columns of a table: those that the user gives, others by their usual names.

# The more specific name first: if a table has both "grade" and "severity", "grade" is used.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "image": (
        *("image", "imagepath", "path", "filepath", "file", "filename", "imagename", "imagefile"),
        *("imageid", "img", "imgpath", "imgname", "idcode", "name", "id"),
    ),
    "grade": (
        *("grade", "label", "level", "severity", "score", "class", "stage", "diagnosis"),
        *("mayo", "mayoscore", "mes", "retinopathygrade", "target"),
    ),
    "patient": (
        *("patient", "patientid", "patientname", "subject", "subjectid", "participant", "participantid"),
        *("person", "personid", "case", "caseid", "pid"),
    ),
    # not "adjudicated" or "consensus": such grades exist for the difficult images, and a random sample is needed
    "verified_grade": ("verifiedgrade", "verifiedlabel", "gradeverified", "labelverified"),
    "true_grade": ("truegrade", "truelabel", "cleangrade", "cleanlabel"),
    "split": ("split", "officialsplit", "subset", "partition", "set", "usage"),
}
REQUIRED = ("image", "grade")
SHOWN = 12  # columns that an error lists
HINTS: dict[str, Callable[..., str]] = {"image": looks_like_features, "grade": looks_like_grades}


def check_wanted(columns: Sequence[str], table: pd.DataFrame, *, known: Sequence[str]) -> None:
    """Raise an error if ``table``, read from sources with the columns ``known``, lacks one of the wanted columns.

    Nothing is known of images that no table lists: whoever needs the column says so.
    """
    missing = [name for name in columns if name not in table and f"{name}_source" not in table]
    if missing and known:
        raise unknown_name("column (of the data to predict)", missing[0], known)


def choose_columns(
    columns: Sequence[str],
    given: Mapping[str, str | None],
    *,
    source: str,
    required: Sequence[str] = REQUIRED,
    synonyms: Mapping[str, Sequence[str]] = SYNONYMS,
    frame: pd.DataFrame | None = None,
) -> tuple[dict[str, str], list[str]]:
    """The column of each role, and a note on each choice.

    ``given`` maps roles (image, grade, patient, verified_grade, true_grade, split) to the columns that the user gave.
    synonyms: the usual names of each role, in plain small letters. frame: the table, for a hint where a required
    column is missing.
    """
    chosen: dict[str, str] = {}
    notes = []
    for role, column in given.items():
        if column is not None:
            if column not in columns:
                raise unknown_name(f"column (for the {role.replace('_', ' ')}, in {source})", column, columns)
            chosen[role] = column
    plain = {plain_name(column): column for column in reversed(columns)}
    for role, names in synonyms.items():
        if role in chosen:
            notes.append(f"{role.replace('_', ' ')}: column {chosen[role]!r} (as given)")
            continue
        free = [plain[name] for name in names if name in plain and plain[name] not in chosen.values()]
        if free:
            chosen[role] = free[0]
            unused = [repr(column) for column in free[1:] if column.casefold() != "id"]
            others = f", not {', '.join(unused)}" if unused else ""
            notes.append(f"{role.replace('_', ' ')}: column {free[0]!r} (by its name{others})")
        elif role in required:
            others_chosen, _ = choose_columns(columns, given, source=source, required=(), synonyms=synonyms)
            hint = "" if frame is None else HINTS[role](frame, taken=tuple(others_chosen.values()))
            more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
            shown = ", ".join(columns[:SHOWN]) + more
            raise SrjtError(
                f"No column of {source} looks like the {role}: give its name with `{role}_column`. Columns: "
                f"{shown}.{hint}"
            )
    return chosen, notes


def plain_name(column: str) -> str:
    """A name in small letters, without spaces and punctuation: "Patient-ID" is patientid."""
    return re.sub(r"[\W_]+", "", column.casefold())


# Find the image files that a table names.

# Where images are, beside a table. The first folder that has some of them is used.
IMAGE_FOLDERS = ("", "images", "train_images", "img", "imgs", "train", "test_images", "test")


def find_image_folder(names: Sequence[str], directory: Path) -> Path:
    """``directory``, or the folder in it that has images of these names: archives are unpacked to different places."""
    sample = [name for name in names if name][:: max(1, len(names) // 20)]
    for name in IMAGE_FOLDERS:
        folder = directory / name
        located, _ = locate_images(sample, folder)
        if any(os.path.isfile(folder / image) for image in located):
            return folder
    return directory


def locate_images(names: Sequence[str], root: Path) -> tuple[list[str], list[Problem]]:
    """Find the files of names without a suffix ("10_left"), and files without the suffix of their name.

    A name for which there is no file is unchanged.
    """
    files: dict[str, dict[str, list[str]]] = {}
    located, problems = [], []
    for name in names:
        folder, file = posixpath.split(name)
        if folder not in files:
            files[folder] = _files_by_stem(root / folder)
        stem, suffix = posixpath.splitext(file)
        if suffix.lower() not in IMAGE_SUFFIXES:
            stem = file
        same_stem = files[folder].get(stem, [])
        if file in same_stem:
            matching = [file]
        elif stem != file:  # another suffix would be another image
            matching = [stem] if stem in same_stem else []
        else:
            matching = same_stem
        if len(matching) > 1:
            problems.append(Problem("ambiguous-image", name, f"{', '.join(matching)}: the first is used"))
        located.append(posixpath.join(folder, matching[0]) if matching else name)
    return located, problems


def relative_name(name: str, root: Path) -> str:
    """One spelling per file: forward slashes, no "./", relative to ``root`` if it is below it."""
    if not name:
        return ""
    name = posixpath.normpath(name.replace("\\", "/"))
    if not os.path.isabs(name):  # before a Path is made: there may be millions of names
        return name
    path = Path(name)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else name


def _files_by_stem(folder: Path) -> dict[str, list[str]]:
    """The files in a folder by their names without the suffix of an image."""
    by_stem: dict[str, list[str]] = {}
    if os.path.isdir(folder):  # False for a name that is too long or contains NUL
        for name in sorted(os.listdir(folder)):
            stem, suffix = os.path.splitext(name)
            by_stem.setdefault(stem if suffix.lower() in IMAGE_SUFFIXES else name, []).append(name)
    return by_stem


# Probabilities of a network for the items that several readers have read.


def read_probabilities(path: Path, readings: Readings) -> npt.NDArray[np.float64]:
    """(I, C) the probabilities of each item's grades, from a table such as ``srjt predict`` writes.

    The table names the item (``id`` or ``image``) and has a column ``p_<grade>`` for each grade. An item that it does
    not name has the mean of the others, which says nothing about it.
    """
    frame = load_table(path).frame
    if {"quality", "suggested"} <= set(frame.columns):
        raise SrjtError(
            f"{path} is the list of an audit, whose probabilities follow from the labels too, so that they would "
            "count twice: give the predictions of networks alone, or run srjt audit --several-readings consensus."
        )
    names = [f"p_{grade}" for grade in readings.grades]
    if missing := [name for name in names if name not in frame]:
        raise SrjtError(f"{path} has no column {missing[0]!r}: it must have {', '.join(names)}.")
    try:
        values = frame[names].to_numpy(np.float64)
    except ValueError as problem:
        raise SrjtError(f"{path} contains a value that is not a number: {problem}.") from None
    if not ((values >= 0).all() and (values.sum(axis=1) > 0).all()):
        raise SrjtError(f"The columns {', '.join(names)} of {path} must hold probabilities.")
    for column in ("id", "image", "item"):
        row_of = {} if column not in frame else {name: row for row, name in enumerate(frame[column])}
        # predictions name the files, a table of readings often their names alone
        row_of |= {Path(name).name: row for name, row in row_of.items()}
        rows = np.array([row_of.get(name, row_of.get(Path(name).name, -1)) for name in readings.items])
        if (rows >= 0).any():
            known = values[rows[rows >= 0]] / values[rows[rows >= 0]].sum(axis=1, keepdims=True)
            probabilities = np.tile(known.mean(axis=0), (len(rows), 1))
            probabilities[rows >= 0] = known
            return probabilities
    raise SrjtError(
        f"{path} names none of the images that were read; the first of them is {readings.items[0]!r}."
    )
