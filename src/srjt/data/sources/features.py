"""Samples of a table: one row per image, or one row of features per sample, from ``srjt features``
or other programs: .npz, .npy with a table of labels, tables with one column per feature.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import zipfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import as_text
from srjt.data.manifest import GRADED, Features, Manifest, as_features, match_names
from srjt.data.names import join_names, one_spelling
from srjt.data.options import ReadOptions
from srjt.data.sources import table as tables
from srjt.data.sources.assemble import assemble
from srjt.data.sources.readings import READING_SYNONYMS, combines_readings, consensus_rows
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


# Samples of a table: with grades for training, without for prediction.


def read_table(source: Path | pd.DataFrame, options: ReadOptions) -> Manifest:
    """Read a table, or ``labels.csv`` in a folder.

    Image names are relative to ``images``, or to the table (in memory: to the present folder), or
    to a folder such as ``train_images`` in them.
    """
    return _graded(load_table(source), options)


def read_features(source: Path | pd.DataFrame, options: ReadOptions) -> Manifest:
    """Read features (N, F) with their grades.

    ``labels`` is a table of grades, matched by id if both have ids, else row by row; for a .npy
    file it defaults to the CSV file of the same name. ``feature_columns`` are patterns for the
    feature columns of a table.
    """
    table = open_features(source, options.feature_columns)
    path = options.labels
    beside = table.folder / f"{Path(table.name).stem}.csv"
    if path is None and table.name.lower().endswith(".npy") and beside.is_file():
        path = beside
    labels = None
    if path is not None:
        if not os.path.isfile(path):
            raise SrjtError(
                f"The table of labels {path} does not exist.", code="missing_file", option="labels"
            )
        labels = load_table(path)
    elif options.several_readings == "consensus":
        raise SrjtError(
            Option("several_readings", "consensus"),
            " needs a table of readings: give it with ",
            Option("labels"),
            ".",
            code="missing_option",
        )
    elif not len(table.frame.columns):
        raise SrjtError(
            f"{table.name} has no grades: add an array named grades, {beside.name} beside it, or"
            " any table by ",
            Option("labels"),
            ".",
            code="missing_option",
        )
    samples = _graded(table, options, labels=labels)
    if options.images is not None and not any(map(os.path.isfile, samples.paths)):
        raise SrjtError(
            f"No row of {table.name} names an image in {options.images}: leave out ",
            Option("images"),
            ", or give ",
            Option("image_column"),
            ".",
            code="no_match",
        )
    return samples


def _graded(table: Table, options: ReadOptions, *, labels: Table | None = None) -> Manifest:
    """The samples of a table of images or features. labels: another table, which has their
    grades."""
    of_images = table.features is None
    graded = labels or table
    given = options.roles
    grades = options.grades
    readings = None
    if combines_readings(options, graded):
        graded, given["grade"], readings = consensus_rows(graded, options)
        grades = readings.grades
    table = graded if labels is None else _joined(table, graded)
    frame = table.frame
    root = (options.images or table.folder).absolute()
    id_column = _id_column(frame)
    chosen, notes = tables.choose_columns(
        table, given, required=tables.REQUIRED if of_images else ("grade",)
    )
    split = chosen.get("split")
    if split is not None and not tables.is_split(frame[split], given=given["split"] is not None):
        del chosen["split"], notes["split"]
    if of_images:
        ids = [tables.relative_name(name, root) for name in frame[chosen["image"]]]
        root, images, ambiguous = tables.find_images(ids, root)
        problems = [*table.problems, *ambiguous]
        if id_column in chosen.values() or not _is_key(frame, id_column):
            id_column = None  # the image is the id
        else:
            ids = frame[id_column].tolist()
        if readings is not None:
            for role in ("image", "grade", "patient"):  # its notes tell of these columns already
                notes.pop(role, None)
            readings = replace(readings, items=ids)
        where = table.name if table.name == IN_MEMORY else f"table {table.name}"
        about = [f"{where}, images below {root}", *table.notes]
    else:
        ids, images = _ids_and_images(frame, chosen.get("image"))
        problems = []
        about = table.notes
    if grades is None:
        grades = table.scales.get(chosen["grade"], table.grades)
    samples = assemble(
        _cells(frame, chosen, ids=ids, images=images, id_column=id_column),
        kind="table" if of_images else "features",
        root=root,
        grades=grades,
        lines=table.lines,
        notes=[*about, *notes.values()],
        problems=problems,
        arrays=table.features,
    )
    report = samples.report
    if readings is not None and of_images:
        report = replace(report, notes=report.notes[:-1])  # the scale is not listed twice
    elif readings is not None and not set(samples.ids) <= set(readings.items):
        readings = None  # matched row by row
    return replace(
        samples,
        feature_names=table.feature_names,
        made=table.made,
        report=replace(report, readings=readings),
    )


def _cells(
    frame: pd.DataFrame,
    chosen: dict[str, str],
    *,
    ids: list[str],
    images: list[str],
    id_column: str | None,
) -> pd.DataFrame:
    """The columns by their roles, and the others."""
    cells: dict[str, Any] = {"id": ids}
    for role, column in chosen.items():
        cells[role] = frame[column]
    cells["image"] = images
    cells |= tables.other_columns(frame, {*chosen.values(), id_column})
    return pd.DataFrame(cells)


def _is_key(frame: pd.DataFrame, column: str | None) -> bool:
    """Whether every row has its own text in this column."""
    if column is None:
        return False
    return frame[column].is_unique and not (frame[column] == "").any()


def read_ungraded_features(
    source: Path | pd.DataFrame,
    *,
    wanted: Sequence[str] = (),
    columns: Sequence[str] = (),
    grades: tuple[str, ...] = ("0", "1"),
    **options: Any,
) -> Manifest:
    """Read features for prediction, from a file or a table. Every sample gets the mildest grade as
    a placeholder.

    wanted: the names of the features of the run. columns: further columns to keep, where the source
    has them. options: feature_columns and patient_column of ``ReadOptions``.
    """
    read_options = ReadOptions.of(options)
    table = open_features(source, read_options.feature_columns, wanted=wanted)
    chosen, _ = tables.choose_columns(table, {"patient": read_options.patient_column}, required=())
    ids, images = _ids_and_images(table.frame, chosen.get("image"))
    rows = pd.DataFrame({"id": ids, "image": images, "grade": 0})
    if "patient" in chosen:
        rows["patient"] = one_spelling(table.frame[chosen["patient"]].tolist())
    rows = pd.concat([rows, tables.kept_columns(table.frame, columns)], axis=1)
    tables.check_wanted(columns, rows, known=list(table.frame.columns))
    return Manifest(
        table=rows,
        grades=grades,
        root=table.folder.absolute(),
        arrays=table.features,
        feature_names=table.feature_names,
        made=table.made,
    )


def _id_column(frame: pd.DataFrame) -> str | None:
    for name in frame.columns:
        if name.casefold() in ("id", "sample_id"):
            return str(name)
    return None


def _ids_and_images(frame: pd.DataFrame, image_column: str | None) -> tuple[list[str], list[str]]:
    """(N,) the id and the image of each row of features; where one is missing, the other or the
    row's number."""
    ids = list(map(str, range(len(frame))))
    if (id_column := _id_column(frame)) is not None:
        ids = frame[id_column].tolist()
    if image_column is None:
        return ids, ids
    images = frame[image_column]
    if id_column is None and images.is_unique:
        ids = images.tolist()
    return ids, [image or name for image, name in zip(images, ids, strict=True)]


def _joined(table: Table, labels: Table) -> Table:
    """Features with the columns of a table of labels. If both have a column, that of the labels is
    used."""
    frame = labels.frame.rename(columns=SINGULAR)
    lines = list(labels.lines)
    if (matched := _by_id(table, frame, labels=labels.name)) is None:
        if labels.problems:
            raise SrjtError(
                f"{labels.name}, {labels.problems[0].where}: {labels.problems[0].detail}.",
                code="wrong_file",
                option="labels",
            )
        if len(frame) != len(table.lines):
            raise SrjtError(
                f"{table.name} has {len(table.lines):,} rows, {labels.name} {len(frame):,}: give"
                " equal numbers, or ids.",
                code="wrong_shape",
                option="labels",
            )
        note = "row by row"
    else:
        column, order = matched
        # A row of features without a label becomes a row without a grade, which is reported as
        # usual.
        unused = len(frame) - len(set(order[order >= 0]))
        frame = frame.drop(columns=column).reindex(order).fillna("").reset_index(drop=True)
        lines = list(table.lines)
        for row in np.flatnonzero(order >= 0):
            lines[row] = labels.lines[order[row]]
        note = "by id"
        if unused:
            note += f"; {count_of(unused, 'row')} of it without features"
    # the labels may have the grade under another name, such as label
    others = table.frame.drop(columns=[*frame.columns, "grade"], errors="ignore")
    return replace(
        table,
        name=labels.name,
        frame=pd.concat([frame, others], axis=1),
        lines=lines,
        notes=[*table.notes, f"labels from {labels.name}, {note}", *labels.notes],
    )


def _by_id(
    table: Table, frame: pd.DataFrame, *, labels: str
) -> tuple[str, npt.NDArray[np.int64]] | None:
    """The id column of the labels, and their row for each row of features, −1: none; None without
    ids."""
    ours = [name for name in ("id", "image") if name in table.frame]
    theirs = [name for name in ("id", "sample_id", "image") if name in frame]
    keys = list(itertools.product(ours, theirs))
    ambiguous: SrjtError | None = None
    for mine, its in keys:
        ids = frame[its]
        if (twice := ids[ids.duplicated() & (ids != "")]).size:
            raise SrjtError(
                f"{labels} has two rows for the id {twice.iloc[0]!r}.",
                code="not_unique",
                option="labels",
            )
        try:
            order = join_names(
                table.frame[mine].tolist(), ids.tolist(), wanted_in=table.name, known_in=labels
            )
        except SrjtError as problem:  # another pair of columns may be clear
            ambiguous = ambiguous or problem
            continue
        if (order >= 0).any():
            return its, order
    if not keys:
        return None
    if ambiguous is not None:
        raise ambiguous
    mine, its = keys[0]
    raise SrjtError(
        f"No {mine} of {table.name} is among the {its}s of {labels}; the first are"
        f" {table.frame[mine].iloc[0]!r} and {frame[its].iloc[0]!r}.",
        code="no_match",
        option="labels",
    )


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
