"""``srjt evaluate`` as a person runs it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

Srjt = Callable[..., tuple[int, str, str]]


@pytest.mark.usefixtures("terminal")
def test_metrics_confusion_and_calibration(command: Srjt, finished: Path, labelled: Path) -> None:
    tested = pd.read_csv(labelled)["split"] == "test"
    code, out, err = command("evaluate", finished, labelled, "--side", "test", "--out", "found.json")
    assert (code, err) == (0, "")
    assert f"{tested.sum()} images, judged by their true grades." in out
    for word in ("accuracy", "mae", "macro_f1", "qwk", "calibration error", "ranked probability", "recall"):
        assert word in out
    assert all(len(line) <= 80 for line in out.splitlines())
    found = json.loads(Path("found.json").read_text())
    assert command("predict", finished, labelled)[0] == 0
    predicted = pd.read_csv("predictions.csv")["grade"][tested]
    true = pd.read_csv(labelled)["true_grade"][tested]
    assert found["intervals"]["accuracy"]["value"] == pytest.approx((predicted == true).mean())
    assert found["intervals"]["mae"]["value"] == pytest.approx((predicted - true).abs().mean())
    for interval in found["intervals"].values():
        assert interval["low"] <= interval["value"] <= interval["high"]
    assert [sum(row) for row in found["confusion"]] == [int((true == grade).sum()) for grade in range(4)]
    assert found["by_patient"] is True
    table = pd.read_csv(labelled)
    training = table.loc[table["split"] == "train", "grade"]
    naive = {"accuracy": (true == training.mode()[0]).mean(), "mae": (true - training.median()).abs().mean()}
    for name, value in naive.items():
        assert re.search(rf"│ {name} +│ [\d.]+ │ [\d. –]+│ {value:.3f} │", out), out
    worse = found["intervals"]["mae"]["value"] >= naive["mae"]  # which the grades are for
    assert ("does not beat a naive prediction on these samples" in " ".join(out.split())) == worse


def test_views(command: Srjt, finished: Path, labelled: Path) -> None:
    tested = pd.read_csv(labelled)["split"] == "test"
    code, out, err = command(
        "evaluate", finished, labelled, "--side", "test", "--views", "10", "--out", "found.json"
    )
    assert (code, err) == (0, "")
    assert f"{tested.sum()} images, 10 views of each, judged by their true grades." in out
    found = json.loads(Path("found.json").read_text())
    assert found["views"] == 10
    assert command("predict", finished, labelled, "--views", "10")[0] == 0
    predicted = pd.read_csv("predictions.csv")["grade"][tested]
    true = pd.read_csv(labelled)["true_grade"][tested]
    assert found["intervals"]["mae"]["value"] == pytest.approx((predicted - true).abs().mean())


def test_samples_that_were_learnt_from_get_no_score_unless_asked_for(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    table = pd.read_csv(labelled)
    learnt = int((table["split"] == "train").sum())
    code, out, err = command("evaluate", finished, labelled)
    assert (code, out) == (2, "")
    assert f"{learnt} of 120 images were trained on" in err
    assert "add --side test, or give images that the run has not seen" in err
    code, out, err = command("evaluate", finished, labelled, "--side", "train")
    assert code == 0
    assert f"{learnt} images, judged by" in out
    assert f"The run was trained on {learnt} of the {learnt} samples" in err
    table[table["split"] == "test"].to_csv("test.csv", index=False)
    code, out, _ = command("evaluate", finished, "test.csv", "--images", labelled.parent)
    assert code == 0
    assert "trained on" not in out


def test_without_truth_and_patients(command: Srjt, finished: Path, labelled: Path) -> None:
    table = pd.read_csv(labelled)
    table.loc[table["split"] == "test", ["image", "grade"]].to_csv("plain.csv", index=False)
    code, out, _ = command("evaluate", finished, "plain.csv", "--images", labelled.parent)
    assert code == 0
    assert "judged by their given grades" in out
    assert "given grade ╲ predicted" in out
    assert "No patient ids: the intervals resample images" in out
    pd.read_csv("plain.csv").head(1).to_csv("one.csv", index=False)
    code, out, _ = command("evaluate", finished, "one.csv", "--images", labelled.parent, "--coverage", "0.7")
    assert (code, out.partition("\n")[0]) == (0, "1 image, judged by its given grade.")
    assert "nan" not in out
    assert re.search(r"│ accuracy +│ [01]\.000 │ – ", out)  # one image cannot be resampled
    assert re.search(r"│ coverage +│ [01]\.000 │ 0\.000 – 1\.000 ", out)


def test_grades_the_run_does_not_know(command: Srjt, finished: Path, labelled: Path) -> None:
    table = pd.read_csv(labelled)[["image", "grade"]].assign(grade="terrible")
    table.to_csv("other.csv", index=False)
    code, _, err = command("evaluate", finished, "other.csv", "--images", labelled.parent)
    assert code == 2
    assert "terrible" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--network", "one"], "Unknown network 'one'"),
        (["--decode", "mean"], "Unknown decoding 'mean'"),
        (["--views", "4"], "views is 1 (the centre crop), 2"),
    ],
)
def test_mistakes(command: Srjt, finished: Path, labelled: Path, arguments: list[str], said: str) -> None:
    code, _, err = command("evaluate", finished, labelled, *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert said in err


@pytest.mark.parametrize("verb", ["evaluate", "predict", "export", "report"])
def test_a_file_where_a_run_is_expected(command: Srjt, labelled: Path, verb: str) -> None:
    Path("old.csv").write_text("image,grade\n")
    code, _, err = command(verb, "old.csv", *([labelled] if verb in ("evaluate", "predict") else []))
    assert (code, len(err.splitlines())) == (2, 1)
    if verb != "report":  # which takes studies and audits too
        assert "old.csv is a file: give the folder of a run, which srjt train --out wrote." in err
    assert "NotADirectoryError" not in err


def test_one_side_of_a_split(command: Srjt, finished: Path, labelled: Path) -> None:
    table = pd.read_csv(labelled)
    code, out, _ = command("evaluate", finished, labelled, "--side", "test")
    assert code == 0
    assert f"{int((table['split'] == 'test').sum())} images, judged" in out
    assert "trained on" not in out
    assert command("data", "split", labelled, "--out", "folds.csv")[0] == 0
    folds = pd.read_csv("folds.csv")
    tested = int(((folds["fold"] == 1) & (folds["split"] == "test")).sum())
    for how in (["--fold", "1"], ["--splits", "folds.csv", "--fold", "1"]):
        code, _, err = command("evaluate", finished, labelled, *how)
        assert code == 2  # the run has other sides
        assert re.search(rf"\d+ of {tested} images were trained on", err)
    code, _, err = command("evaluate", finished, labelled, "--side", "tset")
    assert code == 2
    assert "test" in err


def test_ranges_of_grades(command: Srjt, finished: Path, labelled: Path) -> None:
    code, out, _ = command(
        "evaluate", finished, labelled, "--side", "validation", "--coverage", "0.7", "--label-noise", "none",
        "--out", "found.json",
    )  # fmt: skip
    assert code == 0
    assert "promised coverage │ 0.7" in out
    judged = pd.read_csv(labelled)["split"] == "validation"
    validation = int(judged.sum())
    said = " ".join(out.split())
    assert (
        f"{validation} of the samples have the ids of samples that were used to fit the ranges, and" in said
    )
    assert command("predict", finished, labelled, "--coverage", "0.7", "--label-noise", "none")[0] == 0
    predicted, true = pd.read_csv("predictions.csv")[judged], pd.read_csv(labelled)["true_grade"][judged]
    inside = (predicted["grade_low"] <= true) & (true <= predicted["grade_high"])
    shares = inside.groupby(pd.read_csv(labelled)["patient"][judged]).mean()  # patients count equally
    ranges = json.loads(Path("found.json").read_text())["ranges"]
    assert ranges["coverage"]["value"] == pytest.approx(shares.mean())
    assert [one["samples"] for one in ranges["grades"]] == [int((true == grade).sum()) for grade in range(4)]
    _, out, _ = command("evaluate", finished, labelled, "--side", "test", "--coverage", "0.7")
    assert "used to fit" not in out


def test_samples_that_were_calibrated_on_are_counted(command: Srjt, finished: Path, labelled: Path) -> None:
    table = pd.read_csv(labelled)
    test = table[table["split"] == "test"]
    owners = test["patient"].unique()
    some = test[test["patient"].isin(owners[:2])].groupby("patient").head(2)
    some.to_csv(labelled.parent / "some.csv", index=False)
    code, out, _ = command(
        "evaluate", finished, labelled, "--side", "test", "--coverage", "0.5", "--calibrate-on",
        labelled.parent / "some.csv", "--out", "found.json", "--html", "found.html",
    )  # fmt: skip
    assert code == 0
    sentence = (
        f"{len(some)} of the samples have the ids of samples that were used to fit the ranges, and 2 of the patients "
        "their patients' names: if they are the same, the scores look too good. Calibrate on samples of other patients."
    )
    assert sentence in " ".join(out.split())
    assert sentence.replace("'", "&#39;") in Path("found.html").read_text()
    assert json.loads(Path("found.json").read_text())["overlaps"] == [
        {"fitted": ["ranges"], "to": "calibrate_on", "samples": len(some), "patients": 2}
    ]
