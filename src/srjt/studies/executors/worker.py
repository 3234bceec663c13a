"""Train one run of a study in a worker process: if it crashes or runs out of memory, the other runs continue."""

from __future__ import annotations

import contextlib
import shutil
import traceback
from dataclasses import replace
from pathlib import Path

from srjt.errors import SrjtError, warnings_about
from srjt.files import write_atomically
from srjt.methods.plugins import import_modules
from srjt.studies.cpu_settings import cpu_setting
from srjt.studies.folder import error_file, estimates_folder, read_study, run_folder, study_config
from srjt.studies.grid import PlannedRun, StudyData
from srjt.studies.kept_data import FEEDS, open_kept_data
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
    if manifest.arrays is not None and not manifest.are_features:
        manifest = replace(manifest, arrays=data.resized_images(planned.config, cache=cache))
    run = run_folder(folder, planned.key)
    # not the method: all methods share an estimate, and what is said twice is shown once
    with warnings_about(f"Noise {planned.noise.label}, fold {planned.fold}, seed {planned.seed}"):
        train(
            manifest,
            out=run,
            config=planned.config,
            split=data.splits[planned.fold],
            device=device,
            cache=cache,
            shared_estimate=(estimates or estimates_folder(folder)) / data.estimate_name(planned),
            cpu_setting=cpu,
            grade_names=data.config.grade_names,
            progress=False,
            feeds=FEEDS,
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
        write_atomically(report, text.encode("utf-8", "surrogateescape"), follow_links=False)


def run_by_key(folder: str, key: str, cache: str | None = None, *, device: str | None = None) -> None:
    """The task of a worker process: open the study, unless it is open, find the planned run, and train it."""
    path = Path(folder)
    try:
        facts = read_study(path)
        import_modules(facts["study"]["train"].get("imports", ()))
        decoded = None if cache is None else Path(cache)
        data = open_kept_data(study_config(facts), cache=decoded)
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
    except Exception as problem:
        write_error_report(path, key, problem)
        raise
