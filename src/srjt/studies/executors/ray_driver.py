"""Running a study on a Ray cluster, an existing one or one of this machine alone: one task per run.

Ray chooses the node, hands out the GPUs, and runs a task again when its node or process dies. A run that raises
an exception has failed; it is not tried again, and the others go on.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from srjt.errors import Interrupted, SrjtError, missing_extra
from srjt.files import lock_folder, write_atomically
from srjt.studies.executors.local import StudyWatcher
from srjt.studies.executors.ray_task import ALSO, FILES, Order, Report, execute, place_token
from srjt.studies.executors.worker import write_error_report
from srjt.studies.folder import error_file, read_study, run_folder, run_status
from srjt.studies.grid import PlannedRun
from srjt.training.engine.stop_signal import StopRequest
from srjt.training.record.run_folder import is_finished

__all__ = ["run_on_ray"]

LOOK = 0.5  # seconds between two looks at the tasks
RETRIES = (
    5  # of a run whose node or process died; on machines that may be taken away at any time, that happens
)
SHUTDOWN_SECONDS = 60.0  # seconds that cancelled runs get to save their state
SHARED = (
    "The nodes see the study's folder: runs write there, and go on from their checkpoints if a node dies."
)
STREAMED = "results are streamed back, and a run whose node dies begins anew on another."


def run_on_ray(
    folder: Path,
    cells: Sequence[PlannedRun],
    *,
    watcher: StudyWatcher,
    address: str | None = None,
    gpus_per_run: float | None = None,
    cpus_per_run: float = 1.0,
    cache: Path | None = None,
    shared: bool = True,
    retries: int = RETRIES,
    say: Callable[[str], None] = lambda sentence: None,
) -> dict[str, str]:
    """Run what is not done yet → key → status, as ``run_locally`` does.

    address: of an existing cluster (``auto``: the one of this machine); else ``$RAY_ADDRESS``, else one is started
    here and stopped at the end. gpus_per_run: 0.5 puts two runs on a GPU; None is 1 where the cluster has GPUs.
    shared: each run finds out by a file of random name whether its node sees the study's folder, and works there;
    False: it need not look, results are streamed back in any case.
    say: is told what a person should know.
    """
    outcome = {cell.key: run_status(folder, cell.key) for cell in cells}
    waiting = [cell for cell in cells if outcome[cell.key] in ("left", "failed")]
    if not waiting:
        return outcome
    for cell in waiting:  # a second try begins with a clean slate; its checkpoints are kept
        error_file(folder, cell.key).unlink(missing_ok=True)
    folder = folder.absolute()
    study = read_study(folder)["study"]
    with _connected(address) as (ray, own), place_token(folder) as token:
        gpus = _settled_gpus(ray, gpus_per_run, cpus=cpus_per_run, own=own, say=say)
        splits = ray.put((folder / "splits.csv").read_bytes()) if study.get("splits") else None
        task = ray.remote(
            num_gpus=gpus,
            num_cpus=cpus_per_run,
            max_retries=retries,
            num_returns="streaming",
            scheduling_strategy="SPREAD",
        )(_task)
        runs = _Runs(ray, folder=folder, outcome=outcome, watcher=watcher, say=say)
        with StopRequest() as stop:
            for cell in waiting:
                order = Order(
                    folder=str(folder),
                    token=token,
                    may_share=shared,
                    study=study,
                    cell=cell.facts(),
                    cwd=str(Path.cwd()),
                    cache=None if cache is None else str(cache),
                    gpu=gpus > 0,
                    threads=None if gpus > 0 else max(1, int(cpus_per_run)),
                )
                runs.streams[task.remote(order, splits)] = cell
            while runs.streams and stop.number is None:
                runs.look()
            if stop.number is not None:
                runs.cancel()
                done = sum(status == "done" for status in outcome.values())
                raise Interrupted(stop.number, f"The study stopped with {done} of {len(outcome)} runs done.")
    return outcome


def _task(order: Order, splits: bytes | None) -> Iterator[Report]:
    """The body of a task; the nodes import it by its name."""
    context = importlib.import_module("ray").get_runtime_context()
    yield from execute(order, splits, process=f"{context.get_node_id()}:{os.getpid()}")


class _Runs:
    """The tasks under way. Each is a stream of two reports: that it has begun, and how it ended."""

    def __init__(
        self,
        ray: Any,
        *,
        folder: Path,
        outcome: dict[str, str],
        watcher: StudyWatcher,
        say: Callable[[str], None],
    ) -> None:
        self.ray, self.folder, self.outcome, self.watcher, self.say = ray, folder, outcome, watcher, say
        self.streams: dict[Any, PlannedRun] = {}
        self.begun: dict[str, Report] = {}
        self.modes: set[bool] = set()

    def look(self) -> None:
        """Wait a moment for news and pass them on."""
        ready, _ = self.ray.wait(list(self.streams), timeout=LOOK, fetch_local=False)
        for stream in ready:
            self._hear(stream)
        self.watcher.looked([cell for cell in self.streams.values() if cell.key in self.begun])

    def cancel(self) -> None:
        """Ask every run to stop, and wait until those under way have saved their state."""
        for stream in self.streams:
            self.ray.cancel(stream)
        until = time.monotonic() + SHUTDOWN_SECONDS
        while self.streams and time.monotonic() < until:
            self.look()

    def _hear(self, stream: Any) -> None:
        cell = self.streams[stream]
        try:
            report: Report = self.ray.get(next(stream))
        except self.ray.exceptions.TaskCancelledError:
            self._end(stream, "left")
        except (self.ray.exceptions.RayError, StopIteration) as problem:
            write_error_report(self.folder, cell.key, SrjtError(_given_up(problem)))
            self._end(stream, "failed")
        else:
            if report.status == "running":
                self._begin(cell, report)
            else:
                if report.process != self.begun[cell.key].process:
                    self.say(f"{cell.key} was taken up again: the node or the process that ran it died.")
                self._end(stream, self._settle(cell.key, report))

    def _begin(self, cell: PlannedRun, report: Report) -> None:
        self.begun[cell.key] = report
        if report.shared not in self.modes:
            self.modes.add(report.shared)
            self.say(SHARED if report.shared else f"{report.host} does not see {self.folder}: {STREAMED}")
        self.watcher.started(cell)

    def _end(self, stream: Any, status: str) -> None:
        cell = self.streams.pop(stream)
        self.outcome[cell.key] = status
        if cell.key not in self.begun:
            if status == "left":  # cancelled in the queue
                return
            self.watcher.started(cell)
        self.watcher.ended(cell, status)

    def _settle(self, key: str, report: Report) -> str:
        """Bring what the node sent into the study's folder. A shared folder has it already.

        The status is the node's word: a network file system may show its files here seconds later.
        """
        if report.status == "failed" and not report.shared:
            write_error_report(self.folder, key, SrjtError(report.error.rstrip("\n")))
        if report.files is not None:
            try:
                _deliver(run_folder(self.folder, key), report.files)
            except (OSError, SrjtError) as problem:
                write_error_report(self.folder, key, problem)
                return "failed"
        return report.status


def _deliver(run: Path, files: Mapping[str, bytes]) -> None:
    """Write a finished run, ``summary.json`` last: until then it does not count. One that is there is left alone."""
    run.mkdir(parents=True, exist_ok=True)
    with lock_folder(run):
        if not is_finished(run):
            for name in (*ALSO, *FILES):
                if name in files:
                    write_atomically(run / name, files[name])


def _given_up(problem: Exception) -> str:
    first = str(problem).strip().splitlines()[:1]
    return (
        f"Ray gave this run up ({type(problem).__name__}: {first[0] if first else 'without a word'}). Give the same "
        f"command again to try it anew; Ray's logs have more.\n\n{problem}"
    )


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[tuple[Any, bool]]:
    """Ray, connected, and whether the cluster is our own: started here for this study alone."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is reported to anyone
    os.environ.setdefault(
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
    )  # its future default, without its warning
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
            f"{where} is the address of a Ray client server, which cannot stream results: give this command on a "
            "node of the cluster with --address auto, or hand it over with ray job submit."
        )
    _knock(where)
    own = where == "local"
    here = {"_node_ip_address": "127.0.0.1", "include_dashboard": False} if own else {}
    try:
        ray.init(address=where, logging_level=logging.ERROR, log_to_driver=False, **here)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise SrjtError(
            f"No Ray cluster could be used at {where!r}: {str(problem).splitlines()[0]}"
        ) from None
    try:
        with _quiet(ray):
            yield ray, own
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Ray prints pages of a dead node's log and has no switch for it; ``say`` gets one sentence instead."""
    module = ray._private.worker
    before = getattr(module, "print_to_stdstream", None)
    module.print_to_stdstream = lambda *message, **how: None
    try:
        yield
    finally:
        module.print_to_stdstream = before


def _knock(address: str) -> None:
    """Ray itself would try for minutes before it says that nobody is there."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError as problem:
            raise SrjtError(
                f"No Ray cluster answers at {address} ({problem.strerror or problem}): start one with ray start "
                "--head, or leave --address away to use this machine alone."
            ) from None


def _settled_gpus(
    ray: Any, asked: float | None, *, cpus: float, own: bool, say: Callable[[str], None]
) -> float:
    """The share of a GPU for each run; an error, or a word, where no node has what a run asks for."""
    if asked is not None and not 0.0 <= asked <= 1.0:
        raise SrjtError(f"A run uses one GPU or a share of it: gpus_per_run lies in [0, 1]; got {asked:g}.")
    if cpus <= 0:
        raise SrjtError(f"cpus_per_run must be positive; got {cpus:g}.")
    offers = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = asked if asked is not None else float(any(offer.get("GPU", 0) for offer in offers))
    if not any(offer.get("GPU", 0) >= gpus and offer.get("CPU", 0) >= cpus for offer in offers):
        wish = f"{cpus:g} CPUs and {gpus:g} GPUs for a run"
        if own:
            raise SrjtError(
                f"This machine does not offer {wish}: ask for less, or name a cluster by --address."
            )
        say(f"No node of the cluster offers {wish} now: the runs wait until one does.")
    return gpus
