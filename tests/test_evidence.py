"""The scripts behind docs/results.md: differences between methods, resampled by patient."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from srjt.errors import SrjtError

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "evidence" / "compare.py"
Compare = Callable[..., str]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Compare:
    spec = importlib.util.spec_from_file_location("compare", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "compare", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESAMPLES", 200)

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["compare.py", *map(str, words)])
        module.main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Forty patients with five images each, two seeds. ``good`` is right everywhere; ``poor`` says one too many for
    every second patient, with both networks; ``single`` has one network and is always one too high."""
    true = np.tile([0, 0, 1, 2, 3], 40)
    patients = np.repeat([f"p{k:02}" for k in range(40)], 5)
    wrong = {"good": np.zeros(200), "poor": np.repeat(np.arange(40) % 2, 5), "single": np.ones(200)}
    for name, error in wrong.items():
        said = true + error.astype(int)
        columns = {"views 1, network 1": said, "views 1, both": said, "views 10, both": true}
        if name != "single":
            columns["views 1, network 2"] = true  # alone it is right
        for seed in (0, 1):
            table = pd.DataFrame({"patient": patients, "true": true, **columns})
            table = table.assign(method=name, variant="", noise="quasi:0.2", fold=0, seed=seed)
            table.to_csv(tmp_path / f"{name}{seed}.csv", index=False)
    return tmp_path


def test_differences_and_their_intervals(compare: Compare, tables: Path) -> None:
    said = compare(tables, "--of", "good", "--against", "poor", "--against", "single")
    assert "| quasi:0.2 | `poor` | 1.000, 0.500: **+0.500** (" in said
    assert "0.000, 0.500: **−0.500**" in said  # MAE
    assert "| `single` | 1.000, 0.000: **+1.000** (+1.000 to +1.000)" in said
    assert "1.000, 1.000: +0.000 (+0.000 to +0.000)" in compare(
        tables, "--of", "good", "--against", "poor", "--views", 10
    )


def test_intervals_are_of_patients_not_of_images(compare: Compare, tables: Path) -> None:
    """Ten images of a patient are right or wrong together: √(¼/40) = 0.079, and not √(¼/400) = 0.025."""
    row = compare(tables, "--of", "good", "--against", "poor").splitlines()[2]
    low, high = (float(part) for part in row.split("(")[1].split(")")[0].replace("−", "-").split(" to "))
    assert 0.22 < high - low < 0.38  # ±1.96 · 0.079, by 200 draws


def test_others_may_be_scored_as_in_the_paper(compare: Compare, tables: Path) -> None:
    said = compare(tables, "--of", "good", "--against", "poor", "--against", "single", "--plain")
    assert "`poor` | 1.000, 0.750:" in said  # the mean of a network that is half right and one that is right
    assert "`single` | 1.000, 0.000:" in said


def test_the_figure_and_the_table_in_one_file(compare: Compare, tables: Path, tmp_path: Path) -> None:
    whole = tmp_path / "all.csv.xz"
    pd.concat(pd.read_csv(file) for file in sorted(tables.glob("*.csv"))).to_csv(whole, index=False)
    said = compare(whole, "--of", "good", "--figures", tmp_path / "figures")
    assert said.count("| quasi:0.2 |") == 2
    assert "quasi:0.2, single" in (tmp_path / "figures" / "differences.svg").read_text()


def test_what_cannot_be_compared_is_one_sentence(compare: Compare, tables: Path, tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="did you mean 'good'"):
        compare(tables, "--of", "god")
    with pytest.raises(SrjtError, match="holds no tables"):
        compare(tmp_path / "nowhere", "--of", "good")
    (tables / "poor1.csv").unlink()
    with pytest.raises(SrjtError, match=r"quasi:0\.2: poor was not tested in the same folds and seeds"):
        compare(tables, "--of", "good", "--against", "poor")
