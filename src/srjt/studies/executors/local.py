"""Run a study on this machine: several runs at a time, in worker processes that execute one run after another."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from srjt.errors import Interrupted, SrjtError, count_of
from srjt.files import is_locked
from srjt.studies.cpu_settings import choose_cpu_settings
from srjt.studies.folder import error_file, explain_write_errors, run_folder, run_status
from srjt.studies.grid import PlannedRun
from srjt.studies.run_times import longest_first
from srjt.studies.watcher import StudyWatcher
from srjt.training.engine.stop_signal import StopRequest
from srjt.training.engine.worker_pool import Ended, Task, WorkerPool

__all__ = ["Slots", "run_locally"]

MOST_JOBS = 1000


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How many runs at a time, on which devices, with how many threads each."""

    devices: tuple[str, ...]  # one per slot: ("cuda:0", "cuda:0", "cuda:1", …) or ("cpu", "cpu")
    threads: int | None = None

    @classmethod
    def detect(cls, *, jobs: int | None = None, device: str | None = None) -> Slots:
        """The slots of this machine: ``jobs`` (default 1) per GPU; without a GPU one run per core, one thread each.

        device: one, or several GPUs as in ``cuda:0,cuda:2``. Default: all GPUs, or the CPU if there is none.
        """
        import torch

        from srjt.cores import cores
        from srjt.training.engine.devices import choose_device

        if jobs is not None and not 1 <= jobs <= MOST_JOBS:
            raise SrjtError(f"jobs must be between 1 and {MOST_JOBS:,}; got {jobs}.")
        if device is None and torch.cuda.is_available():
            gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        else:
            names = ["cpu"] if device is None else [name.strip() for name in device.split(",")]
            chosen = [choose_device(name) for name in names]  # an error if there is no such device
            gpus = [name for name, found in zip(names, chosen, strict=True) if found.type == "cuda"]
            if gpus and len(gpus) < len(names):
                raise SrjtError(f"A study uses GPUs or the CPU, not both; got {device!r}.")
        if gpus:
            return cls(devices=tuple(gpu for _ in range(jobs or 1) for gpu in gpus))
        jobs = jobs or cores()
        return cls(devices=("cpu",) * jobs, threads=max(1, cores() // jobs))


def run_locally(
    folder: Path,
    planned_runs: Sequence[PlannedRun],
    *,
    slots: Slots,
    watcher: StudyWatcher,
    cache: Path | None = None,
) -> dict[str, str]:
    """Run what is not done yet; return key → status. A failing run does not stop the others.

    Each slot has a worker process, which keeps torch, the opened data and the images on its GPU from one run to the
    next. Runs that fail unexpectedly while they share a GPU are tried again, one at a time. When the study
    is asked to stop, it stops the workers, waits until they have saved their state, and raises ``Interrupted``.
    """
    outcome = {planned.key: run_status(folder, planned.key) for planned in planned_runs}
    waiting = longest_first([planned for planned in planned_runs if outcome[planned.key] != "done"])
    if not waiting:
        return outcome
    _fetch_weights(waiting)
    if "cpu" in slots.devices:
        with explain_write_errors(folder):
            choose_cpu_settings(folder, waiting, threads=slots.threads)
    with StopRequest() as stop:
        crashed = _run_in_workers(
            folder, waiting, outcome, slots=slots, watcher=watcher, cache=cache, stop=stop
        )
        if crashed and stop.number is None:
            watcher.note(
                f"{count_of(len(crashed), 'run')} failed while several shared a GPU, which one may have crashed for "
                "all. Trying again, one at a time."
            )
            alone = replace(slots, devices=tuple(dict.fromkeys(slots.devices)))
            _run_in_workers(
                folder, crashed, outcome, slots=alone, watcher=watcher, cache=cache, stop=stop, again=True
            )
        if stop.number is not None:
            done = sum(status == "done" for status in outcome.values())
            raise Interrupted(stop.number, f"The study stopped with {done} of {len(outcome)} runs done.")
    return outcome


def _run_in_workers(
    folder: Path,
    planned_runs: Sequence[PlannedRun],
    outcome: dict[str, str],
    *,
    slots: Slots,
    watcher: StudyWatcher,
    cache: Path | None,
    stop: StopRequest,
    again: bool = False,
) -> list[PlannedRun]:
    """Run them and write their status into ``outcome``; returns those that failed unexpectedly on a shared GPU.

    again: whether the watcher knows them to have started.
    """
    from srjt.studies.executors.worker import run_by_key

    waiting, crashed = list(planned_runs), list[PlannedRun]()
    with explain_write_errors(folder):
        for planned in waiting:  # a new attempt starts without the old error; its checkpoints are kept
            error_file(folder, planned.key).unlink(missing_ok=True)
    by_key = {planned.key: planned for planned in waiting}
    pool = WorkerPool(
        devices=slots.devices,
        threads=slots.threads,
        networks=sorted({str(planned.config.network) for planned in waiting}),
    )
    with pool:
        while pool.running or (waiting and stop.number is None):
            while pool.has_idle and stop.number is None:
                index = _first_unlocked(folder, waiting)
                if index is None:
                    break
                planned = waiting.pop(index)
                task = Task(
                    name=planned.key,
                    function=run_by_key,
                    arguments=(str(folder), planned.key, None if cache is None else str(cache)),
                    folder=run_folder(folder, planned.key),
                    settings=planned.config.deterministic,  # cuBLAS can be made so only before its first use
                )
                pool.start(task)
                if not again:
                    watcher.started(planned)
            watcher.updated([by_key[key] for key in pool.running])
            if stop.number is not None:
                pool.terminate()
            for ended in pool.wait():
                planned, stopping = by_key[ended.name], stop.number is not None
                if pool.shares_gpus and not (ended.expected and ended.exitcode is None) and not stopping:
                    crashed.append(planned)
                    continue
                outcome[planned.key] = _final_status(folder, planned, ended, stopping=stopping)
                watcher.ended(planned, outcome[planned.key])
    return crashed


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


def _final_status(folder: Path, planned: PlannedRun, ended: Ended, *, stopping: bool) -> str:
    """The status of a run whose process has ended; a process that died without an error report gets one."""
    from srjt.studies.executors.worker import write_error_report

    status = run_status(folder, planned.key)
    if status in ("done", "failed") or stopping:
        return status
    exitcode = ended.exitcode
    if exitcode is None:  # it has raised an exception, and its report could not be written
        return "failed"
    # killed, out of memory, or a crash in native code
    number = -exitcode if exitcode < 0 else exitcode - 128 if exitcode > 128 else 0
    how = f"by {signal.Signals(number).name}" if number in set(signal.Signals) else f"with status {exitcode}"
    hint = "; the machine may be out of memory" if number == signal.SIGKILL else ""
    sentence = ended.error or (
        f"The process of this run was ended {how}{hint}. Its checkpoints are kept: run the same command again to "
        "resume."
    )
    write_error_report(folder, planned.key, SrjtError(sentence))
    return "failed"
