"""Run a study on a Ray cluster, or with Ray on this machine alone: one task per run, each with the share of a GPU
that Ray gave it.

Ray chooses the nodes. A run works in the study's folder if its node sees it; otherwise in a temporary copy of the
study without its runs, of a few kilobytes that stay there, and the files of the run are sent back. A run whose node
or process dies is restarted. A run that raises an exception has failed: it is not repeated, and the others continue.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import platform
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from srjt._version import __version__
from srjt.errors import Interrupted, SrjtError, count_of, missing_extra, warn
from srjt.files import is_locked, lock_folder, write_atomically, write_json
from srjt.studies.folder import (
    error_file,
    estimates_folder,
    read_error,
    read_study,
    run_by_key,
    run_folder,
    run_status,
    write_error_report,
    writing,
)
from srjt.studies.plan import PlannedRun, StudyWatcher, longest_first
from srjt.training.workers import StopRequest, release_memory

RETRIES = 5  # of a run whose node or process died; preemptible nodes die often
POLL_SECONDS = 0.5
NODES_SECONDS = 5.0  # between two looks at the nodes of the cluster
UNANSWERED = 3  # such looks in a row after which the cluster has ended
STOP_SECONDS = 60.0  # time for interrupted runs to save their state
LOCK_SECONDS = 120.0  # to wait for a process that Ray has given up and that still writes to the run's folder
AHEAD = 10  # tasks that wait for resources; an autoscaling cluster grows because of them
SHARED = (
    "The nodes see the study's folder: runs write there, and resume from their checkpoints if a node dies."
)
STREAMED = "results are sent back, and a run whose node dies starts again on another."

# summary.json is last: a run with it is done
RUN_FILES = ("run.json", "metrics.csv", "history.csv", "weights.safetensors", "summary.json")
# If the run used a noise estimate; if it was trained on images; if it has a validation or test side.
OPTIONAL_FILES = ("noise.json", "image_hashes.npy", "held_out.csv")


# What a node executes.


@dataclass(frozen=True, kw_only=True)
class RunTask:
    """Everything that a node needs to train one planned run."""

    folder: str  # of the study, on the driver
    identity: tuple[int, int] | None  # of study.json: a node that finds the same file sees the same folder
    scratch: str  # name of the folder of a node that does not
    study: dict[str, Any]  # study.json
    splits: bytes | None  # splits.csv of a study whose folds came from a file
    cwd: str  # of the driver, so that relative paths mean the same on the nodes
    cache: str | None
    gpu: bool
    threads: int | None
    key: str = ""  # of the planned run
    estimates: Mapping[str, bytes] = field(default_factory=dict)  # of the noise, by name: those that exist


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a node reports about a run: once when it begins (``status`` running), once at the end."""

    status: str  # running, done, failed or left
    shared: bool  # whether it works in the study's own folder
    host: str
    error: str = ""
    files: dict[str, bytes] | None = None  # of a finished run in a scratch folder
    estimates: Mapping[str, bytes] = field(default_factory=dict)  # that the study did not have


def file_identity(file: Path) -> tuple[int, int] | None:
    """What a file has in common on all machines that see it, and no copy of it has; None if there is none."""
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns


def train_on_node(task: RunTask) -> Iterator[Report]:
    """Train the run: report first where it works, then how it ended. An exception is reported, not retried."""
    shared = task.identity is not None and task.identity == file_identity(Path(task.folder) / "study.json")
    # the same scratch folder in every attempt, so that a new process on this node finds the checkpoints
    folder = Path(task.folder) if shared else Path(tempfile.gettempdir()) / task.scratch
    run = run_folder(folder, task.key)
    begun = Report(status="running", shared=shared, host=platform.node())
    yield begun
    try:
        _check_node(task)
        if not shared:
            _write_study(folder, task)
        # A process may outlive the connection to its node by seconds; two must not write to one folder.
        until = time.monotonic() + LOCK_SECONDS
        while is_locked(run) and time.monotonic() < until:
            time.sleep(0.2)
        run_by_key(str(folder), task.key, task.cache, device="cuda" if task.gpu else "cpu")
        ended = replace(begun, status="done", files=None if shared else _read_run_files(run))
    except (Interrupted, KeyboardInterrupt) as stopped:
        if isinstance(stopped, Interrupted) and stopped.status == 128 + signal.SIGTERM:
            os._exit(stopped.status)  # the node is being drained: the driver restarts the run on another one
        ended = replace(begun, status="left")  # the driver has interrupted it
    except Exception as problem:
        write_error_report(folder, task.key, problem)
        ended = replace(begun, status="failed", error=read_error(folder, task.key) or repr(problem))
    if not shared:
        made = _read_estimates(estimates_folder(folder))
        ended = replace(ended, estimates={name: made[name] for name in made if name not in task.estimates})
        shutil.rmtree(run, ignore_errors=True)
    release_memory()
    yield ended


def _check_node(task: RunTask) -> None:
    """An error if the node cannot train the run; else its threads and its working folder are set."""
    import torch

    node, version = platform.node(), task.study["versions"]["srjt"]
    if version != __version__:
        raise SrjtError(
            f"{node} has srjt {__version__}, but the study was started with {version}: install the same version on "
            "all nodes."
        )
    if task.gpu and not torch.cuda.is_available():  # training on the CPU would block the GPU for days
        raise SrjtError(
            f"Ray gave this run a GPU of {node}, but torch {torch.__version__} finds none there: install a CUDA build "
            "of torch on the node, or pass --gpus-per-run 0."
        )
    if task.threads is not None:
        torch.set_num_threads(task.threads)
    with contextlib.suppress(OSError):
        os.chdir(task.cwd)


def _write_study(folder: Path, task: RunTask) -> None:
    """The study on a node that does not see its folder, so that a run is trained there as anywhere."""
    folder.mkdir(parents=True, exist_ok=True)
    study = task.study
    if task.splits is not None:
        write_atomically(folder / "splits.csv", task.splits)
        study = {**study, "study": {**study["study"], "splits": str(folder / "splits.csv")}}
    write_json(folder / "study.json", study)
    _write_estimates(estimates_folder(folder), task.estimates)


def _read_run_files(run: Path) -> dict[str, bytes]:
    optional = [name for name in OPTIONAL_FILES if (run / name).exists()]
    return {name: (run / name).read_bytes() for name in (*optional, *RUN_FILES)}


def write_run_files(run: Path, files: Mapping[str, bytes]) -> None:
    """Write a finished run, ``summary.json`` last, which marks it as done. A finished run is not overwritten."""
    from srjt.training.folder import is_finished

    run.mkdir(parents=True, exist_ok=True)
    with lock_folder(run):
        if not is_finished(run):
            for name in (*OPTIONAL_FILES, *RUN_FILES):
                if name in files:
                    write_atomically(run / name, files[name], follow_links=False)


def _read_estimates(folder: Path) -> dict[str, bytes]:
    return {file.parent.name: file.read_bytes() for file in folder.glob("*/noise.json")}


def _write_estimates(folder: Path, estimates: Mapping[str, bytes]) -> None:
    for name, content in estimates.items():
        file = folder / name / "noise.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, content, follow_links=False)


# What the command executes: the driver.


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
    with writing(folder):
        for planned in waiting:  # a new attempt starts without the old error; its checkpoints are kept
            error_file(folder, planned.key).unlink(missing_ok=True)
    folder = folder.absolute()
    study = read_study(folder)
    with _connect(address) as (ray, own), StopRequest() as stop:
        gpus = _resolve_gpus(ray, gpus_per_run, cpus=cpus, own=own, watcher=watcher)
        task = RunTask(
            folder=str(folder),
            identity=file_identity(folder / "study.json") if shared else None,
            scratch=f"srjt-{secrets.token_hex(8)}",
            study=study,
            splits=(folder / "splits.csv").read_bytes() if study["study"].get("splits") else None,
            cwd=str(Path.cwd()),
            cache=None if cache is None else str(cache),
            gpu=gpus > 0,
            threads=None if gpus > 0 else max(1, int(cpus)),
        )
        # Not retried by Ray: a stream that is repeated does not say that its run was restarted.
        remote = ray.remote(
            num_cpus=cpus, num_gpus=gpus, max_retries=0, num_returns="streaming", scheduling_strategy="SPREAD"
        )(train_on_node)
        driver = _Driver(
            ray=ray,
            remote=remote,
            task=task,
            resources={"CPU": cpus, "GPU": gpus},
            folder=folder,
            waiting=waiting,
            outcome=outcome,
            watcher=watcher,
            retries=retries,
        )
        while driver.unfinished and stop.number is None:
            driver.poll()
        if stop.number is not None:
            driver.stop()
            done = sum(status == "done" for status in outcome.values())
            raise Interrupted(stop.number, f"The study stopped with {done} of {len(outcome)} runs done.")
    return outcome


@dataclass(kw_only=True)
class _Driver:
    """The tasks of a study. Each is a stream of two reports: begun, and ended."""

    ray: Any
    remote: Any
    task: RunTask  # what all runs have in common
    resources: dict[str, float]  # of a run
    folder: Path
    waiting: list[PlannedRun]
    outcome: dict[str, str]
    watcher: StudyWatcher
    retries: int  # of a run whose process died
    running: dict[Any, PlannedRun] = field(default_factory=dict)  # by its stream
    begun: set[str] = field(default_factory=set)
    deaths: Counter[str] = field(default_factory=Counter)
    sharing_noted: set[bool] = field(default_factory=set)
    room: int = 0  # for runs at the same time
    nodes: set[str] = field(default_factory=set)
    next_look: float = 0.0
    unanswered: int = 0  # looks at the cluster in a row
    stopping: bool = False

    @property
    def unfinished(self) -> bool:
        return bool(self.waiting or self.running)

    def poll(self) -> None:
        """Submit runs, wait a moment for reports and pass them on."""
        if time.monotonic() >= self.next_look:
            self._look_at_nodes()
            self.next_look = time.monotonic() + NODES_SECONDS
        while self.waiting and len(self.running) < self.room + AHEAD:
            planned = self.waiting.pop(0)
            estimates = _read_estimates(estimates_folder(self.folder))
            stream = self.remote.remote(replace(self.task, key=planned.key, estimates=estimates))
            self.running[stream] = planned
        ready, _ = self.ray.wait(list(self.running), timeout=POLL_SECONDS, fetch_local=False)
        for stream in ready:
            self._read(stream)
        self.watcher.updated([planned for planned in self.running.values() if planned.key in self.begun])

    def stop(self) -> None:
        """Interrupt every run, and wait until all have saved their state."""
        self.stopping = True
        self.waiting.clear()
        for stream in self.running:
            self.ray.cancel(stream)
        until = time.monotonic() + STOP_SECONDS
        while self.unfinished and time.monotonic() < until:
            self.poll()

    def _look_at_nodes(self) -> None:
        """Count how many runs the nodes have room for; warn of a node that died, also where progress is not shown.

        Ray itself would wait for its head for a minute, and for the node of this process for ever.
        """
        context = self.ray.get_runtime_context()
        try:
            _check_reachable(context.gcs_address)
            self.unanswered = 0
        except SrjtError:
            self.unanswered += 1
            if self.unanswered == UNANSWERED:
                raise
            return
        alive = {node["NodeID"]: node["Resources"] for node in self.ray.nodes() if node["Alive"]}
        if context.get_node_id() not in alive:
            raise SrjtError(
                "The Ray node on which this command runs died: start Ray again, and run the same command again. "
                "Finished runs are kept."
            )
        wanted = {name: amount for name, amount in self.resources.items() if amount > 0}
        rooms = [min(has.get(name, 0) // amount for name, amount in wanted.items()) for has in alive.values()]
        self.room = int(sum(rooms))
        if self.nodes - set(alive):
            left = count_of(len(alive), "is", "are")
            warn(f"A node of the Ray cluster died; {left} left, with room for {count_of(self.room, 'run')}.")
        self.nodes = set(alive)

    def _read(self, stream: Any) -> None:
        planned = self.running[stream]
        try:
            report = self.ray.get(next(stream))
        except (self.ray.exceptions.RayError, StopIteration) as problem:
            del self.running[stream]
            self._handle_death(planned, problem)
            return
        if report.status == "running":
            self._begin(planned, report)
        else:
            del self.running[stream]
            self._end(planned, self._store(planned.key, report))

    def _handle_death(self, planned: PlannedRun, problem: Exception) -> None:
        """Let the run of a dead process wait for another one, unless it has had too many."""
        self.deaths[planned.key] += 1
        raised = isinstance(problem, self.ray.exceptions.RayTaskError)  # and would do so again
        if self.stopping:
            self._end(planned, run_status(self.folder, planned.key))
        elif raised or self.deaths[planned.key] > self.retries:
            write_error_report(self.folder, planned.key, SrjtError(_ray_error(problem)))
            self._end(planned, "failed")
        else:
            self.waiting.insert(0, planned)

    def _begin(self, planned: PlannedRun, report: Report) -> None:
        if report.shared not in self.sharing_noted:
            self.sharing_noted.add(report.shared)
            streamed = f"{report.host} does not see {self.folder}: {STREAMED}"
            self.watcher.note(SHARED if report.shared else streamed)
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

    def _store(self, key: str, report: Report) -> str:
        """Write what a node without the shared folder has sent; return the status of the run.

        The status is the one that the node reports: a network file system may show its files here seconds later.
        """
        if report.status == "failed" and not report.shared:
            write_error_report(self.folder, key, SrjtError(report.error.rstrip("\n")))
        try:
            _write_estimates(estimates_folder(self.folder), report.estimates)
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


@contextlib.contextmanager
def _connect(address: str | None) -> Iterator[tuple[Any, bool]]:
    """Ray, connected, and whether Ray was started here for this study alone."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # the future default of Ray; without it Ray prints a warning
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray prints pages of a dead node's log; the driver says it in one sentence
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
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
    # only this machine reaches a Ray of our own, which asks nobody for a password
    options = {"_node_ip_address": "127.0.0.1", "include_dashboard": False} if own else {}
    try:
        with StopRequest() as stop:  # an exception in the middle can crash Python, and leave processes behind
            ray.init(address=where, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise SrjtError(
            f"The Ray cluster at {where!r} cannot be used: {str(problem).splitlines()[0]}"
        ) from None
    try:
        if stop.number is not None:
            raise Interrupted(stop.number, "The study stopped while Ray started.")
        yield ray, own
    finally:
        ray.shutdown()


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
