"""How far a study is, and how long the rest will take."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from srjt.studies.results import RUN_COLUMNS, StudyResults
from srjt.studies.status import remaining_seconds, status_lines


def results(*runs: tuple[str, str, float]) -> StudyResults:
    """From (method, status, seconds)."""
    rows = [
        {
            "key": f"{method}_{number}", "method": method, "variant": "", "noise": "none", "fold": number, "seed": 0,
            "status": status, "seconds": seconds, "error": "Traceback …\nOSError: [Errno 28] [/red] full\n\n",
        }
        for number, (method, status, seconds) in enumerate(runs)
    ]  # fmt: skip
    empty = pd.DataFrame()
    return StudyResults(
        folder=Path(), facts={}, metrics=empty, scores=empty, confusions={}, noise=empty,
        runs=pd.DataFrame(rows, columns=[*RUN_COLUMNS, "status", "seconds", "error"]),
    )  # fmt: skip


NAN = float("nan")


def test_what_is_left_takes_as_long_as_done_runs_with_as_many_networks() -> None:
    found = results(
        ("standard", "done", 10.0), ("garg", "done", 12.0), ("sord", "done", 50.0), ("jocor", "done", 30.0),
        ("standard", "left", NAN), ("codis", "running", 5.0), ("jocor+ours", "failed", 2.0), ("mixup", "left", NAN),
    )  # fmt: skip
    assert remaining_seconds(found) == pytest.approx(12 + 30 + 30 + 12)


def test_two_networks_are_thought_to_take_twice_as_long_as_one() -> None:
    assert remaining_seconds(results(("standard", "done", 10.0), ("jocor", "left", NAN))) == pytest.approx(20)
    assert remaining_seconds(results(("jocor", "done", 10.0), ("standard", "left", NAN))) == pytest.approx(5)


def test_before_anything_is_done_nothing_is_promised() -> None:
    found = results(("standard", "running", 3.0), ("jocor", "left", NAN))
    assert remaining_seconds(found) is None
    assert list(status_lines(found)) == [
        "2 runs: 0 done, 1 running, 0 failed, 1 left.",
        "No run has finished yet: the remaining time is unknown.",
    ]


def test_counts_estimate_and_failures() -> None:
    found = results(
        ("standard", "done", 3600.0), ("garg", "running", 1.0), ("sord", "running", 1.0), ("mixup", "left", NAN),
        ("cdr", "failed", NAN),
    )  # fmt: skip
    lines = list(status_lines(found))
    assert lines[0] == "5 runs: 1 done, 2 running, 1 failed, 1 left."
    assert lines[1].startswith("About 4.0 h of training remain (2.0 h with 2 runs at a time)")
    assert lines[2:] == ["failed: cdr_4: OSError: [Errno 28] [/red] full"]


def test_a_finished_study_has_nothing_left() -> None:
    assert list(status_lines(results(("standard", "done", 5.0)))) == [
        "1 run: 1 done, 0 running, 0 failed, 0 left."
    ]
    assert remaining_seconds(results(("standard", "done", 5.0))) == 0
