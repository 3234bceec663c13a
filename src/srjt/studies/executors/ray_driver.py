"""Run a study on a Ray cluster, or with Ray on this machine alone: one task per run.

Ray chooses the node, assigns the GPUs, and restarts a task if its node or process dies. A run that raises an
exception has failed: it is not repeated, and the others continue.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from srjt.errors import Interrupted, SrjtError, missing_extra
from srjt.files import lock_folder, write_atomically
from srjt.studies.cpu_settings import choose_cpu_settings, cpu_setting
from srjt.studies.executors.ray_task import (
    OPTIONAL_FILES,
    RUN_FILES,
    TaskReport,
    TaskSpec,
    execute,
    write_token,
)
from srjt.studies.executors.worker import write_error_report
from srjt.studies.folder import (
    error_file,
    explain_write_errors,
    read_study,
    run_folder,
    run_status,
    study_format,
)
from srjt.studies.grid import PlannedRun
from srjt.studies.watcher import StudyWatcher
from srjt.training.engine.stop_signal import StopRequest
from srjt.training.record.run_folder import is_finished

__all__ = ["run_on_ray"]

POLL_SECONDS = 0.5
RETRIES = 5  # of a run whose node or process died; preemptible nodes die often
SHUTDOWN_SECONDS = 60.0  # time for cancelled runs to save their state
SHARED = (
    "The nodes see the study's folder: runs write there, and resume from their checkpoints if a node dies."
)
STREAMED = "results are sent back, and a run whose node dies starts again on another."


def run_on_ray(
    folder: Path,
    planned_runs: Sequence[PlannedRun],
    *,
    watcher: StudyWatcher,
    address: str | None = None,
    gpus_per_run: float | None = None,
    cpus_per_run: float | None = None,
    cache: Path | None = None,
    shared: bool = True,
    retries: int = RETRIES,
) -> dict[str, str]:
    """Run what is not done yet; return key → status, as ``run_locally`` does.

    address: of an existing cluster (``auto``: the one of this machine). Default: ``$RAY_ADDRESS``, else Ray is
    started here and stopped at the end.
    gpus_per_run: 0.5 puts two runs on a GPU. Default: 1 if the cluster has GPUs, else 0.
    cpus_per_run: CPU cores reserved for each run. Default: 1.
    shared: a run works in the study's folder if its node sees it; False: results are always sent back.
    """
    cpus = 1.0 if cpus_per_run is None else cpus_per_run
    outcome = {planned.key: run_status(folder, planned.key) for planned in planned_runs}
    waiting = [planned for planned in planned_runs if outcome[planned.key] in ("left", "failed")]
    if not waiting:
        return outcome
    with explain_write_errors(folder):
        for planned in waiting:  # a new attempt starts without the old error; its checkpoints are kept
            error_file(folder, planned.key).unlink(missing_ok=True)
    folder = folder.absolute()
    study = read_study(folder)["study"]
    with _connect(address) as (ray, own), write_token(folder) as token:
        gpus = _resolve_gpus(ray, gpus_per_run, cpus=cpus, own=own, watcher=watcher)
        splits = ray.put((folder / "splits.csv").read_bytes()) if study.get("splits") else None
        remote = ray.remote(
            num_gpus=gpus,
            num_cpus=cpus,
            max_retries=retries,
            num_returns="streaming",
            scheduling_strategy="SPREAD",
        )(_task)
        if gpus == 0:  # here, not on the nodes, which could choose differently
            with explain_write_errors(folder):
                choose_cpu_settings(folder, waiting, threads=max(1, int(cpus)))
        tasks = _Tasks(ray, folder=folder, outcome=outcome, watcher=watcher)
        with StopRequest() as stop:
            for planned in waiting:
                task = TaskSpec(
                    folder=str(folder),
                    token=token,
                    may_share=shared,
                    study=study,
                    entry=planned.facts(),
                    format=study_format(folder),
                    cwd=str(Path.cwd()),
                    cache=None if cache is None else str(cache),
                    gpu=gpus > 0,
                    threads=None if gpus > 0 else max(1, int(cpus)),
                    cpu=None if gpus > 0 else cpu_setting(folder, planned.config),
                )
                tasks.streams[remote.remote(task, splits)] = planned
            while tasks.streams and stop.number is None:
                tasks.poll()
            if stop.number is not None:
                tasks.cancel()
                done = sum(status == "done" for status in outcome.values())
                raise Interrupted(stop.number, f"The study stopped with {done} of {len(outcome)} runs done.")
    return outcome


def _task(task: TaskSpec, splits: bytes | None) -> Iterator[TaskReport]:
    """The body of a task; the nodes import it by its name."""
    context = importlib.import_module("ray").get_runtime_context()
    yield from execute(task, splits, process=f"{context.get_node_id()}:{os.getpid()}")


class _Tasks:
    """The tasks in progress. Each is a stream of two reports: that it has begun, and how it ended."""

    def __init__(self, ray: Any, *, folder: Path, outcome: dict[str, str], watcher: StudyWatcher) -> None:
        self.ray, self.folder, self.outcome, self.watcher = ray, folder, outcome, watcher
        self.streams: dict[Any, PlannedRun] = {}
        self.begun: dict[str, TaskReport] = {}
        self.noted: set[bool] = set()  # whether the user knows of nodes that share the folder, that do not

    def poll(self) -> None:
        """Wait a moment for reports and pass them on."""
        ready, _ = self.ray.wait(list(self.streams), timeout=POLL_SECONDS, fetch_local=False)
        for stream in ready:
            self._read_report(stream)
        self.watcher.updated([planned for planned in self.streams.values() if planned.key in self.begun])

    def cancel(self) -> None:
        """Ask every run to stop, and wait until those in progress have saved their state."""
        for stream in self.streams:
            self.ray.cancel(stream)
        until = time.monotonic() + SHUTDOWN_SECONDS
        while self.streams and time.monotonic() < until:
            self.poll()

    def _read_report(self, stream: Any) -> None:
        planned = self.streams[stream]
        try:
            report: TaskReport = self.ray.get(next(stream))
        except self.ray.exceptions.TaskCancelledError:
            self._end(stream, "left")
        except (self.ray.exceptions.RayError, StopIteration) as problem:
            write_error_report(self.folder, planned.key, SrjtError(_ray_error(problem)))
            self._end(stream, "failed")
        else:
            if report.status == "running":
                self._begin(planned, report)
            else:
                if report.process != self.begun[planned.key].process:
                    self.watcher.note(f"{planned.key} was restarted: its node or its process died.")
                self._end(stream, self._store(planned.key, report))

    def _begin(self, planned: PlannedRun, report: TaskReport) -> None:
        self.begun[planned.key] = report
        if report.shared not in self.noted:
            self.noted.add(report.shared)
            self.watcher.note(
                SHARED if report.shared else f"{report.host} does not see {self.folder}: {STREAMED}"
            )
        self.watcher.started(planned)

    def _end(self, stream: Any, status: str) -> None:
        planned = self.streams.pop(stream)
        self.outcome[planned.key] = status
        if planned.key not in self.begun:
            if status == "left":  # cancelled in the queue
                return
            self.watcher.started(planned)
        self.watcher.ended(planned, status)

    def _store(self, key: str, report: TaskReport) -> str:
        """Write what a node without the shared folder has sent; return the status of the run.

        The status is the one that the node reports: a network file system may show its files here seconds later.
        """
        if report.status == "failed" and not report.shared:
            write_error_report(self.folder, key, SrjtError(report.error.rstrip("\n")))
        if report.files is not None:
            try:
                _write_run_files(run_folder(self.folder, key), report.files)
            except (OSError, SrjtError) as problem:
                write_error_report(self.folder, key, problem)
                return "failed"
        return report.status


def _write_run_files(run: Path, files: Mapping[str, bytes]) -> None:
    """Write a finished run, ``summary.json`` last, which marks it as done. A finished run is not overwritten."""
    run.mkdir(parents=True, exist_ok=True)
    with lock_folder(run):
        if not is_finished(run):
            for name in (*OPTIONAL_FILES, *RUN_FILES):
                if name in files:
                    write_atomically(run / name, files[name])


def _ray_error(problem: Exception) -> str:
    first = str(problem).strip().splitlines()[:1]
    return (
        f"Ray gave up on this run ({type(problem).__name__}: {first[0] if first else 'no message'}). Run the same "
        f"command again to retry it; Ray's logs have more.\n\n{problem}"
    )


@contextlib.contextmanager
def _connect(address: str | None) -> Iterator[tuple[Any, bool]]:
    """Ray, connected, and whether Ray was started here for this study alone."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # the future default of Ray; without it Ray prints a warning
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise missing_extra("ray", "ray", "Running a study on Ray") from None
    if ray.is_initialized():
        yield ray, False
        return
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    if where.startswith("ray://"):
        raise SrjtError(
            f"{where} is the address of a Ray client server, which cannot stream results: run this command on a node "
            "of the cluster with --address auto, or submit it with ray job submit."
        )
    _check_reachable(where)
    own = where == "local"
    options = {"_node_ip_address": "127.0.0.1", "include_dashboard": False} if own else {}
    try:
        ray.init(address=where, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise SrjtError(
            f"The Ray cluster at {where!r} cannot be used: {str(problem).splitlines()[0]}"
        ) from None
    try:
        with _suppress_node_logs(ray):
            yield ray, own
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _suppress_node_logs(ray: Any) -> Iterator[None]:
    """Ray prints pages of a dead node's log and has no switch for it; the watcher gets one sentence instead."""
    module = ray._private.worker
    before = getattr(module, "print_to_stdstream", None)
    module.print_to_stdstream = lambda *message, **options: None
    try:
        yield
    finally:
        module.print_to_stdstream = before


def _check_reachable(address: str) -> None:
    """An error at once if nothing listens at the address; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError as problem:
            raise SrjtError(
                f"No Ray cluster answers at {address} ({problem.strerror or problem}): start one with ray start "
                "--head, or omit --address to use this machine alone."
            ) from None


def _resolve_gpus(
    ray: Any, requested: float | None, *, cpus: float, own: bool, watcher: StudyWatcher
) -> float:
    """The share of a GPU for each run; an error, or a note, if no node has the resources of a run."""
    if requested is not None and not 0.0 <= requested <= 1.0:
        raise SrjtError(
            f"gpus_per_run must be between 0 and 1, because a run uses one GPU; got {requested:g}."
        )
    if cpus <= 0:
        raise SrjtError(f"cpus_per_run must be positive; got {cpus:g}.")
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = requested if requested is not None else float(any(node.get("GPU", 0) for node in nodes))
    if not any(node.get("GPU", 0) >= gpus and node.get("CPU", 0) >= cpus for node in nodes):
        resources = f"{cpus:g} CPU{'s' * (cpus != 1)} and {gpus:g} GPU{'s' * (gpus != 1)} for a run"
        if own:
            raise SrjtError(
                f"This machine does not have {resources}: request less, or give a cluster with --address."
            )
        watcher.note(f"No node of the cluster has {resources} now: the runs wait until one does.")
    return gpus
