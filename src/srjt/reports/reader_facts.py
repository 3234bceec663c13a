"""Everything that ``srjt readers`` finds, as plain values: for readers.json and for the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from srjt._version import __version__
from srjt.data.sources.readings import ReadingsTable, combine
from srjt.ordinal.metrics import Interval
from srjt.progress import plain
from srjt.readers.agreement import COEFFICIENTS, Agreement
from srjt.readers.consensus import Consensus
from srjt.readers.readings import Readings

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
    readings, columns = table.readings, table.columns
    of_images = bool(columns.group) or columns.noun == "image"
    names = np.array(readings.readers, dtype=object)
    pairs = agreement.pairs.sort_values("items", ascending=False, kind="stable")
    pairs = pairs.assign(first=names[pairs["first"]], second=names[pairs["second"]])
    overall = {name: getattr(agreement, name) for name in (*COEFFICIENTS, "exact", "within_one")}
    facts = {
        "srjt": __version__,
        "source": source,
        "noun": columns.noun,
        "grades": list(readings.grades),
        "grade_names": dict(grade_names),
        "probabilities": probabilities,
        "probabilities_sha256": probabilities_sha256,
        "items": len(readings.items),
        "number_of_readings": len(readings),
        "resampled": "patients" if columns.patient is not None else "images" if of_images else "items",
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
        "problems": [{"kind": p.kind, "where": p.where, "detail": p.detail} for p in table.problems],
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
    wrong = Interval(agreed.overall_noise_rate, *agreed.overall_noise_rate_interval)

    def said(item: int) -> list[list[str]]:
        rows = np.flatnonzero(readings.item == item)
        return [
            [readings.readers[readings.reader[row]], readings.grades[readings.grade[row]]] for row in rows
        ]

    return {
        "counts": np.bincount(agreed.grade, minlength=len(readings.grades)),
        "determined": agreed.determined,
        "reason": agreed.reason,
        "assumption": agreed.assumption,
        "expected_wrong": float((1 - agreed.certainty).sum()),
        "wrong_readings": ends(wrong),
        "uncertain": int((agreed.certainty < 0.6).sum()),
        "single": int((np.bincount(readings.item, minlength=len(readings.items)) == 1).sum()),
        "changed": int((agreed.grade[readings.item] != readings.grade).sum()),
        "doubtful": [
            {
                "id": readings.items[item],
                "grade": readings.grades[agreed.grade[item]],
                "certainty": float(agreed.certainty[item]),
                "said": said(item),
            }
            for item in least.tolist()
        ],
    }


def _doubtful_readings(readings: Readings, agreed: Consensus) -> pd.DataFrame:
    """The readings that are least probably right, given all readings."""
    probability = agreed.posterior[readings.item, readings.grade]
    rows = np.argsort(probability, kind="stable")[:DOUBTFUL]
    item, names = readings.item[rows], np.array(readings.grades, dtype=object)
    return pd.DataFrame({
        "id": np.array(readings.items, dtype=object)[item],
        "reader": np.array(readings.readers, dtype=object)[readings.reader[rows]],
        "grade": names[readings.grade[rows]],
        "consensus": names[agreed.grade[item]],
        "probability": probability[rows],
    })  # fmt: skip


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
