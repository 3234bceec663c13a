"""How a run was made: the command, the time, the machine and the versions, for ``run.json``."""

from __future__ import annotations

import contextlib
import os
import platform
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from srjt import files
from srjt.training.devices import device_name

PACKAGES = ("torch", "numpy", "monai", "scikit-learn", "pandas", "pillow")


def describe_provenance(
    device: torch.device, *, command: str | None, processes: int = 1
) -> dict[str, Any]:
    """Facts about the beginning of a run. command: as it was typed; None for a call from Python."""
    return {
        "command": command,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": device_name(device),
        "processes": processes,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


class SourceFile(BaseModel, extra="forbid"):
    """The file or folder that was read, and the hash of a file."""

    path: str
    sha256: str = ""


def describe_source(path: str) -> SourceFile:
    """The file or folder that the labels were read from, and the hash of a file as it is now."""
    with contextlib.suppress(OSError):
        return SourceFile(path=os.path.abspath(path), sha256=files.sha256_of(Path(path)))
    return SourceFile(path=os.path.abspath(path))


@cache  # searching the installed packages takes as long as an epoch of a small run
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
