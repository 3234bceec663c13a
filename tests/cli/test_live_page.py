"""``srjt train --log html`` as a person runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TRAIN

Srjt = Callable[..., tuple[int, str, str]]


@pytest.mark.slow
def test_a_live_page_and_a_report(command: Srjt, labelled: Path) -> None:
    """Also if the noise is estimated first, when the page is there before the run."""
    auto = ("--method", "co-teaching", "--noise-rate", "auto")
    code, out, _ = command("train", labelled, "--out", "run", *TRAIN, *auto, "--log", "html")
    assert code == 0
    assert "The training is shown in run/live.html." in out
    assert "refresh" not in Path("run/live.html").read_text().split("<style>")[0]  # finished
    assert "srjt train" in Path("run/report.html").read_text()  # the command


def test_an_unknown_tracker_is_an_error_before_anything_is_trained(command: Srjt, labelled: Path) -> None:
    code, _, err = command("train", labelled, "--out", "run", *TRAIN, "--log", "htm")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "Unknown tracker 'htm': did you mean 'html'?" in err
    assert not Path("run").exists()
