"""Images, or features, and grades that are already in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.features import as_features
from srjt.data.grades import as_text
from srjt.data.sources.assemble import SIDES, Reading, assemble
from srjt.errors import SrjtError

__all__ = ["as_colour", "from_arrays"]


def from_arrays(
    images: npt.ArrayLike,
    grades: Sequence[object] | npt.NDArray[np.generic],
    *,
    patients: Sequence[object] | npt.NDArray[np.generic] | None = None,
    true_grades: Sequence[object] | npt.NDArray[np.generic] | None = None,
    split: Sequence[object] | npt.NDArray[np.generic] | None = None,
    ids: Sequence[object] | npt.NDArray[np.generic] | None = None,
    names: Sequence[str] | None = None,
) -> Reading:
    """A reading of ``images`` (N, H, W), (N, H, W, 1) or (N, H, W, 3) uint8, or of features (N, F), with
    ``grades`` (N,).

    ``names`` lists the grades from mild to severe; the other arguments have one entry per image.
    """
    given_arrays = np.asarray(images)
    if given_arrays.ndim == 2:
        pixels: npt.NDArray[np.generic] = as_features(given_arrays)
        what, size = "rows of features", f"{len(pixels):,} rows of {pixels.shape[1]:,} features in memory"
    else:
        pixels = as_colour(given_arrays)
        what, size = "images", f"{len(pixels):,} images of {pixels.shape[2]}×{pixels.shape[1]} in memory"
    columns = {"grade": grades, "patient": patients, "true_grade": true_grades, "split": split, "id": ids}
    given = {
        name: _texts(values, name, count=len(pixels), what=what)
        for name, values in columns.items()
        if values is not None
    }
    given.setdefault("id", [str(row) for row in range(len(pixels))])
    if len(set(given["id"])) < len(pixels):
        raise SrjtError("The ids must be unique; at least one occurs twice.")
    strange = sorted({side for side in given.get("split", []) if side.casefold() not in {*SIDES, ""}})
    if strange:
        raise SrjtError(f"The split must say train, validation or test; it says {strange[0]!r}.")
    given = {"id": given["id"], "image": given["id"], **given}
    rows = pd.DataFrame({name: pd.Series(values, dtype=str) for name, values in given.items()})
    return assemble(
        rows,
        kind="arrays",
        root=Path(),
        grades=names,
        lines=[f"sample {name}" for name in given["id"]],
        notes=[size],
        arrays=pixels,
    )


def as_colour(images: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """(N, H, W), (N, H, W, 1) or (N, H, W, 3) uint8 → (N, H, W, 3)."""
    if images.dtype != np.uint8:
        raise SrjtError(
            f"Images must be uint8, 0 … 255; these are {images.dtype} "
            "(for values from 0 to 1: (255 * images).round().astype('uint8'))."
        )
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise SrjtError(
            f"Images must have the shape (N, H, W), (N, H, W, 1) or (N, H, W, 3), not {images.shape}."
        )
    return images if images.shape[-1] == 3 else np.repeat(images, 3, axis=-1)


def _texts(
    values: Sequence[object] | npt.NDArray[np.generic], name: str, *, count: int, what: str
) -> list[str]:
    # Element by element: an array of [1, None] would turn its numbers into floats.
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(listed) != count:
        raise SrjtError(f"{count:,} {what} but {len(listed):,} entries in {name}: they must be as many.")
    if any(isinstance(value, list) for value in listed):
        raise SrjtError(f"{name} must have one entry per sample, not a row of several.")
    return [as_text(value) for value in listed]
