"""Images or features, and grades, that are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.features import as_features
from srjt.data.grades import as_text
from srjt.data.sources.assemble import SPLIT_NAMES, Reading, assemble
from srjt.errors import SrjtError, count_of

__all__ = ["as_array", "as_colour", "from_arrays"]


def from_arrays(
    images: npt.ArrayLike,
    grades: Sequence[object] | npt.NDArray[np.generic],
    *,
    patients: Sequence[object] | npt.NDArray[np.generic] | None = None,
    true_grades: Sequence[object] | npt.NDArray[np.generic] | None = None,
    verified_grades: Sequence[object] | npt.NDArray[np.generic] | None = None,
    split: Sequence[object] | npt.NDArray[np.generic] | None = None,
    ids: Sequence[object] | npt.NDArray[np.generic] | None = None,
    names: Sequence[str] | None = None,
) -> Reading:
    """Make a dataset of arrays in memory.

    Parameters
    ----------
    images : array_like
        uint8 images of shape (N, H, W), (N, H, W, 1) or (N, H, W, 3), or features of shape (N, F); of a DataFrame
        the names of the columns are kept.
    grades : (N,) sequence
        The given grades: numbers or names. ``None`` and ``nan`` are missing grades.
    patients : (N,) sequence, optional
        The patient of each sample.
    true_grades : (N,) sequence, optional
        The true grades, if they are known.
    verified_grades : (N,) sequence, optional
        The true grades of a random sample; ``None`` or ``nan`` for the other samples.
    split : (N,) sequence, optional
        ``"train"``, ``"validation"``, ``"test"`` or ``""`` for each sample.
    ids : (N,) sequence, optional
        Unique names. Default: ``"0"``, ``"1"``, …
    names : sequence of str, optional
        Names of the grades, mildest first. Default: whole numbers, or names that end in numbers, in their order.

    Returns
    -------
    Reading
        The usable samples and the problems of the others.

    Examples
    --------
    >>> import numpy as np
    >>> import srjt
    >>> images = np.zeros((4, 64, 64, 3), np.uint8)
    >>> reading = srjt.data.from_arrays(images, ["mild", "severe", "mild", "mild"], names=["mild", "severe"])
    >>> reading.manifest.class_counts
    array([3, 1])
    """
    array = as_array(images)
    if array.ndim == 2:
        pixels: npt.NDArray[np.generic] = as_features(array)
        what = "rows of features"
        size = f"{count_of(len(pixels), 'row')} of {count_of(pixels.shape[1], 'feature')} in memory"
    else:
        pixels = as_colour(array)
        what = "images"
        size = f"{count_of(len(pixels), 'image')} of {pixels.shape[2]}×{pixels.shape[1]} in memory"
    columns = {
        "grade": grades,
        "patient": patients,
        "true_grade": true_grades,
        "verified_grade": verified_grades,
        "split": split,
        "id": ids,
    }
    given = {
        name: _texts(values, name, count=len(pixels), what=what)
        for name, values in columns.items()
        if values is not None
    }
    given.setdefault("id", [str(row) for row in range(len(pixels))])
    if len(set(given["id"])) < len(pixels):
        raise SrjtError("The ids must be unique, but at least one occurs twice.")
    strange = sorted({side for side in given.get("split", []) if side.casefold() not in {*SPLIT_NAMES, ""}})
    if strange:
        raise SrjtError(f"The split must be train, validation or test, not {strange[0]!r}.")
    given = {"id": given["id"], "image": given["id"], **given}
    rows = pd.DataFrame({name: pd.Series(values, dtype=str) for name, values in given.items()})
    reading = assemble(
        rows,
        kind="arrays",
        root=Path(),
        grades=names,
        lines=[f"sample {name}" for name in given["id"]],
        notes=[size],
        arrays=pixels,
    )
    return replace(reading, manifest=replace(reading.manifest, feature_names=_names_of(images)))


def _names_of(features: object) -> tuple[str, ...]:
    """The names of a DataFrame's columns; as in scikit-learn, numbers are no names."""
    columns = list(features.columns) if isinstance(features, pd.DataFrame) else []
    return tuple(columns) if all(isinstance(column, str) for column in columns) else ()


def is_tensor(values: object) -> bool:
    """Whether this is a tensor of torch, without importing it."""
    return hasattr(values, "detach")


def as_array(values: Any) -> npt.NDArray[np.generic]:
    """An array of anything array-like, also of a tensor on a GPU or with a gradient."""
    if is_tensor(values):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":  # which NumPy does not have
            values = values.float()
    try:
        return np.asarray(values)
    except ValueError:
        raise SrjtError(
            "The images, or the rows of features, have different sizes: an array needs equal ones. Resize them, or "
            "write image files and read a table of them."
        ) from None


def as_colour(images: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """(N, H, W), (N, H, W, 1) or (N, H, W, 3) uint8 → (N, H, W, 3)."""
    if images.dtype != np.uint8:
        raise SrjtError(
            f"Images must be uint8, 0 … 255, not {images.dtype} "
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
    # A list, not an array: NumPy would turn the numbers of [1, None] into floats.
    try:
        listed = (
            as_array(values).tolist() if isinstance(values, np.ndarray) or is_tensor(values) else list(values)
        )
    except TypeError:
        raise SrjtError(f"{name} must have one entry per sample; got {values!r}.") from None
    if len(listed) != count:
        raise SrjtError(
            f"{count:,} {what} but {count_of(len(listed), 'entry', 'entries')} in {name}: the numbers must be equal."
        )
    if any(isinstance(value, list) for value in listed):
        raise SrjtError(f"{name} must have one entry per sample, not a row of several.")
    return [as_text(value) for value in listed]
