"""The planned runs of a study, each with its settings and the key of its folder; its data, opened
once; how long they will take, and how their progress is followed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt import noise
from srjt._version import __version__
from srjt.data.duplicates import UNKNOWN, file_facts, group_duplicates
from srjt.data.images.decode import Resize
from srjt.data.images.feed import FeedCache
from srjt.data.images.store import open_store
from srjt.data.manifest import LeakageWarning, Manifest, drop_unusable
from srjt.data.options import picked
from srjt.data.sources import read_source
from srjt.data.sources.table import no_image_exists
from srjt.data.splits import Split, corrupt_sides, folds, read_splits
from srjt.data.synthetic import generate
from srjt.errors import Option, SrjtError, count_of, few, warn
from srjt.files import cache_folder, load_arrays, save_arrays
from srjt.json_values import json_values
from srjt.methods import lookup
from srjt.progress import Bar
from srjt.studies.config import (
    ESTIMATED,
    MethodSpec,
    NoiseSpec,
    StudyConfig,
    learning_curve,
    parse_noise,
)
from srjt.training.config import CHOOSE_HEAD, FITTED_BY_ODDS, TrainConfig
from srjt.training.image_identity import image_digest
from srjt.training.noise_rate import needs_estimate, warm_up, warm_up_seconds
from srjt.training.single_run import fingerprint, training_seconds
from srjt.training.workers import StopRequest

# The planned runs of a study: methods × noises × folds × seeds, each with its settings and the key
# of its folder.
#
# All methods use the same splits and, per noise, fold and seed, the same corrupted labels:
# comparisons are paired.


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
        named = {
            "method": self.method.name,
            "variant": self.method.variant,
            "noise": self.noise.label,
        }
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
        for fold in wanted:
            if not 0 <= fold < len(self.splits):
                raise SrjtError(
                    f"There is no fold {fold}: folds are numbered 0 … {len(self.splits) - 1}.",
                    code="out_of_bounds",
                    option="only_folds",
                )
        return wanted

    @property
    def noises(self) -> list[NoiseSpec]:
        texts = self.config.noises
        if self.config.learning_curve:
            texts = learning_curve(texts, corrected=self._better_labels[0] is not None)
        return list(dict.fromkeys(map(parse_noise, texts)))

    @cached_property
    def _better_labels(self) -> tuple[npt.NDArray[np.int64] | None, float]:
        """(N,) the true grades, or the verified ones where there are some, and the share of labels
        without one; None if neither is known."""
        true = self.manifest.true_labels
        verified = self.manifest.verified_labels
        if true is not None or verified is None:
            return true, 0.0
        return np.where(verified >= 0, verified, self.manifest.labels), float((verified < 0).mean())

    @lru_cache(maxsize=8)  # noqa: B019 (the object lives as long as one command)
    def labelled(
        self, spec: NoiseSpec, fold: int, seed: int
    ) -> tuple[Manifest, noise.NoiseReport | None]:
        """The manifest with the labels of one noise, fold and seed, and a report of the injected
        noise."""
        manifest = self.manifest
        split = self.splits[fold]
        better, _ = self._better_labels
        if self.config.learning_curve and better is not None:
            # better labels are worth nothing to a judge who has the worse ones
            rows = split.test
            if spec.corrected:
                rows = np.concatenate([split.test, split.train, split.validation])
            labels = manifest.labels
            labels[rows] = better[rows]
            if spec.corrected:
                manifest = manifest.with_labels(labels)
            else:
                manifest = replace(manifest, table=manifest.table.assign(grade=labels))
        _, matrix, _ = spec.on(manifest.class_counts)
        if matrix is None:
            return manifest, None
        # a separate seed for each noise, fold and seed
        draw = hashlib.blake2b(f"{spec.labels}\0{fold}\0{seed}".encode(), digest_size=6).digest()
        return corrupt_sides(manifest, split, matrix, seed=int.from_bytes(draw, "big"))

    def split(self, spec: NoiseSpec, fold: int) -> Split:
        """The fold, with the share of its training patients that a noise has. Small shares are part
        of larger ones."""
        split = self.splits[fold]
        if spec.share == 1.0:
            return split
        groups = self.manifest.groups
        if groups is None:
            owner = split.train.astype(str)
        else:
            owner = np.array([groups[row] for row in split.train]).astype(str)
        patients = np.unique(owner)
        kept = np.random.default_rng([fold, 0]).permutation(patients)[
            : math.ceil(spec.share * len(patients))
        ]
        return replace(split, train=split.train[np.isin(owner, kept)])

    @lru_cache(maxsize=1)  # noqa: B019
    def resized_images(
        self, size: int, resize: Resize, cache: Path | None
    ) -> npt.NDArray[np.generic]:
        """Images that are in memory, resized once for all runs."""
        return open_store(self.manifest, size=size, resize=resize, cache=cache).pixels

    @lru_cache(maxsize=64)  # noqa: B019
    def given_noise(self, spec: NoiseSpec) -> tuple[float | Literal["auto"] | None, Any]:
        """ε and P that the methods get; ε is "auto" if both are estimated from the training labels.

        If no noise is injected, ε is the study's ``noise_rate``, and P its ``transition`` or,
        without one, the quasi matrix with rate ε on the observed class mix.
        """
        counts = self.manifest.class_counts
        if self.config.noise_rate == "auto":
            return self._estimated_noise(spec)
        if spec.kind != "none":
            return spec.on(counts)[:2]
        rate = self.config.noise_rate
        matrix = self.config.transition
        # wrong labels that are left
        if self.config.learning_curve and spec.labels not in self.config.noises:
            rate = (rate or 0.0) * (spec.corrected and self._better_labels[1])
            matrix = None
        if matrix is not None:
            return rate, noise.check_matrix(matrix, num_classes=self.manifest.num_classes)
        return NoiseSpec(label="", kind="quasi", rate=rate).on(counts)[:2]

    def _estimated_noise(self, spec: NoiseSpec) -> tuple[Literal["auto"], Any]:
        given = self.config.transition
        if spec.kind != "none" or not given:
            return "auto", None
        return "auto", noise.check_matrix(given, num_classes=self.manifest.num_classes)

    def labellings(self) -> Iterator[tuple[NoiseSpec, int, int]]:
        """The noise, seed and fold of each set of labels, in the order in which runs are
        planned."""
        return product(self.noises, self.config.seeds, self.fold_numbers)

    def planned_runs(self) -> Iterator[PlannedRun]:
        """All runs, noise by noise and fold by fold, so that an unfinished study already compares
        all methods."""
        for (spec, seed, fold), method in product(self.labellings(), self.config.method_specs()):
            yield self._plan(method, spec, fold, seed)

    def find(self, facts: Mapping[str, Any]) -> PlannedRun:
        """The planned run with this entry in ``study.json``, without planning all the others."""
        wanted = (facts["method"], facts["variant"])
        method = next(m for m in self.config.method_specs() if (m.name, m.variant) == wanted)
        return self._plan(method, parse_noise(facts["noise"]), facts["fold"], facts["seed"])

    def _plan(self, method: MethodSpec, spec: NoiseSpec, fold: int, seed: int) -> PlannedRun:
        rate, matrix = self.given_noise(spec)
        if method.own_rate == "auto":
            rate, matrix = self._estimated_noise(spec)  # even if the study knows the noise
        elif method.own_rate is not None:
            rate = method.own_rate
        given = {"noise_rate": rate, "transition": json_values(matrix)}
        needs = lookup(method.name).method.needs
        for need in needs:
            if given[need] is None and rate != "auto":
                raise SrjtError(
                    f"{method.name} needs the noise of the labels: give ",
                    Option("noise_rate"),
                    " for data that are noisy already (a number, or auto), or inject noise with ",
                    Option("noise", "quasi:0.2"),
                    ".",
                    code="missing_option",
                )
        # Only what a method needs is part of its settings: a different P must not repeat
        # co-teaching.
        used = picked(given, needs)
        options = dict(method.options)
        if options.get("label_matrix") == ESTIMATED:
            del options["label_matrix"]
            used |= {"soft_labels": "estimated", "noise_rate": rate}
        if rate == "auto" and None in map(used.get, needs):
            used["noise_rate"] = rate  # the matrix is estimated as well
        config = TrainConfig().replace(
            **{**self.config.train, **method.settings, **used},
            method=method.name,
            method_options=options,
            seed=seed,
        )
        if self._chooses_heads and config.network is None and method.name in FITTED_BY_ODDS:
            config = config.replace(network=CHOOSE_HEAD)
        config = config.for_data(features=self.manifest.are_features, samples=len(self.manifest))
        key = self._name(config, spec, fold, seed, method.name, method.variant)
        return PlannedRun(method=method, noise=spec, fold=fold, seed=seed, config=config, key=key)

    @cached_property
    def _chooses_heads(self) -> bool:
        """Whether the head of a method is chosen by the data. Then the head of every method is that
        may have the same ones: else two methods would differ by their heads."""
        features = self.manifest.are_features
        for method in self.config.method_specs():
            given = {**self.config.train, **method.settings}
            config = TrainConfig().replace(**given, method=method.name)
            network = config.for_data(features=features, samples=len(self.manifest)).network
            if network == CHOOSE_HEAD:
                return True
        return False

    def estimate_name(self, planned: PlannedRun) -> str:
        """Folder name of the noise estimate that a run uses: the same for all methods with the same
        labels and the same settings of the warm-up."""
        return self._name(
            warm_up(planned.config, samples=len(self.manifest)),
            planned.noise,
            planned.fold,
            planned.seed,
        )

    def _name(
        self, config: TrainConfig, spec: NoiseSpec, fold: int, seed: int, *method: str
    ) -> str:
        """A folder's name, with a hash of all that decides what is in it."""
        facts = [
            config.determining(),
            self._fingerprint(spec, fold, seed),
            image_digest(self.manifest),
        ]
        digest = hashlib.blake2b(
            json.dumps(facts, sort_keys=True).encode(), digest_size=6
        ).hexdigest()
        parts = [*method, spec.label, f"fold{fold}", f"seed{seed}", digest]
        return "_".join(re.sub(r"[^A-Za-z0-9.+-]+", "-", part)[:60] for part in filter(None, parts))

    @lru_cache(maxsize=1024)  # noqa: B019
    def _fingerprint(self, spec: NoiseSpec, fold: int, seed: int) -> str:
        return fingerprint(self.labelled(spec, fold, seed)[0], self.split(spec, fold))


# Open a study's data: the same way in the process that plans it and in every process that trains a
# run.


def open_data(
    config: StudyConfig,
    *,
    cache: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    quiet: bool = False,
) -> StudyPlan:
    """Read the source, find identical images, and make the folds.

    cache: folder for the hashes of the images. progress: called with (images hashed, images in
    all). quiet: show no bar while the headers of DICOM files are read.
    """
    if not config.source:
        raise SrjtError(
            "A study needs data: give a source, or 'synthetic' for the synthetic dataset.",
            code="missing_option",
            option="data",
        )
    if config.source == "synthetic":
        manifest = _synthetic(dict(config.reading))
    else:
        reading = read_source(config.source, **config.reading, progress=not quiet)
        manifest = drop_unusable(reading, on_bad_image=config.on_bad_image)
    with warnings.catch_warnings():
        # shown once by the command, and in the report
        warnings.simplefilter("ignore", LeakageWarning)
        near = config.group_near_duplicates
        manifest = group_duplicates(manifest, near=near, cache=cache, progress=progress)
        if config.on_bad_image == "skip":
            manifest = _without_unreadable(manifest, quiet=quiet)
        if config.splits is not None:
            splits = read_splits(Path(config.splits), manifest)
        else:
            seed = config.split_seed
            by = config.split_by
            splits = folds(manifest, folds=config.folds, seed=seed, by=by, hold_out=config.hold_out)
    return StudyPlan(config, manifest, splits)


def _without_unreadable(manifest: Manifest, *, quiet: bool) -> Manifest:
    """The samples whose images have a hash: the runs of a study share the positions of their
    rows."""
    if manifest.hashes is None or manifest.arrays is not None:
        return manifest
    unreadable = np.flatnonzero((manifest.hashes == UNKNOWN).all(axis=1)).tolist()
    if len(unreadable) == len(manifest):
        raise no_image_exists(manifest)
    if unreadable and not quiet:
        ids = manifest.ids
        named = few([ids[row] for row in unreadable])
        warn(
            f"{count_of(len(unreadable), 'image')} cannot be read and"
            f" {'is' if len(unreadable) == 1 else 'are'} left out: {named}."
        )
    return manifest.leave_out(dict.fromkeys(unreadable, ("unreadable-image", "it cannot be read")))


def _synthetic(options: dict[str, Any]) -> Manifest:
    """The synthetic dataset, generated once and cached: it takes seconds, and every process of a
    study needs it."""
    text = json.dumps([__version__, options], sort_keys=True)
    name = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    file = cache_folder() / "synthetic" / f"{name}.npz"
    cached = load_arrays(file)
    with contextlib.suppress(ValueError, KeyError):
        table = pd.read_json(io.StringIO(str(cached["table"])), orient="split", dtype=False)
        table["patient"] = table["patient"].astype(str)
        return Manifest(
            table=table, grades=tuple(map(str, cached["grades"])), arrays=cached["pixels"]
        )
    try:
        manifest = generate(**options)
    except TypeError as problem:
        raise SrjtError(
            "The synthetic dataset takes images, patients, size, grades and seed, whole numbers:"
            f" {problem}.",
            code="unknown_name",
            option="data",
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
    paths = []
    for named in (config.source, config.splits, *config.reading.values()):
        if isinstance(named, str):
            paths.append(Path(named))
    if data.manifest.arrays is None:
        paths += data.manifest.paths
    return file_facts(paths)


# How long the runs of a study will take: a few steps of each method, times the runs; and which are
# started first.


def run_seconds(
    data: StudyPlan, planned_runs: Sequence[PlannedRun], *, device: torch.device
) -> list[float]:
    """Seconds of each run, by a few steps on ``device``; nothing is decoded, written or downloaded.

    Methods with as many networks and the same settings share one measurement. A noise estimate
    counts for the first run that needs it, where it is measured (``warm_up_seconds``).
    Start-up and decoding are not included.
    """
    measured: dict[object, float] = {}
    estimated: set[str] = set()
    seconds = []
    for planned in planned_runs:
        kind = (
            _networks(planned),
            planned.noise.share,
            str(sorted(planned.method.settings.items())),
        )
        split = data.split(planned.noise, planned.fold)
        if kind not in measured:
            measured[kind] = training_seconds(
                data.manifest, split, config=planned.config, device=device
            )
        seconds.append(measured[kind])
        if not needs_estimate(planned.config):
            continue
        estimate = data.estimate_name(planned)
        if estimate in estimated:
            continue
        estimated.add(estimate)
        kind_of_estimate = ("estimate", *kind)
        if kind_of_estimate not in measured:
            measured[kind_of_estimate] = warm_up_seconds(
                data.manifest, split, config=planned.config, device=device
            )
        seconds[-1] += measured[kind_of_estimate]
    return seconds


def longest_first(planned_runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """In the order in which runs are started: a long one that starts last would leave the other
    devices idle."""
    return sorted(planned_runs, key=_networks, reverse=True)


def _networks(planned: PlannedRun) -> int:
    return lookup(planned.method.name, registered_by=planned.config.imports).networks


# Follow the progress of a study.


class StudyWatcher:
    """Receives the progress of a study, and moves a bar, if any; override what should do something
    else."""

    def __init__(self, bar: Bar | None = None) -> None:
        self.bar = bar or Bar()
        self.done = 0
        self.total = 0

    def begin(self, planned_runs: Sequence[PlannedRun], *, done: int) -> None:
        """The study begins; ``done`` of its runs are finished already."""
        self.done = done
        self.total = len(planned_runs)
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
        line = f"[{self.done}/{self.total}] {status}: {planned.key}"
        if status == "failed":
            self.bar.note(line)
        else:
            self.bar.line(line)
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
