"""Features with grades, from ``srjt features`` or other programs: .npz, .npy with a table of labels, tables."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.features import as_features
from srjt.data.grades import as_text
from srjt.data.manifest import Manifest
from srjt.data.sources.assemble import GRADED, Reading, assemble
from srjt.data.sources.columns import check_wanted, choose_columns, one_column
from srjt.data.sources.consensus_rows import check_several_readings, consensus_rows
from srjt.data.sources.feature_files import SINGULAR, FeatureFile, open_features
from srjt.data.sources.table import check_split_column, other_columns
from srjt.data.sources.text_table import TextTable, load
from srjt.errors import SrjtError, count_of

__all__ = [
    "graded_features",
    "pack_features",
    "read_features",
    "read_ungraded_features",
    "ungraded_features",
]


def read_features(
    path: Path,
    *,
    labels: Path | None = None,
    feature_columns: str | Sequence[str] | None = None,
    images: Path | None = None,
    image_column: str | None = None,
    grade_column: str | Sequence[str] | None = None,
    patient_column: str | None = None,
    true_grade_column: str | None = None,
    verified_grade_column: str | None = None,
    split_column: str | None = None,
    grades: Sequence[str] | None = None,
    several_readings: str | None = None,
    reader_column: str | None = None,
    reference_column: str | None = None,
) -> Reading:
    """Read features (N, F) with their grades.

    ``labels`` is a table of grades, matched by id if both have ids, else row by row; for a .npy file it defaults
    to the CSV file of the same name. ``feature_columns`` are patterns for the feature columns of a table.
    """
    found = open_features(path, feature_columns)
    beside = path.with_suffix(".csv")
    if labels is None and path.suffix.lower() == ".npy" and beside.is_file():
        labels = beside
    readings = None
    table = _load_labels(labels) if labels is not None else None
    if check_several_readings(
        several_readings,
        grade_column=grade_column,
        reader_column=reader_column,
        reference_column=reference_column,
    ):
        if table is None or labels is None:
            raise SrjtError(
                "`several_readings='consensus'` combines the readings of a table: give it with `labels`."
            )
        combined = consensus_rows(
            table,
            source=labels.name,
            grades=grades,
            image_column=image_column,
            grade_column=grade_column,
            reader_column=reader_column,
            patient_column=patient_column,
            reference_column=reference_column,
        )
        table, grade_column, grades = combined.table, combined.grade_column, combined.readings.grades
        readings = combined.readings
    if labels is not None and table is not None:
        found = _joined(found, table, labels=labels, path=path)
    if not len(found.frame.columns):
        raise SrjtError(
            f"{path} has features but no grades: give them as an array named grades (.npz), in {beside.name} in the "
            "same folder, or in any table with `labels`."
        )
    given = {
        "image": image_column,
        "grade": one_column(grade_column),
        "patient": patient_column,
        "true_grade": true_grade_column,
        "verified_grade": verified_grade_column,
        "split": split_column,
    }
    root = (images or path.parent).absolute()
    reading = graded_features(found, given, source=(labels or path).name, root=root, grades=grades)
    if images is not None and not any(os.path.isfile(image) for image in reading.manifest.paths):
        raise SrjtError(
            f"{path.name} has features, and no row of it names an image in {images}: leave out `images`, or name the "
            "column with `image_column`."
        )
    if readings is not None and not set(reading.manifest.ids) <= set(readings.items):
        readings = None  # matched row by row
    return replace(reading, readings=readings)


def graded_features(
    found: FeatureFile,
    given: Mapping[str, str | None],
    *,
    source: str,
    root: Path,
    grades: Sequence[str] | None,
) -> Reading:
    """The samples of a file, or of a table in memory. given: the column of each role, as in ``choose_columns``."""
    chosen, notes = choose_columns(list(found.frame.columns), given, source=source, required=("grade",))
    notes = check_split_column(found.frame, chosen, notes, given=given["split"] is not None)
    reading = assemble(
        _rows(found, chosen),
        kind="features",
        root=root,
        grades=grades if grades is not None else found.names,
        lines=found.lines,
        notes=[*found.notes, *notes],
        arrays=found.features,
    )
    manifest = replace(reading.manifest, feature_names=found.feature_names, made=found.made)
    return replace(reading, manifest=manifest)


def read_ungraded_features(
    path: Path,
    *,
    feature_columns: str | Sequence[str] | None = None,
    patient_column: str | None = None,
    wanted: Sequence[str] = (),
    columns: Sequence[str] = (),
    grades: tuple[str, ...] = ("0", "1"),
) -> Manifest:
    """Read features for prediction. Every sample gets the mildest grade as a placeholder.

    wanted: the names of the features of the run. columns: further columns to keep, where the file has them.
    """
    found = open_features(path, feature_columns, wanted=wanted)
    given = {"patient": patient_column}
    return ungraded_features(
        found, given, source=path.name, root=path.parent.absolute(), columns=columns, grades=grades
    )


def ungraded_features(
    found: FeatureFile,
    given: Mapping[str, str | None],
    *,
    source: str,
    root: Path,
    columns: Sequence[str],
    grades: tuple[str, ...],
) -> Manifest:
    """The samples to predict of a file, or of a table in memory."""
    chosen, _ = choose_columns(list(found.frame.columns), given, source=source, required=())
    rows = _rows(found, {role: column for role, column in chosen.items() if role == "image"})
    table = rows[["id", "image"]].assign(grade=0)
    if "patient" in chosen:
        table["patient"] = found.frame[chosen["patient"]].to_numpy()
    for name in columns:
        if name in found.frame:  # the file's own id, image and grade get another name
            table[f"{name}_source" if name in table else name] = found.frame[name].to_numpy()
    check_wanted(columns, table, known=list(map(str, found.frame.columns)))
    return Manifest(
        table=table,
        grades=grades,
        root=root,
        arrays=found.features,
        feature_names=found.feature_names,
        made=found.made,
    )


def pack_features(manifest: Manifest, *, graded: bool = True) -> bytes:
    """The content of a .npz file that ``read_features`` reads. Grades are stored by name, image paths as absolute.

    graded: False if the grades are placeholders, which are left out.
    """
    assert manifest.arrays is not None
    assert manifest.are_features
    table = manifest.table
    contents: dict[str, npt.NDArray[np.generic]] = {"features": as_features(manifest.arrays)}
    for column in table.columns if graded else table.columns.drop("grade"):
        texts = [as_text(value) for value in table[column]]
        if column in GRADED:
            texts = [manifest.grades[grade] if grade >= 0 else "" for grade in table[column]]
        elif column == "image":
            texts = [_absolute(manifest.root, name) for name in texts]
        contents[_plural(str(column))] = np.array(texts, dtype=str)
    if graded:
        contents["grade_names"] = np.array(manifest.grades, dtype=str)
    if manifest.feature_names:
        contents["feature_names"] = np.array(manifest.feature_names, dtype=str)
    contents["made"] = np.array(manifest.made, dtype=str)
    buffer = io.BytesIO()
    np.savez(buffer, **contents)  # type: ignore[arg-type]
    return buffer.getvalue()


def _load_labels(labels: Path) -> TextTable:
    if not os.path.isfile(labels):
        raise SrjtError(f"The table of labels {labels} does not exist.")
    return load(labels)


def _joined(found: FeatureFile, table: TextTable, *, labels: Path, path: Path) -> FeatureFile:
    """Add the columns of ``table``, read from ``labels``, to ``found``. If both have a column, the table's is used."""
    frame = table.frame.rename(columns=SINGULAR)
    count = len(found.features)
    matched = _by_id(found.frame, frame, path=path, labels=labels)
    if matched is None:
        if table.problems:
            raise SrjtError(f"{labels}, {table.problems[0].where}: {table.problems[0].detail}.")
        if len(frame) != count:
            raise SrjtError(
                f"{path.name} has {count_of(count, 'row')} of features and {labels.name} "
                f"{count_of(len(frame), 'row')} of labels: give equal numbers in the same order, or ids in both."
            )
        note, lines, joined = "row by row", table.lines, frame
    else:
        column, order = matched
        # A row of features without a label becomes a row without a grade, which is reported as usual.
        joined = frame.drop(columns=column).reindex([-1 if at is None else at for at in order])
        joined = joined.fillna("").reset_index(drop=True)
        lines = [table.lines[at] if at is not None else found.lines[row] for row, at in enumerate(order)]
        unused = len(frame) - len({at for at in order if at is not None})
        note = "by id" + (f"; {count_of(unused, 'row')} of it without features" if unused else "")
    kept = found.frame.drop(columns=[c for c in found.frame.columns if c in joined.columns])
    if "grade" in kept and "grade" not in joined:
        kept = kept.drop(columns="grade")  # the table has the grade under another name, such as label
    return replace(
        found,
        frame=pd.concat([joined, kept.reset_index(drop=True)], axis=1),
        lines=lines,
        notes=[*found.notes, f"labels from {labels.name}, {note}", *table.notes],
    )


def _by_id(
    ours: pd.DataFrame, theirs: pd.DataFrame, *, path: Path, labels: Path
) -> tuple[str, list[int | None]] | None:
    """The id column of the table, and its row for each row of features; None without ids."""
    keys = [
        (a, b) for a in ("id", "image") for b in ("id", "sample_id", "image") if a in ours and b in theirs
    ]
    if not keys:
        return None
    for mine, its in keys:
        place: dict[str, int] = {}
        for row, name in enumerate(theirs[its]):
            if place.setdefault(name, row) != row and name:
                raise SrjtError(f"{labels} has two rows for the id {name!r}.")
        order = [place.get(name) for name in ours[mine]]
        if any(at is not None for at in order):
            return its, order
    mine, its = keys[0]
    raise SrjtError(
        f"No {mine} of {path.name} (the first is {ours[mine].iloc[0]!r}) is among the {its}s of {labels.name} (the "
        f"first is {theirs[its].iloc[0]!r})."
    )


def _rows(found: FeatureFile, chosen: Mapping[str, str]) -> pd.DataFrame:
    """The columns of the manifest, as text; missing ids and images are filled in."""
    frame, count = found.frame, len(found.features)
    own = next((c for c in frame.columns if c.casefold() in ("id", "sample_id")), None)
    ids = [str(row) for row in range(count)] if own is None else frame[own].tolist()
    if own is None and "image" in chosen and frame[chosen["image"]].is_unique:
        ids = frame[chosen["image"]].tolist()
    images = frame[chosen["image"]].tolist() if "image" in chosen else ids
    cells = {role: frame[column] for role, column in chosen.items()} | {
        "image": [image or name for image, name in zip(images, ids, strict=True)]
    }
    return pd.DataFrame({"id": ids, **cells, **other_columns(frame, chosen, own)})


def _plural(column: str) -> str:
    return {
        "grade": "grades",
        "true_grade": "true_grades",
        "verified_grade": "verified_grades",
        "patient": "patients",
        "image": "images",
        "id": "ids",
        "file": "file_",  # parameters of np.savez, which no array can be named after
        "allow_pickle": "allow_pickle_",
    }.get(column, column)


def _absolute(root: Path, name: str) -> str:
    """The absolute path of the image if the file exists; otherwise the name unchanged."""
    path = (root / name).absolute()
    return str(path) if os.path.isfile(path) else name  # no file if the name is too long
