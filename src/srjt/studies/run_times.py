"""How long the runs of a study will take: a few steps of each method, times the runs; and which are started first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from srjt.methods import lookup
from srjt.studies.grid import PlannedRun, StudyData
from srjt.training.cost import training_cost

__all__ = ["MethodTime", "longest_first", "measure_times", "time_on"]


@dataclass(frozen=True, kw_only=True)
class MethodTime:
    """The time of the runs of one method."""

    name: str  # with its variant
    networks: int
    runs: int
    training: float  # seconds of one run
    evaluation: float

    @property
    def seconds(self) -> float:
        """Seconds of one run."""
        return self.training + self.evaluation


def measure_times(
    data: StudyData,
    planned_runs: Sequence[PlannedRun],
    *,
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> list[MethodTime]:
    """Time a few steps of each method on ``device``; nothing is decoded, written or downloaded.

    On a CPU, where steps take seconds, methods with as many networks and the same settings share one measurement.
    Start-up, decoding and noise estimates are not included.
    """
    by_method: dict[str, list[PlannedRun]] = {}
    for planned in planned_runs:
        spec = planned.method
        by_method.setdefault(f"{spec.name}:{spec.variant}".rstrip(":"), []).append(planned)
    times: list[MethodTime] = []
    measured: dict[object, tuple[float, float]] = {}
    for done, (name, runs) in enumerate(by_method.items()):
        if progress is not None:
            progress(done, len(by_method))
        first = runs[0]
        networks = _networks(first)
        shared = (networks, str(sorted(first.method.settings.items())))
        settings = shared if device.type == "cpu" else name
        if settings not in measured:
            split = data.splits[first.fold]
            cost = training_cost(
                data.manifest,
                first.config,
                training=len(split.train),
                evaluated=len(split.validation) + len(split.test),
                device=device,
            )
            measured[settings] = cost.seconds, cost.evaluation_seconds
        training, evaluation = measured[settings]
        times.append(
            MethodTime(name=name, networks=networks, runs=len(runs), training=training, evaluation=evaluation)
        )
    if progress is not None:
        progress(len(by_method), len(by_method))
    return times


def longest_first(planned_runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """In the order in which runs are started: a long one that starts last would leave the other devices idle."""
    return sorted(planned_runs, key=_networks, reverse=True)


def _networks(planned: PlannedRun) -> int:
    return lookup(planned.method.name, registered_by=planned.config.imports).networks


def time_on(devices: int, seconds: Sequence[float]) -> float:
    """When the last run ends if each free device takes the next run.

    Examples
    --------
    >>> from srjt.studies.run_times import time_on
    >>> time_on(2, [3.0, 1.0, 1.0, 1.0])
    3.0
    """
    busy_until = [0.0] * devices
    for run in seconds:
        heapq.heapreplace(busy_until, busy_until[0] + run)
    return max(busy_until)
