"""All images of a manifest, decoded once into one uint8 array that is memory-mapped from disk.

Features (a manifest's rows of numbers) pass through: there is nothing to decode.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from srjt.data.features import Features, as_features
from srjt.data.images import store_build as build
from srjt.data.images.decode import DECODER_VERSION, Resize, check_rule, read_image, resized
from srjt.data.images.pixel_depth import Bytes
from srjt.data.images.store_build import Progress
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError, suggest
from srjt.files import cache_folder

__all__ = ["ImageStore", "OnBadImage", "open_store"]

OnBadImage = Literal["error", "skip"]

IN_MEMORY = 1 << 30  # images that came in memory stay there up to this many bytes after resizing
FEW = 5  # bad images named in the error itself


@dataclass(frozen=True, kw_only=True)
class ImageStore:
    """``pixels`` (N, size, size, 3) uint8, read-only, or (N, F) float32 features; row i belongs to sample i of
    ``manifest``."""

    pixels: npt.NDArray[np.uint8] | Features
    manifest: Manifest
    skipped: list[tuple[str, str]] = field(default_factory=list)  # (id, reason) of what was left out
    path: Path | None = None  # the folder on disk; None for images that are held in memory

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
) -> ImageStore:
    """The decoded images of ``manifest``: built the first time, opened at once after that.

    The store is keyed by the files (path, size, modification time), the target size and the resize rule, and
    not by labels: open one for the whole data set and take folds and noisy labels as rows of it. A killed
    build goes on where it stopped; a second process waits for the first. ``on_bad_image="skip"`` leaves
    unreadable images out, of ``pixels`` and of ``manifest``, and lists them in ``skipped``.
    """
    check_rule(size, resize)
    if on_bad_image not in get_args(OnBadImage):
        raise suggest("choice for bad images", on_bad_image, get_args(OnBadImage))
    workers = workers or _cores()
    if manifest.arrays is not None and manifest.are_features:
        return ImageStore(pixels=as_features(manifest.arrays), manifest=manifest)
    if manifest.arrays is not None:
        arrays = _checked(manifest.arrays)
        if arrays.shape[1:3] == (size, size) or len(arrays) * 3 * size * size <= IN_MEMORY:
            pixels = _resize_all(arrays, size=size, resize=resize, workers=workers, progress=progress)
            return ImageStore(pixels=pixels, manifest=manifest)

        def read(row: int) -> Bytes:
            return _resize_one(arrays[row], size=size, resize=resize)

        key = _key(_array_facts(arrays), size=size, resize=resize)
    else:
        paths = manifest.paths

        def read(row: int) -> Bytes:
            return read_image(paths[row], size=size, resize=resize)

        key = _key(_file_facts(paths), size=size, resize=resize)

    folder = (Path(cache) if cache is not None else cache_folder()).expanduser() / "images" / key
    store = _open_or_build(folder, manifest, read, size, workers, on_bad_image, progress)
    if store.skipped:
        ids = manifest.ids
        skipped = [(ids[row], reason) for row, reason in store.skipped.items()]
        manifest = manifest.select(np.setdiff1d(np.arange(len(manifest)), list(store.skipped)))
    else:
        skipped = []
    pixels = np.load(store.pixels, mmap_mode="r")
    return ImageStore(pixels=pixels, manifest=manifest, skipped=skipped, path=folder)


def _open_or_build(
    folder: Path,
    manifest: Manifest,
    read: Callable[[int], Bytes],
    size: int,
    workers: int,
    on_bad_image: OnBadImage,
    progress: Progress | None,
) -> build.Finished:
    count = len(manifest)
    store = build.finished(folder, count=count, size=size)
    if store is None:
        with build.locked(folder, waiting=progress, count=count):
            store = build.finished(folder, count=count, size=size)  # by the process we waited for
            if store is None:
                bad = build.fill(
                    folder, read=read, count=count, size=size, workers=workers, progress=progress
                )
                if bad:
                    _list_bad_images(folder, manifest, bad)
                if bad and (on_bad_image == "error" or len(bad) == count):
                    # Nothing is declared whole: the next call tries these files again, and only these.
                    raise _bad_images(folder, manifest, bad)
                store = build.finish(folder, bad=bad, count=count, size=size)
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
    few = "; ".join(f"{paths[row]}: {reason}" for row, reason in sorted(bad.items())[:FEW])
    more = f"; and {len(bad) - FEW:,} more" if len(bad) > FEW else ""
    advice = (
        "Not one can be read: check the folder the paths start from."
        if len(bad) == len(manifest)
        else 'Repair them, or go on without them: --on-bad-image skip (in Python on_bad_image="skip").'
    )
    return SrjtError(
        f"{len(bad):,} of {len(manifest):,} images cannot be read ({few}{more}). "
        f"Full list: {folder / 'bad_images.csv'}. {advice}"
    )


def _key(facts: str, *, size: int, resize: Resize) -> str:
    rule = f"{facts}\0{size}\0{resize}\0{DECODER_VERSION}"
    return hashlib.sha256(rule.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _file_facts(paths: list[Path]) -> str:
    """Where the files are and when they last changed; a missing one is a fact as well."""
    facts = []
    for path in paths:
        try:
            status = path.stat()
            facts.append(f"{os.path.abspath(path)}\0{status.st_size}\0{status.st_mtime_ns}")
        except OSError:
            facts.append(f"{os.path.abspath(path)}\0missing")
    return "\n".join(facts)


def _array_facts(arrays: npt.NDArray[np.uint8]) -> str:
    digest = hashlib.sha256(repr(arrays.shape).encode())
    for start in range(0, len(arrays), 1024):
        digest.update(np.ascontiguousarray(arrays[start : start + 1024]).data)
    return digest.hexdigest()


def _checked(arrays: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    if arrays.dtype != np.uint8 or arrays.ndim != 4 or arrays.shape[3] != 3:
        raise SrjtError(
            f"Images in memory must be an N×H×W×3 array of uint8, not {'×'.join(map(str, arrays.shape))} "
            f"of {arrays.dtype}."
        )
    return arrays.view()  # type: ignore[return-value]


def _resize_one(picture: npt.NDArray[np.uint8], *, size: int, resize: Resize) -> Bytes:
    return np.asarray(resized(Image.fromarray(np.ascontiguousarray(picture)), size=size, resize=resize))


def _resize_all(
    arrays: npt.NDArray[np.uint8], *, size: int, resize: Resize, workers: int, progress: Progress | None
) -> npt.NDArray[np.uint8]:
    """(N, size, size, 3) read-only; the given array itself where it has that size already."""
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


def _cores() -> int:
    """The cores this process may use, which a scheduler may have made fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
