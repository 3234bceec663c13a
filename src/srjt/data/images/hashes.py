"""Hashes of all images of a manifest, computed once and kept in the cache folder.

Images are hashed at one size, whatever size they are trained at: the same samples are the same groups everywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt.data.duplicates import THUMBNAILS, UNKNOWN, Hashes, pixel_hash, thumbnails
from srjt.data.images.decode import DECODER_VERSION, BadImageError, read_image
from srjt.data.manifest import Manifest
from srjt.files import cache_folder, wait_for_lock, write_atomically

__all__ = ["HASHED_SIZE", "ImageHashes", "file_facts", "image_hashes"]

HASHED_SIZE = 256  # the size at which images are stored by default: their pixels need not be decoded again

Progress = Callable[[int, int], None]

CHUNK = 64  # images in memory that a thread hashes before it takes others


@dataclass(frozen=True, kw_only=True)
class ImageHashes:
    """pixels: (N, 2) uint64, ``UNKNOWN`` for an unreadable image; thumbnails: (N, crops, SIDE, SIDE) uint8."""

    pixels: Hashes
    thumbnails: npt.NDArray[np.uint8] | None


def image_hashes(
    manifest: Manifest,
    *,
    near: bool = False,
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    decoded: tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]] | None = None,
) -> ImageHashes:
    """Hash every image, or read the hashes of an earlier call.

    near: images in memory get thumbnails too (image files always have them). decoded: pixels of size HASHED_SIZE and
    the rows that they belong to, if the files have been decoded already.
    """
    workers = workers or min(32, os.cpu_count() or 1)
    if manifest.arrays is not None:
        return _hash_arrays(manifest.arrays, near=near and not manifest.are_features, workers=workers)
    key = hashlib.sha256(
        f"{file_facts(manifest.paths)}\0{DECODER_VERSION}".encode("utf-8", "surrogateescape")
    )
    folder = (
        (Path(cache) if cache is not None else cache_folder()).expanduser() / "hashes" / key.hexdigest()[:32]
    )

    def make() -> ImageHashes:
        return _hash_files(manifest.paths, workers=workers, progress=progress, decoded=decoded)

    if (found := _read(folder, count=len(manifest))) is not None:
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # without a writable cache they are computed again next time
        return make()
    with wait_for_lock(folder, waiting=lambda: None):  # the runs of a study begin together
        if (found := _read(folder, count=len(manifest))) is not None:
            return found
        made = make()
        buffer = io.BytesIO()
        assert made.thumbnails is not None
        np.savez(buffer, pixels=made.pixels, thumbnails=made.thumbnails)
        with contextlib.suppress(OSError):
            write_atomically(folder / "hashes.npz", buffer.getvalue())
    return made


def _read(folder: Path, *, count: int) -> ImageHashes | None:
    """The hashes in this folder; None if there are none, or if the file is damaged."""
    damaged = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
    with contextlib.suppress(*damaged), np.load(folder / "hashes.npz", allow_pickle=False) as saved:
        found = ImageHashes(pixels=saved["pixels"], thumbnails=saved["thumbnails"])
        if found.pixels.shape == (count, 2) and found.thumbnails is not None:
            return found if found.thumbnails.shape == (count, *THUMBNAILS) else None
    return None


def file_facts(paths: list[Path]) -> str:
    """Path, size and modification time of each file; a missing file counts too."""
    facts = []
    for path in paths:
        try:
            status = path.stat()
            facts.append(f"{os.path.abspath(path)}\0{status.st_size}\0{status.st_mtime_ns}")
        except (OSError, ValueError):  # ValueError: a NUL character in the name
            facts.append(f"{os.path.abspath(path)}\0missing")
    return "\n".join(facts)


def _hash_arrays(arrays: npt.NDArray[np.generic], *, near: bool, workers: int) -> ImageHashes:
    hashes = np.empty((len(arrays), 2), dtype=np.uint64)
    made = np.empty((len(arrays), *THUMBNAILS), dtype=np.uint8) if near else None

    def hash_rows(rows: range) -> None:
        for row in rows:
            hashes[row] = pixel_hash(arrays[row])
            if made is not None:
                made[row] = thumbnails(arrays[row])

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(hash_rows, (range(len(arrays))[i : i + CHUNK] for i in range(0, len(arrays), CHUNK))))
    return ImageHashes(pixels=hashes, thumbnails=made)


def _hash_files(
    paths: list[Path],
    *,
    workers: int,
    progress: Progress | None,
    decoded: tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]] | None,
) -> ImageHashes:
    hashes = np.empty((len(paths), 2), dtype=np.uint64)
    made = np.empty((len(paths), *THUMBNAILS), dtype=np.uint8)
    place = {} if decoded is None else {int(row): at for at, row in enumerate(decoded[1])}

    def hash_row(row: int) -> None:
        try:
            if decoded is None:
                pixels = read_image(paths[row], size=HASHED_SIZE)
            elif row in place:
                pixels = np.asarray(decoded[0][place[row]])
            else:
                raise BadImageError(paths[row], "it was skipped")
        except BadImageError:
            hashes[row], made[row] = UNKNOWN, 0
            return
        hashes[row], made[row] = pixel_hash(pixels), thumbnails(pixels)

    pool = ThreadPoolExecutor(workers, thread_name_prefix="hash")
    try:
        for done, _ in enumerate(pool.map(hash_row, range(len(paths))), start=1):
            if progress is not None and decoded is None:
                progress(done, len(paths))
    finally:  # on an interruption, do not wait for thousands of images
        pool.shutdown(wait=False, cancel_futures=True)
    return ImageHashes(pixels=hashes, thumbnails=made)
