"""Checkpoints that survive a crash at any moment: each is written to a draft, synced and renamed; two are kept.

One file contains everything: tensors as safetensors, the rest as JSON in its header. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srjt.errors import SrjtError, warn
from srjt.files import remove_unfinished, write_atomically

__all__ = ["CheckpointWriter", "latest", "read", "write"]

KEPT = 2


def write(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors (on the CPU) and JSON values to one safetensors file with a checksum, atomically."""
    from safetensors.torch import save

    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    text = json.dumps(meta)
    # one entry: safetensors writes several in an order that varies from process to process
    facts = {"srjt": f"{checksum(contiguous, text)} {text}"}
    write_atomically(path, save(contiguous, metadata=facts), follow_links=False)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``write`` wrote; an error if the file is truncated, damaged or something else."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            written, _, text = (file.metadata() or {})["srjt"].partition(" ")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError, struct.error) as problem:
        raise SrjtError(f"{path} is not a readable checkpoint ({problem}).") from None
    if written != str(checksum(tensors, text)):
        raise SrjtError(f"{path} is damaged: its checksum does not match.")
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise SrjtError(f"{path} is not a readable checkpoint ({problem}).") from None
    if not isinstance(meta, dict):
        raise SrjtError(f"{path} is not a readable checkpoint (its header is no object).")
    return tensors, meta


def checksum(tensors: Mapping[str, Tensor], text: str) -> int:
    """CRC-32 over everything: safetensors detects a truncated file, but not a changed number or a flipped bit.

    text: the JSON values in the header.
    """
    value = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        facts = f"{name} {tensors[name].dtype} {list(tensors[name].shape)}"
        value = zlib.crc32(facts.encode("utf-8", "surrogatepass"), value)
        flat = tensors[name].contiguous().reshape(-1)
        if flat.numel():
            value = zlib.crc32(np.ascontiguousarray(flat.view(torch.uint8).numpy()).data, value)
    return value


def latest(
    folder: Path, *, check: Callable[[dict[str, Tensor], dict[str, Any]], None] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest usable checkpoint; damaged ones are skipped with a warning.

    check: raises ValueError for contents from which the run cannot resume.
    """
    found = sorted(folder.glob("step-*.safetensors"))
    while found:
        path = found.pop()
        try:
            tensors, meta = read(path)
            if check is not None:
                check(tensors, meta)
            return tensors, meta
        except ValueError as problem:
            if not isinstance(problem, SrjtError):
                problem = SrjtError(f"{path} is damaged or not from srjt ({problem}).")
            fallback = "Falling back to the previous checkpoint." if found else "Starting from the beginning."
            warn(f"{problem} {fallback}")
    return None


class CheckpointWriter:
    """Writes checkpoints in the background, one at a time; a failure is raised at the next call."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise SrjtError(f"Checkpoints cannot be written to {folder}: {problem.strerror}.") from None
        self.folder = folder
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        remove_unfinished(folder)

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def save(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], *, step: int) -> None:
        """Copy the tensors now and write them later. ``step`` (of the whole training) orders the files."""
        self.wait()
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        path = self.folder / f"step-{step:010d}.safetensors"
        self._thread = threading.Thread(target=self._write, args=(path, copies, dict(meta)), daemon=True)
        self._thread.start()

    def _write(self, path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        try:
            write(path, tensors, meta)
            # A later one was damaged: this training resumed from an earlier one.
            before = sorted(p for p in self.folder.glob("step-*.safetensors") if p.name <= path.name)
            for other in self.folder.glob("step-*.safetensors"):
                if other not in before[-KEPT:]:
                    other.unlink(missing_ok=True)
        except BaseException as failure:
            self._failure = failure

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            if isinstance(failure, OSError):
                raise SrjtError(
                    f"A checkpoint could not be written to {self.folder} ({failure.strerror}); the previous one is "
                    "kept. Free some space and run the same command again to resume."
                ) from failure
            raise failure
