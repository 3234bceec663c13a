"""What is said about several readers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from srjt.data import read_readings
from srjt.readers import Readings
from srjt.reports.page import sentences
from srjt.reports.pages.readers import (
    NEXT_READINGS,
    REMARKS,
    VERDICT,
    WARNINGS,
    drift,
    page_facts,
    unused_columns,
)

# What the rules know, and which of them hold.

NEW, ANNA = [{"reader": "new reader"}], [{"reader": "anna"}, {"reader": "new reader"}]
FACTS: dict[str, Any] = {
    "noun": "image", "items": 9, "reference": None, "probabilities": None, "agreement": None, "problems": [],
    "grades": ["0", "1"], "grade_names": {}, "readers": [{"name": "anna", "readings": 9, "by_grade": [5, 4]}],
    "resampled": "images", "next": None,
    "consensus": {
        "single": 0, "expected_wrong": 1.8, "determined": True, "reason": "", "assumption": "",
        "wrong_readings": {"value": 0.3, "low": None, "high": None},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "trusted", "start"),
    [
        (ANNA, None, "One more reading of these helps most."),
        (NEW, None, "Every reader has read every image. Ask a new reader"),
        (NEW, 3, "Every reader has read every image without a trusted grade. Ask a new reader"),
        ([], 3, "Nothing to read next: the table names no readers"),
        ([], 9, "Nothing to read next: every image has a trusted grade."),
    ],
)
def test_the_sentence_about_what_to_read_next(wanted: list[dict[str, str]], trusted: int | None, start: str) -> None:
    facts = page_facts(FACTS | {"next": wanted, "reference": trusted and {"items": trusted}})
    assert sentences(NEXT_READINGS, facts)[0].startswith(start)


READERS = [
    {"name": "anna", "readings": 9, "by_grade": [5, 4]},
    {"name": "bo", "readings": 30, "by_grade": [0, 30]},
    {"name": "cy", "readings": 4, "by_grade": [4, 0]},
]
SINGLE = FACTS["consensus"] | {"single": 9}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"nothing_learnt": False, "no_overlap": False, "wrong": 0.3, "consensus_wrong": 0.2}),
        ({"consensus": SINGLE}, {"nothing_learnt": True}),
        ({"consensus": SINGLE, "probabilities": "p.csv"}, {"nothing_learnt": False}),
        ({"consensus": SINGLE, "reference": {"items": 2}}, {"nothing_learnt": False}),
        ({"readers": READERS}, {"constant": "bo (1)", "no_overlap": True}),
        ({"readers": READERS, "agreement": {"exact": {"value": 0.5}}}, {"no_overlap": False, "exact": 0.5}),
        ({"problems": [{"kind": "a"}, {"kind": "b"}, {"kind": "a"}]}, {"kinds": "2 a, 1 b"}),
    ],
)
def test_what_the_rules_know_is_so(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    facts = page_facts(FACTS | changes)
    assert {name: getattr(facts, name) for name in expected} == expected


def test_every_rule_is_needed() -> None:
    """Each holds for some facts, and not for all."""
    unknown = {"consensus": FACTS["consensus"] | {"determined": False, "single": 3, "assumption": "All are fair."}}
    single = {"consensus": SINGLE}
    told = {"readers": READERS, "problems": [{"kind": "a"}], "agreement": {"exact": {"value": 0.5}}}
    apart = {"readers": READERS}
    trusted = told | {"reference": {"items": 9}}
    every = [page_facts(FACTS | changes) for changes in ({}, unknown, single, told, apart, trusted)]
    for holds, template, *_ in [*VERDICT[:-1], *WARNINGS, *REMARKS]:
        assert {bool(holds(facts)) for facts in every} == {True, False}, template
        assert all(template.format(f=facts) for facts in every if holds(facts))


def test_columns_that_were_not_used_are_named() -> None:
    frame = pd.DataFrame({"image": list("ab"), "reader": list("xy"), "grade": [0, 1], "camera": 7, "eye": 0})
    assert unused_columns(read_readings(frame)) == ["camera", "eye"]


# How a reader's grades change over time.


def drifting(count: int, grades: list[int], **more: Any) -> dict[str, tuple[list[str], list[float]]]:
    """Of one reader whose consensus is always the middle grade."""
    read = Readings(
        items=[f"i{k}" for k in range(count)], readers=["r"], grades=("0", "1", "2"), item=np.arange(count),
        reader=np.zeros(count, dtype=np.int64), grade=np.array(grades), **more,
    )  # fmt: skip
    agreed: Any = SimpleNamespace(posterior=np.tile([0.0, 1.0, 0.0], (count, 1)))
    return drift(read, agreed)


def test_a_reader_who_grades_higher_from_some_day_on_drifts() -> None:
    days = np.datetime64("2024-01-01") + np.arange(100)
    dates, values = drifting(100, [1] * 50 + [2] * 50, times=days[::-1])["r"]
    assert dates == sorted(dates)
    assert values[0] == pytest.approx(1)  # the first days have the last readings
    assert values[-1] == pytest.approx(0)


def test_without_dates_or_with_few_of_them_there_is_no_drift() -> None:
    few = np.full(15, np.datetime64("NaT", "s"))
    few[:12] = np.datetime64("2024-01-01")
    assert drifting(15, [1] * 15) == drifting(15, [1] * 15, times=few) == {}
