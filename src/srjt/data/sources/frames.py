"""Rows of features in a DataFrame; a DataFrame with a column of images is read as any other table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from srjt.data.features import as_features
from srjt.data.sources.arrays import from_arrays
from srjt.data.sources.assemble import Reading
from srjt.data.sources.columns import choose_columns, one_column
from srjt.data.sources.feature_tables import feature_columns_of
from srjt.errors import SrjtError

__all__ = ["frame_features", "read_feature_frame"]


def frame_features(frame: pd.DataFrame, feature_columns: str | Sequence[str] | None) -> pd.DataFrame:
    """The feature columns, as numbers."""
    found = frame[feature_columns_of(frame, feature_columns)]
    try:
        return found.astype("float64")
    except (TypeError, ValueError) as problem:
        raise SrjtError(f"A feature column of the table is not numeric: {problem}.") from None


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
    """Features (N, F) with their grades and patients."""
    features = frame_features(frame, feature_columns)
    rest = frame.drop(columns=features.columns)
    given = {
        "grade": one_column(grade_column),
        "patient": patient_column,
        "true_grade": true_grade_column,
        "verified_grade": verified_grade_column,
        "split": split_column,
    }
    chosen, _ = choose_columns(list(map(str, rest.columns)), given, source="the table", required=("grade",))
    columns = {role: rest[column].tolist() for role, column in chosen.items()}
    own = next((name for name in rest.columns if str(name).casefold() in ("id", "sample_id")), None)
    return from_arrays(
        as_features(features.to_numpy()),
        columns["grade"],
        patients=columns.get("patient"),
        true_grades=columns.get("true_grade"),
        verified_grades=columns.get("verified_grade"),
        split=columns.get("split"),
        ids=None if own is None else rest[own].tolist(),
        names=grades,
    )
