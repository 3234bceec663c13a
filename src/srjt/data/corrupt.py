"""Inject noise as the paper does: into training and validation labels, never into test labels."""

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
    """Inject noise into the training and validation labels; also returns a report on the training side.

    The noisy label of a sample depends only on the seed, its id and its label, not on the other samples.
    """
    labels = manifest.labels
    noisy = labels.copy()
    changed = np.concatenate([split.train, split.validation])
    ids = manifest.ids
    noisy[changed] = noise.corrupt(labels[changed], matrix, seed=seed, ids=[ids[row] for row in changed])
    return manifest.with_noisy_labels(noisy), noise.report(labels[split.train], noisy[split.train], matrix)
