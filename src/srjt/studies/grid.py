"""The planned runs of a study: methods × noises × folds × seeds, each with its settings and the key of its folder.

All methods use the same splits and, per noise, fold and seed, the same corrupted labels: comparisons are paired.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from srjt import noise
from srjt.data import Manifest, Split
from srjt.data.corrupt import corrupt_sides
from srjt.data.images.decode import Resize
from srjt.data.images.store import open_store
from srjt.errors import SrjtError
from srjt.methods import lookup
from srjt.studies.config import ESTIMATED, MethodSpec, StudyConfig
from srjt.studies.noise_spec import NoiseSpec, parse_noise
from srjt.training.config import TrainConfig
from srjt.training.resolve_noise import warm_up
from srjt.training.single_run import fingerprint

__all__ = ["PlannedRun", "StudyData"]


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
        return {
            "key": self.key,
            "method": self.method.name,
            "variant": self.method.variant,
            "noise": self.noise.label,
            "fold": self.fold,
            "seed": self.seed,
        }


class StudyData:
    """The samples of a study, their folds and their noises."""

    def __init__(self, config: StudyConfig, manifest: Manifest, splits: list[Split]) -> None:
        self.config = config
        self.manifest = manifest
        self.splits = splits

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
        return list(dict.fromkeys(parse_noise(text) for text in self.config.noises))

    @lru_cache(maxsize=8)  # noqa: B019 (the object lives as long as one command)
    def labelled(self, spec: NoiseSpec, fold: int, seed: int) -> tuple[Manifest, noise.NoiseReport | None]:
        """The manifest with the labels of one noise, fold and seed, and a report of the injected noise."""
        matrix = spec.matrix(self.manifest.class_counts)
        if matrix is None:
            return self.manifest, None
        return corrupt_sides(
            self.manifest, self.splits[fold], matrix, seed=_noise_seed(spec.label, fold, seed)
        )

    def resized_images(self, config: TrainConfig, *, cache: Path | None = None) -> npt.NDArray[np.generic]:
        """Images that are in memory, as a run with these settings needs them: resized once for all runs."""
        return self._resized(config.image_size, config.resize, cache)

    @lru_cache(maxsize=1)  # noqa: B019
    def _resized(self, size: int, resize: Resize, cache: Path | None) -> npt.NDArray[np.generic]:
        return open_store(self.manifest, size=size, resize=resize, cache=cache).pixels

    def given_noise(self, spec: NoiseSpec) -> tuple[float | Literal["auto"] | None, Any]:
        """ε and P that the methods get; ε is "auto" if both are estimated from the training labels.

        If no noise is injected, ε is the study's ``noise_rate``, and P its ``transition`` or, without one, the quasi
        matrix with rate ε on the observed class mix.
        """
        counts = self.manifest.class_counts
        if self.config.noise_rate == "auto":
            return self._estimated_noise(spec)
        if spec.kind != "none":
            return spec.given_rate(counts), spec.matrix(counts)
        rate, matrix = self.config.noise_rate, self.config.transition
        if matrix is not None:
            return rate, noise.check_matrix(matrix, num_classes=self.manifest.num_classes)
        if rate is None:
            return None, None
        rho = noise.rho_for_rate("quasi", rate=rate, class_counts=counts)
        return rate, noise.transition_matrix("quasi", num_classes=self.manifest.num_classes, rho=rho)

    def _estimated_noise(self, spec: NoiseSpec) -> tuple[Literal["auto"], Any]:
        given = self.config.transition if spec.kind == "none" else None
        return "auto", given and noise.check_matrix(given, num_classes=self.manifest.num_classes)

    def planned_runs(self) -> Iterator[PlannedRun]:
        """All runs, noise by noise and fold by fold, so that an unfinished study already compares all methods."""
        for spec in self.noises:
            rate, matrix = self.given_noise(spec)
            for seed in self.config.seeds:
                for fold in self.fold_numbers:
                    for method in self.config.method_specs():
                        yield self._plan(method, spec, fold, seed, rate, matrix)

    def find(self, facts: Mapping[str, Any]) -> PlannedRun:
        """The planned run with this entry in ``study.json``, without planning all the others."""
        spec = parse_noise(facts["noise"])
        wanted = (facts["method"], facts["variant"])
        method = next(m for m in self.config.method_specs() if (m.name, m.variant) == wanted)
        return self._plan(method, spec, int(facts["fold"]), int(facts["seed"]), *self.given_noise(spec))

    def _plan(
        self,
        method: MethodSpec,
        spec: NoiseSpec,
        fold: int,
        seed: int,
        rate: float | Literal["auto"] | None,
        matrix: Any,
    ) -> PlannedRun:
        own = method.own_rate
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
        facts = [config.determining(), self._fingerprint(spec, fold, seed), self._image_hash]
        text = json.dumps(facts, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        parts = [method.name, method.variant, spec.label, f"fold{fold}", f"seed{seed}", digest]
        key = "_".join(re.sub(r"[^A-Za-z0-9.+-]+", "-", part)[:60] for part in parts if part)
        return PlannedRun(method=method, noise=spec, fold=fold, seed=seed, config=config, key=key)

    def estimate_name(self, planned: PlannedRun) -> str:
        """Folder name of the noise estimate that a run uses: the same for all methods with the same labels and the
        same settings of the warm-up."""
        settings = warm_up(planned.config).determining()
        facts = [settings, self._fingerprint(planned.noise, planned.fold, planned.seed), self._image_hash]
        digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=6).hexdigest()
        label = re.sub(r"[^A-Za-z0-9.+-]+", "-", planned.noise.label)
        return f"{label}_fold{planned.fold}_seed{planned.seed}_{digest}"

    @lru_cache(maxsize=1024)  # noqa: B019
    def _fingerprint(self, spec: NoiseSpec, fold: int, seed: int) -> str:
        return fingerprint(self.labelled(spec, fold, seed)[0], self.splits[fold])

    @cached_property
    def _image_hash(self) -> str:
        """A hash of the pixels. It detects other images under the same names, and is the same for a copy of the data
        elsewhere."""
        digest = hashlib.blake2b(digest_size=8)
        if self.manifest.arrays is not None:
            digest.update(repr(self.manifest.arrays.shape).encode())
            digest.update(np.ascontiguousarray(self.manifest.arrays).data)
        elif self.manifest.hashes is not None:
            digest.update(self.manifest.hashes.astype("<u8").tobytes())
        else:
            for path in self.manifest.paths:
                digest.update(b"%d\n" % (path.stat().st_size if os.path.exists(path) else -1))
        return digest.hexdigest()


def _noise_seed(label: str, fold: int, seed: int) -> int:
    """A separate seed of the injected noise for each noise, fold and seed."""
    digest = hashlib.blake2b(f"{label}\0{fold}\0{seed}".encode(), digest_size=6)
    return int.from_bytes(digest.digest(), "big")
