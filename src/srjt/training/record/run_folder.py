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
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from srjt._version import __version__
from srjt.data.grade_names import check_grade_names
from srjt.errors import SrjtError, count_of
from srjt.files import check_regular_files, is_foreign, lock_folder, write_json
from srjt.noise.estimate import NoiseEstimate
from srjt.training.config import TrainConfig
from srjt.training.engine.cpu_tuning import CpuSetting

__all__ = [
    "RunFacts",
    "has_summary",
    "is_finished",
    "lock_run_folder",
    "new_patients",
    "open_run_folder",
    "read_facts",
    "read_noise_estimate",
    "read_noise_file",
    "read_summary",
    "refuse_other_files",
    "write_facts",
]

FORMAT = 1
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


def read_facts(folder: Path) -> RunFacts:
    path = folder / "run.json"
    if os.path.isfile(folder):
        raise SrjtError(f"{folder} is a file: give the folder of a run, which srjt train --out wrote.")
    check_regular_files(folder)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["format"] > FORMAT:
            raise SrjtError(f"{folder} was written by a newer srjt ({raw['srjt']}): update srjt to read it.")
        return RunFacts(
            config=TrainConfig.from_dict(_as_written_now(raw["config"])),
            grades=tuple(str(g) for g in raw["grades"]),
            data=_checked_data(raw["data"]),
            cpu=None if raw["cpu"] is None else CpuSetting(**raw["cpu"]),
            own_network=bool(raw["own_network"]),
            grade_names=check_grade_names(raw.get("grade_names", {}), [str(g) for g in raw["grades"]]),
            noise=raw.get("noise"),  # older runs lack it, and names
            provenance=dict(raw.get("provenance") or {}),
            version=str(raw["srjt"]),
        )
    except FileNotFoundError:
        raise SrjtError(f"{folder} is not the folder of a run: it contains no run.json.") from None
    except SrjtError as problem:
        raise SrjtError(f"{path}: {problem}") from None
    except OSError as problem:
        raise SrjtError(f"{path} cannot be read: {problem.strerror}.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise SrjtError(
            f"{path} is damaged or not from srjt ({type(problem).__name__}: {problem})."
        ) from None


def _checked_data(data: dict[str, Any]) -> dict[str, Any]:
    shape = [int(side) for side in data["in_shape"]]
    names = [str(name) for name in data.get("feature_names", [])]
    if names and (len(shape) != 1 or len(set(names)) != shape[0]):
        raise ValueError(f"{len(set(names))} names for {shape} features")
    return {**data, "in_shape": shape, "feature_names": names}


def _as_written_now(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of older runs, which lack ``balance``, and whose recipe was another one.

    It was first "+ours" on JoCoR with other options; then its agreement grew with the fit for images, too.
    """
    config = {"balance": 0.0, **config}
    options = config.get("method_options") or {}
    if config.get("method") == "srjt" and "agree" in options:
        config["method"] = "jocor+ours"
    elif config.get("method") == "srjt":
        config["method_options"] = {**options, "grows_with": options.get("grows_with", "fit")}
    return config


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


def read_summary(folder: Path) -> dict[str, Any]:
    """The contents of ``summary.json``."""
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        for row in summary.get("last_epochs", []):
            _ = row["split"], row["metric"], float(row["value"])
        for counts in summary.get("confusion", {}).values():
            networks, classes, columns = np.shape(counts)  # networks, then their ensemble
            if networks < 2 or classes != columns:
                raise ValueError(f"confusion counts of shape {np.shape(counts)}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise SrjtError(
            f"{path} is damaged or not from srjt ({type(problem).__name__}: {problem})."
        ) from None
    assert isinstance(summary, dict)
    return summary


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
        differences += new_patients(found, requested.data.get("patients"))
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


def new_patients(begun: RunFacts, patients: int | None) -> list[str]:
    """A difference, as text, if the samples of this run had no patients and now have some: its folds would be others.

    So it is with DICOM files in a run of an earlier version, which did not read their headers.
    """
    if patients is None or begun.data.get("patients", patients) is not None:
        return []
    return [f"the run began without patients, and the images now belong to {count_of(patients, 'patient')}"]


def read_noise_estimate(folder: Path) -> NoiseEstimate | None:
    """The noise estimate of a run; None where its noise rate was given, or not needed."""
    file = folder / "noise.json"
    return NoiseEstimate.from_dict(read_noise_file(file)["estimate"]) if file.exists() else None


def read_noise_file(file: Path) -> dict[str, Any]:
    """The contents of a ``noise.json``, checked to contain a valid estimate."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        NoiseEstimate.from_dict(content["estimate"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SrjtError(f"{file} is damaged or not from srjt ({problem}).") from None
    assert isinstance(content, dict)
    return content
