"""Read a source (a table, a folder, a file of arrays) into a manifest.

To add a source, write a recogniser and a reader, and add one entry to ``SOURCES``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from srjt.data.manifest import Manifest, as_features
from srjt.data.options import ReadOptions
from srjt.data.problems import left_out_counts
from srjt.data.sources import columns, features, folders, published, table
from srjt.data.sources.assemble import LoadedData, from_arrays
from srjt.data.sources.columns import from_frame, refuse_repeated
from srjt.data.sources.features import (
    FeatureFile,
    feature_columns_of,
    graded_features,
    has_features,
    ungraded_features,
)
from srjt.data.sources.folders import with_patients_of_headers
from srjt.errors import SrjtError, count_of, unknown_name
from srjt.files import as_path, check_regular_file
from srjt.progress import ProgressOption

__all__ = ["SOURCES", "LoadedData", "Source", "from_arrays", "read"]

# Rows of features in a DataFrame; a DataFrame with a column of images is read as any other table.

SOURCE = "the table"


def read_feature_frame(frame: pd.DataFrame, options: ReadOptions) -> LoadedData:
    """Features (N, F) with their grades and all other columns, as from a file of the same table."""
    found = _features_of(frame, options.feature_columns)
    given = {role: column for role, column in options.roles.items() if role != "image"}
    return graded_features(found, given, source=SOURCE, root=Path(), grades=options.grades)


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


class Source(NamedTuple):
    """A kind of source: ``recognise`` looks at a path, ``read`` reads it by those options that the source ``takes``."""

    recognise: Callable[[Path], bool]
    read: Callable[[Path, ReadOptions], LoadedData]
    takes: frozenset[str] = frozenset({"grades"})


GRADES = frozenset({"grades"})
OF_FEATURES = GRADES | {
    "feature_columns", "grade_column", "patient_column", "true_grade_column", "verified_grade_column",
    "split_column",
}  # fmt: skip
ALL = frozenset(ReadOptions.__dataclass_fields__) - {"kind"}
OF_TABLES = ALL - {"labels", "feature_columns"}

# The first source that recognises a path reads it.
SOURCES: dict[str, Source] = {
    "dr": Source(published.is_dr, published.read_dr, GRADES | {"images"}),
    "features": Source(features.is_features, features.read_features, ALL),
    "medmnist": Source(published.is_medmnist, published.read_medmnist, GRADES),
    "table": Source(table.is_table, table.read_table, OF_TABLES),
    "limuc": Source(published.is_limuc, published.read_limuc, GRADES),
    "folders": Source(folders.is_folders, folders.read_folders, GRADES),
}

# A table in memory is read by one of these.
FRAMES: dict[str, tuple[Callable[[pd.DataFrame, ReadOptions], LoadedData], frozenset[str]]] = {
    "table": (table.read_table, OF_TABLES),
    "features": (read_feature_frame, OF_FEATURES),
}


def read(
    source: str | os.PathLike[str] | pd.DataFrame, *, progress: ProgressOption = True, **options: Any
) -> LoadedData:
    """Read labels, and where the images are, from a table, a folder, a MedMNIST file or a file of features.

    Image files are not opened, except for the patients in the headers of DICOM files whose source names none; ``check``
    finds files that cannot be read.

    Parameters
    ----------
    source : path or DataFrame
        A CSV, TSV, Excel or Parquet file; a folder with a ``labels.csv``, with one folder per grade, of LIMUC or of
        Kaggle's Diabetic Retinopathy Detection; a MedMNIST ``.npz`` file; features (``.npz``, ``.npy``, a table). Or a
        table in memory, with a column of images or with columns of features (``f0``, ``f1``, …).
    progress : bool or function of (done, total)
        Whether to show a bar while DICOM headers are read, where somebody can see it.
    **options
        The fields of ``srjt.data.options.ReadOptions``: ``images="…"``, ``grade_column="severity"``, ….

    Returns
    -------
    LoadedData
        The usable samples, the problems of the others, and notes on how the source was understood.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=20, patients=5, size=32)
    >>> labels = srjt.data.synthetic.write(data, "synthetic")
    >>> reading = srjt.data.read(labels)
    >>> reading.kind, len(reading.manifest), len(reading.problems)
    ('table', 20, 0)
    """
    asked = ReadOptions.of(options)
    if asked.map_grades is not None:
        return _read_mapped(source, asked, progress=progress)
    if asked.kind is not None and asked.kind not in SOURCES:
        raise unknown_name("kind of source", asked.kind, sorted(SOURCES))
    if isinstance(source, pd.DataFrame):
        kind, name, kinds = _kind_of_frame(source, asked), "the table", {k: v[1] for k, v in FRAMES.items()}
    else:
        path, name = as_path(source, "Labels are read from a path or a DataFrame"), str(source)
        kind, kinds = _kind_of_path(path, asked), {k: v.takes for k, v in SOURCES.items()}
    if asked.images is not None and not os.path.isdir(asked.images):
        raise SrjtError(f"The image folder {asked.images} does not exist.")
    for option in (name for name in asked.given if name != "kind" and name not in kinds[kind]):
        others = ", ".join(other for other, taken in kinds.items() if option in taken)
        raise SrjtError(
            f"`{option}` applies to {others or 'files'}, but {name} is read as {kind}: leave it out, or choose another "
            "`kind`."
        )
    if isinstance(source, pd.DataFrame):
        reading, origin = FRAMES[kind][0](source, asked), ""
    else:
        reading, origin = SOURCES[kind].read(path, asked), str(path)
    reading = with_patients_of_headers(reading, progress=progress)
    left_out = left_out_counts(reading.problems)
    return replace(reading, manifest=replace(reading.manifest, source=origin, left_out=left_out))


def _read_mapped(
    source: str | os.PathLike[str] | pd.DataFrame, asked: ReadOptions, *, progress: ProgressOption
) -> LoadedData:
    """The samples with ``map_grades`` applied: read by the source's own grades, which then become the wanted ones."""
    wanted = asked.grades or tuple(dict.fromkeys(asked.grade_map.values()))
    for grade in asked.grade_map.values():
        if grade not in wanted:
            raise unknown_name("grade (in `map_grades`)", grade, wanted)
    own = sorted(asked.grade_map, key=lambda name: wanted.index(asked.grade_map[name]))
    others = {name: value for name, value in asked.given.items() if name not in ("map_grades", "grades")}
    reading = read(source, progress=progress, grades=own, **others)
    if reading.readings is not None:
        raise SrjtError("`map_grades` is for one grade per sample: rename the readers' grades in the table.")
    code = [*(wanted.index(asked.grade_map[name]) for name in own), -1]  # an unknown one, −1, stays −1
    frame = reading.manifest.table.copy()
    for column in {"grade", "true_grade", "verified_grade"} & set(frame):
        frame[column] = [code[grade] for grade in frame[column]]
    return replace(reading, manifest=replace(reading.manifest, table=frame, grades=tuple(wanted)))


def _kind_of_frame(frame: pd.DataFrame, asked: ReadOptions) -> str:
    of_images = asked.image_column is not None or asked.images is not None
    features = not of_images and has_features(list(map(str, frame.columns)))
    kind = asked.kind or ("features" if asked.feature_columns is not None or features else "table")
    if kind not in FRAMES:
        raise SrjtError(f"A table in memory cannot be read as {kind}.")
    return kind


def _kind_of_path(path: Path, asked: ReadOptions) -> str:
    if not os.path.exists(path):  # also for a name that is too long or contains NUL
        raise SrjtError(f"{path} does not exist.")
    if not path.is_dir():
        check_regular_file(path)
    if asked.kind is not None:
        return asked.kind
    if asked.labels is not None or asked.feature_columns is not None:
        if path.is_dir():
            option = "labels" if asked.feature_columns is None else "feature_columns"
            raise SrjtError(f"`{option}` is for a file of features, and {path} is a folder: leave it out.")
        return "features"
    kind = _recognise(path)
    # the names of columns are a weaker sign than images that the user names
    of_images = asked.image_column is not None or asked.images is not None
    return "table" if kind == "features" and of_images and table.is_table(path) else kind


def _recognise(path: Path) -> str:
    for kind, source in SOURCES.items():
        if source.recognise(path):
            return kind
    known = ", ".join((*columns.TABLE_SUFFIXES, *features.FEATURE_SUFFIXES))
    raise SrjtError(f"{path} is neither a folder nor a file of a known kind ({known}).")
