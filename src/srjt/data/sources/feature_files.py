"""Open a file of features: an array of numbers, and a table of text with one row per sample."""

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

__all__ = ["FEATURE_SUFFIXES", "SINGULAR", "FeatureFile", "is_features", "open_features"]

FEATURE_SUFFIXES = (".npz", ".npy")
# One column name for each array name; columns.py knows the synonyms of the column names.
SINGULAR = {
    "grades": "grade", "labels": "label", "y": "label", "true_grades": "true_grade", "true_labels": "true_label",
    "verified_grades": "verified_grade", "verified_labels": "verified_label",
    "patients": "patient", "groups": "patient", "splits": "split", "images": "image", "ids": "id", "readers": "reader",
}  # fmt: skip
ABOUT = ("grade_names", "made")  # not per sample: the order of the grades, how the features were computed


@dataclass(frozen=True, kw_only=True)
class FeatureFile:
    """N rows of features, and the other columns of the same file."""

    features: Features
    frame: pd.DataFrame  # N rows of text; no columns if the file has only features
    lines: list[str]  # (N,) the position of each row in the file
    notes: list[str]
    names: tuple[str, ...] | None = None  # the grades, mildest first
    made: str = ""


def open_features(path: Path, feature_columns: str | Sequence[str] | None) -> FeatureFile:
    """Read a file of features; ``feature_columns`` are patterns for the feature columns of a table."""
    suffix = path.suffix.lower()
    if suffix in FEATURE_SUFFIXES:
        if feature_columns is not None:
            raise SrjtError(f"--feature-columns applies to tables, but {path} is an array file.")
        return _from_npz(path) if suffix == ".npz" else _from_npy(path)
    if suffix in TABLE_SUFFIXES:
        table = load_feature_table(path, feature_columns)
        return FeatureFile(
            features=table.features,
            frame=table.frame.rename(columns=SINGULAR),
            lines=table.lines,
            notes=[f"table {path.name}: {_size(table.features)}, {table.found_in}"],
        )
    known = ", ".join((*FEATURE_SUFFIXES, *TABLE_SUFFIXES))
    raise SrjtError(f"{path} is not a file of features: those end in {known}.")


def is_features(path: Path) -> bool:
    """Whether a file has features, by its suffix and the names in it; the numbers are not read."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return True
    if suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                return any(f"{name}.npy" in archive.namelist() for name in NAMES)
        except (OSError, zipfile.BadZipFile):
            return False  # the reader of the file reports the error
    return suffix in TABLE_SUFFIXES and list_column(path) is not None


def _from_npz(path: Path) -> FeatureFile:
    arrays = _load_arrays(path)
    name = next((name for name in NAMES if name in arrays), None)
    if name is None:
        raise SrjtError(f"{path} has no array named features; it has {', '.join(arrays) or 'none'}.")
    features = as_features(arrays.pop(name), what=f"The array {name!r} of {path.name}")
    count = len(features)
    notes = [f"file {path.name}: {_size(features)}"]
    about = {key: arrays.pop(key) for key in ABOUT if key in arrays}
    made = str(about["made"]) if "made" in about else ""
    if made:
        notes.append(f"made by {_describe(made)}")
    frame: dict[str, list[str]] = {}
    ignored = []
    for key, array in arrays.items():
        column = SINGULAR.get(key, key)
        flat = array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array
        if flat.ndim != 1 or len(flat) != count:
            if key in SINGULAR or key in CANONICAL:
                raise SrjtError(
                    f"{path.name} has {count:,} rows of features, but its array {key!r} has the shape {array.shape}: "
                    "it must have one entry per row."
                )
            ignored.append(key)
        elif column in frame:
            raise SrjtError(f"{path.name} has the {column} twice, the second time as {key!r}: remove one.")
        else:
            plain = flat.astype(str) if flat.dtype.kind == "S" else flat
            frame[column] = [as_text(value) for value in plain.tolist()]
    if ignored:
        notes.append(f"not used, because not one entry per row: {', '.join(ignored)}")
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
                        f"The array {name!r} of {path} contains Python objects, which could run any code when loaded: "
                        "save it as numbers or text (np.array(values, dtype=str))."
                    ) from None
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as problem:
        if isinstance(problem, SrjtError):
            raise
        raise _unreadable(path, problem) from None
    return arrays


def _unreadable(path: Path, problem: Exception) -> SrjtError:
    if any(sign in str(problem) for sign in ("pickle", "Python objects")):
        return SrjtError(
            f"{path} contains Python objects, or is not a NumPy file: save the features as numbers (np.save)."
        )
    return SrjtError(f"{path} cannot be read as a NumPy file: {str(problem).rstrip('.')}.")


def _describe(made: str) -> str:
    """The JSON that ``srjt features`` wrote, as text; the text of another program is unchanged."""
    try:
        facts = json.loads(made)
        return ", ".join(f"{name} {value}" for name, value in facts.items() if value not in (None, False))
    except (ValueError, AttributeError):
        return made


def _size(features: Features) -> str:
    return f"{len(features):,} rows of {features.shape[1]:,} features"
