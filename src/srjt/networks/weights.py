"""Pretrained weights: read from a file that is not trusted, loaded into a network, downloaded and
checked."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from srjt.errors import Message, Option, SrjtError
from srjt.files import sha256_of, write_atomically
from srjt.networks.backbone import PublishedWeights
from srjt.text import count_of, few

# Load weights from an untrusted file: no code in it is executed, and every weight of the network
# must be there.

_WRAPPERS = ("state_dict", "model_state_dict", "model")  # where training scripts put the weights
_CLASSIFIERS = {"fc", "_fc", "classifier", "class_layers", "head", "heads", "last_linear"}


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The named tensors in a ``.safetensors`` file, or in one written by ``torch.save`` (any other
    suffix)."""
    file = Path(path).expanduser()
    if not os.path.isfile(file):
        raise SrjtError(
            f"There is no weights file at {file}.", code="missing_file", option="weights"
        )
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: object = load_file(file)
        else:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise SrjtError(
            f"{file} cannot be read: {error.strerror}.", code="unreadable_file", option="weights"
        ) from error
    except Exception as error:
        # torch distinguishes the two cases only in its message
        if any(sign in str(error) for sign in ("GLOBAL", "TorchScript")):
            raise SrjtError(
                f"{file} contains Python objects besides tensors, and loading those could run any"
                " code: save the weights alone, with torch.save(model.state_dict(), FILE) or as"
                " .safetensors.",
                code="unsafe_file",
                option="weights",
            ) from error
        raise SrjtError(
            f"{file} holds no weights: it is damaged, or another kind of file.",
            code="wrong_file",
            option="weights",
        ) from error
    tensors = _unwrap(content)
    if not tensors:
        raise SrjtError(
            f"{file} contains no named weights: it must contain a module's state_dict.",
            code="wrong_file",
            option="weights",
        )
    return tensors


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], *, source: str) -> str:
    """Copy ``weights`` into ``network``, which has no classifier, and say in a sentence what
    fitted.

    The network may be a part of the file (``module.`` of DDP, ``0.backbone.`` of a run of srjt,
    ``encoder_q.`` of a self-supervised training): the part that most keys fit is used, without its
    classifier. Keys that are then missing, unexpected or of another shape are an error that names
    ``source``.
    """
    wanted = network.state_dict()
    # what stands before the most keys of the network; the first of several, such as of a run's two
    # networks
    prefixes: Counter[str] = Counter()
    for name in wanted:
        for key in weights:
            if f".{key}".endswith(f".{name}"):
                prefixes[key.removesuffix(name)] += 1
    prefix = max(prefixes, key=prefixes.__getitem__, default="")
    tensors = {}
    for whole, value in weights.items():
        key = whole.removeprefix(prefix)
        of_classifier = key not in wanted and key.split(".")[0] in _CLASSIFIERS
        if whole.startswith(prefix) and not of_classifier:
            tensors[key] = value
    # Many published files lack batch norm's step counters, which batch norm does not use by
    # default.
    counters = {key: value for key, value in wanted.items() if key.endswith("num_batches_tracked")}
    try:
        network.load_state_dict({**counters, **tensors})
    except RuntimeError as error:
        reason = " ".join(str(error).partition("\n\t")[2].split())[:300]
        raise SrjtError(
            f"The weights in {source} do not fit the network: {reason}",
            code="no_match",
            option="weights",
        ) from error
    used = {prefix + key for key in tensors}
    rest = [key for key in weights if key not in used]
    unused = f"; {len(rest)} of the file's are not used ({few(rest)})" if rest else ""
    count = count_of(len(tensors), "tensor")
    return f"The weights in {source} fit: {count} of the network come from it{unused}."


def _unwrap(content: object) -> dict[str, Tensor]:
    while isinstance(content, Mapping):
        inner = next(
            (content[name] for name in _WRAPPERS if isinstance(content.get(name), Mapping)), None
        )
        if inner is None:
            return {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
        content = inner
    return {}


# Published ImageNet weights: downloaded once into torch's cache, checked at every use.

INSTEAD = Message(
    "pass a local file with ",
    Option("weights"),
    ", or start from random weights with ",
    Option("pretrained", False),
)
ALTERNATIVES = Message(
    INSTEAD, ", or choose the network tiny, or train on features (srjt features)"
)
OFFLINE = "SRJT_OFFLINE"  # an environment variable: if it is set, no weights are downloaded
TIMEOUT = 30.0  # seconds of each wait for the server


def cached_file(weights: PublishedWeights) -> Path:
    """Where the file of weights is, or would be, in torch's cache."""
    return Path(torch.hub.get_dir()) / "checkpoints" / weights.file_name


def fetch_published(
    weights: PublishedWeights,
    *,
    timeout: float = TIMEOUT,
    advice: str = Message(", or ", ALTERNATIVES),
) -> Path:
    """The file of weights in torch's cache, downloaded if it is not there yet, and checked by its
    SHA-256.

    ``timeout`` (seconds) limits each wait for the server, not the whole download. ``advice`` ends
    the sentence of an error.
    """
    path = cached_file(weights)
    if path.is_file():
        if (digest := sha256_of(path)) != weights.sha256:
            raise SrjtError(
                f"{path} is not the published file (its SHA-256 begins with {digest[:16]}, not "
                f"{weights.sha256[:16]}): delete it and try again",
                advice,
                ".",
                code="damaged_file",
                option="weights",
            )
        return path
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(timeout)  # torch.hub would wait for ever
    try:
        if os.environ.get(OFFLINE):
            raise OSError(f"{OFFLINE} is set")
        path.parent.mkdir(parents=True, exist_ok=True)
        if weights.member:
            _download_member(weights, path)
        else:
            _download(weights.address, path, sha256=weights.sha256)
    except (
        OSError,
        RuntimeError,
        KeyError,
        zipfile.BadZipFile,
    ) as error:  # no connection, no such file, another file
        reason = str(error).removeprefix("<urlopen error ").removesuffix(">")
        raise SrjtError(
            f"{weights.address} cannot be downloaded ({reason}): put {_wanted(weights)} at {path}",
            advice,
            ".",
            code="unreachable",
            option="weights",
        ) from error
    finally:
        socket.setdefaulttimeout(before)
    return path


def _wanted(weights: PublishedWeights) -> str:
    if weights.member:
        return f"{weights.member} of that file"
    return "that file"


def _download(address: str, path: Path, *, sha256: str | None) -> None:
    torch.hub.download_url_to_file(
        address, str(path), hash_prefix=sha256, progress=sys.stderr.isatty()
    )


def _download_member(weights: PublishedWeights, path: Path) -> None:
    """The file of weights in a ZIP file. Nothing else of that file is written."""
    archive = path.with_name(f"{path.name}.zip")
    try:
        _download(weights.address, archive, sha256=None)
        with zipfile.ZipFile(archive) as opened:
            content = opened.read(weights.member)
    finally:
        archive.unlink(missing_ok=True)
    digest = hashlib.sha256(content).hexdigest()
    if digest != weights.sha256:
        raise RuntimeError(f'invalid hash value (expected "{weights.sha256}", got "{digest}")')
    write_atomically(path, content)
