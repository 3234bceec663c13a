"""Labels in a CSV, TSV, Excel or Parquet file: one row per image, or one row per image with the consensus of its
readers; and the folder of ``srjt readers``, which ``srjt review`` reads too.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import BaseModel

from srjt.data.grades import Grades
from srjt.data.manifest import POSTERIOR, Manifest, Problem, neutralise_formula, warn_about_formulas
from srjt.data.options import ReadOptions
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
from srjt.files import (
    check_regular_file,
    explain_write_errors,
    read_json,
    write_atomically,
    write_json,
    write_output,
)
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


# The readings of some samples, in the order of the samples.


def select_readings(readings: Readings, ids: Sequence[str]) -> Readings:
    """The readings of these samples, which become the items in this order; the others are left out."""
    row_of = {name: row for row, name in enumerate(ids)}
    place = np.array([row_of.get(name, -1) for name in readings.items], dtype=np.int64)
    known = readings.rows(place[readings.item] >= 0)
    item_of = {name: item for item, name in enumerate(readings.items)}
    order = np.array([item_of.get(name, -1) for name in ids], dtype=np.int64)
    reference, groups = readings.reference, readings.groups
    return replace(
        known,
        items=list(ids),
        item=place[known.item],
        groups=None
        if groups is None
        else [groups[item] if item >= 0 else name for item, name in zip(order, ids, strict=True)],
        reference=None if reference is None else np.where(order >= 0, reference[order], -1),
    )


# The folder of ``srjt readers``, which ``srjt review`` reads too.
#
# readers.json     the scale, the readers with their effects, agreement, consensus in figures
# consensus.csv    one row per image: the consensus, its certainty and p_true_0 …; a table for srjt train
# readings.csv     one row per reading, with the probability that it is right
# worklist.csv     what to read next, and by whom
# report.html      the page

FORMAT = 3
_COMPUTED = ["consensus", "probability", "gain"]  # columns of readings.csv and worklist.csv


@dataclass(frozen=True, kw_only=True)
class ReadersFolder:
    """The images that several readers have graded, as far as a review needs them."""

    folder: Path
    grades: Grades
    ids: list[str]
    images: list[str]  # (I,) absolute; "" if there is no file
    readers: frozenset[str]
    line_of: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "line_of", {name: line for line, name in enumerate(self.ids)})


def consensus_table(
    reading: ReadingsTable, agreed: Consensus, *, images: list[str] | None = None
) -> pd.DataFrame:
    """One row per item: id, image, grade, patient, reference, readings, certainty, p_true_0 …

    images: (I,) the image of each item. Default: as the table names them.
    """
    readings, chosen = reading.readings, reading.columns
    table = pd.DataFrame({"id": _safe(readings.items), "image": _safe(images or item_images(reading))})
    table["grade"] = _cells(readings.grades, agreed.grade)
    if chosen.patient is not None and readings.groups is not None:
        table["patient"] = _safe(readings.groups)
    if readings.reference is not None:
        table["reference"] = _cells([*readings.grades, ""], readings.reference)
    table["readings"] = np.bincount(readings.item, minlength=len(readings.items))
    table["certainty"] = np.round(agreed.certainty, 6)
    for grade in range(len(readings.grades)):
        table[POSTERIOR.format(grade)] = np.round(agreed.posterior[:, grade], 9)
    return table


def readings_table(reading: ReadingsTable, agreed: Consensus) -> pd.DataFrame:
    """One row per reading, in the order of the source: item, reader, grade, date, … and how probable it is."""
    readings, chosen = reading.readings, reading.columns
    table = pd.DataFrame({chosen.noun: _cells(readings.items, readings.item)})
    if chosen.noun == "item" and chosen.image is not None:
        table["image"] = _safe(reading.frame[chosen.image].iloc[reading.rows].tolist())
    table["reader"] = _cells(readings.readers, readings.reader)
    table["grade"] = _cells(readings.grades, readings.grade)
    if readings.times is not None:
        table["date"] = ["" if np.isnat(time) else str(time) for time in readings.times]
    if chosen.patient is not None and readings.groups is not None:
        table["patient"] = _cells(readings.groups, readings.item)
    if readings.reference is not None:
        table["reference"] = _cells([*readings.grades, ""], readings.reference[readings.item])
    table["consensus"] = _cells(readings.grades, agreed.grade[readings.item])
    table["probability"] = np.round(agreed.posterior[readings.item, readings.grade], 6)
    return table


def worklist_table(wanted: pd.DataFrame, *, noun: str) -> pd.DataFrame:
    """What to read next (item, reader, gain) as a file: the item by its noun, and no formulas."""
    return pd.DataFrame(
        {
            noun: _safe(wanted["item"].tolist()),
            "reader": _safe(wanted["reader"].tolist()),
            "gain": wanted["gain"].round(6),
        }
    )


def item_images(reading: ReadingsTable) -> list[str]:
    """(I,) the image of each item, as the table names it."""
    column = reading.columns.image
    if column is None:
        return reading.readings.items
    rows = np.flatnonzero(reading.row_items >= 0)
    first = rows[np.unique(reading.row_items[rows], return_index=True)[1]]
    return [str(name) for name in reading.frame[column].iloc[first]]


def located_images(reading: ReadingsTable, directory: Path) -> list[str]:
    """(I,) the absolute path of each item's image below ``directory``; the name unchanged if there is no such file."""
    names = [relative_name(name, directory.absolute()) for name in item_images(reading)]
    root = find_image_folder(names, directory.absolute())
    located, _ = locate_images(names, root)
    folders: dict[str, set[str]] = {}  # a listing is much faster than a question for each of a million names

    def found_at(file: str) -> str:
        folder, name = os.path.split(file)
        if folder not in folders:
            place = os.path.join(root, folder)
            folders[folder] = set(os.listdir(place)) if os.path.isdir(place) else set()
        path = os.path.join(root, file) if name in folders[folder] else ""
        return path if os.path.isfile(path) else ""

    return [found_at(file) or name for name, file in zip(names, located, strict=True)]


def write_readers_folder(
    folder: Path, *, facts: dict[str, Any], tables: dict[str, pd.DataFrame], overwrite: bool = False
) -> None:
    """Write ``readers.json`` and the tables, by file name.

    A folder with other files is refused. One of the same readings is refreshed; one of other readings, or with another
    worklist, is refused unless ``overwrite``.
    """
    ours = {"readers.json", "report.html", "decisions.sqlite", "worklist.csv", *tables}
    if folder.is_dir() and not (folder / "readers.json").exists():
        others = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
        if set(others) - ours:
            raise SrjtError(f"{folder} contains other files: choose another `out`.")
    if not overwrite and (folder / "readers.json").exists():
        _refuse_other_readings(folder, facts, tables)
    with explain_write_errors(f"{folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            content = table.to_csv(index=False).encode("utf-8", "surrogateescape")
            write_atomically(folder / name, content, follow_links=False)
        write_json(folder / "readers.json", {"format": FORMAT, **facts})


def _refuse_other_readings(folder: Path, facts: dict[str, Any], tables: dict[str, pd.DataFrame]) -> None:
    """An error if the folder holds what would be lost."""
    before = read_reader_facts(folder)
    same_network = before["probabilities_sha256"] == facts["probabilities_sha256"]
    if not same_network or not _same(folder / "readings.csv", tables["readings.csv"]):
        raise SrjtError(
            f"{folder} contains the consensus of other readings or with another network: choose another `out`, or pass "
            "`overwrite=True` to overwrite it."
        )
    if "worklist.csv" in tables and not _same(folder / "worklist.csv", tables["worklist.csv"]):
        raise SrjtError(
            f"{folder / 'worklist.csv'} is another worklist, which somebody may be reading: choose another file with "
            "`worklist`, or pass `overwrite=True` to overwrite it."
        )


def _same(path: Path, table: pd.DataFrame) -> bool:
    """Whether the file is not there, or holds the same rows, except for what is computed."""
    if not path.exists():
        return True
    check_regular_file(path)
    written = io.StringIO(table.to_csv(index=False))
    form: dict[str, Any] = {"dtype": str, "keep_default_na": False, "encoding_errors": "surrogateescape"}
    try:
        old, new = pd.read_csv(path, **form), pd.read_csv(written, **form)
    except (OSError, ValueError):
        return False
    old, new = (frame.drop(columns=_COMPUTED, errors="ignore") for frame in (old, new))
    return bool(old.equals(new))


class _Reader(BaseModel, extra="allow"):
    name: str


class ReadersFile(BaseModel, extra="allow"):
    """``readers.json``."""

    format: Literal[3]
    grades: list[str]
    readers: list[_Reader]
    probabilities_sha256: str | None


def read_reader_facts(folder: Path) -> dict[str, Any]:
    """The contents of ``readers.json``."""
    file = read_json(folder / "readers.json", ReadersFile, advice="run srjt readers again")
    return file.model_dump(exclude_unset=True)


def read_readers_folder(folder: Path) -> ReadersFolder:
    """Read the folder that ``srjt readers … --out folder`` has written."""
    facts = read_reader_facts(folder)
    path = folder / "consensus.csv"
    check_regular_file(path)
    try:
        frame = pd.read_csv(
            path, usecols=["id", "image"], dtype=str, keep_default_na=False, encoding_errors="surrogateescape"
        )
    except (OSError, ValueError) as problem:
        raise SrjtError(f"{path} cannot be read ({problem}): run srjt readers again.") from None
    if not frame["id"].is_unique:
        raise SrjtError(f"{path} has no unique ids: run srjt readers again.")
    images = [name if os.path.isabs(name) else "" for name in frame["image"]]
    return ReadersFolder(
        folder=folder,
        grades=Grades(facts["grades"]),
        ids=frame["id"].tolist(),
        images=images,
        readers=frozenset(reader["name"] for reader in facts["readers"]),
    )


def _safe(cells: Sequence[str]) -> list[str]:
    return [neutralise_formula(cell) for cell in cells]


def _cells(names: Sequence[str], codes: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """The name of each code, safe in a spreadsheet; −1 is the last name. Names are fewer than cells."""
    return np.array(_safe(names), dtype=object)[codes]
