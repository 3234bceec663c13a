"""REDCap: read a CSV export, raw or labelled, with the project's data dictionary beside it.

The dictionary ("Download the current Data Dictionary") names the choices of each field in their
order, such as ``0, Normal | 1, Mild``: these are the grades. Rows of repeated instruments and of
events are filled up with what REDCap writes only once for a record.
"""

from __future__ import annotations

import csv
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


def recognise(path: Path) -> bool:
    """Whether this is an export of REDCap: a CSV file with a data dictionary of its columns beside
    it."""
    return path.suffix.lower() == ".csv" and path.is_file() and _dictionary_beside(path) is not None


def read(path: Path) -> ForeignTable:
    """The rows of an export, with columns named by fields and choices written as labels."""
    found = _dictionary_beside(path)
    assert found is not None, "recognised before"
    dictionary, source = found
    frame = pd.DataFrame(_rows(path))
    frame = frame.rename(columns=_field_names(frame.columns, dictionary))
    complete = {f"{form}_complete" for form in dictionary.forms.values()}
    frame = frame.drop(columns=[name for name in frame if name in complete or name == "Complete?"])
    ungraded = 0
    scales: dict[str, tuple[str, ...]] = {}
    for field, choices in dictionary.choices.items():
        scales[field] = tuple(label for label in choices.values() if not NO_GRADE.search(label))
        if field in frame:
            cells = pd.Series([choices.get(cell, cell) for cell in frame[field]], index=frame.index)
            no_grade = cells.isin(set(choices.values()) - set(scales[field]))
            ungraded += int(no_grade.sum())
            frame[field] = cells.mask(no_grade, "")
    frame, filled = _filled_up(frame, dictionary)
    identifier = next(iter(dictionary.forms))
    notes = (
        f"{path.name}: REDCap, choices and their order from {source.name}",
        *([f"cells filled up from their record: {filled:,}"] if filled else []),
        *(
            [f"choices that are no grade, such as “not gradable”, left empty: {ungraded:,}"]
            if ungraded
            else []
        ),
    )
    if "patient" not in frame:
        frame = frame.assign(patient=frame[identifier])
    return ForeignTable(frame=frame, notes=notes, scales=scales)


def _rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file as text. Two questions with one label would become one column: an
    error."""
    if path.stat().st_size > MOST_BYTES:
        raise SrjtError(f"{path} is larger than {MOST_BYTES:,} bytes.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = [cell.strip() for cell in next(reader, [])]
            rows = [[cell.strip() for cell in cells] for cells in reader if any(cells)]
    except UnicodeDecodeError:
        raise SrjtError(f"{path} is not UTF-8 text: export it again.") from None
    except csv.Error as problem:
        raise SrjtError(f"{path} is not a table: {problem}.") from None
    repeated = {name for name in header if header.count(name) > 1 and name != "Complete?"}
    if repeated:
        raise SrjtError(
            f"{path} has two columns named {min(repeated)!r}: export it raw, where each field has"
            " its own name."
        )
    short = [row for row in rows if len(row) != len(header)]
    if short or not rows:
        what = f"a row of {count_of(len(short[0]), 'cell')}" if short else "no rows"
        raise SrjtError(f"{path} has {what} below a header of {count_of(len(header), 'cell')}.")
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
        known = {*dictionary.labels, *dictionary.labels.values(), *EVENT, *INSTRUMENT, *INSTANCE}
        forms = {f"{form}_complete" for form in dictionary.forms.values()}
        described = sum(name.split("___")[0] in known | forms | {"Complete?"} for name in header)
        if described > most:
            best = (dictionary, other)
            most = described
    return best


def _is_dictionary(header: list[str]) -> bool:
    return header[:1] in ([FIELD], ["field_name"])


def _header(path: Path) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [cell.strip() for cell in next(csv.reader([file.readline(1_000_000)]), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def _read_dictionary(path: Path) -> Dictionary:
    rows = [{BY_PROGRAM.get(name, name): cell for name, cell in row.items()} for row in _rows(path)]
    missing = [name for name in (FORM, TYPE, LABEL, CHOICES) if name not in rows[0]]
    if missing:
        raise SrjtError(
            f"{path} is not a whole data dictionary: the column {missing[0]!r} is missing."
        )
    choices = {row[FIELD]: _choices(row[CHOICES]) for row in rows if row[TYPE] in ONE_OF_SEVERAL}
    return Dictionary(
        labels={row[FIELD]: row[LABEL] for row in rows},
        forms={row[FIELD]: row[FORM] for row in rows},
        choices=choices,
    )


def _choices(text: str) -> dict[str, str]:
    """``"0, Normal | 1, Mild"`` → {"0": "Normal", "1": "Mild"}."""
    pairs = [part.split(",", 1) for part in text.split("|") if "," in part]
    return {code.strip(): label.strip() for code, label in pairs}


def _field_names(
    columns: Mapping[str, object] | pd.Index, dictionary: Dictionary
) -> dict[str, str]:
    """The columns of a labelled export → their fields. A raw export has these names already."""
    fields = {label: field for field, label in dictionary.labels.items() if field not in columns}
    return {str(name): fields[str(name)] for name in columns if str(name) in fields}


def _filled_up(frame: pd.DataFrame, dictionary: Dictionary) -> tuple[pd.DataFrame, int]:
    """Rows of repeated instruments get the fields that the record, or its event, has once; rows
    that only hold such fields go."""
    instrument = next((name for name in frame if name in INSTRUMENT), None)
    event = next((name for name in frame if name in EVENT), None)
    identifier = next(iter(dictionary.forms))
    if identifier not in frame or (instrument is None and event is None):
        return frame, 0
    frame = frame.replace("", pd.NA)
    repeated = frame[instrument].notna() if instrument else pd.Series(False, index=frame.index)
    of_readings = set(frame.columns[frame[repeated].notna().any()])
    once = [name for name in frame if name not in of_readings and name != instrument]
    before = frame.isna().sum().sum()
    # a record's baseline belongs to its repeated rows; of two visits each keeps its own
    for keys in ([identifier, event] if event else [identifier], [identifier]):
        values = frame.groupby(keys, sort=False, dropna=False)[once].transform("first")
        frame.loc[repeated, once] = frame.loc[repeated, once].fillna(values)
    filled = int(before - frame.isna().sum().sum())
    if repeated.any():
        frame = frame[repeated]
    return frame.fillna("").reset_index(drop=True), filled
