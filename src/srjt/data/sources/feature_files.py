"""Opening a file of features, whatever it is: an array, and a table of texts with one row per sample."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.features import Features, as_features
from srjt.data.grades import as_text
from srjt.data.sources.feature_tables import NAMES, list_column, load_feature_table
from srjt.data.sources.table import CANONICAL, TABLE_SUFFIXES
from srjt.errors import SrjtError

__all__ = ["FEATURE_SUFFIXES", "SINGULAR", "FeatureFile", "holds_features", "open_features"]

FEATURE_SUFFIXES = (".npz", ".npy")
# One name for each role; the columns module knows the synonyms of these.
SINGULAR = {
    "grades": "grade", "labels": "label", "y": "label", "true_grades": "true_grade", "true_labels": "true_label",
    "patients": "patient", "groups": "patient", "splits": "split", "images": "image", "ids": "id", "readers": "reader",
}  # fmt: skip
ABOUT = ("grade_names", "made")  # beside the samples: the order of the grades, and how the features were made


@dataclass(frozen=True, kw_only=True)
class FeatureFile:
    """N rows of features and what the same file says of each."""

    features: Features
    frame: pd.DataFrame  # N rows of text; no columns if the file holds features alone
    lines: list[str]  # (N,) where each row stands in the file
    notes: list[str]
    names: tuple[str, ...] | None = None  # the grades from mild to severe
    made: str = ""


def open_features(path: Path, feature_columns: str | Sequence[str] | None) -> FeatureFile:
    suffix = path.suffix.lower()
    if suffix in FEATURE_SUFFIXES:
        if feature_columns is not None:
            raise SrjtError(f"--feature-columns is for tables, but {path} is an array file.")
        return _from_npz(path) if suffix == ".npz" else _from_npy(path)
    if suffix in TABLE_SUFFIXES:
        table = load_feature_table(path, feature_columns)
        return FeatureFile(
            features=table.features,
            frame=table.frame.rename(columns=SINGULAR),
            lines=table.lines,
            notes=[f"table {path.name}: {_size(table.features)}, {table.said}"],
        )
    known = ", ".join((*FEATURE_SUFFIXES, *TABLE_SUFFIXES))
    raise SrjtError(f"{path} is no file of features: those end in {known}.")


def holds_features(path: Path) -> bool:
    """Whether a file is one of features: by its suffix and its names, without reading the numbers."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return True
    if suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                return any(f"{name}.npy" in archive.namelist() for name in NAMES)
        except (OSError, zipfile.BadZipFile):
            return False  # whoever reads it will say what is wrong
    return suffix in TABLE_SUFFIXES and list_column(path) is not None


def _from_npz(path: Path) -> FeatureFile:
    arrays = _load_arrays(path)
    name = next((name for name in NAMES if name in arrays), None)
    if name is None:
        raise SrjtError(f"{path} holds no array named features, but {', '.join(arrays) or 'nothing'}.")
    features = as_features(arrays.pop(name), what=f"The array {name!r} of {path.name}")
    count = len(features)
    notes = [f"file {path.name}: {_size(features)}"]
    about = {key: arrays.pop(key) for key in ABOUT if key in arrays}
    made = str(about["made"]) if "made" in about else ""
    if made:
        notes.append(f"made by {_in_words(made)}")
    frame: dict[str, list[str]] = {}
    ignored = []
    for key, array in arrays.items():
        column = SINGULAR.get(key, key)
        flat = array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array
        if flat.ndim != 1 or len(flat) != count:
            if key in SINGULAR or key in CANONICAL:
                raise SrjtError(
                    f"{path.name} holds {count:,} rows of features, but its array {key!r} has the shape {array.shape}: "
                    "it must have one entry per row."
                )
            ignored.append(key)
        elif column in frame:
            raise SrjtError(f"{path.name} holds the {column} twice, {key!r} being the second: leave one out.")
        else:
            plain = flat.astype(str) if flat.dtype.kind == "S" else flat
            frame[column] = [as_text(value) for value in plain.tolist()]
    if ignored:
        notes.append(f"not one entry per row, so not used: {', '.join(ignored)}")
    names = about.get("grade_names")
    return FeatureFile(
        features=features,
        frame=pd.DataFrame(frame, index=range(count), dtype=str),
        lines=[f"row {row}" for row in range(count)],
        notes=notes,
        names=None if names is None else tuple(str(name) for name in names),
        made=made,
    )


def _from_npy(path: Path) -> FeatureFile:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise _unreadable(path, problem) from None
    features = as_features(array, what=f"The array in {path.name}")
    return FeatureFile(
        features=features,
        frame=pd.DataFrame(index=range(len(features))),
        lines=[f"row {row}" for row in range(len(features))],
        notes=[f"file {path.name}: {_size(features)}"],
    )


def _load_arrays(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                try:
                    arrays[name] = archive[name]
                except ValueError as problem:
                    if "pickle" not in str(problem).casefold():
                        raise
                    raise SrjtError(
                        f"The array {name!r} of {path} holds Python objects, which could run any code when loaded: "
                        "save it as plain numbers or texts (np.array(values, dtype=str))."
                    ) from None
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as problem:
        if isinstance(problem, SrjtError):
            raise
        raise _unreadable(path, problem) from None
    return arrays


def _unreadable(path: Path, problem: Exception) -> SrjtError:
    if any(sign in str(problem) for sign in ("pickle", "Python objects")):
        return SrjtError(
            f"{path} holds Python objects, or is no NumPy file: save the features as plain numbers (np.save)."
        )
    return SrjtError(f"{path} cannot be read as a NumPy file: {str(problem).rstrip('.')}.")


def _in_words(made: str) -> str:
    """What ``srjt features`` wrote about itself, or whatever another program did."""
    try:
        facts = json.loads(made)
        return ", ".join(f"{name} {value}" for name, value in facts.items() if value not in (None, False))
    except (ValueError, AttributeError):
        return made


def _size(features: Features) -> str:
    return f"{len(features):,} rows of {features.shape[1]:,} features"
