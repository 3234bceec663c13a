"""What ``srjt.train`` and ``srjt.predict`` accept as data, read into a manifest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.images.store import OnBadImage
from srjt.data.manifest import Manifest, as_features
from srjt.data.problems import drop_unusable
from srjt.data.sources import read, read_ungraded_frame
from srjt.data.sources.assemble import (
    LoadedData,
    TorchDataset,
    as_colour,
    dataset_images,
    from_arrays,
    is_dataset,
    read_dataset,
)
from srjt.data.sources.features import read_ungraded_features
from srjt.data.sources.folders import read_images
from srjt.errors import SrjtError
from srjt.progress import ProgressOption

PathLike: TypeAlias = str | os.PathLike[str]
# (images or features, grades) as a pair; a dataset returns (image, label)
LabelledData: TypeAlias = Manifest | LoadedData | PathLike | pd.DataFrame | tuple[Any, Any] | TorchDataset
# several paths; arrays of images or features
UnlabelledData: TypeAlias = (
    Manifest | LoadedData | PathLike | Sequence[PathLike] | pd.DataFrame | npt.NDArray[Any] | TorchDataset
)
KNOWN = "a manifest, a path, a DataFrame, arrays or a torch dataset"


def labelled_samples(
    data: LabelledData,
    *,
    grades: Sequence[str] | None = None,
    on_bad_image: OnBadImage = "error",
    progress: ProgressOption = True,
) -> Manifest:
    """The samples and their grades. on_bad_image: stop at a row that cannot be used, or leave it out."""
    if isinstance(data, Manifest):
        return data
    if isinstance(data, LoadedData):
        reading = data
    elif isinstance(data, (str, os.PathLike, pd.DataFrame)):
        reading = read(data, grades=grades, progress=progress)
    elif isinstance(data, tuple) and len(data) == 2:
        reading = from_arrays(data[0], data[1], names=grades)
    elif isinstance(data, np.ndarray):
        raise SrjtError("An array has no grades: pass the pair (images, grades).")
    elif is_dataset(data):
        reading = read_dataset(data, grades=grades)
    else:
        raise SrjtError(f"Data are {KNOWN}; got {type(data).__name__}.")
    return drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image)


def unlabelled_samples(
    data: UnlabelledData,
    *,
    features: bool,
    wanted: Sequence[str] = (),
    columns: Sequence[str] = (),
    grades: tuple[str, ...] = ("0", "1"),
) -> LoadedData:
    """The samples to predict; each gets the mildest grade as a placeholder.

    features: whether rows of features are wanted, or images; wanted: the names of the features, if they have names.
    columns: further columns to keep, where there are some.
    """
    if isinstance(data, LoadedData):
        return data
    if isinstance(data, Manifest):
        return LoadedData(manifest=data, problems=(), kind="manifest", notes=())
    if isinstance(data, pd.DataFrame):
        return _from_frame(data, features=features, wanted=wanted, columns=columns, grades=grades)
    if isinstance(data, (str, os.PathLike)):
        data = [data]
    if isinstance(data, (list, tuple)) and all(isinstance(path, (str, os.PathLike)) for path in data):
        return _from_paths(list(data), features=features, wanted=wanted, columns=columns, grades=grades)
    if is_dataset(data):
        data = dataset_images(data)
    if not isinstance(data, np.ndarray):
        raise SrjtError(f"Data are {KNOWN}; got {type(data).__name__}.")
    array = as_features(data) if data.ndim == 2 else as_colour(data)
    return _placeholder(array, grades=grades)


def _from_paths(
    paths: list[PathLike],
    *,
    features: bool,
    wanted: Sequence[str],
    columns: Sequence[str],
    grades: tuple[str, ...],
) -> LoadedData:
    if not paths:
        raise SrjtError("The list of paths is empty.")
    if not features:
        return read_images(paths, columns=columns, grades=grades)
    if len(paths) > 1:
        raise SrjtError("This run reads features: pass one file of features.")
    found = read_ungraded_features(Path(paths[0]), wanted=wanted, columns=columns, grades=grades)
    return LoadedData(manifest=found, problems=(), kind="features", notes=())


def _from_frame(
    frame: pd.DataFrame,
    *,
    features: bool,
    wanted: Sequence[str],
    columns: Sequence[str],
    grades: tuple[str, ...],
) -> LoadedData:
    if not features:
        return read_images([frame], columns=columns, grades=grades)
    found = read_ungraded_frame(frame, wanted=wanted, columns=columns, grades=grades)
    return LoadedData(manifest=found, problems=(), kind="features", notes=())


def _placeholder(array: npt.NDArray[Any], *, grades: tuple[str, ...]) -> LoadedData:
    ids = [str(row) for row in range(len(array))]
    table = pd.DataFrame({"id": ids, "image": ids, "grade": np.zeros(len(ids), dtype=np.int64)})
    return LoadedData(
        manifest=Manifest(table=table, grades=grades, arrays=array), problems=(), kind="arrays", notes=()
    )
