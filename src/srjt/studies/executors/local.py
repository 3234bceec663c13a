"""Running a study on this machine: several runs at a time, each in its own process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from srjt.errors import Interrupted
from srjt.files import is_locked
from srjt.studies.folder import error_file, run_folder, run_status
from srjt.studies.grid import PlannedRun
from srjt.training.engine.stop_signal import StopRequest

__all__ = ["Slots", "StudyWatcher", "run_locally"]

SMALL = ("tiny", "tiny-gn", "linear", "mlp")  # networks that do not need MONAI's six seconds
PAUSE = 0.2  # seconds between two looks at the processes


class StudyWatcher(Protocol):
    """Who watches a study."""

    def started(self, cell: PlannedRun) -> None: ...
    def looked(self, running: Sequence[PlannedRun]) -> None: ...
    def ended(self, cell: PlannedRun, status: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How many runs at a time, on which devices, with how many threads each."""

    devices: tuple[str, ...]  # one per slot: ("cuda:0", "cuda:0", "cuda:1", …) or ("cpu", "cpu")
    threads: int | None = None

    @classmethod
    def here(cls, *, jobs: int | None = None, device: str | None = None) -> Slots:
        """As this machine suggests: on GPUs ``jobs`` (1) each; else one run per core, one thread each."""
        import torch

        from srjt.training.engine.devices import choose_device

        choose_device(device)  # says at once what is wrong with it
        if device is None and torch.cuda.is_available():
            gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
            return cls(devices=tuple(gpu for _ in range(jobs or 1) for gpu in gpus))
        if device is not None and device != "cpu":
            return cls(devices=(device,) * (jobs or 1))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        jobs = jobs or cores
        return cls(devices=("cpu",) * jobs, threads=max(1, cores // jobs))


def run_locally(
    folder: Path,
    cells: Sequence[PlannedRun],
    *,
    slots: Slots,
    watcher: StudyWatcher,
    cache: Path | None = None,
) -> dict[str, str]:
    """Run what is not done yet → key → status. One failing run does not stop the others.

    A server process imports torch once and forks a child per run, so that a run of seconds is not dominated by
    its imports. Asked to stop, it asks the children, waits until they have saved their state, and passes it on.
    """
    from srjt.studies.executors.worker import run_by_key

    outcome = {cell.key: run_status(folder, cell.key) for cell in cells}
    waiting = [cell for cell in cells if outcome[cell.key] != "done"]
    if not waiting:
        return outcome
    context = _server(waiting)
    for cell in waiting:  # a second try begins with a clean slate; its checkpoints are kept
        error_file(folder, cell.key).unlink(missing_ok=True)
    free = list(slots.devices)
    running: dict[str, tuple[PlannedRun, BaseProcess, str]] = {}
    with StopRequest() as stop:
        while running or (waiting and stop.number is None):
            while free and stop.number is None and (index := _next(folder, waiting)) is not None:
                cell, device = waiting.pop(index), free.pop(0)
                arguments = (
                    str(folder),
                    cell.key,
                    device,
                    slots.threads,
                    None if cache is None else str(cache),
                )
                process: BaseProcess = context.Process(target=run_by_key, args=arguments)
                process.start()
                running[cell.key] = (cell, process, device)
                watcher.started(cell)
            watcher.looked([cell for cell, _, _ in running.values()])
            if stop.number is not None:
                for _, process, _ in running.values():  # again and again: a run that just begins may miss it
                    process.terminate()
            if not wait([process.sentinel for _, process, _ in running.values()], timeout=PAUSE):
                continue
            for key, (cell, process, device) in list(running.items()):
                if process.is_alive():
                    continue
                process.join()
                del running[key]
                free.append(device)
                outcome[key] = _outcome(folder, cell, process.exitcode, asked=stop.number is not None)
                watcher.ended(cell, outcome[key])
        if stop.number is not None:
            done = sum(status == "done" for status in outcome.values())
            raise Interrupted(stop.number, f"The study stopped with {done} of {len(outcome)} runs done.")
    return outcome


def _next(folder: Path, waiting: Sequence[PlannedRun]) -> int | None:
    """Which nobody works on: a run whose study was killed may still be saving its state."""
    return next((i for i, cell in enumerate(waiting) if not is_locked(run_folder(folder, cell.key))), None)


def _server(cells: Sequence[PlannedRun]) -> ForkServerContext:
    """The process that imports torch once. It does not heed SIGTERM, which schedulers send to all processes of a
    job: without it, the study would not learn how its runs ended. It ends with the last of them."""
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    preload = [
        "srjt.studies.executors.worker",
        "torch._dynamo",
    ]  # the latter is imported by every optimiser, in two seconds
    large = {str(cell.config.network) for cell in cells} - set(SMALL)
    if any(network.startswith("timm:") for network in large):
        preload.append("timm")
    if any(not network.startswith("timm:") for network in large):
        preload.append("monai.networks.nets")
    context.set_forkserver_preload(preload)
    here = threading.current_thread() is threading.main_thread()  # elsewhere Python forbids handlers
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN) if here else None
    try:
        forkserver.ensure_running()
    finally:
        if here:
            signal.signal(signal.SIGTERM, before)
    return context


def _outcome(folder: Path, cell: PlannedRun, exitcode: int | None, *, asked: bool) -> str:
    status = run_status(folder, cell.key)
    if status in ("done", "failed") or asked or exitcode is None:
        return status
    # it died without a word: killed, out of memory, a crash in native code
    ended = exitcode if exitcode < 0 else 128 - exitcode if exitcode > 128 else 0
    how = f"by {signal.Signals(-ended).name}" if -ended in set(signal.Signals) else f"with status {exitcode}"
    hint = "; memory may have run out" if -ended == signal.SIGKILL else ""
    report = error_file(folder, cell.key)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(
        f"The process of this run was ended {how}{hint}. What it had saved is kept: the same command goes on from "
        "there.\n"
    )
    return "failed"
