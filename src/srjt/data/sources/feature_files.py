"""Open a file of features: an array of numbers, and a table of text with one row per sample."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.features import Features, as_features
from srjt.data.grades import as_text
from srjt.data.sources.feature_tables import (
    NAMES,
    column_names,
    has_features,
    load_feature_table,
)
from srjt.data.sources.table import CANONICAL
from srjt.data.sources.text_table import TABLE_SUFFIXES
from srjt.errors import SrjtError, count_of
from srjt.files import check_regular_file

__all__ = [
    "FEATURE_SUFFIXES",
    "SINGULAR",
    "FeatureFile",
    "check_text",
    "explain_numpy_errors",
    "is_features",
    "open_features",
]

FEATURE_SUFFIXES = (".npz", ".npy")
# One column name for each array name; columns.py knows the synonyms of the column names.
SINGULAR = {
    "grades": "grade", "labels": "label", "y": "label", "true_grades": "true_grade", "true_labels": "true_label",
    "verified_grades": "verified_grade", "verified_labels": "verified_label",
    "patients": "patient", "groups": "patient", "splits": "split", "images": "image", "ids": "id", "readers": "reader",
    "file_": "file", "allow_pickle_": "allow_pickle",
}  # fmt: skip
# not per sample: the order of the grades, how the features were computed, and their names
ABOUT = ("grade_names", "made", "feature_names")


@dataclass(frozen=True, kw_only=True)
class FeatureFile:
    """N rows of features, and the other columns of the same file."""

    features: Features
    frame: pd.DataFrame  # N rows of text; no columns if the file has only features
    feature_names: tuple[str, ...] = ()  # (F,) the columns of a table; empty: an array without names
    lines: list[str]  # (N,) the position of each row in the file
    notes: list[str]
    names: tuple[str, ...] | None = None  # the grades, mildest first
    made: str = ""


def open_features(
    path: Path, feature_columns: str | Sequence[str] | None, *, wanted: Sequence[str] = ()
) -> FeatureFile:
    """Read a file of features; ``feature_columns`` are patterns for the feature columns of a table.

    wanted: the names of the columns that a run was trained on, which need no pattern.
    """
    check_regular_file(path)
    suffix = path.suffix.lower()
    if suffix in FEATURE_SUFFIXES:
        if feature_columns is not None:
            raise SrjtError(f"`feature_columns` applies to tables, but {path} is an array file.")
        return _from_npz(path) if suffix == ".npz" else _from_npy(path)
    if suffix in TABLE_SUFFIXES:
        table = load_feature_table(path, feature_columns, wanted=wanted)
        return FeatureFile(
            features=table.features,
            frame=table.frame.rename(columns=SINGULAR),
            feature_names=table.names,
            lines=table.lines,
            notes=[
                f"table {path.name}: {_size(table.features)}, columns {table.names[0]} … {table.names[-1]}"
            ],
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
        except Exception:  # damaged archives make zipfile raise almost any exception
            return False  # the reader of the file reports the error
    if suffix not in TABLE_SUFFIXES:
        return False
    names = column_names(path)
    named = any(
        name.casefold() == "id" for name in names
    )  # the ids of a table may be the names of image files
    return has_features(names) and not named


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
                    f"{path.name} has {count_of(count, 'row')} of features, but its array {key!r} has the shape "
                    f"{array.shape}: it must have one entry per row."
                )
            ignored.append(key)
        elif column in frame:
            raise SrjtError(f"{path.name} has the {column} twice, the second time as {key!r}: remove one.")
        else:
            frame[column] = [as_text(_decoded(value, key, path)) for value in flat.tolist()]
    if ignored:
        notes.append(f"not used, because not one entry per row: {', '.join(ignored)}")
    names = None
    feature_names: tuple[str, ...] = ()
    if "grade_names" in about:
        if about["grade_names"].ndim != 1:
            raise SrjtError(f"The array 'grade_names' of {path.name} must list the grades, mildest first.")
        names = tuple(as_text(_decoded(name, "grade_names", path)) for name in about["grade_names"].tolist())
    if "feature_names" in about:
        if about["feature_names"].shape != features.shape[1:]:
            raise SrjtError(
                f"The array 'feature_names' of {path.name} must name its {count_of(features.shape[1], 'feature')}."
            )
        feature_names = tuple(
            as_text(_decoded(name, "feature_names", path)) for name in about["feature_names"].tolist()
        )
    return FeatureFile(
        features=features,
        frame=pd.DataFrame(frame, index=range(count), dtype=str),
        lines=[f"row {row}" for row in range(count)],
        notes=notes,
        feature_names=feature_names,
        names=names,
        made=made,
    )


def _from_npy(path: Path) -> FeatureFile:
    with explain_numpy_errors(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is not a single array")
    features = as_features(array, what=f"The array in {path.name}")
    return FeatureFile(
        features=features,
        frame=pd.DataFrame(index=range(len(features))),
        lines=[f"row {row}" for row in range(len(features))],
        notes=[f"file {path.name}: {_size(features)}"],
    )


def _load_arrays(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    with explain_numpy_errors(path), np.load(path, allow_pickle=False) as archive:
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
            if not isinstance(arrays[name], np.ndarray):  # a member of the archive that is not an array
                raise ValueError(f"{name!r} is not an array")
            check_text(arrays[name], name)
    return arrays


def check_text(array: npt.NDArray[np.generic], name: str) -> None:
    """Raise a ValueError if an array of text contains numbers that are no characters, which Python cannot handle."""
    if array.dtype.kind == "U" and array.size:
        native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        codes = native.reshape(-1).view(np.uint32)
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes <= 0xDFFF))).any():
            raise ValueError(f"the array {name!r} contains damaged text")


def _decoded(value: object, array: str, path: Path) -> object:
    """Bytes as text, because NumPy stores text as bytes too; other values are unchanged."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise SrjtError(
            f"The array {array!r} of {path.name} contains bytes that are not UTF-8 text, such as {value[:20]!r}: save "
            "it as text (np.array(values, dtype=str))."
        ) from None


@contextmanager
def explain_numpy_errors(path: Path) -> Iterator[None]:
    """Turn any error while a NumPy file is read into one sentence. Damaged files make NumPy raise almost anything."""
    try:
        yield
    except SrjtError:
        raise
    except Exception as problem:
        raise _unreadable(path, problem) from None


def _unreadable(path: Path, problem: Exception) -> SrjtError:
    if any(sign in str(problem) for sign in ("pickle", "Python objects")):
        return SrjtError(
            f"{path} contains Python objects, or is not a NumPy file: save the features as numbers (np.save)."
        )
    reason = " ".join(str(problem).split()).rstrip(".") or type(problem).__name__
    return SrjtError(f"{path} cannot be read as a NumPy file: {reason[:200]}.")


def _describe(made: str) -> str:
    """The JSON that ``srjt features`` wrote, as text; the text of another program is unchanged."""
    try:
        facts = json.loads(made)
        return ", ".join(f"{name} {value}" for name, value in facts.items() if value not in (None, False))
    except (ValueError, AttributeError):
        return made


def _size(features: Features) -> str:
    return f"{count_of(len(features), 'row')} of {count_of(features.shape[1], 'feature')}"
