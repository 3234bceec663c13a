"""Rotation, zoom, colour and cutout of training images, on the device, besides crop and mirror.

The paper crops and mirrors. ``light`` and ``strong`` change more, and are meant for few images. As
for crops, random numbers and pixels are separate: a CPU generator draws what happens to each image
of an epoch at once, so that it depends on the seed, the epoch and the place in the batch alone, and
the pixels are changed by plain tensor operations that a CUDA graph can capture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

DRAWS = 8  # random numbers of an image, see ``change``


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


def draw_changes(shape: tuple[int, ...], *, generator: torch.Generator) -> Tensor:
    """(*shape, DRAWS) numbers between 0 and 1: what ``change`` does to each image."""
    return torch.rand((*shape, DRAWS), generator=generator)


def change(
    pixels_BHWC: Tensor,
    offsets: Tensor,
    flips: Tensor,
    draws: Tensor,
    *,
    size: int,
    limits: Augmentation,
) -> Tensor:
    """Crop and mirror as ``crop_and_flip`` does, and rotate, zoom and recolour in the same step.

    pixels: (B, H, W, 3) uint8; offsets: (B, 2); flips: (B,); draws: (B, DRAWS). Returns (B, 3,
    size, size) float32 from 0 to 255. What lies outside of the stored image is mirrored in.
    """
    draws = draws.to(torch.float32)
    images = pixels_BHWC.permute(0, 3, 1, 2).float()
    places = _places(images.shape, offsets, flips, draws, size=size, limits=limits)
    moved = functional.grid_sample(
        images, places, mode="bilinear", padding_mode="reflection", align_corners=True
    )
    coloured = _recoloured(moved, draws, limits)
    if limits.cutout > 0:
        coloured = _cut_out(coloured, draws, limits)
    return coloured


def _places(
    shape: torch.Size,
    offsets: Tensor,
    flips: Tensor,
    draws: Tensor,
    *,
    size: int,
    limits: Augmentation,
) -> Tensor:
    """(B, size, size, 2) where each pixel comes from, from −1 to 1 as ``grid_sample`` has it."""
    height, width = shape[-2:]
    angle = (2 * draws[:, 0] - 1) * math.radians(limits.rotation)
    scale = torch.exp((2 * draws[:, 1] - 1) * math.log(limits.zoom))
    cosine = (angle.cos() * scale)[:, None, None]
    sine = (angle.sin() * scale)[:, None, None]
    middle = (size - 1) / 2
    along = torch.arange(size, device=offsets.device, dtype=torch.float32) - middle
    right = torch.where(flips[:, None], -along, along)[:, None, :]  # (B, 1, size)
    down = along.expand(len(offsets), -1)
    if limits.upside_down:
        down = torch.where(draws[:, 2:3] < 0.5, -down, down)
    down = down[:, :, None]  # (B, size, 1)
    x = cosine * right - sine * down + (offsets[:, 1].float() + middle)[:, None, None]
    y = sine * right + cosine * down + (offsets[:, 0].float() + middle)[:, None, None]
    return torch.stack([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], dim=-1)


def _recoloured(images: Tensor, draws: Tensor, limits: Augmentation) -> Tensor:
    """Contrast about the image's mean, saturation about each pixel's grey, and brightness."""

    def factor(number: int, most: float) -> Tensor:
        return (1 + (2 * draws[:, number] - 1) * most)[:, None, None, None]

    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = mean + (images - mean) * factor(3, limits.contrast)
    grey = images.mean(dim=1, keepdim=True)
    images = grey + (images - grey) * factor(4, limits.saturation)
    return (images * factor(5, limits.brightness)).clamp(0, 255)


def _cut_out(images: Tensor, draws: Tensor, limits: Augmentation) -> Tensor:
    """A square about a drawn place, which may reach over the edge, gets the image's mean."""
    size = images.shape[-1]
    half = limits.cutout * size / 2
    along = torch.arange(size, device=images.device, dtype=torch.float32)
    down = (along - draws[:, 6:7] * size).abs() < half  # (B, size)
    right = (along - draws[:, 7:8] * size).abs() < half
    inside = (down[:, :, None] & right[:, None, :])[:, None]
    return torch.where(inside, images.mean(dim=(1, 2, 3), keepdim=True), images)
