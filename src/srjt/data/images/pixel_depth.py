"""Convert pixels of any bit depth to 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["UInt8Array", "stretch_to_8bit", "to_8bit"]

UInt8Array = npt.NDArray[np.uint8]


def to_8bit(values: npt.NDArray[Any]) -> UInt8Array:
    """Convert an image of any shape to 8 bits.

    - uint8 is unchanged, booleans become 0 and 255
    - uint16 is scaled by its full range (65535 → 255), so that brightness is comparable between files
    - floats in [0, 1] are multiplied by 255
    - anything else (signed, 32-bit, other floats) has no defined white and goes through ``stretch_to_8bit``
    """
    if values.dtype == np.uint8:
        return values.astype(np.uint8, copy=False)
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:  # of either byte order
        return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if values.dtype.kind == "f" and values.size and values.min() >= 0 and values.max() <= 1:
        return np.rint(values * 255.0).astype(np.uint8)
    return stretch_to_8bit(values)


def stretch_to_8bit(values: npt.NDArray[Any]) -> UInt8Array:
    """Scale the smallest finite value to 0 and the largest to 255. NaN becomes 0; a constant image is black."""
    as_float = values.astype(np.float64)
    finite = as_float[np.isfinite(as_float)]
    if values.size and not finite.size:
        raise ValueError("it contains no numbers (all pixels are NaN or infinite)")
    if not finite.size or finite.min() == finite.max():
        return np.zeros(values.shape, np.uint8)
    low, high = finite.min(), finite.max()
    share = np.nan_to_num((as_float - low) / (high - low), nan=0.0, posinf=1.0, neginf=0.0)
    scaled: UInt8Array = np.rint(255 * share).astype(np.uint8)
    return scaled
