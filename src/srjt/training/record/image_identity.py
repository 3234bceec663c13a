"""Image content is part of the identity of a run: it is not resumed with other images under the same names, and it
knows what it was trained on under any name.

A folder keeps the hash of every image, or row of features, in ``image_hashes.npy``: those of the training side first,
then validation and test.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt.data import Manifest
from srjt.data.duplicates import UNKNOWN, Hashes
from srjt.data.groups import MIN_FEATURES
from srjt.data.images.hashes import image_hashes
from srjt.errors import SrjtError, count_of
from srjt.files import why_not_a_file, write_atomically

__all__ = [
    "HASHES_FILE",
    "changed_images",
    "check_images",
    "image_digest",
    "read_hashes",
    "same_samples",
]

HASHES_FILE = "image_hashes.npy"


def image_digest(samples: Manifest) -> str | None:
    """One hash of all images in their order; None for features, whose values are part of the fingerprint."""
    if samples.hashes is None or samples.are_features:
        return None
    return hashlib.blake2b(samples.hashes.astype("<u8").tobytes(), digest_size=16).hexdigest()


def check_images(folder: Path, samples: Manifest, *, recorded: str | None, what: str) -> None:
    """Raise an error if an image has changed since ``recorded`` was written; write ``image_hashes.npy`` once.

    recorded: the digest in the folder's JSON file; None for features. what: run or audit, for the message.
    """
    digest = image_digest(samples)
    file = folder / HASHES_FILE
    if recorded != digest:
        if recorded is None:
            return
        changed = changed_images(file, samples)
        others = f" (and {count_of(len(changed) - 1, 'other')})" if len(changed) > 1 else ""
        which = f"The image {changed[0]}{others} has" if changed else "Some images have"
        raise SrjtError(
            f"{which} changed since this {what} began: restore the images, or choose another `out`. (Another version "
            "of Pillow may also decode a file differently.)"
        )
    if samples.hashes is not None and not file.exists():
        buffer = io.BytesIO()
        np.save(buffer, samples.hashes)
        try:
            write_atomically(file, buffer.getvalue(), follow_links=False)
        except OSError as problem:
            raise SrjtError(f"The {what} cannot be written to {folder}: {problem.strerror}.") from None


def changed_images(file: Path, samples: Manifest) -> list[str]:
    """The ids of the samples whose hash is not that in the file; empty if the file is missing or of other samples."""
    before = read_hashes(file)
    if samples.hashes is None or before is None or before.shape != samples.hashes.shape:
        return []
    ids = samples.ids
    return [ids[row] for row in np.flatnonzero((before != samples.hashes).any(axis=1))]


def read_hashes(file: Path) -> Hashes | None:
    """(N, 2) the hashes that a folder keeps; None if there are none, or if the file is damaged."""
    if why_not_a_file(file) is not None:  # reading a pipe would wait for ever
        return None
    try:
        found = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.dtype == np.uint64 and found.ndim == 2 else None


def same_samples(data: Manifest, *, ids: Sequence[str], hashes: Hashes | None) -> npt.NDArray[np.int64]:
    """(M,) rows of ``data`` that are one of the N samples with these ids, by its hash and under any name.

    hashes: (N or more, 2) of the samples in the order of their ids; None: nothing is found. Rows of few features
    coincide by chance: of these the id must be the same, too.
    """
    if hashes is None or len(hashes) < len(ids):
        return np.empty(0, dtype=np.int64)
    given = image_hashes(data).pixels if data.hashes is None else data.hashes
    few = data.arrays is not None and data.are_features and data.arrays.shape[1] < MIN_FEATURES

    def keys(names: Sequence[str], values: Hashes) -> list[tuple[object, ...]]:
        return [(*row, name if few else "") for name, row in zip(names, values.tolist(), strict=True)]

    known = set(keys(ids, hashes[: len(ids)])) - {
        (*UNKNOWN.tolist(), "")
    }  # an unreadable image is like no other
    return np.array([row for row, key in enumerate(keys(data.ids, given)) if key in known], dtype=np.int64)
