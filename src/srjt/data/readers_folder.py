"""The folder of ``srjt readers``, which ``srjt review`` reads too, and the readings of some of its samples."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import BaseModel

from srjt._version import __version__
from srjt.data.grades import Grades
from srjt.data.manifest import POSTERIOR, neutralise_formula
from srjt.data.sources.columns import find_image_folder, locate_images, relative_name
from srjt.data.sources.readings import ReadingsTable, combine
from srjt.errors import SrjtError
from srjt.files import (
    check_regular_file,
    explain_write_errors,
    plain,
    read_json,
    write_atomically,
    write_json,
)
from srjt.ordinal.intervals import Interval
from srjt.readers.agreement import COEFFICIENTS, Agreement
from srjt.readers.consensus import Consensus
from srjt.readers.readings import Readings

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


# Everything that ``srjt readers`` finds, as plain values: for readers.json and for the page.

DOUBTFUL = 24  # items and readings
PERIODS = 12  # at most this many points of a reader's drift
LEAST = 10  # readings of a point, at least
OWN_COLUMNS = {"consensus", "probability", "gain"}  # of a table that srjt readers has written


def reader_facts(
    table: ReadingsTable,
    agreement: Agreement,
    agreed: Consensus,
    *,
    source: str,
    probabilities: str | None = None,
    probabilities_sha256: str | None = None,
    grade_names: Mapping[str, str] = MappingProxyType({}),
    worklist: pd.DataFrame | None = None,
    review_command: str = "",
) -> dict[str, Any]:
    """The facts of a table of readings; None stands where a number or an interval is undefined.

    probabilities: a network's file, and its SHA-256; worklist: what to read next; review_command: how to read it.
    """
    readings = table.readings
    names = np.array(readings.readers, dtype=object)
    pairs = agreement.pairs.sort_values("items", ascending=False, kind="stable")
    pairs = pairs.assign(first=names[pairs["first"]], second=names[pairs["second"]])
    overall = {name: getattr(agreement, name) for name in (*COEFFICIENTS, "exact", "within_one")}
    facts = {
        "srjt": __version__,
        "source": source,
        "noun": table.columns.noun,
        "grades": list(readings.grades),
        "grade_names": dict(grade_names),
        "probabilities": probabilities,
        "probabilities_sha256": probabilities_sha256,
        "items": len(readings.items),
        "number_of_readings": len(readings),
        "resampled": "patients"
        if table.columns.patient is not None
        else "images"
        if table.columns.group or table.columns.noun == "image"
        else "items",
        "agreement": {n: ends(v) for n, v in overall.items()} if agreement.shared_items else None,
        "pairs": _without_empty(pairs, "low", "high"),
        "readers": _readers(readings, agreement, agreed),
        "drift": drift(readings, agreed),
        "consensus": _consensus(readings, agreed),
        "doubtful_readings": _doubtful_readings(readings, agreed),
        "reference": _reference(readings),
        "unused_columns": unused_columns(table),
        "offered_reference": offered_reference(table),
        "notes": list(table.notes),
        "problems": [
            {name: getattr(p, name) for name in ("kind", "where", "detail")} for p in table.problems
        ],
        "next": worklist,
        "review_command": review_command,
    }
    as_values: dict[str, Any] = plain(facts)
    return as_values


def _without_empty(frame: pd.DataFrame, low: str, high: str) -> pd.DataFrame:
    """Without the intervals of width 0, where no draw of the bootstrap differs: readers who always agree."""
    some = (frame[high] - frame[low]) >= 1e-9
    return frame.assign(**{low: frame[low].where(some), high: frame[high].where(some)})


def ends(interval: Interval) -> dict[str, float] | None:
    """An interval as plain values; None if it is undefined, and no ends where no draw of the bootstrap differs."""
    if np.isnan(interval.value):
        return None
    value, low, high = interval if interval.high - interval.low >= 1e-9 else (interval.value, np.nan, np.nan)
    return {"value": value, "low": low, "high": high}


def _readers(readings: Readings, agreement: Agreement, agreed: Consensus) -> pd.DataFrame:
    """Of each reader, the one with the most readings first: the columns of ``Agreement.by_reader`` and the share of
    right readings. The bias is that beside the others who read the same items; nobody else: none."""
    used = np.zeros((len(readings.readers), len(readings.grades)), dtype=np.int64)
    np.add.at(used, (readings.reader, readings.grade), 1)
    wrong_low, wrong_high = agreed.noise_rate_interval
    frame = agreement.by_reader.assign(
        name=readings.readers,
        readings=used.sum(axis=1),
        by_grade=pd.Series(used.tolist(), dtype=object),
        right=1 - agreed.noise_rate,
        right_low=1 - wrong_high,
        right_high=1 - wrong_low,
        matrix=pd.Series(np.round(agreed.matrices, 6).tolist(), dtype=object),
    ).drop(columns="reader")
    for name in ("bias", "drift", "right"):
        frame = _without_empty(frame, f"{name}_low", f"{name}_high")
    return frame.sort_values("readings", ascending=False, kind="stable")


def drift(readings: Readings, agreed: Consensus) -> dict[str, tuple[list[str], list[float]]]:
    """Reader → dates and mean differences from the consensus in grades, over periods of equally many readings.

    Only readers with dates in two periods or more, the most readings first; empty without dates.
    """
    if readings.times is None:
        return {}
    expected = agreed.posterior @ np.arange(len(readings.grades))
    difference, series = readings.grade - expected[readings.item], {}
    number = np.bincount(readings.reader, minlength=len(readings.readers))
    for reader in np.argsort(-number, kind="stable").tolist():
        own = np.flatnonzero((readings.reader == reader) & ~np.isnat(readings.times))
        periods = min(PERIODS, len(own) // LEAST)
        if periods < 2:
            continue
        parts = np.array_split(own[np.argsort(readings.times[own], kind="stable")], periods)
        dates = [str(readings.times[part[len(part) // 2]].astype("datetime64[D]")) for part in parts]
        series[readings.readers[reader]] = (dates, [float(difference[part].mean()) for part in parts])
    return series


def _consensus(readings: Readings, agreed: Consensus) -> dict[str, Any]:
    """The counts of the grades, how certain they are, and the least certain items with who said what."""
    least = np.argsort(agreed.certainty, kind="stable")[:DOUBTFUL]
    least = least[agreed.certainty[least] < 0.999]
    said: dict[int, list[list[str]]] = {int(item): [] for item in least}
    for row in np.flatnonzero(np.isin(readings.item, least)).tolist():
        reader, grade = readings.readers[readings.reader[row]], readings.grades[readings.grade[row]]
        said[int(readings.item[row])].append([reader, grade])
    low, high = agreed.overall_noise_rate_interval
    return {
        "counts": np.bincount(agreed.grade, minlength=len(readings.grades)),
        "determined": agreed.determined,
        "reason": agreed.reason,
        "assumption": agreed.assumption,
        "expected_wrong": float((1 - agreed.certainty).sum()),
        "wrong_readings": ends(Interval(agreed.overall_noise_rate, low, high)),
        "uncertain": int((agreed.certainty < 0.6).sum()),
        "single": int((np.bincount(readings.item, minlength=len(readings.items)) == 1).sum()),
        "changed": int((agreed.grade[readings.item] != readings.grade).sum()),
        "doubtful": [
            {
                "id": readings.items[item],
                "grade": readings.grades[agreed.grade[item]],
                "certainty": float(agreed.certainty[item]),
                "said": said[item],
            }
            for item in least.tolist()
        ],
    }


def _doubtful_readings(readings: Readings, agreed: Consensus) -> pd.DataFrame:
    """The readings that are least probably right, given all readings."""
    probability = agreed.posterior[readings.item, readings.grade]
    rows = np.argsort(probability, kind="stable")[:DOUBTFUL]
    item, names = readings.item[rows], np.array(readings.grades, dtype=object)
    return pd.DataFrame(
        {
            "id": np.array(readings.items, dtype=object)[item],
            "reader": np.array(readings.readers, dtype=object)[readings.reader[rows]],
            "grade": names[readings.grade[rows]],
            "consensus": names[agreed.grade[item]],
            "probability": probability[rows],
        }
    )


def _reference(readings: Readings) -> dict[str, Any] | None:
    """How readings, and the consensus without the reference, agree with it; None if there is none."""
    if readings.reference is None or not (readings.reference >= 0).any():
        return None
    items = np.flatnonzero(readings.reference >= 0)
    truth = readings.reference[readings.item]
    judged = truth >= 0
    blind = combine(replace(readings, reference=None))
    missed = blind.grade[items] - readings.reference[items]
    return {
        "items": len(items),
        "readings": int(judged.sum()),
        "readings_equal": float((readings.grade == truth)[judged].mean()),
        "readings_error": float(np.abs(readings.grade - truth)[judged].mean()),
        "consensus_equal": float((missed == 0).mean()),
        "consensus_error": float(np.abs(missed).mean()),
    }


def unused_columns(table: ReadingsTable) -> list[str]:
    """The columns of the table that were not used."""
    chosen = table.columns
    roles = (chosen.item, chosen.reader, chosen.image, chosen.patient, chosen.reference, chosen.date)
    used = {*roles, *chosen.grades.values(), *OWN_COLUMNS}
    return [str(name) for name in table.frame.columns if name not in used]


def offered_reference(table: ReadingsTable) -> str:
    """An unused column that may hold trusted grades; "" if there is none.

    It has grades of the scale, one for each item, and most readings equal it.
    """
    readings = table.readings
    own = np.array(readings.grades, dtype=object)[readings.grade]
    for column in unused_columns(table):
        cells = table.frame[column].iloc[table.rows].to_numpy(dtype=object)
        one_each = pd.Series(cells).groupby(readings.item).nunique().max() == 1
        if one_each and set(cells) <= {*readings.grades, ""} and (cells == own).mean() > 0.5:
            return column
    return ""
