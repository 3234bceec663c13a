"""The settings of a training as keyword arguments, so that editors complete their names and type
checkers know their values.

A type checker reads no dataclass here, so the fields of ``TrainConfig`` are written once more; a
test compares the two. Where a setting is converted, its type is that of what is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy.typing as npt

from srjt.ordinal import Purpose
from srjt.training.config import Precision, StepMode


class SharedSettings(TypedDict, total=False):
    """The fields of ``TrainConfig`` that all runs of a study share, but for ``network``."""

    reader_targets: Literal["auto", "consensus", "posterior", "readers", "resample", "certainty"]
    convention: Literal["paper", "published-code", "original"]
    imports: Sequence[str]
    backbone: str | None
    pretrained: bool
    weights: str | Path | None
    image_size: int
    crop: int
    resize: Literal["squash", "crop", "pad"]
    flip: bool
    augment: Literal["paper", "light", "strong"]
    epochs: int | None
    batch_size: int | None
    optimizer: Literal["adam", "adamw"] | None
    schedule: Literal["steps", "cosine"] | None
    warmup_epochs: int | None
    learning_rate: float | None
    weight_decay: float | None
    milestones: Sequence[int] | None
    gamma: float
    balance: float | None
    target_metric: Purpose
    keep: Literal["last", "best"]
    patience: int | None
    keep_columns: Sequence[str]
    track_wrong_labels: bool
    precision: Precision
    step: StepMode
    deterministic: bool
    sync_batchnorm: bool
    memory_share: float
    eval_batch_size: int
    checkpoint_seconds: float


class TrainSettings(SharedSettings, total=False):
    """The fields of ``TrainConfig`` but for ``network``, which ``srjt.train`` has as an argument of
    its own; and ``preset``."""

    preset: str
    method: str
    method_options: Mapping[str, Any]
    noise_rate: float | Literal["auto"] | None
    transition: npt.ArrayLike | None
    soft_labels: Literal["paper", "estimated"]
    seed: int


class AuditSettings(TrainSettings, total=False):
    """All fields of ``TrainConfig``, and ``preset``."""

    network: str | None
