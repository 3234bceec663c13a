"""Groups of samples that are never split: patients, joined with the images that they share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from srjt.data.duplicates import Ints, components, connected, identical, near_pairs
from srjt.data.images.hashes import ImageHashes, image_hashes
from srjt.data.manifest import Manifest
from srjt.errors import warn

__all__ = [
    "DuplicateImagesWarning",
    "LeakageWarning",
    "contradictory_twins",
    "describe_duplicates",
    "group_duplicates",
    "same_pixels",
    "with_hashes",
]

# Rows of fewer features coincide by chance: they are table cells, not what a network computed from an image.
MIN_FEATURES = 16


class LeakageWarning(UserWarning):
    """Images of one patient may be on two sides of a split."""


class DuplicateImagesWarning(LeakageWarning):
    """Some images are identical; they are kept on one side of every split."""


def group_duplicates(
    manifest: Manifest,
    *,
    near: bool = False,
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Find identical images, so that they are never on two sides of a split.

    ``folds``, ``srjt.train``, ``srjt.audit`` and ``srjt.evaluate`` call this themselves. Call it to group nearly
    identical images as well. Every image is decoded once; the hashes stay in the cache folder.

    Parameters
    ----------
    manifest : Manifest
        The samples. Images that cannot be read are like no other. Rows of features count as images if there are at
        least 16 features.
    near : bool
        Group nearly identical images too: rescaled, recompressed, mirrored, or cropped by up to 3 % at each border.
    cache : path, optional
        Folder for the hashes. Default: ``$SRJT_CACHE``, or the user's cache folder.
    workers : int, optional
        Number of decoding threads. Default: one per core, at most 32.
    progress : callable, optional
        Called with (images done, images in all).

    Returns
    -------
    Manifest
        The same samples with ``hashes`` and ``duplicates``, and so with other ``groups`` where images are shared. A
        ``DuplicateImagesWarning`` says how many there are.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=20, patients=5, size=32)
    >>> grouped = srjt.data.group_duplicates(data)
    >>> grouped.groups == data.patients
    True
    """
    hashes = image_hashes(manifest, near=near, cache=cache, workers=workers, progress=progress)
    return with_hashes(manifest, hashes, near=near)


def with_hashes(manifest: Manifest, hashes: ImageHashes, *, near: bool = False) -> Manifest:
    """The manifest with these hashes and the duplicates that they show; warns if there are any."""
    code = same_pixels(replace(manifest, hashes=hashes.pixels))
    if near and hashes.thumbnails is not None:
        pairs = across_patients(manifest, near_pairs(hashes.thumbnails))
        code = connected(code, components(len(manifest), pairs))
    marked = replace(manifest, hashes=hashes.pixels, duplicates=code)
    if sentence := describe_duplicates(marked, near=near):
        warn(sentence, DuplicateImagesWarning)
    return marked


def across_patients(manifest: Manifest, pairs: Ints) -> Ints:
    """The pairs (M, 2) of rows of different patients: alike images of one patient are usual, and never split."""
    if manifest.patients is None:
        return pairs
    owner = np.unique(np.array(manifest.patients, dtype=object), return_inverse=True)[1]
    return np.asarray(pairs[owner[pairs[:, 0]] != owner[pairs[:, 1]]])


def describe_duplicates(manifest: Manifest, *, near: bool = False) -> str:
    """One sentence on how many images are the same as another; "" if there are none, or if it is not known."""
    if manifest.duplicates is None:
        return ""
    sizes = np.unique(manifest.duplicates, return_counts=True)[1]
    sizes = sizes[sizes > 1]
    if not len(sizes):
        return ""
    what = "rows of features" if manifest.are_features else "images"
    same = "identical or nearly identical" if near else "identical"
    groups = f"{len(sizes):,} group{'' if len(sizes) == 1 else 's'}"
    return f"{sizes.sum():,} {what} are {same} to another: they make {groups}, and a group is never split."


def same_pixels(manifest: Manifest) -> Ints:
    """(N,) numbers, equal for samples with identical images (not for nearly identical ones)."""
    few = manifest.arrays is not None and manifest.are_features and manifest.arrays.shape[1] < MIN_FEATURES
    return np.arange(len(manifest)) if few or manifest.hashes is None else identical(manifest.hashes)


def contradictory_twins(manifest: Manifest) -> Ints:
    """(N,) numbers from 1, equal for samples with identical images of different grades; 0 for all other samples."""
    code = same_pixels(manifest)
    grades = pd.Series(manifest.labels).groupby(code).transform("nunique").to_numpy()
    number = np.zeros(len(manifest), dtype=np.int64)
    number[grades > 1] = np.unique(code[grades > 1], return_inverse=True)[1].reshape(-1) + 1
    return number
