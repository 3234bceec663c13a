"""What is said about several readers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from srjt.readers import Readings
from srjt.reports.reader_facts import consensus_sentences, drift, next_sentence
from srjt.reports.table import range_text

# What the list of further readings says of itself follows from the facts.

NEW, ANNA = [{"reader": "new reader"}], [{"reader": "anna"}, {"reader": "new reader"}]


@pytest.mark.parametrize(
    ("wanted", "trusted", "start"),
    [
        (ANNA, None, "Next, one more reading of these gains most:"),
        (NEW, None, "Every reader has read every image. Ask a new reader"),
        (NEW, 3, "Every reader has read every image without a trusted grade. Ask a new reader"),
        ([], None, "Nothing to read next: the table names no readers"),
        ([], 3, "Nothing to read next: the table names no readers"),
        ([], 9, "Nothing to read next: every image has a trusted grade."),
    ],
)
def test_the_sentence_about_what_to_read_next(
    wanted: list[dict[str, str]], trusted: int | None, start: str
) -> None:
    reference = None if trusted is None else {"items": trusted}
    facts: dict[str, Any] = {"noun": "image", "items": 9, "next": wanted, "reference": reference}
    assert next_sentence(facts).startswith(start)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ([0.91, 0.97], "91% to 97%"),
        ([0.992, 0.9948], "99.2% to 99.5%"),
        ([0.9995, 0.99964], "99.95% to 99.96%"),
        ([None, None], "–"),
    ],
)
def test_ends_that_differ_look_different(interval: list[float | None], text: str) -> None:
    assert range_text(interval, "{:.0%}") == text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"changed": 0}, ["The consensus of each image is its reading."]),
        ({"changed": 1}, ["The consensus of 1 image differs from the reading, by what is usual for readers alone: "
                          "use the readings instead."]),
        ({}, []),
    ],
)  # fmt: skip
def test_a_consensus_of_single_readings_that_differs_from_them(
    changed: dict[str, int], said: list[str]
) -> None:
    consensus = {"single": 9, **changed}
    facts = {"noun": "image", "items": 9, "reference": None, "probabilities": None, "consensus": consensus}
    assert consensus_sentences(facts) == said


# How a reader's grades change over time.


def readings(count: int, grades: list[int], **more: Any) -> Readings:
    return Readings(
        items=[f"i{k}" for k in range(count)],
        readers=["r"],
        grades=("0", "1", "2"),
        item=np.arange(count),
        reader=np.zeros(count, dtype=np.int64),
        grade=np.array(grades),
        **more,
    )


def test_a_reader_who_grades_higher_from_some_day_on_drifts() -> None:
    days = np.datetime64("2024-01-01") + np.arange(100)
    agreed: Any = SimpleNamespace(posterior=np.tile([0.0, 1.0, 0.0], (100, 1)))
    dates, values = drift(readings(100, [1] * 50 + [2] * 50, times=days[::-1]), agreed)["r"]
    assert dates == sorted(dates)
    assert values[0] == pytest.approx(1)  # the first days have the last readings
    assert values[-1] == pytest.approx(0)


def test_without_dates_or_with_few_of_them_there_is_no_drift() -> None:
    agreed: Any = SimpleNamespace(posterior=np.tile([0.0, 1.0, 0.0], (15, 1)))
    assert drift(readings(15, [1] * 15), agreed) == {}
    few = np.full(15, np.datetime64("NaT", "s"))
    few[:12] = np.datetime64("2024-01-01")
    assert drift(readings(15, [1] * 15, times=few), agreed) == {}
