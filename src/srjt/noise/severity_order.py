"""Images in the order of their severity under the network, and the label counts of similar images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from srjt.noise.posterior import probits

__all__ = ["Cells", "Images", "pool", "rank_images"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_BLOCKS, _WIDTHS = 134, 3  # cells: blocks of rank, each cut by width; finer cells change no estimate by 0.001
_DIGITS = 9  # severities that differ by less are equal


@dataclass(frozen=True, kw_only=True)
class Images:
    """What the model knows of each image."""

    position: Floats  # (N,) rank of the severity, in (0, 1)
    width: Floats  # (N,) rank of the spread among neighbours, in (−1, 1)
    cell: Ints  # (N,)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Label counts of similar images, weighted for repeated patients."""

    counts: Floats  # (M, C)
    position: Floats  # (M,)
    width: Floats  # (M,)

    @cached_property
    def weights(self) -> Floats:
        return np.asarray(self.counts.sum(axis=1))


def rank_images(probabilities: Floats, *, by_median: bool = False) -> Images:
    """(N, C) probabilities → ranks; equal images share a rank, so the order of the samples does not matter.

    by_median: the position is the rank of the median severity under the probabilities instead of the expected grade.
    """
    samples, classes = probabilities.shape
    grade = np.arange(classes) - (classes - 1) / 2
    mean = probabilities @ grade
    spread = np.sqrt(np.maximum(probabilities @ grade**2 - mean**2, 0.0)).round(_DIGITS)
    severity = _median(probabilities) if by_median else mean
    position = (_ranks(severity.round(_DIGITS)) - 0.5) / samples
    blocks = max(1, min(_BLOCKS, samples // _WIDTHS))
    block = np.minimum((position * blocks).astype(np.int64), blocks - 1)
    order = np.lexsort((spread, block))
    width = np.empty(samples)
    for members in np.split(order, np.flatnonzero(np.diff(block[order])) + 1):
        width[members] = 2.0 * (_ranks(spread[members]) - 0.5) / len(members) - 1.0
    third = np.minimum(((width + 1.0) / 2.0 * _WIDTHS).astype(np.int64), _WIDTHS - 1)
    _, cell = np.unique(block * _WIDTHS + third, return_inverse=True)
    return Images(position=position, width=width, cell=cell.astype(np.int64))


def _median(probabilities: Floats) -> Floats:
    """(N,): the severity, in grades, that the image exceeds with probability 1/2 under the network.

    Unlike the expected grade it does not move towards the middle of the scale when an image is blurred. Between two
    boundaries of grades, and beyond the last ones, Φ⁻¹ of the cumulative probability is taken as linear.
    """
    cuts = probits(probabilities)
    if cuts.shape[1] == 1:
        return -cuts[:, 0]
    rows = np.arange(len(cuts))
    left = np.clip(
        (cuts < 0.0).sum(axis=1) - 1, 0, cuts.shape[1] - 2
    )  # the pair of cuts around 0, or nearest to it
    low, high = cuts[rows, left], cuts[rows, left + 1]
    return np.asarray(left - low / np.maximum(high - low, 10.0**-_DIGITS))


def _ranks(values: Floats) -> Floats:
    """1 … N; equal values share the mean of their ranks."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[which])


def pool(labels: Ints, images: Images, *, classes: int, repeated: float = 1.0) -> Cells:
    """Label counts by cell. ``repeated``: how many labels carry the information of one (patients; 1 = independent)."""
    cells = int(images.cell.max()) + 1
    counts = np.bincount(images.cell * classes + labels, minlength=cells * classes).reshape(cells, classes)
    size = counts.sum(axis=1)
    return Cells(
        counts=counts / repeated,
        position=np.bincount(images.cell, images.position) / size,
        width=np.bincount(images.cell, images.width) / size,
    )
