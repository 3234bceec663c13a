"""``--optimise``, ``--decode`` and ``--keep best``: every command names the rule that it uses."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from cli.conftest import TRAIN, Srjt

MAE = "the median, for the least absolute error"
FEW = "(thresholds need kept predictions for at least 50 validation samples)"


def plain(text: str) -> str:
    """In one line, whatever the width of the terminal."""
    return " ".join(text.split())


def test_train_names_the_rule_and_the_kept_epoch(command: Srjt, labelled: Path) -> None:
    more = ("--method", "standard", "--optimise", "accuracy", "--keep", "best")
    code, out, err = command("train", labelled, "--out", "run", *TRAIN, *more)
    assert code == 0, err
    said, summary = plain(out), json.loads(Path("run/summary.json").read_text())
    assert (
        f"Epoch {summary['kept_epoch']} of 2 is kept: the accuracy on the validation side was best there"
        in said
    )
    assert "A predicted grade is the most likely grade, for accuracy." in said
    _, out, _ = command("evaluate", "run", labelled, "--side", "test")
    assert "A predicted grade is the most likely grade, for accuracy." in plain(out)


def test_predict_decodes_a_finished_run_anew(command: Srjt, finished: Path, labelled: Path) -> None:
    tables = {}
    for option, value, rule in (
        ("--optimise", "mae", MAE),
        ("--optimise", "accuracy", "the most likely grade, for accuracy"),
        ("--optimise", "macro_f1", f"the most likely grade, for macro-F1 {FEW}"),
        ("--decode", "median", "the median"),
        ("--decode", "argmax", "the most likely grade"),
    ):
        code, out, err = command("predict", finished, labelled, option, value, "--out", f"{value}.csv")
        assert code == 0, err
        assert f"\nA grade is {rule}.\n" in out
        tables[value] = pd.read_csv(f"{value}.csv", dtype={"grade": str})
    assert tables["accuracy"].equals(tables["argmax"])
    p = tables["argmax"].filter(regex="^p_").to_numpy()
    assert tables["argmax"]["grade"].astype(int).tolist() == p.argmax(axis=1).tolist()


def test_evaluate_names_the_rule(command: Srjt, finished: Path, labelled: Path) -> None:
    code, out, err = command("evaluate", finished, labelled, "--side", "test", "--out", "found.json")
    assert code == 0, err
    assert f"A predicted grade is {MAE}." in plain(out)
    assert json.loads(Path("found.json").read_text())["grade_rule"] == MAE


@pytest.mark.slow
def test_export_names_the_rule(command: Srjt, finished: Path) -> None:
    code, out, err = command("export", finished, "--out", "model.pt2", "--optimise", "accuracy")
    assert code == 0, err
    assert "A grade is the most likely grade, for accuracy." in plain(out)


def test_mistakes_are_one_sentence(command: Srjt, finished: Path, labelled: Path) -> None:
    for verb, *rest in (("predict", finished, labelled), ("export", finished)):
        code, _, err = command(verb, *rest, "--optimise", "kappa")
        assert code == 2
        assert "Unknown --optimise 'kappa'" in plain(err)
    unsplit = [word for word in TRAIN if word != "--official-split"]
    code, _, err = command(
        "train", labelled, "--out", "run", *unsplit, "--no-official-split", "--keep", "best"
    )
    assert code == 2
    assert "keep 'best' chooses the epoch by the validation side, and this run has none" in plain(err)
    assert not Path("run").exists()
