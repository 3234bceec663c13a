"""The folder of a run: its files, and how to open it.

    run.json             the configuration, the grades and their names, how images are prepared, facts about the data
    metrics.csv          every number of every epoch
    checkpoints/         the latest two states, from which a run resumes
    weights.safetensors  the networks after the last epoch, or after the best one (``keep``)
    history.csv          per training sample: how often seen, how often selected by each network, running loss
    held_out.csv         probabilities for the samples of the validation and test sides
    noise.json           the noise estimate, if ``noise_rate`` was "auto" (see training/resolve_noise.py)
    summary.json         averages over the last ten epochs, or the scores of the best one; written last, so that its
                         presence means finished

Opening a folder executes no code from it: it contains JSON, CSV and safetensors only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, NonNegativeInt, model_validator

from srjt._version import __version__
from srjt.data.grade_names import check_grade_names
from srjt.errors import SrjtError
from srjt.files import check_regular_files, is_foreign, lock_folder, made_by, read_json, write_json
from srjt.noise.estimate import NoiseEstimate
from srjt.training.config import TrainConfig
from srjt.training.engine.cpu_tuning import CpuSetting

__all__ = [
    "FORMAT",
    "NoiseFile",
    "RunFacts",
    "check_files",
    "digests",
    "has_summary",
    "is_finished",
    "lock_run_folder",
    "open_run_folder",
    "read_facts",
    "read_noise_estimate",
    "read_summary",
    "refuse_other_files",
    "write_facts",
]

FORMAT = 2
NOISE_FILES = ("noise.json", "warmup")  # written by the noise estimate before the run itself begins


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The contents of ``run.json``."""

    config: TrainConfig
    grades: tuple[str, ...]
    data: dict[str, Any] = field(default_factory=dict)  # source, counts, fingerprint
    cpu: CpuSetting | None = None  # the fastest setting found; None: not yet found, or on a GPU
    own_network: bool = False  # from a Python function, which a folder cannot contain
    grade_names: dict[str, str] = field(default_factory=dict)  # grade → its name for people; empty: none
    noise: dict[str, Any] | None = None  # the rate requested, estimated and used, and why; None: unknown
    provenance: dict[str, Any] = field(default_factory=dict)  # command, time, machine, versions; {}: unknown
    version: str = __version__

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "srjt": self.version,
            "config": self.config.to_dict(),
            "grades": list(self.grades),
            "grade_names": self.grade_names,
            "data": self.data,
            "cpu": None if self.cpu is None else vars(self.cpu),
            "own_network": self.own_network,
            "noise": self.noise,
            "provenance": self.provenance,
        }


def write_facts(folder: Path, facts: RunFacts) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "run.json", facts.to_dict())
    except OSError as problem:
        raise SrjtError(f"The run cannot be written to {folder}: {problem.strerror}.") from None


class _Source(BaseModel, extra="forbid"):
    path: str
    sha256: str = ""


class _Data(BaseModel, extra="allow"):
    in_shape: list[Annotated[int, Field(ge=1, le=10**6)]]
    samples: dict[str, NonNegativeInt] = {}
    class_counts: list[NonNegativeInt] = []
    validation_counts: list[NonNegativeInt] = []
    feature_names: list[str] = []
    fingerprint: str = ""
    images: str | None = None
    made: str = ""
    source: _Source | None = None
    patients: int | None = None

    @model_validator(mode="after")
    def _one_name_per_feature(self) -> _Data:
        if self.feature_names and [len(set(self.feature_names))] != self.in_shape:
            raise ValueError(f"{len(set(self.feature_names))} names for {self.in_shape} features")
        return self


class _Noise(BaseModel, extra="allow"):
    requested: float | str | None = None
    estimated: float | None
    used: float | None
    why: str


class _Provenance(BaseModel, extra="allow"):
    command: str | None = None
    started: str = ""
    processes: int = 1
    packages: dict[str, str] = {}


class RunFile(BaseModel, extra="forbid"):
    """``run.json``, as ``RunFacts.to_dict`` writes it."""

    format: Literal[2]
    srjt: str
    config: Annotated[TrainConfig, made_by(TrainConfig.from_dict)]
    grades: Annotated[list[str], Field(min_length=2)]
    grade_names: dict[str, str]
    data: _Data
    cpu: CpuSetting | None
    own_network: bool
    noise: _Noise | None
    provenance: _Provenance


def read_facts(folder: Path) -> RunFacts:
    path = folder / "run.json"
    if os.path.isfile(folder):
        raise SrjtError(f"{folder} is a file: give the folder of a run, which srjt train --out wrote.")
    check_regular_files(folder)
    if not path.exists():
        raise SrjtError(f"{folder} is not the folder of a run: it contains no run.json.")
    file = read_json(path, RunFile)
    return RunFacts(
        config=file.config,
        grades=tuple(file.grades),
        data=file.data.model_dump(exclude_unset=True),
        cpu=file.cpu,
        own_network=file.own_network,
        grade_names=check_grade_names(file.grade_names, file.grades),
        noise=None if file.noise is None else file.noise.model_dump(exclude_unset=True),
        provenance=file.provenance.model_dump(exclude_unset=True),
        version=file.srjt,
    )


def is_finished(folder: Path) -> bool:
    return (folder / "weights.safetensors").exists() and has_summary(folder)


def has_summary(folder: Path) -> bool:
    """Whether the folder has a ``summary.json``, which is written last; a damaged one does not count."""
    if not (folder / "summary.json").exists():
        return False
    try:
        read_summary(folder)
    except SrjtError:
        return False
    return True


class _Score(BaseModel, extra="allow"):
    split: str
    metric: str
    value: float


def _confusions(counts: list[Any]) -> list[Any]:
    networks, classes, columns = np.array(counts, dtype=np.int64).shape  # networks, then their ensemble
    if networks < 2 or classes != columns:
        raise ValueError(f"counts of shape {np.shape(counts)}")
    return counts


class SummaryFile(BaseModel, extra="allow"):
    """``summary.json``: what ``write_results`` writes."""

    epochs: NonNegativeInt
    kept_epoch: NonNegativeInt = 0
    last_epochs: list[_Score]
    confusion: dict[str, Annotated[list[Any], made_by(_confusions)]]
    files: dict[Literal["weights.safetensors", "history.csv", "held_out.csv"], str] = {}  # SHA-256 of each


def read_summary(folder: Path) -> dict[str, Any]:
    """The contents of ``summary.json``."""
    return read_json(folder / "summary.json", SummaryFile).model_dump(exclude_unset=True)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a run that are written once: not of ``metrics.csv``, which contains times."""
    found = (folder / name for name in ("weights.safetensors", "history.csv", "held_out.csv"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in found if file.exists()}


def check_files(folder: Path) -> None:
    """Raise an error if a file of a finished run is not the one that it was finished with.

    A file that is gone is no error here: weights are deleted to save space.
    """
    if not (folder / "summary.json").exists():
        return
    written = read_summary(folder).get("files", {})
    for name, digest in digests(folder).items():
        if written.get(name, digest) != digest:
            raise SrjtError(
                f"{folder / name} is not the file that this run has written, but was cut, changed or replaced: restore "
                "the file, or delete summary.json there and run the same command again."
            )


@contextlib.contextmanager
def lock_run_folder(folder: Path | None, requested: RunFacts) -> Iterator[RunFacts]:
    """Lock a folder and open it for a run. A process that does not get the lock changes nothing in the folder.

    None locks nothing.
    """
    if folder is None:
        yield requested
        return
    refuse_other_files(folder)  # before the lock: a folder that is not ours gets no lock file
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SrjtError(f"The run cannot be written to {folder}: {problem.strerror}.") from None
    with lock_folder(folder):
        yield open_run_folder(folder, requested)


def refuse_other_files(folder: Path) -> None:
    """Raise an error if the folder exists, is not empty and is not the folder of a run."""
    if (folder / "run.json").exists() or not folder.is_dir():
        return
    if any(is_foreign(path) and path.name not in NOISE_FILES for path in folder.iterdir()):
        raise SrjtError(f"{folder} already contains other files: choose another `out`.")


def open_run_folder(folder: Path, requested: RunFacts) -> RunFacts:
    """Prepare a folder for a run, or read the facts of the same run in it.

    A different run in the folder is an error that lists the differences.
    """
    if not (folder / "run.json").exists():
        refuse_other_files(folder)
        write_facts(folder, requested)
        return requested
    found = read_facts(folder)
    differences = [
        f"{name} was {was!r} and is now {now!r}"
        for name, (was, now) in found.config.difference(requested.config).items()
    ]
    if found.data.get("fingerprint") != requested.data.get("fingerprint"):
        differences.append("the samples, labels or split are not the same")
    if found.grades != requested.grades:
        differences.append(f"the grades were {', '.join(found.grades)}")
    if found.own_network != requested.own_network:
        differences.append("one of them uses a network of your own, the other a network by name")
    if differences:
        raise SrjtError(
            f"{folder} contains a run of another configuration ({'; '.join(differences)}): choose another `out`."
        )
    if requested.grade_names and requested.grade_names != found.grade_names:
        # names are for people: they change nothing of the run
        found = replace(found, grade_names=requested.grade_names)
        write_facts(folder, found)
    return found  # with its CPU setting, which determines the last bits of the result


class NoiseFile(BaseModel, extra="forbid"):
    """``noise.json``: an estimate, and what it was made from."""

    format: Literal[2]
    srjt: str
    fingerprint: str
    warm_up: dict[str, Any]
    folds: int
    verified: str | None
    images: str | None
    estimate: Annotated[NoiseEstimate, made_by(NoiseEstimate.from_dict)]


def read_noise_estimate(folder: Path) -> NoiseEstimate | None:
    """The noise estimate of a run; None where its noise rate was given, or not needed."""
    file = folder / "noise.json"
    return read_json(file, NoiseFile).estimate if file.exists() else None
