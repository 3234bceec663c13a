"""One run of a study in a process of its own: it can crash, run out of memory or be killed alone."""

from __future__ import annotations

import contextlib
import sys
import traceback
from pathlib import Path

import torch

from srjt.errors import Interrupted, SrjtError
from srjt.study.cells import Cell, StudyData
from srjt.study.folder import error_file, read_study, run_folder, study_config
from srjt.study.source import open_data
from srjt.training.checkpoint import write_atomically
from srjt.training.train import train

__all__ = ["leave_word", "run_by_key", "run_cell"]


def run_cell(
    folder: Path, data: StudyData, cell: Cell, *, device: str | None, cache: Path | None = None
) -> None:
    """Train one cell into its folder, going on where an earlier try stopped."""
    manifest, _ = data.labelled(cell.noise, cell.fold, cell.seed)
    train(
        manifest,
        out=run_folder(folder, cell.key),
        split=data.splits[cell.fold],
        config=cell.config,
        device=device,
        cache=cache,
    )
    error_file(folder, cell.key).unlink(missing_ok=True)


def leave_word(folder: Path, key: str, problem: BaseException) -> None:
    """Why a run failed: the sentence of an expected problem, the traceback of any other."""
    expected = isinstance(problem, SrjtError)
    text = f"{problem}\n" if expected else "".join(traceback.format_exception(problem))
    report = error_file(folder, key)
    with contextlib.suppress(OSError):
        report.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(report, text.encode())


def run_by_key(
    folder: str, key: str, device: str | None, threads: int | None, cache: str | None = None
) -> None:
    """What a worker process does: open the study, find the cell, run it; its exit status tells how it went."""
    if threads is not None:
        torch.set_num_threads(threads)
    path = Path(folder)
    try:
        facts = read_study(path)
        data = open_data(study_config(facts))
        cell = data.find(next(known for known in facts["cells"] if known["key"] == key))
        if cell.key != key:
            raise SrjtError("The data have changed since the study was planned: give the same command again.")
        run_cell(path, data, cell, device=device, cache=None if cache is None else Path(cache))
    except Interrupted as stopped:
        sys.exit(stopped.status)
    except Exception as problem:
        leave_word(path, key, problem)
        sys.exit(1)
