"""PyTorch's published ImageNet weights: downloaded once into torch's cache, checked at every use."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

import torch

from srjt.download import DownloadError, download_once
from srjt.errors import SrjtError
from srjt.progress import progress_bar

__all__ = ["OFFICIAL", "fetch"]

_SERVER = "https://download.pytorch.org/models"
# Address and SHA-256, whose first eight digits PyTorch publishes in the name. For ResNet-50 this is the first of two
# published sets, trained with the same recipe as the only sets for 18 and 34 layers. --weights loads the other.
OFFICIAL = {
    "resnet18": (
        f"{_SERVER}/resnet18-f37072fd.pth",
        "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    ),
    "resnet34": (
        f"{_SERVER}/resnet34-b627a593.pth",
        "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
    ),
    "resnet50": (
        f"{_SERVER}/resnet50-0676ba61.pth",
        "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    ),
}

_ALTERNATIVES = (
    "pass a local file with `weights`, or start from random weights with `pretrained=False`, or choose the small "
    "network tiny, or train on features that srjt features has computed on another machine"
)


def fetch(url: str, sha256: str, *, timeout: float = 30.0) -> Path:
    """The file behind ``url`` in torch's cache, downloaded if it is not there yet.

    ``timeout`` (seconds) limits each wait for the server, not the whole download: torch.hub, which would do the same,
    waits forever.
    """
    name = url.rsplit("/", 1)[-1]
    path = Path(torch.hub.get_dir()) / "checkpoints" / name
    if path.is_file():
        if (digest := _sha256(path)) != sha256:
            raise SrjtError(
                f"{path} is not the published file (its SHA-256 begins with {digest[:16]}, not {sha256[:16]}): "
                f"delete it and try again, or {_ALTERNATIVES}."
            )
        return path

    # A unique name, then a rename: processes that download at the same time do not disturb each other.
    part = path.with_name(f"{name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with progress_bar(name, progress=True) as progress:
            download_once(
                url, part, progress=lambda done, total: progress(done, total or done), timeout=timeout
            )
        if (digest := _sha256(part)) != sha256:
            raise SrjtError(
                f"{url} did not send the published file (its SHA-256 begins with {digest[:16]}, not {sha256[:16]}): "
                f"try again, or put that file at {path}, or {_ALTERNATIVES}."
            )
        os.replace(part, path)
    except (DownloadError, OSError) as error:
        raise SrjtError(
            f"{url} cannot be downloaded ({error}): put that file at {path}, or {_ALTERNATIVES}."
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
