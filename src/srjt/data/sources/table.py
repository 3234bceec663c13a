"""A table as it comes: a CSV, TSV, Excel or Parquet file or a DataFrame as text, its columns by
their usual names, and the image files that it names.
"""

from __future__ import annotations

import csv
import fnmatch
import os
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.grades import as_text
from srjt.data.images.decode import IMAGE_SUFFIXES
from srjt.data.manifest import GRADED, Features, Manifest, warn_about_formulas
from srjt.data.options import picked, without_none
from srjt.data.problems import Problem
from srjt.data.sources.assemble import SPLIT_NAMES
from srjt.errors import (
    Message,
    Option,
    SrjtError,
    count_of,
    few,
    missing_extra,
    reason_of,
    unknown_name,
)
from srjt.files import as_csv, check_regular_file, path_from, write_output
from srjt.integrations import is_foreign_table, read_foreign_table

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".xlsx")
IN_MEMORY = "the table"
MANY_COLUMNS = 500
CANONICAL = (
    "id",
    "image",
    "grade",
    "patient",
    "true_grade",
    "verified_grade",
    "verified_probability",
    "split",
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """N rows of text: nothing is converted to numbers, so that patient 007 stays 007. And N rows of
    features, where the source has some."""

    name: str  # of the file, for messages
    folder: Path = field(default_factory=Path)
    frame: pd.DataFrame
    lines: Sequence[str]  # (N,) the position of each row in the source, such as "line 7"
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    features: Features | None = None  # (N, F)
    feature_names: tuple[str, ...] = ()  # (F,); empty: an array without names
    grades: tuple[str, ...] | None = None  # mildest first, if the source lists them
    scales: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the same, by column
    made: str = ""  # how the features were computed
    # columns of numbers so large that several whole numbers became one
    inexact: frozenset[str] = frozenset()


def is_table(path: Path) -> bool:
    """Whether this is a table, a folder with a ``labels.csv``, or an export of another tool."""
    if path.is_dir():
        return (path / "labels.csv").is_file()
    return path.suffix.lower() in TABLE_SUFFIXES or is_foreign_table(path)


def load_table(source: Path | pd.DataFrame, *, typed: bool = False) -> Table:
    """All cells of a file, of ``labels.csv`` in a folder, or of a table in memory, as text.

    Rows with too many or too few cells are left out, as problems. typed: the cells of Parquet and
    of a table in memory stay what they are.
    """
    if isinstance(source, pd.DataFrame):
        return _from_frame(source, name=IN_MEMORY, folder=Path().absolute(), typed=typed)
    path = source / "labels.csv" if source.is_dir() else source
    check_regular_file(path)
    foreign = read_foreign_table(path)
    if foreign is not None:
        table = _from_frame(foreign.frame, name=path.name, folder=path.parent, typed=typed)
        return replace(table, notes=list(foreign.notes), scales=foreign.scales)
    if path.suffix.lower() == ".parquet":
        return _from_frame(_read_parquet(path), name=path.name, folder=path.parent, typed=typed)
    read = _read_excel if path.suffix.lower() == ".xlsx" else _read_csv
    rows, malformed, notes = read(path)
    if not rows:
        raise SrjtError(f"{path} is empty.", code="too_few")
    first, header = next(iter(rows.items()))
    _refuse_repeated(header, path.name)
    for line, cells in rows.items():
        if len(cells) != len(header):
            malformed[line] = f"{count_of(len(cells), 'cell')} where the header has {len(header)}"
    problems = []
    lines = []
    for line in rows:
        if line in malformed:
            problems.append(Problem("malformed-row", line, malformed[line]))
        elif line != first:
            lines.append(line)
    if not lines:
        why = "it has only a header"
        if problems:
            why = f"{problems[0].where}: {problems[0].detail}"
        raise SrjtError(
            f"There are no rows in {path} that can be used: {why}.", code="unusable_samples"
        )
    frame = _text_frame([rows[line] for line in lines], header)
    return Table(
        name=path.name, folder=path.parent, frame=frame, lines=lines, problems=problems, notes=notes
    )


def _text_frame(rows: list[list[str]], columns: list[str]) -> pd.DataFrame:
    """Rows of text. pandas keeps each column of text by itself, which takes half a minute for
    20,000 of them: many columns stay one block of Python objects."""
    if len(columns) <= MANY_COLUMNS:
        return pd.DataFrame(rows, columns=columns, dtype=str)
    return pd.DataFrame(np.array(rows, dtype=object), columns=columns, dtype=object)


def as_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table with all cells as text."""
    return pd.DataFrame(
        {name: frame[name].map(as_text).astype(str) for name in frame}, index=frame.index
    )


def _from_frame(frame: pd.DataFrame, *, name: str, folder: Path, typed: bool) -> Table:
    names = list(map(str, frame.columns))
    _refuse_repeated(names, name)
    if not len(frame):
        raise SrjtError(f"There are no rows in {name}.", code="too_few")
    lines = list(map("row {}".format, range(len(frame))))
    frame = frame.set_axis(names, axis=1).reset_index(drop=True)
    inexact = frozenset(_inexact_columns(frame))
    if not typed:
        frame = as_cells(frame)
    return Table(name=name, folder=folder, frame=frame, lines=lines, inexact=inexact)


def _inexact_columns(frame: pd.DataFrame) -> list[Any]:
    return [name for name in frame if _is_inexact(frame[name])]


def _is_inexact(column: pd.Series[Any]) -> bool:
    """Whether whole numbers went through floats that cannot hold them: two ids may have become
    one."""
    if column.dtype.kind != "f":
        return False
    largest = column.abs().max()
    return bool(largest >= 2**53)


def _refuse_repeated(columns: Sequence[str], source: str) -> None:
    if len(repeated := pd.Index(columns)[pd.Index(columns).duplicated()]):
        raise SrjtError(
            f"There are two columns named {repeated[0]!r} in {source}.", code="not_unique"
        )


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("pyarrow", "parquet", "Reading Parquet files") from None
    try:
        table = pyarrow.parquet.read_table(path)
        frame: pd.DataFrame = table.to_pandas()
        for name in _inexact_columns(frame):
            place = table.schema.get_field_index(str(name))
            if place >= 0 and pyarrow.types.is_integer(table.schema.types[place]):
                # a missing cell has turned whole numbers into floats, and large ids into each other
                frame[name] = pd.Series(
                    table.column(place).to_pylist(), dtype=object, index=frame.index
                )
        return frame
    except Exception as problem:  # damaged files make pyarrow raise almost any exception
        raise SrjtError(
            f"{path} cannot be read as Parquet: {reason_of(problem)}.", code="wrong_file"
        ) from None


# The rows of a file that are not empty, by their positions, the header first; of some of them, what
# is wrong with them; and notes.
Rows = tuple[dict[str, list[str]], dict[str, str], list[str]]


def _read_excel(path: Path) -> Rows:
    """The first sheet. Of a formula the value counts that Excel computed last, and cells beyond the
    header count only if they are filled."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise missing_extra("openpyxl", "excel", "Reading Excel files") from None
    rows: dict[str, list[str]] = {}
    try:
        workbook = load_workbook(path, read_only=True, data_only=True)
        try:
            sheet, *others = workbook.worksheets
            # a file may claim all 16,384 columns: only cells that exist are read
            sheet.reset_dimensions()
            for number, values in enumerate(sheet.iter_rows(values_only=True), start=1):
                cells = list(map(as_text, values))
                while cells and not cells[-1]:
                    cells.pop()
                if cells:
                    header = next(iter(rows.values()), [])
                    rows[f"row {number}"] = cells + [""] * (len(header) - len(cells))
        finally:
            workbook.close()
    except Exception as problem:  # damaged files make openpyxl raise almost any exception
        raise SrjtError(
            f"{path} cannot be read as an Excel file: {reason_of(problem)}.", code="wrong_file"
        ) from None
    note = f"sheet {sheet.title!r}"
    if others:
        note += f"; {count_of(len(others), 'other sheet is', 'other sheets are')} not read"
    return rows, {}, [note]


def _read_csv(path: Path) -> Rows:
    rows: dict[str, list[str]] = {}
    # a row with a cell of several lines → the line in which it ends
    several_lines: dict[str, int] = {}
    end = 0
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            # Spreadsheets write semicolons in countries where the comma is the decimal point.
            delimiter = max("\t;,", key=file.readline().count)
            file.seek(0)
            # strict: a quote that is never closed is an error; otherwise it hides all rows that
            # follow
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for cells in reader:
                start = end + 1
                end = reader.line_num
                if any(cells):
                    rows[f"line {start}"] = [*map(str.strip, cells)]
                    if end > start:
                        several_lines[f"line {start}"] = end
    except UnicodeDecodeError:
        raise SrjtError(
            f"{path} is not UTF-8 text: save it again as “CSV UTF-8”.", code="unreadable_file"
        ) from None
    except csv.Error as problem:
        reason = str(problem)
        if "end of data" in reason:
            reason = "a quote is opened and never closed"
        raise SrjtError(
            f"{path} is not a table: {reason}, in the row from line {end + 1} on.",
            code="wrong_file",
        ) from None
    malformed = {}
    for line in _rows_with_rows(rows, several_lines, delimiter):
        malformed[line] = (
            f"the quoted cell that ends in line {several_lines[line]} contains other rows: a quote"
            " is not closed"
        )
    return rows, malformed, []


def _rows_with_rows(
    rows: dict[str, list[str]], several_lines: Collection[str], delimiter: str
) -> Iterator[str]:
    """The rows with a cell that contains other rows: one of its further lines has as many cells as
    the header, and one of these, such as a grade, is in the same column of another row. Prose
    hardly ever is so."""
    if not several_lines:
        return
    header, *body = rows
    width = len(rows[header])
    if width == 1:
        return
    seen: list[set[str]] = [set() for _ in range(width)]
    for line in body:
        if line in several_lines:
            continue
        for values, cell in zip(seen, rows[line], strict=False):
            if cell:
                values.add(cell)
    for row in several_lines:
        lines: list[str] = []
        for cell in rows[row]:
            lines += cell.splitlines()[1:]
        for cells in csv.reader(lines, delimiter=delimiter):
            known = [cell.strip() in values for cell, values in zip(cells, seen, strict=False)]
            if len(cells) == width and any(known):
                yield row
                break


def write_table(manifest: Manifest, path: Path) -> None:
    """Write a manifest as a CSV file that ``srjt.data.read`` reads without options.

    Grades are written by name. Image paths are relative to the file's folder, or absolute if they
    are elsewhere.
    """
    table = manifest.with_grade_names()
    if manifest.arrays is None:
        folder = path.parent.absolute()
        table["image"] = [path_from(image.absolute(), folder) for image in manifest.paths]
    warn_about_formulas(table, path)
    write_output(path, as_csv(table))


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
        *(
            "patient",
            "patientid",
            "patientname",
            "subject",
            "subjectid",
            "participant",
            "participantid",
        ),
        *("person", "personid", "case", "caseid", "pid"),
    ),
    # not "adjudicated" or "consensus": such grades exist for the difficult images, and a random
    # sample is needed
    "verified_grade": ("verifiedgrade", "verifiedlabel", "gradeverified", "labelverified"),
    "verified_probability": ("verifiedprobability",),
    "true_grade": ("truegrade", "truelabel", "cleangrade", "cleanlabel"),
    "split": (
        "split",
        "officialsplit",
        "subset",
        "partition",
        "set",
        "usage",
        "part",
        "phase",
        "dataset",
    ),
}
REQUIRED = ("image", "grade")
SHOWN = 12  # columns that an error lists


def choose_columns(
    table: Table,
    given: Mapping[str, str | None],
    *,
    without: Collection[str] = (),
    required: Sequence[str] = REQUIRED,
    synonyms: Mapping[str, Sequence[str]] = SYNONYMS,
) -> tuple[dict[str, str], dict[str, str]]:
    """By role (image, grade, patient, verified_grade, …), its column and a note on the choice.

    given: the column of a role, where the user named it. without: columns that have another role.
    synonyms: the usual names of each role, in plain small letters.
    """
    columns = [name for name in table.frame.columns if name not in without]
    chosen = without_none(given)
    for role, column in chosen.items():
        if column not in columns:
            raise unknown_name(
                f"column (for the {role.replace('_', ' ')}, in {table.name})", column, columns
            )
    notes = {}
    plain = {plain_name(column): column for column in reversed(columns)}
    taken = set(chosen.values())
    for role, names in synonyms.items():
        reason = "as given"
        if role not in chosen:
            free = [name for name in picked(plain, names).values() if name not in taken]
            if not free:
                continue
            chosen[role] = free[0]
            taken.add(free[0])
            reason = "by its name"
            if unused := [repr(column) for column in free[1:] if column.casefold() != "id"]:
                reason += f", not {', '.join(unused)}"
        notes[role] = f"{role.replace('_', ' ')}: column {chosen[role]!r} ({reason})"
    for role in {"image", "item", "patient"} & chosen.keys():
        if chosen[role] in table.inexact:
            raise SrjtError(
                f"The column {chosen[role]!r} of {table.name} ({role}) holds numbers that a float"
                " cannot hold exactly, so that different ids may have become one: write it as text"
                " or as whole numbers.",
                code="wrong_type",
            )
    for role in required:
        if role not in chosen:
            raise missing_column(role, table, features=required == REQUIRED)
    return chosen, notes


def missing_column(role: str, table: Table, *, features: bool = False) -> SrjtError:
    """The error for a table without the column of a role. features: whether its columns may be
    features."""
    hint = ""
    if role == "grade":
        hint = Message(
            " If several readers graded each image, add ",
            Option("several_readings", "consensus"),
            ".",
        )
    elif role == "image" and features:
        hint = Message(" Columns of features are named with ", Option("feature_columns"), ".")
    return SrjtError(
        f"No column of {table.name} looks like the {role}: give its name with ",
        Option(f"{role}_column"),
        f". Columns: {few(table.frame.columns, SHOWN)}.",
        hint,
        code="missing_column",
    )


def plain_name(column: str) -> str:
    """A name in small letters, without spaces and punctuation: "Patient-ID" is patientid."""
    return re.sub(r"[\W_]+", "", column.casefold())


def match_columns(table: Table, patterns: Sequence[str], *, role: str) -> list[str]:
    """The columns with these names, or that match these patterns, in the order of the table."""
    columns = list(table.frame.columns)
    matching = set[str]()
    for pattern in patterns:
        names = [pattern] if pattern in columns else fnmatch.filter(columns, pattern)
        if not names:
            shown = few(columns, SHOWN)
            raise SrjtError(
                f"No column of {table.name} matches {pattern!r} ({role}). Columns: {shown}.",
                code="missing_column",
            )
        matching.update(names)
    return [name for name in columns if name in matching]


def is_split(cells: pd.Series[str], *, given: bool) -> bool:
    """Whether a column holds train, validation or test; an error if the user has ``given`` one that
    does not."""
    values = {value.casefold() for value in cells} - {""}
    strange = sorted(values - set(SPLIT_NAMES))
    if given and (strange or not values):
        raise SrjtError(
            f"The column {cells.name!r} must be train, validation or test, not"
            f" {few(map(repr, strange), 5) or 'empty'}.",
            code="wrong_values",
            option="split_column",
        )
    return bool(values) and not strange


def other_columns(frame: pd.DataFrame, taken: Collection[str | None]) -> dict[str, pd.Series[str]]:
    """The columns without a role, to be kept. A table is made of them at once: one by one takes
    quadratic time."""
    others = {}
    for column in frame.columns:
        if column not in taken:
            others[_renamed(column, CANONICAL)] = frame[column]
    return others


def _renamed(column: str, taken: Collection[str]) -> str:
    if column in taken:
        return f"{column}_source"
    return column


def kept_columns(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Those of the ``columns`` that a table to predict has; its own id, image, patient and grades
    get another name."""
    ours = ("id", "image", "patient", *GRADED)
    names = [name for name in dict.fromkeys(columns) if name in frame]
    return frame[names].rename(columns={name: f"{name}_source" for name in ours})


def check_wanted(columns: Sequence[str], table: pd.DataFrame, *, known: Sequence[str]) -> None:
    """Raise an error if ``table``, read from sources with the columns ``known``, lacks one of the
    wanted columns.

    Nothing is known of images that no table lists: whoever needs the column says so.
    """
    for name in columns:
        if known and name not in table and f"{name}_source" not in table:
            raise unknown_name("column (of the data to predict)", name, known)


# Find the image files that a table names.

# Where images are, beside a table. The first folder that has some of them is used.
IMAGE_FOLDERS = ("", "images", "train_images", "img", "imgs", "train", "test_images", "test")


def find_images(names: Sequence[str], directory: Path) -> tuple[Path, list[str], list[Problem]]:
    """The files of these names in ``directory``, or in the folder in it that has some of them:
    archives are unpacked to different places. Returns that folder, the files and problems.
    """
    sample = list(filter(None, names))[:: max(1, len(names) // 20)]
    for root in map(directory.joinpath, IMAGE_FOLDERS):
        if any(os.path.isfile(root / image) for image in _locate(sample, root)[0]):
            return root, *_locate(names, root)
    return directory, *_locate(names, directory)


def _locate(names: Sequence[str], root: Path) -> tuple[list[str], list[Problem]]:
    """Find the files of names without a suffix ("10_left"), and files without the suffix of their
    name.

    A name for which there is no file is unchanged.
    """
    files: dict[str, dict[str, list[str]]] = {}
    located = []
    problems = []
    for name in names:
        folder, file = posixpath.split(name)
        if folder not in files:
            files[folder] = {}
            # no folder: also for a name that is too long or contains NUL
            entries = os.listdir(root / folder) if os.path.isdir(root / folder) else []
            for entry in sorted(entries):
                files[folder].setdefault(_stem(entry), []).append(entry)
        stem = _stem(file)
        matching = files[folder].get(stem, [])
        if file in matching:
            matching = [file]
        elif stem != file:  # another suffix would be another image
            matching = [stem] if stem in matching else []
        if len(matching) > 1:
            problems.append(
                Problem("ambiguous-image", name, f"{', '.join(matching)}: the first is used")
            )
        located.append(posixpath.join(folder, matching[0]) if matching else name)
    return located, problems


def _stem(file: str) -> str:
    """The name of a file without the suffix of an image."""
    stem, suffix = os.path.splitext(file)
    if suffix.lower() in IMAGE_SUFFIXES:
        return stem
    return file


def relative_name(name: str, root: Path) -> str:
    """One spelling per file: forward slashes, no "./", relative to ``root`` if it is below it."""
    if not name:
        return ""
    name = posixpath.normpath(name.replace("\\", "/"))
    if not os.path.isabs(name):  # before a Path is made: there may be millions of names
        return name
    return path_from(Path(name), root)


def no_image_exists(manifest: Manifest) -> SrjtError:
    """The error if no image is where it is looked for."""
    return SrjtError(
        f"None of the {len(manifest):,} images exists: the first,"
        f" {manifest.table['image'].iloc[0]}, is not in {manifest.root}. Give the folder that holds"
        " them with ",
        Option("images"),
        ", or name columns of features with ",
        Option("feature_columns"),
        ".",
        code="missing_file",
    )
