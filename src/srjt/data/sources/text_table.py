"""Read a CSV, TSV, Excel or Parquet file as a table of text."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from srjt.data.grades import as_text
from srjt.data.problems import Problem
from srjt.data.sources.excel import read_excel
from srjt.errors import SrjtError, count_of, missing_extra
from srjt.files import check_regular_file

__all__ = ["TABLE_SUFFIXES", "TextTable", "from_frame", "load", "read_parquet", "refuse_repeated"]

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".xlsx")


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text: nothing is converted to numbers, so that patient 007 stays 007."""

    frame: pd.DataFrame
    lines: list[str]  # (N,) the position of each row in the file
    problems: list[Problem]
    notes: list[str] = field(default_factory=list)


def load(path: Path) -> TextTable:
    """Read all cells of a table as text. Rows with too many or too few cells are left out, as problems."""
    check_regular_file(path)
    if path.suffix.lower() == ".parquet":
        return from_frame(read_parquet(path), first=1)
    if path.suffix.lower() == ".xlsx":
        header, rows, notes = read_excel(path)
        malformed: dict[str, str] = {}
    else:
        header, rows, malformed = _read_csv(path)
        notes = []
    if not rows:
        raise SrjtError(f"{path} has no rows below its header.")
    refuse_repeated(header, path)
    for where, cells in rows:
        if len(cells) != len(header):
            malformed[where] = f"{count_of(len(cells), 'cell')} where the header has {len(header)}"
    problems = [Problem("malformed-row", where, malformed[where]) for where, _ in rows if where in malformed]
    good = [(where, cells) for where, cells in rows if where not in malformed]
    if not good:
        raise SrjtError(
            f"No row of {path} can be used; the first, {problems[0].where}: {problems[0].detail}."
        )
    frame = pd.DataFrame([cells for _, cells in good], columns=header, dtype=str)
    return TextTable(frame=frame, lines=[where for where, _ in good], problems=problems, notes=notes)


def _read_csv(path: Path) -> tuple[list[str], list[tuple[str, list[str]]], dict[str, str]]:
    """The header; the rows that are not empty, as (position, cells); the reasons against some of them."""
    rows: list[tuple[str, list[str]]] = []
    malformed = {}
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
                where = f"line {start}"
                if not any(cells):
                    continue
                rows.append((where, [cell.strip() for cell in cells]))
                several_lines = line > start  # else no cell can hold another row
                if several_lines and any(
                    _contains_rows(cell, delimiter, columns=len(cells)) for cell in cells
                ):
                    malformed[where] = (
                        f"the quoted cell that ends in line {line} contains other rows: a quote is not closed"
                    )
    except UnicodeDecodeError:
        raise SrjtError(f"{path} is not UTF-8 text: save it again as “CSV UTF-8”.") from None
    except csv.Error as problem:
        reason = "a quote is opened and never closed" if "end of data" in str(problem) else str(problem)
        raise SrjtError(
            f"{path} cannot be read as a table: {reason}, in the row that begins in line {line + 1}."
        ) from None
    if not rows:
        raise SrjtError(f"{path} has no rows below its header.")
    return rows[0][1], rows[1:], malformed


def _contains_rows(cell: str, delimiter: str, *, columns: int) -> bool:
    """Whether the further lines of a cell look like rows. Prose has a space after a comma."""
    lines = cell.splitlines()[1:]
    return (
        columns > 1
        and bool(lines)
        and all(line.count(delimiter) == columns - 1 and f"{delimiter} " not in line for line in lines)
    )


def refuse_repeated(columns: Sequence[str], source: str | Path) -> None:
    """Raise an error for two columns of the same name."""
    twice = [column for column, count in Counter(columns).items() if count > 1]
    if twice:
        raise SrjtError(f"{source} has two columns named {min(twice)!r}.")


def from_frame(frame: pd.DataFrame, *, first: int = 0) -> TextTable:
    """The cells of a table in memory as text. first: the number of its first row in messages."""
    refuse_repeated([str(column) for column in frame.columns], "The table")
    cells = {str(column): frame[column].map(as_text).astype(str) for column in frame.columns}
    text = pd.DataFrame(cells).reset_index(drop=True)
    return TextTable(frame=text, lines=[f"row {first + row}" for row in range(len(text))], problems=[])


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
