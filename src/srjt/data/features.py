"""Features: one row of numbers per sample instead of an image, for example from a frozen network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError, count_of

__all__ = ["Features", "as_features", "match_names"]

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


def match_names(names: Sequence[str], wanted: Sequence[str], *, source: str) -> list[int]:
    """The positions in ``names`` of the ``wanted`` columns of a run, in its order; an error names those that lack."""
    place = {name: position for position, name in enumerate(names)}
    missing = [name for name in wanted if name not in place]
    if missing:
        shown = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise SrjtError(
            f"This run was trained on {count_of(len(wanted), 'feature column')}, and {source} lacks "
            f"{len(missing):,} of them ({shown}): add or rename them; their order does not matter."
        )
    return [place[name] for name in wanted]
