"""A torch dataset: its samples are images, or (image, label)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from srjt.data.sources.arrays import as_array, from_arrays
from srjt.data.sources.assemble import Reading
from srjt.errors import SrjtError

__all__ = ["MapDataset", "TorchDataset", "dataset_images", "is_dataset", "read_dataset"]

Array = npt.NDArray[np.generic]


@runtime_checkable
class MapDataset(Protocol):
    """What a torch dataset has; any object with these two methods will do."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


@runtime_checkable
class StreamedDataset(Protocol):
    """What a torch ``IterableDataset`` has. It is read once, to its end."""

    def __iter__(self) -> Iterator[Any]: ...


TorchDataset: TypeAlias = MapDataset | StreamedDataset


def is_dataset(data: object) -> TypeGuard[TorchDataset]:
    """Whether this is a dataset of either style; containers have the same methods, but are not meant as datasets."""
    return is_streamed(data) or (
        isinstance(data, MapDataset) and not isinstance(data, (np.ndarray, list, tuple, dict))
    )


def is_streamed(data: object) -> TypeGuard[StreamedDataset]:
    """Whether this is an ``IterableDataset``, which has no samples by index."""
    from torch.utils.data import IterableDataset

    return isinstance(data, IterableDataset)


def _samples_of(dataset: TorchDataset) -> list[Any]:
    if is_streamed(dataset):
        return list(dataset)
    assert isinstance(dataset, MapDataset)
    return [dataset[row] for row in range(len(dataset))]


def read_dataset(dataset: TorchDataset, *, grades: Sequence[str] | None = None) -> Reading:
    """The images, or rows of features, and labels of a dataset, in memory. Random transforms are drawn once."""
    samples = _samples_of(dataset)
    if not all(isinstance(sample, (tuple, list)) and len(sample) >= 2 for sample in samples):
        raise SrjtError("A dataset to learn from must return (image, label) for each sample.")
    labels = [_label(sample[1], row=row) for row, sample in enumerate(samples)]
    return from_arrays(_stack([sample[0] for sample in samples]), labels, names=grades)


def dataset_images(dataset: TorchDataset) -> Array:
    """The images, or rows of features, of a dataset whose labels are not needed."""
    samples = _samples_of(dataset)
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
    array = as_array(image)
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
