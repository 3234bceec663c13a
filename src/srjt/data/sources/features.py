"""Features of samples, from ``srjt features`` or other programs: .npz, .npy with a table of labels,
tables with one column per feature.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import as_text
from srjt.data.manifest import GRADED, Features, Manifest, as_features, match_names
from srjt.data.sources import table as tables
from srjt.data.sources.readings import READING_SYNONYMS
from srjt.data.sources.table import IN_MEMORY, SYNONYMS, TABLE_SUFFIXES, Table, load_table
from srjt.errors import Option, SrjtError, count_of, reason_of
from srjt.files import check_regular_file

FEATURE_SUFFIXES = (".npz", ".npy")
ARRAYS = ("features", "feature", "embeddings", "embedding")  # names of the features in a .npz file
# f0, emb_12, …
NUMBERED = re.compile(r"^(f|feat|feature|emb|embedding|x|v|dim)[_.-]?\d+$", re.IGNORECASE)
# Names of columns beside the features: of the roles of a table, and of what is often known of a
# sample.
BESIDE = {name for names in (*SYNONYMS.values(), *READING_SYNONYMS.values()) for name in names} | {
    *(
        "eye",
        "laterality",
        "side",
        "age",
        "sex",
        "gender",
        "site",
        "hospital",
        "centre",
        "center",
        "scanner",
    ),
    *("series", "seriesid", "study", "studyid", "visit", "fold"),
}
FEW = 4  # so many numbered columns may also be a bounding box: x1, y1, x2, y2
# One column name for each array name; SYNONYMS has the other names of columns.
SINGULAR = {
    "grades": "grade",
    "labels": "label",
    "y": "label",
    "true_grades": "true_grade",
    "true_labels": "true_label",
    "verified_grades": "verified_grade",
    "verified_labels": "verified_label",
    "patients": "patient",
    "groups": "patient",
    "splits": "split",
    "images": "image",
    "ids": "id",
    "readers": "reader",
    # parameters of np.savez, which no array can be named after
    "file_": "file",
    "allow_pickle_": "allow_pickle",
}
PLURAL = {
    column: array
    for array, column in reversed(SINGULAR.items())
    if column not in ("label", "split")
}


# Open features: an array of numbers, and a table of text with one row per sample.


def open_features(
    source: Path | pd.DataFrame,
    feature_columns: str | Sequence[str] | None,
    *,
    wanted: Sequence[str] = (),
) -> Table:
    """Features of a file or of a table in memory.

    feature_columns: patterns for the feature columns of a table; wanted: those that a run was
    trained on, which need no pattern. Default: by their usual names.
    """
    if isinstance(source, pd.DataFrame) or source.suffix.lower() in TABLE_SUFFIXES:
        return _from_table(source, feature_columns, wanted)
    check_regular_file(source)
    if source.suffix.lower() not in FEATURE_SUFFIXES:
        known = ", ".join((*FEATURE_SUFFIXES, *TABLE_SUFFIXES))
        raise SrjtError(
            f"{source} is not a file of features: those end in {known}.", code="wrong_file"
        )
    if feature_columns is not None:
        raise SrjtError(
            Option("feature_columns"),
            f" applies to tables, but {source} is an array file.",
            code="option_without_effect",
        )
    return _from_arrays(source)


def is_features(path: Path) -> bool:
    """Whether a file has features, by its suffix and the names in it; the numbers are not read."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return True
    if suffix not in (".npz", *TABLE_SUFFIXES):
        return False
    try:  # the reader of the file reports the error
        if suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                return any(f"{name}.npy" in archive.namelist() for name in ARRAYS)
        if suffix == ".parquet":
            from pyarrow import parquet

            names = list(map(str, parquet.read_schema(path).names))
        else:
            with path.open(newline="", encoding="utf-8-sig") as file:
                names = [name.strip(' "') for name in re.split(r"[,;\t]", file.readline().strip())]
    except Exception:  # damaged archives make zipfile raise almost any exception
        return False
    named = any(name.casefold() == "id" for name in names)  # ids may be the names of image files
    return has_features(names) and not named


def has_features(names: Sequence[str]) -> bool:
    """Whether the columns are features by their names (f0, f1, …), and none of them names images.

    Beside columns of unknown names, which may be the images, the features must be many.
    """
    others = [tables.plain_name(name) for name in names if not NUMBERED.match(name)]
    numbered = len(names) - len(others)
    images = set(SYNONYMS["image"]) - {"id"}  # features have ids, too
    unknown = [name for name in others if name not in BESIDE]
    return (
        numbered > 1
        and not images & {*others}
        and (not unknown or numbered > max(FEW, len(unknown)))
    )


def _from_table(
    source: Path | pd.DataFrame, patterns: str | Sequence[str] | None, wanted: Sequence[str]
) -> Table:
    table = load_table(source, typed=True)
    columns = list(table.frame.columns)
    if table.problems:
        raise SrjtError(
            f"{table.name}, {table.problems[0].where}: {table.problems[0].detail}.",
            code="wrong_file",
        )
    if patterns is not None:
        if isinstance(patterns, str):
            patterns = list(map(str.strip, patterns.split(",")))
        taken = tables.match_columns(table, patterns, role="features")
    elif wanted:
        match_names(columns, wanted, source=table.name)
        taken = list(wanted)
    else:
        taken = list(filter(NUMBERED.match, columns))
        if len(taken) < 2:
            raise SrjtError(
                f"{table.name} does not show its features: give ",
                Option("feature_columns", "f*"),
                ".",
                code="missing_option",
            )
    features = as_features(_numbers(table, taken), what=f"The features in {table.name}")
    frame = tables.as_cells(table.frame.drop(columns=taken))
    note = f"{_size(features)} in memory"
    if table.name != IN_MEMORY:
        frame = frame.rename(columns=SINGULAR)
        note = f"table {table.name}: {_size(features)}, columns {taken[0]} … {taken[-1]}"
    return replace(table, frame=frame, notes=[note], features=features, feature_names=tuple(taken))


def _numbers(table: Table, columns: list[str]) -> npt.NDArray[np.generic]:
    """(N, F); the error for a cell that is not a number names it."""
    try:
        return table.frame[columns].to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        for column in columns:
            cells = table.frame[column]
            strange = pd.to_numeric(cells, errors="coerce").isna() & (cells.map(as_text) != "nan")
            if strange.any():
                row = int(strange.to_numpy().argmax())
                raise SrjtError(
                    f"{table.name}, {table.lines[row]}: {str(cells.iloc[row])!r} in {column!r} is"
                    " not a number.",
                    code="wrong_values",
                ) from None
        raise


def _from_arrays(path: Path) -> Table:
    arrays = load_numpy(path)
    keys = [name for name in ("", *ARRAYS) if name in arrays]
    if not keys:
        raise SrjtError(
            f"{path} has no array named features; it has {', '.join(arrays) or 'none'}.",
            code="missing_column",
        )
    what = f"The array in {path.name}"
    if keys[0]:
        what = f"The array {keys[0]!r} of {path.name}"
    features = as_features(arrays.pop(keys[0]), what=what)
    count = len(features)
    made = str(arrays.pop("made", ""))
    notes = [f"file {path.name}: {_size(features)}"]
    if made:
        notes.append(f"made by {_describe(made)}")
    names: dict[str, list[str]] = {}
    for key in {"grade_names", "feature_names"} & arrays.keys():
        array = arrays.pop(key)
        if array.ndim != 1 or (key == "feature_names" and len(array) != features.shape[1]):
            raise SrjtError(
                f"The array {key!r} of {path.name} must list one name for each {key[:-6]}.",
                code="wrong_shape",
            )
        names[key] = _texts(array, key, path)
    frame: dict[str, list[str]] = {}
    ignored = []
    for key, array in arrays.items():
        column = SINGULAR.get(key, key)
        if array.shape not in ((count,), (count, 1)):
            if key in SINGULAR or key in tables.CANONICAL:
                raise SrjtError(
                    f"The array {key!r} of {path.name} is {array.shape}: it must have one entry per"
                    f" row, {count:,}.",
                    code="wrong_shape",
                )
            ignored.append(key)
        elif column in frame:
            raise SrjtError(
                f"{path.name} has the {column} twice, the second time as {key!r}: remove one.",
                code="not_unique",
            )
        else:
            frame[column] = _texts(array, key, path)
    if ignored:
        notes.append(f"not used, because not one entry per row: {', '.join(ignored)}")
    return Table(
        name=path.name,
        folder=path.parent,
        frame=pd.DataFrame(frame, index=range(count), dtype=str),
        lines=[f"row {row}" for row in range(count)],
        notes=notes,
        features=features,
        feature_names=tuple(names.get("feature_names", ())),
        grades=tuple(names["grade_names"]) if "grade_names" in names else None,
        made=made,
    )


def load_numpy(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of a .npz file by their names, or that of a .npy file, named "". Nothing in them
    is executed."""
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    name = ""
    try:
        opened = np.load(path, mmap_mode="r", allow_pickle=False)
        with (
            opened if isinstance(opened, np.lib.npyio.NpzFile) else nullcontext({"": opened})
        ) as archive:
            for name in archive:
                arrays[name] = archive[name]
                if not isinstance(arrays[name], np.ndarray):  # another member of the archive
                    raise ValueError(f"{name!r} is not an array")
                if arrays[name].dtype.kind == "U":  # it may hold numbers that are no characters
                    "".join(arrays[name].reshape(-1).tolist()).encode()
    except Exception as problem:  # damaged files make NumPy raise almost anything
        which = f"The array {name!r} of {path}" if name else str(path)
        reason = reason_of(problem)
        # NumPy recommends to load the file unsafely
        if "pickle" in reason or "Python objects" in reason:
            raise SrjtError(
                f"{which} contains Python objects, or is not from NumPy: save text as"
                " np.array(values, dtype=str).",
                code="unsafe_file",
            ) from None
        raise SrjtError(
            f"{path} cannot be read as a NumPy file: {reason}.", code="wrong_file"
        ) from None
    return arrays


def _texts(array: npt.NDArray[np.generic], name: str, path: Path) -> list[str]:
    """The entries as text; NumPy stores text as bytes too."""
    texts = []
    for value in array.reshape(-1).tolist():
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                raise SrjtError(
                    f"The array {name!r} of {path.name} has bytes that are not UTF-8"
                    f" ({value[:20]!r}): save text.",
                    code="unreadable_file",
                ) from None
        texts.append(as_text(value))
    return texts


def _describe(made: str) -> str:
    """The JSON that ``srjt features`` wrote, as text; the text of another program is unchanged."""
    try:
        facts = json.loads(made)
        texts = []
        for name, value in facts.items():
            if value not in (None, False):
                texts.append(f"{name} {value}")
        return ", ".join(texts)
    except (ValueError, AttributeError):
        return made


def _size(features: Features) -> str:
    return f"{count_of(len(features), 'row')} of {count_of(features.shape[1], 'feature')}"


def pack_features(manifest: Manifest, *, graded: bool = True) -> bytes:
    """The content of a .npz file that ``read_features`` reads. Grades are stored by name, image
    paths as absolute.

    graded: False if the grades are placeholders, which are left out.
    """
    assert manifest.arrays is not None
    assert manifest.are_features
    table = manifest.with_grade_names()
    if not graded:
        table = table.drop(columns="grade")
    contents: dict[str, npt.NDArray[np.generic]] = {"features": as_features(manifest.arrays)}
    for column in table.columns:
        texts = list(map(as_text, table[column]))
        if column in GRADED:
            texts = table[column].tolist()
        elif column == "image":
            for row, name in enumerate(texts):
                path = (manifest.root / name).absolute()
                if os.path.isfile(path):
                    texts[row] = str(path)
        contents[PLURAL.get(str(column), str(column))] = np.array(texts, dtype=str)
    if graded:
        contents["grade_names"] = np.array(manifest.grades, dtype=str)
    if manifest.feature_names:
        contents["feature_names"] = np.array(manifest.feature_names, dtype=str)
    contents["made"] = np.array(manifest.made, dtype=str)
    buffer = io.BytesIO()
    np.savez(buffer, **contents)  # type: ignore[arg-type]
    return buffer.getvalue()
