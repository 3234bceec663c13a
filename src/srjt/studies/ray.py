"""Run a study on a Ray cluster, or with Ray on this machine alone: processes that stay, each with the share of a
GPU that Ray gave it.
"""

from __future__ import annotations

import _thread
import contextlib
import importlib
import logging
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from srjt.errors import Interrupted, SrjtError, missing_extra
from srjt.studies.folder import (
    error_file,
    estimates_folder,
    explain_write_errors,
    read_study,
    run_folder,
    run_status,
    write_error_report,
)
from srjt.studies.plan import PlannedRun, StudyWatcher, longest_first
from srjt.studies.ray_task import (
    TaskReport,
    TaskSpec,
    execute,
    read_estimates,
    remove_scratch_folder,
    write_estimates,
    write_run_files,
    write_token,
)
from srjt.training.workers import StopRequest

# Processes on a Ray cluster that stay: each executes one run after another on the share of a GPU that Ray
# gave it.
#
# They are actors, not tasks: Ray would keep the processes of tasks too, but could assign another GPU to the
# next task of a process, and CUDA stays on the first one. A worker is replaced if its process or node dies,
# and after a run that failed unexpectedly.

POLL_SECONDS = 0.5
SHUTDOWN_SECONDS = 60.0  # time for interrupted runs to save their state
REMOVE_SECONDS = 30.0  # time to remove what dead processes have left on the nodes
LIFETIME = 1800.0  # seconds; then a worker gives its resources back, so that other studies get their turn
REQUESTED = 10  # workers that wait for resources, at least; an autoscaling cluster grows because of them
FAILED_STARTS = 50  # in a row, more than when a node dies on which many workers start
SHARED = (
    "The nodes see the study's folder: runs write there, and resume from their checkpoints if a node dies."
)
STREAMED = "results are sent back, and a run whose node dies starts again on another."


class RayWorker:
    """The actor; the nodes import it by its name."""

    def __init__(self) -> None:
        # Ray blocks SIGINT in its processes: Ctrl-C in a terminal must reach the driver alone
        signal.signal(signal.SIGUSR1, _interrupt_unless_stopping)

    def process(self) -> tuple[str, int]:
        """The node and the process id."""
        return importlib.import_module("ray").get_runtime_context().get_node_id(), os.getpid()

    def execute(self, task: TaskSpec, splits: bytes | None) -> Iterator[TaskReport]:
        yield from execute(task, splits)


def _interrupt_unless_stopping(number: int, frame: FrameType | None) -> None:
    if not StopRequest.stopping:  # a second signal would disturb the saving of its state
        _thread.interrupt_main()


@dataclass(kw_only=True)
class _Worker:
    actor: Any
    process: tuple[str, int] | None = None  # None: it waits for resources, or starts
    run: PlannedRun | None = None
    in_scratch: bool = False  # whether its run has files on the node alone
    deterministic: bool | None = None  # of its runs: cuBLAS can be made so only before its first use
    until: float = 0.0  # when it gives its resources back


class RayWorkers:
    """The workers of a study, and the runs that wait for them. A run is a stream of two reports: begun, and ended.

    create: makes an actor. arguments: of ``RayWorker.execute`` for a run. token: of the study, see ``TaskSpec``.
    retries: of a run whose worker died.
    """

    def __init__(
        self,
        ray: Any,
        *,
        create: Callable[[], Any],
        arguments: Callable[[PlannedRun], tuple[TaskSpec, Any]],
        planned_runs: Sequence[PlannedRun],
        token: str,
        folder: Path,
        outcome: dict[str, str],
        watcher: StudyWatcher,
        retries: int,
    ) -> None:
        self.ray, self.create, self.arguments, self.retries = ray, create, arguments, retries
        self.token, self.folder, self.outcome, self.watcher = token, folder, outcome, watcher
        self.waiting = {planned.key: planned for planned in planned_runs}
        self.workers: dict[Any, _Worker] = {}  # by what to wait for: its start, or the stream of its run
        self.begun: set[str] = set()
        self.deaths: Counter[str] = Counter()
        self.nodes_of_deaths: set[str] = set()
        self.failed_starts = 0
        self.noted: set[bool] = set()  # whether the user knows of nodes that share the folder, that do not
        self.stopping = False

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, *exception: object) -> None:
        for source, worker in list(self.workers.items()):
            self._end_worker(source)
            self._note_death(worker)
        self._remove_scratch_folders()

    @property
    def unfinished(self) -> bool:
        return bool(self.waiting) or any(worker.run for worker in self.workers.values())

    def poll(self) -> None:
        """Wait a moment for reports, pass them on, and give runs to workers that have none."""
        self._request_workers()
        ready, _ = self.ray.wait(list(self.workers), timeout=POLL_SECONDS, fetch_local=False)
        for source in ready:
            self._read(source)
        runs = [worker.run for worker in self.workers.values() if worker.run is not None]
        self.watcher.updated([planned for planned in runs if planned.key in self.begun])

    def stop(self) -> None:
        """Interrupt every run, and wait until all have saved their state."""
        self.stopping = True
        self.waiting.clear()
        processes = [worker.process for worker in self.workers.values() if worker.process is not None]
        for node in {node for node, _ in processes}:
            self._interrupt(node, [number for where, number in processes if where == node])
        until = time.monotonic() + SHUTDOWN_SECONDS
        while self.unfinished and time.monotonic() < until:
            self.poll()

    def _request_workers(self) -> None:
        """One for each waiting run, but few at a time: requests of other studies wait behind them."""
        requested = [source for source, worker in self.workers.items() if worker.run is None]
        wanted = min(len(self.waiting), max(REQUESTED, len(self.workers) - len(requested)))
        for source in requested[wanted:]:
            self._end_worker(source)
        for _ in range(wanted - len(requested)):
            actor = self.create()
            self.workers[actor.process.remote()] = _Worker(actor=actor)

    def _end_worker(self, source: Any) -> None:
        self.ray.kill(self.workers.pop(source).actor)

    def _give_way(self, source: Any) -> None:
        """End the worker, and request those that wait anew: they then stand behind those of other studies."""
        for waiting in [waiting for waiting, worker in self.workers.items() if worker.run is None]:
            self._end_worker(waiting)
        self._end_worker(source)

    def _interrupt(self, node: str, processes: Sequence[int]) -> None:
        """Ctrl-C for workers of a node; Ray cannot cancel what an actor executes."""

        def interrupt() -> None:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGUSR1)

        self._execute_on(node, interrupt)

    def _execute_on(self, node: str, function: Callable[[], None]) -> Any:
        """Execute a local function on a node. Ray sends its code: to import this module there would take seconds."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        there = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        return self.ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(function).remote()

    def _note_death(self, worker: _Worker) -> None:
        if worker.in_scratch and worker.process is not None:
            self.nodes_of_deaths.add(worker.process[0])

    def _remove_scratch_folders(self) -> None:
        """Remove what workers that died in the middle of a run have left, on nodes that still exist."""
        token = self.token

        def remove() -> None:
            remove_scratch_folder(token)

        removals = [self._execute_on(node, remove) for node in self.nodes_of_deaths]
        if removals:
            self.ray.wait(removals, num_returns=len(removals), timeout=REMOVE_SECONDS)

    def _read(self, source: Any) -> None:
        worker = self.workers[source]
        try:
            report = self.ray.get(source if worker.run is None else next(source))
        except (self.ray.exceptions.RayError, StopIteration) as problem:
            self._end_worker(source)
            self._note_death(worker)
            if worker.run is None:
                self._handle_failed_start(problem)
            else:
                self._handle_death(worker.run, problem)
            return
        if worker.run is None:
            worker.process, worker.until, self.failed_starts = report, time.monotonic() + LIFETIME, 0
            self._execute_next(source)
        elif report.status == "running":
            worker.in_scratch = not report.shared
            self._begin(worker.run, report)
            if self.stopping and worker.process is not None:  # it may have missed the first signal
                self._interrupt(worker.process[0], [worker.process[1]])
        else:
            worker.in_scratch = False
            self._end(worker.run, self._store(worker.run.key, report))
            if time.monotonic() > worker.until:
                self._give_way(source)
            elif report.broken:
                self._end_worker(source)
            else:
                self._execute_next(source)

    def _execute_next(self, source: Any) -> None:
        """Give the worker its next run; end it if there is none for it."""
        worker = self.workers[source]
        fitting = (
            run for run in self.waiting.values() if worker.deterministic in (None, run.config.deterministic)
        )
        planned = next(fitting, None)
        if planned is None:
            self._end_worker(source)
            return
        del self.waiting[planned.key], self.workers[source]
        worker.run, worker.deterministic = planned, planned.config.deterministic
        stream = worker.actor.execute.options(num_returns="streaming").remote(*self.arguments(planned))
        self.workers[stream] = worker

    def _handle_failed_start(self, problem: Exception) -> None:
        """Another worker is requested, unless none can start: no run may wait for ever."""
        self.failed_starts += 1
        cannot_import = getattr(problem, "actor_init_failed", False)
        if self.waiting and (cannot_import or self.failed_starts > FAILED_STARTS):
            self._give_up(self.waiting.pop(next(iter(self.waiting))), problem)

    def _handle_death(self, planned: PlannedRun, problem: Exception) -> None:
        """Let the run of a dead worker wait for another one, unless it has had too many."""
        self.deaths[planned.key] += 1
        raised = isinstance(problem, self.ray.exceptions.RayTaskError)  # and would do so again
        if self.stopping:
            self._end(planned, "left")
        elif raised or self.deaths[planned.key] > self.retries:
            self._give_up(planned, problem)
        else:
            self.waiting = {planned.key: planned, **self.waiting}

    def _give_up(self, planned: PlannedRun, problem: Exception) -> None:
        write_error_report(self.folder, planned.key, SrjtError(_ray_error(problem)))
        self._end(planned, "failed")

    def _begin(self, planned: PlannedRun, report: TaskReport) -> None:
        if report.shared not in self.noted:
            self.noted.add(report.shared)
            self.watcher.note(
                SHARED if report.shared else f"{report.host} does not see {self.folder}: {STREAMED}"
            )
        if planned.key in self.begun:
            self.watcher.note(f"{planned.key} was restarted: its node or its process died.")
        else:
            self.begun.add(planned.key)
            self.watcher.started(planned)

    def _end(self, planned: PlannedRun, status: str) -> None:
        self.outcome[planned.key] = status
        if planned.key not in self.begun:
            if status == "left":  # interrupted before it began
                return
            self.watcher.started(planned)
        self.watcher.ended(planned, status)

    def _store(self, key: str, report: TaskReport) -> str:
        """Write what a node without the shared folder has sent; return the status of the run.

        The status is the one that the node reports: a network file system may show its files here seconds later.
        """
        if report.status == "failed" and not report.shared:
            write_error_report(self.folder, key, SrjtError(report.error.rstrip("\n")))
        try:
            write_estimates(estimates_folder(self.folder), report.estimates or {})
            if report.files is not None:
                write_run_files(run_folder(self.folder, key), report.files)
        except (OSError, SrjtError) as problem:
            write_error_report(self.folder, key, problem)
            return "failed"
        return report.status


def _ray_error(problem: Exception) -> str:
    first = str(problem).strip().splitlines()[:1]
    return (
        f"Ray gave up on this run ({type(problem).__name__}: {first[0] if first else 'no message'}). Run the same "
        f"command again to retry it; Ray's logs have more.\n\n{problem}"
    )


# Run a study on a Ray cluster, or with Ray on this machine alone.
#
# Ray chooses the nodes and assigns the GPUs. A run whose node or process dies is restarted. A run that
# raises an exception has failed: it is not repeated, and the others continue.

RETRIES = 5  # of a run whose node or process died; preemptible nodes die often


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
    # also those that a process of a killed study still works on: their tasks wait for it
    waiting = longest_first([planned for planned in planned_runs if outcome[planned.key] != "done"])
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
        actor = ray.remote(num_gpus=gpus, num_cpus=cpus, scheduling_strategy="SPREAD")(RayWorker)

        def arguments(planned: PlannedRun) -> tuple[TaskSpec, Any]:
            task = TaskSpec(
                folder=str(folder),
                token=token,
                may_share=shared,
                study=study,
                entry=planned.facts(),
                cwd=str(Path.cwd()),
                cache=None if cache is None else str(cache),
                gpu=gpus > 0,
                threads=None if gpus > 0 else max(1, int(cpus)),
                estimates=read_estimates(estimates_folder(folder)),
            )
            return task, splits

        workers = RayWorkers(
            ray,
            create=actor.remote,
            arguments=arguments,
            planned_runs=waiting,
            token=token,
            folder=folder,
            outcome=outcome,
            watcher=watcher,
            retries=retries,
        )
        with StopRequest() as stop, workers:
            while workers.unfinished and stop.number is None:
                workers.poll()
            if stop.number is not None:
                workers.stop()
                done = sum(status == "done" for status in outcome.values())
                raise Interrupted(stop.number, f"The study stopped with {done} of {len(outcome)} runs done.")
    return outcome


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
        with (
            StopRequest() as stop
        ):  # an exception in the middle of it can crash Python, and leave processes behind
            ray.init(address=where, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise SrjtError(
            f"The Ray cluster at {where!r} cannot be used: {str(problem).splitlines()[0]}"
        ) from None
    try:
        if stop.number is not None:
            raise Interrupted(stop.number, "The study stopped while Ray started.")
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
            f"`gpus_per_run` must be between 0 and 1, because a run uses one GPU; got {requested:g}."
        )
    if cpus <= 0:
        raise SrjtError(f"`cpus_per_run` must be positive; got {cpus:g}.")
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
