"""From whatever people have to one manifest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from srjt.data.sources import dr, feature_files, features, folders, limuc, medmnist, table
from srjt.data.sources.arrays import from_arrays
from srjt.data.sources.assemble import Reading
from srjt.errors import SrjtError, suggest

__all__ = ["KINDS", "Reading", "from_arrays", "read"]

KINDS = ("table", "folders", "limuc", "dr", "medmnist", "features")


def read(
    source: str | os.PathLike[str],
    *,
    images: str | os.PathLike[str] | None = None,
    image_column: str | None = None,
    grade_column: str | None = None,
    patient_column: str | None = None,
    true_grade_column: str | None = None,
    split_column: str | None = None,
    grades: Sequence[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    feature_columns: str | Sequence[str] | None = None,
    kind: str | None = None,
) -> Reading:
    """Read a table (CSV, TSV, Parquet), a folder (per grade, LIMUC's, Kaggle DR's), a MedMNIST file or features.

    ``images``: the folder that image names are relative to; else the table's own. ``*_column``: else found by
    name. ``grades``: from mild to severe; else integers or names that end in numbers. ``labels``: a table with the
    grades of features. ``feature_columns``: a pattern (``f*``) for the columns of a table that are features.
    ``kind``: one of ``KINDS``; else recognised. Rows that cannot be used are not in the manifest but among the
    problems. Whether the images can be read is for ``check`` to say.
    """
    path = Path(source)
    if not path.exists():
        raise SrjtError(f"{path} does not exist.")
    if kind is not None and kind not in KINDS:
        raise suggest("kind of source", kind, KINDS)
    about_features = labels is not None or feature_columns is not None
    kind = kind or ("features" if about_features else _recognise(path))
    folder = None if images is None else Path(images)
    if folder is not None and not folder.is_dir():
        raise SrjtError(f"The folder of images {folder} does not exist.")
    columns = {
        "image_column": image_column,
        "grade_column": grade_column,
        "patient_column": patient_column,
        "true_grade_column": true_grade_column,
        "split_column": split_column,
    }
    if kind == "features":
        roles = {name.removesuffix("_column"): column for name, column in columns.items()}
        return features.read_features(
            path,
            labels=None if labels is None else Path(labels),
            feature_columns=feature_columns,
            columns=roles,
            images=folder,
            grades=grades,
        )
    if about_features:
        option = "labels" if labels is not None else "feature-columns"
        raise SrjtError(f"--{option} is for features, but {path} was taken as {kind}; --kind says otherwise.")
    if kind == "table":
        return table.read_table(_table_in(path), images=folder, grades=grades, **columns)
    told = [name for name, column in columns.items() if column is not None]
    if told or (folder is not None and kind != "dr"):
        option = (told or ["images"])[0]
        raise SrjtError(
            f"--{option.replace('_', '-')} is for tables, but {path} was taken as {kind}; --kind says otherwise."
        )
    if kind == "dr":
        return dr.read_dr(path, images=folder, grades=grades)
    if kind == "medmnist":
        return medmnist.read_medmnist(path, grades=grades)
    if not path.is_dir():
        raise SrjtError(f"{path} is not a folder.")
    return (limuc.read_limuc if kind == "limuc" else folders.read_folders)(path, grades=grades)


def _recognise(path: Path) -> str:
    if dr.find_labels(path):
        return "dr"
    if path.is_dir():
        if (path / "labels.csv").is_file():
            return "table"
        return "limuc" if limuc.find_patients(path) else "folders"
    if feature_files.holds_features(path):
        return "features"
    if path.suffix.lower() == ".npz":
        return "medmnist"
    if path.suffix.lower() in table.TABLE_SUFFIXES:
        return "table"
    known = ", ".join((*table.TABLE_SUFFIXES, *feature_files.FEATURE_SUFFIXES))
    raise SrjtError(f"{path} is neither a folder nor a file of a known kind ({known}).")


def _table_in(path: Path) -> Path:
    inside = path / "labels.csv"
    if path.is_dir() and not inside.is_file():
        raise SrjtError(f"{path} is a folder without a labels.csv; name the table itself.")
    return inside if path.is_dir() else path
