"""Filling a folder with decoded images so that no crash, no second process and no full disk can spoil it.

pixels.npy       the images, one row each, written by position
done             one byte per row: 1 once the row's pixels are safely in pixels.npy
trimmed.npy      only where images were skipped: the good rows, side by side
bad_images.csv   only where images could not be read: which, and why
store.json       written last, by rename: where it exists, the store is whole
.lock            locked while building; the system releases it even on kill -9
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt.data.images.decode import BadImageError
from srjt.data.images.pixel_depth import Bytes
from srjt.errors import SrjtError
from srjt.files import sync_folder, wait_for_lock, write_json

__all__ = ["Finished", "Progress", "fill", "finish", "finished", "locked"]

Progress = Callable[[int, int], None]  # (images done, images in all)

_BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate line ends
_SEEKING = threading.Lock()
CHUNK = 256  # images between two marks: what a killed build has to do again at most, twice over


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A whole store: its ``.npy`` file, and the rows that are not in it with the reasons."""

    pixels: Path
    skipped: dict[int, str]


def finished(folder: Path, *, count: int, size: int) -> Finished | None:
    """The store of ``count`` images in this folder; None unless it is whole."""
    try:
        told = json.loads((folder / "store.json").read_text(encoding="utf-8"))
        pixels = folder / str(told["pixels"])
        skipped = {int(row): str(reason) for row, reason in told["skipped"]}
        whole = pixels.stat().st_size == _file_bytes(count - len(skipped), size)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Finished(pixels=pixels, skipped=skipped) if whole else None


@contextmanager
def locked(folder: Path, *, waiting: Progress | None, count: int) -> Iterator[None]:
    """Alone in this folder (made if need be); ``waiting`` is told how far a process before us has come."""
    said: list[Path] = []

    def report_waiting() -> None:
        if not said:
            log = logging.getLogger(__name__)
            log.warning("Another process is building the image store %s; waiting for it.", folder)
            said.append(folder)
        if waiting is not None:
            waiting(int(np.count_nonzero(_marks(folder, count))), count)

    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(wait_for_lock(folder, waiting=report_waiting))
        except OSError as error:
            raise SrjtError(
                f"Cannot keep decoded images in {folder}: {error.strerror or error}. "
                "Name another folder in the environment variable SRJT_CACHE."
            ) from error
        yield


def fill(
    folder: Path,
    *,
    read: Callable[[int], Bytes],
    count: int,
    size: int,
    workers: int,
    progress: Progress | None,
) -> dict[int, str]:
    """Decodes every row that is not done yet; ``{row: reason}`` of those that cannot be. Needs the lock.

    Threads: Pillow decodes and resizes without the GIL, which is held for about 0.4 ms an image (measured:
    1/8 of a small JPEG's time, 1/40 of a large one's). Processes were no faster and would re-import a
    user's script or fork beside a GPU. Each thread writes its own row, so memory holds one image a thread.
    Written by ``pwrite`` and not through a memory map, because there a full disk is a SIGBUS.
    """
    header, row_bytes = _header(count, size), 3 * size * size
    done = _prepare(folder, count=count, size=size)
    todo = np.flatnonzero(~done)
    before = count - len(todo)
    needed = len(todo) * row_bytes
    _check_space(folder, needed)
    bad: dict[int, str] = {}
    pixels = os.open(folder / "pixels.npy", os.O_RDWR | _BINARY)
    marks = os.open(folder / "done", os.O_RDWR | _BINARY)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")

    def decode(row: int) -> str | None:
        try:
            picture = read(row)
        except BadImageError as error:
            return error.reason
        with _told_if_full(folder, needed):
            _write(pixels, picture.tobytes(), len(header) + row * row_bytes)
        return None

    def settle(start: int, reasons: Iterator[str | None]) -> None:
        rows = todo[start : start + CHUNK]
        for position, (row, reason) in enumerate(zip(rows.tolist(), reasons, strict=True), start=1):
            if reason is None:
                done[row] = True
            else:
                bad[row] = reason
            if progress is not None:
                progress(before + start + position, count)
        with _told_if_full(folder, needed):
            os.fsync(pixels)  # a mark must never reach the disk before its pixels
            _write(marks, done[rows[0] : rows[-1] + 1].tobytes(), int(rows[0]))

    try:
        with _told_if_full(folder, needed):
            _write(pixels, header, 0)
        ahead: tuple[int, Iterator[str | None]] | None = None
        for start in range(0, len(todo), CHUNK):
            decoding = pool.map(decode, todo[start : start + CHUNK].tolist())
            if ahead is not None:
                settle(*ahead)  # while the next chunk is being decoded
            ahead = start, decoding
        if ahead is not None:
            settle(*ahead)
    finally:
        pool.shutdown(cancel_futures=True)
        os.close(pixels)
        os.close(marks)
    return bad


def finish(folder: Path, *, bad: dict[int, str], count: int, size: int) -> Finished:
    """Declares the store whole, without its ``bad`` rows. Needs the lock."""
    name = "pixels.npy"
    if bad:
        name = "trimmed.npy"
        _trim(folder, good=np.setdiff1d(np.arange(count), list(bad)), size=size)
    told = {"pixels": name, "count": count - len(bad), "size": size, "skipped": sorted(bad.items())}
    with _told_if_full(folder, count * 3 * size * size):
        write_json(folder / "store.json", told)
    (folder / "done").unlink(missing_ok=True)
    if bad:
        (folder / "pixels.npy").unlink(missing_ok=True)
    return Finished(pixels=folder / name, skipped=dict(sorted(bad.items())))


def _prepare(folder: Path, *, count: int, size: int) -> npt.NDArray[np.bool_]:
    """(N,) which rows are done; the files are made where they are missing or of the wrong size."""
    (folder / "store.json").unlink(missing_ok=True)  # a damaged store must not look whole meanwhile
    pixels, total = folder / "pixels.npy", _file_bytes(count, size)
    if not pixels.exists() or pixels.stat().st_size != total:
        (folder / "done").unlink(missing_ok=True)
        sync_folder(folder)  # no old mark may outlive its pixels
        with _told_if_full(folder, total):
            pixels.touch()
            os.truncate(pixels, total)
    done = _marks(folder, count)
    with _told_if_full(folder, total):
        (folder / "done").write_bytes(done.tobytes())
    return done


def _marks(folder: Path, count: int) -> npt.NDArray[np.bool_]:
    try:
        marks = np.frombuffer((folder / "done").read_bytes(), np.uint8)
    except OSError:
        marks = np.zeros(0, np.uint8)
    return marks == 1 if len(marks) == count else np.zeros(count, np.bool_)


def _trim(folder: Path, *, good: npt.NDArray[np.int64], size: int) -> None:
    row_bytes = 3 * size * size
    _check_space(folder, len(good) * row_bytes)
    pixels = np.load(folder / "pixels.npy", mmap_mode="r")
    with _told_if_full(folder, len(good) * row_bytes), (folder / "trimmed.npy").open("wb") as file:
        file.write(_header(len(good), size))
        for start in range(0, len(good), CHUNK):
            file.write(pixels[good[start : start + CHUNK]].tobytes())
        file.flush()
        os.fsync(file.fileno())


def _header(count: int, size: int) -> bytes:
    """What numpy puts before the pixels, so that ``np.load`` opens the file without us."""
    buffer = BytesIO()
    shape = (count, size, size, 3)
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _file_bytes(count: int, size: int) -> int:
    return len(_header(count, size)) + count * 3 * size * size


def _write(file: int, data: bytes, offset: int) -> None:
    """Write ``data`` at ``offset``, from any thread."""
    view = memoryview(data)
    while view:  # a nearly full disk takes a part of it before it refuses
        written = _write_some(file, view, offset)
        view, offset = view[written:], offset + written


def _write_some(file: int, view: memoryview, offset: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(file, view, offset)
    with _SEEKING:  # Windows has no pwrite: seek and write must not be interleaved
        os.lseek(file, offset, os.SEEK_SET)
        return os.write(file, view)


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise _no_room(folder, needed, f"only {free:,} bytes are free there")


@contextmanager
def _told_if_full(folder: Path, needed: int) -> Iterator[None]:
    """Turns what the system says while we write (disk full, over quota, file too large) into our sentence."""
    try:
        yield
    except OSError as error:
        raise _no_room(folder, needed, error.strerror or str(error)) from error


def _no_room(folder: Path, needed: int, reason: str) -> SrjtError:
    return SrjtError(
        f"The image store needs {needed:,} bytes in {folder}: {reason}. Make room there and run it again "
        "(what is done is kept), or name another folder in the environment variable SRJT_CACHE."
    )
