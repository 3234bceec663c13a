"""Random crop, horizontal flip and normalisation of whole batches, on whatever device the pixels are.

Chance and pixels are kept apart: a CPU generator draws an epoch's crops at once, so they are the same on
every device, and cutting them out is plain indexing that a CUDA graph can capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from srjt.errors import SrjtError

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Crops",
    "centre_crops",
    "crop_and_flip",
    "draw_crops",
    "gather_crops",
    "normalise",
    "view_crops",
]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Crops:
    """Where to cut each image: ``offsets`` (…, 2) int64, down and right; ``flips`` (…) bool, left–right."""

    offsets: Tensor
    flips: Tensor

    def to(self, device: torch.device | str) -> Crops:
        """The same crops on a device, without waiting for the copy."""
        return Crops(
            offsets=self.offsets.to(device, non_blocking=True), flips=self.flips.to(device, non_blocking=True)
        )


def draw_crops(shape: tuple[int, ...], *, margin: int, generator: torch.Generator) -> Crops:
    """One crop for every image of ``shape``, e.g. (steps, B): offsets uniform in 0 … margin, half flipped.

    ``margin`` is the stored side less the cropped one: 32 for 224 out of 256.
    """
    offsets = torch.randint(0, margin + 1, (*shape, 2), generator=generator)
    flips = torch.randint(0, 2, shape, generator=generator).bool()
    return Crops(offsets=offsets, flips=flips)


def centre_crops(n: int, margin: int) -> Crops:
    """The evaluation's crops: the middle of each of ``n`` images, unflipped."""
    return Crops(offsets=torch.full((n, 2), margin // 2), flips=torch.zeros(n, dtype=torch.bool))


def view_crops(views: int, *, margin: int, mirror: bool = True) -> list[Crops]:
    """The views of an image that a prediction may be averaged over, each as the crop of one image: offsets (1, 2),
    flips (1,).

    views: 1, the centre crop; 2, and its mirror image; 10, the centre and the four corners of the stored image, each
    plain and mirrored. The first ones are the same in all three. mirror=False, for networks that never saw a mirror
    image: then 2 is an error, and 10 gives the five plain views.
    """
    if views not in (1, 2, 10):
        raise SrjtError(
            "views is 1 (the centre crop), 2 (and its mirror image) or 10 (the centre and the four corners, each "
            f"plain and mirrored); got {views}."
        )
    if views == 2 and not mirror:
        raise SrjtError(
            "Networks that were trained without mirror images (flip=false) are not shown any: use 1 view, or 10, "
            "which are then the five plain ones."
        )
    if views == 10 and margin < 1:
        raise SrjtError(
            "The crop is the whole image, so that its corners show nothing new: use "
            f"{'1 view or 2' if mirror else '1 view'}, not 10."
        )
    centre = centre_crops(1, margin=margin)
    places = [centre.offsets]
    if views == 10:
        places += [torch.tensor([[down, right]]) for down in (0, margin) for right in (0, margin)]
    ways = [centre.flips, ~centre.flips] if views > 1 and mirror else [centre.flips]
    return [Crops(offsets=place, flips=way) for place in places for way in ways]


def crop_and_flip(pixels_BHWC: Tensor, offsets: Tensor, flips: Tensor, *, size: int) -> Tensor:
    """(B, 3, size, size) in channels_last memory, cut from a batch (B, H, W, 3); all on one device.

    Offsets (B, 2) must lie in 0 … H − size: on a GPU nobody looks.
    """
    rows = torch.arange(len(pixels_BHWC), device=pixels_BHWC.device)
    return gather_crops(pixels_BHWC, rows, offsets, flips, size=size)


def gather_crops(store_NHWC: Tensor, rows: Tensor, offsets: Tensor, flips: Tensor, *, size: int) -> Tensor:
    """As ``crop_and_flip`` for the images ``rows`` (B,) of a whole store, without copying them out first."""
    _, height, width, channels = store_NHWC.shape
    along = torch.arange(size, device=store_NHWC.device)
    down = rows[:, None] * height + offsets[:, :1] + along  # (B, size): lines of the store
    right = offsets[:, 1:] + torch.where(flips[:, None], size - 1 - along, along)  # (B, size)
    pixel = (down * width)[:, :, None] + right[:, None, :]  # (B, size, size)
    # index_select over whole pixels: three times as fast on a CPU as indexing by (row, line, column)
    crops = store_NHWC.view(-1, channels).index_select(0, pixel.view(-1))
    return crops.view(len(rows), size, size, channels).permute(0, 3, 1, 2)


def normalise(
    images: Tensor,
    *,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """(B, 3, H, W) uint8 to (x / 255 − mean) / std, computed in float32; the memory format stays."""
    scale = _per_channel([1 / (255 * s) for s in std], images.device)
    shift = _per_channel([-m / s for m, s in zip(mean, std, strict=True)], images.device)
    return (images * scale).add_(shift).to(dtype)


def _per_channel(values: list[float], device: torch.device) -> Tensor:
    """(C, 1, 1), filled on the device: a copy from the host could not be captured in a CUDA graph."""
    tensor = torch.empty(len(values), 1, 1, device=device)
    for channel, value in zip(tensor, values, strict=True):
        channel.fill_(value)
    return tensor
