"""Features in a table: one column per feature."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.features import Features, as_features, match_names
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
    "load_feature_table",
]

# Names of an array in a .npz file.
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
    names: tuple[str, ...]  # (F,) the columns that have the features


def load_feature_table(
    path: Path, feature_columns: str | Sequence[str] | None, *, wanted: Sequence[str] = ()
) -> FeatureTable:
    """Read a table of features from the columns that match, else those ``wanted`` by a run, else by usual names."""
    if path.suffix.lower() == ".parquet":
        frame = read_parquet(path)
        lines = [f"row {row + 1}" for row in range(len(frame))]
    else:
        loaded = load(path)
        frame, lines = loaded.frame, loaded.lines
        if loaded.problems:
            raise SrjtError(f"{path}, {loaded.problems[0].where}: {loaded.problems[0].detail}.")
    taken = _matching(
        [str(column) for column in frame.columns], feature_columns, source=path.name, wanted=wanted
    )
    array = _numbers(frame[taken], path=path, lines=lines)
    features = as_features(array, what=f"The features in {path.name}")
    rest = frame.drop(columns=taken)
    return FeatureTable(
        features=features,
        frame=pd.DataFrame({str(column): rest[column].map(as_text).astype(str) for column in rest}),
        lines=lines,
        names=tuple(taken),
    )


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


def feature_columns_of(
    frame: pd.DataFrame, patterns: str | Sequence[str] | None, *, wanted: Sequence[str] = ()
) -> list[str]:
    """The feature columns of a table in memory: those that match, or ``wanted``, or f0, f1, … by their names."""
    return _matching([str(column) for column in frame.columns], patterns, source="the table", wanted=wanted)


def _matching(
    columns: Sequence[str], patterns: str | Sequence[str] | None, *, source: str, wanted: Sequence[str]
) -> list[str]:
    """The feature columns: those ``wanted`` by a run in its order, others in the order of the table."""
    if patterns is None and wanted:
        match_names(columns, wanted, source=source)
        return list(wanted)
    if patterns is None:
        taken = [column for column in columns if NUMBERED.match(column)]
        if len(taken) < 2:
            raise SrjtError(
                f"The names of the columns of {source} do not show which are features: give a pattern with "
                "`feature_columns='f*'`."
            )
        return taken
    given = [part.strip() for part in patterns.split(",")] if isinstance(patterns, str) else list(patterns)
    known = set(columns)
    chosen: set[str] = set()
    for pattern in given:
        matching = [pattern] if pattern in known else [name for name in columns if fnmatchcase(name, pattern)]
        if not matching:
            shown = ", ".join(columns[:8]) + (", …" if len(columns) > 8 else "")
            raise SrjtError(f"No column of {source} matches `feature_columns={pattern!r}`; it has {shown}.")
        chosen.update(matching)
    return [column for column in columns if column in chosen]


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
