"""What is said about several readers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from reports.page_text import idle_sentences
from srjt.data import read_readings
from srjt.data.grades import Grades
from srjt.data.sources.readers_folder import worklist_table
from srjt.data.sources.readings import combine
from srjt.readers.agreement import agreement
from srjt.readers.repeats import repeats_of
from srjt.reports.pages.readers import (
    ReadersFacts,
    page_facts,
    readers_page,
    remarks_of,
    verdict_of,
    warnings_of,
)

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The intervals of the readers are not tested here."""
    monkeypatch.setattr("srjt.readers.intervals._DRAWS", 2)


# Of nine images, anna reads all and bo the first six; cy gives always the same grade.

IMAGES = [f"{n}.png" for n in range(9)]
ANNA = [(image, "anna", n % 2) for n, image in enumerate(IMAGES)]
BO = [(image, "bo", 0) if n == 3 else (image, "bo", n % 2) for n, image in enumerate(IMAGES[:6])]
CY = [(image, "cy", 1) for image in IMAGES]
WHOLE = [*ANNA, *((image, "bo", n % 3 % 2) for n, image in enumerate(IMAGES))]


def table_of(rows: list[tuple[str, str, int]], **columns: Any) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["image", "reader", "grade"]).assign(**columns)


def facts_of(table: pd.DataFrame, *, ask: int | None = None, **options: Any) -> ReadersFacts:
    read = read_readings(table, grades=("0", "1"))
    agreed = combine(read.readings, **options)
    wanted = None if ask is None else worklist_table(read, agreed, ask, per_reader=None)
    about: dict[str, Any] = {"worklist": wanted, "repeats": repeats_of(read.readings)}
    return page_facts(read, agreement(read.readings), agreed, shown=["none", "some"], **about)


TRUSTED = {image: n % 2 for n, image in enumerate(IMAGES)}
SOME = [TRUSTED[image] if image < "3" else None for image, *_ in WHOLE]


@pytest.mark.parametrize(
    ("table", "start"),
    [
        (table_of([*ANNA, *BO]), []),
        (table_of(WHOLE), ["Every reader has read every image in doubt: ask a new reader."]),
        (
            table_of(WHOLE, reference=SOME),
            ["Every reader has read every image in doubt: ask a new reader."],
        ),
        (
            table_of(WHOLE).drop(columns="reader"),
            ["Nothing to read next: the table names no readers"],
        ),
        (
            table_of(WHOLE, reference=[TRUSTED[image] for image, *_ in WHOLE]),
            ["Nothing to read next: every image has a trusted grade."],
        ),
    ],
)
def test_who_is_asked_next(table: pd.DataFrame, start: list[str]) -> None:
    said = list(warnings_of(facts_of(table, ask=3)))
    about_asking = [text for text in said if text.startswith(("Nothing to read", "Every reader"))]
    assert [text[: len(begin)] for text, begin in zip(about_asking, start, strict=True)] == start


@pytest.mark.parametrize(
    ("table", "options", "expected"),
    [
        (
            table_of([*ANNA, *BO]),
            {},
            {"nothing_learnt": False, "no_overlap": False, "exact": 5 / 6, "single": 3},
        ),
        (table_of(ANNA), {}, {"nothing_learnt": True, "no_overlap": False, "exact": None}),
        (table_of(ANNA), {"probabilities": [[0.5, 0.5]] * 9}, {"nothing_learnt": False}),
        (
            table_of(ANNA, reference=[1, 0, *[None] * 7]),
            {},
            {"nothing_learnt": False, "trusted": 2},
        ),
        (
            table_of([*ANNA[:5], *CY[5:]]),
            {},
            {"constant": "", "no_overlap": True},
        ),  # four readings may be chance
        (table_of([*ANNA, *CY]), {}, {"constant": "cy (some)", "no_overlap": False}),
        (
            table_of([*ANNA, ("1.png", "bo", 7), ("2.png", "bo", 8)]),
            {},
            {"kinds": "2 invalid-grade"},
        ),
        (table_of([*ANNA, *BO], patient="p"), {}, {"resampled": "patients"}),
    ],
)
def test_what_the_rules_know_is_so(
    table: pd.DataFrame, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    facts = facts_of(table, **options)
    assert {name: getattr(facts, name) for name in expected} == pytest.approx(expected)


@pytest.mark.slow
def test_every_rule_is_needed() -> None:
    """Each holds for some tables, and not for all."""
    every = [
        facts_of(table_of([*ANNA, *BO, ("1.png", "bo", 7)])),
        facts_of(table_of(ANNA)),
        facts_of(table_of([*ANNA[:5], *CY[5:]])),
        facts_of(table_of([*ANNA, *BO, *CY])),
        facts_of(table_of([*ANNA, *ANNA, *BO], date=[f"2024-01-0{n // 5 + 1}" for n in range(24)])),
        facts_of(table_of(WHOLE), ask=1),
        facts_of(table_of(WHOLE).drop(columns="reader"), ask=1),
        facts_of(table_of(WHOLE, reference=[TRUSTED[image] for image, *_ in WHOLE]), ask=1),
    ]
    every.append(replace(every[0], determined=True))  # these tables are small
    every.append(replace(every[0], determined=True, exact=None))
    every.append(replace(every[0], determined=True, trusted=every[0].items))
    for function in (verdict_of, warnings_of, remarks_of):
        assert idle_sentences(function, every) == []


def test_the_page_has_the_numbers_of_the_results() -> None:
    """The tables of readers, pairs and readings are those of agreement and consensus."""
    read = read_readings(
        table_of([*ANNA, *BO, *CY], date=[f"2024-01-{1 + n % 28:02d}" for n in range(24)])
    )
    agree, agreed = agreement(read.readings), combine(read.readings)
    page = readers_page(
        read, agree, agreed, source="t.csv", grades=Grades(("0", "1"), {"0": "none", "1": "some"})
    )
    tables = {table.slug: table for section in page.sections for table in section.tables}
    headings = [column.label.strip() for column in tables["readers"].columns]
    assert headings == ["reader", "readings", "right", "95 %", "higher", "95 %", "drift", "95 %"]
    rows = {row.cells[0].text: [cell.value for cell in row.cells] for row in tables["readers"].rows}
    assert list(rows) == ["anna", "cy", "bo"]  # the most readings first
    for place, name in enumerate(agree.readers):
        assert rows[name][2] == (
            pytest.approx(1 - agreed.noise_rate[place]) if agreed.determined else None
        )
        assert rows[name][4] == pytest.approx(agree.by_reader["bias"][place])
    pairs = {
        tuple(cell.text for cell in row.cells[:2]): row.cells[3].value
        for row in tables["pairs"].rows
    }
    for pair in agree.pairs.itertuples():
        assert pairs[agree.readers[pair.first], agree.readers[pair.second]] == pytest.approx(
            pair.quadratic, nan_ok=True
        )
    worst = min(agreed.posterior[read.readings.item, read.readings.grade])
    assert tables["worst-readings"].rows[0].cells[-1].value == pytest.approx(worst)
    assert {cell.text for row in tables["worst-readings"].rows for cell in row.cells[2:4]} == {
        "0 (none)",
        "1 (some)",
    }


def test_second_readings_that_came_too_soon_are_a_warning() -> None:
    """All nine of anna's were on the next day."""
    days = ["2024-01-01"] * 9 + ["2024-01-02"] * 9
    soon = facts_of(table_of([*ANNA, *ANNA, *BO], date=[*days, *days[:6]]))
    assert (soon.second, soon.soon) == (9, 9)
    late = facts_of(table_of([*ANNA, *ANNA, *BO], date=[*days[:9], *["2024-02-02"] * 15]))
    assert (late.second, late.soon) == (9, 0)
    assert len(list(warnings_of(soon))) == len(list(warnings_of(late))) + 1


def test_rates_that_are_not_determined_have_intervals_alone() -> None:
    read = read_readings(table_of([*ANNA, *BO]))
    page = readers_page(
        read,
        agreement(read.readings),
        combine(read.readings),
        source="t.csv",
        grades=Grades(read.readings.grades),
    )
    tables = {table.slug: table for section in page.sections for table in section.tables}
    headings = [column.label.strip() for column in tables["readers"].columns]
    assert headings[2:4] == ["right", "95 %"]
    for row in tables["readers"].rows:
        assert "%" not in row.cells[2].text
        assert "%" in row.cells[3].text
