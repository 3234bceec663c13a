"""Samples of a table of images or of features: with grades for training, without for prediction."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.manifest import Manifest
from srjt.data.names import join_names, one_spelling
from srjt.data.options import ReadOptions
from srjt.data.sources import table as tables
from srjt.data.sources.assemble import assemble
from srjt.data.sources.consensus_rows import combines_readings, consensus_rows
from srjt.data.sources.features import SINGULAR, open_features
from srjt.data.sources.table import IN_MEMORY, Table, load_table
from srjt.errors import Option, SrjtError, count_of


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
