"""Features on disk while they are computed, so that a command that is killed continues where it was.

Each chunk is one file, <first row>.npz, that is written atomically. It is a ZIP file, whose checksum is verified when
it is read. The chunks follow each other without gaps.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from srjt.data.features import Features
from srjt.errors import SrjtError
from srjt.files import write_atomically

__all__ = ["load_chunks", "save_chunk"]


def load_chunks(folder: Path) -> list[Features]:
    """The chunks from row 0 up to the first that is missing or damaged."""
    chunks: list[Features] = []
    rows = 0
    while True:
        try:
            with np.load(_file(folder, rows), allow_pickle=False) as file:
                chunk = file["features"]
            if chunk.ndim != 2 or chunk.dtype != np.float32 or not len(chunk):
                return chunks
        except Exception:  # the file does not exist, or is damaged
            return chunks
        chunks.append(chunk)
        rows += len(chunk)


def save_chunk(folder: Path, first: int, batches: Sequence[Features]) -> None:
    """Save the rows from ``first`` on."""
    buffer = io.BytesIO()
    np.savez(buffer, features=np.concatenate(batches))
    try:
        write_atomically(_file(folder, first), buffer.getvalue())
    except OSError as error:
        raise SrjtError(
            f"Features cannot be kept in {folder}: {error.strerror or error}. Free some space and run the command "
            "again (finished images are kept), or set the environment variable SRJT_CACHE to another folder."
        ) from error


def _file(folder: Path, first: int) -> Path:
    return folder / f"{first}.npz"
