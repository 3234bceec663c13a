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
    **estimate: Any,
) -> Path:
    make_audit_folder(folder, images=images, size=32, table=False)
    scores = pd.read_csv(folder / "audit.csv")
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
