"""Write bytes at a position of a file, from any thread."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy.typing as npt

__all__ = ["open_for_writing", "write_at"]

_BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate line ends
_SEEKING = threading.Lock()


def open_for_writing(path: str | Path) -> int:
    """The descriptor of an existing file."""
    return os.open(path, os.O_RDWR | _BINARY)


def write_at(file: int, data: bytes | npt.NDArray[Any], offset: int) -> None:
    """Write ``data`` at ``offset``. Unlike through a memory map, a full disk is an error and not a SIGBUS."""
    view = memoryview(data if isinstance(data, bytes) else data.data).cast("B")
    while view:  # an almost full disk accepts a part of it before it refuses
        written = _write_some(file, view, offset)
        view, offset = view[written:], offset + written


def _write_some(file: int, view: memoryview, offset: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(file, view, offset)
    with _SEEKING:  # Windows has no pwrite: seek and write must not be interleaved
        os.lseek(file, offset, os.SEEK_SET)
        return os.write(file, view)
