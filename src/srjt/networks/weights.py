"""Pretrained weights: from a file of the user's own, or published ones for ImageNet, downloaded once."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from srjt.errors import SrjtError, count_of
from srjt.files import DownloadError, download_once
from srjt.progress import progress_bar

# Load weights from an untrusted file: no code in it is executed, and every weight of the network must be
# there.

_WRAPPERS = ("state_dict", "model_state_dict", "model")  # where training scripts put the weights
_CLASSIFIERS = {"fc", "_fc", "classifier", "class_layers", "head", "heads", "last_linear"}


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The named tensors in a ``.safetensors`` file, or in one written by ``torch.save`` (any other suffix)."""
    file = Path(path).expanduser()
    if not os.path.isfile(file):
        raise SrjtError(f"There is no weights file at {file}.")
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: object = load_file(file)
        else:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise SrjtError(f"{file} cannot be read: {error.strerror}.") from error
    except Exception as error:
        # torch distinguishes the two cases only in its message
        if any(sign in str(error) for sign in ("GLOBAL", "TorchScript")):
            raise SrjtError(
                f"{file} contains Python objects besides tensors, and loading those could run any code: save the "
                "weights alone, with torch.save(model.state_dict(), FILE) or as .safetensors."
            ) from error
        raise SrjtError(
            f"{file} cannot be read as weights: it is damaged, incomplete, or another kind of file."
        ) from error
    tensors = _unwrap(content)
    if not tensors:
        raise SrjtError(f"{file} contains no named weights: it must contain a module's state_dict.")
    return tensors


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], *, source: str) -> str:
    """Copy ``weights`` into ``network``, which has no classifier, and say in a sentence what fitted.

    The network may be a part of the file (``module.`` of DDP, ``0.backbone.`` of a run of srjt, ``encoder_q.`` of a
    self-supervised training): the part that most keys fit is used, without its classifier. Keys that are then missing,
    unexpected or of another shape are an error that names ``source``.
    """
    wanted = network.state_dict()
    prefix = _prefix(weights, wanted)
    tensors = {key[len(prefix) :]: value for key, value in weights.items() if key.startswith(prefix)}
    tensors = {
        key: value for key, value in tensors.items() if key in wanted or key.split(".")[0] not in _CLASSIFIERS
    }
    # Many published files lack batch norm's step counters, which batch norm does not use by default.
    missing = [key for key in wanted if key not in tensors and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in tensors if key not in wanted]
    reshaped = [
        f"{key} is {_shape(tensors[key])} instead of {_shape(wanted[key])}"
        for key in wanted
        if key in tensors and tensors[key].shape != wanted[key].shape
    ]
    problems = [
        f"{len(keys)} {what} ({_some(keys)})"
        for keys, what in (
            (missing, "missing"),
            (unexpected, "unexpected"),
            (reshaped, "of another shape"),
        )
        if keys
    ]
    if problems:
        raise SrjtError(f"The weights in {source} do not fit the network: {'; '.join(problems)}.")
    network.load_state_dict(tensors, strict=False)
    used = {prefix + key for key in tensors}
    rest = [key for key in weights if key not in used]
    unused = f"; {len(rest)} of the file's are not used ({_some(rest)})" if rest else ""
    return f"The weights in {source} fit: {count_of(len(tensors), 'tensor')} of the network come from it{unused}."


def _unwrap(content: object) -> dict[str, Tensor]:
    while isinstance(content, Mapping):
        inner = next((content[name] for name in _WRAPPERS if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            return {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
        content = inner
    return {}


def _prefix(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """What stands before the most keys of the network; the first of several, such as of a run's two networks."""
    prefixes = Counter(
        key.removesuffix(name) for name in wanted for key in weights if f".{key}".endswith(f".{name}")
    )
    return max(prefixes, key=prefixes.__getitem__, default="")


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a single number"


def _some(items: Sequence[str]) -> str:
    return ", ".join(items[:3]) + (", …" if len(items) > 3 else "")


# PyTorch's published ImageNet weights: downloaded once into torch's cache, checked at every use.

# The SHA-256, whose first eight digits PyTorch publishes in the name. For ResNet-50 this is the first of two published
# sets, trained with the same recipe as the only sets for 18 and 34 layers. --weights loads the other.
_DIGESTS = {
    "resnet18": "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    "resnet34": "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
    "resnet50": "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
}
OFFICIAL_WEIGHTS = {  # name → address, SHA-256
    name: (f"https://download.pytorch.org/models/{name}-{digest[:8]}.pth", digest)
    for name, digest in _DIGESTS.items()
}

_ALTERNATIVES = (
    "pass a local file with `weights`, or start from random weights with `pretrained=False`, or choose the small "
    "network tiny, or train on features that srjt features has computed on another machine"
)


def fetch_imagenet_weights(url: str, sha256: str, *, timeout: float = 30.0) -> Path:
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
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
