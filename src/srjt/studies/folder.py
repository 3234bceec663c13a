"""A study's folder: its plan, the state of its runs, and how one of them is trained in a worker
process."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    JsonValue,
    NonNegativeInt,
    PositiveInt,
)

from srjt import files
from srjt._version import __version__
from srjt.data.grades import Grades, distinct
from srjt.data.splits import write_splits
from srjt.errors import Message, Option, SrjtError, count_of, warn, warnings_about
from srjt.files import is_locked, write_sealed_json
from srjt.methods import import_modules
from srjt.settings import current_names
from srjt.studies.config import NoiseSpec, StudyConfig, parse_noise
from srjt.studies.plan import FEEDS, PlannedRun, StudyPlan, open_kept_data
from srjt.training.folder import has_summary, lost_files
from srjt.training.image_identity import image_digest
from srjt.training.train import train_from_config
from srjt.training.trained import Setup

# A study's folder: its plan and the state of its runs.
#
# study.json                     the settings, the data, the noise, the versions, the planned runs
# splits.csv                     id, fold, split
# estimates/<name>/noise.json    the estimated noise, where the rate is "auto"
# runs/<key>/                    the folder of one run
# errors/<key>.txt               the error of a failed run, as Python's users read it
# errors/<key>.json              its parts, from which the command line writes its own options

FORMAT = 5
REALISED = ("nominal_rate", "realised_rate", "realised_matrix")  # of injected noise


class Cell(BaseModel, extra="forbid"):
    """A planned run. Its key is the name of a folder as StudyPlan makes it: no separators, not
    hidden, not ".."."""

    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,249}$")]
    method: str
    variant: str
    noise: Annotated[str, AfterValidator(lambda text: parse_noise(text) and text)]
    fold: NonNegativeInt
    seed: NonNegativeInt


class _Settings(BaseModel, extra="allow"):
    """Those of ``StudyConfig`` that a report shows; it may name methods that are not installed
    here."""

    source: str = ""
    splits: str | None = None
    noise_rate: float | str | None = None
    seeds: list[NonNegativeInt] = [0]
    train: dict[str, Any] = {}
    preset: str | None = None
    grade_names: dict[str, str] = {}

    def config(self) -> StudyConfig:
        """The settings; modules that define methods are imported first."""
        import_modules(self.train.get("imports", ()))
        trained = current_names(self.train, warned=False)
        return StudyConfig.from_dict({**self.model_dump(), "train": trained})


class KnownNoise(BaseModel, extra="forbid"):
    """The noise of a fold with a seed."""

    noise: str
    kind: str
    fold: NonNegativeInt
    seed: NonNegativeInt
    rho: float | None
    told_rate: float | None
    told_matrix: list[list[float]] | None
    injected: bool
    nominal_rate: float | None
    realised_rate: float | None
    realised_matrix: list[list[float | None]] | None  # None: of a grade without samples
    condition_number: float | None


class StudyFile(BaseModel, extra="allow"):
    """``study.json``."""

    format: Literal[5]
    name: str
    study: _Settings
    grades: Annotated[list[str], AfterValidator(distinct)]
    class_counts: list[NonNegativeInt]
    patients: NonNegativeInt | None
    # whether the samples are features, and have true grades; None: a study of an earlier version
    features: bool | None = None
    true_grades: bool | None = None
    folds: PositiveInt
    held_out: list[str] = []
    noise: list[KnownNoise]
    images: str | None
    command: str
    splits_hash: str
    versions: dict[str, str]
    cells: list[Cell]

    def facts(self) -> dict[str, Any]:
        """The contents of the file, without its seal."""
        return self.model_dump(exclude={"sha256"})


@contextlib.contextmanager
def lock_study(folder: Path) -> Iterator[None]:
    """Allow one study at a time in a folder: a second one would change the plan while the first one
    runs."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with files.lock_folder(folder):
        yield


def writing(folder: Path) -> contextlib.AbstractContextManager[None]:
    """A full or read-only disk is one sentence."""
    return files.explain_write_errors(f"The study cannot be written to {folder}")


def write_plan(folder: Path, data: StudyPlan, *, command: str) -> list[PlannedRun]:
    """Write the plan and return the planned runs. Runs of an earlier plan stay, and are not
    repeated."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "study.json"
        before = None
        if file.exists():
            before = read_study(folder)  # an error if it is not a study of srjt
        elif files.visible_names(folder) - {"runs"}:
            raise SrjtError(
                f"{folder} holds something else already: choose another ",
                Option("out"),
                ".",
                code="folder_in_use",
            )
        Grades(data.manifest.grades, data.config.grade_names)  # an error if they do not fit
        planned_runs = list(data.planned_runs())
        # lock_study removes it if the process is killed here
        draft = folder / f".splits.csv.{os.getpid()}.tmp"
        write_splits(draft, data.manifest, data.splits)
        splits_hash = _splits_hash(draft)
        images = image_digest(data.manifest)
        if before and before.splits_hash == splits_hash and before.images != images:
            raise SrjtError(
                "An image has changed since this study began: restore it, or change ",
                Option("out"),
                ".",
                code="data_changed",
            )
        patients = data.manifest.patients
        versions = {"srjt": __version__, "torch": torch.__version__, "numpy": np.__version__}
        write_sealed_json(
            file,
            {
                "format": FORMAT,
                "name": folder.name,
                "study": data.config.to_dict(),
                "grades": list(data.manifest.grades),
                "class_counts": data.manifest.class_counts.tolist(),
                "patients": None if patients is None else len(set(patients)),
                "features": data.manifest.are_features,
                "true_grades": data.manifest.true_labels is not None,
                "folds": len(data.splits),
                "held_out": [split.held_out for split in data.splits if split.held_out],
                "noise": [_noise(data, spec, fold, seed) for spec, seed, fold in data.labellings()],
                "images": images,
                "command": command,
                "splits_hash": splits_hash,
                "versions": {**versions, "python": platform.python_version()},
                "cells": [planned.facts() for planned in planned_runs],
            },
        )
        draft.replace(folder / "splits.csv")
        if before:
            _warn_of_others(folder, before, planned_runs)
        return planned_runs


def _warn_of_others(folder: Path, before: StudyFile, planned_runs: list[PlannedRun]) -> None:
    """Warn of finished runs that are no longer planned."""
    keys = {planned.key for planned in planned_runs}
    done = 0
    for cell in before.cells:
        done += cell.key not in keys and run_status(folder, cell.key) == "done"
    if done:
        warn(
            f"{count_of(done, 'finished run')} of {folder} {'is' if done == 1 else 'are'} not"
            " part of the study as it is asked for now: results and report leave them out. To"
            " add methods, name the former ones too."
        )


def _noise(data: StudyPlan, spec: NoiseSpec, fold: int, seed: int) -> dict[str, Any]:
    _, injected = data.labelled(spec, fold, seed)
    rate, matrix = data.given_noise(spec)
    _, injected_matrix, rho = spec.on(data.manifest.class_counts)
    if rate == "auto":  # the noise.json of each run has its estimate
        rate = None
        matrix = injected_matrix
    condition_number = None
    if matrix is not None:
        condition_number = float(np.nan_to_num(np.linalg.cond(matrix)))
    return {
        "noise": spec.label,
        "kind": spec.kind,
        "fold": fold,
        "seed": seed,
        "rho": rho,
        "told_rate": rate,
        "told_matrix": matrix,
        "injected": injected is not None,
        **{name: getattr(injected, name, None) for name in REALISED},
        "condition_number": condition_number,
    }


def read_study(folder: Path) -> StudyFile:
    """``study.json``."""
    path = folder / "study.json"
    files.check_regular_files(folder)
    if not path.exists():
        raise SrjtError(
            f"{folder} is not the folder of a study: there is no study.json in it.",
            code="wrong_file",
        )
    advice = "restore it, or write the plan again in another folder."
    return files.read_sealed_json(path, StudyFile, advice=advice)


def check_splits(folder: Path, study: StudyFile) -> None:
    """Raise an error if ``splits.csv`` is not the one that the runs were planned with."""
    file = folder / "splits.csv"
    if file.is_file() and _splits_hash(file) != study.splits_hash:
        raise SrjtError(
            f"{file} is not the file that srjt has written: run the same srjt study command again.",
            code="damaged_file",
        )


def _splits_hash(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()


def run_folder(folder: Path, key: str) -> Path:
    return folder / "runs" / key


def error_file(folder: Path, key: str) -> Path:
    return folder / "errors" / f"{key}.txt"


class KeptError(BaseModel, extra="forbid"):
    """``errors/<key>.json``: a message that names options."""

    format: Literal[1]
    code: str
    parts: list[str | tuple[str] | tuple[str, JsonValue]]  # text; an option; one with its value

    @classmethod
    def of(cls, problem: SrjtError) -> KeptError:
        parts: list[Any] = []
        for part in problem.message.parts:
            if not isinstance(part, Option):
                parts.append(str(part))
            elif part.value is ...:
                parts.append((part.name,))
            else:
                parts.append((part.name, part.value))
        return cls(format=1, code=problem.code, parts=parts)

    @property
    def message(self) -> Message:
        parts = []
        for part in self.parts:
            parts.append(part if isinstance(part, str) else Option(*part))
        return Message(*parts)


def read_error(folder: Path, key: str) -> str:
    """Why a run failed: a message with its options, or a traceback; "" if there is neither, or a
    link that leads out of the study."""
    path = error_file(folder, key)
    text = ""
    with contextlib.suppress(OSError):  # the run may just have been started again
        if files.is_inside(path, folder):
            text = path.read_text(encoding="utf-8", errors="replace")
    kept = path.with_suffix(".json")
    # studies of earlier versions have only the text; a traceback has no parts
    with contextlib.suppress(SrjtError):
        if files.is_inside(kept, folder):
            message = files.read_json(kept, KeptError).message
            if text == f"{message}\n":
                return message
    return text


def forget_error(folder: Path, key: str) -> None:
    """Delete what is known of an earlier failure."""
    path = error_file(folder, key)
    path.unlink(missing_ok=True)
    path.with_suffix(".json").unlink(missing_ok=True)


def run_status(folder: Path, key: str) -> str:
    """done, running, failed or left (not started)."""
    run = run_folder(folder, key)
    if has_summary(run):  # written last; the weights may have been deleted to save space
        if lost_files(run):
            return "failed"
        return "done"
    if is_locked(run):
        return "running"
    damaged = (run / "summary.json").exists()
    if damaged or error_file(folder, key).exists():
        return "failed"
    return "left"


# Train one run of a study in a worker process: if it crashes or runs out of memory, the other runs
# continue.


def run_planned(
    folder: Path,
    data: StudyPlan,
    planned: PlannedRun,
    *,
    device: str | None,
    cache: Path | None = None,
) -> None:
    """Train a planned run in its folder, or resume it."""
    config = planned.config
    manifest, _ = data.labelled(planned.noise, planned.fold, planned.seed)
    if manifest.arrays is not None and not manifest.are_features:
        manifest = replace(
            manifest, arrays=data.resized_images(config.image_size, config.resize, cache)
        )
    run = run_folder(folder, planned.key)
    split = data.split(planned.noise, planned.fold)
    # not the method: all methods share an estimate, and what is said twice is shown once
    with warnings_about(f"Noise {planned.noise.label}, fold {planned.fold}, seed {planned.seed}"):
        train_from_config(
            manifest,
            config,
            setup=Setup(
                # of a share the others are left out on purpose: no warning says that they are on
                # no side
                split=split if planned.noise.share == 1.0 else lambda manifest: split,
                device=device,
                cache=cache,
                feeds=FEEDS,
            ),
            out=run,
            grade_names=data.config.grade_names,
            shared_estimate=folder / "estimates" / data.estimate_name(planned),
        )
    # A finished run is never resumed, and its checkpoints would be three quarters of the study's
    # disk space.
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    forget_error(folder, planned.key)


def write_error_report(folder: Path, key: str, problem: BaseException) -> None:
    """Write why a run failed: the message of a SrjtError, the traceback of any other exception."""
    text = f"{problem}\n"
    if not isinstance(problem, SrjtError):
        text = "".join(traceback.format_exception(problem))
    report = error_file(folder, key)
    with contextlib.suppress(OSError):
        report.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(report, text.encode("utf-8", "surrogateescape"))
        report.with_suffix(".json").unlink(missing_ok=True)
        if isinstance(problem, SrjtError):
            with contextlib.suppress(ValueError):  # a value or a file name that JSON cannot hold
                parts = files.as_json(KeptError.of(problem).model_dump())
                files.write_atomically(report.with_suffix(".json"), parts)


def run_by_key(
    folder: Path, key: str, cache: Path | None = None, *, device: str | None = None
) -> None:
    """The task of a worker process: open the study, unless it is open, find the planned run, and
    train it."""
    try:
        study = read_study(folder)
        data = open_kept_data(study.study.config(), cache=cache)
        cell = next((cell for cell in study.cells if cell.key == key), None)
        if cell is None or (planned := data.find(cell.model_dump())).key != key:
            raise SrjtError(
                "The data or the plan have changed: run the same command again.",
                code="data_changed",
            )
        run_planned(folder, data, planned, device=device, cache=cache)
    except Exception as problem:
        write_error_report(folder, key, problem)
        raise
