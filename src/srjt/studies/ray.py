"""Run a study on a Ray cluster, or with Ray on this machine alone: one task per run, each with the
share of a GPU that Ray gave it.

Ray chooses the nodes, and restarts a task whose node or process died. A run works in the study's
folder if its node sees it; otherwise in a temporary copy of the study without its runs, and the
files of the run are sent back. A run that raises an exception has failed: it is not repeated, and
the others continue.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from srjt._version import __version__
from srjt.errors import Interrupted, Option, SrjtError, count_of, missing_extra, warn
from srjt.files import CHECKSUMS, is_locked, lock_folder, write_atomically, write_sealed_json
from srjt.process import import_quietly
from srjt.studies import folder as study_folder
from srjt.studies.plan import PlannedRun, Work
from srjt.training.folder import is_finished
from srjt.training.workers import release_memory

RETRIES = 5  # of a run whose node or process died; preemptible nodes die often
POLL_SECONDS = 0.5
RETRY_SECONDS = 5.0  # between two attempts to reach the head of the cluster
STOP_SECONDS = 60.0  # time for interrupted runs to save their state
LOCK_SECONDS = (
    120.0  # to wait for a process that Ray has given up and that still writes to the run's folder
)
AHEAD = 10  # tasks that wait for resources; an autoscaling cluster grows because of them

# of a finished run, its summary last: a run with it is done
RUN_FILES = (
    *(CHECKSUMS, "noise.json", "head.json", "image_hashes.npy"),  # not of every run
    *("training_traces.npz", "held_out.csv", "skipped.csv"),  # nor these
    *("run.json", "metrics.csv", "history.csv", "weights.safetensors", "summary.json"),
)


# What a node executes.


@dataclass(frozen=True, kw_only=True)
class RunTask:
    """Everything that a node needs to train one planned run."""

    folder: Path  # of the study, on the driver
    # of study.json: a node that finds the same file sees the same folder
    identity: tuple[int, int] | None
    scratch: str  # name of the folder of a node that does not
    study: study_folder.StudyFile
    cwd: str  # of the driver, so that relative paths mean the same on the nodes
    cache: Path | None
    gpu: bool
    threads: int | None
    key: str = ""  # of the planned run
    # by path in the study: noise estimates that exist, and the splits if they came from a file
    files: Mapping[str, bytes] = field(default_factory=dict)


def file_identity(file: Path) -> tuple[int, int] | None:
    """What a file has in common on all machines that see it, and no copy of it has; None if there
    is none."""
    with contextlib.suppress(OSError):
        facts = file.stat()
        return facts.st_ino, facts.st_mtime_ns
    return None


def train_on_node(task: RunTask) -> tuple[str, dict[str, bytes]]:
    """Train the run. Returns done, failed or left: an exception is not raised, so that Ray repeats
    only what died. And, if the node does not see the study, files by their paths in it: the
    finished run, or its error, and estimates.
    """
    shared = task.identity is not None and task.identity == file_identity(
        task.folder / "study.json"
    )
    # the same scratch folder in every attempt, so that a new process on this node finds the
    # checkpoints
    folder = Path(tempfile.gettempdir()) / task.scratch
    if shared:
        folder = task.folder
    run = study_folder.run_folder(folder, task.key)
    status = "done"
    wanted = [f"runs/{task.key}/{name}" for name in RUN_FILES]
    try:
        _check_node(task)
        if not shared:
            _write_study(folder, task)
        # A process may outlive the connection to its node by seconds; two must not write to one
        # folder.
        until = time.monotonic() + LOCK_SECONDS
        while is_locked(run) and time.monotonic() < until:
            time.sleep(0.2)
        study_folder.run_by_key(folder, task.key, task.cache, device="cuda" if task.gpu else "cpu")
    except (Interrupted, KeyboardInterrupt) as stopped:
        if isinstance(stopped, Interrupted) and stopped.status == 128 + signal.SIGTERM:
            # the node is being drained: Ray restarts the run on another one
            os._exit(stopped.status)
        # the driver has interrupted it
        status = "left"
        wanted = []
    except Exception as problem:
        study_folder.write_error_report(folder, task.key, problem)
        status = "failed"
        wanted = [f"errors/{task.key}.txt", f"errors/{task.key}.json"]
    files = dict[str, bytes]()
    if not shared:
        for name, content in _read_estimates(folder).items():
            if name not in task.files:
                files[name] = content
        for name in wanted:
            if (folder / name).exists():
                files[name] = (folder / name).read_bytes()
        shutil.rmtree(run, ignore_errors=True)
    release_memory()
    return status, files


def _check_node(task: RunTask) -> None:
    """An error if the node cannot train the run; else its threads and its working folder are
    set."""
    import torch

    node = platform.node()
    version = task.study.versions["srjt"]
    if version != __version__:
        raise SrjtError(
            f"{node} has srjt {__version__}, but the study was started with {version}: install the"
            " same version on all nodes.",
            code="other_version",
        )
    # training on the CPU would block the GPU for days
    if task.gpu and not torch.cuda.is_available():
        raise SrjtError(
            f"Ray gave this run a GPU of {node}, but torch {torch.__version__} finds none there:"
            " install a CUDA build of torch on the node, or pass ",
            Option("gpus_per_run", 0),
            ".",
            code="no_gpu",
        )
    if task.threads is not None:
        torch.set_num_threads(task.threads)
    with contextlib.suppress(OSError):
        os.chdir(task.cwd)


def _write_study(folder: Path, task: RunTask) -> None:
    """The study on a node that does not see its folder, so that a run is trained there as
    anywhere."""
    folder.mkdir(parents=True, exist_ok=True)
    write_files(folder, task.files)
    facts = task.study.facts()
    if "splits.csv" in task.files:
        facts["study"]["splits"] = str(folder / "splits.csv")
    write_sealed_json(folder / "study.json", facts)


def _read_estimates(folder: Path) -> dict[str, bytes]:
    files = [*folder.glob("estimates/*/noise.json"), *folder.glob("estimates/*/head.json")]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their paths in the study. An estimate that exists is kept: all methods use the
    same."""
    for name, content in files.items():
        file = folder / name
        if file.parent.parent.name != "estimates" or not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, content)


# What the command executes: the driver.


def run_on_ray(
    work: Work,
    *,
    address: str | None = None,
    gpus_per_run: float | None = None,
    cpus_per_run: float | None = None,
    cache: Path | None = None,
    shared: bool = True,
    retries: int = RETRIES,
) -> None:
    """Run what is not done yet, as ``run_locally`` does.

    address: of an existing cluster (``auto``: the one of this machine). Default: ``$RAY_ADDRESS``,
    else Ray is started here and stopped at the end. gpus_per_run: 0.5 puts two runs on a GPU.
    Default: 1 if the cluster has GPUs, else 0. cpus_per_run: CPU cores reserved for each run.
    Default: 1. shared: a run works in the study's folder if its node sees it; False: results are
    always sent back.
    """
    cpus = cpus_per_run or 1.0  # a number of cores is above 0
    folder = work.folder.absolute()
    study = study_folder.read_study(folder)
    splits = folder / "splits.csv"
    with _connect(address) as (ray, local):
        if work.stop.number is not None:  # while Ray started
            return
        gpus = _resolve_gpus(ray, gpus_per_run, cpus=cpus, local=local, work=work)
        task = RunTask(
            folder=folder,
            identity=file_identity(folder / "study.json") if shared else None,
            scratch=f"srjt-{secrets.token_hex(8)}",
            study=study,
            cwd=str(Path.cwd()),
            cache=cache,
            gpu=gpus > 0,
            threads=None if gpus > 0 else max(1, int(cpus)),
            files={splits.name: splits.read_bytes()} if study.study.splits else {},
        )
        on_ray = ray.remote(
            num_cpus=cpus, num_gpus=gpus, max_retries=retries, scheduling_strategy="SPREAD"
        )
        driver = _Driver(ray, on_ray(train_on_node), task, work, wanted={"CPU": cpus, "GPU": gpus})
        while (driver.waiting or driver.submitted) and work.stop.number is None:
            driver.poll()
        work.stop.begin_saving()
        driver.stop()


class _Driver:
    """The tasks of a study. task: what all runs have in common; wanted: resources of a run."""

    def __init__(
        self, ray: Any, remote: Any, task: RunTask, work: Work, *, wanted: dict[str, float]
    ) -> None:
        self.ray = ray
        self.remote = remote
        self.task = task
        self.work = work
        self.wanted = wanted
        self.folder = task.folder
        self.waiting = list(work.waiting)
        self.submitted: dict[Any, PlannedRun] = {}  # in the order in which Ray starts them
        # room: for runs at the same time
        self.room = 0
        self.nodes = set[str]()

    def poll(self) -> None:
        """Submit runs, wait a moment for reports and pass them on."""
        self._look_at_nodes()
        while self.waiting and len(self.submitted) < self.room + AHEAD:
            planned = self.waiting.pop(0)
            files = {**self.task.files, **_read_estimates(self.folder)}
            self.submitted[self.remote.remote(replace(self.task, key=planned.key, files=files))] = (
                planned
            )
        running = list(self.submitted.values())[: self.room]
        for planned in running:
            self.work.begin(planned)
        self.work.watcher.updated(running)
        ready, _ = self.ray.wait(list(self.submitted), timeout=POLL_SECONDS)
        for result in ready:
            planned = self.submitted.pop(result)
            self.work.end(planned, self._status(result, planned.key))

    def stop(self) -> None:
        """Interrupt every run that is left, and wait until all have saved their state."""
        self.waiting.clear()
        for result in self.submitted:
            self.ray.cancel(result)
        until = time.monotonic() + STOP_SECONDS
        while self.submitted and time.monotonic() < until:
            self.poll()

    def _look_at_nodes(self) -> None:
        """Count how many runs the nodes have room for; warn of a node that died, also where
        progress is not shown.

        Ray itself would wait for its head for a minute, and for the node of this process for ever.
        """
        context = self.ray.get_runtime_context()
        _check_reachable(context.gcs_address, attempts=3)
        alive = _alive(self.ray)
        if context.get_node_id() not in alive:
            raise SrjtError(
                "The Ray node on which this command runs died: start Ray again, and run the same"
                " command again. Finished runs are kept.",
                code="unreachable",
            )
        self.room = 0
        for resources in alive.values():
            rooms = []
            for name, amount in self.wanted.items():
                if amount > 0:
                    rooms.append(resources.get(name, 0) // amount)
            self.room += int(min(rooms))
        if self.nodes - set(alive):
            left = count_of(len(alive), "is", "are")
            warn(
                f"A node of the Ray cluster died; {left} left, with room for"
                f" {count_of(self.room, 'run')}."
            )
        self.nodes = set(alive)

    def _status(self, result: Any, key: str) -> str:
        """The status of a run that has ended, whose files are written here if its node does not see
        the study.

        It is the one that the node reports: a network file system may show its files here seconds
        later.
        """
        try:
            status, files = self.ray.get(result)
            if files:
                run = study_folder.run_folder(self.folder, key)
                run.mkdir(parents=True, exist_ok=True)
                with lock_folder(run):
                    if not is_finished(run):  # a finished run is not overwritten
                        write_files(self.folder, files)
            return str(status)
        except self.ray.exceptions.TaskCancelledError:
            return study_folder.run_status(self.folder, key)
        except self.ray.exceptions.RayError as problem:
            advice = "Ray gave up on this run: run the same command again."
            study_folder.write_error_report(
                self.folder,
                key,
                SrjtError(f"{type(problem).__name__}: {problem}\n{advice}", code="training_failed"),
            )
        except (OSError, SrjtError) as problem:
            study_folder.write_error_report(self.folder, key, problem)
        return "failed"


@contextlib.contextmanager
def _connect(address: str | None) -> Iterator[tuple[Any, bool]]:
    """Ray, connected, and whether Ray was started here for this study alone."""
    # the future default of Ray; without it Ray prints a warning
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray prints pages of a dead node's log; the driver says it in one sentence
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    try:
        ray = import_quietly("ray")
    except ImportError:
        raise missing_extra("ray", "ray", "Running a study on Ray") from None
    if ray.is_initialized():
        yield ray, False
        return
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    if where.startswith("ray://"):
        raise SrjtError(
            f"{where} is the address of a Ray client server: run this command on a node of the"
            " cluster with ",
            Option("address", "auto"),
            ", or submit it with ray job submit.",
            code="unreachable",
            option="address",
        )
    _check_reachable(where)
    local = where == "local"
    # only this machine reaches a Ray of our own, which asks nobody for a password
    options: dict[str, Any] = {}
    if local:
        options = {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
    try:
        ray.init(address=where, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise SrjtError(
            f"The Ray cluster at {where!r} cannot be used: {str(problem).splitlines()[0]}",
            code="unreachable",
            option="address",
        ) from None
    try:
        yield ray, local
    finally:
        ray.shutdown()


def _check_reachable(address: str, *, attempts: int = 1) -> None:
    """An error at once if nothing listens at the address; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return
    for attempt in range(attempts):
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as problem:
            if attempt == attempts - 1:
                raise SrjtError(
                    f"No Ray cluster answers at {address} ({problem.strerror or problem}): start"
                    " one with ray start --head, or leave out ",
                    Option("address"),
                    " to use this machine alone.",
                    code="unreachable",
                    option="address",
                ) from None
            time.sleep(RETRY_SECONDS)


def _alive(ray: Any) -> dict[str, dict[str, float]]:
    """The nodes that are alive: identity → resources."""
    alive = {}
    for node in ray.nodes():
        if node["Alive"]:
            alive[node["NodeID"]] = node["Resources"]
    return alive


def _resolve_gpus(
    ray: Any, requested: float | None, *, cpus: float, local: bool, work: Work
) -> float:
    """The share of a GPU for each run; an error, or a note, if no node has the resources of a
    run."""
    nodes = _alive(ray).values()
    gpus = requested
    if gpus is None:
        gpus = float(any(node.get("GPU", 0) for node in nodes))
    if not any(node.get("GPU", 0) >= gpus and node.get("CPU", 0) >= cpus for node in nodes):
        resources = f"{cpus:g} CPUs and {gpus:g} GPUs for a run"
        if local:
            raise SrjtError(
                f"This machine does not have {resources}: request less, or give ",
                Option("address"),
                ".",
                code="no_space",
            )
        work.watcher.note(
            f"No node of the cluster has {resources} now: the runs wait until one does."
        )
    return gpus
