"""One network = a backbone, perhaps with weights from a file, and the last layer its method asks for."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from srjt.errors import SrjtError
from srjt.networks import backbones, weights
from srjt.networks import imagenet_weights as imagenet

__all__ = ["build"]


def build(
    network: str | Callable[[], nn.Module],
    *,
    head: Callable[[int], nn.Module],
    in_shape: tuple[int, ...],
    pretrained: bool | str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> nn.Module:
    """A module from (B, \\*in_shape) to the head's output, with the parts ``backbone`` and ``head``.

    - ``network``: a name (``networks.names()`` or ``timm:NAME``), or a function without arguments that
      makes a *new* module with an output of shape (B, features); a joint method calls it twice.
    - ``head``: makes the last layer, given the number of features.
    - ``in_shape``: one sample's shape, (channels, H, W) for images or (F,) for rows of features.
    - ``pretrained``: None or False for random weights, True for the published ImageNet weights (timm's own
      for ``timm:NAME``), or the path of a weights file for the backbone.
    - ``seed``: decides all random weights. Pretrained networks with different seeds differ in their heads
      only. The random state outside is left untouched.
    """
    shape = tuple(in_shape)
    with torch.random.fork_rng(devices=[]):
        make = _maker(network, shape=shape, pretrained=pretrained)
        file = _weights_file(network, pretrained)
        given = None if file is None else weights.read(file)
        # torch.manual_seed would seed the accelerators as well; modules are made on the CPU.
        torch.default_generator.manual_seed(seed)
        backbone = make()
        if not isinstance(backbone, nn.Module):
            raise SrjtError(
                f"The network function must return a torch module, not {type(backbone).__name__}."
            )
        features = _count_features(backbone, shape=shape, name=_name(network))
        if given is not None:
            weights.load(backbone, given, source=str(file))
        return nn.Sequential(OrderedDict(backbone=backbone, head=head(features)))


def _maker(
    network: str | Callable[[], nn.Module],
    *,
    shape: tuple[int, ...],
    pretrained: bool | str | os.PathLike[str] | None,
) -> backbones.Maker:
    if isinstance(network, nn.Module):
        raise SrjtError(
            "Give a function that makes the network (such as its class), not the module itself: "
            "each of two networks needs weights of its own."
        )
    if not isinstance(network, str):
        return network
    make = backbones.maker(network, in_shape=shape, timm_weights=pretrained is True)
    rows = backbones.takes_rows(network)
    if len(shape) != (1 if rows else 3):
        reads, other = ("rows of features", "tiny") if rows else ("images", "mlp")
        raise SrjtError(
            f"The network {network!r} reads {reads}, not samples of shape {shape}: choose, for example, {other!r}."
        )
    return make


def _weights_file(
    network: str | Callable[[], nn.Module], pretrained: bool | str | os.PathLike[str] | None
) -> Path | None:
    if pretrained is None or pretrained is False:
        return None
    if pretrained is not True:
        return Path(pretrained).expanduser()
    if isinstance(network, str) and network.startswith("timm:"):
        return None  # timm has loaded its own
    url = imagenet.OFFICIAL.get(network) if isinstance(network, str) else None
    if url is None:
        raise SrjtError(
            f"There are no published ImageNet weights for {_name(network)}, only for "
            f"{', '.join(imagenet.OFFICIAL)}: give a local file with --weights FILE, or start from random "
            "weights with --no-pretrained."
        )
    return imagenet.fetch(url)


def _count_features(backbone: nn.Module, *, shape: tuple[int, ...], name: str) -> int:
    """Columns of the backbone's output, found by a run on zeros.

    A ``num_features`` attribute is no substitute: some of timm's networks give more columns than it says.
    The run also shows at once when the network cannot take inputs of this size.
    """
    device = next((tensor.device for tensor in backbone.parameters()), torch.device("cpu"))
    modes = [(module, module.training) for module in backbone.modules()]
    backbone.eval()  # so that batch norm learns nothing from the zeros
    try:
        with torch.no_grad():
            output = backbone(torch.zeros(1, *shape, device=device))
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise SrjtError(f"Samples of shape {shape} do not suit {name}: {reason}") from error
    finally:
        for module, mode in modes:
            module.training = mode
    if not isinstance(output, Tensor) or output.ndim != 2:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise SrjtError(
            f"A network must give features of shape (batch, features), but {name} gives {got} for one sample: "
            "end it with pooling and nn.Flatten()."
        )
    return output.shape[1]


def _name(network: str | Callable[[], nn.Module]) -> str:
    return f"the network {network!r}" if isinstance(network, str) else "your own network"
