"""A map-style torch dataset: ``dataset[i]`` is an image, or (image, label)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from srjt.data.sources.arrays import from_arrays
from srjt.data.sources.assemble import Reading
from srjt.errors import SrjtError

__all__ = ["MapDataset", "dataset_images", "read_dataset"]

Array = npt.NDArray[np.generic]


@runtime_checkable
class MapDataset(Protocol):
    """What a torch dataset has; any object with these two methods will do."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def read_dataset(dataset: MapDataset, *, grades: Sequence[str] | None = None) -> Reading:
    """The images, or rows of features, and labels of a dataset, in memory. Random transforms are drawn once."""
    samples = [dataset[row] for row in range(len(dataset))]
    if not all(isinstance(sample, (tuple, list)) and len(sample) >= 2 for sample in samples):
        raise SrjtError("A dataset to learn from must return (image, label) for each index.")
    labels = [_label(sample[1], row=row) for row, sample in enumerate(samples)]
    return from_arrays(_stack([sample[0] for sample in samples]), labels, names=grades)


def dataset_images(dataset: MapDataset) -> Array:
    """The images, or rows of features, of a dataset whose labels are not needed."""
    samples = [dataset[row] for row in range(len(dataset))]
    return _stack([sample[0] if isinstance(sample, (tuple, list)) else sample for sample in samples])


def _label(label: object, *, row: int) -> object:
    """A label may be a tensor or an array of one number."""
    if not hasattr(label, "item"):
        return label
    try:
        return label.item()
    except (RuntimeError, ValueError):
        raise SrjtError(
            f"The label at index {row} of the dataset is not one grade: return a number or a name."
        ) from None


def _stack(images: list[object]) -> Array:
    if not images:
        raise SrjtError("The dataset has no samples.")
    arrays = [_pixels(image, row=row) for row, image in enumerate(images)]
    for row, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise SrjtError(
                f"The images of the dataset differ in size ({arrays[0].shape} and, at index {row}, {array.shape}): let "
                "its transform resize them."
            )
    return np.stack(arrays)


def _pixels(image: object, *, row: int) -> Array:
    """(H, W, 3) uint8, or (F,) features. Tensors are (C, H, W), with values from 0 to 1 or from 0 to 255."""
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"))
    array = np.asarray(image)
    if array.ndim == 1:
        return array
    if array.ndim == 3 and array.shape[0] in (1, 3) and not isinstance(image, np.ndarray):
        array = np.moveaxis(array, 0, -1)  # a tensor has its channels first
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise SrjtError(
                f"The image at index {row} has values outside 0 … 1: leave Normalize out of the dataset's transform, "
                "because srjt normalises the images itself."
            )
        array = np.rint(array * 255).astype(np.uint8)
    if array.ndim not in (2, 3) or array.dtype != np.uint8:
        raise SrjtError(
            f"The sample at index {row} is neither an image nor a row of features: shape {array.shape}, {array.dtype}."
        )
    pixels = array if array.ndim == 3 else array[..., None]
    return np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels
