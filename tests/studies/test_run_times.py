"""The time of a study before it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from srjt.studies import run_times
from srjt.studies.config import StudyConfig
from srjt.studies.open_data import open_data
from srjt.studies.run_times import longest_first, measure_times, time_on
from srjt.training.cost import Cost


def test_each_method_counts_with_its_runs_and_its_own_steps(
    small: Callable[..., StudyConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = open_data(small(methods=("standard", "garg", "co-teaching+ours", "jocor"), noises=("quasi:0.4",)))
    planned_runs = list(data.planned_runs())
    timed: list[str] = []

    def cost(manifest: Any, config: Any, *, training: int, evaluated: int, device: torch.device) -> Cost:
        timed.append(config.method)
        assert training + evaluated == 120
        return Cost(
            seconds=2.0 * len(timed), steps=9, evaluation_seconds=1.0, network_bytes=0, activation_bytes=None,
            image_bytes=0,
        )  # fmt: skip

    monkeypatch.setattr(run_times, "training_cost", cost)
    on_cpu = measure_times(data, planned_runs, device=torch.device("cpu"))
    assert timed == ["standard", "co-teaching+ours"]  # one with one network, one with two
    assert [(row.name, row.networks, row.runs, row.seconds) for row in on_cpu] == [
        ("standard", 1, 3, 3.0),
        ("garg", 1, 3, 3.0),
        ("co-teaching+ours", 2, 3, 5.0),
        ("jocor", 2, 3, 5.0),
    ]
    timed.clear()
    on_gpu = measure_times(data, planned_runs, device=torch.device("cuda"))
    assert [row.name for row in on_gpu] == timed
    started = [(run.method.name, run.fold) for run in longest_first(planned_runs)]
    assert started[:4] == [("co-teaching+ours", 0), ("jocor", 0), ("co-teaching+ours", 1), ("jocor", 1)]
    assert started[6:8] == [("standard", 0), ("garg", 0)]


def test_a_free_device_takes_the_next_run() -> None:
    assert time_on(1, [1.0, 2.0, 3.0]) == 6.0
    assert time_on(2, [3.0, 1.0, 1.0, 1.0, 2.0]) == 5.0
    assert time_on(8, [4.0, 1.0]) == 4.0


def test_real_steps_are_timed(small: Callable[..., StudyConfig]) -> None:
    data = open_data(small(methods=("standard", "mixup", "co-teaching+ours"), only_folds=(0,)))
    times = measure_times(data, list(data.planned_runs()), device=torch.device("cpu"))
    assert [row.runs for row in times] == [1, 1, 1]
    assert all(row.training > 0 and row.evaluation > 0 for row in times)
