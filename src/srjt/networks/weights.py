"""Load weights from an untrusted file: no code in it is executed, and every weight of the network must be there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from srjt.errors import SrjtError, count_of

__all__ = ["load", "read"]

_WRAPPERS = ("state_dict", "model_state_dict", "model")  # where training scripts put the weights
_CLASSIFIERS = {"fc", "_fc", "classifier", "class_layers", "head", "heads", "last_linear"}


def read(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The named tensors in a ``.safetensors`` file, or in one written by ``torch.save`` (any other suffix)."""
    file = Path(path).expanduser()
    if not os.path.isfile(file):
        raise SrjtError(f"There is no weights file at {file}.")
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: object = load_file(file)
        else:
            found = torch.load(file, map_location="cpu", weights_only=True)
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
    tensors = _unwrap(found)
    if not tensors:
        raise SrjtError(f"{file} contains no named weights: it must contain a module's state_dict.")
    return tensors


def load(network: nn.Module, weights: Mapping[str, Tensor], *, source: str) -> str:
    """Copy ``weights`` into ``network``, which has no classifier, and say in a sentence what fitted.

    The network may be a part of the file (``module.`` of DDP, ``0.backbone.`` of a run of srjt, ``encoder_q.`` of a
    self-supervised training): the part that most keys fit is used, without its classifier. Keys that are then missing,
    unexpected or of another shape are an error that names ``source``.
    """
    wanted = network.state_dict()
    prefix = _prefix(weights, wanted)
    given = {key[len(prefix) :]: value for key, value in weights.items() if key.startswith(prefix)}
    given = {key: value for key, value in given.items() if key in wanted or _top(key) not in _CLASSIFIERS}
    # Many published files lack batch norm's step counters, which batch norm does not use by default.
    missing = [key for key in wanted if key not in given and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in given if key not in wanted]
    reshaped = [
        f"{key} is {_shape(given[key])} instead of {_shape(wanted[key])}"
        for key in wanted
        if key in given and given[key].shape != wanted[key].shape
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
    network.load_state_dict(given, strict=False)
    used = {prefix + key for key in given}
    rest = [key for key in weights if key not in used]
    unused = f"; {len(rest)} of the file's are not used ({_some(rest)})" if rest else ""
    return (
        f"The weights in {source} fit: {count_of(len(given), 'tensor')} of the network come from it{unused}."
    )


def _unwrap(found: object) -> dict[str, Tensor]:
    while isinstance(found, Mapping):
        inner = next((found[name] for name in _WRAPPERS if isinstance(found.get(name), Mapping)), None)
        if inner is None:
            return {str(key): value for key, value in found.items() if isinstance(value, Tensor)}
        found = inner
    return {}


def _prefix(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """What stands before the most keys of the network; the first of several, such as of a run's two networks."""
    found = Counter(
        key.removesuffix(name) for name in wanted for key in weights if f".{key}".endswith(f".{name}")
    )
    return max(found, key=found.__getitem__, default="")


def _top(key: str) -> str:
    return key.split(".", 1)[0]


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a single number"


def _some(items: Sequence[str]) -> str:
    return ", ".join(items[:3]) + (", …" if len(items) > 3 else "")
