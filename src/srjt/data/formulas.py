"""Cells that a spreadsheet would run as a formula, such as =HYPERLINK(…)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from srjt.errors import warn

__all__ = ["neutralise_formula", "warn_about_formulas"]

_STARTS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # full-width ones count, too


def neutralise_formula(text: str) -> str:
    """The text itself, or with an apostrophe in front if a spreadsheet would run it as a formula."""
    return f"'{text}" if _is_formula(text) else text


def warn_about_formulas(table: pd.DataFrame, path: Path) -> None:
    """Warn about formulas in a table that is written to ``path`` unchanged."""
    found = [
        (str(column), str(cell))
        for column in table.columns
        if not pd.api.types.is_numeric_dtype(table[column])
        for cell in table[column]
        if _is_formula(str(cell))
    ]
    if found:
        column, cell = found[0]
        warn(
            f"{path} has cells that a spreadsheet may run as formulas ({len(found):,}; the first is {cell[:60]!r} in "
            f"the column {column!r}). They come from the source and are unchanged."
        )


def _is_formula(text: str) -> bool:
    if len(text) < 2 or not text.startswith(_STARTS):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False
