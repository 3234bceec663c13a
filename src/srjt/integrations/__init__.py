"""Files of other tools: one file per tool, which turns what the tool writes into a plain table and
back.

To add a tool whose exports hold grades, write a file with ``recognise(path)`` and ``read(path)``,
and name it in ``TABLES``. Nothing else in the package knows the tools.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import pandas as pd

TABLES = ("label_studio", "redcap")
# Text that a file of another tool may have. Label Studio writes about 1 kB for each annotation.
MOST_BYTES = 500_000_000


@dataclass(frozen=True, kw_only=True)
class ForeignTable:
    """What another tool exported, as a table of text.

    Parameters
    ----------
    frame : DataFrame
        One row per reading, or per image.
    notes : tuple of str
        How the file was understood, for people.
    scales : dict of str to tuple of str
        The names of the grades in a column, mildest first, where the tool knows them.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]
    scales: dict[str, tuple[str, ...]] = field(default_factory=dict)


def is_foreign_table(path: Path) -> bool:
    """Whether another tool wrote this file."""
    return _tool_of(path) is not None


def read_foreign_table(path: Path) -> ForeignTable | None:
    """The table in a file of another tool; None if none of them wrote it."""
    name = _tool_of(path)
    if name is None:
        return None
    table: ForeignTable = import_module(f"srjt.integrations.{name}").read(path)
    return table


def _tool_of(path: Path) -> str | None:
    for name in TABLES:
        if import_module(f"srjt.integrations.{name}").recognise(path):
            return name
    return None
