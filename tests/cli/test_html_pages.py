"""``srjt predict --html`` and ``srjt evaluate --html`` as a person runs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

Srjt = Callable[..., tuple[int, str, str]]


def test_a_page_of_predictions(command: Srjt, finished: Path, labelled: Path) -> None:
    new = labelled.parent / "p000"
    names = "0=none,1=some,2=more,3=<b>much"
    code, out, err = command("predict", finished, new, "--html", "deep/new.html", "--grade-names", names)
    assert (code, err) == (0, "")
    assert "The page is in deep/new.html." in out
    page = Path("deep/new.html").read_text()
    assert f"{len(pd.read_csv('predictions.csv'))} images: " in page
    assert "srjt predict" in page  # the command
    assert "3 (&lt;b&gt;much)" in page
    assert "<b>much" not in page


def test_a_page_of_an_evaluation(command: Srjt, finished: Path, labelled: Path) -> None:
    code, out, err = command("evaluate", finished, labelled, "--side", "test", "--html", "found.html")
    assert (code, err) == (0, "")
    assert "The page is in found.html." in out
    page = Path("found.html").read_text()
    assert "Compared with true grades." in page
    assert "data:image/jpeg" in page  # examples
    assert "used to fit" not in page  # the test side was not learnt from


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--html", "there.html"], "there.html already exists: choose another file, or pass --force"),
        (["--html", "here"], "here is a folder: give the name of an HTML file"),
        (["--html", "same.html", "--out", "same.html"], "--html and --out are the same file"),
    ],
)
def test_mistakes(command: Srjt, finished: Path, labelled: Path, arguments: list[str], said: str) -> None:
    Path("there.html").write_text("mine")
    Path("here").mkdir()
    code, _, err = command("predict", finished, labelled, *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert said in err
    assert Path("there.html").read_text() == "mine"


def test_a_page_that_cannot_be_written_loses_no_predictions(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    code, _, err = command("predict", finished, labelled.parent / "p000", "--html", "/proc/x/new.html")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "cannot be written to /proc/x/new.html" in err
    assert len(pd.read_csv("predictions.csv")) > 0
