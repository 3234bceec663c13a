"""From a study to its runs: each cell of the grid with the data, the settings and the key that identify it.

All methods see the same splits and, per noise, fold and seed, the same corrupted labels: comparisons are paired.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from srjt import noise
from srjt.data import Manifest, Split
from srjt.data.corrupt import corrupt_sides
from srjt.errors import SrjtError
from srjt.methods import lookup
from srjt.studies.config import ESTIMATED, MethodSpec, StudyConfig
from srjt.studies.noise_spec import NoiseSpec, parse_noise
from srjt.training.config import COMPUTE_ONLY, TrainConfig
from srjt.training.resolve_noise import warm_up
from srjt.training.single_run import fingerprint

__all__ = ["PlannedRun", "StudyData"]

# Settings that came after the first studies; at these values a run is the one it was before, with the same key.
ADDED_LATER = (("soft_labels", "paper"), ("balance", 0.0))


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One training of a study."""

    method: MethodSpec
    noise: NoiseSpec
    fold: int
    seed: int
    config: TrainConfig
    key: str  # names its folder; two cells with the same key would have the same result

    def facts(self) -> dict[str, Any]:
        """What ``study.json`` says of it."""
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

    @lru_cache(maxsize=8)  # noqa: B019 (lives as long as one command)
    def labelled(self, spec: NoiseSpec, fold: int, seed: int) -> tuple[Manifest, noise.NoiseReport | None]:
        """The manifest with the labels of one noise, fold and seed, and what was injected."""
        matrix = spec.matrix(self.manifest.class_counts)
        if matrix is None:
            return self.manifest, None
        return corrupt_sides(self.manifest, self.splits[fold], matrix, seed=_draw(spec.label, fold, seed))

    def told(self, spec: NoiseSpec) -> tuple[float | Literal["auto"] | None, Any]:
        """ε and P as the methods are told them; ε is "auto" where both are estimated from the training labels.

        Where nothing is injected, ε is the study's ``noise_rate`` and P the study's ``transition``, or else the
        quasi matrix solved for ε on the observed class mix.
        """
        counts = self.manifest.class_counts
        if self.config.noise_rate == "auto":
            return self._estimated(spec)
        if spec.kind != "none":
            return spec.told_rate(counts), spec.matrix(counts)
        rate, matrix = self.config.noise_rate, self.config.transition
        if matrix is not None:
            return rate, noise.check_matrix(matrix, num_classes=self.manifest.num_classes)
        if rate is None:
            return None, None
        rho = noise.rho_for_rate("quasi", rate=rate, class_counts=counts)
        return rate, noise.transition_matrix("quasi", num_classes=self.manifest.num_classes, rho=rho)

    def _estimated(self, spec: NoiseSpec) -> tuple[Literal["auto"], Any]:
        given = self.config.transition if spec.kind == "none" else None
        return "auto", given and noise.check_matrix(given, num_classes=self.manifest.num_classes)

    def cells(self) -> Iterator[PlannedRun]:
        """Noise by noise and fold by fold, so that an unfinished study compares all methods on something."""
        for spec in self.noises:
            rate, matrix = self.told(spec)
            for seed in self.config.seeds:
                for fold in self.fold_numbers:
                    for method in self.config.method_specs():
                        yield self._cell(method, spec, fold, seed, rate, matrix)

    def find(self, facts: Mapping[str, Any]) -> PlannedRun:
        """The cell that ``study.json`` describes so, without making all the others."""
        spec = parse_noise(facts["noise"])
        wanted = (facts["method"], facts["variant"])
        method = next(m for m in self.config.method_specs() if (m.name, m.variant) == wanted)
        return self._cell(method, spec, int(facts["fold"]), int(facts["seed"]), *self.told(spec))

    def _cell(
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
            rate, matrix = self._estimated(spec)  # whatever the study knows
        elif own is not None:
            rate = own
        given = {"noise_rate": rate, "transition": None if matrix is None else np.asarray(matrix).tolist()}
        needs = lookup(method.name).method.needs
        for need in needs:
            if given[need] is None and rate != "auto":
                raise SrjtError(
                    f"{method.name} must be told how noisy the labels are: give --noise-rate for data that are noisy "
                    "already (a number, or auto), or inject noise with --noise quasi:0.2."
                )
        # What a method does not need is not part of its run: a better guess of P must not repeat co-teaching.
        told = {need: given[need] for need in needs}
        options = dict(method.options)
        if options.get("label_matrix") == ESTIMATED:
            del options["label_matrix"]
            told |= {"soft_labels": "estimated", "noise_rate": rate}
        if rate == "auto" and any(told.get(need) is None for need in needs):
            told["noise_rate"] = rate  # the matrix is estimated as well
        config = TrainConfig().replace(
            **{**self.config.train, **method.settings, **told},
            method=method.name,
            method_options=options,
            seed=seed,
        )
        config = config.for_data(features=self.manifest.are_features)
        determining = {
            name: value
            for name, value in config.to_dict().items()
            if name not in COMPUTE_ONLY and (name, value) not in ADDED_LATER
        }
        text = json.dumps([determining, self._fingerprint(spec, fold, seed), self._images], sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        parts = [method.name, method.variant, spec.label, f"fold{fold}", f"seed{seed}", digest]
        key = "_".join(re.sub(r"[^A-Za-z0-9.+-]+", "-", part)[:60] for part in parts if part)
        return PlannedRun(method=method, noise=spec, fold=fold, seed=seed, config=config, key=key)

    def estimate_name(self, cell: PlannedRun) -> str:
        """Names the folder of the estimate that a cell is told: the same for all methods that see the same labels
        and share the settings of the warm-up."""
        wanted = {name: v for name, v in warm_up(cell.config).to_dict().items() if name not in COMPUTE_ONLY}
        facts = [wanted, self._fingerprint(cell.noise, cell.fold, cell.seed), self._images]
        digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=6).hexdigest()
        label = re.sub(r"[^A-Za-z0-9.+-]+", "-", cell.noise.label)
        return f"{label}_fold{cell.fold}_seed{cell.seed}_{digest}"

    @lru_cache(maxsize=1024)  # noqa: B019
    def _fingerprint(self, spec: NoiseSpec, fold: int, seed: int) -> str:
        return fingerprint(self.labelled(spec, fold, seed)[0], self.splits[fold])

    @cached_property
    def _images(self) -> str:
        """A hash of the pixels in memory, or of the files' sizes: other images under the same names are seen, and
        a copy of the data elsewhere is the same."""
        digest = hashlib.blake2b(digest_size=8)
        if self.manifest.arrays is not None:
            digest.update(repr(self.manifest.arrays.shape).encode())
            digest.update(np.ascontiguousarray(self.manifest.arrays).data)
        else:
            for path in self.manifest.paths:
                digest.update(b"%d\n" % (path.stat().st_size if path.exists() else -1))
        return digest.hexdigest()


def _draw(label: str, fold: int, seed: int) -> int:
    """A noise seed of its own for each noise, fold and seed."""
    digest = hashlib.blake2b(f"{label}\0{fold}\0{seed}".encode(), digest_size=6)
    return int.from_bytes(digest.digest(), "big")
