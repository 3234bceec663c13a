"""Train one run of a study in its own process: if it crashes or runs out of memory, the other runs continue."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from srjt.errors import Interrupted, SrjtError
from srjt.files import is_locked, write_atomically
from srjt.methods.plugins import import_modules
from srjt.studies.cpu_settings import cpu_setting
from srjt.studies.folder import error_file, estimates_folder, read_study, run_folder, study_config
from srjt.studies.grid import PlannedRun, StudyData
from srjt.studies.open_data import open_data
from srjt.training.engine.cpu_tuning import CpuSetting
from srjt.training.train import train

__all__ = ["run_by_key", "run_planned", "write_error_report"]


def run_planned(
    folder: Path,
    data: StudyData,
    planned: PlannedRun,
    *,
    device: str | None,
    cache: Path | None = None,
    estimates: Path | None = None,
    cpu: CpuSetting | None = None,
) -> None:
    """Train a planned run in its folder, or resume it.

    estimates: folder of the noise estimates, which all methods share. Default: the one in the study's folder.
    cpu: the study's choice for this run, if it is trained on a CPU.
    """
    manifest, _ = data.labelled(planned.noise, planned.fold, planned.seed)
    run = run_folder(folder, planned.key)
    train(
        manifest,
        out=run,
        config=planned.config,
        split=data.splits[planned.fold],
        device=device,
        cache=cache,
        shared_estimate=(estimates or estimates_folder(folder)) / data.estimate_name(planned),
        cpu_setting=cpu,
        progress=False,
    )
    # A finished run is never resumed, and its checkpoints would be three quarters of the study's disk space.
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    error_file(folder, planned.key).unlink(missing_ok=True)


def write_error_report(folder: Path, key: str, problem: BaseException) -> None:
    """Write why a run failed: the sentence of a SrjtError, the traceback of any other exception."""
    expected = isinstance(problem, SrjtError)
    text = f"{problem}\n" if expected else "".join(traceback.format_exception(problem))
    report = error_file(folder, key)
    with contextlib.suppress(OSError):
        report.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(report, text.encode())


def run_by_key(
    folder: str, key: str, device: str | None, threads: int | None, cache: str | None = None
) -> None:
    """The main function of a worker process: open the study, find the planned run, train it."""
    if threads is not None:
        torch.set_num_threads(threads)
    warnings.showwarning = _print_warning
    path = Path(folder)
    try:
        _install_signal_handlers(run_folder(path, key))
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        facts = read_study(path)
        import_modules(facts["study"]["train"].get("imports", ()))
        decoded = None if cache is None else Path(cache)
        data = open_data(study_config(facts), format=int(facts.get("format", 1)), cache=decoded)
        entry = next((entry for entry in facts["cells"] if entry["key"] == key), None)
        if entry is None or (planned := data.find(entry)).key != key:
            raise SrjtError(
                "The data or the plan have changed since the study began: run the same command again."
            )
        run_planned(
            path,
            data,
            planned,
            device=device,
            cache=decoded,
            cpu=cpu_setting(path, planned.config),
        )
    except Interrupted as stopped:
        _handle_signals(signal.SIG_IGN)
        sys.exit(stopped.status)
    except Exception as problem:
        write_error_report(path, key, problem)
        sys.exit(1)


def _install_signal_handlers(run: Path) -> None:
    """Before training, a signal ends the process at once; during training it must not disturb the saving.

    Training handles the first signal itself and saves its state. More signals follow: the study repeats its
    request, and Ctrl-C and job schedulers signal all processes of a job.
    """

    def stop_before_training(number: int, frame: FrameType | None) -> None:
        if not is_locked(run):
            _handle_signals(signal.SIG_IGN)
            raise Interrupted(number, "Stopped before training began.")

    _handle_signals(stop_before_training)


def _handle_signals(handler: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _print_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning as one sentence, without the line of code that it came from."""
    print(f"Warning: {message}", file=sys.stderr)


def _stop_with_parent() -> None:
    """Stop this run if the study was killed: a killed study cannot stop its runs."""
    study = multiprocessing.parent_process()
    if study is None:
        return
    study.join()
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)
