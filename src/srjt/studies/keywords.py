"""The settings of a study as keyword arguments, as ``srjt.training.keywords`` has those of a
training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from srjt.training.keywords import SharedSettings


class StudySettings(SharedSettings, total=False):
    """The fields of ``StudyConfig`` and of ``Execution``, ``noise`` as another name of ``noises``,
    and the settings that all runs share."""

    network: str | None
    # of StudyConfig
    reading: Mapping[str, Any]
    on_bad_image: Literal["error", "skip"]
    methods: str | Sequence[str]
    noises: str | Sequence[str]
    noise: str | Sequence[str]
    learning_curve: bool
    noise_rate: float | Literal["auto"] | None
    transition: npt.ArrayLike | None
    folds: int
    only_folds: int | Sequence[int] | None
    split_by: str
    split_seed: int
    splits: str | Path | None
    hold_out: str | None
    group_near_duplicates: bool
    seeds: int | Sequence[int]
    paper_table: Literal["limuc", "private-uc", "dr"] | None
    grade_names: Mapping[str, str]
    # of Execution
    jobs: int | None
    device: str | None
    executor: Literal["local", "ray"]
    address: str | None
    gpus_per_run: float | None
    cpus_per_run: float | None
    cache: str | Path | None
