"""MedMNIST's .npz files: {train, val, test}_{images, labels}."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from srjt.data.sources.arrays import as_colour, from_arrays
from srjt.data.sources.assemble import Reading
from srjt.data.sources.feature_files import check_text
from srjt.errors import SrjtError

__all__ = ["is_medmnist", "read_medmnist"]

_PARTS = ("train", "val", "test")


def is_medmnist(path: Path) -> bool:
    """Any ``.npz`` file that is not one of features; ``read_medmnist`` explains what is missing."""
    return path.suffix.lower() == ".npz"


def read_medmnist(path: Path, *, grades: Sequence[str] | None = None) -> Reading:
    """Read a MedMNIST file. Its parts become the split column; greyscale images get three channels."""
    images, labels, sides, ids = [], [], [], []
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [
                f"{part}_{what}"
                for part in _PARTS
                for what in ("images", "labels")
                if f"{part}_{what}" not in arrays
            ]
            if missing:
                raise SrjtError(f"{path} is not in MedMNIST's format: it lacks the array {missing[0]!r}.")
            for side in _PARTS:
                images.append(as_colour(arrays[f"{side}_images"]))
                label = arrays[f"{side}_labels"]
                check_text(label, f"{side}_labels")
                if label.reshape(len(label), -1).shape[1] != 1:
                    raise SrjtError(f"{path} has several labels per image; an ordinal grade is one number.")
                labels.append(label.reshape(-1))
                sides += [side] * len(label)
                ids += [f"{side}/{row}" for row in range(len(label))]
    except SrjtError:
        raise
    except Exception:  # damaged files make NumPy raise almost any exception
        # NumPy's own message recommends to load the file unsafely
        raise SrjtError(
            f"{path} cannot be read as a NumPy archive: it is damaged, contains Python objects, or is not an archive."
        ) from None
    if len({image.shape[1:] for image in images}) > 1:
        raise SrjtError(f"{path} contains images of different sizes.")
    reading = from_arrays(np.concatenate(images), np.concatenate(labels), split=sides, ids=ids, names=grades)
    notes = (f"MedMNIST file {path.name}", *reading.notes, "split: as published (train, val, test)")
    return replace(reading, kind="medmnist", notes=notes)
