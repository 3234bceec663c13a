"""Labels in a CSV, TSV or Parquet file."""

from __future__ import annotations

import csv
import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from srjt.data.grades import as_text
from srjt.data.images.decode import IMAGE_SUFFIXES
from srjt.data.manifest import Manifest
from srjt.data.problems import Problem
from srjt.data.sources.assemble import GRADED, SPLIT_NAMES, Reading, assemble
from srjt.data.sources.columns import choose_columns
from srjt.errors import SrjtError, missing_extra

__all__ = [
    "CANONICAL",
    "TABLE_SUFFIXES",
    "TextTable",
    "check_split_column",
    "is_table",
    "load",
    "locate_images",
    "read_parquet",
    "read_table",
    "write_table",
]

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")
CANONICAL = ("id", "image", "grade", "patient", "true_grade", "verified_grade", "split")


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text: nothing is converted to numbers, so that patient 007 stays 007."""

    frame: pd.DataFrame
    lines: list[str]  # (N,) the position of each row in the file
    problems: list[Problem]


def is_table(path: Path) -> bool:
    """Whether this is a table, or a folder with a ``labels.csv``."""
    return (path / "labels.csv").is_file() if path.is_dir() else path.suffix.lower() in TABLE_SUFFIXES


def read_table(
    path: Path,
    *,
    images: Path | None = None,
    image_column: str | None = None,
    grade_column: str | None = None,
    patient_column: str | None = None,
    true_grade_column: str | None = None,
    verified_grade_column: str | None = None,
    split_column: str | None = None,
    grades: Sequence[str] | None = None,
) -> Reading:
    """Read the table ``path``, or ``labels.csv`` in it. Image names are relative to ``images``, or to the table."""
    if path.is_dir():
        path = path / "labels.csv"
        if not path.is_file():
            raise SrjtError(f"{path.parent} is a folder without a labels.csv: give the path of the table.")
    loaded = load(path)
    given = {
        "image": image_column,
        "grade": grade_column,
        "patient": patient_column,
        "true_grade": true_grade_column,
        "verified_grade": verified_grade_column,
        "split": split_column,
    }
    chosen, notes = choose_columns(list(loaded.frame.columns), given, source=path.name)
    notes = check_split_column(loaded.frame, chosen, notes, given=split_column is not None)

    root = (images or path.parent).absolute()
    rows = pd.DataFrame({role: loaded.frame[column] for role, column in chosen.items()})
    names = [relative_name(name, root) for name in rows["image"]]
    rows["image"], problems = locate_images(names, root)
    ids, id_column = _ids(loaded.frame, set(chosen.values()), names)
    rows.insert(0, "id", ids)
    for column in loaded.frame.columns:
        if column not in chosen.values() and column != id_column:
            rows[f"{column}_source" if column in CANONICAL else column] = loaded.frame[column]
    return assemble(
        rows,
        kind="table",
        root=root,
        grades=grades,
        lines=loaded.lines,
        notes=[f"table {path.name}, images below {root}", *notes],
        problems=[*loaded.problems, *problems],
    )


def load(path: Path) -> TextTable:
    """Read all cells of a table as text."""
    if path.suffix.lower() == ".parquet":
        return _load_parquet(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = file.readline()
            file.seek(0)
            # Spreadsheets write semicolons in countries where the comma is the decimal point.
            delimiter = max("\t;,", key=header.count)
            reader = csv.reader(file, delimiter=delimiter)
            cells = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except UnicodeDecodeError:
        raise SrjtError(f"{path} is not UTF-8 text: save it again as “CSV UTF-8”.") from None
    except csv.Error as problem:
        raise SrjtError(f"{path} cannot be read as a table: {problem}.") from None
    if len(cells) < 2:
        raise SrjtError(f"{path} has no rows below its header.")
    columns = cells[0][1]
    _refuse_repeated(columns, path)
    good = [(line, row) for line, row in cells[1:] if len(row) == len(columns)]
    problems = [
        Problem("malformed-row", f"line {line}", f"{len(row)} cells where the header has {len(columns)}")
        for line, row in cells[1:]
        if len(row) != len(columns)
    ]
    if not good:
        raise SrjtError(f"No row of {path} has as many cells as its header ({len(columns)}).")
    frame = pd.DataFrame([row for _, row in good], columns=columns, dtype=str)
    return TextTable(frame=frame, lines=[f"line {line}" for line, _ in good], problems=problems)


def locate_images(names: Sequence[str], root: Path) -> tuple[list[str], list[Problem]]:
    """Add the suffix to names without one ("10_left"), from the files in the folder; other names are unchanged."""
    files: dict[str, dict[str, list[str]]] = {}
    found, problems = [], []
    for name in names:
        if not name or posixpath.splitext(name)[1].lower() in IMAGE_SUFFIXES:
            found.append(name)
            continue
        folder, stem = posixpath.split(name)
        if folder not in files:
            files[folder] = _images_by_stem(root / folder)
        matching = files[folder].get(stem, [])
        if len(matching) > 1:
            problems.append(Problem("ambiguous-image", name, f"{', '.join(matching)}: the first is used"))
        found.append(posixpath.join(folder, matching[0]) if matching else name)
    return found, problems


def relative_name(name: str, root: Path) -> str:
    """One spelling per file: forward slashes, no "./", relative to ``root`` if it is below it."""
    if not name:
        return ""
    name = posixpath.normpath(name.replace("\\", "/"))
    path = Path(name)
    return path.relative_to(root).as_posix() if path.is_absolute() and path.is_relative_to(root) else name


def write_table(manifest: Manifest, path: Path) -> None:
    """Write a manifest as a CSV file that ``read_table`` reads without options.

    Grades are written by name. Image paths are relative to the file's folder, or absolute if they are elsewhere.
    """
    table = manifest.table.copy()
    for column in GRADED:
        if column in table:
            table[column] = [manifest.grades[grade] if grade >= 0 else "" for grade in table[column]]
    if manifest.arrays is None:
        table["image"] = [_path_from(path.parent.absolute(), image.absolute()) for image in manifest.paths]
    table.to_csv(path, index=False)


def _path_from(folder: Path, image: Path) -> str:
    # Never with "..", which is wrong below a linked folder.
    return (image.relative_to(folder) if image.is_relative_to(folder) else image).as_posix()


def _images_by_stem(folder: Path) -> dict[str, list[str]]:
    by_stem: dict[str, list[str]] = {}
    if folder.is_dir():
        for name in sorted(os.listdir(folder)):
            stem, suffix = os.path.splitext(name)
            if suffix.lower() in IMAGE_SUFFIXES:
                by_stem.setdefault(stem, []).append(name)
    return by_stem


def _ids(frame: pd.DataFrame, taken: set[str], names: list[str]) -> tuple[list[str], str | None]:
    """The ids of the table if it has unique ones in a column that is not otherwise used, else the image names."""
    for column in frame.columns:
        if column.casefold() in ("id", "sample_id") and column not in taken:
            own = frame[column]
            if own.is_unique and (own != "").all():
                return own.tolist(), str(column)
    return names, None


def check_split_column(
    frame: pd.DataFrame, chosen: dict[str, str], notes: list[str], *, given: bool
) -> list[str]:
    """Check that the split column holds train, validation or test; one that was only guessed is dropped if not."""
    if "split" not in chosen:
        return notes
    values = {value.casefold() for value in frame[chosen["split"]]} - {""}
    strange = sorted(values - set(SPLIT_NAMES))
    if not strange and values:
        return notes
    if given:
        raise SrjtError(
            f"The column {chosen['split']!r} must contain train, validation or test; "
            f"it contains {', '.join(map(repr, strange[:5])) or 'nothing'}."
        )
    del chosen["split"]
    return [note for note in notes if not note.startswith("split:")]


def _refuse_repeated(columns: Sequence[str], path: Path) -> None:
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise SrjtError(f"{path} has two columns named {twice[0]!r}.")


def _load_parquet(path: Path) -> TextTable:
    frame = read_parquet(path)
    text = pd.DataFrame({str(column): frame[column].map(as_text).astype(str) for column in frame.columns})
    return TextTable(frame=text, lines=[f"row {row + 1}" for row in range(len(text))], problems=[])


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file; rows are numbered from 0."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise missing_extra("pyarrow", "parquet", "Reading Parquet files") from None
    try:
        return pd.read_parquet(path, engine="pyarrow").reset_index(drop=True)
    except (OSError, ValueError) as problem:  # the base classes of pyarrow's errors
        raise SrjtError(f"{path} cannot be read as Parquet: {problem}.") from None
