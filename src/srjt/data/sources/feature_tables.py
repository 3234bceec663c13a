"""Features in a table: one column per feature, or in Parquet also one column of lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.features import Features, as_features
from srjt.data.grades import as_text
from srjt.data.sources.columns import SYNONYMS, plain_name
from srjt.data.sources.hints import NUMBERED
from srjt.data.sources.reading_columns import READING_SYNONYMS
from srjt.data.sources.text_table import load, read_parquet
from srjt.errors import SrjtError

__all__ = [
    "NAMES",
    "FeatureTable",
    "column_names",
    "feature_columns_of",
    "has_features",
    "list_column",
    "load_feature_table",
]

# Names of an array in a .npz file, or of a column of lists.
NAMES = ("features", "feature", "embeddings", "embedding")
# Names of columns beside the features: of the roles of a table, and of what is often known of a sample.
BESIDE = {name for names in (*SYNONYMS.values(), *READING_SYNONYMS.values()) for name in names} | {
    *("eye", "laterality", "side", "age", "sex", "gender", "site", "hospital", "centre", "center", "scanner"),
    *("series", "seriesid", "study", "studyid", "visit", "fold"),
}
FEW = 4  # so many numbered columns may also be a bounding box: x1, y1, x2, y2


@dataclass(frozen=True, kw_only=True)
class FeatureTable:
    """N rows of features, and the other columns of the same table."""

    features: Features
    frame: pd.DataFrame  # N rows: the other columns, as text
    lines: list[str]  # (N,) the position of each row in the file
    found_in: str  # which columns have the features


def load_feature_table(path: Path, feature_columns: str | Sequence[str] | None) -> FeatureTable:
    """Read a table of features from the columns that match, or else by their names."""
    if path.suffix.lower() == ".parquet":
        frame = read_parquet(path)
        lines = [f"row {row + 1}" for row in range(len(frame))]
    else:
        loaded = load(path)
        frame, lines = loaded.frame, loaded.lines
        if loaded.problems:
            raise SrjtError(f"{path}, {loaded.problems[0].where}: {loaded.problems[0].detail}.")
    listed = list_column(path) if feature_columns is None else None
    if listed is not None and path.suffix.lower() != ".parquet":
        raise SrjtError(
            f"{path} has lists of numbers in the column {listed!r}, which are not read from text files: save the "
            "features with one column each, or as a .npz or Parquet file."
        )
    if listed is not None:
        taken, found_in = [listed], f"the lists in column {listed!r}"
        array = _stack_lists(frame[listed], path=path, lines=lines)
    else:
        taken = _matching([str(column) for column in frame.columns], feature_columns, source=path.name)
        found_in = f"columns {taken[0]} … {taken[-1]}"
        array = _numbers(frame[taken], path=path, lines=lines)
    features = as_features(array, what=f"The features in {path.name}")
    rest = frame.drop(columns=taken)
    return FeatureTable(
        features=features,
        frame=pd.DataFrame({str(column): rest[column].map(as_text).astype(str) for column in rest}),
        lines=lines,
        found_in=found_in,
    )


def list_column(path: Path) -> str | None:
    """The column ``features`` or ``embedding`` of a table if it has a list in each cell, else None."""
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow
            from pyarrow import parquet

            schema = parquet.read_schema(path)
        except Exception:  # also ImportError
            return None  # the reader of the file reports the error
        lists = {field.name for field in schema if pyarrow.types.is_nested(field.type)}
    elif path.suffix.lower() == ".xlsx":
        return None  # a cell of a spreadsheet is too small for a list of features
    else:
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                beginning = file.readline() + file.readline()
        except (OSError, UnicodeDecodeError):
            return None
        if "[" not in beginning:
            return None
        frame = load(path).frame
        lists = {column for column in frame.columns if frame[column].iloc[0].startswith("[")}
    return next((name for name in NAMES if name in lists), None)


def column_names(path: Path) -> list[str]:
    """The names of the columns of a CSV, TSV or Parquet file; [] if they cannot be read."""
    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            return [str(name) for name in parquet.read_schema(path).names]
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [name.strip(' "') for name in re.split(r"[,;\t]", file.readline().strip())]
    except Exception:  # also ImportError
        return []  # the reader of the file reports the error


def has_features(names: Sequence[str]) -> bool:
    """Whether the columns are features by their names (f0, f1, …), and none of them names images.

    Beside columns of unknown names, which may be the images, the features must be many.
    """
    numbered = sum(NUMBERED.match(name) is not None for name in names)
    others = [plain_name(name) for name in names if not NUMBERED.match(name)]
    if numbered < 2 or any(
        name in SYNONYMS["image"] and name != "id" for name in others
    ):  # features have ids, too
        return False
    unknown = [name for name in others if name not in BESIDE]
    return not unknown or numbered > max(FEW, len(unknown))


def feature_columns_of(frame: pd.DataFrame, patterns: str | Sequence[str] | None) -> list[str]:
    """The feature columns of a table in memory: those that match, or f0, f1, … by their names."""
    return _matching([str(column) for column in frame.columns], patterns, source="the table")


def _matching(columns: Sequence[str], patterns: str | Sequence[str] | None, *, source: str) -> list[str]:
    """The feature columns, in the order of the table."""
    if patterns is None:
        taken = [column for column in columns if NUMBERED.match(column)]
        if len(taken) < 2:
            raise SrjtError(
                f"The names of the columns of {source} do not show which are features: give a pattern with "
                "`feature_columns='f*'`."
            )
        return taken
    wanted = [part.strip() for part in patterns.split(",")] if isinstance(patterns, str) else list(patterns)
    taken = []
    for pattern in wanted:
        matching = [column for column in columns if fnmatchcase(column, pattern)]
        if not matching:
            shown = ", ".join(columns[:8]) + (", …" if len(columns) > 8 else "")
            raise SrjtError(f"No column of {source} matches `feature_columns={pattern!r}`; it has {shown}.")
        taken += matching
    return [column for column in columns if column in set(taken)]


def _numbers(frame: pd.DataFrame, *, path: Path, lines: Sequence[str]) -> npt.NDArray[np.generic]:
    """(N, F); the error for a cell that is not a number names it."""
    try:
        return frame.to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        for column in frame.columns:
            numbers = pd.to_numeric(frame[column], errors="coerce")
            strange = np.flatnonzero(
                numbers.isna().to_numpy() & (frame[column].map(as_text) != "nan").to_numpy()
            )
            if len(strange):
                row = int(strange[0])
                raise SrjtError(
                    f"{path}, {lines[row]}: {str(frame[column].iloc[row])!r} in the feature column {column!r} is not a "
                    "number."
                ) from None
        raise


def _stack_lists(cells: pd.Series[Any], *, path: Path, lines: Sequence[str]) -> npt.NDArray[np.generic]:
    """A column of lists as (N, F)."""
    rows: list[Features] = []
    for line, cell in zip(lines, cells, strict=True):
        try:
            row = np.asarray(cell, dtype=np.float32)
        except (TypeError, ValueError):
            raise SrjtError(
                f"{path}, {line}: the column {cells.name!r} must contain a list of numbers."
            ) from None
        if row.ndim != 1 or (rows and row.shape != rows[0].shape):
            size = f", as many as in the first row ({len(rows[0])})" if rows else ""
            raise SrjtError(
                f"{path}, {line}: the column {cells.name!r} must contain a list of numbers{size}."
            )
        rows.append(row)
    return np.stack(rows)
