"""Image content is part of the identity of a run: a run is not resumed with other images under the same names.

A folder keeps the hash of every image in ``image_hashes.npy``, in the order of its samples, so that the error can name
the image.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt.data import Manifest
from srjt.errors import SrjtError, count_of
from srjt.files import why_not_a_file, write_atomically

__all__ = ["HASHES_FILE", "changed_images", "check_images", "image_digest"]

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
    if recorded is None or digest is None:
        return
    file = folder / HASHES_FILE
    if recorded != digest:
        changed = changed_images(file, samples)
        others = f" (and {count_of(len(changed) - 1, 'other')})" if len(changed) > 1 else ""
        which = f"The image {changed[0]}{others} has" if changed else "Some images have"
        raise SrjtError(
            f"{which} changed since this {what} began: restore the images, or choose another `out`. (Another version "
            "of Pillow may also decode a file differently.)"
        )
    if not file.exists():
        buffer = io.BytesIO()
        assert samples.hashes is not None
        np.save(buffer, samples.hashes)
        try:
            write_atomically(file, buffer.getvalue(), follow_links=False)
        except OSError as problem:
            raise SrjtError(f"The {what} cannot be written to {folder}: {problem.strerror}.") from None


def changed_images(file: Path, samples: Manifest) -> list[str]:
    """The ids of the samples whose hash is not that in the file; empty if the file is missing or of other samples."""
    if why_not_a_file(file) is not None:  # reading a pipe would wait for ever
        return []
    try:
        before: npt.NDArray[np.uint64] = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return []
    if samples.hashes is None or before.shape != samples.hashes.shape:
        return []
    ids = samples.ids
    return [ids[row] for row in np.flatnonzero((before != samples.hashes).any(axis=1))]
