"""Backbones by name: each is a module whose output is (B, features)."""

from __future__ import annotations

import difflib
import importlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from srjt.errors import SrjtError, UnknownNameError, missing_extra, suggest
from srjt.networks.resnet import DEPTHS, resnet
from srjt.networks.small import Standardise, linear, mlp, tiny

__all__ = ["Maker", "as_trained", "maker", "names", "takes_rows", "trained_size"]

Maker = Callable[[], nn.Module]

# The normalisation of the images that every network gets: srjt.data.images.augment
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

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
        return _timm(name, in_shape=in_shape, pretrained=timm_weights)
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


def as_trained(name: str, backbone: nn.Module) -> nn.Module:
    """The backbone, fed as it was trained: some of timm's networks were not trained with ImageNet's normalisation."""
    known = _pretrained_cfg(name)
    if known is None or (tuple(known.mean), tuple(known.std)) == (IMAGENET_MEAN, IMAGENET_STD):
        return backbone
    return Renormalised(backbone, mean=known.mean, std=known.std)


class Renormalised(nn.Module):
    """A network for another ``mean`` and ``std`` of the channels than ImageNet's, by which images are normalised.

    The layer that turns one into the other is a part of the network: of its weights, its export, its explanations.
    """

    def __init__(self, network: nn.Module, *, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.input = Standardise(3, 1, 1)
        self.network = network
        given_mean, given_std, wanted_mean, wanted_std = (
            torch.tensor(tuple(values), dtype=torch.float64).view(3, 1, 1)
            for values in (IMAGENET_MEAN, IMAGENET_STD, mean, std)
        )
        self.input.mean.copy_((wanted_mean - given_mean) / given_std)
        self.input.scale.copy_(wanted_std / given_std)
        self.register_load_state_dict_pre_hook(_read_older)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.network(self.input(x))
        return features


def _read_older(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Runs of version 0.2 have no such layer: all their networks were fed with ImageNet's normalisation."""
    if f"{prefix}input.mean" in state:
        return
    for key in [key for key in state if key.startswith(prefix)]:
        state[f"{prefix}network.{key[len(prefix) :]}"] = state.pop(key)
    layer = Standardise(3, 1, 1).state_dict()
    state.update({f"{prefix}input.{key}": value for key, value in layer.items()})


def trained_size(name: str) -> int | None:
    """The side of the images that a network of timm was trained on, in pixels; None for all others."""
    known = _pretrained_cfg(name)
    return None if known is None else int(known.input_size[-1])


def _pretrained_cfg(name: str) -> Any:
    """What timm knows of the pretrained weights of ``timm:NAME``; None if it is not of timm, or knows nothing."""
    return _import_timm(name).get_pretrained_cfg(name[5:]) if name.startswith("timm:") else None


def _import_timm(name: str) -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise missing_extra("timm", "timm", f"The network {name!r}") from error
    except Exception as error:  # a torchvision for another version of torch raises various errors
        raise SrjtError(
            f"timm is installed but cannot be imported ({_first_line(error)}): install the torchvision that "
            "matches your version of torch."
        ) from error
    return timm


def _timm(full_name: str, *, in_shape: tuple[int, ...], pretrained: bool) -> Maker:
    timm, name = _import_timm(full_name), full_name.removeprefix("timm:")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1, cutoff=0.5)
        hint = f"did you mean 'timm:{near[0]}'? " if near else ""
        raise UnknownNameError(f"Unknown network 'timm:{name}': {hint}timm.list_models() lists all.")
    known, size = _pretrained_cfg(full_name), {}
    if known is not None and known.fixed_input_size and known.input_size[-1] != in_shape[-1]:
        size = {"img_size": in_shape[-1]}  # a transformer: its position embeddings are interpolated

    def make() -> nn.Module:
        try:
            network = timm.create_model(
                name, pretrained=pretrained, num_classes=0, in_chans=in_shape[0], **size
            )
        except Exception as error:
            if size and not isinstance(error, OSError):
                raise SrjtError(
                    f"timm cannot make {name!r} for images of {in_shape[-1]} pixels ({_first_line(error)}): it was "
                    f"trained on {known.input_size[-1]}, so set `crop={known.input_size[-1]}`."
                ) from error
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
