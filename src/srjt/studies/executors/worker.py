"""One run of a study in a process of its own: it can crash, run out of memory or be killed alone."""

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
from srjt.studies.folder import error_file, estimates_folder, read_study, run_folder, study_config
from srjt.studies.grid import PlannedRun, StudyData
from srjt.studies.open_data import open_data
from srjt.training.train import train

__all__ = ["run_by_key", "run_cell", "write_error_report"]


def run_cell(
    folder: Path,
    data: StudyData,
    cell: PlannedRun,
    *,
    device: str | None,
    cache: Path | None = None,
    estimates: Path | None = None,
) -> None:
    """Train one cell into its folder, going on where an earlier try stopped.

    estimates: where the noise that cells are told is estimated, once for all methods; in the study by default.
    """
    manifest, _ = data.labelled(cell.noise, cell.fold, cell.seed)
    run = run_folder(folder, cell.key)
    shared = (estimates or estimates_folder(folder)) / data.estimate_name(cell)
    train(
        manifest,
        out=run,
        config=cell.config,
        split=data.splits[cell.fold],
        device=device,
        cache=cache,
        shared_estimate=shared,
    )
    # Nobody goes on from a finished run, and its checkpoints are three quarters of what a study takes on disk.
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    error_file(folder, cell.key).unlink(missing_ok=True)


def write_error_report(folder: Path, key: str, problem: BaseException) -> None:
    """Why a run failed: the sentence of an expected problem, the traceback of any other."""
    expected = isinstance(problem, SrjtError)
    text = f"{problem}\n" if expected else "".join(traceback.format_exception(problem))
    report = error_file(folder, key)
    with contextlib.suppress(OSError):
        report.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(report, text.encode())


def _heed_signals(run: Path) -> None:
    """End at once while there is nothing to save, and never disturb the saving.

    Training itself takes the first signal and saves its state. Others follow it: the study repeats its request,
    and Ctrl-C and job schedulers signal all processes of a job.
    """

    def heed(number: int, frame: FrameType | None) -> None:
        if not is_locked(run):
            _on_signals(signal.SIG_IGN)
            raise Interrupted(number, "Stopped before training began.")

    _on_signals(heed)


def _on_signals(handler: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _say_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    """As a sentence: the line of code that it came from helps nobody here."""
    print(f"Warning: {message}", file=sys.stderr)


def _end_with_the_study() -> None:
    """A study that was killed cannot stop its runs: they notice, save their state and end by themselves."""
    study = multiprocessing.parent_process()
    if study is None:
        return
    study.join()
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)


def run_by_key(
    folder: str, key: str, device: str | None, threads: int | None, cache: str | None = None
) -> None:
    """What a worker process does: open the study, find the cell, run it; its exit status tells how it went."""
    if threads is not None:
        torch.set_num_threads(threads)
    warnings.showwarning = _say_warning
    path = Path(folder)
    try:
        _heed_signals(run_folder(path, key))
        threading.Thread(target=_end_with_the_study, daemon=True).start()
        facts = read_study(path)
        import_modules(facts["study"]["train"].get("imports", ()))
        data = open_data(study_config(facts))
        planned = next((known for known in facts["cells"] if known["key"] == key), None)
        if planned is None or (cell := data.find(planned)).key != key:
            raise SrjtError("The data or the plan have changed meanwhile: give the same command again.")
        run_cell(path, data, cell, device=device, cache=None if cache is None else Path(cache))
    except Interrupted as stopped:
        _on_signals(signal.SIG_IGN)
        sys.exit(stopped.status)
    except Exception as problem:
        write_error_report(path, key, problem)
        sys.exit(1)
