"""Labels in a CSV, TSV, Excel or Parquet file: one row per image, or one row per image with the consensus of its
readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.data.manifest import POSTERIOR, Manifest, warn_about_formulas
from srjt.data.options import ReadOptions
from srjt.data.problems import Problem
from srjt.data.sources.assemble import GRADED, SPLIT_NAMES, LoadedData, assemble
from srjt.data.sources.columns import (
    TABLE_SUFFIXES,
    TextTable,
    choose_columns,
    find_image_folder,
    from_frame,
    load_table,
    locate_images,
    relative_name,
)
from srjt.data.sources.readings import ReadingsTable, combine, readings_of, refuse_columns_of_readers
from srjt.errors import SrjtError
from srjt.files import write_output
from srjt.readers.consensus import Consensus
from srjt.readers.readings import Readings

# One row per image with the consensus of its readers, from a table with several readings of each image.


@dataclass(frozen=True, kw_only=True)
class ConsensusRows:
    """A table with one row per image, in the order of the readings' items, and the column of the consensus."""

    table: TextTable
    grade_column: str
    readings: Readings


def combines_readings(options: ReadOptions) -> bool:
    """Whether the readings of an image are combined. An error for options without effect."""
    if options.several_readings == "consensus":
        return True
    columns = options.grade_column
    if isinstance(columns, tuple) and len(columns) > 1:
        raise SrjtError(
            f"`grade_column` names {len(columns)} columns: add `several_readings='consensus'` to combine them, or "
            "choose one."
        )
    for name in ("reader_column", "reference_column"):
        if getattr(options, name) is not None:
            raise SrjtError(
                f"`{name}` is for several readings of an image: add `several_readings='consensus'`, or "
                "leave it out."
            )
    return False


def consensus_rows(loaded: TextTable, options: ReadOptions, *, source: str) -> ConsensusRows:
    """Combine the readings of each image.

    The grade of an image is the consensus of its readers. The columns ``readings`` (how many), ``certainty`` and
    ``p_true_0`` … (the probability of each true grade) are added; those that differ between the readings of an image
    are left out.
    """
    names = ("image_column", "grade_column", "reader_column", "patient_column", "reference_column")
    columns = {name: getattr(options, name) for name in names}
    reading = readings_of(loaded, source=source, grades=options.grades, images=True, **columns)
    agreed = combine(reading.readings)
    rows, chosen = reading.row_items, reading.columns
    read = np.flatnonzero(rows >= 0)
    first = read[np.unique(rows[read], return_index=True)[1]]  # of each item
    column = "consensus_grade" if chosen.wide else chosen.grades[""]
    varying = _varying(reading)
    dropped = {*varying, column}
    kept = [name for name in reading.frame.columns if name not in dropped]
    table = reading.frame[kept].iloc[first].reset_index(drop=True)
    added = _columns(agreed, reading)
    table = table.rename(columns={name: f"{name}_source" for name in added if name in table})
    table[column] = [reading.readings.grades[grade] for grade in agreed.grade]
    left_out = f"; left out, because they differ between readings: {', '.join(varying)}" if varying else ""
    notes = [*reading.notes, f"grade: the consensus of the readings of each {chosen.noun}{left_out}"]
    unread = [
        Problem("missing-grade", reading.lines[row], "no reading of this image can be used")
        for row in np.flatnonzero(rows < 0).tolist()
        if chosen.item is None or reading.frame[chosen.item].iloc[row]
    ]
    return ConsensusRows(
        table=replace(
            loaded,
            frame=pd.concat([table, added], axis=1),
            lines=[reading.lines[row] for row in first],
            problems=[*reading.problems, *unread],
            notes=notes,
        ),
        grade_column=column,
        readings=reading.readings,
    )


def _varying(reading: ReadingsTable) -> list[str]:
    """The columns that describe a reading, not an image; the image's own and its patient's are kept."""
    chosen = reading.columns
    always = {chosen.reader, chosen.date} - {None}
    own = {chosen.item, chosen.group, *chosen.grades.values()} | always
    others = [name for name in reading.frame.columns if name not in own]
    read = reading.row_items >= 0
    groups = reading.frame.loc[read, others].groupby(reading.row_items[read])
    differ = {name for name in others if groups[name].nunique().max() > 1}
    return [name for name in reading.frame.columns if name in always | differ]


def _columns(agreed: Consensus, reading: ReadingsTable) -> pd.DataFrame:
    readings = reading.readings
    count = np.bincount(readings.item, minlength=len(readings.items))
    cells = {
        "readings": [str(number) for number in count],
        "certainty": [f"{p:.6f}" for p in agreed.certainty],
    }
    for grade in range(len(readings.grades)):
        cells[POSTERIOR.format(grade)] = [f"{p:.9f}" for p in agreed.posterior[:, grade]]
    return pd.DataFrame(cells, dtype=str)


# Labels in a CSV, TSV, Excel or Parquet file.

IN_MEMORY = "the table"
CANONICAL = ("id", "image", "grade", "patient", "true_grade", "verified_grade", "split")


def is_table(path: Path) -> bool:
    """Whether this is a table, or a folder with a ``labels.csv``."""
    return (path / "labels.csv").is_file() if path.is_dir() else path.suffix.lower() in TABLE_SUFFIXES


def read_table(path: Path | pd.DataFrame, options: ReadOptions) -> LoadedData:
    """Read the table ``path``, or ``labels.csv`` in it, or a table in memory.

    Image names are relative to ``images``, or to the table (in memory: to the present folder), or to a folder such as
    ``train_images`` in them.
    """
    loaded, source, folder = _load(path)
    combined, given, grades = None, options.roles, options.grades
    if combines_readings(options):
        combined = consensus_rows(loaded, options, source=source)
        loaded, grades = combined.table, combined.readings.grades
        given["grade"] = combined.grade_column
    if given["grade"] is None:
        refuse_columns_of_readers(loaded.frame, source=source)
    chosen, notes = choose_columns(list(loaded.frame.columns), given, source=source, frame=loaded.frame)
    notes = check_split_column(loaded.frame, chosen, notes, given=options.split_column is not None)
    if combined:  # its notes tell of these columns already
        notes = [note for note in notes if not note.startswith(("image:", "grade:", "patient:"))]

    root = (options.images or folder).absolute()
    names = [relative_name(name, root) for name in loaded.frame[chosen["image"]]]
    root = find_image_folder(names, root)
    located, problems = locate_images(names, root)
    ids, id_column = _ids(loaded.frame, set(chosen.values()), names)
    cells = {role: loaded.frame[column] for role, column in chosen.items()} | {"image": located}
    reading = assemble(
        pd.DataFrame({"id": ids, **cells, **other_columns(loaded.frame, chosen, id_column)}),
        kind="table",
        root=root,
        grades=grades,
        lines=loaded.lines,
        notes=[
            f"{source if source == IN_MEMORY else f'table {source}'}, images below {root}",
            *loaded.notes,
            *notes,
        ],
        problems=[*loaded.problems, *problems],
    )
    if combined is None:
        return reading
    return replace(
        reading,
        notes=reading.notes[:-1],  # the scale is not listed twice
        readings=replace(combined.readings, items=ids),
    )


def _load(table: Path | pd.DataFrame) -> tuple[TextTable, str, Path]:
    """The cells, the name of the table for messages, and its folder."""
    if isinstance(table, pd.DataFrame):
        if not len(table):
            raise SrjtError("The table has no rows.")
        return from_frame(table), IN_MEMORY, Path()
    path = table / "labels.csv" if table.is_dir() else table
    if table.is_dir() and not path.is_file():
        raise SrjtError(f"{table} is a folder without a labels.csv: give the path of the table.")
    return load_table(path), path.name, path.parent


def write_table(manifest: Manifest, path: Path) -> None:
    """Write a manifest as a CSV file that ``read_table`` reads without options.

    Grades are written by name. Image paths are relative to the file's folder, or absolute if they are elsewhere.
    """
    table = manifest.table.copy()
    for column in GRADED:
        if column in table:
            table[column] = [manifest.grades[grade] if grade >= 0 else "" for grade in table[column]]
    if manifest.arrays is None:
        table["image"] = [_path_from(path.parent.absolute(), image.absolute()) for image in manifest.paths]
    warn_about_formulas(table, path)
    write_output(
        path, table.to_csv(index=False).encode("utf-8", "surrogateescape")
    )  # file names may be any bytes


def _path_from(folder: Path, image: Path) -> str:
    # Never with "..", which is wrong below a linked folder.
    return (image.relative_to(folder) if image.is_relative_to(folder) else image).as_posix()


def _ids(frame: pd.DataFrame, taken: set[str], names: list[str]) -> tuple[list[str], str | None]:
    """The ids of the table if it has unique ones in a column that is not otherwise used, else the image names."""
    for column in frame.columns:
        if column.casefold() in ("id", "sample_id") and column not in taken:
            own = frame[column]
            if own.is_unique and (own != "").all():
                return own.tolist(), str(column)
    return names, None


def other_columns(
    frame: pd.DataFrame, chosen: Mapping[str, str], id_column: str | None
) -> dict[str, pd.Series[str]]:
    """The columns without a role, to be kept. A table is made of them at once: one by one takes quadratic time."""
    taken = {*chosen.values(), id_column}
    return {
        f"{column}_source" if column in CANONICAL else column: frame[column]
        for column in map(str, frame.columns)
        if column not in taken
    }


def check_split_column(
    frame: pd.DataFrame, chosen: dict[str, str], notes: list[str], *, given: bool
) -> list[str]:
    """Check that the split column holds train, validation or test; one that was only guessed is dropped if not."""
    if "split" not in chosen:
        return notes
    values = {value.casefold() for value in frame[chosen["split"]]} - {""}
    strange = sorted(values - set(SPLIT_NAMES))
    if not strange and values:
        return notes
    if given:
        raise SrjtError(
            f"The column {chosen['split']!r} must contain train, validation or test; "
            f"it contains {', '.join(map(repr, strange[:5])) or 'nothing'}."
        )
    del chosen["split"]
    return [note for note in notes if not note.startswith("split:")]
