"""The planned runs of a study, each with its settings and the key of its folder; its data, opened once; how long they
will take, and how their progress is followed; and the folder: the plan, the state of the runs, and how one is trained.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import platform
import re
import shutil
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pydantic import AfterValidator, BaseModel, Field, NonNegativeInt, PositiveInt

from srjt import files, noise
from srjt._version import __version__
from srjt.data.checks import file_facts, group_duplicates
from srjt.data.grades import Grades
from srjt.data.images.decode import Resize
from srjt.data.images.feed import FeedCache
from srjt.data.images.store import open_store
from srjt.data.manifest import LeakageWarning, Manifest, drop_unusable
from srjt.data.sources import read
from srjt.data.splits import Split, corrupt_sides, folds, read_splits, write_splits
from srjt.data.synthetic import generate
from srjt.errors import SrjtError, count_of, warn, warnings_about
from srjt.files import cache_folder, is_locked, load_arrays, save_arrays, write_json
from srjt.methods import import_modules, lookup
from srjt.progress import Bar
from srjt.studies.config import ESTIMATED, MethodSpec, NoiseSpec, StudyConfig, learning_curve, parse_noise
from srjt.training.config import TrainConfig
from srjt.training.folder import has_summary, image_digest
from srjt.training.single_run import fingerprint, training_seconds
from srjt.training.train import train, warm_up
from srjt.training.workers import StopRequest

# The planned runs of a study: methods × noises × folds × seeds, each with its settings and the key of its folder.
#
# All methods use the same splits and, per noise, fold and seed, the same corrupted labels: comparisons are paired.


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One training of a study."""

    method: MethodSpec
    noise: NoiseSpec
    fold: int
    seed: int
    config: TrainConfig
    key: str  # name of its folder; two planned runs with the same key have the same result

    def facts(self) -> dict[str, Any]:
        """Its entry in ``study.json``."""
        named = {"method": self.method.name, "variant": self.method.variant, "noise": self.noise.label}
        return {"key": self.key, **named, "fold": self.fold, "seed": self.seed}


@dataclass(eq=False)
class StudyPlan:
    """The samples of a study, their folds and their noises."""

    config: StudyConfig
    manifest: Manifest
    splits: list[Split]

    @property
    def fold_numbers(self) -> tuple[int, ...]:
        wanted = self.config.only_folds
        if wanted is None:
            return tuple(range(len(self.splits)))
        if strange := [k for k in wanted if not 0 <= k < len(self.splits)]:
            raise SrjtError(f"There is no fold {strange[0]}: folds are numbered 0 … {len(self.splits) - 1}.")
        return wanted

    @property
    def noises(self) -> list[NoiseSpec]:
        texts = self.config.noises
        if self.config.learning_curve:
            texts = learning_curve(texts, corrected=self._better_labels[0] is not None)
        return list(dict.fromkeys(parse_noise(text) for text in texts))

    @cached_property
    def _better_labels(self) -> tuple[npt.NDArray[np.int64] | None, float]:
        """(N,) the true grades, or the verified ones where there are some, and the share of labels without one; None
        if neither is known."""
        true, verified = self.manifest.true_labels, self.manifest.verified_labels
        if true is not None or verified is None:
            return true, 0.0
        return np.where(verified >= 0, verified, self.manifest.labels), float((verified < 0).mean())

    @lru_cache(maxsize=8)  # noqa: B019 (the object lives as long as one command)
    def labelled(self, spec: NoiseSpec, fold: int, seed: int) -> tuple[Manifest, noise.NoiseReport | None]:
        """The manifest with the labels of one noise, fold and seed, and a report of the injected noise."""
        manifest, split = self.manifest, self.splits[fold]
        better, _ = self._better_labels
        if self.config.learning_curve and better is not None:
            # better labels are worth nothing to a judge who has the worse ones
            sides = [split.test, *([split.train, split.validation] if spec.corrected else [])]
            rows, labels = np.concatenate(sides), manifest.labels
            labels[rows] = better[rows]
            judged = replace(manifest, table=manifest.table.assign(grade=labels))
            manifest = manifest.with_labels(labels) if spec.corrected else judged
        _, matrix, _ = spec.on(manifest.class_counts)
        if matrix is None:
            return manifest, None
        # a separate seed for each noise, fold and seed
        draw = hashlib.blake2b(f"{spec.labels}\0{fold}\0{seed}".encode(), digest_size=6).digest()
        return corrupt_sides(manifest, split, matrix, seed=int.from_bytes(draw, "big"))

    def split(self, spec: NoiseSpec, fold: int) -> Split:
        """The fold, with the share of its training patients that a noise has. Small shares are part of larger ones."""
        split = self.splits[fold]
        if spec.share == 1.0:
            return split
        groups = self.manifest.groups
        owner = np.array([row if groups is None else groups[row] for row in split.train]).astype(str)
        patients = np.unique(owner)
        kept = np.random.default_rng([fold, 0]).permutation(patients)[: math.ceil(spec.share * len(patients))]
        return replace(split, train=split.train[np.isin(owner, kept)])

    @lru_cache(maxsize=1)  # noqa: B019
    def resized_images(self, size: int, resize: Resize, cache: Path | None) -> npt.NDArray[np.generic]:
        """Images that are in memory, resized once for all runs."""
        return open_store(self.manifest, size=size, resize=resize, cache=cache).pixels

    @lru_cache(maxsize=64)  # noqa: B019
    def given_noise(self, spec: NoiseSpec) -> tuple[float | Literal["auto"] | None, Any]:
        """ε and P that the methods get; ε is "auto" if both are estimated from the training labels.

        If no noise is injected, ε is the study's ``noise_rate``, and P its ``transition`` or, without one, the quasi
        matrix with rate ε on the observed class mix.
        """
        counts = self.manifest.class_counts
        if self.config.noise_rate == "auto":
            return self._estimated_noise(spec)
        if spec.kind != "none":
            return spec.on(counts)[:2]
        rate, matrix = self.config.noise_rate, self.config.transition
        if self.config.learning_curve and spec.labels not in self.config.noises:  # wrong labels that are left
            rate, matrix = (rate or 0.0) * (spec.corrected and self._better_labels[1]), None
        if matrix is not None:
            return rate, noise.check_matrix(matrix, num_classes=self.manifest.num_classes)
        return NoiseSpec(label="", kind="quasi", rate=rate).on(counts)[:2]

    def _estimated_noise(self, spec: NoiseSpec) -> tuple[Literal["auto"], Any]:
        given = self.config.transition if spec.kind == "none" else None
        return "auto", given and noise.check_matrix(given, num_classes=self.manifest.num_classes)

    def labellings(self) -> Iterator[tuple[NoiseSpec, int, int]]:
        """The noise, seed and fold of each set of labels, in the order in which runs are planned."""
        return product(self.noises, self.config.seeds, self.fold_numbers)

    def planned_runs(self) -> Iterator[PlannedRun]:
        """All runs, noise by noise and fold by fold, so that an unfinished study already compares all methods."""
        for (spec, seed, fold), method in product(self.labellings(), self.config.method_specs()):
            yield self._plan(method, spec, fold, seed)

    def find(self, facts: Mapping[str, Any]) -> PlannedRun:
        """The planned run with this entry in ``study.json``, without planning all the others."""
        wanted = (facts["method"], facts["variant"])
        method = next(m for m in self.config.method_specs() if (m.name, m.variant) == wanted)
        return self._plan(method, parse_noise(facts["noise"]), facts["fold"], facts["seed"])

    def _plan(self, method: MethodSpec, spec: NoiseSpec, fold: int, seed: int) -> PlannedRun:
        own, (rate, matrix) = method.own_rate, self.given_noise(spec)
        if own == "auto":
            rate, matrix = self._estimated_noise(spec)  # even if the study knows the noise
        elif own is not None:
            rate = own
        given = {"noise_rate": rate, "transition": None if matrix is None else np.asarray(matrix).tolist()}
        needs = lookup(method.name).method.needs
        for need in needs:
            if given[need] is None and rate != "auto":
                raise SrjtError(
                    f"{method.name} needs the noise of the labels: give `noise_rate` for data that are noisy "
                    "already (a number, or auto), or inject noise with `noise='quasi:0.2'`."
                )
        # Only what a method needs is part of its settings: a different P must not repeat co-teaching.
        used = {need: given[need] for need in needs}
        options = dict(method.options)
        if options.get("label_matrix") == ESTIMATED:
            del options["label_matrix"]
            used |= {"soft_labels": "estimated", "noise_rate": rate}
        if rate == "auto" and any(used.get(need) is None for need in needs):
            used["noise_rate"] = rate  # the matrix is estimated as well
        config = TrainConfig().replace(
            **{**self.config.train, **method.settings, **used},
            method=method.name,
            method_options=options,
            seed=seed,
        )
        config = config.for_data(features=self.manifest.are_features)
        key = self._name(config, spec, fold, seed, method.name, method.variant)
        return PlannedRun(method=method, noise=spec, fold=fold, seed=seed, config=config, key=key)

    def estimate_name(self, planned: PlannedRun) -> str:
        """Folder name of the noise estimate that a run uses: the same for all methods with the same labels and the
        same settings of the warm-up."""
        return self._name(warm_up(planned.config), planned.noise, planned.fold, planned.seed)

    def _name(self, config: TrainConfig, spec: NoiseSpec, fold: int, seed: int, *method: str) -> str:
        """A folder's name, with a hash of all that decides what is in it."""
        facts = [config.determining(), self._fingerprint(spec, fold, seed), image_digest(self.manifest)]
        digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=6).hexdigest()
        parts = [*method, spec.label, f"fold{fold}", f"seed{seed}", digest]
        return "_".join(re.sub(r"[^A-Za-z0-9.+-]+", "-", part)[:60] for part in parts if part)

    @lru_cache(maxsize=1024)  # noqa: B019
    def _fingerprint(self, spec: NoiseSpec, fold: int, seed: int) -> str:
        return fingerprint(self.labelled(spec, fold, seed)[0], self.split(spec, fold))


# Open a study's data: the same way in the process that plans it and in every process that trains a run.


def open_data(
    config: StudyConfig,
    *,
    cache: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    quiet: bool = False,
) -> StudyPlan:
    """Read the source, find identical images, and make the folds.

    cache: folder for the hashes of the images. progress: called with (images hashed, images in all). quiet: show no
    bar while the headers of DICOM files are read.
    """
    if not config.source:
        raise SrjtError("A study needs data: give a source, or 'synthetic' for the synthetic dataset.")
    if config.source == "synthetic":
        manifest = _synthetic(dict(config.reading))
    else:
        reading = read(config.source, **config.reading, progress=not quiet)
        manifest = drop_unusable(reading.manifest, reading.problems)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakageWarning)  # shown once by the command, and in the report
        near = config.group_near_duplicates
        manifest = group_duplicates(manifest, near=near, cache=cache, progress=progress)
        if config.splits is not None:
            splits = read_splits(Path(config.splits), manifest)
        else:
            seed, by = config.split_seed, config.split_by
            splits = folds(manifest, folds=config.folds, seed=seed, by=by, hold_out=config.hold_out)
    return StudyPlan(config, manifest, splits)


def _synthetic(options: dict[str, Any]) -> Manifest:
    """The synthetic dataset, generated once and cached: it takes seconds, and every process of a study needs it."""
    text = json.dumps([__version__, options], sort_keys=True)
    name = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    file = cache_folder() / "synthetic" / f"{name}.npz"
    cached = load_arrays(file)
    with contextlib.suppress(ValueError, KeyError):
        table = pd.read_json(io.StringIO(str(cached["table"])), orient="split", dtype=False)
        table["patient"] = table["patient"].astype(str)
        return Manifest(table=table, grades=tuple(map(str, cached["grades"])), arrays=cached["pixels"])
    try:
        manifest = generate(**options)
    except TypeError as problem:
        raise SrjtError(
            f"The synthetic dataset takes images, patients, size, grades and seed, whole numbers: {problem}."
        ) from None
    assert manifest.arrays is not None
    table_text = np.array(manifest.table.to_json(orient="split", double_precision=15))
    arrays = {"pixels": manifest.arrays, "grades": np.array(manifest.grades), "table": table_text}
    with contextlib.suppress(OSError):  # without a writable cache the study still runs
        file.parent.mkdir(parents=True, exist_ok=True)
        save_arrays(file, arrays)
    return manifest


# The opened data of a study, kept by a worker process from one run to the next.

FEEDS = FeedCache()  # the images that this process has on a GPU

# settings → facts of the files, data; the last study of this process
_kept: dict[str, tuple[str, StudyPlan]] = {}


def open_kept_data(config: StudyConfig, *, cache: Path | None = None) -> StudyPlan:
    """As ``open_data``, but only once per process, unless a file has changed since."""
    settings = json.dumps([config.to_dict(), str(cache), str(Path.cwd())], sort_keys=True)
    if settings in _kept:
        facts, data = _kept[settings]
        if facts == _file_facts(data):
            return data
    _kept.clear()
    data = open_data(config, cache=cache, quiet=True)
    _kept[settings] = (_file_facts(data), data)
    return data


def _file_facts(data: StudyPlan) -> str:
    """Size and time of the images, and of every file or folder that the settings may name."""
    config = data.config
    named = [config.source, config.splits, *config.reading.values()]
    images = data.manifest.paths if data.manifest.arrays is None else []
    return file_facts([*(Path(name) for name in named if isinstance(name, str)), *images])


# How long the runs of a study will take: a few steps of each method, times the runs; and which are started first.


def run_seconds(data: StudyPlan, planned_runs: Sequence[PlannedRun], *, device: torch.device) -> list[float]:
    """Seconds of each run, by a few steps on ``device``; nothing is decoded, written or downloaded.

    Methods with as many networks and the same settings share one measurement. Start-up, decoding and noise estimates
    are not included.
    """
    measured: dict[object, float] = {}
    seconds = []
    for planned in planned_runs:
        kind = (_networks(planned), planned.noise.share, str(sorted(planned.method.settings.items())))
        if kind not in measured:
            split = data.split(planned.noise, planned.fold)
            measured[kind] = training_seconds(data.manifest, split, config=planned.config, device=device)
        seconds.append(measured[kind])
    return seconds


def longest_first(planned_runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """In the order in which runs are started: a long one that starts last would leave the other devices idle."""
    return sorted(planned_runs, key=_networks, reverse=True)


def _networks(planned: PlannedRun) -> int:
    return lookup(planned.method.name, registered_by=planned.config.imports).networks


# Follow the progress of a study.


class StudyWatcher:
    """Receives the progress of a study, and moves a bar, if any; override what should do something else."""

    def __init__(self, bar: Bar | None = None) -> None:
        self.bar, self.done, self.total = bar or Bar(), 0, 0

    def begin(self, planned_runs: Sequence[PlannedRun], *, done: int) -> None:
        """The study begins; ``done`` of its runs are finished already."""
        self.done, self.total = done, len(planned_runs)
        self.updated([])

    def note(self, text: str) -> None:
        """A sentence for the user."""
        self.bar.note(text)

    def started(self, planned: PlannedRun) -> None:
        """A run begins."""

    def updated(self, running: Sequence[PlannedRun]) -> None:
        """Called several times per second with the runs in progress."""
        named = ", ".join(f"{run.method.name} {run.noise.label} fold {run.fold}" for run in running)
        self.bar.update(self.done, self.total, f"{self.done}/{self.total} runs", named)

    def ended(self, planned: PlannedRun, status: str) -> None:
        """A run has ended."""
        self.done += status == "done"
        show = self.bar.note if status == "failed" else self.bar.line
        show(f"[{self.done}/{self.total}] {status}: {planned.key}")
        if self.done == self.total:  # nothing will be updated any more
            self.updated([])


@dataclass(frozen=True, kw_only=True)
class Work:
    """The runs of a study that are not done, and how they end."""

    folder: Path
    waiting: list[PlannedRun]  # the longest first
    outcome: dict[str, str]  # key → status, of all runs
    watcher: StudyWatcher
    stop: StopRequest
    begun: set[str] = field(default_factory=set)

    def begin(self, planned: PlannedRun) -> None:
        """Tell the watcher, once for each run."""
        if planned.key not in self.begun:
            self.begun.add(planned.key)
            self.watcher.started(planned)

    def end(self, planned: PlannedRun, status: str) -> None:
        self.begin(planned)
        self.outcome[planned.key] = status
        self.watcher.ended(planned, status)


# A study's folder: its plan and the state of its runs.
#
# study.json                     the settings, the data, the injected noise, the versions and the planned runs
# splits.csv                     id, fold, split
# estimates/<name>/noise.json    the estimated noise, where the rate is "auto"
# runs/<key>/                    the folder of one run
# errors/<key>.txt               the error of a failed run

FORMAT = 5
REALISED = ("nominal_rate", "realised_rate", "realised_matrix")  # of injected noise


class _Cell(BaseModel, extra="forbid"):
    """A planned run. Its key is the name of a folder as StudyPlan makes it: no separators, not hidden, not ".."."""

    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,249}$")]
    method: str
    variant: str
    noise: Annotated[str, AfterValidator(lambda text: parse_noise(text) and text)]
    fold: NonNegativeInt
    seed: NonNegativeInt


class _Settings(BaseModel, extra="allow"):
    """Those of ``StudyConfig`` that a report shows; it may name methods that are not installed here."""

    source: str = ""
    noise_rate: float | str | None = None
    seeds: list[NonNegativeInt] = [0]
    train: dict[str, Any] = {}
    preset: str | None = None
    grade_names: dict[str, str] = {}


class _Noise(BaseModel, extra="forbid"):
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
    grades: list[str]
    class_counts: list[NonNegativeInt]
    patients: NonNegativeInt | None
    folds: PositiveInt
    held_out: list[str] = []
    noise: list[_Noise]
    images: str | None
    command: str
    splits_hash: str
    versions: dict[str, str]
    cells: list[_Cell]


@contextlib.contextmanager
def lock_study(folder: Path) -> Iterator[None]:
    """Allow one study at a time in a folder: a second one would change the plan while the first one runs."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with files.lock_folder(folder):
        yield


def writing(folder: Path) -> contextlib.AbstractContextManager[None]:
    """A full or read-only disk is one sentence."""
    return files.explain_write_errors(f"The study cannot be written to {folder}")


def write_plan(folder: Path, data: StudyPlan, *, command: str) -> list[PlannedRun]:
    """Write the plan and return the planned runs. Runs of an earlier plan stay, and are not repeated."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file, before = folder / "study.json", dict[str, Any]()
        if file.exists():
            before = read_study(folder)  # an error if it is not a study of srjt
        elif any(p.name != "runs" for p in folder.iterdir() if not p.name.startswith(".")):
            raise SrjtError(f"{folder} holds something else already: choose another `out`.")
        Grades(data.manifest.grades, data.config.grade_names)  # an error if they do not fit
        planned_runs = list(data.planned_runs())
        # lock_study removes it if the process is killed here
        draft = folder / f".splits.csv.{os.getpid()}.tmp"
        write_splits(draft, data.manifest, data.splits)
        splits_hash = hashlib.blake2b(draft.read_bytes(), digest_size=8).hexdigest()
        if before.get("splits_hash") == splits_hash and before["images"] != image_digest(data.manifest):
            raise SrjtError("An image has changed since this study began: restore it, or change `out`.")
        patients = data.manifest.patients
        versions = {"srjt": __version__, "torch": torch.__version__, "numpy": np.__version__}
        write_json(
            file,
            {
                "format": FORMAT,
                "name": folder.name,
                "study": data.config.to_dict(),
                "grades": list(data.manifest.grades),
                "class_counts": data.manifest.class_counts.tolist(),
                "patients": None if patients is None else len(set(patients)),
                "folds": len(data.splits),
                "held_out": [split.held_out for split in data.splits if split.held_out],
                "noise": [_noise(data, spec, fold, seed) for spec, seed, fold in data.labellings()],
                "images": image_digest(data.manifest),
                "command": command,
                "splits_hash": splits_hash,
                "versions": {**versions, "python": platform.python_version()},
                "cells": [planned.facts() for planned in planned_runs],
            },
        )
        draft.replace(folder / "splits.csv")
        former = {cell["key"] for cell in before.get("cells", ())} - {planned.key for planned in planned_runs}
        if done := sum(run_status(folder, key) == "done" for key in former):
            warn(
                f"{count_of(done, 'finished run')} of {folder} {'is' if done == 1 else 'are'} not part of the study as "
                "it is asked for now: results and report leave them out. To add methods, name the former ones too."
            )
        return planned_runs


def _noise(data: StudyPlan, spec: NoiseSpec, fold: int, seed: int) -> dict[str, Any]:
    _, injected = data.labelled(spec, fold, seed)
    (rate, matrix), (_, own, rho) = data.given_noise(spec), spec.on(data.manifest.class_counts)
    if rate == "auto":  # the noise.json of each run has its estimate
        rate, matrix = None, own
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
        "condition_number": None if matrix is None else float(np.nan_to_num(np.linalg.cond(matrix))),
    }


def read_study(folder: Path) -> dict[str, Any]:
    """The contents of ``study.json``."""
    path = folder / "study.json"
    files.check_regular_files(folder)
    if not path.exists():
        raise SrjtError(f"{folder} is not the folder of a study: there is no study.json in it.")
    return files.read_json(path, StudyFile).model_dump()


def run_folder(folder: Path, key: str) -> Path:
    return folder / "runs" / key


def error_file(folder: Path, key: str) -> Path:
    return folder / "errors" / f"{key}.txt"


def read_error(folder: Path, key: str) -> str:
    """The traceback of a failed run; "" if there is none, or a link that leads out of the study."""
    path = error_file(folder, key)
    with contextlib.suppress(OSError):  # the run may just have been started again
        return path.read_text(encoding="utf-8", errors="replace") if files.is_inside(path, folder) else ""
    return ""


def run_status(folder: Path, key: str) -> str:
    """done, running, failed or left (not started)."""
    run = run_folder(folder, key)
    if has_summary(run):  # written last; the weights may have been deleted to save space
        return "done"
    if is_locked(run):
        return "running"
    damaged = (run / "summary.json").exists()
    return "failed" if damaged or error_file(folder, key).exists() else "left"


# Train one run of a study in a worker process: if it crashes or runs out of memory, the other runs continue.


def run_planned(
    folder: Path, data: StudyPlan, planned: PlannedRun, *, device: str | None, cache: Path | None = None
) -> None:
    """Train a planned run in its folder, or resume it."""
    config = planned.config
    manifest, _ = data.labelled(planned.noise, planned.fold, planned.seed)
    if manifest.arrays is not None and not manifest.are_features:
        manifest = replace(manifest, arrays=data.resized_images(config.image_size, config.resize, cache))
    run, split = run_folder(folder, planned.key), data.split(planned.noise, planned.fold)
    # not the method: all methods share an estimate, and what is said twice is shown once
    with warnings_about(f"Noise {planned.noise.label}, fold {planned.fold}, seed {planned.seed}"):
        train(
            manifest,
            out=run,
            config=config,
            # of a share the others are left out on purpose: no warning says that they are on no side
            split=split if planned.noise.share == 1.0 else lambda manifest: split,
            device=device,
            cache=cache,
            shared_estimate=folder / "estimates" / data.estimate_name(planned),
            grade_names=data.config.grade_names,
            progress=False,
            feeds=FEEDS,
        )
    # A finished run is never resumed, and its checkpoints would be three quarters of the study's disk space.
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    error_file(folder, planned.key).unlink(missing_ok=True)


def write_error_report(folder: Path, key: str, problem: BaseException) -> None:
    """Write why a run failed: the sentence of a SrjtError, the traceback of any other exception."""
    text = f"{problem}\n" if isinstance(problem, SrjtError) else "".join(traceback.format_exception(problem))
    report = error_file(folder, key)
    with contextlib.suppress(OSError):
        report.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(report, text.encode("utf-8", "surrogateescape"))


def run_by_key(folder: Path, key: str, cache: Path | None = None, *, device: str | None = None) -> None:
    """The task of a worker process: open the study, unless it is open, find the planned run, and train it."""
    try:
        facts = read_study(folder)
        import_modules(facts["study"]["train"].get("imports", ()))
        data = open_kept_data(StudyConfig.from_dict(facts["study"]), cache=cache)
        entry = next((entry for entry in facts["cells"] if entry["key"] == key), None)
        if entry is None or (planned := data.find(entry)).key != key:
            raise SrjtError("The data or the plan have changed: run the same command again.")
        run_planned(folder, data, planned, device=device, cache=cache)
    except Exception as problem:
        write_error_report(folder, key, problem)
        raise
