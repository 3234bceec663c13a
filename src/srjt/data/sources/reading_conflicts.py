"""Rows of a table of readings that repeat or contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import MISSING
from srjt.data.problems import Problem

__all__ = ["item_groups", "item_references", "repeated_rows"]

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


def _first_values(values: Sequence[Any], row_items: Ints) -> tuple[dict[int, Any], dict[int, Any]]:
    """By item: the first value, and a second one that differs from it."""
    first: dict[int, Any] = {}
    other: dict[int, Any] = {}
    for item, value in zip(row_items.tolist(), values, strict=True):
        if item >= 0 and first.setdefault(item, value) != value:
            other.setdefault(item, value)
    return first, other


def item_groups(cells: list[str], items: list[str], row_items: Ints, problems: list[Problem]) -> list[str]:
    """(I,) the patient of each item; an unknown one is a patient of its own."""
    name_of = dict(zip(row_items.tolist(), items, strict=True))
    patients = [
        f"unknown: {name}" if cell.casefold() in MISSING else cell
        for cell, name in zip(cells, items, strict=True)
    ]
    first, other = _first_values(patients, row_items)
    for item, second in other.items():
        detail = f"patients {first[item]} and {second}: the first is used"
        problems.append(Problem("conflicting-patients", name_of[item], detail))
    return [first[item] for item in range(len(first))]


def item_references(
    codes: Ints, items: list[str], row_items: Ints, grades: Sequence[str], problems: list[Problem]
) -> Ints:
    """(I,) the reference of each item, −1 where there is none or where its rows contradict each other."""
    known = np.where(codes >= 0, row_items, -1)  # an empty cell contradicts nothing
    first, other = _first_values(codes.tolist(), known)
    name_of = dict(zip(row_items.tolist(), items, strict=True))
    reference = np.full(int(row_items.max()) + 1, -1, dtype=np.int64)
    for item, code in first.items():
        reference[item] = code
    for item, code in other.items():
        reference[item] = -1
        detail = f"references {grades[first[item]]} and {grades[code]}: none is used"
        problems.append(Problem("conflicting-reference", name_of[item], detail))
    return reference
