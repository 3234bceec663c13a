"""A matrix of grades on the terminal, such as a confusion matrix, with the names of the grades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from srjt.errors import printable

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["matrix_table"]


def matrix_table(
    corner: str,
    rows: Sequence[Sequence[str]],
    *,
    grades: Sequence[str],
    names: Sequence[str],
    width: int,
    last: str | None = None,
    **style: Any,
) -> Table:
    """A row and a column per grade.

    The rows have the whole names, ``names``. So have the columns if all of it fits into ``width`` characters; else
    they have the ``grades`` alone. last: heading of a further column of ``rows``.
    """
    from rich.table import Table

    grades, names = [*map(printable, grades)], [*map(printable, names)]
    further = [] if last is None else [last]
    columns = [[name, *cells] for name, *cells in zip([*names, *further], *rows, strict=True)]
    needed = [max(map(len, column)) + 3 for column in ([corner, *names], *columns)]
    heads = names if sum(needed) + 1 <= width else grades
    table = Table(**style)
    table.add_column(corner, overflow="fold")
    for head in [*heads, *further]:
        table.add_column(head, overflow="fold")  # a long grade is broken into lines
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *row)
    return table
