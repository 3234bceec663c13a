"""Tables in Excel workbooks (.xlsx)."""

from __future__ import annotations

from pathlib import Path

from srjt.data.grades import as_text
from srjt.errors import SrjtError, count_of, missing_extra

__all__ = ["read_excel"]


def read_excel(path: Path) -> tuple[list[str], list[tuple[str, list[str]]], list[str]]:
    """The header, the rows that are not empty as (position, cells), and notes. The first sheet is read.

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
            sheets[
                0
            ].reset_dimensions()  # a file may claim all 16,384 columns: only cells that exist are read
            rows = [
                (f"row {number}", [as_text(value) for value in values])
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
    header = _without_empty_end(rows[0][1])
    body = [
        (where, cells + [""] * (len(header) - len(cells)))
        for where, found in rows[1:]
        for cells in [_without_empty_end(found)]
    ]
    others = (
        f"; {count_of(len(sheets) - 1, 'other sheet is', 'other sheets are')} not read"
        if len(sheets) > 1
        else ""
    )
    return header, body, [f"sheet {sheets[0].title!r}{others}"]


def _without_empty_end(cells: list[str]) -> list[str]:
    filled = next((count for count in range(len(cells), 0, -1) if cells[count - 1]), 0)
    return cells[:filled]
