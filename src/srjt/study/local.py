"""Running a study on this machine: several runs at a time, each in its own process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from srjt.errors import Interrupted
from srjt.study.cells import Cell
from srjt.study.folder import cell_status, error_file, run_folder
from srjt.training.stopping import StopRequest

__all__ = ["Slots", "StudyWatcher", "run_locally"]

SMALL = ("tiny", "tiny-gn", "linear", "mlp")  # networks that do not need MONAI's six seconds
PAUSE = 0.2  # seconds between two looks at the processes


class StudyWatcher(Protocol):
    """Who watches a study."""

    def started(self, cell: Cell) -> None: ...
    def looked(self, running: Sequence[Cell]) -> None: ...
    def ended(self, cell: Cell, status: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How many runs at a time, on which devices, with how many threads each."""

    devices: tuple[str, ...]  # one per slot: ("cuda:0", "cuda:0", "cuda:1", …) or ("cpu", "cpu")
    threads: int | None = None

    @classmethod
    def here(cls, *, jobs: int | None = None, device: str | None = None) -> Slots:
        """As this machine suggests: on GPUs ``jobs`` (1) each; else one run per core, one thread each."""
        import torch

        if device is None and torch.cuda.is_available():
            gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
            return cls(devices=tuple(gpu for _ in range(jobs or 1) for gpu in gpus))
        if device is not None and device != "cpu":
            return cls(devices=(device,) * (jobs or 1))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        jobs = jobs or cores
        return cls(devices=("cpu",) * jobs, threads=max(1, cores // jobs))


def run_locally(
    folder: Path, cells: Sequence[Cell], *, slots: Slots, watcher: StudyWatcher, cache: Path | None = None
) -> dict[str, str]:
    """Run what is not done yet → key → status. One failing run does not stop the others.

    A server process imports torch once and forks a child per run, so that a run of seconds is not dominated by
    its imports. Asked to stop, it asks the children, waits until they have saved their state, and passes it on.
    """
    from srjt.study.worker import run_by_key

    context = multiprocessing.get_context("forkserver")
    preload = ["srjt.study.worker", "torch._dynamo"]  # the latter is imported by every optimiser, in two seconds
    if any(cell.config.network not in SMALL for cell in cells):
        preload.append("monai.networks.nets")
    context.set_forkserver_preload(preload)
    outcome = {cell.key: cell_status(folder, cell.key) for cell in cells}
    waiting = [cell for cell in cells if outcome[cell.key] in ("left", "failed")]
    for cell in waiting:  # a second try begins with a clean slate; its checkpoints are kept
        error_file(folder, cell.key).unlink(missing_ok=True)
    free = list(slots.devices)
    running: dict[str, tuple[Cell, BaseProcess, str]] = {}
    with StopRequest() as stop:
        while running or (waiting and stop.number is None):
            while waiting and free and stop.number is None:
                cell, device = waiting.pop(0), free.pop(0)
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
            for key, (cell, process, device) in list(running.items()):
                if process.is_alive():
                    continue
                process.join()
                del running[key]
                free.append(device)
                outcome[key] = _outcome(folder, cell, process.exitcode)
                watcher.ended(cell, outcome[key])
            if stop.number is not None:
                _ask_to_stop([process for _, process, _ in running.values()])
                for _, process, _ in running.values():
                    process.join()
            time.sleep(PAUSE)
        if stop.number is not None:
            done = sum(status == "done" for status in outcome.values())
            raise Interrupted(stop.number, f"The study stopped with {done} of {len(outcome)} runs done.")
    return outcome


def _outcome(folder: Path, cell: Cell, exitcode: int | None) -> str:
    status = cell_status(folder, cell.key)
    if (
        status in ("done", "failed")
        or exitcode is None
        or exitcode in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    ):
        return status
    # it died without a word: killed, out of memory, a crash in native code
    report = error_file(folder, cell.key)
    report.parent.mkdir(parents=True, exist_ok=True)
    how = (
        f"by signal {-exitcode} ({signal.Signals(-exitcode).name})"
        if exitcode < 0
        else f"with status {exitcode}"
    )
    report.write_text(
        f"The process of this run ended {how} without saying why; if by SIGKILL, memory may have run out. "
        f"Its checkpoints in {run_folder(folder, cell.key).name} are kept: the next srjt study goes on from them.\n"
    )
    return "failed"


def _ask_to_stop(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.terminate()
