"""Leave one site out, from the folds to the page of a study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from srjt.reports.pages.study import study_page
from srjt.studies.results import collect_results

from .conftest import Srjt

READ = ("--feature-columns", "f?")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """120 rows of features of 40 patients at three sites."""
    rng = np.random.default_rng(0)
    severity = rng.uniform(0, 4, 120)
    frame = pd.DataFrame({f"f{k}": severity + 0.3 * rng.normal(size=120) for k in range(3)})
    frame["grade"] = severity.astype(int)
    frame["patient"] = [f"p{k % 40}" for k in range(120)]
    frame["site"] = [("north", "south", "west")[k % 40 % 3] for k in range(120)]
    frame.to_csv(tmp_path / "features.csv", index=False)
    return tmp_path / "features.csv"


def test_one_site_is_held_out(command: Srjt, table: Path) -> None:
    code, _, err = command("train", table, *READ, "--hold-out", "site", "--out", "run")
    assert (code, "north, south, west" in err) == (2, True)
    code, _, err = command("train", table, *READ, "--hold-out", "site=wst", "--out", "run")
    assert (code, "did you mean 'west'" in err) == (2, True)
    how = ("--method", "standard", "--epochs", 1, "--out", "run")
    both = ["--hold-out", "site=west", "--fold", 0]
    command.fails("conflict hold_out", "", "train", table, *READ, *both, *how)
    assert command("train", table, *READ, "--hold-out", "site=west", *how)[0] == 0
    learnt = pd.read_csv("run/history.csv", dtype=str)["id"].astype(int)
    assert "west" not in set(pd.read_csv(table)["site"][learnt])
    assert "add --splits run to use its test side" in command.refuses(
        "evaluate", "run", table, *READ
    )
    out = command.prints("evaluate", "run", table, *READ, "--hold-out", "site=west", "--by", "site")
    assert "39 rows of features of 13 patients" in out
    assert "site west" in out


@pytest.mark.slow
def test_a_study_names_the_site_of_each_fold(command: Srjt, table: Path) -> None:
    how = (
        "--methods",
        "standard sord",
        "--epochs",
        1,
        "--device",
        "cpu",
        "--jobs",
        1,
        "--out",
        "study",
    )
    assert command("study", table, *READ, "--hold-out", "site", *how)[0] == 0
    results = collect_results(Path("study"))
    assert results.facts["held_out"] == ["north", "south", "west"]
    page = study_page(results)
    part = next(section for section in page.sections if section.slug == "held-out")
    shown = part.tables[0]
    mae = results.scores.query("split == 'test' and metric == 'mae'").set_index(["method", "fold"])[
        "value"
    ]
    assert part.heading == "Each site held out"
    assert [column.label for column in shown.columns] == [
        "noise",
        "method",
        "north",
        "south",
        "west",
    ]
    assert [cell.text for cell in shown.rows[1].cells] == [
        "Labels as given",
        "Sord",
        *(f"{mae['sord', k]:.3f}" for k in range(3)),
    ]
    assert command("study", "export", "study", "--scores", "--out", "scores.csv")[0] == 0
    scores = pd.read_csv("scores.csv")
    assert scores.groupby("fold")["held_out"].unique().map(list).tolist() == [
        ["north"],
        ["south"],
        ["west"],
    ]
