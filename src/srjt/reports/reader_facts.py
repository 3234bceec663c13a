"""Everything that ``srjt readers`` says, as plain values: for readers.json, the page and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt._version import __version__
from srjt.data.sources.several_readers import ReadingsTable, combine
from srjt.ordinal.intervals import Interval
from srjt.readers import Agreement, Consensus, Readings
from srjt.reports.reader_drift import drift
from srjt.reports.reader_findings import consensus_sentences, findings, lead

__all__ = ["reader_facts"]

HEAT_MAP = 24  # readers
DOUBTFUL = 40  # items and readings


def reader_facts(
    found: ReadingsTable,
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
    """The facts of a table of readings.

    probabilities: a network's file, and its SHA-256; worklist: what to read next; review_command: how to read it.
    """
    readings = found.readings
    number = np.bincount(readings.reader, minlength=len(readings.readers))
    order = np.argsort(-number, kind="stable")
    facts: dict[str, Any] = {
        "srjt": __version__,
        "source": source,
        "noun": found.columns.noun,
        "grades": list(readings.grades),
        "grade_names": dict(grade_names),
        "probabilities": probabilities,
        "probabilities_sha256": probabilities_sha256,
        "items": len(readings.items),
        "number_of_readings": len(readings),
        "resampled": _resampled(found),
        "readers": _readers(readings, agreement, agreed, order),
        "bias_beside": "others" if agreement.shared_items else "model",
        **_agreement(readings, agreement, order[:HEAT_MAP]),
        "drift": {
            name: {"dates": dates, "bias": values}
            for name, (dates, values) in drift(readings, agreed).items()
        },
        "reference": _reference(readings),
        "notes": list(found.notes),
        "problems": [
            {"kind": problem.kind, "where": problem.where, "detail": problem.detail}
            for problem in found.problems
        ],
        "doubtful_readings": _doubtful_readings(readings, agreed),
        "consensus": _consensus(readings, agreed),
        "next": [] if worklist is None else worklist.to_dict("records"),
        "review_command": review_command,
    }
    facts["consensus"]["sentences"] = consensus_sentences(facts)
    facts["findings"] = findings(facts)
    facts["lead"] = lead(facts)
    return facts


def _resampled(found: ReadingsTable) -> str:
    if found.columns.patient is not None:
        return "patients"
    return "images" if found.columns.group or found.columns.noun == "image" else "items"


def _readers(
    readings: Readings, agreement: Agreement, agreed: Consensus, order: npt.NDArray[np.int64]
) -> list[dict[str, Any]]:
    """Of each reader, the one with the most readings first.

    The bias is that beside the others who read the same items; if no item is shared, the model's.
    """
    by_reader = agreement.by_reader
    bias, ends = by_reader["bias"], by_reader[["bias_low", "bias_high"]].to_numpy()
    if not agreement.shared_items:
        bias, ends = pd.Series(agreed.bias), agreed.bias_interval.T
    wrong = agreed.noise_rate_interval
    used = np.zeros((len(readings.readers), len(readings.grades)), dtype=np.int64)
    np.add.at(used, (readings.reader, readings.grade), 1)
    return [
        {
            "name": readings.readers[reader],
            "readings": int(used[reader].sum()),
            "by_grade": used[reader].tolist(),
            "right": 1 - float(agreed.noise_rate[reader]),
            "right_interval": [1 - float(wrong[1, reader]), 1 - float(wrong[0, reader])],
            "bias": _finite(bias[reader]),
            "bias_interval": _ends(*ends[reader]),
            "repeated_items": int(by_reader["repeated"][reader]),
            "repeated": _finite(by_reader["repeated_exact"][reader]),
            "drift": _finite(by_reader["drift"][reader]),
            "drift_interval": _ends(by_reader["drift_low"][reader], by_reader["drift_high"][reader]),
            "matrix": np.round(agreed.matrices[reader], 6).tolist(),
        }
        for reader in order.tolist()
    ]


def _agreement(readings: Readings, found: Agreement, shown: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Agreement over all pairs of readers, of each pair, and κ of the readers in ``shown`` as a matrix."""
    names = readings.readers
    pairs = [
        {
            "readers": [names[row["first"]], names[row["second"]]],
            "both": int(row["items"]),
            "quadratic": _finite(row["quadratic"]),
            "interval": _ends(row["low"], row["high"]),
            "linear": _finite(row["linear"]),
            "exact": _finite(row["exact"]),
            "within_one": _finite(row["within_one"]),
        }
        for row in found.pairs.sort_values("items", ascending=False, kind="stable").to_dict("records")
    ]
    place = {int(reader): at for at, reader in enumerate(shown)}
    kappa: list[list[float | None]] = [[None] * len(shown) for _ in shown]
    for first, second, value in zip(
        found.pairs["first"], found.pairs["second"], found.pairs["quadratic"], strict=True
    ):
        if first in place and second in place:
            kappa[place[first]][place[second]] = kappa[place[second]][place[first]] = _finite(value)
    summary = {
        "krippendorff": _interval(found.alpha),
        "quadratic": _interval(found.quadratic),
        "exact": _interval(found.exact),
        "within_one": _interval(found.within_one),
    }
    return {
        "agreement": summary if found.shared_items else None,
        "pairs": pairs,
        "heat_map": {
            "readers": [names[reader] for reader in shown],
            "kappa": kappa,
            "some": len(shown) < len(names),
        },
    }


def _interval(found: Interval) -> dict[str, Any] | None:
    if np.isnan(found.value):
        return None
    return {"value": float(found.value), "interval": _ends(found.low, found.high)}


def _ends(low: float, high: float) -> list[float | None]:
    """Of an interval; nothing where no draw of the bootstrap differs, as where readers always agree."""
    return [None, None] if high - low < 1e-9 else [_finite(low), _finite(high)]


def _finite(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _consensus(readings: Readings, agreed: Consensus) -> dict[str, Any]:
    """The counts of the grades, how certain they are, and the least certain items."""
    count = np.bincount(readings.item, minlength=len(readings.items))
    least = np.argsort(agreed.certainty, kind="stable")[:DOUBTFUL]
    said: dict[int, list[list[str]]] = {int(item): [] for item in least}
    for row in np.flatnonzero(np.isin(readings.item, least)).tolist():
        grade, reader = readings.grades[readings.grade[row]], readings.readers[readings.reader[row]]
        said[int(readings.item[row])].append([reader, grade])
    return {
        "counts": np.bincount(agreed.grade, minlength=len(readings.grades)).tolist(),
        "determined": agreed.determined,
        "reason": agreed.reason,
        "assumption": agreed.assumption,
        "expected_wrong": float((1 - agreed.certainty).sum()),
        "wrong_readings": agreed.overall_noise_rate,
        "wrong_readings_interval": _ends(*agreed.overall_noise_rate_interval),
        "uncertain": int((agreed.certainty < 0.6).sum()),
        "single": int((count == 1).sum()),
        "changed": int((agreed.grade[readings.item] != readings.grade).sum()),
        "doubtful": [
            {
                "id": readings.items[item],
                "grade": readings.grades[agreed.grade[item]],
                "certainty": float(agreed.certainty[item]),
                "said": said[item],
            }
            for item in least.tolist()
            if agreed.certainty[item] < 0.999
        ],
    }


def _doubtful_readings(readings: Readings, agreed: Consensus) -> list[dict[str, Any]]:
    probability = agreed.posterior[readings.item, readings.grade]
    return [
        {
            "id": readings.items[readings.item[row]],
            "reader": readings.readers[readings.reader[row]],
            "grade": readings.grades[readings.grade[row]],
            "consensus": readings.grades[agreed.grade[readings.item[row]]],
            "probability": float(probability[row]),
        }
        for row in np.argsort(probability, kind="stable")[:DOUBTFUL].tolist()
    ]


def _reference(readings: Readings) -> dict[str, Any] | None:
    """How readings, and the consensus without the reference, agree with it; None if there is none."""
    if readings.reference is None or not (readings.reference >= 0).any():
        return None
    known = np.flatnonzero(readings.reference >= 0)
    truth = readings.reference[readings.item]
    judged = truth >= 0
    blind = combine(replace(readings, reference=None))
    missed = blind.grade[known] - readings.reference[known]
    return {
        "items": len(known),
        "readings": int(judged.sum()),
        "readings_equal": float((readings.grade == truth)[judged].mean()),
        "consensus_equal": float((missed == 0).mean()),
        "consensus_error": float(np.abs(missed).mean()),
        "readings_error": float(np.abs(readings.grade - truth)[judged].mean()),
    }
