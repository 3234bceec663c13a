"""Rows of features in a DataFrame; a DataFrame with a column of images is read as any other table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from srjt.data.features import as_features
from srjt.data.manifest import Manifest
from srjt.data.sources.assemble import Reading
from srjt.data.sources.columns import one_column
from srjt.data.sources.feature_files import FeatureFile
from srjt.data.sources.feature_tables import feature_columns_of
from srjt.data.sources.features import graded_features, ungraded_features
from srjt.data.sources.text_table import from_frame, refuse_repeated
from srjt.errors import SrjtError, count_of

__all__ = ["read_feature_frame", "read_ungraded_frame"]

SOURCE = "the table"


def read_feature_frame(
    frame: pd.DataFrame,
    *,
    feature_columns: str | Sequence[str] | None = None,
    grade_column: str | Sequence[str] | None = None,
    patient_column: str | None = None,
    true_grade_column: str | None = None,
    verified_grade_column: str | None = None,
    split_column: str | None = None,
    grades: Sequence[str] | None = None,
) -> Reading:
    """Features (N, F) with their grades and all other columns, as from a file of the same table."""
    given = {
        "grade": one_column(grade_column),
        "patient": patient_column,
        "true_grade": true_grade_column,
        "verified_grade": verified_grade_column,
        "split": split_column,
    }
    found = _features_of(frame, feature_columns)
    return graded_features(found, given, source=SOURCE, root=Path(), grades=grades)


def read_ungraded_frame(
    frame: pd.DataFrame,
    *,
    wanted: Sequence[str] = (),
    columns: Sequence[str] = (),
    grades: tuple[str, ...] = ("0", "1"),
) -> Manifest:
    """Features for prediction, as from a file of the same table; see ``read_ungraded_features``."""
    found = _features_of(frame, None, wanted=wanted)
    return ungraded_features(found, {}, source=SOURCE, root=Path(), columns=columns, grades=grades)


def _features_of(
    frame: pd.DataFrame, feature_columns: str | Sequence[str] | None, *, wanted: Sequence[str] = ()
) -> FeatureFile:
    """The feature columns as numbers, the others as text."""
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    refuse_repeated(list(frame.columns), "The table")
    taken = feature_columns_of(frame, feature_columns, wanted=wanted)
    try:
        features = as_features(frame[taken].astype("float64").to_numpy())
    except (TypeError, ValueError) as problem:
        if isinstance(problem, SrjtError):
            raise
        raise SrjtError(f"A feature column of the table is not numeric: {problem}.") from None
    rest = from_frame(frame.drop(columns=taken)).frame
    lines = [f"row {row}" for row in range(len(features))]
    size = f"{count_of(len(features), 'row')} of {count_of(features.shape[1], 'feature')} in memory"
    return FeatureFile(features=features, frame=rest, feature_names=tuple(taken), lines=lines, notes=[size])
