"""The bar over DICOM headers, which the reading of data shows, obeys the ``progress`` of the caller."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import srjt
from fixtures.held_out_runs import GRADES, drawn_side, made_run
from srjt.training.record.reporters import SilentReporter


class ReadError(Exception):
    """The data would have been read."""


CALLS: dict[str, Callable[..., Any]] = {
    "train": lambda path, **how: srjt.train(path, **how),
    "evaluate": lambda path, **how: srjt.evaluate(made_run(held_out={"validation": drawn_side(40)}), path, **how),
    "study": lambda path, **how: srjt.study(path, methods=["standard"], out=path.parent / "study", **how),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "how", "shown"),
    [
        *((name, {}, True) for name in CALLS),
        *((name, {"progress": False}, False) for name in CALLS),
        ("train", {"reporter": SilentReporter()}, False),
        ("evaluate", {"progress": lambda done, total: None}, False),
    ],
)
def test_the_bar_over_headers_obeys_the_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, how: dict[str, Any], shown: bool
) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("image,grade\n" + "".join(f"{grade}.dcm,{grade}\n" for grade in GRADES))
    seen = []

    def read_headers(reading: object, *, progress: object) -> None:
        seen.append(progress)
        raise ReadError

    monkeypatch.setattr("srjt.data.sources.with_patients_of_headers", read_headers)
    with pytest.raises(ReadError):
        CALLS[name](table, **how)
    assert seen == [shown]
