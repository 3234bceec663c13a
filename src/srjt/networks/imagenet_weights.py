"""PyTorch's published ImageNet weights: downloaded once into torch's cache, checked at every use."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import torch

from srjt.download import DownloadError, Progress, download_once
from srjt.errors import SrjtError

__all__ = ["OFFICIAL", "fetch"]

# The file's name contains the beginning of its SHA-256. For ResNet-50 this is the first of two published sets, trained
# with the same recipe as the only sets for 18 and 34 layers. --weights loads the other.
OFFICIAL = {
    "resnet18": "https://download.pytorch.org/models/resnet18-f37072fd.pth",
    "resnet34": "https://download.pytorch.org/models/resnet34-b627a593.pth",
    "resnet50": "https://download.pytorch.org/models/resnet50-0676ba61.pth",
}

_ALTERNATIVES = (
    "pass a local file with `weights`, or start from random weights with `pretrained=False`, or choose the small "
    "network tiny, or train on features that srjt features has computed on another machine"
)


def fetch(url: str, *, timeout: float = 30.0) -> Path:
    """The file behind ``url`` (…/NAME-HASH.pth) in torch's cache, downloaded if it is not there yet.

    ``timeout`` (seconds) limits each wait for the server, not the whole download.
    """
    name = url.rsplit("/", 1)[-1]
    expected = name.rsplit(".", 1)[0].rsplit("-", 1)[-1]
    path = Path(torch.hub.get_dir()) / "checkpoints" / name
    if path.is_file():
        digest = _sha256(path)
        if not digest.startswith(expected):
            raise SrjtError(
                f"{path} is not the published file (its SHA-256 begins with {digest[: len(expected)]}, not "
                f"{expected}): delete it and try again, or {_ALTERNATIVES}."
            )
        return path

    # A unique name, then a rename: processes that download at the same time do not disturb each other.
    part = path.with_name(f"{name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _progress_bar(name) as progress:
            download_once(url, part, progress=progress, timeout=timeout)
        digest = _sha256(part)
        if not digest.startswith(expected):
            raise SrjtError(
                f"{url} did not send the published file (its SHA-256 begins with {digest[: len(expected)]}, not "
                f"{expected}): try again, or put that file at {path}, or {_ALTERNATIVES}."
            )
        os.replace(part, path)
    except (DownloadError, OSError) as error:
        raise SrjtError(
            f"{url} cannot be downloaded ({error}): put that file at {path}, or {_ALTERNATIVES}."
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return path


@contextlib.contextmanager
def _progress_bar(name: str) -> Iterator[Progress]:
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    from srjt.console import Console

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
