"""Injected noise as in the paper's protocol: training and validation labels are corrupted, test never."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from srjt import noise
from srjt.data.manifest import Manifest
from srjt.data.splits import Split

__all__ = ["corrupt_sides"]


def corrupt_sides(
    manifest: Manifest, split: Split, matrix: npt.ArrayLike, *, seed: int
) -> tuple[Manifest, noise.NoiseReport]:
    """The manifest with noisy labels on the training and validation sides, and a report on the training side.

    Draws are keyed by sample id: a sample's label depends on the seed and itself, not on who else is there.
    """
    labels = manifest.labels
    noisy = labels.copy()
    touched = np.concatenate([split.train, split.validation])
    ids = manifest.ids
    noisy[touched] = noise.corrupt(labels[touched], matrix, seed=seed, ids=[ids[row] for row in touched])
    return manifest.with_noisy_labels(noisy), noise.report(labels[split.train], noisy[split.train], matrix)
