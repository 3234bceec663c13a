"""Decisions and matrices on the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

# Decisions, answers per patient and grade names, as a person asks for them.

Srjt = Callable[..., tuple[int, str, str]]

NAMES = "0=none,1=doubtful,2=minimal,3=severe"


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def held_out(command: Srjt, labelled: Path) -> Path:
    """The test side as a table, with eyes; its images are beside ``labelled``."""
    table = pd.read_csv(labelled)
    table["eye"] = ["LR"[k % 2] for k in range(len(table))]
    path = labelled.parent / "held_out.csv"
    table[table["split"] == "test"].drop(columns="split").to_csv(path, index=False)
    return path


@pytest.mark.usefixtures("terminal")
def test_refer_at_a_sensitivity_and_abstain(command: Srjt, finished: Path, held_out: Path) -> None:
    code, out, err = command(
        "evaluate", finished, held_out, "--refer-from", "2", "--sensitivity", "0.9", "--abstain", "0.1",
        "--out", "found.json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "Its true grades are known and were used." in words(out)
    for word in (
        "Refer if p(grade ≥ 2) ≥ 0.",
        "negative predictive value",
        "area under the ROC curve",
        "Without the",
    ):
        assert word in out
    decision = json.loads(Path("found.json").read_text())["decision"]
    code, out, err = command(
        "predict", finished, held_out, "--refer-from", "2", "--sensitivity", "0.9", "--abstain", "0.1"
    )
    assert (code, err) == (0, "")
    table = pd.read_csv("predictions.csv", dtype={"patient": str})
    assert f"Refer {decision['referred']} of" in words(out)
    assert "unsure: a person decides" in words(out)
    assert (table["refer"] == "yes").sum() == decision["referred"]
    assert ((table["p_2"] + table["p_3"] >= decision["threshold"] - 1e-5) == (table["refer"] == "yes")).all()
    assert set(table["unsure"]) <= {"yes", "no"}
    assert table["patient"].tolist() == pd.read_csv(held_out)["patient"].tolist()


def test_a_key_of_two_columns_and_columns_to_keep(command: Srjt, finished: Path, held_out: Path) -> None:
    assert command("predict", finished, held_out, "--per", "patient", "--per", "eye")[0] == 0
    table = pd.read_csv("predictions.csv")
    assert list(table.columns[:4]) == ["patient", "eye", "images", "grade"]
    assert len(table) == len(pd.read_csv(held_out)[["patient", "eye"]].drop_duplicates())
    assert command("predict", finished, held_out, "--keep", "eye", "--keep", "grade", "--force")[0] == 0
    table, given = pd.read_csv("predictions.csv"), pd.read_csv(held_out)
    assert list(table.columns[:5]) == ["image", "patient", "eye", "grade_source", "grade"]
    assert table["grade_source"].tolist() == given["grade"].tolist()
    assert table["eye"].tolist() == given["eye"].tolist()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--refer-from", "7"], "Unknown grade '7'"),
        (["--sensitivity", "0.9"], "--sensitivity needs the grade from which to refer: --refer-from"),
        (
            ["--refer-from", "2", "--threshold", "high"],
            "--threshold takes a probability from 0 to 1, or 'grade'",
        ),
        (["--per", "eyes"], "'eyes': did you mean 'eye'? Known: eye, grade"),
        (["--per", "patient,eye", "--pool", "learned"], "of which this run knows no eye: leave"),
        (["--per", ""], "per needs the names of columns"),
        (["--grade-names", "0=none"], "must name every grade; there is none for 1, 2, 3"),
        (["--grade-names", f"{NAMES},4=worse"], "Unknown grade (in the grade names) '4'"),
    ],
)
def test_bad_input_is_one_sentence(
    command: Srjt, finished: Path, held_out: Path, options: list[str], sentence: str
) -> None:
    code, out, err = command("predict", finished, held_out, *options)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not Path("predictions.csv").exists()


def test_keep_and_per_exclude_each_other(command: Srjt, finished: Path, held_out: Path) -> None:
    code, _, err = command("predict", finished, held_out, "--per", "patient", "--keep", "eye")
    assert code == 2
    assert "--keep is for rows of images" in err


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_names_of_grades_are_shown_and_not_stored_in_place_of_grades(
    command: Srjt, finished: Path, held_out: Path
) -> None:
    code, out, err = command("predict", finished, held_out, "--grade-names", NAMES, "--refer-from", "minimal")
    assert (code, err) == (0, "")
    assert "grade 2 (minimal)" in " ".join(out.split())
    table = pd.read_csv("predictions.csv", dtype={"grade": str})
    expected = dict(pair.split("=") for pair in NAMES.split(","))
    assert table["grade_name"].tolist() == [expected[grade] for grade in table["grade"]]
    _, out, _ = command("evaluate", finished, held_out, "--grade-names", NAMES, "--refer-from", "2")
    assert "p(grade ≥ 2 (minimal))" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    hostile = "0=<script>alert(1)</script>,1=b,2=c,3=$x$"
    assert command("report", finished, "--grade-names", hostile, "--out", "page.html")[0] == 0
    page = Path("page.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "=HYPERLINK" in (names := "0==HYPERLINK(1),1=b,2=c,3=d")
    assert command("predict", finished, held_out, "--grade-names", names, "--force")[0] == 0
    assert not pd.read_csv("predictions.csv")["grade_name"].str.startswith("=").any()
