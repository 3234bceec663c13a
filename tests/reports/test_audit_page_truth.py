"""Every sentence and every fact on the page of an audit is true, with and without patients, images
and true grades."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from reports.page_text import facts_of, idle_sentences
from reports.test_audit_page import write_folder
from srjt.auditing.folder import read_audit, read_facts, read_summary
from srjt.reports.pages import audit as audit_page

pytestmark = pytest.mark.slow

# patients, features, identifiable, truth, images, twins, learnt
CASES = [
    *product([False, True], [False, True], [False, True], [False, True], [12], [False], [True]),
    (True, True, True, False, 64, False, True),
    (True, False, True, False, 12, True, True),
    *((True, *three, 12, False, False) for three in product([False, True], repeat=3)),
    (True, False, False, False, 12, True, False),
]


def folder_of(case: tuple[Any, ...], folder: Path, make_audit_folder: Callable[..., Path]) -> Path:
    patients, features, identifiable, truth, images, twins, learnt = case
    write_folder(
        folder, make_audit_folder, images=images, patients=patients, features=features, truth=truth,
        identifiable=identifiable, reason="" if identifiable else "there are few labels.", learnt=learnt,
    )  # fmt: skip
    if twins:
        scores = pd.read_csv(folder / "audit.csv")
        scores["twins"] = ["1", "1", *[""] * (images - 2)]
        scores.to_csv(folder / "audit.csv", index=False)
        summary = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(
            json.dumps({**summary, "twins": {"images": 1, "labels": 2}})
        )
    return folder


def scores_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "audit.csv", dtype=str)


@pytest.mark.parametrize("case", CASES)
def test_the_page_of_an_audit_is_true(
    case: tuple[Any, ...],
    make_audit_folder: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patients, features, identifiable, truth, images, twins, learnt = case
    for place in ("canvas.transition_figure", "_histogram"):  # captions are checked, not drawings
        monkeypatch.setattr(f"srjt.reports.pages.audit.{place}", lambda *args, **kwargs: None)
    folder = folder_of(case, tmp_path / "audit", make_audit_folder)
    audit = read_audit(folder)
    facts = audit_page.audit_facts(
        read_facts(folder), read_summary(folder), folder, images=not features
    )
    another = int((audit.suggested != audit.labels).sum())
    expected = {
        "judged": learnt,
        "learnt": learnt,
        "identifiable": identifiable,
        "thing": ("sample" if features else "image") + (" or its patient" if patients else ""),
        "samples": images,
        "several": False,
        "twins": "2 labels" if twins else "",
        "another_likelier": another,
        "folds": 5,
    }
    assert {name: getattr(facts, name) for name in expected} == expected
    assert ("naive" in facts.caveat, facts.has_patients) == (not learnt, patients)
    summary = read_summary(folder)
    accuracy = np.mean([g == audit.labels for g in audit.network_grades])
    assert summary["networks"]["accuracy"] == pytest.approx(accuracy, abs=1e-4)
    naive_accuracy = np.bincount(audit.labels).max() / images
    assert summary["networks"]["naive_accuracy"] == pytest.approx(naive_accuracy, abs=1e-4)
    assert 0 <= facts.low <= facts.high <= 1
    assert facts.low <= facts.rate <= facts.high
    page = audit_page.audit_page(folder)
    # nothing is said but what the rules say
    assert (page.title, page.lead) == audit_page.verdict_of(facts)
    assert page.warnings == list(audit_page.warnings_of(facts))
    assert page.remarks == list(audit_page.remarks_of(facts))
    assert any("srjt review" in text for text in page.warnings) == (
        bool(facts.verify) and not features
    )
    arrows = learnt and not features
    legend = "A → B means label A, suggested grade B."
    if identifiable:
        legend = f"The number is the probability that the label is right. {legend}"
    said = [text for section in page.sections for text in section.text]
    assert said == ([legend] if arrows else [])
    numbers = {number.label: number for number in page.key_numbers}
    assert ("known wrong labels" in numbers) == truth
    assert numbers["wrong labels"].value.count("%") == (1 if identifiable else 2)
    assert bool(numbers["wrong labels"].interval) == identifiable
    shown = facts_of(page)
    assert ("likeliest form" in shown) == identifiable
    assert (shown["method"], shown["network"], shown["samples"]) == (
        "co-teaching+ours",
        "tiny",
        str(images),
    )
    tables = {table.slug: table for section in page.sections for table in section.tables}
    assert ("rates-patient" in tables) == (patients and learnt)
    for table in tables.values():
        if table.slug.startswith("rates-"):
            named = {column.label for column in table.columns}
            assert ({"error rate", "95 % interval"} <= named) == (learnt and identifiable)
            assert ("rank" in named) == (not identifiable and table.slug != "rates-grade")
    assert ("worst-audit" in tables) == features
    tiles = [tile for section in page.sections for tile in section.tiles]
    assert any("→" in tile.title for tile in tiles) == arrows
    assert [tile.keys["label"] for tile in tiles] == scores_of(folder)["grade"].tolist()[
        : len(tiles)
    ]
    assert all(("patient" in tile.keys) == patients for tile in tiles)
    unseen = set(summary["unrecognised"])
    known = [
        learnt and identifiable and label not in unseen for label in scores_of(folder)["grade"]
    ]
    assert [tile.share is not None for tile in tiles] == known[: len(tiles)]
    assert [bool(tile.number) for tile in tiles] == known[: len(tiles)]
    assert ["identical images, 1" in tile.detail for tile in tiles] == [
        twins and n < 2 for n in range(len(tiles))
    ]


def test_every_rule_is_needed(make_audit_folder: Callable[..., Path], tmp_path: Path) -> None:
    """Each holds for some audit, and not for all. Those of several readers have a test of their
    own."""
    every = []
    for number, case in enumerate(CASES):
        folder = folder_of(case, tmp_path / str(number), make_audit_folder)
        told = read_facts(folder), read_summary(folder), folder
        every.append(audit_page.audit_facts(*told, images=not case[1]))
    every.append(
        replace(
            every[0], suggested=3, several=True, learnt=False, identifiable=True, readings_wrong=0.1
        )
    )
    # without a rate, suggestions have no share of right ones
    unknown = replace(every[0], suggested=3, identifiable=False, right=0.9)
    assert audit_page.suggestion_of(unknown).endswith("another grade is suggested.")
    assert "90%" in audit_page.suggestion_of(replace(unknown, identifiable=True))
    every.append(unknown)
    every.append(replace(every[0], verify="", assumption="It is so.", another_likelier=0))
    every.append(replace(every[0], verify="56 labels", random=100))
    for function in (audit_page.verdict_of, audit_page.suggestion_of, audit_page.warnings_of):
        assert idle_sentences(function, every) == []
    assert len(idle_sentences(audit_page.remarks_of, every)) == 1  # is always made
