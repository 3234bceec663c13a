"""Networks: backbones by name, their pretrained weights, and the function that joins a backbone with a method's last
layer.
"""

from __future__ import annotations

import difflib
import importlib
import os
import random
import socket
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from srjt import errors
from srjt.errors import SrjtError, few, reason_of
from srjt.files import sha256_of

__all__ = ["build", "fetch_weights", "names"]

Maker = Callable[[], nn.Module]
Weights = bool | str | os.PathLike[str] | None  # published ones, those of a file, or none

# Small backbones for CPUs, tests and features.


def tiny(*, channels: int = 3, norm: Literal["batch", "group"] = "batch") -> nn.Module:
    """Three strided convolutions and pooling to 4 × 4: (B, channels, H ≥ 16, W ≥ 16) to (B, 1536).

    The first convolution has stride 4, because a small network spends most of its time on its largest maps. With
    pooling to 4 × 4 instead of one value it can memorise wrong labels as large networks do, so that results on it
    are meaningful for them. Batch norm learns faster here; ``norm="group"`` uses no statistics of the batch, so that a
    batch that is split over processes gives the same gradients as the whole.
    """

    def block(inputs: int, outputs: int, *, kernel: int, stride: int) -> nn.Sequential:
        scale = nn.BatchNorm2d(outputs) if norm == "batch" else nn.GroupNorm(8, outputs)
        layer = convolution(inputs, outputs, kernel=kernel, stride=stride)
        return nn.Sequential(layer, scale, nn.ReLU(inplace=True))

    return nn.Sequential(
        block(channels, 24, kernel=5, stride=4),
        block(24, 48, kernel=3, stride=2),
        block(48, 96, kernel=3, stride=2),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
    )


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


def convolution(inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    """Two convolutions, and the input added to their output; in a bottleneck three, of which the first and the last
    change the number of channels.

    A bottleneck's 3 × 3 convolution has the stride, as in the published weights; in the first paper the one before it
    had.
    """

    def __init__(self, inputs: int, width: int, *, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        kernel, first = (1, 1) if bottleneck else (3, stride)
        self.conv1 = convolution(inputs, width, kernel=kernel, stride=first)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, kernel=3, stride=stride if bottleneck else 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.bottleneck = bottleneck
        if bottleneck:
            self.conv3 = convolution(width, outputs, kernel=1)
            self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None  # brings the input to the shape of the output
        if stride != 1 or inputs != outputs:
            projection = convolution(inputs, outputs, kernel=1, stride=stride)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        if self.bottleneck:
            y = self.bn3(self.conv3(relu(y, inplace=True)))
        y += x if self.downsample is None else self.downsample(x)
        return relu(y, inplace=True)


class ResNet(nn.Module):
    """A strided convolution and pooling, four stages of blocks, and the mean over all positions.

    (B, channels, H, W) to (B, 512), or to (B, 2048) from 50 layers on.
    """

    def __init__(self, name: str, *, channels: int = 3) -> None:
        super().__init__()
        blocks, bottleneck = DEPTHS[name]
        self.conv1 = convolution(channels, 64, kernel=7, stride=2)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs, stages = 64, []
        for index, count in enumerate(blocks):
            width, layers = 64 * 2**index, []
            for place in range(count):  # the first block of a stage has its stride
                stride = 2 if index > 0 and place == 0 else 1
                layers.append(Block(inputs, width, stride=stride, bottleneck=bottleneck))
                inputs = 4 * width if bottleneck else width
            stages.append(nn.Sequential(*layers))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
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

# The normalisation of the images that every network gets, by srjt.data.images.feed
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_ROWS = ("linear", "mlp", "odds")  # these read rows of features, all others images
_SMALL = ("tiny", "tiny-gn")
_DENSENETS = {"densenet121": "DenseNet121", "densenet169": "DenseNet169", "densenet201": "DenseNet201"}
_EFFICIENTNETS = tuple(f"efficientnet-b{size}" for size in range(5))


def names() -> tuple[str, ...]:
    """Names of the built-in networks; ``timm:NAME`` selects any network of timm.

    Returns
    -------
    tuple of str
        ``linear``, ``mlp`` and ``odds`` read rows of features, all others images.

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
    if name.startswith("timm:"):
        return _timm(name, in_shape=in_shape, pretrained=timm_weights)
    if name not in names():
        raise errors.unknown_name("network", name, (*names(), "timm:NAME"))
    if name in _ROWS:  # with linear and odds, only the last layer is trained
        return partial(mlp, inputs=channels) if name == "mlp" else partial(Standardise, channels)
    if name in _SMALL:
        return partial(tiny, channels=channels, norm="batch" if name == "tiny" else "group")
    return partial(ResNet, name, channels=channels) if name in DEPTHS else _monai(name, channels=channels)


def _monai(name: str, *, channels: int) -> Maker:
    state = random.getstate()  # the first import draws from Python's global generator
    try:
        nets: Any = importlib.import_module("monai.networks.nets")  # takes seconds
    except ModuleNotFoundError as error:
        raise errors.missing_extra("monai", "monai", f"The network {name!r}") from error
    random.setstate(state)

    def make() -> nn.Module:
        network: Any
        if name in _DENSENETS:
            network = getattr(nets, _DENSENETS[name])(spatial_dims=2, in_channels=channels, out_channels=1)
            network.class_layers.out = nn.Identity()
        else:
            network = nets.EfficientNetBN(name, pretrained=False, spatial_dims=2, in_channels=channels)
            network._fc = nn.Identity()
            network.set_swish(memory_efficient=False)  # the other one cannot be compiled or exported
        return network  # type: ignore[no-any-return]

    return make


def as_trained(name: str, backbone: nn.Module) -> nn.Module:
    """The backbone, fed as it was trained: some of timm's networks were not trained with ImageNet's normalisation.

    The layer that turns one into the other is a part of the network: of its weights, its export, its explanations.
    """
    trained = _pretrained_cfg(name)
    if trained is None or (tuple(trained.mean), tuple(trained.std)) == (IMAGENET_MEAN, IMAGENET_STD):
        return backbone
    layer = Standardise(3, 1, 1)
    own_mean, own_std, wanted_mean, wanted_std = (
        torch.tensor(tuple(values), dtype=torch.float64).view(3, 1, 1)
        for values in (IMAGENET_MEAN, IMAGENET_STD, trained.mean, trained.std)
    )
    layer.mean.copy_((wanted_mean - own_mean) / own_std)
    layer.scale.copy_(wanted_std / own_std)
    return nn.Sequential(OrderedDict(input=layer, network=backbone))


def _pretrained_cfg(name: str) -> Any:
    """What timm knows of the pretrained weights of ``timm:NAME``; None if it is not of timm, or knows nothing."""
    return _import_timm(name).get_pretrained_cfg(name[5:]) if name.startswith("timm:") else None


def _import_timm(name: str) -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise errors.missing_extra("timm", "timm", f"The network {name!r}") from error
    except Exception as error:  # a torchvision for another version of torch raises various errors
        raise SrjtError(
            f"timm cannot be imported ({reason_of(error)}): install the torchvision that matches your torch."
        ) from error
    return timm


def _timm(full_name: str, *, in_shape: tuple[int, ...], pretrained: bool) -> Maker:
    timm, name = _import_timm(full_name), full_name.removeprefix("timm:")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1, cutoff=0.5)
        hint = f"did you mean 'timm:{near[0]}'? " if near else ""
        raise errors.UnknownNameError(f"Unknown network 'timm:{name}': {hint}timm.list_models() lists all.")
    trained, size = _pretrained_cfg(full_name), {}
    if trained is not None and trained.fixed_input_size and trained.input_size[-1] != in_shape[-1]:
        size = {"img_size": in_shape[-1]}  # a transformer: its position embeddings are interpolated

    def make() -> nn.Module:
        try:
            options = {"pretrained": pretrained, "num_classes": 0, "in_chans": in_shape[0], **size}
            return timm.create_model(name, **options)  # type: ignore[no-any-return]
        except Exception as error:
            if size and not isinstance(error, OSError):
                raise SrjtError(
                    f"timm cannot make {name!r} for images of {in_shape[-1]} pixels ({reason_of(error)}): it was "
                    f"trained on {trained.input_size[-1]}, so set `crop={trained.input_size[-1]}`."
                ) from error
            if not pretrained:
                raise
            raise SrjtError(
                f"timm could not download its pretrained weights of {name!r} ({reason_of(error)}): {_INSTEAD}."
            ) from error

    return make


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
        raise SrjtError(f"{file} holds no weights: it is damaged, or another kind of file.") from error
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
    # what stands before the most keys of the network; the first of several, such as of a run's two networks
    pairs = [(key, name) for name in wanted for key in weights if f".{key}".endswith(f".{name}")]
    prefixes = Counter(key.removesuffix(name) for key, name in pairs)
    prefix = max(prefixes, key=prefixes.__getitem__, default="")
    tensors = {key[len(prefix) :]: value for key, value in weights.items() if key.startswith(prefix)}
    other = [key for key in tensors if key not in wanted and key.split(".")[0] in _CLASSIFIERS]
    tensors = {key: value for key, value in tensors.items() if key not in other}
    # Many published files lack batch norm's step counters, which batch norm does not use by default.
    counters = {key: value for key, value in wanted.items() if key.endswith("num_batches_tracked")}
    try:
        network.load_state_dict({**counters, **tensors})
    except RuntimeError as error:
        reason = " ".join(str(error).partition("\n\t")[2].split())[:300]
        raise SrjtError(f"The weights in {source} do not fit the network: {reason}") from error
    used = {prefix + key for key in tensors}
    rest = [key for key in weights if key not in used]
    unused = f"; {len(rest)} of the file's are not used ({few(rest)})" if rest else ""
    count = errors.count_of(len(tensors), "tensor")
    return f"The weights in {source} fit: {count} of the network come from it{unused}."


def _unwrap(content: object) -> dict[str, Tensor]:
    while isinstance(content, Mapping):
        inner = next((content[name] for name in _WRAPPERS if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            return {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
        content = inner
    return {}


# PyTorch's published ImageNet weights: downloaded once into torch's cache, checked at every use.

# The SHA-256, whose first eight digits PyTorch publishes in the name. For ResNet-50 this is the first of two published
# sets, trained with the same recipe as the only sets for 18 and 34 layers. --weights loads the other.
_DIGESTS = {
    "resnet18": "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    "resnet34": "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
    "resnet50": "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
}
OFFICIAL_WEIGHTS = {  # name → address, SHA-256
    name: (f"https://download.pytorch.org/models/{name}-{digest[:8]}.pth", digest) for name, digest in _DIGESTS.items()
}

_INSTEAD = "pass a local file with `weights`, or start from random weights with `pretrained=False`"
_ALTERNATIVES = f"{_INSTEAD}, or choose the network tiny, or train on features (srjt features)"


def fetch_imagenet_weights(url: str, sha256: str, *, timeout: float = 30.0) -> Path:
    """The file behind ``url`` in torch's cache, downloaded if it is not there yet.

    ``timeout`` (seconds) limits each wait for the server, not the whole download.
    """
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]
    if path.is_file():
        if (digest := sha256_of(path)) != sha256:
            raise SrjtError(
                f"{path} is not the published file (its SHA-256 begins with {digest[:16]}, not {sha256[:16]}): "
                f"delete it and try again, or {_ALTERNATIVES}."
            )
        return path
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(timeout)  # torch.hub would wait for ever
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(path), hash_prefix=sha256, progress=sys.stderr.isatty())
    except (OSError, RuntimeError) as error:  # no connection, no such file, another file
        reason = str(error).removeprefix("<urlopen error ").removesuffix(">")
        raise SrjtError(
            f"{url} cannot be downloaded ({reason}): put that file at {path}, or {_ALTERNATIVES}."
        ) from error
    finally:
        socket.setdefaulttimeout(before)
    return path


# A network: a backbone, with pretrained weights if requested, and the last layer of its method.


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


def fetch_weights(network: str | Maker, pretrained: Weights, *, in_shape: tuple[int, ...]) -> str | None:
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
        trained = _pretrained_cfg(network) if pretrained else None
        if trained is not None and (size := int(trained.input_size[-1])) != in_shape[-1]:
            errors.warn(
                f"{network} was trained on images of {size} pixels and gets {in_shape[-1]}: `crop={size}` is better."
            )
    if (file := _weights_file(network, pretrained)) is not None and not os.path.isfile(file):
        raise SrjtError(f"There is no weights file at {file}.")
    if file is None or pretrained is True or not isinstance(network, str):
        return None
    with torch.random.fork_rng(devices=[]):
        return _backbone(network, shape=in_shape, pretrained=pretrained, seed=0)[2]


def _backbone(
    network: str | Maker, *, shape: tuple[int, ...], pretrained: Weights, seed: int
) -> tuple[nn.Module, int, str | None]:
    """The backbone, the number of its features, and what of a file of weights fitted. Seeds torch's generator."""
    if isinstance(network, nn.Module):
        raise SrjtError(
            "Pass a function that returns the network, such as its class, not a module: two networks have own weights."
        )
    make = network
    if isinstance(network, str):
        make = maker(network, in_shape=shape, timm_weights=pretrained is True)
        if takes_rows(network) != (len(shape) == 1):
            reads, other = ("rows of features", "tiny") if takes_rows(network) else ("images", "mlp")
            raise SrjtError(
                f"The network {network!r} reads {reads}, not samples of shape {shape}: choose for example {other!r}."
            )
    assert not isinstance(make, str)
    file = _weights_file(network, pretrained)
    tensors = None if file is None else read_weights(file)
    # torch.manual_seed would seed the GPUs too; modules are built on the CPU.
    torch.default_generator.manual_seed(seed)
    backbone = make()
    if not isinstance(backbone, nn.Module):
        raise SrjtError(f"The network function must return a torch module, not {type(backbone).__name__}.")
    features = _count_features(backbone, shape=shape, name=_name(network))
    fitted = None if tensors is None else load_weights(backbone, tensors, source=str(file))
    return as_trained(network, backbone) if isinstance(network, str) else backbone, features, fitted


def _weights_file(network: str | Maker, pretrained: Weights) -> Path | None:
    if pretrained is None or pretrained is False:
        return None
    if pretrained is not True:
        return Path(pretrained).expanduser()
    if isinstance(network, str) and network.startswith("timm:"):
        return None  # timm loads its own
    published = OFFICIAL_WEIGHTS.get(network) if isinstance(network, str) else None
    if published is None:
        raise SrjtError(
            f"There are no published ImageNet weights for {_name(network)}, only for {', '.join(OFFICIAL_WEIGHTS)}: "
            f"{_INSTEAD}."
        )
    return fetch_imagenet_weights(*published)


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
        raise SrjtError(f"Samples of shape {shape} do not fit {name}: {reason_of(error)}") from error
    finally:
        for module, mode in modes:
            module.training = mode
    if not isinstance(output, Tensor) or output.ndim != 2:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise SrjtError(
            f"A network must return (batch, features), but {name} returns {got}: end it with pooling and nn.Flatten()."
        )
    return output.shape[1]


def _name(network: str | Maker) -> str:
    return f"the network {network!r}" if isinstance(network, str) else "your own network"
