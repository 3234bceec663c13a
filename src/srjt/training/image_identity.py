"""Image content is part of the identity of a run: it is not resumed with other images under the
same names, and it knows what it was trained on under any name.

A folder keeps the hash of every image, or row of features, in ``image_hashes.npy``: those of the
training side first, then validation and test.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from srjt import files
from srjt.data.duplicates import MIN_FEATURES, UNKNOWN, Hashes, image_hashes
from srjt.data.manifest import Manifest
from srjt.errors import Option, SrjtError
from srjt.ordinal.metrics import Ints
from srjt.text import few

HASHES_FILE = "image_hashes.npy"


def image_digest(samples: Manifest) -> str | None:
    """One hash of all images in their order; None for features, whose values are part of the
    fingerprint."""
    if samples.hashes is None or samples.are_features:
        return None
    return hashlib.blake2b(samples.hashes.astype("<u8").tobytes(), digest_size=16).hexdigest()


def check_images(folder: Path, samples: Manifest, *, recorded: str | None) -> None:
    """Raise an error if an image has changed since ``recorded`` was written; write
    ``image_hashes.npy`` once.

    recorded: the digest in ``run.json``; None for features.
    """
    file = folder / HASHES_FILE
    if recorded != image_digest(samples):
        before, which = read_hashes(file), ""  # also if the hash of each image is not known
        if (
            samples.hashes is not None
            and before is not None
            and before.shape == samples.hashes.shape
        ):
            which = f" ({few(samples.table['id'][(before != samples.hashes).any(axis=1)])})"
        raise SrjtError(
            f"Images have changed since this run began{which}: restore them, or choose another ",
            Option("out"),
            ". (Another version of Pillow may also decode a file differently.)",
            code="data_changed",
        )
    if samples.hashes is not None and not file.exists():
        buffer = io.BytesIO()
        np.save(buffer, samples.hashes)
        with files.explain_write_errors(f"The run cannot be written to {folder}"):
            files.write_atomically(file, buffer.getvalue())


def read_hashes(file: Path) -> Hashes | None:
    """(N, 2) the hashes that a folder keeps; None if there are none, or if the file is damaged."""
    try:
        hashes = np.load(file, allow_pickle=False)
        right = hashes.dtype == np.uint64 and hashes.ndim == 2
    except (
        Exception
    ):  # damaged files make NumPy raise almost any exception, and an archive has no dtype
        return None
    return hashes if right else None


def same_samples(data: Manifest, *, ids: Sequence[str], hashes: Hashes | None) -> Ints:
    """(M,) rows of ``data`` that are one of the N samples with these ids, by its hash and under any
    name.

    hashes: (N or more, 2) of the samples in the order of their ids; None: nothing is found. Rows of
    few features coincide by chance: of these the id must be the same, too.
    """
    if hashes is None or len(hashes) < len(ids):
        return np.empty(0, dtype=np.int64)
    own = image_hashes(data).pixels if data.hashes is None else data.hashes
    few = data.arrays is not None and data.are_features and data.arrays.shape[1] < MIN_FEATURES

    def keys(names: Sequence[str], values: Hashes) -> list[tuple[object, ...]]:
        return [
            (*row, name if few else "") for name, row in zip(names, values.tolist(), strict=True)
        ]

    unreadable = (*UNKNOWN.tolist(), "")  # such an image is like no other
    learnt = set(keys(ids, hashes[: len(ids)])) - {unreadable}
    return np.array(
        [row for row, key in enumerate(keys(data.ids, own)) if key in learnt], dtype=np.int64
    )
