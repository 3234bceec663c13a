"""A network: a backbone, with pretrained weights if requested, and the last layer of its method."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from srjt.errors import Message, Option, SrjtError, warn
from srjt.networks import registry
from srjt.networks.backbone import IMAGENET_MEAN, IMAGENET_STD
from srjt.networks.layers import Standardise
from srjt.networks.weights import INSTEAD, fetch_published, load_weights, read_weights
from srjt.text import reason_of

Maker = Callable[[], nn.Module]
Weights = bool | str | os.PathLike[str] | None  # published ones, those of a file, or none


def build(
    network: str | Maker,
    *,
    head: Callable[[int], nn.Module],
    in_shape: tuple[int, ...],
    pretrained: Weights = None,
    seed: int = 0,
) -> nn.Module:
    """Build a network from a backbone and a last layer.

    Parameters
    ----------
    network : str or callable
        A name (see ``networks.names()``, or ``timm:NAME``), or a function without arguments that
        returns a *new* module with an output of shape (B, features). Methods with two networks call
        it twice.
    head : callable
        Number of features → the last layer.
    in_shape : tuple of int
        Shape of one sample: (channels, H, W) for images, (F,) for rows of features.
    pretrained : bool or path, optional
        None or False: random weights. True: the published ImageNet weights (timm's for
        ``timm:NAME``). A path: a weights file for the backbone.
    seed : int
        Determines all random weights; the global random state is not changed. Pretrained networks
        with different seeds differ in their heads only.

    Returns
    -------
    nn.Module
        A module from (B, \\*in_shape) to the head's output, with the parts ``backbone`` and
        ``head``.

    Examples
    --------
    >>> import torch
    >>> from srjt import networks
    >>> def head(features):
    ...     return torch.nn.Linear(features, 4)
    >>> network = networks.build("tiny", head=head, in_shape=(3, 32, 32))
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 4])
    """
    with torch.random.fork_rng(devices=[]):
        backbone, features, _ = _backbone(
            network, shape=tuple(in_shape), pretrained=pretrained, seed=seed
        )
        return nn.Sequential(OrderedDict(backbone=backbone, head=head(features)))


def fetch_weights(
    network: str | Maker, pretrained: Weights, *, in_shape: tuple[int, ...]
) -> str | None:
    """Raise the error for weights that ``build`` will not find or that do not fit, and download
    those that it needs.

    Parameters
    ----------
    network : str or callable
        As for ``build``.
    pretrained : bool, path or None
        As for ``build``: the published ImageNet weights, a file, or none.
    in_shape : tuple of int
        The shape of one sample, as for ``build``.

    Returns
    -------
    str or None
        A sentence about what of a local file fitted, if the network is one of ``names()`` or of
        timm.

    Raises
    ------
    SrjtError
        If there are no such weights, or they cannot be downloaded.

    Examples
    --------
    >>> fetch_weights("tiny", False, in_shape=(3, 64, 64))  # nothing to fetch
    """
    if isinstance(network, str):
        row = registry.find(network)
        make = row.make(in_shape, pretrained is True)
        if row.loads_own_weights and pretrained is True:
            make()  # timm downloads them when it builds a network
        trained = row.trained_input() if pretrained and row.loads_own_weights else None
        if trained is not None and trained.size != in_shape[-1]:
            warn(
                Message(
                    f"{network} was trained on images of {trained.size} pixels and gets"
                    f" {in_shape[-1]}: ",
                    Option("crop", trained.size),
                    " is better.",
                )
            )
    if (file := _weights_file(network, pretrained)) is not None and not os.path.isfile(file):
        raise SrjtError(
            f"There is no weights file at {file}.", code="missing_file", option="weights"
        )
    if file is None or pretrained is True or not isinstance(network, str):
        return None
    with torch.random.fork_rng(devices=[]):
        return _backbone(network, shape=in_shape, pretrained=pretrained, seed=0)[2]


def _backbone(
    network: str | Maker, *, shape: tuple[int, ...], pretrained: Weights, seed: int
) -> tuple[nn.Module, int, str | None]:
    """The backbone, the number of its features, and what of a file of weights fitted. Seeds torch's
    generator."""
    if isinstance(network, nn.Module):
        raise SrjtError(
            "Pass a function that returns the network, such as its class, not a module: each of two"
            " networks needs its own weights.",
            code="wrong_type",
            option="network",
        )
    make = network
    if isinstance(network, str):
        row = registry.find(network)
        make = row.make(shape, pretrained is True)
        if (row.reads == "rows") != (len(shape) == 1):
            reads = "images"
            other = "mlp"
            if row.reads == "rows":
                reads = "rows of features"
                other = registry.small_network()
            raise SrjtError(
                f"The network {network!r} reads {reads}, not samples of shape {shape}: choose for"
                f" example {other!r}.",
                code="unsupported",
                option="network",
            )
    assert not isinstance(make, str)
    file = _weights_file(network, pretrained)
    tensors = None if file is None else read_weights(file)
    # torch.manual_seed would seed the GPUs too; modules are built on the CPU.
    torch.default_generator.manual_seed(seed)
    backbone = make()
    if not isinstance(backbone, nn.Module):
        raise SrjtError(
            f"The network function must return a torch module, not {type(backbone).__name__}.",
            code="wrong_type",
            option="network",
        )
    features = count_features(backbone, shape=shape, name=_name(network))
    fitted = None if tensors is None else load_weights(backbone, tensors, source=str(file))
    if isinstance(network, str):
        backbone = as_trained(network, backbone)
    return backbone, features, fitted


def _weights_file(network: str | Maker, pretrained: Weights) -> Path | None:
    if pretrained is None or pretrained is False:
        return None
    if pretrained is not True:
        return Path(pretrained).expanduser()
    row = registry.known(network) if isinstance(network, str) else None
    if row is not None and row.loads_own_weights:
        return None
    if row is None or row.weights is None:
        published = [name for name in registry.names() if registry.find(name).weights is not None]
        raise SrjtError(
            f"There are no published ImageNet weights for {_name(network)}, only for"
            f" {', '.join(published)}: ",
            INSTEAD,
            ".",
            code="unsupported",
            option="weights",
        )
    return fetch_published(row.weights)


def as_trained(name: str, backbone: nn.Module) -> nn.Module:
    """The backbone, fed as it was trained: some networks were not trained with ImageNet's usual
    normalisation.

    The layer that turns one into the other is a part of the network: of its weights, its export,
    its explanations.
    """
    trained = registry.find(name).trained_input()
    if trained is None or (trained.mean, trained.std) == (IMAGENET_MEAN, IMAGENET_STD):
        return backbone
    layer = Standardise(3, 1, 1)
    usual_std = _by_channel(IMAGENET_STD)
    layer.mean.copy_((_by_channel(trained.mean) - _by_channel(IMAGENET_MEAN)) / usual_std)
    layer.scale.copy_(_by_channel(trained.std) / usual_std)
    return nn.Sequential(OrderedDict(input=layer, network=backbone))


def count_features(backbone: nn.Module, *, shape: tuple[int, ...], name: str) -> int:
    """Number of columns of the backbone's output for a sample of zeros.

    A ``num_features`` attribute does not replace it: some of timm's networks return more columns.
    The forward pass also shows at once if the network cannot process samples of this size.
    """
    device = next((tensor.device for tensor in backbone.parameters()), torch.device("cpu"))
    modes = [(module, module.training) for module in backbone.modules()]
    backbone.eval()  # so that batch norm does not update its statistics
    try:
        with torch.no_grad():
            output = backbone(torch.zeros(1, *shape, device=device))
    except Exception as error:
        raise SrjtError(
            f"Samples of shape {shape} do not fit {name}: {reason_of(error)}.",
            code="wrong_shape",
            option="network",
        ) from error
    finally:
        for module, mode in modes:
            module.training = mode
    if not isinstance(output, Tensor) or output.ndim != 2:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise SrjtError(
            f"A network must return (batch, features), but {name} returns {got}: end it with"
            " pooling and nn.Flatten().",
            code="wrong_shape",
            option="network",
        )
    return output.shape[1]


def _name(network: str | Maker) -> str:
    if isinstance(network, str):
        return f"the network {network!r}"
    return "your own network"


def _by_channel(values: tuple[float, ...]) -> Tensor:
    """(3, 1, 1) a number for each colour, in float64."""
    return torch.tensor(values, dtype=torch.float64).view(3, 1, 1)
