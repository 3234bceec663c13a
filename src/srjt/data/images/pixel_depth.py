"""Pixels of any depth, brought to the eight bits that networks are trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Bytes", "stretch", "to_8bit"]

Bytes = npt.NDArray[np.uint8]


def to_8bit(values: npt.NDArray[Any]) -> Bytes:
    """The same picture in 8 bits, any shape.

    - uint8 stays, booleans become 0 and 255
    - uint16 is taken full-range (65535 → 255), so brightness stays comparable from file to file
    - floats that lie in [0, 1] are multiplied by 255
    - everything else (signed, 32-bit or free-range floats) has no agreed white: see ``stretch``
    """
    if values.dtype == np.uint8:
        return values.astype(np.uint8, copy=False)
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:  # of either byte order
        return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if values.dtype.kind == "f" and values.size and values.min() >= 0 and values.max() <= 1:
        return np.rint(values * 255.0).astype(np.uint8)
    return stretch(values)


def stretch(values: npt.NDArray[Any]) -> Bytes:
    """Smallest finite value to 0, largest to 255; NaN becomes 0; a constant picture is black."""
    as_float = values.astype(np.float64)
    finite = as_float[np.isfinite(as_float)]
    if not finite.size or finite.min() == finite.max():
        return np.zeros(values.shape, np.uint8)
    low, high = finite.min(), finite.max()
    share = np.nan_to_num((as_float - low) / (high - low), nan=0.0, posinf=1.0, neginf=0.0)
    eight: Bytes = np.rint(255 * share).astype(np.uint8)
    return eight
