"""The names of grades on the pages of audits and studies, and in a review."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import srjt
from fixtures.run_folders import edit_json, make_study
from reports.test_audit_page import write_folder
from srjt.auditing.folder import read_audit
from srjt.auditing.review_app import ReviewSession
from srjt.errors import SrjtError
from srjt.studies.config import StudyConfig

pytestmark = pytest.mark.usefixtures("undrawn")  # the text is tested

NAMES = {"Mayo 0": "normal", "Mayo 1": "<b>mild", "Mayo 2": "moderate", "Mayo 3": "severe"}


@pytest.mark.slow
def test_an_audit_keeps_and_shows_them(make_audit_folder, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "audit", make_audit_folder, truth=True)
    (path,) = srjt.write_report(folder)
    assert "(normal)" not in path.read_text()
    edit_json(folder / "audit.json", grade_names=NAMES)
    page = srjt.write_report(folder)[0].read_text()
    assert "Mayo 0 (normal)" in page
    assert "Mayo 1 (&lt;b&gt;mild)" in page
    assert "<b>mild" not in page


def test_a_review_shows_them(make_audit_folder, tmp_path: Path) -> None:
    audit = read_audit(write_folder(tmp_path / "audit", make_audit_folder))
    nothing: object = None
    plain = ReviewSession(audit=audit, decisions=nothing, reviewer="A", queue=1)  # type: ignore[arg-type]
    assert json.loads(plain.samples_json)["names"] is None
    named = replace(plain, audit=replace(audit, grades=audit.grades.named(NAMES)))
    sent = json.loads(named.samples_json)
    assert sent["grades"] == list(NAMES)  # what is decided stays the grade
    assert sent["names"][3] == "Mayo 3 (severe)"


def test_damaged_names_are_one_sentence(make_audit_folder, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "audit", make_audit_folder)
    for damaged in (["normal"], {"Mayo 9": "x"}, {"Mayo 0": "\x1b[31m"}):
        edit_json(folder / "audit.json", grade_names=damaged)
        with pytest.raises(SrjtError):
            read_audit(folder)


@pytest.mark.slow
def test_a_study_keeps_and_shows_them(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "study", folds=1, methods=("standard",))
    assert "(severe)" not in srjt.write_report(folder)[0].read_text()
    edit_json(folder / "study.json", study={"grade_names": NAMES})
    page = srjt.write_report(folder)[0].read_text()
    assert "Mayo 3 (severe)" in page
    assert "<b>mild" not in page
    config = StudyConfig.from_dict(
        {"source": "labels.csv", "grade_names": {0: "none", "1": "some"}}
    )
    assert StudyConfig.from_dict(config.to_dict()).grade_names == {"0": "none", "1": "some"}
