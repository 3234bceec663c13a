"""Everything that ``srjt readers`` says: plain values for readers.json, the page and the terminal, and the
sentences that follow from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt._version import __version__
from srjt.data.grades import Grades
from srjt.data.sources.readings import NO_READER, ReadingsTable, combine
from srjt.errors import count_of
from srjt.ordinal.intervals import Interval
from srjt.readers.agreement import Agreement
from srjt.readers.compare import NEW_READER
from srjt.readers.consensus import Consensus
from srjt.readers.model import ENOUGH as ENOUGH_ITEMS
from srjt.readers.readings import Readings
from srjt.reports.table import range_text

# How each reader's grades change over time, beside the consensus.

PERIODS = 12  # at most this many points of a reader
LEAST = 10  # readings of a point, at least


def drift(readings: Readings, agreed: Consensus) -> dict[str, tuple[list[str], list[float]]]:
    """Reader → dates and mean differences from the consensus in grades, over periods of equally many readings.

    Only readers with dates in two periods or more, the most readings first; empty without dates.
    """
    if readings.times is None:
        return {}
    expected = agreed.posterior @ np.arange(len(readings.grades))
    difference, found = readings.grade - expected[readings.item], {}
    number = np.bincount(readings.reader, minlength=len(readings.readers))
    for reader in np.argsort(-number, kind="stable").tolist():
        own = np.flatnonzero((readings.reader == reader) & ~np.isnat(readings.times))
        periods = min(PERIODS, len(own) // LEAST)
        if periods < 2:
            continue
        own = own[np.argsort(readings.times[own], kind="stable")]
        parts = np.array_split(own, periods)
        dates = [str(readings.times[part[len(part) // 2]].astype("datetime64[D]")) for part in parts]
        found[readings.readers[reader]] = (dates, [float(difference[part].mean()) for part in parts])
    return found


# What the facts about several readers say, in sentences; each follows from the facts alone.

FEW = 10  # readings: of a reader with fewer little is known
ENOUGH = 5  # readings: with as many, always the same grade is remarkable
NAMED = 3  # readers in one sentence


def nothing_learnt(facts: Mapping[str, Any]) -> bool:
    """Whether nothing tells how readers err: one reading of each item, no trusted grade and no network. What the model
    says of readers and certainties then comes from its defaults alone."""
    alone = facts["reference"] is None and facts["probabilities"] is None
    return bool(alone and facts["consensus"]["single"] == facts["items"])


def lead(facts: Mapping[str, Any]) -> str:
    """The first sentence of the page."""
    names = [reader["name"] for reader in facts["readers"]]
    by = "" if names == [NO_READER] else f" by {count_of(len(names), 'reader')}"
    text = f"{count_of(facts['number_of_readings'], 'reading')} of {count_of(facts['items'], facts['noun'])}{by}."
    found = facts["agreement"]
    if found is not None and found.get("exact") is not None:
        exact, within = found["exact"]["value"], found["within_one"]["value"]
        text += (
            f" Two readers who read the same {facts['noun']} give it the same grade in {exact:.0%} of all cases, and "
            f"grades that differ by at most one in {within:.0%}."
        )
    return text


def findings(facts: Mapping[str, Any]) -> list[str]:
    """What a person should know before using the consensus."""
    sentences = [
        _not_determined(facts),
        _no_overlap(facts),
        _left_out(facts),
        _contradicted(facts),
        _always_the_same(facts),
        _higher(facts),
        _drifting(facts),
        _again(facts),
        _few(facts),
    ]
    return [sentence for sentence in sentences if sentence]


def consensus_sentences(facts: Mapping[str, Any]) -> list[str]:
    """What is known of the consensus."""
    found, noun = facts["consensus"], facts["noun"]
    if nothing_learnt(facts):
        return _changed(found.get("changed"), noun)
    wrong, between = found["expected_wrong"], range_text(found["wrong_readings_interval"], "{:.0%}")
    sentences = [
        f"About {found['wrong_readings']:.0%} of the readings (95 % interval: {between}) and {wrong:,.0f} of "
        f"{count_of(facts['items'], 'consensus grade')} ({wrong / facts['items']:.0%}) are expected to be wrong, by "
        "the model’s own probabilities."
    ]
    if found["uncertain"]:
        sentences.append(
            f"{count_of(found['uncertain'], noun)} {_are(found['uncertain'])} less than 60 % certain."
        )
    if found["single"]:
        single = "All" if found["single"] == facts["items"] else f"{found['single']:,} of {facts['items']:,}"
        sentences.append(f"{single} {noun}s have one reading only.")
    return [*sentences, str(found["assumption"])]


def _changed(changed: int | None, noun: str) -> list[str]:
    """Whether a consensus of single readings is these readings. None: not known, of an earlier version."""
    if changed is None:
        return []
    if not changed:
        return [f"The consensus of each {noun} is its reading."]
    return [
        f"The consensus of {count_of(changed, noun)} differs from the reading, by what is usual for readers alone: use "
        "the readings instead."
    ]


def next_sentence(facts: Mapping[str, Any]) -> str:
    """What the list of further readings is; why it is empty."""
    noun, wanted = facts["noun"], facts["next"]
    trusted = 0 if facts["reference"] is None else facts["reference"]["items"]
    if not wanted and trusted == facts["items"]:
        return f"Nothing to read next: every {noun} has a trusted grade."
    if not wanted:
        return "Nothing to read next: the table names no readers who could be asked."
    if any(row["reader"] != NEW_READER for row in wanted):
        return "Next, one more reading of these gains most:"
    which = f"{noun} without a trusted grade" if trusted else noun
    return (
        f"Every reader has read every {which}. Ask a new reader: one more reading of these by a reader who reads like "
        "the average of the others gains most:"
    )


def _not_determined(facts: Mapping[str, Any]) -> str:
    if facts["consensus"]["determined"]:
        return ""
    if nothing_learnt(facts):
        return (
            f"Each {facts['noun']} has one reading only, so nothing can be learnt about the readers. Let a second "
            f"reader read {ENOUGH_ITEMS} {facts['noun']}s or more, or add a column of trusted grades (reference); "
            "srjt audit looks for wrong labels with networks instead."
        )
    return f"{facts['consensus']['reason']} The certainties below rest on how often readers usually err."


def _no_overlap(facts: Mapping[str, Any]) -> str:
    if len(facts["readers"]) < 2 or facts["agreement"] is not None:
        return ""
    return (
        f"No {facts['noun']} was read by two readers: what differs between readers may as well differ between their "
        f"{facts['noun']}s."
    )


def _left_out(facts: Mapping[str, Any]) -> str:
    kinds = Counter(problem["kind"] for problem in facts["problems"])
    if not kinds:
        return ""
    counted = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return f"The table has problems ({counted}): they are listed below."


def _contradicted(facts: Mapping[str, Any]) -> str:
    known = facts["reference"]
    if known is None:
        return ""
    return (
        f"{count_of(known['items'], facts['noun'])} {'has' if known['items'] == 1 else 'have'} a trusted grade: "
        f"{known['readings_equal']:.0%} of {count_of(known['readings'], 'reading')} agree with it, and "
        f"{known['consensus_equal']:.0%} of the consensus grades that are computed without it (mean absolute error "
        f"{known['readings_error']:.2f} and {known['consensus_error']:.2f} grades)."
    )


def _always_the_same(facts: Mapping[str, Any]) -> str:
    grades = Grades(facts["grades"], facts["grade_names"]).shown
    same = [
        (reader["name"], grades[max(range(len(grades)), key=reader["by_grade"].__getitem__)])
        for reader in facts["readers"]
        if reader["readings"] >= ENOUGH and max(reader["by_grade"]) == reader["readings"]
    ]
    if not same:
        return ""
    named = "; ".join(f"{name} ({grade})" for name, grade in same[:NAMED])
    more = f"; and {len(same) - NAMED:,} more" if len(same) > NAMED else ""
    subject = "One reader always gives" if len(same) == 1 else f"{len(same):,} readers always give"
    return f"{subject} the same grade: {named}{more}. Such readings say nothing about an image."


def _higher(facts: Mapping[str, Any]) -> str:
    clear = [
        r
        for r in facts["readers"]
        if _excludes_zero(r["bias"], r["bias_interval"]) and abs(r["bias"]) >= 0.05 and r["readings"] >= FEW
    ]
    if len(facts["readers"]) < 2 or facts["bias_beside"] != "others" or not clear:
        return ""
    most = sorted(clear, key=lambda reader: -abs(reader["bias"]))[:NAMED]
    said = ", ".join(
        f"{r['name']} {abs(r['bias']):.2f} {'higher' if r['bias'] > 0 else 'lower'}" for r in most
    )
    others = len(clear) - len(most)
    more = f"; further readers whose interval excludes 0: {others:,}" if others else ""
    return f"Who grades higher or lower than the others who read the same {facts['noun']}s: {said}{more}."


def _excludes_zero(value: float | None, interval: Sequence[float | None]) -> bool:
    """Without an interval every draw gives the value itself."""
    low, high = (value if end is None else end for end in interval)
    return low is not None and high is not None and (low > 0 or high < 0)


def _again(facts: Mapping[str, Any]) -> str:
    again = [(r["repeated_items"], r["repeated"]) for r in facts["readers"] if r["repeated_items"]]
    if not again:
        return ""
    number = sum(count for count, _ in again)
    share = sum(count * same for count, same in again) / number
    if [reader["name"] for reader in facts["readers"]] == [NO_READER]:  # a crowd: nobody reads twice
        return f"Of two readings of the same {facts['noun']}, {share:.0%} have the same grade."
    return f"Read again by the same reader: {count_of(number, facts['noun'])}, with the same grade in {share:.0%}."


def _drifting(facts: Mapping[str, Any]) -> str:
    clear = [
        r
        for r in facts["readers"]
        if _excludes_zero(r["drift"], r["drift_interval"]) and r["readings"] >= FEW
    ]
    if not clear:
        return ""
    most = sorted(clear, key=lambda reader: -abs(reader["drift"]))[:NAMED]
    said = ", ".join(f"{r['name']} {r['drift']:+.2f}".replace("-", "−") for r in most)
    return f"Grades that change over time beside the other readers’, in grades per year: {said}."


def _few(facts: Mapping[str, Any]) -> str:
    few = sum(reader["readings"] < FEW for reader in facts["readers"])
    if not few or len(facts["readers"]) < 2 or nothing_learnt(facts):
        return ""
    which = "All readers" if few == len(facts["readers"]) else f"{few:,} of {len(facts['readers']):,} readers"
    verb = "has" if few == 1 and few < len(facts["readers"]) else "have"
    return f"{which} {verb} fewer than {FEW} readings: what is said of them follows mostly from the average reader."


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


# Everything that ``srjt readers`` says, as plain values: for readers.json, the page and the terminal.

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
