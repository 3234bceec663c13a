"""Run a study on this machine: several runs at a time, each in its own process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from srjt.errors import Interrupted, SrjtError
from srjt.files import is_locked
from srjt.studies.cpu_settings import choose_cpu_settings
from srjt.studies.folder import error_file, explain_write_errors, run_folder, run_status
from srjt.studies.grid import PlannedRun
from srjt.studies.watcher import StudyWatcher
from srjt.training.engine.stop_signal import StopRequest

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

__all__ = ["Slots", "run_locally"]

WITHOUT_MONAI = ("tiny", "tiny-gn", "linear", "mlp")  # importing MONAI takes six seconds
POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How many runs at a time, on which devices, with how many threads each."""

    devices: tuple[str, ...]  # one per slot: ("cuda:0", "cuda:0", "cuda:1", …) or ("cpu", "cpu")
    threads: int | None = None

    @classmethod
    def detect(cls, *, jobs: int | None = None, device: str | None = None) -> Slots:
        """The slots of this machine: ``jobs`` (default 1) per GPU; without a GPU one run per core, one thread each."""
        import torch

        from srjt.training.engine.devices import choose_device

        if jobs is not None and jobs < 1:
            raise SrjtError(f"jobs must be at least 1; got {jobs}.")
        choose_device(device)  # an error if there is no such device
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
    planned_runs: Sequence[PlannedRun],
    *,
    slots: Slots,
    watcher: StudyWatcher,
    cache: Path | None = None,
) -> dict[str, str]:
    """Run what is not done yet; return key → status. A failing run does not stop the others.

    A server process imports torch once and forks a child per run, because importing takes longer than a short
    run. When the study is asked to stop, it stops the children, waits until they have saved their state, and
    raises ``Interrupted``.
    """
    from srjt.studies.executors.worker import run_by_key

    outcome = {planned.key: run_status(folder, planned.key) for planned in planned_runs}
    waiting = [planned for planned in planned_runs if outcome[planned.key] != "done"]
    if not waiting:
        return outcome
    _fetch_weights(waiting)
    with explain_write_errors(folder):
        if "cpu" in slots.devices:
            choose_cpu_settings(folder, waiting, threads=slots.threads)
        for planned in waiting:  # a new attempt starts without the old error; its checkpoints are kept
            error_file(folder, planned.key).unlink(missing_ok=True)
    context = _start_forkserver(waiting)
    free = list(slots.devices)
    running: dict[str, tuple[PlannedRun, BaseProcess, str]] = {}
    with StopRequest() as stop:
        while running or (waiting and stop.number is None):
            while free and stop.number is None and (index := _first_unlocked(folder, waiting)) is not None:
                planned, device = waiting.pop(index), free.pop(0)
                arguments = (
                    str(folder),
                    planned.key,
                    device,
                    slots.threads,
                    None if cache is None else str(cache),
                )
                process: BaseProcess = context.Process(target=run_by_key, args=arguments)
                process.start()
                running[planned.key] = (planned, process, device)
                watcher.started(planned)
            watcher.updated([planned for planned, _, _ in running.values()])
            if stop.number is not None:
                for (
                    _,
                    process,
                    _,
                ) in running.values():  # repeated, because a starting run may miss the first signal
                    process.terminate()
            if not wait([process.sentinel for _, process, _ in running.values()], timeout=POLL_SECONDS):
                continue
            for key, (planned, process, device) in list(running.items()):
                if process.is_alive():
                    continue
                process.join()
                del running[key]
                free.append(device)
                outcome[key] = _final_status(
                    folder, planned, process.exitcode, stopping=stop.number is not None
                )
                watcher.ended(planned, outcome[key])
        if stop.number is not None:
            done = sum(status == "done" for status in outcome.values())
            raise Interrupted(stop.number, f"The study stopped with {done} of {len(outcome)} runs done.")
    return outcome


def _fetch_weights(waiting: Sequence[PlannedRun]) -> None:
    """Fetch pretrained weights before every run reads its images; an error if no run can have its weights."""
    from srjt.training.trained import fetch_weights

    problems, wanted = [], {(p.config.network, p.config.weights, p.config.pretrained): p for p in waiting}
    for planned in wanted.values():
        try:
            fetch_weights(planned.config)
        except SrjtError as problem:  # of this network's runs alone, which will report it
            problems.append(problem)
    if len(problems) == len(wanted):
        raise problems[0]


def _first_unlocked(folder: Path, waiting: Sequence[PlannedRun]) -> int | None:
    """The first run that no process works on: a run whose study was killed may still be saving its state."""
    return next(
        (i for i, planned in enumerate(waiting) if not is_locked(run_folder(folder, planned.key))), None
    )


def _start_forkserver(planned_runs: Sequence[PlannedRun]) -> ForkServerContext:
    """The process that imports torch once and ends with the last run.

    It ignores SIGTERM, which job schedulers send to all processes of a job: without the server the study would not
    learn how its runs ended.
    """
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    # torch._dynamo is imported by every optimiser, which takes two seconds
    preload = ["srjt.studies.executors.worker", "torch._dynamo"]
    large = {str(planned.config.network) for planned in planned_runs} - set(WITHOUT_MONAI)
    if any(network.startswith("timm:") for network in large):
        preload.append("timm")
    if any(not network.startswith("timm:") for network in large):
        preload.append("monai.networks.nets")
    context.set_forkserver_preload(preload)
    # Python allows signal handlers in the main thread only
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN) if in_main_thread else None
    try:
        forkserver.ensure_running()
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)
    return context


def _final_status(folder: Path, planned: PlannedRun, exitcode: int | None, *, stopping: bool) -> str:
    """The status of a run whose process has ended; a process that died without an error report gets one."""
    from srjt.studies.executors.worker import write_error_report

    status = run_status(folder, planned.key)
    if status in ("done", "failed") or stopping or exitcode is None:
        return status
    # killed, out of memory, or a crash in native code
    number = -exitcode if exitcode < 0 else exitcode - 128 if exitcode > 128 else 0
    how = f"by {signal.Signals(number).name}" if number in set(signal.Signals) else f"with status {exitcode}"
    hint = "; the machine may be out of memory" if number == signal.SIGKILL else ""
    write_error_report(
        folder,
        planned.key,
        SrjtError(
            f"The process of this run was ended {how}{hint}. Its checkpoints are kept: run the same command again to "
            "resume."
        ),
    )
    return "failed"
