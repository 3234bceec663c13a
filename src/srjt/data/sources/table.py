"""Labels in a CSV, TSV, Excel or Parquet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from srjt.data.formulas import warn_about_formulas
from srjt.data.manifest import Manifest
from srjt.data.sources.assemble import GRADED, SPLIT_NAMES, Reading, assemble
from srjt.data.sources.columns import choose_columns, one_column
from srjt.data.sources.consensus_rows import check_several_readings, consensus_rows
from srjt.data.sources.image_files import find_image_folder, locate_images, relative_name
from srjt.data.sources.reading_columns import refuse_columns_of_readers
from srjt.data.sources.text_table import TABLE_SUFFIXES, TextTable, from_frame, load
from srjt.errors import SrjtError
from srjt.files import write_output

__all__ = ["CANONICAL", "check_split_column", "is_table", "other_columns", "read_table", "write_table"]

IN_MEMORY = "the table"
CANONICAL = ("id", "image", "grade", "patient", "true_grade", "verified_grade", "split")


def is_table(path: Path) -> bool:
    """Whether this is a table, or a folder with a ``labels.csv``."""
    return (path / "labels.csv").is_file() if path.is_dir() else path.suffix.lower() in TABLE_SUFFIXES


def read_table(
    path: Path | pd.DataFrame,
    *,
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
    """Read the table ``path``, or ``labels.csv`` in it, or a table in memory.

    Image names are relative to ``images``, or to the table (in memory: to the present folder), or to a folder such as
    ``train_images`` in them.
    """
    loaded, source, folder = _load(path)
    combined = None
    if check_several_readings(
        several_readings,
        grade_column=grade_column,
        reader_column=reader_column,
        reference_column=reference_column,
    ):
        combined = consensus_rows(
            loaded,
            source=source,
            grades=grades,
            image_column=image_column,
            grade_column=grade_column,
            reader_column=reader_column,
            patient_column=patient_column,
            reference_column=reference_column,
        )
        loaded, grade_column, grades = combined.table, combined.grade_column, combined.readings.grades
    given = {
        "image": image_column,
        "grade": one_column(grade_column),
        "patient": patient_column,
        "true_grade": true_grade_column,
        "verified_grade": verified_grade_column,
        "split": split_column,
    }
    if given["grade"] is None:
        refuse_columns_of_readers(loaded.frame, source=source)
    chosen, notes = choose_columns(list(loaded.frame.columns), given, source=source, frame=loaded.frame)
    notes = check_split_column(loaded.frame, chosen, notes, given=split_column is not None)
    if combined:  # its notes tell of these columns already
        notes = [note for note in notes if not note.startswith(("image:", "grade:", "patient:"))]

    root = (images or folder).absolute()
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
    return load(path), path.name, path.parent


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
