"""``srjt compare`` as a person runs it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

Srjt = Callable[..., tuple[int, str, str]]


@pytest.fixture
def other(finished: Path, tmp_path: Path) -> Path:
    """The same run with other predictions: those of the test side are turned around."""
    folder = tmp_path / "other"
    shutil.copytree(finished, folder)
    table = pd.read_csv(folder / "held_out.csv")
    columns = [f"p{k}_{c}" for k in (1, 2) for c in range(4)]
    turned = [f"p{k}_{c}" for k in (1, 2) for c in reversed(range(4))]
    table[columns] = table[turned].to_numpy()
    table.to_csv(folder / "held_out.csv", index=False, float_format="%.9g")
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "files": {}}))  # or it would be noticed
    return folder


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("suffix", ["html", "svg", "png", "json"])
def test_two_runs(command: Srjt, finished: Path, other: Path, suffix: str) -> None:
    code, out, err = command("compare", finished, other, "--out", f"c.{suffix}")
    assert (code, err) == (0, "")
    assert all(len(line) <= 80 for line in out.splitlines())
    flat = " ".join(out.split())
    assert "The intervals contain the variation between patients, not between trainings" in flat
    heading = next(line for line in out.splitlines() if "difference" in line)
    assert heading.replace("┃", " ").split()[:3] == ["metric", finished.name, other.name]
    assert "They are not corrected for the number of metrics." in flat
    content = Path(f"c.{suffix}").read_bytes()
    if suffix == "json":
        found = json.loads(content)
        table = pd.read_csv(finished / "held_out.csv")
        assert found["samples"] == (table["side"] == "test").sum()
        assert found["runs"] == ["run", "other"]
    if suffix == "html":
        assert b"not between trainings" in content
        assert b"<svg" in content
    code, _, err = command("compare", finished, other, "--out", f"c.{suffix}")
    assert code == 2
    assert "--force" in err


def test_on_other_images(command: Srjt, finished: Path, other: Path, labelled: Path) -> None:
    code, out, err = command("compare", finished, other, "--test", labelled)
    assert (code, err) == (0, "")
    flat = " ".join(out.split())
    assert "120 test samples of 20 patients, judged by their true grades." in flat
    learnt = (pd.read_csv(labelled)["split"] == "train").sum()
    assert f"run was trained on {learnt} of the samples, or on others with their ids" in flat
    assert "+0.000 to +0.000" in out  # the weights are the same


def test_three_runs_of_one_name(command: Srjt, finished: Path, other: Path, tmp_path: Path) -> None:
    third = tmp_path / "elsewhere" / "other"
    shutil.copytree(other, third)
    code, out, _ = command("compare", finished, other, third)
    assert code == 0
    assert "p, Holm" in out
    assert str(third.name) in out


@pytest.mark.parametrize("missing", ["row", "grade"])
def test_different_tests_are_refused(command: Srjt, finished: Path, other: Path, missing: str) -> None:
    table = pd.read_csv(other / "held_out.csv")
    first = table.index[table["side"] == "test"][0]
    name = table.loc[first, "id"]
    if missing == "row":
        table = table.drop(index=first)
    else:
        table.loc[first, "true_grade"] = (table.loc[first, "true_grade"] + 1) % 4
    table.to_csv(other / "held_out.csv", index=False)
    code, out, err = command("compare", finished, other)
    assert (code, out) == (2, "")
    assert "other was tested on other images or grades than run: 1 " in err
    assert name in err


def test_bad_input(command: Srjt, finished: Path, other: Path) -> None:
    for arguments, sentence in (
        ((finished,), "at least two runs"),
        ((finished, "nothing"), "is not the folder of a run"),
        ((finished, other, "--out", "c.pdf"), "must end in .html, .svg, .png or .json"),
        ((finished, other, "--test", "nothing.csv"), "does not exist"),
        ((finished, other, "--images", "."), "--images is about the images of --test, which is not given"),
    ):
        code, _, err = command("compare", *arguments)
        assert code == 2
        assert sentence in err
    (other / "held_out.csv").unlink()
    code, _, err = command("compare", finished, other)
    assert code == 2
    assert "other keeps no predictions for a test side: give labelled images with --test" in err
