"""Rows of numbers in place of images: what a frozen network, or anything else, says of each sample."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError

__all__ = ["Features", "as_features"]

Features = npt.NDArray[np.float32]


def as_features(rows: npt.NDArray[np.generic], *, what: str = "The features") -> Features:
    """(N, F) numbers → float32, contiguous, all finite; the array itself if it is that already."""
    if rows.ndim != 2 or not rows.shape[1]:
        raise SrjtError(f"{what} must be a table of numbers, samples × features, not of shape {rows.shape}.")
    if rows.dtype.kind not in "fiub":
        raise SrjtError(f"{what} must be numbers; these are {rows.dtype}.")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is named below
        features = np.ascontiguousarray(rows, dtype=np.float32)
    # One sum tells, without a mask as large as the features; in float64 the largest float32 do not overflow.
    if not np.isfinite(features.sum(dtype=np.float64)):
        row, column = np.argwhere(~np.isfinite(features))[0].tolist()
        raise SrjtError(
            f"{what} must be finite: row {row}, column {column} (counted from 0) is {rows[row, column]}. "
            "Leave such rows out or fill the gaps."
        )
    return features
