"""PyTorch's published ImageNet weights: fetched once into torch's own cache, checked at every use."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import torch

from srjt.errors import SrjtError

__all__ = ["OFFICIAL", "fetch"]

# The file's name carries the beginning of its SHA-256. For ResNet-50 this is the first of two published
# sets: it was trained by the same recipe as the only sets for 18 and 34 layers. --weights loads the other.
OFFICIAL = {
    "resnet18": "https://download.pytorch.org/models/resnet18-f37072fd.pth",
    "resnet34": "https://download.pytorch.org/models/resnet34-b627a593.pth",
    "resnet50": "https://download.pytorch.org/models/resnet50-0676ba61.pth",
}

_CHUNK = 1 << 20
_OTHERWISE = "give a local file with --weights FILE, or start from random weights with --no-pretrained"


def fetch(url: str, *, timeout: float = 30.0) -> Path:
    """The file behind ``url`` (…/NAME-HASH.pth) in torch's cache, downloaded if it is not there yet.

    ``timeout`` (seconds) bounds each wait for the server, not the download as a whole.
    """
    name = url.rsplit("/", 1)[-1]
    prefix = name.rsplit(".", 1)[0].rsplit("-", 1)[-1]
    path = Path(torch.hub.get_dir()) / "checkpoints" / name
    if path.is_file():
        digest = _sha256(path)
        if not digest.startswith(prefix):
            raise SrjtError(
                f"{path} is not the published file (its SHA-256 begins with {digest[: len(prefix)]}, not "
                f"{prefix}): delete it and try again, or {_OTHERWISE}."
            )
        return path

    # A name of its own, then a rename: a broken or simultaneous download never looks like a finished one.
    partial = path.with_name(f"{name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(url, partial, timeout=timeout)
        digest = _sha256(partial)
        if not digest.startswith(prefix):
            raise SrjtError(
                f"What {url} sent is not the published file (its SHA-256 begins with "
                f"{digest[: len(prefix)]}, not {prefix}): try again, or put that file at {path}, or {_OTHERWISE}."
            )
        os.replace(partial, path)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if type(error) is urllib.error.URLError else error
        raise SrjtError(
            f"Could not fetch {url} ({reason}): put that file at {path}, or {_OTHERWISE}."
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return path


def _download(url: str, path: Path, *, timeout: float) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    request = urllib.request.Request(url, headers={"User-Agent": "srjt"})
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with (
        urllib.request.urlopen(request, timeout=timeout) as answer,
        path.open("xb") as file,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        size = int(answer.headers.get("Content-Length", 0)) or None
        task = progress.add_task(url.rsplit("/", 1)[-1], total=size)
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            progress.advance(task, len(chunk))
        if size is not None and file.tell() < size:
            raise OSError(f"the connection broke off after {file.tell():,} of {size:,} bytes")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
