"""A worklist of srjt readers in the review: each reader's own images, blind, and the answers as readings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from browser import Browser, needs_browser
from srjt.auditing.folder import read_audit
from srjt.auditing.review_app import CANNOT_TELL, BlindSession
from srjt.auditing.review_log import Decisions, new_readings, read_verified_grades, worklist_lines
from srjt.cli import main
from srjt.data import read_readings
from srjt.data.sources.table import read_readers_folder
from srjt.errors import SrjtError

NAMES = ["a.png", "b.png", "c.png"]


def facts(*grades: str) -> str:
    return json.dumps({"format": 3, "grades": grades, "readers": [], "probabilities_sha256": None})


@pytest.fixture
def readers(tmp_path: Path) -> Path:
    """A folder as srjt readers writes it, with three images and a worklist."""
    folder = tmp_path / "readers"
    folder.mkdir()
    for shade, name in enumerate(NAMES):
        Image.new("RGB", (8, 8), (60 * shade, 0, 0)).save(tmp_path / name)
    (folder / "readers.json").write_text(facts("mild", "moderate", "severe"))
    pd.DataFrame({"id": NAMES, "image": [str(tmp_path / name) for name in NAMES]}).to_csv(
        folder / "consensus.csv", index=False
    )
    (folder / "readings.csv").write_text(
        "image,reader,grade,date,patient,consensus,probability\n"
        "a.png,anna,mild,2024-05-01,p,mild,0.9\nb.png,bo,severe,,q,severe,0.8\nc.png,bo,mild,,q,mild,0.6\n"
    )
    (folder / "worklist.csv").write_text("image,reader,gain\nc.png,anna,0.2\na.png,bo,0.15\nb.png,anna,0.1\n")
    return folder


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["srjt", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_each_reviewer_sees_their_own_images_in_the_order_of_the_list(readers: Path) -> None:
    source = read_readers_folder(readers)
    assert worklist_lines(readers / "worklist.csv", source, reviewer="anna") == [2, 1]
    assert worklist_lines(readers / "worklist.csv", source, reviewer="bo") == [0]
    with pytest.raises(SrjtError, match="nothing for the reviewer 'kim'; it is for anna, bo"):
        worklist_lines(readers / "worklist.csv", source, reviewer="kim")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,gain\na.png,1\n", "it is no worklist"),
        ("image,reader\nz.png,anna\n", "belongs to other images"),
    ],
)
def test_other_tables_are_refused(readers: Path, text: str, message: str) -> None:
    (readers / "other.csv").write_text(text)
    with pytest.raises(SrjtError, match=message):
        worklist_lines(readers / "other.csv", read_readers_folder(readers), reviewer="anna")


def test_without_image_files_the_sentence_says_what_to_do(readers: Path) -> None:
    pd.DataFrame({"id": NAMES, "image": NAMES}).to_csv(readers / "consensus.csv", index=False)
    with pytest.raises(SrjtError, match=r"no image files to show: .*--images DIR"):
        worklist_lines(readers / "worklist.csv", read_readers_folder(readers), reviewer="anna")


def test_answers_become_readings_and_no_verified_grades(readers: Path) -> None:
    source = read_readers_folder(readers)
    decisions = Decisions(readers / "decisions.sqlite")
    session = BlindSession(audit=source, decisions=decisions, reviewer="anna", lines=[2, 1], purpose="read")
    session.answer(0, 0)
    session.answer(0, 1)  # a new answer replaces the old one
    session.answer(1, CANNOT_TELL)
    assert session.answers() == [1, CANNOT_TELL]
    assert decisions.answers("verify") == []
    table, notes = new_readings(source, decisions.answers("read"))
    decisions.close()
    assert read_verified_grades(readers) == {}
    assert notes == []
    table.to_csv(readers / "all.csv", index=False)
    found = read_readings(readers / "all.csv", grades=source.grades)
    assert len(found.readings) == 4
    assert (table.iloc[-1]["image"], table.iloc[-1]["reader"], table.iloc[-1]["grade"]) == (
        "c.png",
        "anna",
        "moderate",
    )
    assert table.iloc[-1]["patient"] == "q"  # as in the earlier readings of the image
    assert found.problems == ()


def test_an_audit_takes_a_worklist_too(audit_folder: Path, tmp_path: Path) -> None:
    audit = read_audit(audit_folder)
    worklist = tmp_path / "worklist.csv"
    pd.DataFrame({"item": audit.ids[:3], "reader": ["anna", "bo", "anna"], "gain": 0.1}).to_csv(
        worklist, index=False
    )
    assert worklist_lines(worklist, audit, reviewer="anna") == [0, 2]
    decisions = Decisions(audit_folder / "decisions.sqlite")
    decisions.add_answer(audit.ids[0], purpose="read", reviewer="=cmd()", grade=audit.grades[1])
    table, _ = new_readings(audit, decisions.answers("read"))
    decisions.close()
    assert table.drop(columns="date").to_dict("records") == [
        {"image": audit.ids[0], "reader": "'=cmd()", "grade": audit.grades[1]}
    ]


def test_the_export_appends_and_says_what_is_next(
    readers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = readers / "more.csv"
    assert command(monkeypatch, "review", "export", readers, "--readings", "--out", out) == 2
    assert "Nothing of a worklist is read" in capsys.readouterr().err
    decisions = Decisions(readers / "decisions.sqlite")
    decisions.add_answer("c.png", purpose="read", reviewer="anna", grade="severe")
    decisions.close()
    assert command(monkeypatch, "review", "export", readers, "--readings", "--out", out) == 0
    said = capsys.readouterr().out
    assert "4 readings, 1 of them new." in said
    assert f"Next: srjt readers {out}" in said
    assert (
        command(monkeypatch, "review", "export", readers, "--readings", "--out", out) == 2
    )  # never by accident


def test_options_that_contradict_a_worklist_are_refused(
    readers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worklist = readers / "worklist.csv"
    assert command(monkeypatch, "review", readers, "--worklist", worklist, "--sample", 3, "--no-open") == 2
    assert "leave out --sample, --limit and --alone" in capsys.readouterr().err


@pytest.mark.slow
@needs_browser
def test_a_worklist_is_read_in_the_browser(readers: Path, serve: Callable[..., Any], tmp_path: Path) -> None:
    (readers / "readers.json").write_text(facts("1", "2", "3"))
    served = serve(readers, "--reviewer", "anna", "--worklist", readers / "worklist.csv")
    browser = Browser(tmp_path / "profile")
    try:
        tab = browser.tab()
        tab.open(served.address)
        shown = "document.querySelector('#view > img')?.complete"
        for position, key in enumerate("12"):
            tab.wait(f"document.body.classList.contains('ready') && {shown}")
            body = str(tab.js("document.body.innerText"))
            assert not any(name in body for name in NAMES)
            names = [
                text.split()
                for text in tab.js("[...document.querySelectorAll('.grade')].map((b) => b.innerText)")
            ]
            assert names == [[key, "Grade", key] for key in "123"]  # not twice the key
            tab.press(key)
            tab.wait(f"document.querySelector('#progress').textContent === '{position + 1} of 2 answered'")
        tab.wait("!document.querySelector('#finished').hidden")
        text = str(tab.js("document.querySelector('#finished').innerText"))
        assert "2 of 2 images have a grade." in text
        assert "verified" not in text
        assert tab.complaints() == []
    finally:
        browser.close()
    said = served.interrupt()
    assert "Read: 2 of 2 images." in said
    assert "--readings" in said
