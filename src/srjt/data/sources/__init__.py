"""Read a source (a table, a folder, a file of arrays) into a manifest, and whatever else
``srjt.train`` and ``srjt.predict`` accept as data.

To add a source, write a recogniser and a reader, and add one entry to ``SOURCES``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data import reading_file
from srjt.data.images.decode import OnBadImage
from srjt.data.manifest import GRADED, Manifest, as_features, drop_unusable
from srjt.data.options import ReadOptions
from srjt.data.problems import describe_left_out, left_out_counts, left_out_problems
from srjt.data.sources import assemble, features, folders, samples as of_tables, table
from srjt.data.sources.assemble import TorchDataset, from_arrays
from srjt.data.sources.samples import read_ungraded_features
from srjt.errors import Option, SrjtError, unknown_name, warn
from srjt.files import as_path, check_regular_file
from srjt.progress import ProgressOption

__all__ = ["SOURCES", "Source", "from_arrays", "read", "read_source"]


LoadedData = Manifest  # its name where a reading and its samples were two things


class Source(NamedTuple):
    """A kind of source: ``recognise`` looks at a path, ``read`` reads it by those options that the
    source ``takes``."""

    recognise: Callable[[Path], object]
    read: Callable[[Any, ReadOptions], Manifest]
    takes: frozenset[str] = frozenset({"grades"})


GRADES = frozenset({"grades"})
ALL = frozenset(ReadOptions.__dataclass_fields__) - {"kind"}

# The first source that recognises a path reads it. A table in memory is a table or features.
SOURCES: dict[str, Source] = {
    "dr": Source(folders.find_labels, folders.read_dr, GRADES | {"images"}),
    "features": Source(features.is_features, of_tables.read_features, ALL),
    "medmnist": Source(folders.is_medmnist, folders.read_medmnist),
    "table": Source(table.is_table, of_tables.read_table, ALL - {"labels", "feature_columns"}),
    "limuc": Source(folders.find_patients, folders.read_limuc),
    "folders": Source(Path.is_dir, folders.read_folders),
}


def read(
    source: str | os.PathLike[str] | pd.DataFrame,
    *,
    progress: ProgressOption = True,
    **options: Any,
) -> Manifest:
    """Read labels, and where the images are, from a table, a folder, a MedMNIST file or a file of
    features.

    Image files are not opened, except for the patients in the headers of DICOM files whose source
    names none; ``check`` finds files that cannot be read. Rows that cannot be used, such as those
    without a grade, are left out with a warning that counts them; ``left_out`` has them.
    Options that ``srjt data inspect`` has written beside the source (``labels.srjt.yaml``) are used
    where none are passed.

    Parameters
    ----------
    source : path or DataFrame
        A CSV, TSV, Excel or Parquet file; a folder with a ``labels.csv``, with one folder per
        grade, of LIMUC or of Kaggle's Diabetic Retinopathy Detection; a MedMNIST ``.npz`` file;
        features (``.npz``, ``.npy``, a table). Or a table in memory, with a column of images or
        with columns of features (``f0``, ``f1``, …).
    progress : bool or function of (done, total)
        Whether to show a bar while DICOM headers are read, where somebody can see it.
    **options
        The fields of ``srjt.data.options.ReadOptions``: ``images="…"``,
        ``grade_column="severity"``, ….

    Returns
    -------
    Manifest
        The usable samples, which ``srjt.train`` and the other verbs accept. Its ``report`` has the
        problems of the others, and notes on how the source was understood.

    Examples
    --------
    >>> import srjt
    >>> images = srjt.data.synthetic.generate(images=20, patients=5, size=32)
    >>> labels = srjt.data.synthetic.write(images, "synthetic")
    >>> data = srjt.data.read(labels)
    >>> len(data), data.report.kind, len(data.report.problems)
    (20, 'table', 0)
    """
    samples = read_source(source, progress=progress, **options)
    if left_out := left_out_problems(samples.report.problems):
        warn(f"{describe_left_out(left_out)} The attribute `left_out` has the rows.")
    return samples


def read_source(
    source: str | os.PathLike[str] | pd.DataFrame,
    *,
    progress: ProgressOption = True,
    use_file: bool = True,
    **options: Any,
) -> Manifest:
    """``read`` for those who stop at rows that cannot be used, or count them, themselves.

    use_file: whether options beside the source are used, too.
    """
    given = ReadOptions.of(options)
    if not use_file or isinstance(source, pd.DataFrame):
        return _read(source, given, progress=progress)
    path = as_path(source, "Labels are read from a path or a DataFrame")
    beside = reading_file.load_reading_file(path)
    # what becomes of rows that cannot be used is for the caller to say
    for name in (reading_file.ON_BAD_IMAGE, *given.given):
        beside.pop(name, None)
    if not beside:
        return _read(source, given, progress=progress)
    try:
        samples = _read(source, ReadOptions.of({**beside, **given.given}), progress=progress)
    except SrjtError as problem:
        raise reading_file.used(path, problem) from None
    said = f"read as {reading_file.reading_file(path).name} says: {', '.join(beside)}"
    notes = (*samples.report.notes, said)
    return replace(samples, report=replace(samples.report, notes=notes))


def _read(
    source: str | os.PathLike[str] | pd.DataFrame, options: ReadOptions, *, progress: ProgressOption
) -> Manifest:
    if options.map_grades is not None:
        return _read_mapped(source, options, progress=progress)
    if options.kind is not None and options.kind not in SOURCES:
        raise unknown_name("kind of source", options.kind, sorted(SOURCES))
    if isinstance(source, pd.DataFrame):
        name = table.IN_MEMORY
    else:
        source = as_path(source, "Labels are read from a path or a DataFrame")
        name = str(source)
        if not os.path.exists(source):  # also for a name that is too long or contains NUL
            raise SrjtError(f"{name} does not exist.", code="missing_file")
        if not source.is_dir():
            check_regular_file(source)
    kind = options.kind or _kind_of(source, options)
    if isinstance(source, pd.DataFrame) and kind not in ("table", "features"):
        raise SrjtError(
            f"A table in memory cannot be read as {kind}.", code="conflict", option="kind"
        )
    if options.images is not None and not os.path.isdir(options.images):
        raise SrjtError(
            f"The image folder {options.images} does not exist.",
            code="missing_file",
            option="images",
        )
    for option in options.given:
        if option not in SOURCES[kind].takes | {"kind"}:
            others = ", ".join(other for other, its in SOURCES.items() if option in its.takes)
            raise SrjtError(
                Option(option),
                f" applies to {others}, but {name} is read as {kind}: leave it out, or choose a ",
                Option("kind"),
                ".",
                code="option_without_effect",
            )
    samples = folders.with_patients_of_headers(
        SOURCES[kind].read(source, options), progress=progress
    )
    return replace(
        samples,
        source="" if isinstance(source, pd.DataFrame) else name,
        labels_source=str(options.labels or ""),
        left_out_counts=left_out_counts(samples.report.problems),
    )


def _read_mapped(
    source: str | os.PathLike[str] | pd.DataFrame, options: ReadOptions, *, progress: ProgressOption
) -> Manifest:
    """The samples with ``map_grades`` applied: read by the source's own grades, which then become
    the wanted ones."""
    wanted = options.grades or tuple(dict.fromkeys(options.grade_map.values()))
    place = {}
    for written, grade in options.grade_map.items():
        if grade not in wanted:
            raise unknown_name("grade", grade, wanted, option="map_grades")
        place[written] = wanted.index(grade)
    in_source = sorted(place, key=place.__getitem__)
    plain = replace(options, map_grades=None, grades=tuple(in_source))
    samples = _read(source, plain, progress=progress)
    if samples.report.readings is not None:
        raise SrjtError(
            Option("map_grades"),
            " is for one grade per sample: rename the readers' grades in the table.",
            code="unsupported",
        )
    codes = np.array([*map(place.__getitem__, in_source), -1])  # an unknown one, −1, stays −1
    table = samples.table.copy()
    for name in set(GRADED) & set(table):
        table[name] = codes[table[name]]
    return replace(samples, table=table, grades=tuple(wanted))


def _kind_of(source: Path | pd.DataFrame, options: ReadOptions) -> str:
    """The kind of source that this is; the names of columns are a weaker sign than images that the
    user names."""
    of_images = options.image_column is not None or options.images is not None
    if isinstance(source, pd.DataFrame):
        by_names = not of_images and features.has_features(list(map(str, source.columns)))
        return "features" if options.feature_columns is not None or by_names else "table"
    for option in ("feature_columns", "labels"):
        if option in options.given:
            if source.is_dir():
                raise SrjtError(
                    Option(option),
                    f" is for a file of features, and {source} is a folder: leave it out.",
                    code="option_without_effect",
                )
            return "features"
    kind = next((kind for kind in SOURCES if SOURCES[kind].recognise(source)), None)
    if kind is None:
        suffixes = ", ".join((*table.TABLE_SUFFIXES, *features.FEATURE_SUFFIXES))
        raise SrjtError(
            f"{source} is neither a folder nor a file of a known kind ({suffixes}).",
            code="wrong_file",
        )
    return "table" if kind == "features" and of_images and table.is_table(source) else kind


# What ``srjt.train`` and ``srjt.predict`` accept as data, read into a manifest.

PathLike: TypeAlias = str | os.PathLike[str]
# (images or features, grades) as a pair; a dataset returns (image, label)
LabelledData: TypeAlias = Manifest | PathLike | pd.DataFrame | tuple[Any, Any] | TorchDataset
# several paths; arrays of images or features
UnlabelledData: TypeAlias = (
    Manifest | PathLike | Sequence[PathLike] | pd.DataFrame | npt.NDArray[Any] | TorchDataset
)
KNOWN = "a manifest, a path, a DataFrame, arrays or a torch dataset"
FILES = (str, os.PathLike, pd.DataFrame)


def labelled_samples(
    data: LabelledData,
    *,
    grades: Sequence[str] | None = None,
    on_bad_image: OnBadImage = "error",
    progress: ProgressOption = True,
) -> Manifest:
    """The samples and their grades. on_bad_image: stop at a row that cannot be used, or leave it
    out."""
    if isinstance(data, Manifest):
        samples = data
    elif isinstance(data, FILES):
        samples = read_source(data, grades=grades, progress=progress)
    elif isinstance(data, tuple) and len(data) == 2:
        samples = from_arrays(data[0], data[1], names=grades)
    elif isinstance(data, np.ndarray):
        raise SrjtError(
            "An array has no grades: pass the pair (images, grades).", code="wrong_type"
        )
    elif assemble.is_dataset(data):
        samples = from_arrays(*assemble.dataset_arrays(data, labelled=True), names=grades)
    else:
        raise SrjtError(f"Data are {KNOWN}; got {type(data).__name__}.", code="wrong_type")
    return drop_unusable(samples, on_bad_image=on_bad_image)


def unlabelled_samples(
    data: UnlabelledData,
    *,
    features: bool,
    wanted: Sequence[str] = (),
    columns: Sequence[str] = (),
    grades: tuple[str, ...] = ("0", "1"),
    progress: ProgressOption = False,
    **options: Any,
) -> Manifest:
    """The samples to predict; each gets the mildest grade as a placeholder.

    features: whether rows of features are wanted, or images; wanted: the names of the features, if
    they have names. columns: further columns to keep, where there are some. options: of
    ``read_images`` or ``read_ungraded_features``.
    """
    if isinstance(data, Manifest):
        return data
    sources = [data] if isinstance(data, FILES) else data
    if isinstance(sources, (list, tuple)) and all(isinstance(source, FILES) for source in sources):
        if not sources:
            raise SrjtError("The list of paths is empty.", code="too_few")
        if not features:
            return folders.read_images(
                sources, columns=columns, grades=grades, progress=progress, **options
            )
        if len(sources) > 1:
            raise SrjtError(
                "This run reads features: give one file of features at a time.", code="unsupported"
            )
        source = sources[0] if isinstance(sources[0], pd.DataFrame) else Path(sources[0])
        return read_ungraded_features(
            source, wanted=wanted, columns=columns, grades=grades, **options
        )
    array = assemble.dataset_arrays(data)[0] if assemble.is_dataset(data) else data
    if not isinstance(array, np.ndarray):
        raise SrjtError(f"Data are {KNOWN}; got {type(data).__name__}.", code="wrong_type")
    ids = list(map(str, range(len(array))))
    return Manifest(
        table=pd.DataFrame({"id": ids, "image": ids, "grade": 0}),
        grades=grades,
        arrays=as_features(array) if array.ndim == 2 else assemble.as_colour(array),
    )
