"""Read a source (a table, a folder, a file of arrays) into a manifest.

To add a source, write a recogniser and a reader, and add one entry to ``SOURCES``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from srjt.data.manifest import Manifest, as_features
from srjt.data.sources import columns, features, folders, published, table
from srjt.data.sources.assemble import LoadedData, from_arrays
from srjt.data.sources.columns import from_frame, one_column, refuse_repeated
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
) -> LoadedData:
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


class Source(NamedTuple):
    """A kind of source: ``recognise`` looks at a path, ``read`` reads it.

    ``read`` takes the path and, as keywords, those options of ``srjt.data.read`` that apply to the source.
    """

    recognise: Callable[[Path], bool]
    read: Callable[..., LoadedData]


# The first source that recognises a path reads it.
SOURCES: dict[str, Source] = {
    "dr": Source(published.is_dr, published.read_dr),
    "features": Source(features.is_features, features.read_features),
    "medmnist": Source(published.is_medmnist, published.read_medmnist),
    "table": Source(table.is_table, table.read_table),
    "limuc": Source(published.is_limuc, published.read_limuc),
    "folders": Source(folders.is_folders, folders.read_folders),
}

# A table in memory is read by one of these.
FRAMES: dict[str, Callable[..., LoadedData]] = {
    "table": table.read_table,
    "features": read_feature_frame,
}


def read(
    source: str | os.PathLike[str] | pd.DataFrame,
    *,
    images: str | os.PathLike[str] | None = None,
    image_column: str | None = None,
    grade_column: str | Sequence[str] | None = None,
    patient_column: str | None = None,
    true_grade_column: str | None = None,
    verified_grade_column: str | None = None,
    split_column: str | None = None,
    grades: Sequence[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    feature_columns: str | Sequence[str] | None = None,
    several_readings: str | None = None,
    reader_column: str | None = None,
    reference_column: str | None = None,
    kind: str | None = None,
    progress: ProgressOption = True,
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
    images : path, optional
        The folder that image names are relative to. Default: the folder of the table, or the present one for a table
        in memory. ``images``, ``train_images``, ``img`` and the like in it are tried too.
    image_column, grade_column, patient_column, true_grade_column, verified_grade_column, split_column : str, optional
        Columns of a table. Default: found by their usual names. Verified grades are the true grades of a random sample
        of the labels; the other cells are empty.
    grades : sequence of str, optional
        Names of the grades, mildest first. Default: whole numbers, or names that end in numbers, in their order.
    labels : path, optional
        A table with the grades of features, matched by id if both have ids, else row by row.
    feature_columns : str or sequence of str, optional
        Patterns such as ``"f*"`` for the columns of a table that are features.
    several_readings : {"error", "consensus"}, optional
        Several rows of a table with different grades for one image, or a column of grades per reader: report them, or
        combine them; see ``read_readings``. The manifest then has the columns ``readings``, ``certainty`` and
        ``p_true_0`` …, the probabilities of the true grades. Default: ``"error"``.
    reader_column, reference_column : str, optional
        With ``several_readings="consensus"``: the columns of readers and of trusted grades. Default: found by their
        usual names. ``grade_column`` may then be a list or a pattern such as ``"grade_*"``.
    kind : str, optional
        ``"table"``, ``"folders"``, ``"limuc"``, ``"dr"``, ``"medmnist"`` or ``"features"``. Default: recognised.
    progress : bool or function of (done, total)
        Whether to show a bar while DICOM headers are read, where somebody can see it.

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
    if kind is not None and kind not in SOURCES:
        raise unknown_name("kind of source", kind, sorted(SOURCES))
    readers: Mapping[str, Callable[..., LoadedData]] = {name: known.read for name, known in SOURCES.items()}
    path: Path | pd.DataFrame
    of_images = image_column is not None or images is not None
    if isinstance(source, pd.DataFrame):
        path, name, readers = source, "the table", FRAMES
        kind = kind or (
            "features"
            if feature_columns is not None or (not of_images and has_features(list(map(str, source.columns))))
            else "table"
        )
        if kind not in FRAMES:
            raise SrjtError(f"A table in memory cannot be read as {kind}.")
    else:
        path, name = as_path(source, "Labels are read from a path or a DataFrame"), str(source)
        if not os.path.exists(path):  # also for a name that is too long or contains NUL
            raise SrjtError(f"{path} does not exist.")
        if not path.is_dir():
            check_regular_file(path)
        if kind is None and (labels is not None or feature_columns is not None):
            kind = "features"
            if path.is_dir():
                option = "labels" if feature_columns is None else "feature_columns"
                raise SrjtError(
                    f"`{option}` is for a file of features, and {path} is a folder: leave it out."
                )
        elif kind is None:
            kind = _recognise(path)
            # the names of columns are a weaker sign than images that the user names
            if kind == "features" and of_images and table.is_table(path):
                kind = "table"
    if images is not None and not os.path.isdir(images):
        raise SrjtError(f"The image folder {images} does not exist.")
    options = {
        "images": None if images is None else Path(images),
        "image_column": image_column,
        "grade_column": grade_column,
        "patient_column": patient_column,
        "true_grade_column": true_grade_column,
        "verified_grade_column": verified_grade_column,
        "split_column": split_column,
        "grades": grades,
        "labels": None if labels is None else Path(labels),
        "feature_columns": feature_columns,
        "several_readings": several_readings,
        "reader_column": reader_column,
        "reference_column": reference_column,
    }
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in _options(readers[kind]):
            kinds = ", ".join(other for other, reader in readers.items() if option in _options(reader))
            raise SrjtError(
                f"`{option}` applies to {kinds or 'files'}, but {name} is read as {kind}: leave it "
                "out, or choose another `kind`."
            )
    reading = with_patients_of_headers(readers[kind](path, **given), progress=progress)
    return replace(
        reading, manifest=replace(reading.manifest, source=str(path) if isinstance(path, Path) else "")
    )


def _recognise(path: Path) -> str:
    for kind, source in SOURCES.items():
        if source.recognise(path):
            return kind
    known = ", ".join((*columns.TABLE_SUFFIXES, *features.FEATURE_SUFFIXES))
    raise SrjtError(f"{path} is neither a folder nor a file of a known kind ({known}).")


def _options(reader: Callable[..., LoadedData]) -> set[str]:
    """The options of ``read`` that apply to a kind of source: the keywords of its reader."""
    return set(inspect.signature(reader).parameters)
