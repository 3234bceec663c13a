"""The settings of the training, from the parameters of the estimator: defaults depend on the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from srjt.data.manifest import Manifest
from srjt.errors import SrjtError, warn
from srjt.training.config import TrainConfig
from srjt.training.resolve_noise import WARM_UP_FOLDS, needs_estimate

__all__ = ["training_config", "without_estimate_if_few"]

ROWS_PER_GRADE = 50  # on average; with fewer the noise is not estimated
SMALL_IMAGE = 64  # pixels a side: the network is tiny up to this size, the paper's above it
FEW_STEPS = 500  # of a training on rows: with fewer, the default learning rate is too small
SIZES = (32, 256)  # images are resized to a square with a side in this range

# parameters of the estimator that are settings of the same name
SAME = ("method", "noise_rate", "transition", "soft_labels", "epochs", "batch_size", "optimise")


def training_config(parameters: Mapping[str, Any], manifest: Manifest) -> TrainConfig:
    """The settings for these samples. parameters: those of ``OrdinalNoiseClassifier``, by name."""
    given = dict(parameters["settings"] or {})
    for name in given:
        if name in (*parameters, "seed"):
            instead = "random_state" if name == "seed" else name
            raise SrjtError(
                f"{name} cannot be among the settings: pass it as the estimator's parameter {instead}."
            )
    network, rate = parameters["network"], parameters["learning_rate"]
    if not manifest.are_features:
        assert manifest.arrays is not None
        size = given.setdefault("image_size", int(np.clip(max(manifest.arrays.shape[1:3]), *SIZES)))
        given.setdefault("crop", size * 7 // 8)  # 224 of 256
        if network is None and size <= SMALL_IMAGE:
            network = "tiny"
        if rate is None and network in ("tiny", "tiny-gn"):
            rate = 1e-3
    # CPU tuning would write to the cache, and its result changes the last bits.
    config = TrainConfig(tune_cpu=False).replace(
        **given,
        **{name: parameters[name] for name in SAME},
        network=network if isinstance(network, str) else None,
        method_options=parameters["method_options"] or {},
        seed=int(check_random_state(parameters["random_state"]).randint(2**31 - 1)),
    )
    # Incomplete batches are dropped: with even batches an epoch leaves out fewer rows.
    steps = -(-len(manifest) // config.batch_size)
    if rate is None and manifest.are_features and config.epochs * steps < FEW_STEPS:
        rate = 1e-3
    config = config.replace(batch_size=len(manifest) // steps, learning_rate=rate)
    return config.for_data(features=manifest.are_features)


def without_estimate_if_few(config: TrainConfig, manifest: Manifest) -> TrainConfig:
    """Replace "auto" by noise rate 0 if there are too few rows for an estimate."""
    if not needs_estimate(config):
        return config
    rows, grades = len(manifest), manifest.num_classes
    groups = rows if manifest.patients is None else len(set(manifest.patients))
    if rows >= ROWS_PER_GRADE * grades and groups >= 2 * WARM_UP_FOLDS:
        return config
    what = f"{rows} rows" + (f" of {groups} groups" if groups < rows else "")
    warn(
        f"{what} are too few to estimate the noise of {grades} grades, so noise_rate 0 is used: pass noise_rate=… if "
        "you know it."
    )
    transition = np.eye(grades).tolist() if config.transition is None else config.transition
    return config.replace(noise_rate=0.0, transition=transition, soft_labels="paper")
