"""The image store: all images of a manifest, decoded once into a uint8 array that is memory-mapped
from disk, and built so that no crash, second process or full disk can corrupt it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import BaseModel

from srjt import files
from srjt.data.duplicates import HASHED_SIZE, Progress, file_facts, image_hashes, with_hashes
from srjt.data.images import decode
from srjt.data.images.decode import BadImageError, OnBadImage, Resize, UInt8Array, read_image
from srjt.data.manifest import Features, Manifest, as_features
from srjt.data.sources.assemble import as_colour
from srjt.data.sources.table import no_image_exists
from srjt.errors import Message, Option, SrjtError, unknown_name
from srjt.process import cores

# Build the image store of one folder so that no crash, second process or full disk can corrupt it.
#
# pixels           the images, one row each, written by position
# done             one byte per row: 1 once the pixels of the row are safely in pixels
# trimmed          only if images were skipped: the readable rows, without gaps
# bad_images.csv   only if images cannot be read: which, and why
# store.json       written last, by rename: if it exists, the store is complete
# .lock            locked during the build; the system releases it even after kill -9

Decoded = Iterator[tuple[int, str]]  # row, and why it is bad: "" if it is not

CHUNK = 128  # images between two marks
PROCESSES = 6  # cores from which on processes are faster than threads
MANY = 1000  # files for which it is worth starting them


class StoreFile(BaseModel, extra="forbid"):
    """``store.json``."""

    pixels: Literal["pixels", "trimmed"]
    skipped: list[tuple[int, str]]  # the rows that are not in it, with the reasons
    modified: (
        int  # when the pixels were last changed, in nanoseconds: a hash of all would take too long
    )


@dataclass(frozen=True, kw_only=True)
class Build:
    """The store of ``count`` images in a folder. read: the pixels of a row. paths: their files, if
    they are files."""

    folder: Path
    count: int
    size: int
    resize: Resize
    read: Callable[[int], UInt8Array]
    paths: list[Path]
    workers: int
    progress: Progress

    @property
    def row_bytes(self) -> int:
        """The bytes of an image."""
        return 3 * self.size * self.size

    def open(self, name: str, count: int) -> npt.NDArray[np.uint8]:
        """(count, size, size, 3), mapped from a file of the folder."""
        shape = (count, self.size, self.size, 3)
        if not count:
            return np.empty(shape, np.uint8)
        return np.memmap(self.folder / name, mode="r", shape=shape)

    def finished(self) -> StoreFile | None:
        """What the folder holds; None unless it is complete, has not been changed since, and lacks
        only images that cannot be read now either: a decoder may have been installed."""
        with suppress(OSError, SrjtError):
            store = files.read_json(self.folder / "store.json", StoreFile)
            facts = (self.folder / store.pixels).stat()
            rows = self.count - len(store.skipped)
            if facts.st_size == rows * self.row_bytes and facts.st_mtime_ns == store.modified:
                skipped = [(row, self.why_bad(row)) for row, _ in store.skipped]
                if all(dict(skipped).values()):
                    return store.model_copy(update={"skipped": skipped})
        return None

    def why_bad(self, row: int) -> str:
        """Why an image cannot be read; "" if it can be."""
        try:
            self.read(row)
        except SrjtError as error:
            return error.reason if isinstance(error, BadImageError) else str(error)
        return ""

    def marks(self) -> npt.NDArray[np.bool_]:
        """(N,) the rows whose pixels are safely in the file."""
        with suppress(OSError):
            marks = np.frombuffer((self.folder / "done").read_bytes(), np.uint8)
            if len(marks) == self.count:
                return np.asarray(marks == 1)
        return np.zeros(self.count, np.bool_)

    def waiting(self) -> None:
        """Called while another process builds the store: tell its progress."""
        self.progress(int(self.marks().sum()), self.count)

    def decode_missing(self) -> dict[int, str]:
        """Decode every row that is not done yet; returns ``{row: reason}`` of unreadable ones.
        Needs the lock.

        Threads do it, or have a process each do it; each writes its own rows, so memory holds one
        image for each. They write by position and not through a memory map, where a full disk would
        be a SIGBUS and not an error.
        """
        done = self._prepare_files()
        todo = np.flatnonzero(~done).tolist()
        if len(todo) * self.row_bytes > (free := shutil.disk_usage(self.folder).free):
            raise OSError(f"only {free:,} bytes are free there")
        bad: dict[int, str] = {}
        unmarked: list[int] = []
        ended: SimpleQueue[tuple[int, str] | BaseException] = SimpleQueue()
        stopped = threading.Event()

        def work(decoded: Decoded) -> None:
            try:
                for end in decoded:
                    ended.put(end)
                    if stopped.is_set():
                        return
            except BaseException as problem:  # of the caller
                ended.put(problem)

        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="decode")
        try:
            if self.paths and self.workers >= PROCESSES and len(todo) >= MANY:
                for first in range(self.workers):
                    pool.submit(work, self._in_process(todo[first :: self.workers]))
            else:
                part = 1 + len(todo) // (100 * self.workers)
                for start in range(0, len(todo), part):
                    pool.submit(work, self._decode(todo[start : start + part]))
            with (
                open(self.folder / "pixels", "r+b") as pixels,
                open(self.folder / "done", "r+b") as marks,
            ):
                for decoded in range(self.count - len(todo) + 1, self.count + 1):
                    end = ended.get()
                    if isinstance(end, BaseException):
                        raise end
                    row, reason = end
                    if reason:
                        bad[row] = reason
                    done[row] = not reason
                    unmarked.append(row)
                    self.progress(decoded, self.count)
                    if len(unmarked) == CHUNK or decoded == self.count:
                        # a mark must never reach the disk before its pixels
                        os.fsync(pixels.fileno())
                        first = min(unmarked)
                        last = max(unmarked)
                        _write_at(marks, done[first : last + 1].tobytes(), first)
                        unmarked.clear()
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
        return bad

    def _decode(self, rows: Iterable[int]) -> Decoded:
        with open(self.folder / "pixels", "r+b") as pixels:
            for row in rows:
                try:
                    _write_at(pixels, self.read(row).data, row * self.row_bytes)
                    yield row, ""
                except BadImageError as error:
                    yield row, error.reason

    def _in_process(self, rows: list[int]) -> Decoded:
        left = dict.fromkeys(rows)
        todo = [(row, self.paths[row]) for row in rows]
        pixels = self.folder / "pixels"
        process = decode.decoding_process(todo, pixels=pixels, size=self.size, resize=self.resize)
        # too many processes, or one that died within a line
        with suppress(OSError, ValueError), process as decoded:
            for row in decoded:
                del left[row]
                yield row, ""
        yield from self._decode(left)

    def _prepare_files(self) -> npt.NDArray[np.bool_]:
        """(N,) which rows are done. Files that are missing or have the wrong size are created."""
        # a damaged store must not look complete
        (self.folder / "store.json").unlink(missing_ok=True)
        (self.folder / "trimmed").unlink(missing_ok=True)  # whoever has it open keeps the old file
        pixels = self.folder / "pixels"
        total = self.count * self.row_bytes
        if not pixels.exists() or pixels.stat().st_size != total:
            (self.folder / "done").unlink(missing_ok=True)
            files.sync_folder(self.folder)  # no old mark may outlive its pixels
            pixels.touch(mode=0o600)
        os.truncate(pixels, total)
        done = self.marks()
        (self.folder / "done").write_bytes(done.tobytes())
        return done

    def finish(self, bad: dict[int, str]) -> StoreFile:
        """Mark the store as complete, without its ``bad`` rows. Needs the lock."""
        name: Literal["pixels", "trimmed"] = "trimmed" if bad else "pixels"
        good = np.setdiff1d(np.arange(self.count), list(bad))
        if bad:
            pixels = self.open("pixels", self.count)
            (self.folder / name).touch(mode=0o600)
            with (self.folder / name).open("wb") as file:
                for start in range(0, len(good), CHUNK):
                    file.write(pixels[good[start : start + CHUNK]].tobytes())
                file.flush()
                os.fsync(file.fileno())
        modified = (self.folder / name).stat().st_mtime_ns
        skipped = sorted(bad.items())
        store = StoreFile(pixels=name, skipped=skipped, modified=modified)
        files.write_json(self.folder / "store.json", store.model_dump())
        (self.folder / "done").unlink(missing_ok=True)
        if bad:
            (self.folder / "pixels").unlink(missing_ok=True)
        return store


def _write_at(file: BinaryIO, content: bytes | memoryview, offset: int) -> None:
    file.seek(offset)
    file.write(content)
    file.flush()


# The image store: all images of a manifest, decoded once into a uint8 array that is memory-mapped
# from disk.
#
# Features pass through unchanged: there is nothing to decode.

IN_MEMORY = 1 << 30  # bytes: resized images up to this size stay in memory if they came from there
NAMED = 5  # bad images that the error message names
FREE_SPACE = (
    "Free some space and run the command again (finished images are kept), or set the environment"
    " variable SRJT_CACHE to another folder."
)


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

    The key of a store is made from the files (path, size, modification time), the image size and
    the resize rule, not from the labels: open one store for the whole dataset and take folds as
    rows of it. An interrupted build is resumed, and a second process waits for the first.

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
        Number of threads that decode. Default: one per core.
    on_bad_image : {"error", "skip"}
        Raise an error that lists the unreadable images, or leave them out of ``pixels`` and
        ``manifest``.
    progress : callable, optional
        Called with (images done, images in all).
    find_duplicates : bool
        Hash the images and find identical ones, as ``srjt.data.group_duplicates`` does, unless this
        has been done.

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
    decode.check_resize(size, resize)
    if on_bad_image not in get_args(OnBadImage):
        raise unknown_name("choice for bad images", on_bad_image, get_args(OnBadImage))
    workers = workers or cores()
    find_duplicates = find_duplicates and manifest.duplicates is None
    if manifest.arrays is not None and find_duplicates:
        manifest = with_hashes(manifest, image_hashes(manifest))
    if manifest.arrays is not None and manifest.are_features:
        return ImageStore(pixels=as_features(manifest.arrays), manifest=manifest)
    paths: list[Path] = []
    progress = progress or _silent
    if manifest.arrays is not None:
        arrays = np.asarray(as_colour(manifest.arrays), np.uint8).view()
        if arrays.shape[1:3] == (size, size) or len(arrays) * 3 * size * size <= IN_MEMORY:
            pixels = _resize_all(arrays, size, resize, workers=workers, progress=progress)
            return ImageStore(pixels=pixels, manifest=manifest)
        facts = _array_facts(arrays)

        def read(row: int) -> UInt8Array:
            return _resize_one(arrays[row], size=size, resize=resize)

    else:
        paths = manifest.paths
        facts = file_facts(paths)

        def read(row: int) -> UInt8Array:
            return read_image(paths[row], size=size, resize=resize)

    rule = f"{facts}\0{size}\0{resize}\0{decode.DECODER_VERSION}"
    key = hashlib.sha256(rule.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    build = Build(
        folder=Path(cache or files.cache_folder()).expanduser() / "images" / key,
        count=len(manifest),
        size=size,
        resize=resize,
        read=read,
        paths=paths,
        workers=workers,
        progress=progress,
    )
    store = _open_or_build(build, manifest, on_bad_image)
    kept = np.setdiff1d(np.arange(len(manifest)), list(dict(store.skipped))).astype(np.int64)
    pixels = build.open(store.pixels, len(kept))
    if find_duplicates and manifest.arrays is None:
        decoded = None
        if (size, resize) == (HASHED_SIZE, "squash"):  # else the files are decoded once more
            decoded = (pixels, kept)
        hashes = image_hashes(
            manifest, cache=cache, workers=workers, progress=progress, decoded=decoded
        )
        manifest = with_hashes(manifest, hashes)
    ids = manifest.ids
    if skipped := [(ids[row], reason) for row, reason in store.skipped]:
        manifest = manifest.leave_out(
            {row: ("unreadable-image", reason) for row, reason in store.skipped}
        )
    return ImageStore(pixels=pixels, manifest=manifest, skipped=skipped, path=build.folder)


def _open_or_build(build: Build, manifest: Manifest, on_bad_image: OnBadImage) -> StoreFile:
    if (store := build.finished()) is None:
        needed = f"The image store needs {build.count * build.row_bytes:,} bytes in {build.folder}"
        with files.explain_write_errors(needed, FREE_SPACE):
            files.private_folder(build.folder)
            if files.is_locked(build.folder):
                log = logging.getLogger(__name__)
                log.warning(
                    "Another process is building the image store %s; waiting for it.", build.folder
                )
            with files.wait_for_lock(build.folder, waiting=build.waiting):
                store = build.finished()  # by the process we waited for
                if store is None:
                    if bad := build.decode_missing():
                        _list_bad_images(build.folder, manifest, bad)
                    if bad and (on_bad_image == "error" or len(bad) == build.count):
                        # The store is not marked as finished: the next call tries only these files
                        # again.
                        raise _bad_images(build.folder, manifest, bad)
                    store = build.finish(bad)
    if store.skipped and on_bad_image == "error":
        raise _bad_images(build.folder, manifest, dict(store.skipped))
    return store


def _list_bad_images(folder: Path, manifest: Manifest, bad: dict[int, str]) -> None:
    named = manifest.table[["id"]].assign(image=list(map(str, manifest.paths))).loc[sorted(bad)]
    rows = named.assign(reason=[bad[row] for row in sorted(bad)])
    rows.to_csv(folder / "bad_images.csv", index=False, errors="surrogateescape")


def _bad_images(folder: Path, manifest: Manifest, bad: dict[int, str]) -> SrjtError:
    paths = manifest.paths
    if not any(map(os.path.exists, paths)):
        return no_image_exists(manifest)
    named = "; ".join(f"{paths[row]}: {reason}" for row, reason in sorted(bad.items())[:NAMED])
    more = f"; and {len(bad) - NAMED:,} more" if len(bad) > NAMED else ""
    advice: str = "None of them can be read."
    if len(bad) < len(manifest):
        advice = Message(
            "Repair them, or leave them out with ", Option("on_bad_image", "skip"), "."
        )
    listed = f" The full list is in {folder / 'bad_images.csv'}." if more else ""
    count = f"{len(bad):,} of {len(paths):,}"
    return SrjtError(
        f"{count} images cannot be read ({named}{more}). ", advice, listed, code="unusable_samples"
    )


def _array_facts(arrays: npt.NDArray[np.uint8]) -> str:
    digest = hashlib.sha256(repr(arrays.shape).encode())
    for start in range(0, len(arrays), 1024):
        digest.update(np.ascontiguousarray(arrays[start : start + 1024]).data)
    return digest.hexdigest()


def _resize_one(picture: npt.NDArray[np.uint8], *, size: int, resize: Resize) -> UInt8Array:
    image = Image.fromarray(np.ascontiguousarray(picture))
    return np.asarray(decode.resized(image, size=size, resize=resize))


def _silent(done: int, total: int) -> None: ...


def _resize_all(
    arrays: npt.NDArray[np.uint8], size: int, resize: Resize, *, workers: int, progress: Progress
) -> npt.NDArray[np.uint8]:
    """(N, size, size, 3) read-only; the given array itself if it already has that size."""
    if arrays.shape[1:3] != (size, size):
        given = arrays
        arrays = np.empty((len(arrays), size, size, 3), np.uint8)

        def fill(row: int) -> None:
            arrays[row] = _resize_one(given[row], size=size, resize=resize)

        with ThreadPoolExecutor(workers) as pool:
            for done, _ in enumerate(pool.map(fill, range(len(given))), start=1):
                progress(done, len(given))
    arrays.flags.writeable = False
    return arrays
