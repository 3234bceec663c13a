"""What a row of the registry of backbones consists of. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import nn

    Maker = Callable[[], nn.Module]

# The normalisation of the images that every network gets, by srjt.data.images.feed
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

LARGE_PIXEL_BYTES = 6000


@dataclass(frozen=True, kw_only=True)
class PublishedWeights:
    """A file of pretrained weights on the web.

    Attributes
    ----------
    address : str
        Where it is downloaded from.
    sha256 : str
        Of the file of weights, in 64 hexadecimal digits.
    licence : str
        Under which it is published.
    megabytes : int
        Size of the download.
    member : str
        The file of weights in a ZIP file, if the address is one.
    """

    address: str
    sha256: str
    licence: str
    megabytes: int
    member: str = ""

    @property
    def file_name(self) -> str:
        """Name of the file in the cache."""
        return (self.member or self.address).rsplit("/", 1)[-1]


@dataclass(frozen=True, kw_only=True)
class TrainedInput:
    """The images that a network's published weights were trained on: the side in pixels, and the
    normalisation."""

    size: int = 224
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    fixed: bool = False  # a transformer, whose position embeddings belong to this size


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """One row of the registry.

    Attributes
    ----------
    name : str
        What ``network`` and ``backbone`` are set to.
    make : callable
        (shape of one sample, whether timm loads its weights) → a function without arguments that
        returns a new module from (B, \\*shape) to (B, features). Slow imports happen in the first
        call, not in the function.
    reads : {"images", "rows"}
        Images (3, H, W), or rows of features (F,).
    weights : PublishedWeights or None
        Pretrained weights that srjt can download and check.
    loads_own_weights : bool
        Whether the package of the network downloads its weights itself, as timm does.
    trained_input : callable
        → the input that its weights were trained on; None if that is not known.
    package : str
        The module that must be imported to make it; empty for networks of srjt itself.
    learning_rate : float or None
        The largest rate for it; None: that of the method's recipe.
    small : bool
        Whether a CPU trains it in minutes.
    pixel_bytes : int
        Memory that it keeps for its backward pass, per pixel of a batch.
    registered : bool
        Whether a user's module has added the row.
    """

    name: str
    make: Callable[[tuple[int, ...], bool], Maker] = field(repr=False)
    reads: Literal["images", "rows"] = "images"
    weights: PublishedWeights | None = None
    loads_own_weights: bool = False
    trained_input: Callable[[], TrainedInput | None] = lambda: None
    package: str = ""
    learning_rate: float | None = None
    small: bool = False
    pixel_bytes: int = LARGE_PIXEL_BYTES
    registered: bool = False

    @property
    def may_be_pretrained(self) -> bool:
        """Whether the setting ``pretrained`` has a meaning for it."""
        return self.reads == "images" and not self.small
