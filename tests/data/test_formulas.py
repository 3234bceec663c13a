from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd
import pytest

from srjt.data import Problem, write_problems
from srjt.data.formulas import neutralise_formula, warn_about_formulas


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+cmd", "-x", "\t=1", "＝1+1", "＠x"])
def test_formulas_become_text(text: str) -> None:
    assert neutralise_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "-", "-1", "+2.5", "-1e5", "a=b", "anna"])
def test_other_cells_are_unchanged(text: str) -> None:
    assert neutralise_formula(text) == text


def test_formulas_of_the_source_are_reported() -> None:
    table = pd.DataFrame({"image": ["=a.png", "b.png"], "x": [-1.0, 2.0]})
    with pytest.warns(UserWarning, match=r"formulas \(1; the first is '=a.png' in the column 'image'\)"):
        warn_about_formulas(table, Path("out.csv"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_about_formulas(table[1:], Path("out.csv"))


def test_problems_are_text(tmp_path: Path) -> None:
    write_problems([Problem("ignored-file", "=1+1.txt", "not an image")], tmp_path / "problems.csv")
    assert "'=1+1.txt" in (tmp_path / "problems.csv").read_text()
