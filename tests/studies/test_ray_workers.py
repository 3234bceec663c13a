"""Which run the workers of a Ray cluster get, and when they are replaced, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srjt.studies import ray as ray_workers
from srjt.studies.folder import error_file
from srjt.studies.plan import SilentWatcher
from srjt.studies.ray import RayWorkers
from srjt.studies.ray_task import TaskReport


class RayError(Exception):
    actor_init_failed = False


class RayTaskError(RayError): ...


@dataclass(eq=False)
class Call:
    """A call of an actor: its reports, or the error in place of them."""

    actor: Actor
    reports: list[Any]

    def __next__(self) -> Any:
        return self.reports.pop(0)


@dataclass(eq=False)
class Actor:
    start: Any  # what its first call returns
    runs: list[Any] = field(default_factory=list)
    alive: bool = True

    @property
    def process(self) -> Any:
        return SimpleNamespace(remote=lambda: Call(self, [self.start]))

    @property
    def execute(self) -> Any:
        return SimpleNamespace(options=lambda num_returns: SimpleNamespace(remote=self._execute))

    def _execute(self, run: Any) -> Call:
        self.runs.append(run)
        return Call(self, [report("running"), run.ends.pop(0)])


class Ray:
    """As much of Ray as the workers use. ``room``: how many actors have resources at a time."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *, room: int = 1, starts: Iterator[Any] = iter(())) -> None:
        self.room, self.starts = room, starts
        self.actors: list[Actor] = []
        self.most_waiting = 0

    def create(self) -> Actor:
        self.actors.append(Actor(next(self.starts, ("node", 1))))
        return self.actors[-1]

    def kill(self, actor: Actor) -> None:
        actor.alive = False

    def wait(self, calls: list[Call], **options: Any) -> tuple[list[Call], list[Call]]:
        alive = [actor for actor in self.actors if actor.alive]
        self.most_waiting = max(self.most_waiting, len(alive) - self.room)
        ready = [call for call in calls if call.actor in alive[: self.room]]
        return ready[:1], []

    def get(self, answer: Any) -> Any:
        answer = next(answer) if isinstance(answer, Call) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer


def report(status: str, **facts: Any) -> TaskReport:
    return TaskReport(status=status, shared=True, host="node", **facts)


def planned(key: str, *ends: Any, deterministic: bool = False) -> Any:
    """A run. ends: a report, or an error, for each time that it is begun."""
    config = SimpleNamespace(deterministic=deterministic)
    return SimpleNamespace(key=key, config=config, ends=list(ends) or [report("done")])


def finish(ray: Ray, runs: list[Any], folder: Path, *, retries: int = 5) -> dict[str, str]:
    outcome: dict[str, str] = {}
    with RayWorkers(
        ray,
        create=ray.create,
        arguments=lambda run: (run,),  # type: ignore[arg-type, return-value]
        planned_runs=runs,
        token="token",
        folder=folder,
        outcome=outcome,
        watcher=SilentWatcher(),
        retries=retries,
    ) as workers:
        while workers.unfinished:
            workers.poll()
    assert not any(actor.alive for actor in ray.actors)
    return outcome


def work(ray: Ray) -> list[list[str]]:
    """The runs of each worker that had any."""
    return [[run.key for run in actor.runs] for actor in ray.actors if actor.runs]


def test_workers_execute_one_run_after_another_and_few_wait_for_resources(tmp_path: Path) -> None:
    ray = Ray(room=2)
    runs = [planned(f"{number}") for number in range(30)]
    assert finish(ray, runs, tmp_path) == {run.key: "done" for run in runs}
    assert sorted(int(key) for keys in work(ray) for key in keys) == list(range(30))
    assert len(work(ray)) == 2
    assert ray.most_waiting == ray_workers.REQUESTED


def test_deterministic_runs_have_processes_of_their_own(tmp_path: Path) -> None:
    ray = Ray()
    runs = [planned(f"{number}", deterministic=number % 2 == 1) for number in range(6)]
    assert set(finish(ray, runs, tmp_path).values()) == {"done"}
    assert work(ray) == [["0", "2", "4"], ["1", "3", "5"]]


def test_a_worker_gives_its_resources_back_after_its_lifetime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_workers, "LIFETIME", -1.0)
    ray = Ray()
    assert set(finish(ray, [planned("0"), planned("1")], tmp_path).values()) == {"done"}
    assert work(ray) == [["0"], ["1"]]


def test_a_worker_is_replaced_only_after_an_unexpected_failure(tmp_path: Path) -> None:
    ray = Ray()
    runs = [planned("0", report("failed")), planned("1", report("failed", broken=True)), planned("2")]
    assert finish(ray, runs, tmp_path) == {"0": "failed", "1": "failed", "2": "done"}
    assert work(ray) == [["0", "1"], ["2"]]


def test_a_run_whose_workers_die_is_restarted_until_its_retries_are_used(tmp_path: Path) -> None:
    def died() -> RayError:
        return RayError("the actor died")

    ray = Ray()
    runs = [planned("0", died(), report("done")), planned("1", died(), died(), report("done")), planned("2")]
    assert finish(ray, runs, tmp_path, retries=1) == {"0": "done", "1": "failed", "2": "done"}
    assert work(ray) == [["0"], ["0", "1"], ["1"], ["2"]]
    assert (
        error_file(tmp_path, "1").read_text().startswith("Ray gave up on this run (RayError: the actor died)")
    )


def test_a_worker_that_dies_while_it_starts_costs_nothing(tmp_path: Path) -> None:
    ray = Ray(starts=iter([RayError("the node died")]))
    assert finish(ray, [planned("0")], tmp_path, retries=0) == {"0": "done"}


@pytest.mark.parametrize("imports", [True, False])
def test_if_no_worker_starts_every_run_has_failed(tmp_path: Path, imports: bool) -> None:
    problem = RayError("No module named 'srjt'")
    problem.actor_init_failed = not imports
    ray = Ray(starts=iter([problem] * 1000))
    assert finish(ray, [planned("0"), planned("1")], tmp_path) == {"0": "failed", "1": "failed"}
    assert "No module named" in error_file(tmp_path, "0").read_text()
