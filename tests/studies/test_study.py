"""``srjt.study``: a comparison from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import srjt
from srjt.errors import SrjtError
from srjt.studies.grid import PlannedRun
from srjt.studies.study import choose_executor, resolve_config

SMALL: dict[str, Any] = {
    "reading": {"images": 60, "patients": 12, "size": 32},
    "noise": "quasi:0.4",
    "folds": 3,
    "only_folds": 0,
    "network": "tiny",
    "pretrained": False,
    "image_size": 32,
    "crop": 28,
    "epochs": 1,
    "batch_size": 16,
    "tune_cpu": False,
    "device": "cpu",
    "jobs": 2,
}


class Recorder:
    def __init__(self) -> None:
        self.events: list[str] = []

    def begin(self, planned_runs: Sequence[PlannedRun], *, done: int) -> None:
        self.events.append(f"{done} of {len(planned_runs)} done")

    def note(self, text: str) -> None: ...
    def started(self, planned: PlannedRun) -> None: ...
    def updated(self, running: Sequence[PlannedRun]) -> None: ...

    def ended(self, planned: PlannedRun, status: str) -> None:
        self.events.append(f"{planned.method.name} {status}")


def test_a_study_returns_its_results_and_repeats_nothing(tmp_path: Path) -> None:
    methods = ["standard", "co-teaching+ours"]
    first, again = Recorder(), Recorder()
    results = srjt.study("synthetic", methods=methods, out=tmp_path / "study", watcher=first, **SMALL)
    assert first.events[0] == "0 of 2 done"
    assert sorted(first.events[1:]) == ["co-teaching+ours done", "standard done"]
    assert results.runs["status"].tolist() == ["done", "done"]
    test = results.scores[(results.scores["split"] == "test") & (results.scores["metric"] == "mae")]
    assert sorted(test["method"]) == sorted(methods)
    assert test["value"].between(0, 3).all()
    assert results.facts["command"].startswith(
        "srjt.study(source='synthetic', methods=['standard', 'co-teaching+ours']"
    )
    srjt.study("synthetic", methods=methods, out=tmp_path / "study", watcher=again, **SMALL)
    assert again.events == ["2 of 2 done"]
    page, *_ = srjt.report(tmp_path / "study")
    assert page == tmp_path / "study" / "report.html"


def test_a_failed_run_is_a_warning_and_its_error_is_in_the_results(tmp_path: Path) -> None:
    singular = [[0.25] * 4] * 4
    wrong = {**SMALL, "noise": "none", "transition": singular}
    with pytest.warns(UserWarning, match="1 of 1 runs failed"):
        results = srjt.study("synthetic", methods="garg", out=tmp_path / "study", **wrong)
    assert "singular" in results.runs["error"].item()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": None}, "A study needs data"),
        ({"source": object()}, "takes a path or 'synthetic'"),
        ({"methods": "standart"}, "did you mean 'standard'"),
        ({"epoch": 3}, "Unknown setting 'epoch'"),
        ({"seed": 3}, "seed is set by the study"),
        ({"jobs": 0}, "jobs must be between 1 and 1,000"),
        ({"jobs": 10**15}, "jobs must be between 1 and 1,000"),
        ({"executor": "rya"}, "Unknown executor 'rya'"),
        ({"executor": "ray"}, "jobs is an option of the executor 'local', not of 'ray'"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    arguments = {"source": "synthetic", "methods": "standard", **SMALL, **wrong}
    with pytest.raises(SrjtError, match=message):
        srjt.study(out=tmp_path / "study", **arguments)


def test_arguments_override_the_file_which_overrides_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("methods: [sord]\nfolds: 4\ntrain: {epochs: 7}\n")
    config = resolve_config({"folds": 3, "methods": None}, train={"crop": 60}, preset="demo", file=file)
    assert (config.methods, config.folds, config.source) == (("sord",), 3, "synthetic")
    assert (config.train["epochs"], config.train["crop"], config.train["network"]) == (7, 60, "tiny")
    other = resolve_config({"source": "labels.csv"}, train={}, preset="demo")
    assert other.reading == {}  # the preset's were for the synthetic dataset


def test_an_option_of_the_other_executor_is_an_error() -> None:
    with pytest.raises(SrjtError, match="gpus_per_run is an option of the executor 'ray'"):
        choose_executor("local", gpus_per_run=0.5)
