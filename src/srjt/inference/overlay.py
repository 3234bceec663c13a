"""Maps drawn over their images: orange raises the expected grade, blue lowers it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["overlay", "resized_square", "side_by_side"]

RAISES, LOWERS = np.array([255, 96, 0]), np.array([40, 120, 255])
STRONGEST = 0.75  # opacity of the largest value: the image stays visible
GAP = 8  # pixels between two pictures


def overlay(image: npt.NDArray[np.uint8], heat: npt.NDArray[np.float32], *, side: int = 320) -> Image.Image:
    """uint8 (H, W, 3) and a map (h, w) → the grey image with the map over it, at least ``side`` pixels wide."""
    side = max(side, image.shape[0])
    grey = np.asarray(resized_square(image, side).convert("L"), dtype=np.float64)[..., None]
    scale = float(np.abs(heat).max()) or 1.0
    smooth = Image.fromarray((heat / scale).astype(np.float32)).resize((side, side), Image.Resampling.BICUBIC)
    value = np.clip(np.asarray(smooth, dtype=np.float64), -1.0, 1.0)[..., None]
    strength = STRONGEST * np.abs(value)
    return Image.fromarray(
        ((1 - strength) * grey + strength * np.where(value > 0, RAISES, LOWERS)).astype(np.uint8)
    )


def side_by_side(pictures: list[Image.Image]) -> Image.Image:
    """Pictures of one size in a row."""
    width, height = pictures[0].size
    row = Image.new("RGB", (len(pictures) * (width + GAP) - GAP, height))
    for place, picture in enumerate(pictures):
        row.paste(picture, (place * (width + GAP), 0))
    return row


def resized_square(image: npt.NDArray[np.uint8], side: int) -> Image.Image:
    return Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC)
