"""Networks: backbones by name, and the function that joins a backbone with a method's last layer."""

from __future__ import annotations

import difflib
import importlib
import os
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from srjt.errors import SrjtError, UnknownNameError, missing_extra, unknown_name, warn
from srjt.networks import weights

__all__ = ["build", "fetch_weights", "names"]

# Small backbones for CPUs, tests and features.


def tiny(*, channels: int = 3, norm: Literal["batch", "group"] = "batch") -> nn.Module:
    """Three strided convolutions and pooling to 4 × 4: (B, channels, H ≥ 16, W ≥ 16) to (B, 1536).

    The first convolution has stride 4, because a small network spends most of its time on its largest maps. With
    pooling to 4 × 4 instead of one value it can memorise wrong labels as large networks do, so that results on it
    are meaningful for them. Batch norm learns faster here; ``norm="group"`` uses no statistics of the batch, so that a
    batch that is split over processes gives the same gradients as the whole.
    """

    def block(inputs: int, outputs: int, *, kernel: int, stride: int) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        scale = nn.BatchNorm2d(outputs) if norm == "batch" else nn.GroupNorm(8, outputs)
        return nn.Sequential(convolution, scale, nn.ReLU(inplace=True))

    return nn.Sequential(
        block(channels, 24, kernel=5, stride=4),
        block(24, 48, kernel=3, stride=2),
        block(48, 96, kernel=3, stride=2),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
    )


def linear(*, inputs: int) -> nn.Module:
    """Standardised columns, (B, inputs) to (B, inputs): only the method's last layer is trained."""
    return Standardise(inputs)


def mlp(*, inputs: int, hidden: int = 128, dropout: float = 0.1) -> nn.Module:
    """One hidden layer on standardised columns: (B, inputs) to (B, hidden).

    The width is 128 because, on embeddings with noisy labels, wider layers memorised more and took longer. LayerNorm
    would remove the information in rows of one or two columns and mix columns of different units; batch norm would
    make the output of a sample depend on the others.
    """
    return nn.Sequential(Standardise(inputs), nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout))


class Standardise(nn.Module):
    """(x − mean) / scale, for each column of (B, F) or channel of (B, channels, H, W); at first the identity.

    Mean and scale are buffers, so that a run's weights contain them.
    """

    mean: Tensor  # (F,) or (channels, 1, 1)
    scale: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


def standardise(network: nn.Module, rows: npt.NDArray[np.floating]) -> None:
    """Set every ``Standardise`` in ``network`` from ``rows`` (N, F): mean 0 and variance 1 in each column.

    Constant columns get the scale 1: they become 0 in ``rows``, and stay moderate in other data.
    """
    layers = [module for module in network.modules() if isinstance(module, Standardise)]
    if not layers:
        return
    mean = rows.mean(axis=0, dtype=np.float64)
    scale = rows.std(axis=0, dtype=np.float64)
    scale[np.ptp(rows, axis=0) == 0] = 1.0  # rounding can make their deviation differ from 0
    for layer in layers:
        layer.mean.copy_(torch.from_numpy(mean))
        layer.scale.copy_(torch.from_numpy(scale))


# ResNets of two-dimensional images, with the names of weights under which PyTorch publishes their ImageNet
# weights.
#
# MONAI, an extra, has them too, but takes seconds to import. The weights that a seed determines are the same in both.

# blocks in each of the four stages, and whether a block is a bottleneck
DEPTHS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
}


def resnet(name: str, *, channels: int = 3) -> nn.Module:
    """(B, channels, H, W) to (B, 512), or to (B, 2048) from 50 layers on."""
    blocks, bottleneck = DEPTHS[name]
    return ResNet(blocks, block=Bottleneck if bottleneck else BasicBlock, channels=channels)


def convolution(inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def projection(inputs: int, outputs: int, *, stride: int) -> nn.Module | None:
    """Brings a block's input to the shape of its output; None if it has this shape."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(convolution(inputs, outputs, kernel=1, stride=stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two convolutions, and the input added to their output."""

    widening = 1  # channels of the output, relative to the block's width

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, width, kernel=3, stride=stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, kernel=3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = projection(inputs, width, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return relu(y, inplace=True)


class Bottleneck(nn.Module):
    """A 3 × 3 convolution between two of 1 × 1 that change the number of channels, and the input added to the output.

    The 3 × 3 convolution has the stride, as in the published weights; in the first paper the one before it had.
    """

    widening = 4

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        outputs = self.widening * width
        self.conv1 = convolution(inputs, width, kernel=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, kernel=3, stride=stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outputs, kernel=1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = projection(inputs, outputs, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.bn1(self.conv1(x)), inplace=True)
        y = relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return relu(y, inplace=True)


def stage(
    block: type[BasicBlock | Bottleneck], inputs: int, width: int, *, count: int, stride: int
) -> nn.Sequential:
    """``count`` blocks, of which the first has the stride."""
    first = block(inputs, width, stride=stride)
    return nn.Sequential(first, *(block(block.widening * width, width, stride=1) for _ in range(count - 1)))


class ResNet(nn.Module):
    """A strided convolution and pooling, four stages of blocks, and the mean over all positions."""

    def __init__(
        self, blocks: tuple[int, int, int, int], *, block: type[BasicBlock | Bottleneck], channels: int
    ) -> None:
        super().__init__()
        self.conv1 = convolution(channels, 64, kernel=7, stride=2)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        widths = [64, *(block.widening * 64 * 2**index for index in range(4))]
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            stage(block, widths[index], 64 * 2**index, count=count, stride=1 if index == 0 else 2)
            for index, count in enumerate(blocks)
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(relu(self.bn1(self.conv1(x)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        pooled: Tensor = self.avgpool(x)
        return pooled.flatten(1)


# Backbones by name: each is a module whose output is (B, features).

Maker = Callable[[], nn.Module]

# The normalisation of the images that every network gets: srjt.data.images.feed
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
        raise unknown_name("network", name, (*names(), "timm:NAME"))
    return _monai(name, channels=channels)


def _monai(name: str, *, channels: int) -> Maker:
    state = random.getstate()  # the first import draws from Python's global generator
    try:
        nets: Any = importlib.import_module("monai.networks.nets")  # takes seconds
    except ModuleNotFoundError as error:
        raise missing_extra("monai", "monai", f"The network {name!r}") from error
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
    trained = _pretrained_cfg(name)
    if trained is None or (tuple(trained.mean), tuple(trained.std)) == (IMAGENET_MEAN, IMAGENET_STD):
        return backbone
    return Renormalised(backbone, mean=trained.mean, std=trained.std)


class Renormalised(nn.Module):
    """A network for another ``mean`` and ``std`` of the channels than ImageNet's, by which images are normalised.

    The layer that turns one into the other is a part of the network: of its weights, its export, its explanations.
    """

    def __init__(self, network: nn.Module, *, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.input = Standardise(3, 1, 1)
        self.network = network
        own_mean, own_std, wanted_mean, wanted_std = (
            torch.tensor(tuple(values), dtype=torch.float64).view(3, 1, 1)
            for values in (IMAGENET_MEAN, IMAGENET_STD, mean, std)
        )
        self.input.mean.copy_((wanted_mean - own_mean) / own_std)
        self.input.scale.copy_(wanted_std / own_std)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.network(self.input(x))
        return features


def trained_size(name: str) -> int | None:
    """The side of the images that a network of timm was trained on, in pixels; None for all others."""
    trained = _pretrained_cfg(name)
    return None if trained is None else int(trained.input_size[-1])


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
    trained, size = _pretrained_cfg(full_name), {}
    if trained is not None and trained.fixed_input_size and trained.input_size[-1] != in_shape[-1]:
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
                    f"trained on {trained.input_size[-1]}, so set `crop={trained.input_size[-1]}`."
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


# A network: a backbone, with pretrained weights if requested, and the last layer of its method.


def build(
    network: str | Callable[[], nn.Module],
    *,
    head: Callable[[int], nn.Module],
    in_shape: tuple[int, ...],
    pretrained: bool | str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> nn.Module:
    """Build a network from a backbone and a last layer.

    Parameters
    ----------
    network : str or callable
        A name (see ``networks.names()``, or ``timm:NAME``), or a function without arguments that returns a *new* module
        with an output of shape (B, features). Methods with two networks call it twice.
    head : callable
        Number of features → the last layer.
    in_shape : tuple of int
        Shape of one sample: (channels, H, W) for images, (F,) for rows of features.
    pretrained : bool or path, optional
        None or False: random weights. True: the published ImageNet weights (timm's for ``timm:NAME``). A path: a
        weights file for the backbone.
    seed : int
        Determines all random weights; the global random state is not changed. Pretrained networks with different
        seeds differ in their heads only.

    Returns
    -------
    nn.Module
        A module from (B, \\*in_shape) to the head's output, with the parts ``backbone`` and ``head``.

    Examples
    --------
    >>> import torch
    >>> from srjt import networks
    >>> network = networks.build("tiny", head=lambda features: torch.nn.Linear(features, 4), in_shape=(3, 32, 32))
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 4])
    """
    with torch.random.fork_rng(devices=[]):
        backbone, features, _ = _backbone(network, shape=tuple(in_shape), pretrained=pretrained, seed=seed)
        return nn.Sequential(OrderedDict(backbone=backbone, head=head(features)))


def fetch_weights(
    network: str | Callable[[], nn.Module],
    pretrained: bool | str | os.PathLike[str] | None,
    *,
    in_shape: tuple[int, ...],
) -> str | None:
    """Raise the error for weights that ``build`` will not find or that do not fit, and download those that it needs.

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
        A sentence about what of a local file fitted, if the network is one of ``names()`` or of timm.

    Raises
    ------
    SrjtError
        If there are no such weights, or they cannot be downloaded.

    Examples
    --------
    >>> fetch_weights("tiny", False, in_shape=(3, 64, 64))  # nothing to fetch
    """
    if isinstance(network, str):
        make = maker(network, in_shape=in_shape, timm_weights=pretrained is True)
        if network.startswith("timm:") and pretrained is True:
            make()  # timm downloads them when it builds a network
        if pretrained and (size := trained_size(network)) not in (None, in_shape[-1]):
            warn(
                f"{network} was trained on images of {size} pixels and gets {in_shape[-1]}: "
                f"`crop={size}`, from a larger `image_size`, feeds it as it was trained."
            )
    if (file := _weights_file(network, pretrained)) is not None and not os.path.isfile(file):
        raise SrjtError(f"There is no weights file at {file}.")
    if file is None or pretrained is True or not isinstance(network, str):
        return None
    with torch.random.fork_rng(devices=[]):
        return _backbone(network, shape=in_shape, pretrained=pretrained, seed=0)[2]


def _backbone(
    network: str | Callable[[], nn.Module],
    *,
    shape: tuple[int, ...],
    pretrained: bool | str | os.PathLike[str] | None,
    seed: int,
) -> tuple[nn.Module, int, str | None]:
    """The backbone, the number of its features, and what of a file of weights fitted. Seeds torch's generator."""
    make = _maker(network, shape=shape, pretrained=pretrained)
    file = _weights_file(network, pretrained)
    tensors = None if file is None else weights.read_weights(file)
    # torch.manual_seed would seed the GPUs too; modules are built on the CPU.
    torch.default_generator.manual_seed(seed)
    backbone = make()
    if not isinstance(backbone, nn.Module):
        raise SrjtError(f"The network function must return a torch module, not {type(backbone).__name__}.")
    features = _count_features(backbone, shape=shape, name=_name(network))
    fitted = None if tensors is None else weights.load_weights(backbone, tensors, source=str(file))
    return as_trained(network, backbone) if isinstance(network, str) else backbone, features, fitted


def _maker(
    network: str | Callable[[], nn.Module],
    *,
    shape: tuple[int, ...],
    pretrained: bool | str | os.PathLike[str] | None,
) -> Maker:
    if isinstance(network, nn.Module):
        raise SrjtError(
            "Pass a function that returns the network (such as its class), not the module itself: two networks need "
            "separate weights."
        )
    if not isinstance(network, str):
        return network
    make = maker(network, in_shape=shape, timm_weights=pretrained is True)
    rows = takes_rows(network)
    if len(shape) != (1 if rows else 3):
        reads, other = ("rows of features", "tiny") if rows else ("images", "mlp")
        raise SrjtError(
            f"The network {network!r} reads {reads}, not samples of shape {shape}: choose for example {other!r}."
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
        return None  # timm loads its own
    published = weights.OFFICIAL_WEIGHTS.get(network) if isinstance(network, str) else None
    if published is None:
        raise SrjtError(
            f"There are no published ImageNet weights for {_name(network)}, only for "
            f"{', '.join(weights.OFFICIAL_WEIGHTS)}: pass a local file with `weights`, or start from random "
            "weights with `pretrained=False`."
        )
    return weights.fetch_imagenet_weights(*published)


def _count_features(backbone: nn.Module, *, shape: tuple[int, ...], name: str) -> int:
    """Number of columns of the backbone's output for a sample of zeros.

    A ``num_features`` attribute does not replace it: some of timm's networks return more columns. The forward pass also
    shows at once if the network cannot process samples of this size.
    """
    device = next((tensor.device for tensor in backbone.parameters()), torch.device("cpu"))
    modes = [(module, module.training) for module in backbone.modules()]
    backbone.eval()  # so that batch norm does not update its statistics
    try:
        with torch.no_grad():
            output = backbone(torch.zeros(1, *shape, device=device))
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise SrjtError(f"Samples of shape {shape} do not fit {name}: {reason}") from error
    finally:
        for module, mode in modes:
            module.training = mode
    if not isinstance(output, Tensor) or output.ndim != 2:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise SrjtError(
            f"A network must return features of shape (batch, features), but {name} returns {got} for one sample: "
            "end it with pooling and nn.Flatten()."
        )
    return output.shape[1]


def _name(network: str | Callable[[], nn.Module]) -> str:
    return f"the network {network!r}" if isinstance(network, str) else "your own network"
