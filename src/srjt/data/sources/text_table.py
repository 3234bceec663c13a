"""Read a CSV, TSV, Excel or Parquet file as a table of text."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
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
                where = f"line {start}"
                if not any(cells):
                    continue
                if line > start:
                    several_lines[len(rows)] = line
                rows.append((where, [cell.strip() for cell in cells]))
    except UnicodeDecodeError:
        raise SrjtError(f"{path} is not UTF-8 text: save it again as “CSV UTF-8”.") from None
    except csv.Error as problem:
        reason = "a quote is opened and never closed" if "end of data" in str(problem) else str(problem)
        raise SrjtError(
            f"{path} cannot be read as a table: {reason}, in the row that begins in line {line + 1}."
        ) from None
    if not rows:
        raise SrjtError(f"{path} has no rows below its header.")
    malformed = {
        rows[row][
            0
        ]: f"the quoted cell that ends in line {several_lines[row]} contains other rows: a quote is not "
        "closed"
        for row in _rows_with_rows(rows, several_lines, delimiter)
    }
    return rows[0][1], rows[1:], malformed


def _rows_with_rows(
    rows: list[tuple[str, list[str]]], several_lines: Collection[int], delimiter: str
) -> Iterator[int]:
    """The rows with a cell that contains other rows: one of its further lines has as many cells as the header, and
    one of these, such as a grade, is in the same column of another row. Prose hardly ever is so."""
    columns = len(rows[0][1])
    if not several_lines or columns < 2:
        return
    others = [cells for row, (_, cells) in enumerate(rows) if row and row not in several_lines]
    seen = [{cells[column] for cells in others if column < len(cells)} - {""} for column in range(columns)]
    for row in several_lines:
        lines = [line for cell in rows[row][1] for line in cell.splitlines()[1:]]
        for cells in csv.reader(lines, delimiter=delimiter):
            if len(cells) == columns and any(
                cell.strip() in known for cell, known in zip(cells, seen, strict=True)
            ):
                yield row
                break


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
