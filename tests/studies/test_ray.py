"""A real Ray cluster of two nodes on this machine; one of them is killed in the middle of a
study."""

import contextlib
import importlib.util
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from processes import Limit
from refusals import refuses
from srjt.errors import Interrupted
from srjt.files import lock_folder
from srjt.studies import ray as ray_driver
from srjt.studies.config import StudyConfig
from srjt.studies.folder import error_file, run_folder, run_planned, write_plan
from srjt.studies.plan import PlannedRun, open_data
from srjt.studies.ray import RunTask, run_on_ray, train_on_node
from srjt.studies.results import StudyResults, collect_results
from srjt.studies.study import train_runs
from srjt.training.checkpoint import read_metrics

from .conftest import Witness, small

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(  # importing it takes a second in every run of the quick tests
        importlib.util.find_spec("ray") is None,
        reason='Ray is not installed: pip install ".[ray]"',
    ),
]

EPOCHS = 6
# A module for the nodes, which counts how often they estimate the noise.
COUNT = """
from srjt.training import noise_rate as resolve_noise

estimate = resolve_noise.estimate_noise

def estimate_and_count(*arguments, **options):
    with open({file!r}, "a") as file:
        file.write("once\\n")
    return estimate(*arguments, **options)

resolve_noise.estimate_noise = estimate_and_count
"""
# Ray replaces 127.0.0.1 by the machine's outer address when it connects; other loopback addresses
# it takes as they are
HERE = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
LOOPBACK = {"node_ip_address": HERE, "object_store_memory": 80 * 2**20, "num_cpus": 1}


def study(**changes: Any) -> StudyConfig:
    """Four runs of a second each: with two at a time, two wait. Their module is imported on the
    nodes only."""
    train = {"epochs": EPOCHS, "checkpoint_seconds": 0.0, "imports": ("pause",)}
    usual = {
        "methods": ("standard", "co-teaching"),
        "noises": ("quasi:0.2",),
        "only_folds": (0, 1),
        "folds": 5,
    }
    reading = {"images": 120, "patients": 30, "size": 32}
    return small(**{**usual, "reading": reading, "train": train, **changes})


def write_study(folder: Path, config: StudyConfig) -> list[PlannedRun]:
    return write_plan(folder, open_data(config), command="srjt study")


class Watcher(Witness):
    """Records everything; ``act`` is called until it returns true."""

    def __init__(self, act: Callable[[Sequence[PlannedRun]], bool] = lambda running: True) -> None:
        super().__init__()
        self.act, self.acted = act, False

    def updated(self, running: Sequence[PlannedRun]) -> None:
        if not self.acted:
            self.acted = self.act(running)


def on_ray(
    folder: Path, planned_runs: Sequence[PlannedRun], *, watcher: Watcher, **options: Any
) -> dict[str, str]:
    return train_runs(folder, planned_runs, partial(run_on_ray, **options), watcher=watcher)


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Every run on a node pauses after its second epoch until the limit is lifted."""
    limit = Limit(tmp_path / "limit", epoch=2)
    (tmp_path / "pause.py").write_text(limit.code)
    monkeypatch.chdir(tmp_path)  # the nodes look for the module where the study was started
    return limit


@pytest.fixture(scope="module")
def first_scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for temporary files on the cluster's first node: each machine has its own."""
    return tmp_path_factory.mktemp("first")


@pytest.fixture(scope="module")
def cluster(first_scratch: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ray.cluster_utils import Cluster

        logging.getLogger("ray").setLevel(logging.ERROR)
        health = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
        head = {**LOOPBACK, "include_dashboard": False, "_system_config": health}
        head["env_vars"] = {"TMPDIR": str(first_scratch)}
        cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> StudyResults:
    """The same runs in this process, with one thread as a task has."""
    folder = tmp_path_factory.mktemp("local") / "study"
    data, before = open_data(study()), torch.get_num_threads()
    torch.set_num_threads(1)
    for planned in write_plan(folder, data, command="srjt study"):
        run_planned(folder, data, planned, device="cpu")
    torch.set_num_threads(before)
    return collect_results(folder)


@pytest.mark.parametrize("shared", [True, False])
def test_a_killed_node(
    cluster: Any, local: StudyResults, tmp_path: Path, limit: Limit, shared: bool
) -> None:
    folder = tmp_path / "study"
    planned_runs = write_study(folder, study())
    scratch = tmp_path / "second"
    scratch.mkdir()
    doomed = cluster.add_node(**LOOPBACK, env_vars={"TMPDIR": str(scratch)})

    def kill_in_the_middle(running: Sequence[PlannedRun]) -> bool:
        if len(running) < 2:  # one CPU each: two at a time means that both nodes work
            return False
        folders = [folder] if shared else list(scratch.glob("srjt-*"))
        if not any(_epochs(there, planned) >= 2 for there in folders for planned in running):
            return False
        cluster.remove_node(doomed, allow_graceful=False)
        limit.lift()
        return True

    watcher = Watcher(kill_in_the_middle)
    outcome = on_ray(folder, planned_runs, address=cluster.address, watcher=watcher, shared=shared)

    assert watcher.acted
    assert outcome == {planned.key: "done" for planned in planned_runs}
    assert sorted(watcher.begun) == sorted(outcome)  # each began once and ended once
    assert sorted(watcher.over) == sorted(outcome.items())
    found = collect_results(folder)
    assert list(found.runs["status"]) == ["done"] * len(planned_runs)
    rows = found.metrics[["key", "epoch", "split", "network", "metric"]]
    assert not rows.duplicated().any()
    assert set(found.metrics.groupby("key")["epoch"].nunique()) == {EPOCHS}
    pd.testing.assert_frame_equal(found.scores, local.scores)
    assert bool(list(scratch.glob("srjt-*/runs/*"))) is not shared  # what the dead node has left


def _epochs(folder: Path, planned: PlannedRun) -> int:
    path = run_folder(folder, planned.key) / "metrics.csv"
    return (
        int(read_metrics(path)["epoch"].max()) if path.exists() and path.stat().st_size > 100 else 0
    )


@pytest.mark.parametrize("shared", [True, False])
def test_methods_use_an_estimate_that_is_made_once(
    cluster: Any, first_scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "made"
    (tmp_path / "pause.py").write_text(COUNT.format(file=str(made)))
    folder = tmp_path / "study"
    asked = study(
        methods=("standard", "co-teaching", "f-correction"), only_folds=(0,), noise_rate="auto"
    )
    planned_runs = write_study(folder, asked)
    watcher = Watcher()
    outcome = on_ray(folder, planned_runs, address=cluster.address, watcher=watcher, shared=shared)
    assert outcome == {planned.key: "done" for planned in planned_runs}
    assert watcher.begun == [planned_runs[k].key for k in (1, 0, 2)]  # the longest first
    assert made.read_text() == "once\n"
    estimates = {
        planned.method.name: (run_folder(folder, planned.key) / "noise.json").read_bytes()
        for planned in planned_runs
        if planned.method.name != "standard"
    }
    assert len(set(estimates.values())) == 1
    assert not (run_folder(folder, planned_runs[0].key) / "noise.json").exists()
    (kept,) = (folder / "estimates").glob("*/noise.json")
    assert {kept.read_bytes()} == set(estimates.values())
    assert not list(first_scratch.glob("srjt-*/runs/**/weights*"))
    assert collect_results(folder).noise["estimated_rate"].notna().all()


def test_a_failing_run_is_reported_and_the_others_go_on(
    cluster: Any, tmp_path: Path, limit: Limit
) -> None:
    """One run raises an exception on its node; the process of another is killed, and must not be
    tried again."""
    folder = tmp_path / "study"
    planned_runs = write_study(
        folder, study(methods=("mixup", "co-teaching", "standard"), only_folds=(0,))
    )
    raising, killed, fine = (planned.key for planned in planned_runs)
    facts = json.loads((folder / "study.json").read_text())
    facts["cells"][0]["fold"] = 1  # the node finds other samples than its key was made from
    del facts["sha256"]  # else: not what srjt has written
    (folder / "study.json").write_text(json.dumps(facts))

    def kill_its_process(running: Sequence[PlannedRun]) -> bool:
        if [planned.key for planned in running] != [killed] or not (worker := _worker(cluster)):
            return False
        os.kill(worker, signal.SIGKILL)
        limit.lift()
        return True

    watcher = Watcher(kill_its_process)
    outcome = on_ray(
        folder, planned_runs, address=cluster.address, watcher=watcher, shared=False, retries=0
    )
    assert outcome == {raising: "failed", killed: "failed", fine: "done"}
    assert "The data or the plan have changed" in error_file(folder, raising).read_text()
    gave_up = "Ray gave up on this run: run the same command again.\n"
    assert error_file(folder, killed).read_text().endswith(gave_up)
    assert not error_file(folder, fine).exists()
    assert list(collect_results(folder).runs["status"]) == ["failed", "failed", "done"]


def test_a_run_that_a_killed_study_works_on_has_its_turn(
    cluster: Any, tmp_path: Path, limit: Limit
) -> None:
    limit.lift()
    folder = tmp_path / "study"
    (planned,) = planned_runs = write_study(folder, study(methods=("standard",), only_folds=(0,)))
    run_folder(folder, planned.key).mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock_folder(run_folder(folder, planned.key)))
        watcher = Watcher(lambda running: bool(_worker(cluster)) and stack.close() is None)
        outcome = on_ray(folder, planned_runs, address=cluster.address, watcher=watcher)
    assert outcome == {planned.key: "done"}


def test_every_run_has_the_gpu_that_ray_gave_it(
    cluster: Any, local: StudyResults, tmp_path: Path, limit: Limit, monkeypatch: Any
) -> None:
    """Ray assigns GPUs that do not exist; the runs are trained on the CPU."""
    limit.lift()
    folder, log = tmp_path / "study", tmp_path / "log"
    planned_runs = write_study(folder, study(methods=("jocor", "standard"), only_folds=(0, 1)))
    failing, *others = (planned.key for planned in planned_runs)

    def pretend(task: RunTask) -> tuple[str, dict[str, bytes]]:
        key = task.key
        with log.open("a") as file:
            file.write(f"{key} {os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}\n")
        changes: dict[str, Any] = {"study": {}} if key == failing else {}  # an AttributeError
        return train_on_node(replace(task, gpu=False, threads=1, **changes))

    monkeypatch.setattr(ray_driver, "train_on_node", pretend)
    node = cluster.add_node(**{**LOOPBACK, "num_cpus": 3, "num_gpus": 2})
    options = {"address": cluster.address, "gpus_per_run": 1.0, "shared": False}
    outcome = on_ray(folder, planned_runs, watcher=Watcher(), **options)
    cluster.remove_node(node)

    assert outcome == {failing: "failed", **dict.fromkeys(others, "done")}
    assert "AttributeError" in error_file(folder, failing).read_text()
    executed = pd.read_csv(log, sep=" ", names=["key", "process", "gpu"], dtype=str)
    assert sorted(executed["key"]) == sorted(outcome)
    assert executed["process"].is_unique  # CUDA would stay on the first GPU of a process
    assert set(executed["gpu"]) == {"0", "1"}
    found = collect_results(folder).scores
    both = sorted(set(found["key"]) & set(local.scores["key"]))
    pd.testing.assert_frame_equal(
        *(s[s["key"].isin(both)].reset_index(drop=True) for s in (found, local.scores))
    )


def test_stopped_it_saves_its_runs_and_resumes_them_later(
    cluster: Any, local: StudyResults, tmp_path: Path, limit: Limit, monkeypatch: Any
) -> None:
    """First the command is asked to stop; when it goes on, the node asks the run to leave, as one
    drained does."""
    folder = tmp_path / "study"
    planned_runs = write_study(folder, study(methods=("co-teaching",), only_folds=(0, 1)))

    def in_epoch(epoch: int, act: Callable[[], None]) -> Watcher:
        def look(running: Sequence[PlannedRun]) -> bool:
            paused = len(running) == 1 and _epochs(folder, running[0]) == epoch
            if paused:
                act()
            return paused

        return Watcher(look)

    def drain() -> None:
        os.kill(_worker(cluster), signal.SIGTERM)
        limit.lift()

    monkeypatch.setattr(
        ray_driver, "STOP_SECONDS", 600.0
    )  # a busy machine may need longer than usual
    interrupted = in_epoch(2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted, match="0 of 2 runs done"):
        on_ray(folder, planned_runs, address=cluster.address, watcher=interrupted)
    assert set(collect_results(folder).runs["status"]) == {"left"}
    assert sorted(interrupted.over) == [
        (key, "left") for key in sorted(interrupted.begun)
    ]  # not killed
    assert list(folder.glob("runs/*/checkpoints/step-*"))

    limit.raise_to(4)
    drained = in_epoch(4, drain)
    outcome = on_ray(folder, planned_runs, address=cluster.address, watcher=drained)
    assert set(outcome.values()) == {"done"}
    assert drained.acted
    found = collect_results(folder).scores
    expected = local.scores[local.scores["key"].isin(outcome)].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected)


def _worker(cluster: Any) -> int:
    """The process that executes a run on the cluster's first node, a child of its raylet; 0: there
    is none."""
    raylet = cluster.head_node.all_processes["raylet"][0].process.pid
    listed = subprocess.check_output(["ps", "--ppid", str(raylet), "-o", "pid=,args="], text=True)
    return next(
        (int(line.split()[0]) for line in listed.splitlines() if "ray::train_on_node" in line), 0
    )


def test_stopped_while_ray_starts_it_ends_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    ended: list[bool] = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", lambda **options: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    planned_runs = write_study(tmp_path / "study", study())
    with pytest.raises(Interrupted, match="0 of 4 runs done"):
        on_ray(tmp_path / "study", planned_runs, watcher=Watcher())
    assert ended == [True]


def test_bad_addresses_are_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    planned_runs = write_study(folder, study())
    with refuses("unreachable", "address", says="`address='auto'`"):
        on_ray(folder, planned_runs, address="ray://127.0.0.1:10001", watcher=Watcher())
    with socket.socket() as nobody:  # bound, but not listening
        nobody.bind((HERE, 0))
        with refuses("unreachable", "address", says="ray start --head"):
            on_ray(
                folder, planned_runs, address=f"{HERE}:{nobody.getsockname()[1]}", watcher=Watcher()
            )
