"""A matrix of grades on the terminal."""

from __future__ import annotations

import pytest
from rich.console import Console

from srjt.cli.matrix_table import matrix_table

GRADES = ("0", "1", "4")
NAMES = ("0 (none)", "1 (mild)", "4 (proliferative)")
ROWS = [["10", "2", "0", "0.833"], ["1", "7", "0", "0.875"], ["0", "1", "3", "0.750"]]


@pytest.mark.parametrize(("width", "whole"), [(82, True), (60, False), (48, False)])
def test_names_are_whole(width: int, whole: bool) -> None:
    console = Console(width=width)
    table = matrix_table("true", ROWS, grades=GRADES, names=NAMES, last="recall", width=width)
    with console.capture() as printed:
        console.print(table)
    heading, *body = [line for line in printed.get().splitlines() if line.startswith(("┃", "│"))]
    assert ("(proliferative)" in heading) == whole
    assert [line.split("│")[1].strip() for line in body] == list(NAMES)
    assert "…" not in printed.get()
    assert [line.split("│")[-2].strip() for line in body] == ["0.833", "0.875", "0.750"]
