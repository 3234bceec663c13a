"""The folder of a run: its files, and how to open it.

    run.json             the configuration, the grades and their names, facts about the data
    metrics.csv          every number of every epoch
    checkpoints/         the latest two states, from which a run resumes
    weights.safetensors  the networks after the last epoch, or after the best one (``keep``)
    history.csv          per training sample: how often seen and selected, running loss
    held_out.csv         probabilities for the samples of the validation and test sides
    skipped.csv          the images that could not be read, if there are some: on no side
    noise.json           the noise estimate, if ``noise_rate`` was "auto" (noise_rate.py)
    head.json            how likely each head makes held-out labels, if ``network`` was "auto"
    checksums.json       the SHA-256 of the small files
    summary.json         averages over the last ten epochs, or the scores of the best one;
                         written last, so that its presence means finished

Opening a folder executes no code from it: it contains JSON, CSV and safetensors only.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as once
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BaseModel, Field, NonNegativeInt, model_validator

from srjt import files
from srjt._version import __version__
from srjt.data.grades import Grades, distinct
from srjt.data.leakage import TRACES_FILE
from srjt.data.manifest import Manifest
from srjt.errors import Option, SrjtError
from srjt.noise.estimate import NoiseEstimate
from srjt.settings import current_names
from srjt.training.config import ResolvedConfig
from srjt.training.image_identity import HASHES_FILE, check_images
from srjt.training.provenance import SourceFile
from srjt.validation import made_by

FORMAT = 2
# of ``run.json``, as they are in memory
PLAIN = ("own_network", "noise", "head", "provenance")
# written by the noise estimate, and by --log html, before the run itself begins
SKIPPED = "skipped.csv"
NOISE_FILES = ("noise.json", "head.json", "warmup", "live.html")


class DataFacts(BaseModel, extra="allow"):
    """``data`` of ``run.json``: what a run was trained on. What is not known has its default, and
    is not written."""

    samples: dict[str, NonNegativeInt] = {}  # side → number
    class_counts: list[NonNegativeInt] = []  # (C,) of the training labels
    validation_counts: list[NonNegativeInt] = []
    in_shape: list[Annotated[int, Field(ge=1, le=10**6)]] = []  # of a sample
    fingerprint: str = ""
    images: str | None = None  # one hash of all; None for features
    feature_names: list[str] = []
    made: str = ""
    source: SourceFile | None = None
    labels: SourceFile | None = None  # if they stand in another file than the features
    several_readings: Literal["consensus"] | None = None
    patients: int | None = None
    side_patients: dict[str, NonNegativeInt] | None = None
    left_out: dict[str, NonNegativeInt] | None = None
    # a small network was trained, because there were no pretrained weights
    weights_missing: bool = False
    frozen: dict[str, Any] | None = None  # how images became features of a frozen backbone

    @property
    def are_features(self) -> bool:
        return len(self.in_shape) == 1

    @property
    def shared_patients(self) -> int:
        """How many patients are on a second side; scores on held-out sides are then too good."""
        if self.patients is None or self.side_patients is None:
            return 0
        return sum(self.side_patients.values()) - self.patients

    @model_validator(mode="after")
    def _one_name_per_feature(self) -> DataFacts:
        if self.feature_names and [len(set(self.feature_names))] != self.in_shape:
            raise ValueError(f"{len(set(self.feature_names))} names for {self.in_shape} features")
        return self


def _has_shape(data: DataFacts) -> DataFacts:
    if not data.in_shape:
        raise ValueError("in_shape is missing")
    return data


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The contents of ``run.json``."""

    config: ResolvedConfig
    grades: Grades
    data: DataFacts = field(default_factory=DataFacts)
    own_network: bool = False  # from a Python function, which a folder cannot contain
    noise: dict[str, Any] | None = (
        None  # the rate requested, estimated and used, and why; None: unknown
    )
    head: dict[str, float] | None = (
        None  # mean held-out log-likelihood by network, if the head was chosen by it
    )
    provenance: dict[str, Any] = field(
        default_factory=dict
    )  # command, time, machine, versions; {}: unknown
    version: str = __version__

    def identity(self) -> dict[str, Any]:
        """What makes it another run if it differs."""
        model = {"grades": tuple(self.grades), "own_network": self.own_network}
        return {**self.config.identity(), "fingerprint": self.data.fingerprint, **model}


def write_facts(folder: Path, facts: RunFacts) -> None:
    with files.explain_write_errors(f"The run cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        grades = {"grades": facts.grades, "grade_names": facts.grades.names}
        data = {"data": facts.data.model_dump(exclude_unset=True)}
        plain = {name: getattr(facts, name) for name in PLAIN}
        about = {"format": FORMAT, "srjt": facts.version, **grades, "config": facts.config}
        files.write_json(folder / "run.json", {**about, **data, **plain})


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


def _stored_config(values: Mapping[str, Any]) -> ResolvedConfig:
    return ResolvedConfig.from_dict(current_names(values, warned=False))


class RunFile(BaseModel, extra="forbid"):
    """``run.json``, as ``write_facts`` writes it."""

    format: Literal[2]
    srjt: str
    config: Annotated[ResolvedConfig, made_by(_stored_config)]
    grades: Annotated[list[str], Field(min_length=2), AfterValidator(distinct)]
    grade_names: dict[str, str]
    data: Annotated[DataFacts, AfterValidator(_has_shape)]
    own_network: bool
    noise: _Noise | None
    head: dict[str, float] | None = None
    provenance: _Provenance


def read_facts(folder: Path) -> RunFacts:
    path = folder / "run.json"
    if os.path.isfile(folder):
        raise SrjtError(
            f"{folder} is a file: give the folder of a run, which srjt train --out wrote.",
            code="wrong_file",
        )
    files.check_regular_files(folder)
    if not path.exists():
        raise SrjtError(
            f"{folder} is not the folder of a run: it contains no run.json.", code="wrong_file"
        )
    file = files.read_json(path, RunFile)
    if has_summary(folder):  # else it is not finished, and a resumed run compares its settings
        files.check_checksums(folder, *SMALL_FILES, advice=RESTORE)
    plain = file.model_dump(include=set(PLAIN), exclude_unset=True)
    grades = Grades(file.grades, file.grade_names)
    return RunFacts(config=file.config, grades=grades, data=file.data, version=file.srjt, **plain)


def is_finished(folder: Path) -> bool:
    return (folder / "weights.safetensors").exists() and has_summary(folder)


def has_summary(folder: Path) -> bool:
    """Whether the folder has a ``summary.json``, which is written last; a damaged one does not
    count."""
    with contextlib.suppress(SrjtError):
        read_summary(folder)
        return True
    return False


class _Score(BaseModel, extra="allow"):
    split: str
    metric: str
    value: Annotated[float, made_by(lambda value: math.nan if value is None else float(value))]


def _confusions(counts: list[Any]) -> list[Any]:
    networks, classes, columns = np.array(
        counts, dtype=np.int64
    ).shape  # networks, then their ensemble
    if networks < 2 or classes != columns:
        raise ValueError(f"counts of shape {np.shape(counts)}")
    return counts


Confusions = Annotated[list[Any], made_by(_confusions)]


class SummaryFile(BaseModel, extra="allow"):
    """``summary.json``: what ``write_results`` writes."""

    epochs: NonNegativeInt
    kept_epoch: NonNegativeInt = 0
    last_epochs: list[_Score]
    confusion: dict[str, Confusions]
    files: dict[
        Literal["weights.safetensors", "history.csv", "held_out.csv"], str
    ] = {}  # SHA-256 of each


def read_summary(folder: Path) -> dict[str, Any]:
    """The contents of ``summary.json``."""
    return files.read_json(folder / "summary.json", SummaryFile).model_dump(exclude_unset=True)


RESTORE = "restore the file, or delete summary.json there and run the same command again."
ESTIMATES = (
    "noise.json",
    "head.json",
)  # they have a seal of their own, too: they are read before a run is finished
SMALL_FILES = ("run.json", "summary.json", "metrics.csv", *ESTIMATES)
MAY_BE_DELETED = ("weights.safetensors",)  # to save space


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write ``summary.json``, which means that the run is finished; first the checksums of all that
    it consists of."""
    content = files.as_json(summary)
    names = ("run.json", "metrics.csv", *ESTIMATES, HASHES_FILE, TRACES_FILE)
    files.write_checksums(folder, names, coming={"summary.json": content})
    files.write_atomically(folder / "summary.json", content)


def lost_files(folder: Path) -> list[str]:
    """Files of a finished run that are gone, and may not be."""
    written = {*read_summary(folder).get("files", {}), *files.read_checksums(folder)}
    return sorted(name for name in written - {*MAY_BE_DELETED} if not (folder / name).exists())


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a run that are written once: not of ``metrics.csv``, which contains
    times."""
    hashes = {}
    for name in ("weights.safetensors", "history.csv", "held_out.csv"):
        if (folder / name).exists():
            hashes[name] = files.sha256_of(folder / name)
    return hashes


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
                f"{folder / name} is not the file that srjt has written: {RESTORE}",
                code="damaged_file",
            )
    files.check_checksums(folder, advice=RESTORE)


@contextlib.contextmanager
def lock_run_folder(
    folder: Path | None, requested: RunFacts, samples: Manifest
) -> Iterator[RunFacts]:
    """Lock a folder and open it for a run. A process that does not get the lock changes nothing in
    the folder.

    None locks nothing.
    """
    if folder is None:
        yield requested
        return
    refuse_other_files(folder)  # before the lock: a folder that is not ours gets no lock file
    with files.explain_write_errors(f"The run cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    with files.lock_folder(folder):
        yield open_run_folder(folder, requested, samples)


def refuse_other_files(folder: Path) -> None:
    """Raise an error if the folder exists, is not empty, and no run in it has begun."""
    if (folder / "run.json").exists() or not folder.is_dir():
        return
    if any(files.is_foreign(path) and path.name not in NOISE_FILES for path in folder.iterdir()):
        raise SrjtError(
            f"{folder} already contains other files: choose another ",
            Option("out"),
            ".",
            code="folder_in_use",
        )


def open_run_folder(folder: Path, requested: RunFacts, samples: Manifest) -> RunFacts:
    """Prepare a folder for a run on these samples, or read the facts of the same run in it.

    A different run in the folder is an error that lists the differences.
    """
    begun = requested
    if not (folder / "run.json").exists():
        refuse_other_files(folder)
        write_facts(folder, requested)
    else:
        begun = read_facts(folder)
        what = f"{folder} contains a run of another configuration"
        refuse_differences(what, begun.identity(), requested.identity())
    check_images(folder, samples, recorded=begun.data.images)
    if requested.grades.names and requested.grades.names != begun.grades.names:
        # names are for people: they change nothing of the run
        begun = replace(begun, grades=requested.grades)
        written = files.read_checksums(folder)
        (folder / files.CHECKSUMS).unlink(
            missing_ok=True
        )  # first: a killed process leaves none, not a wrong one
        write_facts(folder, begun)
        if written:
            files.write_checksums(folder, written)
    return begun


LONG = 120  # characters of two values

# what is said about a value that says nothing itself
_NOT_THE_SAME = {
    "fingerprint": "the samples, labels, patients, verified grades or split are not the same",
    "images": "the images are not the same",
    "own_network": "only one of them uses a network of your own",
}


def refuse_differences(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an error that lists what differs between what a folder was made from and what is asked
    for now."""
    differences = []
    for name in dict.fromkeys([*before, *now]):
        was = before.get(name)
        new = now.get(name)
        if was != new:
            differences.append(_NOT_THE_SAME.get(name) or _in_words(name, was, new))
    if differences:
        raise SrjtError(
            f"{what} ({'; '.join(differences)}): choose another ",
            Option("out"),
            ".",
            code="settings_changed",
        )


def _in_words(name: str, was: Any, new: Any) -> str:
    """A difference; a matrix is too long for a sentence."""
    before = _value(was)
    now = _value(new)
    if before == now:
        before = repr(was)
        now = repr(new)
    if len(before) + len(now) > LONG:
        return f"{name} is not the same"
    return f"{name} was {before} and is now {now}"


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


class NoiseFile(BaseModel, extra="forbid"):
    """``noise.json``: an estimate, and what it was made from."""

    format: Literal[2]
    srjt: str
    fingerprint: str
    warm_up: dict[str, Any]
    folds: int
    images: str | None
    sha256: str = ""
    estimate: Annotated[NoiseEstimate, made_by(NoiseEstimate.from_dict)]


class HeadFile(BaseModel, extra="forbid"):
    """``head.json``: the mean held-out log-likelihood of the labels by network, and what it was
    made from."""

    format: Literal[2]
    srjt: str
    fingerprint: str
    compared: dict[str, dict[str, Any]]  # the settings of each head
    folds: int
    sha256: str = ""
    held_out: dict[str, float]  # empty: there were too few samples to compare them


def read_noise_estimate(folder: Path) -> NoiseEstimate | None:
    """The noise estimate of a run; None where its noise rate was given, or not needed."""
    file = folder / "noise.json"
    if file.exists():
        return read_estimate(file, NoiseFile).estimate
    return None


def write_once(
    file: Path, content: Callable[[], Mapping[str, Any]], *, note: Callable[[str], None]
) -> None:
    """Write ``noise.json`` or ``head.json`` unless it is there: the first process computes its
    content while the others wait."""
    if file.exists():
        return
    folder = file.parent
    with files.explain_write_errors(f"The run cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    note_once = once(lambda: note(f"Waiting for another process that works on {folder}."))
    with files.wait_for_lock(folder, waiting=note_once):
        if not file.exists():
            about = {"format": FORMAT, "srjt": __version__}
            files.write_sealed_json(file, {**about, **content()})


def read_estimate(file: Path, model: type[files.Model]) -> files.Model:
    """The contents of ``noise.json`` or ``head.json``, as they were written."""
    return files.read_sealed_json(
        file, model, advice="restore it, or delete it and run the same command again."
    )


def write_skipped(folder: Path, skipped: Sequence[tuple[str, str]]) -> None:
    """Write the (id, reason) of images that could not be read; without any there is no file."""
    if skipped:
        table = pd.DataFrame(list(skipped), columns=["id", "reason"], dtype=object)
        files.write_atomically(folder / SKIPPED, files.as_csv(table))


def read_history(folder: Path) -> pd.DataFrame:
    """The history of a run as it was written, to the last bit; empty if the run was sent without
    it."""
    path = folder / "history.csv"
    try:
        table = pd.read_csv(path, dtype=object, keep_default_na=False)
        # by Python: pandas' own parser of decimals may err in the last bit
        texts = {name: str for name in ("id", "patient") if name in table}
        kinds = {
            name: float if name.startswith("loss_") else int
            for name in table.columns.drop(list(texts))
        }
        table[list(kinds)] = table[list(kinds)].replace("", "nan")
        return table.astype({"id": str, "grade": int, **texts, **kinds})
    except FileNotFoundError:
        return pd.DataFrame()
    except (OSError, ValueError, KeyError, OverflowError) as problem:
        raise SrjtError(
            f"{path} is damaged or not from srjt ({problem}).", code="damaged_file"
        ) from None
