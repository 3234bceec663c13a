"""The image store: all images of a manifest, decoded once into a uint8 array that is memory-mapped from disk.

Features pass through unchanged: there is nothing to decode.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from srjt.cores import cores
from srjt.data.features import Features, as_features
from srjt.data.groups import with_hashes
from srjt.data.images import store_build
from srjt.data.images.decode import DECODER_VERSION, Resize, check_resize, read_image, resized
from srjt.data.images.hashes import HASHED_SIZE, file_facts, image_hashes
from srjt.data.images.pixel_depth import UInt8Array
from srjt.data.images.store_build import Progress
from srjt.data.manifest import Manifest
from srjt.data.sources.hints import no_image_exists
from srjt.errors import SrjtError, suggest
from srjt.files import cache_folder

__all__ = ["ImageStore", "OnBadImage", "open_store"]

OnBadImage = Literal["error", "skip"]

IN_MEMORY = 1 << 30  # bytes: resized images up to this size stay in memory if they came from there
NAMED = 5  # bad images that the error message names


@dataclass(frozen=True, kw_only=True)
class ImageStore:
    """The decoded images of a manifest.

    Parameters
    ----------
    pixels : (N, size, size, 3) uint8 or (N, F) float32
        Images, read-only, or features. Row i belongs to sample i of ``manifest``.
    manifest : Manifest
        The samples, without those that were skipped.
    skipped : list of (id, reason)
        The samples whose image cannot be read.
    path : Path, optional
        The folder on disk. None if the images are in memory.

    Examples
    --------
    >>> import srjt
    >>> from srjt.data.images.store import open_store
    >>> data = srjt.data.synthetic.generate(images=20, patients=5, size=32)
    >>> store = open_store(data, size=64)
    >>> len(store), store.skipped
    (20, [])
    """

    pixels: npt.NDArray[np.uint8] | Features
    manifest: Manifest
    skipped: list[tuple[str, str]] = field(default_factory=list)
    path: Path | None = None

    def __len__(self) -> int:
        return len(self.pixels)


def open_store(
    manifest: Manifest,
    *,
    size: int = 256,
    resize: Resize = "squash",
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    on_bad_image: OnBadImage = "error",
    progress: Progress | None = None,
    find_duplicates: bool = False,
) -> ImageStore:
    """Decode the images of a manifest, or open the store of an earlier call.

    The key of a store is made from the files (path, size, modification time), the image size and the resize rule,
    not from the labels: open one store for the whole dataset and take folds as rows of it. An interrupted build is
    resumed, and a second process waits for the first.

    Parameters
    ----------
    manifest : Manifest
        The samples. Images in memory are resized; features are returned unchanged.
    size : int
        Height and width of the stored images.
    resize : {"squash", "crop"}
        Change the aspect ratio, or scale the short side and keep the centre.
    cache : path, optional
        Folder of all stores. Default: ``$SRJT_CACHE``, or the user's cache folder.
    workers : int, optional
        Number of threads, or processes, that decode. Default: one per core.
    on_bad_image : {"error", "skip"}
        Raise an error that lists the unreadable images, or leave them out of ``pixels`` and ``manifest``.
    progress : callable, optional
        Called with (images done, images in all).
    find_duplicates : bool
        Hash the images and find identical ones, as ``srjt.data.group_duplicates`` does, unless this has been done.

    Returns
    -------
    ImageStore
        The pixels, the samples they belong to and what was skipped.

    Examples
    --------
    >>> import srjt
    >>> from srjt.data.images.store import open_store
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32)
    >>> open_store(data, size=64).pixels.shape
    (100, 64, 64, 3)
    """
    size = int(size)
    check_resize(size, resize)
    if on_bad_image not in get_args(OnBadImage):
        raise suggest("choice for bad images", on_bad_image, get_args(OnBadImage))
    workers = workers or cores()
    find_duplicates = find_duplicates and manifest.duplicates is None
    if manifest.arrays is not None and find_duplicates:
        manifest = with_hashes(manifest, image_hashes(manifest))
    if manifest.arrays is not None and manifest.are_features:
        return ImageStore(pixels=as_features(manifest.arrays), manifest=manifest)
    files: list[Path] | None = None
    if manifest.arrays is not None:
        arrays = _check_images(manifest.arrays)
        if arrays.shape[1:3] == (size, size) or len(arrays) * 3 * size * size <= IN_MEMORY:
            pixels = _resize_all(arrays, size=size, resize=resize, workers=workers, progress=progress)
            return ImageStore(pixels=pixels, manifest=manifest)

        def read(row: int) -> UInt8Array:
            return _resize_one(arrays[row], size=size, resize=resize)

        key = _key(_array_facts(arrays), size=size, resize=resize)
    else:
        files = paths = manifest.paths

        def read(row: int) -> UInt8Array:
            return read_image(paths[row], size=size, resize=resize)

        key = _key(file_facts(paths), size=size, resize=resize)

    folder = (Path(cache) if cache is not None else cache_folder()).expanduser() / "images" / key
    decode = partial(
        store_build.decode_missing, read=read, files=files, resize=resize, workers=workers, progress=progress
    )
    store = _open_or_build(folder, manifest, decode, size, on_bad_image, progress)
    pixels = np.load(store.pixels, mmap_mode="r")
    kept = np.setdiff1d(np.arange(len(manifest)), list(store.skipped)).astype(np.int64)
    if find_duplicates and manifest.arrays is None:
        as_hashed = (size, resize) == (HASHED_SIZE, "squash")  # else the files are decoded once more
        hashes = image_hashes(
            manifest,
            cache=cache,
            workers=workers,
            progress=progress,
            decoded=(pixels, kept) if as_hashed else None,
        )
        manifest = with_hashes(manifest, hashes)
    ids = manifest.ids
    skipped = [(ids[row], reason) for row, reason in store.skipped.items()]
    if skipped:
        manifest = manifest.select(kept)
    return ImageStore(pixels=pixels, manifest=manifest, skipped=skipped, path=folder)


def _open_or_build(
    folder: Path,
    manifest: Manifest,
    decode: Callable[..., dict[int, str]],
    size: int,
    on_bad_image: OnBadImage,
    progress: Progress | None,
) -> store_build.FinishedStore:
    count = len(manifest)
    store = store_build.find_finished(folder, count=count, size=size)
    if store is None:
        with store_build.lock_store(folder, waiting=progress, count=count):
            store = store_build.find_finished(folder, count=count, size=size)  # by the process we waited for
            if store is None:
                bad = decode(folder, count=count, size=size)
                if bad:
                    _list_bad_images(folder, manifest, bad)
                if bad and (on_bad_image == "error" or len(bad) == count):
                    # The store is not marked as finished: the next call tries only these files again.
                    raise _bad_images(folder, manifest, bad)
                store = store_build.mark_finished(folder, bad=bad, count=count, size=size)
    if store.skipped and on_bad_image == "error":
        raise _bad_images(folder, manifest, store.skipped)
    return store


def _list_bad_images(folder: Path, manifest: Manifest, bad: dict[int, str]) -> None:
    ids, paths = manifest.ids, manifest.paths
    with (folder / "bad_images.csv").open(
        "w", newline="", encoding="utf-8", errors="surrogateescape"
    ) as file:
        table = csv.writer(file)
        table.writerow(["id", "image", "reason"])
        table.writerows([ids[row], paths[row], reason] for row, reason in sorted(bad.items()))


def _bad_images(folder: Path, manifest: Manifest, bad: dict[int, str]) -> SrjtError:
    paths = manifest.paths
    named = "; ".join(f"{paths[row]}: {reason}" for row, reason in sorted(bad.items())[:NAMED])
    more = f"; and {len(bad) - NAMED:,} more" if len(bad) > NAMED else ""
    if not any(map(os.path.exists, paths)):
        return SrjtError(no_image_exists(manifest))
    advice = (
        "Repair them, or leave them out with `on_bad_image='skip'`."
        if len(bad) < len(manifest)
        else "None of them can be read."
    )
    listed = f" The full list is in {folder / 'bad_images.csv'}." if more else ""
    return SrjtError(
        f"{len(bad):,} of {len(manifest):,} images cannot be read ({named}{more}). {advice}{listed}"
    )


def _key(facts: str, *, size: int, resize: Resize) -> str:
    rule = f"{facts}\0{size}\0{resize}\0{DECODER_VERSION}"
    return hashlib.sha256(rule.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _array_facts(arrays: npt.NDArray[np.uint8]) -> str:
    digest = hashlib.sha256(repr(arrays.shape).encode())
    for start in range(0, len(arrays), 1024):
        digest.update(np.ascontiguousarray(arrays[start : start + 1024]).data)
    return digest.hexdigest()


def _check_images(arrays: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    if arrays.dtype != np.uint8 or arrays.ndim != 4 or arrays.shape[3] != 3:
        raise SrjtError(
            f"Images in memory must be an N×H×W×3 array of uint8, not {'×'.join(map(str, arrays.shape))} "
            f"of {arrays.dtype}."
        )
    return arrays.view()  # type: ignore[return-value]


def _resize_one(picture: npt.NDArray[np.uint8], *, size: int, resize: Resize) -> UInt8Array:
    return np.asarray(resized(Image.fromarray(np.ascontiguousarray(picture)), size=size, resize=resize))


def _resize_all(
    arrays: npt.NDArray[np.uint8], *, size: int, resize: Resize, workers: int, progress: Progress | None
) -> npt.NDArray[np.uint8]:
    """(N, size, size, 3) read-only; the given array itself if it already has that size."""
    if arrays.shape[1:3] != (size, size):
        given, arrays = arrays, np.empty((len(arrays), size, size, 3), np.uint8)

        def fill(row: int) -> None:
            arrays[row] = _resize_one(given[row], size=size, resize=resize)

        with ThreadPoolExecutor(workers) as pool:
            for done, _ in enumerate(pool.map(fill, range(len(given))), start=1):
                if progress is not None:
                    progress(done, len(given))
    arrays.flags.writeable = False
    return arrays
