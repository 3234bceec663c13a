"""What the list of further readings says of itself follows from the facts."""

from __future__ import annotations

from typing import Any

import pytest

from srjt.reports.pages.reader_cells import range_text
from srjt.reports.reader_findings import consensus_sentences, next_sentence

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
