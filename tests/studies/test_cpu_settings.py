"""How the runs of a study use the CPU is chosen once for the study, not by each run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srjt.errors import SrjtError
from srjt.studies.config import StudyConfig
from srjt.studies.cpu_settings import choose_cpu_settings, cpu_setting
from srjt.studies.executors.ray_task import TaskSpec, execute
from srjt.studies.folder import read_study, write_plan
from srjt.studies.open_data import open_data
from srjt.training.engine import cpu_tuning
from srjt.training.engine.cpu_tuning import CpuSetting

Small = Callable[..., StudyConfig]
ODD = CpuSetting(channels_last=True, onednn=False)
AS_JSON = {"channels_last": True, "onednn": False}


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """In this process the odd setting is the fastest; other processes would measure. Returns the trials."""
    trials: list[Any] = []

    def fastest(network: Any, example: Any, **more: Any) -> CpuSetting:
        trials.append(tuple(example.shape))
        return ODD

    monkeypatch.setattr(cpu_tuning, "fastest_setting", fastest)
    return trials


def settings_of_runs(folder: Path) -> list[Any]:
    return [json.loads(file.read_text())["cpu"] for file in sorted(folder.glob("runs/*/run.json"))]


@pytest.mark.slow
def test_all_runs_use_the_setting_of_the_study(
    small: Small, run: Callable[..., Any], tmp_path: Path, chosen: list[Any]
) -> None:
    config = small(only_folds=(0, 1), methods=("standard", "sord"), train={"tune_cpu": True})
    _, _, outcome = run(tmp_path / "study", config)
    assert set(outcome.values()) == {"done"}
    assert settings_of_runs(tmp_path / "study") == [AS_JSON] * 4
    assert chosen == [(16, 3, 28, 28)]  # one trial for four runs
    more = small(only_folds=(0, 1), methods=("standard", "sord", "mixup"), train={"tune_cpu": True})
    run(tmp_path / "study", more)
    assert settings_of_runs(tmp_path / "study") == [AS_JSON] * 6
    assert len(chosen) == 1  # a later call uses what is stored


def test_a_node_of_a_cluster_uses_the_setting_of_the_study(small: Small, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    config = small(only_folds=(0,), methods=("standard",), train={"tune_cpu": True})
    (planned,) = write_plan(folder, open_data(config), command="srjt study")
    task = TaskSpec(
        folder=str(folder),
        token="srjt-test-token",
        may_share=False,
        study=read_study(folder)["study"],
        entry=planned.facts(),
        cwd=str(tmp_path),
        cpu=ODD,
    )
    _, ended = execute(task, None)
    assert ended.status == "done", ended.error
    assert ended.files is not None
    assert json.loads(ended.files["run.json"])["cpu"] == AS_JSON


def test_each_network_gets_its_own_and_runs_without_a_choice_none(
    small: Small, tmp_path: Path, chosen: list[Any]
) -> None:
    tuned = small(
        only_folds=(0,),
        methods=(
            "standard",
            "standard:network=tiny-gn",
            "standard:tune_cpu=false",
            "standard:network=resnet17",
        ),
        train={"tune_cpu": True},
    )
    planned_runs = list(open_data(tuned).planned_runs())
    choose_cpu_settings(tmp_path, planned_runs)
    found = [cpu_setting(tmp_path, planned.config) for planned in planned_runs]
    assert found == [ODD, ODD, None, None]
    assert set(json.loads((tmp_path / "cpu.json").read_text())) == {
        "tiny, crop 28, batch 16",
        "tiny-gn, crop 28, batch 16",
    }


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": {"threads": 1}}', "[" * 100_000])
def test_a_damaged_file_is_one_sentence(small: Small, tmp_path: Path, content: str) -> None:
    (tmp_path / "cpu.json").write_text(content)
    planned = next(open_data(small(train={"tune_cpu": True})).planned_runs())
    with pytest.raises(SrjtError, match=r"cpu\.json is damaged or not from srjt .* delete it"):
        cpu_setting(tmp_path, planned.config)
