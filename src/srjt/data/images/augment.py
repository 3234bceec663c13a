"""Random crop, horizontal flip and normalisation of batches, on the device of the pixels.

Random numbers and pixels are separate: a CPU generator draws the crops of an epoch at once, so that they are the
same on every device, and cropping is plain indexing that a CUDA graph can capture.
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
    "crop_alike",
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
    """The crop of each image: ``offsets`` (…, 2) int64, down and right; ``flips`` (…) bool, left–right."""

    offsets: Tensor
    flips: Tensor


def draw_crops(shape: tuple[int, ...], *, margin: int, generator: torch.Generator) -> Crops:
    """Draw one crop for each image of ``shape``, e.g. (steps, B): uniform offsets in 0 … margin, half of them flipped.

    ``margin`` is the stored side minus the cropped side: 32 for 224 out of 256.
    """
    offsets = torch.randint(0, margin + 1, (*shape, 2), generator=generator)
    flips = torch.randint(0, 2, shape, generator=generator).bool()
    return Crops(offsets=offsets, flips=flips)


def centre_crops(n: int, margin: int) -> Crops:
    """The crops for evaluation: the centre of each of ``n`` images, not flipped."""
    return Crops(offsets=torch.full((n, 2), margin // 2), flips=torch.zeros(n, dtype=torch.bool))


def view_crops(views: int, *, margin: int, mirror: bool = True) -> list[Crops]:
    """The views of an image that a prediction is averaged over, each as the crop of one image: offsets (1, 2),
    flips (1,).

    ``views`` is 1 (the centre crop), 2 (also its mirror image) or 10 (the centre and the four corners, each plain
    and mirrored). A smaller number is a prefix of a larger one. ``mirror=False`` is for networks that were trained
    without mirror images: 2 is then an error, and 10 gives the five plain views.
    """
    if views not in (1, 2, 10):
        raise SrjtError(
            "views is 1 (the centre crop), 2 (also its mirror image) or 10 (the centre and the four corners, each "
            f"plain and mirrored); got {views}."
        )
    if views == 2 and not mirror:
        raise SrjtError(
            "2 views need mirror images, and these networks were trained without them (flip=false): use 1 view, or 10, "
            "which then means the five plain ones."
        )
    if views == 10 and margin < 1:
        raise SrjtError(
            "The crop is the whole image, so its corners are no other views: use "
            f"{'1 view or 2' if mirror else '1 view'}, not 10."
        )
    centre = centre_crops(1, margin=margin)
    offsets = [centre.offsets]
    if views == 10:
        offsets += [torch.tensor([[down, right]]) for down in (0, margin) for right in (0, margin)]
    flips = [centre.flips, ~centre.flips] if views > 1 and mirror else [centre.flips]
    return [Crops(offsets=offset, flips=flip) for offset in offsets for flip in flips]


def crop_and_flip(pixels_BHWC: Tensor, offsets: Tensor, flips: Tensor, *, size: int) -> Tensor:
    """Crop a batch (B, H, W, 3) to (B, 3, size, size) in channels_last memory; all on one device.

    Offsets (B, 2) must be in 0 … H − size; a GPU does not check them.
    """
    rows = torch.arange(len(pixels_BHWC), device=pixels_BHWC.device)
    return gather_crops(pixels_BHWC, rows, offsets, flips, size=size)


def crop_alike(pixels_BHWC: Tensor, crop: Crops, *, size: int) -> Tensor:
    """Like ``crop_and_flip`` with one crop, offsets (1, 2) and flips (1,) on the CPU, for all images; not copied."""
    down, right = crop.offsets[0].tolist()
    if min(down, right) < 0 or down + size > pixels_BHWC.shape[1] or right + size > pixels_BHWC.shape[2]:
        raise IndexError(f"a crop of {size} at ({down}, {right}) is outside of {tuple(pixels_BHWC.shape)}")
    cut = pixels_BHWC[:, down : down + size, right : right + size]
    return (cut.flip(2) if crop.flips[0] else cut).permute(0, 3, 1, 2)


def gather_crops(store_NHWC: Tensor, rows: Tensor, offsets: Tensor, flips: Tensor, *, size: int) -> Tensor:
    """Like ``crop_and_flip`` for the images ``rows`` (B,) of a whole store, without copying them first."""
    _, height, width, channels = store_NHWC.shape
    along = torch.arange(size, device=store_NHWC.device)
    down = rows[:, None] * height + offsets[:, :1] + along  # (B, size): pixel rows of the store
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
    """(B, 3, H, W) uint8 to (x / 255 − mean) / std, computed in float32; keeps the memory format."""
    scale = _per_channel([1 / (255 * s) for s in std], images.device)
    shift = _per_channel([-m / s for m, s in zip(mean, std, strict=True)], images.device)
    scaled = images * scale
    return torch.add(
        scaled, shift, out=scaled if dtype == scaled.dtype else torch.empty_like(scaled, dtype=dtype)
    )


def _per_channel(values: list[float], device: torch.device) -> Tensor:
    """(C, 1, 1), filled on the device: a copy from the host could not be captured in a CUDA graph."""
    tensor = torch.empty(len(values), 1, 1, device=device)
    for channel, value in zip(tensor, values, strict=True):
        channel.fill_(value)
    return tensor
