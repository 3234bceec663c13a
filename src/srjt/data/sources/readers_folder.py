"""The folder of ``srjt readers``, which ``srjt review`` reads too, and the probabilities of a
network beside readers.

readers.json     what the other commands ask: the scale, the readers and how well they agree
consensus.csv    one row per image: the consensus, its certainty and p_true_0 …, for srjt train
readings.csv     one row per reading, with the probability that it is right
unread.csv       the images of the study that nobody has read yet
worklist.csv     what to read next, and by whom
report.html      the page
.backup          the tables once more: programs that show a table may write it otherwise
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import AfterValidator, BaseModel

from srjt import files
from srjt.data.grades import Grades, check_scale, distinct
from srjt.data.manifest import POSTERIOR, neutralise_formula
from srjt.data.names import join_all_names
from srjt.data.sources.folders import read_images
from srjt.data.sources.readings import NO_READER, ReadingsTable
from srjt.data.sources.table import find_images, load_table, relative_name
from srjt.errors import Option, SrjtError
from srjt.json_values import json_values
from srjt.readers.agreement import COEFFICIENTS, Agreement
from srjt.readers.consensus import Consensus
from srjt.readers.next_readings import Goal, next_readings
from srjt.readers.readings import Readings

SEED = 0  # of what is drawn to be read: the same for everybody
UNREAD = "unread.csv"
BACKUP = ".backup"
_COMPUTED = ["consensus", "probability", "gain"]  # columns of readings.csv and worklist.csv


@dataclass(frozen=True, kw_only=True)
class ReadersFolder:
    """The images that several readers have graded, as far as a review needs them."""

    folder: Path
    grades: Grades
    ids: list[str]
    images: list[str]  # (I,) absolute; "" if there is no file
    readers: frozenset[str]
    unread: int = 0  # of the ids, the last ones: images that nobody has read yet

    @cached_property
    def line_of(self) -> dict[str, int]:
        return {name: line for line, name in enumerate(self.ids)}


def consensus_table(
    reading: ReadingsTable, agreed: Consensus, *, images: list[str]
) -> pd.DataFrame:
    """One row per item: id, image, grade, patient, reference, readings, certainty, p_true_0 …

    images: (I,) the image of each item.
    """
    readings = reading.readings
    every = np.arange(len(readings.items))
    return pd.DataFrame(
        {
            "id": _cells(readings.items, every),
            "image": _cells(images, every),
            "grade": _cells(readings.grades, agreed.grade),
            **_patient_and_reference(reading, every),
            "readings": np.bincount(readings.item, minlength=len(readings.items)),
            "certainty": np.round(agreed.certainty, 6),
            **{
                POSTERIOR.format(grade): np.round(p, 9)
                for grade, p in enumerate(agreed.posterior.T)
            },
        }
    )


def readings_table(reading: ReadingsTable, agreed: Consensus) -> pd.DataFrame:
    """One row per reading, in the order of the source: item, reader, grade, date, … and how
    probable it is."""
    readings = reading.readings
    chosen = reading.columns
    columns: dict[str, Any] = {chosen.noun: _cells(readings.items, readings.item)}
    if chosen.noun == "item" and chosen.image is not None:
        columns["image"] = _cells(reading.frame[chosen.image].tolist(), reading.rows)
    columns["reader"] = _cells(readings.readers, readings.reader)
    columns["grade"] = _cells(readings.grades, readings.grade)
    if readings.times is not None:
        columns["date"] = ["" if np.isnat(time) else str(time) for time in readings.times]
    columns |= _patient_and_reference(reading, readings.item)
    columns["consensus"] = _cells(readings.grades, agreed.grade[readings.item])
    columns["probability"] = np.round(agreed.posterior[readings.item, readings.grade], 6)
    return pd.DataFrame(columns)


def _patient_and_reference(reading: ReadingsTable, items: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Columns of the items' patients and trusted grades, where there are some."""
    readings = reading.readings
    columns = dict[str, Any]()
    if reading.columns.patient is not None and readings.groups is not None:
        columns["patient"] = _cells(readings.groups, items)
    if readings.reference is not None:
        columns["reference"] = _cells([*readings.grades, ""], readings.reference[items])
    return columns


def worklist_table(
    reading: ReadingsTable,
    agreed: Consensus,
    count: int,
    *,
    per_reader: int | None,
    goal: Goal = "consensus",
    probabilities: npt.NDArray[np.float64] | None = None,
    unread: Sequence[str] = (),
) -> pd.DataFrame:
    """What to read next (item, reader, gain): by the readers, or by a new one if they have read
    everything.

    Empty if every item is trusted, or nobody can be asked: a crowd has no names. probabilities: of
    the network whose error is to be known, with the goal "model". unread: images of the study that
    nobody has read; where several readers have read the same images so far, they go on so.
    """
    readings = reading.readings
    visits = readings.first()
    shared = np.bincount(visits.item, minlength=len(readings.items)) > 1
    answers = None
    if goal == "model" and probabilities is not None:
        answers = probabilities.argmax(axis=1)
    wanted = pd.DataFrame()
    for new_reader in (False, readings.readers != [NO_READER]):
        if wanted.empty:
            wanted = next_readings(
                agreed,
                readings,
                count=count,
                per_reader=per_reader,
                new_reader=new_reader,
                goal=goal,
                answers=answers,
                unread=unread,
                unread_by_all=bool(shared.mean() > 0.5) and not new_reader,
            )
    names = {name: wanted[name].map(neutralise_formula) for name in ("item", "reader")}
    table = wanted.assign(**names, gain=wanted["gain"].round(6))
    table = table.rename(columns={"item": reading.columns.noun})
    table.attrs["goal"] = goal
    return table


def worklist_of_new_readers(
    reading: ReadingsTable, names: Sequence[str], count: int, *, unread: Sequence[str]
) -> pd.DataFrame:
    """So many images for each of these new readers of a study, drawn at random from those that
    others have read, then from the others."""
    known = [name for name in names if name in reading.readings.readers]
    if known:
        raise SrjtError(
            f"{known[0]} is a reader of this study already: ",
            Option("ask"),
            " adds new ones.",
            code="name_in_use",
        )
    rows = []
    read = sorted(reading.readings.items)
    draw = np.random.Generator(np.random.PCG64(SEED)).permutation(len(read))
    items = [*(read[place] for place in draw), *unread][:count]
    rows = [(item, reader) for reader in names for item in items]
    return _pairs(rows, reading.columns.noun)


def joined_worklists(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """The rows of both, each reading once."""
    both = pd.concat([first, second], ignore_index=True)
    if "readings" in both:
        both["readings"] = both["readings"].fillna("0")
    keys = [name for name in both if name not in _COMPUTED]
    return both.drop_duplicates(keys, ignore_index=True).fillna("")


def first_worklist(items: Sequence[str], readers: Sequence[str], count: int) -> pd.DataFrame:
    """The start of a study: so many items, drawn at random, each for every reader (image, reader).

    The draw depends on the names alone; a larger one begins with the smaller one.
    """
    names = sorted(items)
    drawn = np.random.Generator(np.random.PCG64(SEED)).permutation(len(names))[:count]
    rows = [(names[place], reader) for reader in readers for place in drawn]
    return _pairs(rows, "image")


def again_worklist(reading: ReadingsTable, count: int) -> pd.DataFrame:
    """Second readings: for each reader so many of the items that the reader has read once, drawn at
    random. ``readings`` is how many the reader has made before."""
    readings = reading.readings
    draw = np.random.Generator(np.random.PCG64(SEED))
    rows = []
    for place, reader in enumerate(readings.readers):
        item, times = np.unique(readings.item[readings.reader == place], return_counts=True)
        once = np.sort(draw.permutation(item[times == 1])[:count])
        rows += [(readings.items[one], reader) for one in draw.permutation(once)]
    return _pairs(rows, reading.columns.noun).assign(readings=1)


def reader_names(text: str) -> list[str]:
    """The names of readers that are separated by commas; an error if there is none, or one occurs
    twice."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise SrjtError("Name the readers, as in anna,bo.", code="wrong_values", option="ask")
    for name in names:
        if names.count(name) > 1:
            raise SrjtError(
                f"{name} is named twice: readers need different names.",
                code="not_unique",
                option="ask",
            )
    return names


def _pairs(rows: list[tuple[str, str]], noun: str) -> pd.DataFrame:
    """A worklist without gains."""
    items, readers = zip(*rows, strict=True) if rows else ((), ())
    return pd.DataFrame({noun: _safe(items), "reader": _safe(readers)}, dtype=str)


def located_images(reading: ReadingsTable, directory: Path) -> list[str]:
    """(I,) the absolute path of each item's image below ``directory``; the name unchanged if there
    is no such file."""
    column = reading.columns.image
    written = reading.readings.items
    if column is not None:
        written = reading.frame[column].iloc[reading.first_rows].tolist()
    names = [relative_name(name, directory.absolute()) for name in written]
    root, located, _ = find_images(names, directory.absolute())
    for item, file in enumerate(located):
        path = os.path.join(root, file)
        if os.path.isfile(path):
            names[item] = path
    return names


class ReadersFile(BaseModel):
    """``readers.json``."""

    format: Literal[4] = 4
    source: str  # the name of the table
    noun: str  # what an item is called
    grades: Annotated[list[str], AfterValidator(distinct)]
    readers: list[str]
    items: int
    readings: int
    # of ``Agreement``, where defined: value, low and high
    agreement: dict[str, dict[str, float | None]]
    probabilities_sha256: str | None  # of the network's file


def write_readers_folder(
    folder: Path,
    reading: ReadingsTable,
    agreement: Agreement,
    agreed: Consensus,
    *,
    source: str,
    images: list[str],
    probabilities: Path | None = None,
    worklist: pd.DataFrame | None = None,
    unread: pd.DataFrame | None = None,
    overwrite: bool = False,
) -> None:
    """Write all but the page.

    A folder with other files is refused. One of the same readings is refreshed; one of other
    readings, or with another worklist, is refused unless ``overwrite``. images: (I,) the image of
    each item; probabilities: a network's file; unread: id and image of those that nobody has read.
    """
    readings = reading.readings
    coefficients = {}
    for name in (*COEFFICIENTS, "exact", "within_one"):
        coefficient = getattr(agreement, name)
        if np.isfinite(coefficient.value):
            coefficients[name] = json_values(coefficient)
    digest = None
    if probabilities is not None:
        digest = sha256(probabilities.read_bytes()).hexdigest()
    about = ReadersFile(
        source=source,
        noun=reading.columns.noun,
        grades=list(readings.grades),
        readers=readings.readers,
        items=len(readings.items),
        readings=len(readings),
        agreement=coefficients,
        probabilities_sha256=digest,
    )
    tables = {"consensus.csv": consensus_table(reading, agreed, images=images)}
    tables["readings.csv"] = readings_table(reading, agreed)
    if unread is not None and (len(unread) or (folder / UNREAD).exists()):
        tables[UNREAD] = unread
    if worklist is not None and len(worklist):
        tables["worklist.csv"] = worklist
    ended = _is_ours(folder, tables)
    if ended and not overwrite:
        _refuse_other_readings(folder, about, tables)
    _write(folder, about, tables)


def begin_study(
    folder: Path,
    source: Path,
    readers: Sequence[str],
    count: int,
    *,
    grades: Sequence[str],
    **options: Any,
) -> tuple[ReadersFolder, pd.DataFrame]:
    """Write the folder of a study in which nobody has read anything yet: the folder, and the
    worklist.

    source: a folder of images, or a table that names them; options: how it is read. count: the
    images for each reader.
    """
    scale = check_scale(grades)
    samples = read_images([source], **options)
    paths = [os.path.abspath(path) for path in samples.paths]
    names = list(samples.ids)
    if source.is_dir():
        names = [os.path.relpath(path, source.absolute()) for path in paths]
    unread = pd.DataFrame({"id": _safe(names), "image": _safe(paths)})
    if options.get("patient_column") is not None or samples.groups is not None:
        unread["patient"] = _safe(list(map(str, samples.groups or names)))
    about = ReadersFile(
        source=source.name,
        noun="image",
        grades=list(scale),
        readers=list(readers),
        items=0,
        readings=0,
        agreement={},
        probabilities_sha256=None,
    )
    worklist = first_worklist(names, readers, count)
    tables = {
        "consensus.csv": pd.DataFrame(columns=["id", "image", "grade"], dtype=str),
        "readings.csv": pd.DataFrame(columns=["image", "reader", "grade", "date"], dtype=str),
        UNREAD: unread,
        "worklist.csv": worklist,
    }
    if _is_ours(folder, tables):
        raise SrjtError(
            f"{folder} is the folder of a study that has begun: continue with srjt readers"
            f" {folder}, or choose another ",
            Option("out"),
            ".",
            code="folder_in_use",
        )
    _write(folder, about, tables)
    return read_readers_folder(folder), worklist


def _is_ours(folder: Path, tables: dict[str, pd.DataFrame]) -> bool:
    """Whether the folder has been written before; an error if it contains other files."""
    ours = {"readers.json", files.CHECKSUMS, "report.html", "decisions.sqlite", "worklist.csv"}
    ended = (folder / "readers.json").exists()
    if folder.is_dir() and not ended and files.visible_names(folder) - {*ours, *tables}:
        raise SrjtError(
            f"{folder} contains other files: choose another ",
            Option("out"),
            ".",
            code="folder_in_use",
        )
    return ended


def _write(folder: Path, about: ReadersFile, tables: dict[str, pd.DataFrame]) -> None:
    with files.explain_write_errors(f"{folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / BACKUP).mkdir(exist_ok=True)
        for name, table in tables.items():
            for path in (folder / name, folder / BACKUP / name):
                files.write_atomically(path, files.as_csv(table))
        facts = files.as_json(about.model_dump())
        files.write_checksums(folder, tables, coming={"readers.json": facts})
        files.write_atomically(folder / "readers.json", facts)


def _refuse_other_readings(
    folder: Path, about: ReadersFile, tables: dict[str, pd.DataFrame]
) -> None:
    """An error if the folder holds what would be lost."""
    try:
        same_network = read_readers_file(folder).probabilities_sha256 == about.probabilities_sha256
    except SrjtError as problem:  # of an earlier version, or damaged
        raise SrjtError(
            problem,
            " Choose another ",
            Option("out"),
            ", or pass ",
            Option("overwrite", True),
            ".",
            code="folder_in_use",
        ) from None
    if not same_network or not _same(folder / "readings.csv", tables["readings.csv"]):
        raise SrjtError(
            f"{folder} has the consensus of other readings or networks: choose another ",
            Option("out"),
            ", or pass ",
            Option("overwrite", True),
            ".",
            code="folder_in_use",
        )
    if "worklist.csv" in tables and not _same(folder / "worklist.csv", tables["worklist.csv"]):
        raise SrjtError(
            f"{folder / 'worklist.csv'} is another worklist: choose another ",
            Option("out"),
            ", or pass ",
            Option("overwrite", True),
            ".",
            code="folder_in_use",
        )


def _same(path: Path, table: pd.DataFrame) -> bool:
    """Whether the file is not there, or holds the same rows, except for what is computed."""
    if not path.exists():
        return True
    files.check_regular_file(path)
    try:
        old = _read_text(path)
        new = _read_text(io.StringIO(table.to_csv(index=False)))
    except (OSError, ValueError):
        return False
    old = old.drop(columns=_COMPUTED, errors="ignore")
    return bool(old.equals(new.drop(columns=_COMPUTED, errors="ignore")))


def _read_text(file: Path | io.StringIO, **options: Any) -> pd.DataFrame:
    form: dict[str, Any] = {
        "dtype": str,
        "keep_default_na": False,
        "encoding_errors": "surrogateescape",
    }
    return pd.DataFrame(pd.read_csv(file, **form, **options))


def read_readers_file(folder: Path) -> ReadersFile:
    """The contents of ``readers.json``; an error if a file of the folder is gone or was changed."""
    about = files.read_json(folder / "readers.json", ReadersFile, advice="run srjt readers again")
    for name in _changed_files(folder):
        advice = (
            "restore it from a copy of yours, or run srjt readers again with its table and --force"
        )
        if _backup_of(folder, name) is not None:
            advice = f"to have it as it was, run srjt readers {shlex.quote(str(folder))} --force"
        raise SrjtError(
            f"{folder / name} is not the file that srjt has written: {advice}.",
            code="damaged_file",
        )
    return about


def restore_tables(folder: Path) -> list[str]:
    """Write the tables that are gone or were changed as they were, as far as there is a copy; their
    names."""
    restored = []
    for name in _changed_files(folder):
        content = _backup_of(folder, name)
        if content is not None:
            files.write_output(folder / name, content)
            restored.append(name)
    return restored


def _changed_files(folder: Path) -> list[str]:
    """The files of the folder that are gone, or are not as they were written."""
    changed = []
    for name, digest in files.read_checksums(folder).items():
        file = folder / name
        if not file.is_file() or files.sha256_of(file) != digest:
            changed.append(name)
    return changed


def _backup_of(folder: Path, name: str) -> bytes | None:
    """The content of a table as it was written; None if there is no copy of it."""
    copy = folder / BACKUP / name
    if not copy.is_file() or files.sha256_of(copy) != files.read_checksums(folder)[name]:
        return None
    return copy.read_bytes()


def read_readers_folder(folder: Path) -> ReadersFolder:
    """Read the folder that ``srjt readers … --out folder`` has written."""
    about = read_readers_file(folder)
    path = folder / "consensus.csv"
    files.check_regular_file(path)
    try:
        frame = _read_text(path, usecols=["id", "image"])
    except (OSError, ValueError) as problem:
        raise SrjtError(
            f"{path} cannot be read ({problem}): run srjt readers again.", code="damaged_file"
        ) from None
    unread = 0
    if (folder / UNREAD).exists():
        files.check_regular_file(folder / UNREAD)
        more = _read_text(folder / UNREAD, usecols=["id", "image"])
        frame = pd.concat([frame, more], ignore_index=True)
        unread = len(more)
    if not frame["id"].is_unique:
        raise SrjtError(f"{path} has no unique ids: run srjt readers again.", code="not_unique")
    return ReadersFolder(
        folder=folder,
        grades=Grades(about.grades),
        ids=frame["id"].tolist(),
        images=[name if os.path.isabs(name) else "" for name in frame["image"]],
        readers=frozenset(about.readers),
        unread=unread,
    )


def _safe(names: Sequence[str]) -> list[str]:
    return list(map(neutralise_formula, names))


def _cells(names: Sequence[str], codes: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """The name of each code, safe in a spreadsheet; −1 is the last name."""
    return np.array(list(map(neutralise_formula, names)), dtype=object)[codes]


def read_probabilities(path: Path, readings: Readings) -> npt.NDArray[np.float64]:
    """(I, C) the probabilities of each item's grades, from a table such as ``srjt predict`` writes.

    The table names every item (``id``, ``image`` or ``item``) and has a column ``p_<grade>`` for
    each grade.
    """
    frame = load_table(path).frame
    if {"quality", "suggested"} <= set(frame.columns):
        raise SrjtError(
            f"{path} is the list of an audit, whose probabilities follow from the labels: give"
            " those of srjt predict.",
            code="wrong_file",
        )
    names = [f"p_{grade}" for grade in readings.grades]
    if missing := [name for name in names if name not in frame]:
        raise SrjtError(
            f"{path} has no column {missing[0]!r}: it must have {', '.join(names)}.",
            code="missing_column",
        )
    values = frame[names].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    if not ((values >= 0).all() and (values.sum(axis=1) > 0).all() and np.isfinite(values).all()):
        raise SrjtError(
            f"The columns {', '.join(names)} of {path} must hold probabilities.",
            code="wrong_values",
        )
    rows = _rows_of_items(frame, readings.items, path)
    return np.asarray(values[rows] / values[rows].sum(axis=1, keepdims=True), dtype=np.float64)


def _rows_of_items(frame: pd.DataFrame, items: Sequence[str], path: Path) -> npt.NDArray[np.int64]:
    """(I,) the row of each item, by the first column that names all of them."""
    problem = SrjtError(
        f"{path} has no column id, image or item that names the images.", code="missing_column"
    )
    for column in ("id", "image", "item"):
        if column in frame:
            try:
                return join_all_names(
                    items, frame[column].tolist(), wanted_in="the readings", known_in=str(path)
                )
            except SrjtError as of_column:
                problem = of_column
    raise problem
