"""One damaged file in a study: its run counts as failed and is named, and everything else is
shown."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from refusals import refuses
from srjt.errors import SrjtError
from srjt.studies import folder as study_folder
from srjt.studies.config import Execution
from srjt.studies.folder import error_file, run_folder, run_status, write_plan
from srjt.studies.plan import StudyWatcher, open_data
from srjt.studies.ray import write_files
from srjt.studies.results import collect_results
from srjt.studies.study import choose_executor, run_study

from .conftest import run, small


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_types(path: Path) -> None:
    facts = json.loads(path.read_text())
    path.write_text(
        json.dumps({**facts, "epochs": {}} if "epochs" in facts else {**facts, "seed": "x"})
    )


def test_a_study_that_somebody_sent_changes_no_file_outside(copied: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("mine")
    key = collect_results(copied).runs["key"][0]
    run = run_folder(copied, key)
    summary = (run / "summary.json").read_bytes()
    for file in (
        copied / "splits.csv",
        error_file(copied, key),
        run / "run.json",
        run / "summary.json",
    ):
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)
        file.symlink_to(own)
    write_plan(
        copied, open_data(small(only_folds=(0,), train={"epochs": 12})), command="srjt study"
    )
    study_folder.write_error_report(copied, key, SrjtError("a folder's name is any bytes: \udcff"))
    assert study_folder.read_error(copied, key).startswith("a folder's name is any bytes: ")
    write_files(copied, {f"runs/{key}/run.json": b"{}", f"runs/{key}/summary.json": summary})
    assert own.read_text() == "mine"
    assert (run / "summary.json").read_bytes() == summary


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("summary.json", cut),
        ("summary.json", other_types),
        ("metrics.csv", cut),
        ("metrics.csv", Path.unlink),
        ("noise.json", cut),
    ],
)
def test_a_damaged_run_is_named_and_the_others_are_read(
    copied: Path, name: str, damage: Any
) -> None:
    key, *others = collect_results(copied).runs["key"]
    (run_folder(copied, key) / name).touch()
    damage(run_folder(copied, key) / name)
    results = collect_results(copied)
    assert results.runs["status"].tolist() == ["failed", "done", "done"]
    assert name in results.runs["error"].iloc[0]
    assert set(results.scores["key"]) == set(results.confusions) == set(others)


@pytest.mark.slow
def test_a_run_with_a_cut_summary_is_trained_again(copied: Path) -> None:
    key = collect_results(copied).runs["key"].iloc[0]
    before = (run_folder(copied, key) / "weights.safetensors").read_bytes()
    cut(run_folder(copied, key) / "summary.json")
    assert run_status(copied, key) == "failed"
    _, _, outcome = run(copied, small(only_folds=(0,), train={"epochs": 12}))
    assert set(outcome.values()) == {"done"}
    assert collect_results(copied).runs["status"].tolist() == ["done"] * 3
    assert (run_folder(copied, key) / "weights.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    "change", [{"study": "x"}, {"noise": 3}, {"folds": [{}]}, {"cells": [{"key": ".."}]}]
)
def test_a_study_with_other_types_is_one_sentence(copied: Path, change: dict[str, Any]) -> None:
    facts = json.loads((copied / "study.json").read_text())
    (copied / "study.json").write_text(json.dumps({**facts, **change}))
    with refuses("damaged_file", says=("study.json", f"({next(iter(change))}")):
        collect_results(copied)


@pytest.mark.parametrize(
    ("number", "name"), [(errno.ENOSPC, "study.json"), (errno.EROFS, "splits.csv")]
)
def test_a_disk_that_cannot_be_written(
    tmp_path: Path, monkeypatch: Any, number: int, name: str
) -> None:
    real = os.replace

    def fail(source: Any, target: Any) -> None:
        if name in Path(target).parts[-2:]:
            raise OSError(number, os.strerror(number))
        real(source, target)

    monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr(Path, "replace", fail)
    execute, data = (
        choose_executor(Execution(jobs=1, device="cpu")),
        open_data(small(only_folds=(0,))),
    )
    with refuses("unwritable_file", says=("The study", os.strerror(number))):
        run_study(
            data, tmp_path / "study", command="srjt study", execute=execute, watcher=StudyWatcher()
        )


def test_a_folder_in_which_no_lock_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def read_only(path: Any, flags: int, *more: Any, **options: Any) -> int:
        if str(path).endswith(".lock"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", read_only)
    with (
        refuses("unwritable_file", says="Read-only"),
        study_folder.lock_study(tmp_path),
    ):
        pass


@pytest.mark.parametrize("name", ["study.json", "splits.csv"])
def test_a_changed_plan_is_noticed(copied: Path, name: str) -> None:
    text = (copied / name).read_text()
    (copied / name).write_text(
        text.replace('"seed": 0', '"seed": 1') if name == "study.json" else text + "\n"
    )
    with refuses("damaged_file", says=name):
        collect_results(copied)


def test_a_run_whose_files_are_gone_is_not_done(copied: Path) -> None:
    key = collect_results(copied).runs["key"][0]
    for name in ("run.json", "held_out.csv"):
        (run_folder(copied, key) / name).unlink()
    assert run_status(copied, key) == "failed"
    results = collect_results(copied)
    assert results.runs["status"].tolist() == ["failed", "done", "done"]
    assert "held_out.csv is missing" in results.runs["error"].iloc[0]


def test_a_changed_score_of_a_run_is_noticed(copied: Path) -> None:
    key = collect_results(copied).runs["key"][0]
    file = run_folder(copied, key) / "metrics.csv"
    file.write_text(file.read_text().replace(",accuracy,0.", ",accuracy,0.9", 1))
    assert collect_results(copied).runs["status"].tolist() == ["failed", "done", "done"]
