"""Features: one row of numbers per sample instead of an image, for example from a frozen network."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError

__all__ = ["Features", "as_features"]

Features = npt.NDArray[np.float32]


def as_features(rows: npt.NDArray[np.generic], *, what: str = "The features") -> Features:
    """Convert (N, F) numbers to contiguous float32 and check that all are finite; avoids a copy if possible."""
    if rows.ndim != 2 or not rows.shape[1]:
        raise SrjtError(f"{what} must be a table of numbers, samples × features, not of shape {rows.shape}.")
    if rows.dtype.kind not in "fiub":
        raise SrjtError(f"{what} must be numbers; these are {rows.dtype}.")
    with np.errstate(over="ignore"):  # numbers that are too large become infinite and are reported below
        features = np.ascontiguousarray(rows, dtype=np.float32)
    # A sum needs no mask as large as the features; in float64 the largest float32 do not overflow.
    if not np.isfinite(features.sum(dtype=np.float64)):
        row, column = np.argwhere(~np.isfinite(features))[0].tolist()
        raise SrjtError(
            f"{what} must be finite: row {row}, column {column} (counted from 0) is {rows[row, column]}. "
            "Remove such rows or fill in the values."
        )
    return features
