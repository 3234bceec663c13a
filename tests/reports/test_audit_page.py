"""The text of the audit page is true for all data: with and without patients, images and known true
grades."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import srjt
from fixtures.noisy_features import counted
from srjt.auditing.folder import read_audit
from srjt.auditing.scores import summarise
from srjt.errors import SrjtError
from srjt.reports.pages.audit import audit_page

pytestmark = pytest.mark.usefixtures("undrawn")  # the text is tested


def write_folder(
    folder: Path,
    make_audit_folder: Callable[..., Path],
    *,
    images: int = 12,
    patients: bool = True,
    features: bool = False,
    truth: bool = False,
    learnt: bool = True,
    verified: bool = False,
    **estimate: Any,
) -> Path:
    make_audit_folder(folder, images=images, size=32, table=False)
    scores = pd.read_csv(folder / "audit.csv")
    if verified:
        wrong = scores["suggested"] != scores["grade"]
        scores["verified_grade"] = scores["suggested"].where(scores.index % 2 == 0, "")
        scores["quality"] = scores["quality"].mask(scores.index % 2 == 0, 1.0 - wrong)
        scores["verified_probability"] = 0.5
    if not patients:
        scores = scores.drop(columns="patient")
    if features:
        scores["image"] = ""
    if truth:
        scores["true_grade"] = scores["suggested"]
    if not learnt:
        scores["network_1"] = scores["network_2"] = scores["grade"].mode()[0]
    scores.to_csv(folder / "audit.csv", index=False)
    found = read_audit(folder)
    facts = json.loads((folder / "audit.json").read_text())
    facts["features"] = features
    (folder / "audit.json").write_text(json.dumps(facts))
    noise = replace(counted(found.labels, found.probabilities, **estimate), learnt=learnt)
    if verified:
        noise = replace(noise, verified_shares=((0.25, 0.1, 0.5),) * 4)
    summary = summarise(scores.astype({"grade": str}), noise, grades=found.grades)
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_a_label_that_is_the_most_probable_grade_has_no_arrow(
    make_audit_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "audit", make_audit_folder)
    found = read_audit(folder)
    [section] = [part for part in audit_page(folder).sections if part.slug == "audit"]
    arrows = ["→" in tile.title for tile in section.tiles]
    assert arrows == (found.suggested != found.labels).tolist()
    assert [tile.text for tile in section.tiles] == found.ids


def test_without_a_suggestion_there_is_no_filter_of_suggestions(
    make_audit_folder: Callable[..., Path], tmp_path: Path
) -> None:
    for suggests in (True, False):
        folder = write_folder(tmp_path / f"audit {suggests}", make_audit_folder)
        if not suggests:
            scores = pd.read_csv(folder / "audit.csv")
            same = scores["suggested"] == scores["grade"]
            scores.assign(suggested=scores["suggested"].where(same, "")).to_csv(
                folder / "audit.csv", index=False
            )
        tiles = [tile for section in audit_page(folder).sections for tile in section.tiles]
        assert any("suggested" in tile.keys for tile in tiles) == suggests


def test_one_rate_has_one_interval(
    make_audit_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all labels, and of each grade: not that of the verified labels alone beside that of all
    evidence. Verified labels are known, so they are in no histogram of doubt; nor are labels of
    grades that the networks do not recognise."""
    drawn = []
    monkeypatch.setattr(
        "srjt.reports.pages.audit._histogram", lambda quality: drawn.append(len(quality))
    )
    folder = write_folder(tmp_path / "audit", make_audit_folder, images=20, verified=True)
    facts = json.loads((folder / "summary.json").read_text())
    assert facts["verified"]["by_doubt"]
    page = audit_page(folder)
    numbers = {number.label: number for number in page.key_numbers}
    assert [number.label for number in page.key_numbers if number.interval] == ["wrong labels"]
    sample = numbers["verified labels"]
    assert (sample.value, sample.interval) == ("10", "")
    assert f"wrong: {facts['verified']['wrong']};" in sample.compared
    tables = {table.slug: table for section in page.sections for table in section.tables}
    assert "rates-verified" not in tables
    table = tables["rates-grade"]
    place = [column.label for column in table.columns].index("error rate")
    known = {row["grade"] for row in facts["verified"]["grades"]}
    for row in table.rows:
        assert ("25" in row.cells[place].text) == (row.cells[0].text in known), row
    assert known
    scores = pd.read_csv(folder / "audit.csv", keep_default_na=False)
    left = scores[scores["verified_grade"] == ""]
    assert len(left) == 10
    assert drawn == [int((~left["grade"].isin(facts["unrecognised"])).sum())]
    for row in facts["grades"]:  # summary.json has no second rate of a grade
        if row["grade"] in known and row["rate"] is not None:
            assert (row["rate"], row["interval"]) == (0.25, [0.1, 0.5])
    assert not {"rate", "interval"} & set(facts["verified"])  # of the sample by itself


def test_the_command_works_from_any_folder_name(
    make_audit_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "my audit", make_audit_folder)
    assert audit_page(folder).sections[-1].code == f"srjt review '{folder}'"


def test_a_folder_that_is_damaged_is_refused_in_one_sentence(
    make_audit_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "audit", make_audit_folder)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "matrix": "lost"}))
    with pytest.raises(SrjtError, match="damaged or not from srjt"):
        srjt.write_report(folder)
    (folder / "summary.json").unlink()
    with pytest.raises(
        SrjtError, match=r"is not the folder of an audit \(it contains no summary\.json\)"
    ):
        audit_page(folder)


def test_half_of_an_audit_is_no_audit(
    make_audit_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "audit", make_audit_folder)
    lines = (folder / "audit.csv").read_text().splitlines(keepends=True)
    (folder / "audit.csv").write_text("".join(lines[: len(lines) // 2]))
    with pytest.raises(SrjtError, match=r"audit\.csv has \d+ lines, but the audit has \d+ samples"):
        audit_page(folder)
