"""The image store: all images of a manifest, decoded once into a uint8 array that is memory-mapped from disk,
and built so that no crash, second process or full disk can corrupt it.
"""

from __future__ import annotations

import csv
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import BaseModel

from srjt.data.duplicates import HASHED_SIZE, file_facts, image_hashes, with_hashes
from srjt.data.images.decode import (
    DECODER_VERSION,
    BadImageError,
    OnBadImage,
    Resize,
    UInt8Array,
    check_resize,
    decoding_process,
    read_image,
    resized,
)
from srjt.data.manifest import Features, Manifest, as_features
from srjt.data.sources.table import no_image_exists
from srjt.errors import SrjtError, cores, unknown_name
from srjt.files import cache_folder, explain_write_errors, read_json, sync_folder, wait_for_lock, write_json

# Build the image store of one folder so that no crash, second process or full disk can corrupt it.
#
# pixels.npy       the images, one row each, written by position
# done             one byte per row: 1 once the pixels of the row are safely in pixels.npy
# trimmed.npy      only if images were skipped: the readable rows, without gaps
# bad_images.csv   only if images cannot be read: which, and why
# store.json       written last, by rename: if it exists, the store is complete
# .lock            locked during the build; the system releases it even after kill -9

Progress = Callable[[int, int], None]  # (images done, images in all)

CHUNK = 128  # images between two marks
PROCESSES = 6  # cores from which on processes are faster than threads
MANY = 1000  # files for which it is worth starting them
TO_WRITE = os.O_RDWR | getattr(os, "O_BINARY", 0)  # Windows would translate line ends
_SEEKING = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class FinishedStore:
    """A complete store: its ``.npy`` file, and the rows that are not in it with the reasons."""

    pixels: Path
    skipped: dict[int, str]


class StoreFile(BaseModel, extra="forbid"):
    """``store.json``."""

    pixels: Literal["pixels.npy", "trimmed.npy"]
    count: int
    size: int
    skipped: list[tuple[int, str]]
    modified: int  # when the pixels were last changed, in nanoseconds: a hash of all would take too long


def find_finished(folder: Path, *, count: int, size: int) -> FinishedStore | None:
    """The store of ``count`` images in this folder; None unless it is complete."""
    try:
        found = read_json(folder / "store.json", StoreFile)
        pixels, skipped = folder / found.pixels, dict(found.skipped)
        facts = pixels.stat()
        complete = facts.st_size == _file_bytes(count - len(skipped), size)
        complete = complete and facts.st_mtime_ns == found.modified  # else somebody has changed it since
    except (OSError, SrjtError):
        return None
    return FinishedStore(pixels=pixels, skipped=skipped) if complete else None


@contextmanager
def lock_store(folder: Path, *, waiting: Progress | None, count: int) -> Iterator[None]:
    """Lock this folder, creating it if necessary. While another process has it, ``waiting`` gets its progress."""
    warned = False

    def report_waiting() -> None:
        nonlocal warned
        if not warned:
            log = logging.getLogger(__name__)
            log.warning("Another process is building the image store %s; waiting for it.", folder)
            warned = True
        if waiting is not None:
            waiting(int(np.count_nonzero(_read_marks(folder, count))), count)

    with ExitStack() as stack:
        advice = "Set the environment variable SRJT_CACHE to another folder."
        with explain_write_errors(f"Cannot keep decoded images in {folder}", advice):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(wait_for_lock(folder, waiting=report_waiting))
        yield


def write_at(file: int, content: bytes | UInt8Array | npt.NDArray[np.bool_], offset: int) -> None:
    """Write at a position, from any thread. Unlike through a memory map, a full disk is an error and not a SIGBUS."""
    view = memoryview(content if isinstance(content, bytes) else content.data).cast("B")
    while view:  # an almost full disk accepts a part of it before it refuses
        if hasattr(os, "pwrite"):
            written = os.pwrite(file, view, offset)
        else:  # Windows: seek and write must not be interleaved
            with _SEEKING:
                os.lseek(file, offset, os.SEEK_SET)
                written = os.write(file, view)
        view, offset = view[written:], offset + written


def decode_missing(
    folder: Path,
    *,
    read: Callable[[int], UInt8Array],
    files: Sequence[Path] | None,
    resize: Resize,
    count: int,
    size: int,
    workers: int,
    progress: Progress | None,
) -> dict[int, str]:
    """Decode every row that is not done yet; returns ``{row: reason}`` of unreadable ones. Needs the lock.

    read: the pixels of a row. Threads do it, or have a process each do it, from these files; each writes its own rows,
    so memory holds one image for each.
    """
    header, row_bytes = _header(count, size), 3 * size * size
    done = _prepare_files(folder, count=count, size=size)
    todo = np.flatnonzero(~done).tolist()
    needed = len(todo) * row_bytes
    _check_space(folder, needed)
    bad: dict[int, str] = {}
    unmarked: list[int] = []
    ended: SimpleQueue[tuple[int, str] | BaseException] = SimpleQueue()  # row, and why it is bad
    stopped = threading.Event()

    def in_process(rows: list[int]) -> None:
        assert files is not None
        left, place = dict.fromkeys(rows), folder / "pixels.npy"
        todo = [(row, files[row]) for row in rows]
        with (
            suppress(OSError, ValueError),  # too many processes, or one that died within a line
            decoding_process(todo, pixels=place, offset=len(header), size=size, resize=resize) as decoded,
        ):
            for row in decoded:
                if stopped.is_set():
                    return
                del left[row]
                ended.put((row, ""))
        decode(list(left))

    def decode(rows: list[int]) -> None:
        try:
            for row in rows:
                if stopped.is_set():
                    return
                try:
                    picture = read(row)
                except BadImageError as error:
                    ended.put((row, error.reason))
                    continue
                with _explain_write_errors(folder, needed):
                    write_at(pixels, picture, len(header) + row * row_bytes)
                ended.put((row, ""))
        except BaseException as problem:  # of the caller
            ended.put(problem)

    def mark() -> None:
        with _explain_write_errors(folder, needed):
            os.fsync(pixels)  # a mark must never reach the disk before its pixels
            write_at(marks, done[min(unmarked) : max(unmarked) + 1], min(unmarked))
        unmarked.clear()

    pixels = os.open(folder / "pixels.npy", TO_WRITE)
    marks = os.open(folder / "done", TO_WRITE)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
    try:
        with _explain_write_errors(folder, needed):
            write_at(pixels, header, 0)
        if files is not None and workers >= PROCESSES and len(todo) >= MANY:
            for first in range(workers):
                pool.submit(in_process, todo[first::workers])
        else:
            part = 1 + len(todo) // (100 * workers)
            for start in range(0, len(todo), part):
                pool.submit(decode, todo[start : start + part])
        for decoded in range(count - len(todo) + 1, count + 1):
            end = ended.get()
            if isinstance(end, BaseException):
                raise end
            row, reason = end
            if reason:
                bad[row] = reason
            else:
                done[row] = True
            unmarked.append(row)
            if progress is not None:
                progress(decoded, count)
            if len(unmarked) == CHUNK or decoded == count:
                mark()
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)
        # Not if that was interrupted: a thread would write into the next file that gets the number.
        os.close(pixels)
        os.close(marks)
    return bad


def mark_finished(folder: Path, *, bad: dict[int, str], count: int, size: int) -> FinishedStore:
    """Mark the store as complete, without its ``bad`` rows. Needs the lock."""
    name = "pixels.npy"
    if bad:
        name = "trimmed.npy"
        _write_trimmed(folder, good=np.setdiff1d(np.arange(count), list(bad)), size=size)
    content = {
        "pixels": name,
        "count": count - len(bad),
        "size": size,
        "skipped": sorted(bad.items()),
        "modified": (folder / name).stat().st_mtime_ns,
    }
    with _explain_write_errors(folder, count * 3 * size * size):
        write_json(folder / "store.json", content)
    (folder / "done").unlink(missing_ok=True)
    if bad:
        (folder / "pixels.npy").unlink(missing_ok=True)
    return FinishedStore(pixels=folder / name, skipped=dict(sorted(bad.items())))


def _prepare_files(folder: Path, *, count: int, size: int) -> npt.NDArray[np.bool_]:
    """(N,) which rows are done. Files that are missing or have the wrong size are created."""
    (folder / "store.json").unlink(missing_ok=True)  # a damaged store must not look complete meanwhile
    pixels, total = folder / "pixels.npy", _file_bytes(count, size)
    if not pixels.exists() or pixels.stat().st_size != total:
        (folder / "done").unlink(missing_ok=True)
        sync_folder(folder)  # no old mark may outlive its pixels
        with _explain_write_errors(folder, total):
            pixels.touch()
            os.truncate(pixels, total)
    done = _read_marks(folder, count)
    with _explain_write_errors(folder, total):
        (folder / "done").write_bytes(done.tobytes())
    return done


def _read_marks(folder: Path, count: int) -> npt.NDArray[np.bool_]:
    try:
        marks = np.frombuffer((folder / "done").read_bytes(), np.uint8)
    except OSError:
        marks = np.zeros(0, np.uint8)
    return marks == 1 if len(marks) == count else np.zeros(count, np.bool_)


def _write_trimmed(folder: Path, *, good: npt.NDArray[np.int64], size: int) -> None:
    row_bytes = 3 * size * size
    _check_space(folder, len(good) * row_bytes)
    pixels = np.load(folder / "pixels.npy", mmap_mode="r")
    with _explain_write_errors(folder, len(good) * row_bytes), (folder / "trimmed.npy").open("wb") as file:
        file.write(_header(len(good), size))
        for start in range(0, len(good), CHUNK):
            file.write(pixels[good[start : start + CHUNK]].tobytes())
        file.flush()
        os.fsync(file.fileno())


def _header(count: int, size: int) -> bytes:
    """The header of the ``.npy`` file, so that ``np.load`` can open it."""
    buffer = BytesIO()
    shape = (count, size, size, 3)
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _file_bytes(count: int, size: int) -> int:
    return len(_header(count, size)) + count * 3 * size * size


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        with _explain_write_errors(folder, needed):
            raise OSError(f"only {free:,} bytes are free there")


def _explain_write_errors(folder: Path, needed: int) -> AbstractContextManager[None]:
    """Disk full, over quota, file too large: one sentence."""
    return explain_write_errors(
        f"The image store needs {needed:,} bytes in {folder}",
        "Free some space and run the command again (finished images are kept), or set the environment variable "
        "SRJT_CACHE to another folder.",
    )


# The image store: all images of a manifest, decoded once into a uint8 array that is memory-mapped from disk.
#
# Features pass through unchanged: there is nothing to decode.

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
        Number of threads that decode. Default: one per core.
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
        raise unknown_name("choice for bad images", on_bad_image, get_args(OnBadImage))
    workers = workers or cores()
    find_duplicates = find_duplicates and manifest.duplicates is None
    if manifest.arrays is not None and find_duplicates:
        manifest = with_hashes(manifest, image_hashes(manifest))
    if manifest.arrays is not None and manifest.are_features:
        return ImageStore(pixels=as_features(manifest.arrays), manifest=manifest)
    paths: Sequence[Path] | None = None
    if manifest.arrays is not None:
        arrays = _check_images(manifest.arrays)
        if arrays.shape[1:3] == (size, size) or len(arrays) * 3 * size * size <= IN_MEMORY:
            pixels = _resize_all(arrays, size=size, resize=resize, workers=workers, progress=progress)
            return ImageStore(pixels=pixels, manifest=manifest)
        facts, read = _array_facts(arrays), lambda row: _resize_one(arrays[row], size=size, resize=resize)
    else:
        paths = files = manifest.paths
        facts, read = file_facts(files), lambda row: read_image(files[row], size=size, resize=resize)
    rule = f"{facts}\0{size}\0{resize}\0{DECODER_VERSION}"
    key = hashlib.sha256(rule.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    folder = (Path(cache) if cache is not None else cache_folder()).expanduser() / "images" / key
    decode = partial(
        decode_missing, read=read, files=paths, resize=resize, workers=workers, progress=progress
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
) -> FinishedStore:
    count = len(manifest)
    store = find_finished(folder, count=count, size=size)
    if store is None:
        with lock_store(folder, waiting=progress, count=count):
            store = find_finished(folder, count=count, size=size)  # by the process we waited for
            if store is None:
                bad = decode(folder, count=count, size=size)
                if bad:
                    _list_bad_images(folder, manifest, bad)
                if bad and (on_bad_image == "error" or len(bad) == count):
                    # The store is not marked as finished: the next call tries only these files again.
                    raise _bad_images(folder, manifest, bad)
                store = mark_finished(folder, bad=bad, count=count, size=size)
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
        return no_image_exists(manifest)
    advice = (
        "Repair them, or leave them out with `on_bad_image='skip'`."
        if len(bad) < len(manifest)
        else "None of them can be read."
    )
    listed = f" The full list is in {folder / 'bad_images.csv'}." if more else ""
    return SrjtError(
        f"{len(bad):,} of {len(manifest):,} images cannot be read ({named}{more}). {advice}{listed}"
    )


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
