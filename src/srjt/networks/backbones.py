"""Backbones by name: each is a module whose output is (B, features)."""

from __future__ import annotations

import difflib
import importlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from srjt.errors import SrjtError, UnknownNameError, missing_extra, suggest
from srjt.networks.resnet import DEPTHS, resnet
from srjt.networks.small import linear, mlp, tiny

__all__ = ["Maker", "maker", "names", "takes_rows"]

Maker = Callable[[], nn.Module]

_ROWS = ("linear", "mlp")  # these read rows of features, all others images
_SMALL = ("tiny", "tiny-gn")
_DENSENETS = {"densenet121": "DenseNet121", "densenet169": "DenseNet169", "densenet201": "DenseNet201"}
_EFFICIENTNETS = tuple(f"efficientnet-b{size}" for size in range(5))


def names() -> tuple[str, ...]:
    """Names of the built-in networks; ``timm:NAME`` selects any network of timm.

    Returns
    -------
    tuple of str
        ``linear`` and ``mlp`` read rows of features, all others images.

    Examples
    --------
    >>> from srjt import networks
    >>> "resnet18" in networks.names()
    True
    """
    return (*_SMALL, *_ROWS, *DEPTHS, *_DENSENETS, *_EFFICIENTNETS)


def takes_rows(name: str) -> bool:
    """Whether the network reads rows (B, F) of features rather than images (B, channels, H, W)."""
    return name in _ROWS


def maker(name: str, *, in_shape: tuple[int, ...], timm_weights: bool = False) -> Maker:
    """A function that makes the backbone ``name`` for samples of ``in_shape``.

    Slow imports happen here and not inside the returned function: a caller who seeds the random state before calling
    it gets the same weights whether or not this was the first import. ``timm_weights`` lets timm download its
    pretrained weights for ``timm:NAME``.
    """
    channels = in_shape[0]
    if name == "linear":
        return partial(linear, inputs=channels)
    if name == "mlp":
        return partial(mlp, inputs=channels)
    if name == "tiny":
        return partial(tiny, channels=channels)
    if name == "tiny-gn":
        return partial(tiny, channels=channels, norm="group")
    if name in DEPTHS:
        return partial(resnet, name, channels=channels)
    if name.startswith("timm:"):
        return _timm(name.removeprefix("timm:"), channels=channels, pretrained=timm_weights)
    if name not in names():
        raise suggest("network", name, (*names(), "timm:NAME"))
    return _monai(name, channels=channels)


def _monai(name: str, *, channels: int) -> Maker:
    state = random.getstate()  # the first import draws from Python's global generator
    # takes seconds, so imported only for its own networks
    nets: Any = importlib.import_module("monai.networks.nets")
    random.setstate(state)

    def densenet() -> nn.Module:
        network: Any = getattr(nets, _DENSENETS[name])(spatial_dims=2, in_channels=channels, out_channels=1)
        network.class_layers.out = nn.Identity()
        return network  # type: ignore[no-any-return]

    def efficientnet() -> nn.Module:
        network: Any = nets.EfficientNetBN(name, pretrained=False, spatial_dims=2, in_channels=channels)
        network._fc = nn.Identity()
        network.set_swish(memory_efficient=False)  # the other one cannot be compiled or exported
        return network  # type: ignore[no-any-return]

    return densenet if name in _DENSENETS else efficientnet


def _timm(name: str, *, channels: int, pretrained: bool) -> Maker:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise missing_extra("timm", "timm", f"The network 'timm:{name}'") from error
    except Exception as error:  # a torchvision for another version of torch raises various errors
        raise SrjtError(
            f"timm is installed but cannot be imported ({_first_line(error)}): install the torchvision that "
            "matches your version of torch."
        ) from error
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1, cutoff=0.5)
        hint = f"did you mean 'timm:{near[0]}'? " if near else ""
        raise UnknownNameError(f"Unknown network 'timm:{name}': {hint}timm.list_models() lists all.")

    def make() -> nn.Module:
        try:
            network = timm.create_model(name, pretrained=pretrained, num_classes=0, in_chans=channels)
        except Exception as error:
            if not pretrained:
                raise
            raise SrjtError(
                f"timm could not download its pretrained weights of {name!r} ({_first_line(error)}): pass a local "
                "file with `weights`, or start from random weights with `pretrained=False`."
            ) from error
        return network  # type: ignore[no-any-return]

    return make


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
