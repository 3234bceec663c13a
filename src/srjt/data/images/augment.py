"""Rotation, zoom, colour and cutout of training images, on the device, besides crop and mirror.

The paper crops and mirrors. ``light`` and ``strong`` change more, and are meant for few images. As
for crops, random numbers and pixels are separate: a CPU generator draws what happens to each image
of an epoch at once, so that it depends on the seed, the epoch and the place in the batch alone, and
the pixels are changed by plain tensor operations that a CUDA graph can capture. There are few of
them, because each reads and writes all pixels once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

DRAWS = 8  # random numbers of an image, see ``changes_from``


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How far an image may be changed; each change is drawn evenly up to these limits."""

    rotation: float  # degrees, to either side
    zoom: float  # factor, larger or smaller
    upside_down: bool  # mirrored top to bottom, half of the images
    brightness: float  # factors 1 ± …
    contrast: float
    saturation: float
    cutout: float  # side of a grey square as a share of the image's; 0: none


AUGMENTATIONS = {
    "light": Augmentation(
        rotation=15.0,
        zoom=1.1,
        upside_down=False,
        brightness=0.15,
        contrast=0.15,
        saturation=0.15,
        cutout=0.0,
    ),
    "strong": Augmentation(
        rotation=180.0,
        zoom=1.25,
        upside_down=True,
        brightness=0.3,
        contrast=0.3,
        saturation=0.3,
        cutout=0.3,
    ),
}


def draw_changes(
    shape: tuple[int, ...], *, limits: Augmentation, generator: torch.Generator
) -> Tensor:
    """(*shape, 9) what ``change`` does to each image, drawn within the limits."""
    return changes_from(torch.rand((*shape, DRAWS), generator=generator), limits)


def changes_from(draws: Tensor, limits: Augmentation) -> Tensor:
    """(…, DRAWS) numbers between 0 and 1 → (…, 9) what ``change`` does to each image:

    - 0, 1: how far (x, y) of the stored image moves with a step to the right in the changed one,
    - 2, 3: … with a step down,
    - 4, 5, 6: the factors of a pixel's colour, of its grey and of the image's mean,
    - 7, 8: the middle (row, column) of the cutout, as shares of the side.
    """
    turn, size, over, contrast, saturation, brightness, row, column = draws.unbind(-1)
    angle = math.radians(limits.rotation) * (2 * turn - 1)
    scale = torch.exp(math.log(limits.zoom) * (2 * size - 1))
    cosine = angle.cos() * scale
    sine = angle.sin() * scale
    upright = torch.ones_like(over)
    if limits.upside_down:
        upright = torch.where(over < 0.5, -1.0, 1.0)
    # contrast about the image's mean m, saturation about a pixel's grey g, then brightness:
    # x → b (m (1 − c) + c (1 − s) g + c s x)
    c = 1 + limits.contrast * (2 * contrast - 1)
    s = 1 + limits.saturation * (2 * saturation - 1)
    b = 1 + limits.brightness * (2 * brightness - 1)
    steps = [cosine, sine, -sine * upright, cosine * upright]
    return torch.stack([*steps, b * c * s, b * c * (1 - s), b * (1 - c), row, column], dim=-1)


def change(
    pixels_BHWC: Tensor,
    offsets: Tensor,
    flips: Tensor,
    changes: Tensor,
    *,
    size: int,
    cutout: float = 0.0,
) -> Tensor:
    """Crop and mirror as ``crop_and_flip`` does, and rotate, zoom and recolour in the same step.

    pixels: (B, S, S, 3) uint8; offsets: (B, 2); flips: (B,); changes: (B, 9), see ``changes_from``;
    cutout: side of the square as a share of ``size``. Returns (B, 3, size, size) float32 from 0 to
    255 in channels_last memory. What lies outside of the stored image is mirrored in.
    """
    images = pixels_BHWC.permute(0, 3, 1, 2).float()
    places = _places(offsets, flips, changes, side=images.shape[-1], size=size)
    moved = functional.grid_sample(
        images, places, mode="bilinear", padding_mode="reflection", align_corners=True
    )
    return _recoloured(moved, changes, cutout=cutout)


def _places(offsets: Tensor, flips: Tensor, changes: Tensor, *, side: int, size: int) -> Tensor:
    """(B, size, size, 2) where each pixel comes from, x and y from −1 to 1 as ``grid_sample`` has
    it: the sum of what its column and its row add."""
    middle = (size - 1) / 2
    along = torch.arange(size, device=offsets.device, dtype=torch.float32)[:, None] - middle
    to_the_right, down = changes[:, None, 0:2], changes[:, None, 2:4]
    mirrored = torch.where(flips[:, None, None], -to_the_right, to_the_right)
    centre = offsets.flip(1)[:, None, :] + middle  # (B, 1, 2): x, y
    step = 2 / (side - 1)
    of_columns = along * (mirrored * step)  # (B, size, 2)
    of_rows = along * (down * step) + (centre * step - 1)
    return of_columns[:, None, :, :] + of_rows[:, :, None, :]


def _recoloured(images: Tensor, changes: Tensor, *, cutout: float) -> Tensor:
    """Colours, and a square with the image's mean. What is alike in the three colours is computed
    for one."""
    of_colour, of_grey, of_mean = changes[:, 4:7, None, None, None].unbind(1)  # (B, 1, 1, 1)
    grey = images.mean(dim=1, keepdim=True)  # (B, 1, size, size)
    mean = grey.mean(dim=(2, 3), keepdim=True)
    added = torch.addcmul(mean * of_mean, grey, of_grey)
    if cutout > 0:
        inside = _inside(changes[:, 7:9], size=images.shape[-1], cutout=cutout)
        added = torch.where(inside, mean * (of_mean + of_grey + of_colour), added)
        of_colour = of_colour.masked_fill(inside, 0.0)
    changed = torch.empty_like(images, memory_format=torch.channels_last)
    return torch.addcmul(added, images, of_colour, out=changed).clamp_(0, 255)


def _inside(middles: Tensor, *, size: int, cutout: float) -> Tensor:
    """(B, 1, size, size) the pixels of a square about ``middles`` (B, 2), which may reach over the
    edge."""
    along = torch.arange(size, device=middles.device, dtype=torch.float32)
    near = (along - middles[:, :, None] * size).abs() < cutout * size / 2  # (B, 2, size)
    return (near[:, 0, :, None] & near[:, 1, None, :])[:, None]
