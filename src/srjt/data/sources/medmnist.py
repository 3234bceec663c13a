"""MedMNIST's .npz files: {train, val, test}_{images, labels}."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from srjt.data.sources.arrays import as_colour, from_arrays
from srjt.data.sources.assemble import Reading
from srjt.errors import SrjtError

__all__ = ["read_medmnist"]

SIDES = ("train", "val", "test")


def read_medmnist(path: Path, *, grades: Sequence[str] | None = None) -> Reading:
    """Read a MedMNIST file; its sides become the split column, greyscale becomes three channels."""
    images, labels, sides, ids = [], [], [], []
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [
                f"{s}_{what}" for s in SIDES for what in ("images", "labels") if f"{s}_{what}" not in arrays
            ]
            if missing:
                raise SrjtError(f"{path} is not in MedMNIST's format: it lacks the array {missing[0]!r}.")
            for side in SIDES:
                images.append(as_colour(arrays[f"{side}_images"]))
                label = arrays[f"{side}_labels"]
                if label.reshape(len(label), -1).shape[1] != 1:
                    raise SrjtError(f"{path} has several labels per image; an ordinal grade is one number.")
                labels.append(label.reshape(-1))
                sides += [side] * len(label)
                ids += [f"{side}/{row}" for row in range(len(label))]
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as problem:
        if isinstance(problem, SrjtError):
            raise
        # numpy's own words would advise to load the file unsafely
        raise SrjtError(
            f"{path} cannot be read as a NumPy archive: it is damaged, holds Python objects, or is no such file."
        ) from None
    if len({image.shape[1:] for image in images}) > 1:
        raise SrjtError(f"{path} holds images of different sizes.")
    reading = from_arrays(np.concatenate(images), np.concatenate(labels), split=sides, ids=ids, names=grades)
    notes = (f"MedMNIST file {path.name}", *reading.notes, "split: as published (train, val, test)")
    return replace(reading, kind="medmnist", notes=notes)
