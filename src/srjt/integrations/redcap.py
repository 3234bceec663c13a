"""REDCap: read a CSV export, raw or labelled, with the project's data dictionary beside it.

The dictionary ("Download the current Data Dictionary") names the choices of each field in their
order, such as ``0, Normal | 1, Mild``: these are the grades. Rows of repeated instruments and of
events are filled up with what REDCap writes only once for a record.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from srjt.errors import SrjtError, count_of
from srjt.integrations import MOST_BYTES, ForeignTable

# Columns of the dictionary as people download it; programs get other names for the same columns.
FIELD = "Variable / Field Name"
FORM = "Form Name"
TYPE = "Field Type"
LABEL = "Field Label"
CHOICES = "Choices, Calculations, OR Slider Labels"
BY_PROGRAM = {
    "field_name": FIELD,
    "form_name": FORM,
    "field_type": TYPE,
    "field_label": LABEL,
    "select_choices_or_calculations": CHOICES,
}
# A choice that is no grade: the image could not be graded, or nobody knows.
NO_GRADE = re.compile(
    r"(un|not |non-?)(gradable|gradeable|assess|known|readable|done|applicable)"
    r"|\bn/?a\b|missing|cannot|can't",
    re.I,
)
MOST_FILES = 200  # beside an export that are looked at
ONE_OF_SEVERAL = ("radio", "dropdown")
# The columns that REDCap adds, in a raw and in a labelled export.
EVENT = {"redcap_event_name", "Event Name"}
INSTRUMENT = {"redcap_repeat_instrument", "Repeat Instrument"}
INSTANCE = {"redcap_repeat_instance", "Repeat Instance"}


@dataclass(frozen=True, kw_only=True)
class Dictionary:
    """The fields of a project, in their order; the first one is the record's identifier."""

    labels: dict[str, str]  # field → what people read above it
    forms: dict[str, str]  # field → its instrument
    choices: dict[str, dict[str, str]]  # field with choices → {code: label}, in their order

    @property
    def identifier(self) -> str:
        """The field that names the record."""
        return next(iter(self.forms))

    @property
    def complete(self) -> set[str]:
        """The columns that REDCap adds, one per instrument."""
        return {"Complete?", *map("{}_complete".format, self.forms.values())}


def recognise(path: Path) -> bool:
    """Whether this is an export of REDCap: a CSV file with a data dictionary of its columns beside
    it."""
    return path.suffix.lower() == ".csv" and path.is_file() and _dictionary_beside(path) is not None


def read(path: Path) -> ForeignTable:
    """The rows of an export, with columns named by fields and choices written as labels."""
    beside = _dictionary_beside(path)
    assert beside is not None, "recognised before"
    dictionary, source = beside
    frame = pd.DataFrame(_rows(path))
    frame = frame.rename(columns=_field_names(frame.columns, dictionary))
    frame = frame.drop(columns=list(dictionary.complete), errors="ignore")
    ungraded = 0
    scales: dict[str, tuple[str, ...]] = {}
    for field, choices in dictionary.choices.items():
        scales[field] = tuple(itertools.filterfalse(NO_GRADE.search, choices.values()))
        if field in frame:
            cells = frame[field].map(lambda cell, label_of=choices: label_of.get(cell, cell))
            no_grade = cells.isin(set(choices.values()) - set(scales[field]))
            ungraded += int(no_grade.sum())
            frame[field] = cells.mask(no_grade, "")
    frame, filled = _filled_up(frame, dictionary)
    notes = [f"{path.name}: REDCap, choices and their order from {source.name}"]
    if filled:
        notes.append(f"cells filled up from their record: {filled:,}")
    if ungraded:
        notes.append(f"choices that are no grade, such as “not gradable”, left empty: {ungraded:,}")
    if "patient" not in frame:
        frame = frame.assign(patient=frame[dictionary.identifier])
    return ForeignTable(frame=frame, notes=tuple(notes), scales=scales)


def _rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file as text. Two questions with one label would become one column: an
    error."""
    if path.stat().st_size > MOST_BYTES:
        raise SrjtError(f"{path} is larger than {MOST_BYTES:,} bytes.", code="wrong_file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = list(map(str.strip, next(reader, [])))
            rows = [list(map(str.strip, cells)) for cells in reader if any(cells)]
    except UnicodeDecodeError:
        raise SrjtError(
            f"{path} is not UTF-8 text: export it again.", code="unreadable_file"
        ) from None
    except csv.Error as problem:
        raise SrjtError(f"{path} is not a table: {problem}.", code="wrong_file") from None
    repeated = {name for name in header if header.count(name) > 1 and name != "Complete?"}
    if repeated:
        raise SrjtError(
            f"{path} has two columns named {min(repeated)!r}: export it raw, where each field has"
            " its own name.",
            code="not_unique",
        )
    if not rows:
        raise SrjtError(
            f"{path} has no rows below a header of {count_of(len(header), 'cell')}.", code="too_few"
        )
    for row in rows:
        if len(row) != len(header):
            raise SrjtError(
                f"{path} has a row of {count_of(len(row), 'cell')} below a header of"
                f" {count_of(len(header), 'cell')}.",
                code="wrong_file",
            )
    return [dict(zip(header, row, strict=True)) for row in rows]


def _dictionary_beside(path: Path) -> tuple[Dictionary, Path] | None:
    """The data dictionary in the same folder that describes most columns of an export."""
    header = _header(path)
    if not header or _is_dictionary(header):
        return None
    best: tuple[Dictionary, Path] | None = None
    most = len(header) / 2
    for other in sorted(path.parent.glob("*.csv"))[:MOST_FILES]:
        if other == path or not other.is_file() or not _is_dictionary(_header(other)):
            continue
        dictionary = _read_dictionary(other)
        known = {*dictionary.labels, *dictionary.labels.values(), *dictionary.complete}
        known |= {*EVENT, *INSTRUMENT, *INSTANCE}
        described = sum(name.split("___")[0] in known for name in header)
        if described > most:
            best = (dictionary, other)
            most = described
    return best


def _is_dictionary(header: list[str]) -> bool:
    return header[:1] in ([FIELD], ["field_name"])


def _header(path: Path) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(map(str.strip, next(csv.reader([file.readline(1_000_000)]), [])))
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def _read_dictionary(path: Path) -> Dictionary:
    rows = pd.DataFrame(_rows(path)).rename(columns=BY_PROGRAM)
    for name in (FORM, TYPE, LABEL, CHOICES):
        if name not in rows:
            raise SrjtError(
                f"{path} is not a whole data dictionary: the column {name!r} is missing.",
                code="missing_column",
            )
    one_of_several = rows[rows[TYPE].isin(ONE_OF_SEVERAL)]
    return Dictionary(
        labels=dict(zip(rows[FIELD], rows[LABEL], strict=True)),
        forms=dict(zip(rows[FIELD], rows[FORM], strict=True)),
        choices=dict(
            zip(one_of_several[FIELD], map(_choices, one_of_several[CHOICES]), strict=True)
        ),
    )


def _choices(text: str) -> dict[str, str]:
    """``"0, Normal | 1, Mild"`` → {"0": "Normal", "1": "Mild"}."""
    label_of = {}
    for part in text.split("|"):
        code, comma, label = part.partition(",")
        if comma:
            label_of[code.strip()] = label.strip()
    return label_of


def _field_names(
    columns: Mapping[str, object] | pd.Index, dictionary: Dictionary
) -> dict[str, str]:
    """The columns of a labelled export → their fields. A raw export has these names already."""
    fields = {label: field for field, label in dictionary.labels.items() if field not in columns}
    return {name: fields[name] for name in map(str, columns) if name in fields}


def _filled_up(frame: pd.DataFrame, dictionary: Dictionary) -> tuple[pd.DataFrame, int]:
    """Rows of repeated instruments get the fields that the record, or its event, has once; rows
    that only hold such fields go."""
    instrument = next((name for name in frame if name in INSTRUMENT), None)
    event = next((name for name in frame if name in EVENT), None)
    identifier = dictionary.identifier
    if identifier not in frame or (instrument is None and event is None):
        return frame, 0
    frame = frame.replace("", pd.NA)
    repeated = frame[instrument].notna() if instrument else pd.Series(False, index=frame.index)
    of_readings = set(frame.columns[frame[repeated].notna().any()])
    several = {*of_readings, instrument}
    once = [name for name in frame if name not in several]
    before = frame.isna().sum().sum()
    # a record's baseline belongs to its repeated rows; of two visits each keeps its own
    for keys in ([identifier, event] if event else [identifier], [identifier]):
        values = frame.groupby(keys, sort=False, dropna=False)[once].transform("first")
        frame.loc[repeated, once] = frame.loc[repeated, once].fillna(values)
    filled = int(before - frame.isna().sum().sum())
    if repeated.any():
        frame = frame[repeated]
    return frame.fillna("").reset_index(drop=True), filled
