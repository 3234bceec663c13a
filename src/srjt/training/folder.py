"""The folder of a run: its files and how to open it, the predictions for its held-out samples, how
it was made, the identity of its images, and naive scores to compare it with.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pydantic import AfterValidator, BaseModel, Field, NonNegativeInt, model_validator

from srjt import files
from srjt._version import __version__
from srjt.data.checks import MIN_FEATURES, UNKNOWN, Hashes, image_hashes
from srjt.data.copies import TRACES_FILE
from srjt.data.grades import Grades, as_text, distinct
from srjt.data.manifest import Manifest
from srjt.data.sources.table import CANONICAL
from srjt.errors import Option, SrjtError
from srjt.noise.estimate import NoiseEstimate
from srjt.ordinal import Purpose
from srjt.ordinal.baseline import Gain
from srjt.ordinal.metrics import Ints, NaiveBaseline, naive_baseline
from srjt.text import few
from srjt.training.config import ResolvedConfig
from srjt.training.devices import device_name

# The folder of a run: its files, and how to open it.
#
#     run.json             the configuration, the grades and their names, facts about the data
#     metrics.csv          every number of every epoch
#     checkpoints/         the latest two states, from which a run resumes
#     weights.safetensors  the networks after the last epoch, or after the best one (``keep``)
#     history.csv          per training sample: how often seen and selected, running loss
#     held_out.csv         probabilities for the samples of the validation and test sides
#     skipped.csv          the images that could not be read, if there are some: on no side
#     noise.json           the noise estimate, if ``noise_rate`` was "auto" (see training/train.py)
#     head.json            how likely each head makes held-out labels, if ``network`` was "auto"
#     checksums.json       the SHA-256 of the small files
#     summary.json         averages over the last ten epochs, or the scores of the best one;
#                          written last, so that its presence means finished
#
# Opening a folder executes no code from it: it contains JSON, CSV and safetensors only.

FORMAT = 2
PLAIN = (
    "data",
    "own_network",
    "noise",
    "head",
    "provenance",
)  # of ``run.json``, as they are in memory
# written by the noise estimate, and by --log html, before the run itself begins
SKIPPED = "skipped.csv"
NOISE_FILES = ("noise.json", "head.json", "warmup", "live.html")


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The contents of ``run.json``."""

    config: ResolvedConfig
    grades: Grades
    data: dict[str, Any] = field(default_factory=dict)  # source, counts, fingerprint
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
        own = {"grades": tuple(self.grades), "own_network": self.own_network}
        return {**self.config.identity(), "fingerprint": self.data.get("fingerprint"), **own}


def write_facts(folder: Path, facts: RunFacts) -> None:
    with files.explain_write_errors(f"The run cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        grades = {"grades": facts.grades, "grade_names": facts.grades.names}
        plain = {name: getattr(facts, name) for name in ("config", *PLAIN)}
        files.write_json(
            folder / "run.json", {"format": FORMAT, "srjt": facts.version, **grades, **plain}
        )


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
    labels: _Source | None = None  # if they stand in another file than the features
    patients: int | None = None
    side_patients: dict[str, NonNegativeInt] | None = None
    left_out: dict[str, NonNegativeInt] | None = None
    several_readings: Literal["consensus"] | None = None
    frozen: dict[str, Any] | None = None  # how images became features of a frozen backbone
    weights_missing: bool = (
        False  # a small network was trained, because there were no pretrained weights
    )

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
    """``run.json``, as ``write_facts`` writes it."""

    format: Literal[2]
    srjt: str
    config: Annotated[ResolvedConfig, files.made_by(ResolvedConfig.from_dict)]
    grades: Annotated[list[str], Field(min_length=2), AfterValidator(distinct)]
    grade_names: dict[str, str]
    data: _Data
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
    return RunFacts(config=file.config, grades=grades, version=file.srjt, **plain)


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
    value: Annotated[
        float, files.made_by(lambda value: math.nan if value is None else float(value))
    ]


def _confusions(counts: list[Any]) -> list[Any]:
    networks, classes, columns = np.array(
        counts, dtype=np.int64
    ).shape  # networks, then their ensemble
    if networks < 2 or classes != columns:
        raise ValueError(f"counts of shape {np.shape(counts)}")
    return counts


Confusions = Annotated[list[Any], files.made_by(_confusions)]


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
    found = {}
    for name in ("weights.safetensors", "history.csv", "held_out.csv"):
        if (folder / name).exists():
            found[name] = files.sha256_of(folder / name)
    return found


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
    check_images(folder, samples, recorded=begun.data.get("images"))
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
            differences.append(_NOT_THE_SAME.get(name, f"{name} was {was!r} and is now {new!r}"))
    if differences:
        raise SrjtError(
            f"{what} ({'; '.join(differences)}): choose another ",
            Option("out"),
            ".",
            code="settings_changed",
        )


class NoiseFile(BaseModel, extra="forbid"):
    """``noise.json``: an estimate, and what it was made from."""

    format: Literal[2]
    srjt: str
    fingerprint: str
    warm_up: dict[str, Any]
    folds: int
    images: str | None
    sha256: str = ""
    estimate: Annotated[NoiseEstimate, files.made_by(NoiseEstimate.from_dict)]


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


# Predictions for the samples that a run did not learn from: its validation and test sides, in
# ``held_out.csv``.
#
# What is fitted after training (recalibration, thresholds, ranges of grades) is derived from the
# validation side. The file keeps the facts, not what follows from them, so that a run can be
# decoded anew.

FILE = "held_out.csv"

KEPT = "column:"  # before the name of a column of the data

# column of the file → attribute of ``HeldOut``
COLUMNS = {
    "id": "ids",
    "grade": "labels",
    "patient": "patients",
    "group": "groups",
    "image": "images",
    "true_grade": "true_labels",
    "verified_grade": "verified_labels",
    "verified_probability": "verified_probability",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """The N samples of one side, with the predictions of K networks for C grades.

    Attributes
    ----------
    ids : list of str
        (N,) the name of each sample.
    probabilities : ndarray of float32, shape (K, N, C)
        Each network's probabilities, of the networks that the run has kept.
    labels : ndarray of int64, shape (N,)
        Given grades, which may be wrong.
    true_labels, verified_labels : ndarray of int64, shape (N,), or None
        True grades where the noise was injected; verified grades, −1 where there is none.
    verified_probability : ndarray of float64, shape (N,), or None
        With which each verified sample was drawn, 0 for the others; None: all were drawn alike.
    patients, groups : list of str or None
        (N,) the patient of each sample; its group, which is never split: the unit of every
        resampling.
    images : list of str or None
        (N,) the absolute path of each image file; None for samples in memory.
    columns : dict of str to list of str
        (N,) texts of each further column that training was told to keep (``keep_columns``): no
        others, since a table may say who somebody is.
    """

    ids: list[str]
    probabilities: npt.NDArray[np.float32]
    labels: Ints
    true_labels: Ints | None = None
    verified_labels: Ints | None = None
    verified_probability: npt.NDArray[np.float64] | None = None
    patients: list[str] | None = None
    groups: list[str] | None = None
    images: list[str] | None = None
    columns: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def random_verified(self) -> Ints | None:
        """(N,) verified grades if all samples were drawn alike, else None: for what cannot be
        weighted."""
        if self.verified_probability is None:
            return self.verified_labels
        return None

    @property
    def table(self) -> pd.DataFrame:
        """What is known beside the grades: ``id``, ``patient`` if known, further columns by their
        names in the data."""
        patients = {} if self.patients is None else {"patient": self.patients}
        return pd.DataFrame({"id": self.ids, **patients, **self.columns}, dtype=object)


def held_out_side(
    samples: Manifest,
    probabilities: npt.NDArray[np.float32],
    *,
    from_files: bool,
    columns: Sequence[str] = (),
) -> HeldOut:
    """The samples of a side with their predictions, (K, N, C).

    from_files: whether they are image files. columns: further columns to keep.
    """
    kept = {}
    for name in columns:
        # a column with a name of ours has another name in the table
        source = f"{name}_source" if f"{name}_source" in samples.table else name
        if source not in CANONICAL:
            kept[source] = [as_text(cell) for cell in samples.table[source]]
    return HeldOut(
        probabilities=probabilities,
        images=[str(path.absolute()) for path in samples.paths] if from_files else None,
        columns=kept,
        **{name: getattr(samples, name) for name in COLUMNS.values() if name != "images"},
    )


def write_held_out(folder: Path, sides: Mapping[str, HeldOut]) -> None:
    """Write the sides of a run: one row per sample, ``p1_0`` the first network's probability of the
    first grade."""
    tables = []
    for name, side in sides.items():
        columns = {column: getattr(side, attribute) for column, attribute in COLUMNS.items()}
        columns |= {f"{KEPT}{column}": texts for column, texts in side.columns.items()}
        # as objects: a path may contain bytes that are no text
        known = {column: values for column, values in columns.items() if values is not None}
        table = pd.DataFrame({"side": name, **known}, dtype=object)
        networks, _, classes = side.probabilities.shape
        cells = side.probabilities.transpose(1, 0, 2).reshape(len(side), -1)
        tables.append(
            table.join(pd.DataFrame(cells, columns=_probability_columns(networks, classes)))
        )
    if tables:
        # Nine digits keep every bit of a float32. Every text is quoted: pandas does not quote one
        # with a lone \\r.
        form: dict[str, Any] = {"float_format": "%.9g", "quoting": csv.QUOTE_NONNUMERIC}
        content = pd.concat(tables).to_csv(index=False, lineterminator="\n", **form)
        files.write_atomically(folder / FILE, content.encode("utf-8", "surrogateescape"))


def _probability_columns(networks: int, classes: int) -> list[str]:
    return [f"p{k + 1}_{c}" for k in range(networks) for c in range(classes)]


def read_held_out(folder: Path, *, networks: int, classes: int) -> dict[str, HeldOut]:
    """The sides of a run by name; empty if it had none."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        table = pd.read_csv(
            path, dtype=object, keep_default_na=False, encoding_errors="surrogateescape"
        )
        sides = {}
        for name, rows in table.groupby("side", sort=False):
            sides[str(name)] = _side(rows, networks=networks, classes=classes)
        return sides
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SrjtError(
            f"{path} is damaged or not from srjt ({problem!r}).", code="damaged_file"
        ) from None


def _side(rows: pd.DataFrame, *, networks: int, classes: int) -> HeldOut:
    facts: dict[str, Any] = {}
    for column, attribute in COLUMNS.items():
        if column in rows and (rows[column] != "").all():  # else a column of another side
            facts[attribute] = rows[column].tolist()
            if column.endswith("grade"):
                grades = facts[attribute] = np.array(
                    [int(float(cell)) for cell in rows[column]], np.int64
                )
                if not ((grades >= -1) & (grades < classes)).all():
                    raise ValueError(f"a {column} outside 0 … {classes - 1}")
            elif column == "verified_probability":
                facts[attribute] = rows[column].to_numpy().astype(np.float64)
    cells = rows[_probability_columns(networks, classes)].to_numpy().astype(np.float64)
    if not (np.isfinite(cells) & (cells >= 0.0)).all():
        raise ValueError("probabilities that are negative or not numbers")
    by_network = cells.reshape(len(rows), networks, classes).transpose(1, 0, 2)
    kept = {}
    for name, texts in rows.items():
        if str(name).startswith(KEPT) and (texts != "").any():
            kept[str(name).removeprefix(KEPT)] = texts.tolist()
    return HeldOut(
        probabilities=np.ascontiguousarray(by_network, dtype=np.float32), columns=kept, **facts
    )


# Image content is part of the identity of a run: it is not resumed with other images under the same
# names, and it knows what it was trained on under any name.
#
# A folder keeps the hash of every image, or row of features, in ``image_hashes.npy``: those of the
# training side first, then validation and test.

HASHES_FILE = "image_hashes.npy"


def image_digest(samples: Manifest) -> str | None:
    """One hash of all images in their order; None for features, whose values are part of the
    fingerprint."""
    if samples.hashes is None or samples.are_features:
        return None
    return hashlib.blake2b(samples.hashes.astype("<u8").tobytes(), digest_size=16).hexdigest()


def check_images(folder: Path, samples: Manifest, *, recorded: str | None) -> None:
    """Raise an error if an image has changed since ``recorded`` was written; write
    ``image_hashes.npy`` once.

    recorded: the digest in ``run.json``; None for features.
    """
    file = folder / HASHES_FILE
    if recorded != image_digest(samples):
        before, which = read_hashes(file), ""  # also if the hash of each image is not known
        if (
            samples.hashes is not None
            and before is not None
            and before.shape == samples.hashes.shape
        ):
            which = f" ({few(samples.table['id'][(before != samples.hashes).any(axis=1)])})"
        raise SrjtError(
            f"Images have changed since this run began{which}: restore them, or choose another ",
            Option("out"),
            ". (Another version of Pillow may also decode a file differently.)",
            code="data_changed",
        )
    if samples.hashes is not None and not file.exists():
        buffer = io.BytesIO()
        np.save(buffer, samples.hashes)
        with files.explain_write_errors(f"The run cannot be written to {folder}"):
            files.write_atomically(file, buffer.getvalue())


def read_hashes(file: Path) -> Hashes | None:
    """(N, 2) the hashes that a folder keeps; None if there are none, or if the file is damaged."""
    try:
        hashes = np.load(file, allow_pickle=False)
        right = hashes.dtype == np.uint64 and hashes.ndim == 2
    except (
        Exception
    ):  # damaged files make NumPy raise almost any exception, and an archive has no dtype
        return None
    return hashes if right else None


def same_samples(data: Manifest, *, ids: Sequence[str], hashes: Hashes | None) -> Ints:
    """(M,) rows of ``data`` that are one of the N samples with these ids, by its hash and under any
    name.

    hashes: (N or more, 2) of the samples in the order of their ids; None: nothing is found. Rows of
    few features coincide by chance: of these the id must be the same, too.
    """
    if hashes is None or len(hashes) < len(ids):
        return np.empty(0, dtype=np.int64)
    own = image_hashes(data).pixels if data.hashes is None else data.hashes
    few = data.arrays is not None and data.are_features and data.arrays.shape[1] < MIN_FEATURES

    def keys(names: Sequence[str], values: Hashes) -> list[tuple[object, ...]]:
        return [
            (*row, name if few else "") for name, row in zip(names, values.tolist(), strict=True)
        ]

    unreadable = (*UNKNOWN.tolist(), "")  # such an image is like no other
    learnt = set(keys(ids, hashes[: len(ids)])) - {unreadable}
    return np.array(
        [row for row, key in enumerate(keys(data.ids, own)) if key in learnt], dtype=np.int64
    )


# How a run was made: the command, the time, the machine and the versions, for ``run.json``.

PACKAGES = ("torch", "numpy", "monai", "scikit-learn", "pandas", "pillow")


def describe_provenance(
    device: torch.device, *, command: str | None, processes: int = 1
) -> dict[str, Any]:
    """Facts about the beginning of a run. command: as it was typed; None for a call from Python."""
    return {
        "command": command,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": device_name(device),
        "processes": processes,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


def describe_source(path: str) -> dict[str, str]:
    """The file or folder that the labels were read from, and the hash of a file as it is now."""
    facts = {"path": os.path.abspath(path)}
    with contextlib.suppress(OSError):
        facts["sha256"] = files.sha256_of(Path(path))
    return facts


@cache  # searching the installed packages takes as long as an epoch of a small run
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# Naive baselines of a run: the scores of one grade for all samples, on the same sides as the run's
# own scores.

NAIVE = "one grade for all: always the most frequent training label; for MAE always their median"


def run_baselines(folder: Path) -> dict[str, NaiveBaseline]:
    """Side → its naive baseline, for the sides of a finished run."""
    facts = read_facts(folder)
    confusions = read_summary(folder)["confusion"]
    # every network has judged every sample once: the rows of one network's counts are the labels of
    # the side
    counts = {side: np.asarray(confusion)[0].sum(axis=1) for side, confusion in confusions.items()}
    baselines = {side: baseline_from(facts, labels) for side, labels in counts.items()}
    return {side: baseline for side, baseline in baselines.items() if baseline is not None}


def baseline_from(facts: RunFacts, counts: npt.ArrayLike) -> NaiveBaseline | None:
    """The naive baseline of a run on samples with ``counts`` (C,) per grade; None if there are no
    samples, or if the run does not know its training labels."""
    training = facts.data.get("class_counts", [])
    if not len(training) == len(np.asarray(counts)) == len(facts.grades):
        return None
    if any(training) and np.any(counts):
        return naive_baseline(training, counts)
    return None


def not_beaten(score: float, naive: float, *, purpose: Purpose) -> bool:
    """Whether a score in the metric that the grades are for does not beat that of one grade for all
    samples.

    Only this metric is judged: grades with the least absolute error may be less accurate than the
    most frequent one. A perfect score cannot be beaten, so it passes, also where one grade for all
    is right.
    """
    return Gain(metric=purpose, score=score, naive=naive).verdict == "not better"
