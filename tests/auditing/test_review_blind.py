"""The blind verification of a random sample: what the server sends, what is stored, what follows
from it."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image, PngImagePlugin

from auditing.test_review_server import Client, serving
from browser import Browser, needs_browser
from fixtures.audit_folders import make_audit
from refusals import refuses
from srjt.auditing import blind_readings, verification
from srjt.auditing.blind_readings import draw_sample, new_readings, read_verified_grades
from srjt.auditing.folder import read_audit
from srjt.auditing.review_app import CANNOT_TELL, BlindSession
from srjt.auditing.review_log import Decisions
from srjt.data import read, read_readings
from srjt.data.sources.readers_folder import read_readers_folder

PATHS = [
    "/", "/page/sample.js", "/page/review.js", "/page/audit.js", "/page/index.html", "/image/0", "/image/7", "/image/8",
    "/image/-1", "/thumb/0", "/api/sample", "/api/samples", "/api/updates", "/api/neighbours/0", "/map/0", "/pixels/0",
]  # fmt: skip


@pytest.fixture
def session(audit_folder: Path) -> Iterator[BlindSession]:
    audit = read_audit(audit_folder)
    decisions = Decisions(audit_folder / "decisions.sqlite")
    yield BlindSession(
        audit=audit, decisions=decisions, reviewer="anna", lines=draw_sample(audit, 8)
    )
    decisions.close()


@pytest.fixture
def client(session: BlindSession) -> Iterator[Client]:
    with serving(session) as made:
        yield made


def test_a_larger_sample_begins_with_the_smaller_one(audit_folder: Path) -> None:
    audit = read_audit(audit_folder)
    few, all_lines = draw_sample(audit, 5), draw_sample(audit, 10**6)
    assert all_lines[:5] == few
    assert sorted(all_lines) == list(range(len(audit)))


def test_every_label_is_equally_likely_to_be_drawn() -> None:
    """Whatever its rank: over 400 audits with other ids, each of 20 lines is among 5 in about a
    quarter of them."""
    drawn = np.zeros(20)
    for seed in range(400):
        names = [f"{name:x}" for name in np.random.default_rng(seed).integers(2**40, size=20)]
        audit: Any = SimpleNamespace(
            ids=names, line_of={name: line for line, name in enumerate(names)}
        )
        drawn[draw_sample(audit, 5)] += 1
    assert drawn.sum() == 2000
    assert np.abs(drawn - 100).max() < 4 * np.sqrt(400 * 0.25 * 0.75)


def test_nothing_that_shows_a_label_leaves_the_server(
    session: BlindSession, client: Client
) -> None:
    """Every address that the review knows, before any answer."""
    audit = session.audit
    answers = {}
    for path in PATHS:
        status, headers, content = client.ask(path)
        answers[path] = status, repr(headers).encode() + content
    served = [path for path, (status, _) in answers.items() if status == 200]
    assert served == ["/", "/page/sample.js", "/image/0", "/image/7", "/api/sample"]
    text = b"".join(
        content for path, (_, content) in answers.items() if not path.startswith("/image")
    )
    for name in (*audit.ids, *audit.images, *(audit.patients or []), str(audit.folder)):
        assert name.encode() not in text
    _, content = answers["/api/sample"]
    sent = json.loads(content[content.index(b'{"') :])
    assert set(sent) == {"grades", "keys", "purpose", "answers"}
    assert sent["answers"] == [None] * 8
    for path, (status, content) in answers.items():
        if path.startswith("/image") and status == 200:
            line = session.lines[int(path.rsplit("/", 1)[1])]
            assert Path(audit.images[line]).name.encode() not in content
    assert client.post("/api/decide", {"line": 0})[0] == 404


def test_metadata_and_the_reason_of_a_failure_are_not_sent(
    session: BlindSession, client: Client
) -> None:
    first, second = (
        session.audit.folder / session.audit.images[line] for line in session.lines[:2]
    )
    secret = PngImagePlugin.PngInfo()
    secret.add_text("diagnosis", "Mayo 3")
    Image.open(first).save(first, pnginfo=secret)
    second.write_bytes(b"Mayo 2")
    status, _, content = client.ask("/image/0")
    assert status == 200
    assert b"Mayo" not in content
    status, _, content = client.ask("/image/1")
    assert status == 404
    assert content.endswith(b"The image cannot be read.")


def test_answers_become_verified_grades(
    session: BlindSession, client: Client, audit_folder: Path
) -> None:
    audit, decisions = session.audit, session.decisions
    for position, grade in enumerate([0, 3, CANNOT_TELL, 1, 1]):
        assert client.post("/api/answer", {"position": position, "grade": grade})[0] == 200
    client.post("/api/answer", {"position": 4, "grade": 2})
    assert session.answers() == [0, 3, CANNOT_TELL, 1, 2, None, None, None]
    names = [audit.ids[line] for line in session.lines]
    expected = {names[0]: "Mayo 0", names[1]: "Mayo 3", names[3]: "Mayo 1", names[4]: "Mayo 2"}
    assert read_verified_grades(audit_folder) == expected
    assert decisions.log() == []  # no label is decided
    label_of = {audit.ids[line]: audit.grades[audit.labels[line]] for line in session.lines}
    wrong = sum(label_of[name] != grade for name, grade in expected.items())
    decisions.add_answer(
        "of another audit", purpose="verify", reviewer="anna", grade="Mayo 0"
    )  # does not count
    verified = verification.verified_so_far(audit, decisions.answers("verify"))
    assert verified.startswith(f"Wrong among 4 verified labels: {wrong}, ")
    assert verification.verified_so_far(audit, []) == ""
    other = BlindSession(audit=audit, decisions=decisions, reviewer="ben", lines=session.lines)
    assert other.answers() == [None] * 8
    manifest = read(audit.table)
    found = blind_readings.with_verified_grades(manifest, expected)
    known = {
        name: grade
        for name, grade in zip(found.ids, found.verified_labels, strict=True)
        if grade >= 0
    }
    assert known == {name: int(grade[-1]) for name, grade in expected.items()}


@pytest.mark.parametrize(
    "body",
    [[], {"position": 8, "grade": 0}, {"position": -1, "grade": 0}, {"position": 0, "grade": 4},
     {"position": 0, "grade": -2}, {"position": True, "grade": 0}, {"position": 0, "grade": "1"}, {"position": 0}],
)  # fmt: skip
def test_a_bad_answer_is_refused(session: BlindSession, client: Client, body: Any) -> None:
    assert client.post("/api/answer", body)[0] == 400
    assert session.answers() == [None] * 8


def test_the_export_of_verified_grades(
    session: Any, audit_folder: Path, tmp_path: Path, srjt: Any
) -> None:
    out = tmp_path / "checked.csv"
    order = ("review", "export", audit_folder, "--verified", "--out", out)
    kept: dict[str, Any] = {"action": "keep", "grade": "Mayo 1", "label": "Mayo 1", "seen": 0}
    session.decisions.decide(session.audit.ids[0], reviewer="anna", **kept)
    code, said = srjt(*order)
    assert (code, "has no verified labels yet" in said) == (2, True)
    for position in range(5):
        session.answer(position, position % 4)
    code, said = srjt(*order)
    assert (code, "16 rows, 5 verified." in said) == (0, True)
    tables = (session.audit.table, out)
    before, after = (pd.read_csv(path, dtype=str, keep_default_na=False) for path in tables)
    pd.testing.assert_frame_equal(after.drop(columns="verified_grade"), before)
    again = read(out, images=session.audit.table.parent)
    assert (again.verified_labels >= 0).sum() == 5


@pytest.mark.slow
@needs_browser
def test_a_sample_is_verified_in_the_browser(serve: Any, browser: Browser, tmp_path: Path) -> None:
    folder = make_audit(tmp_path / "audit", images=56)
    audit = read_audit(folder)
    lines = draw_sample(audit, 6)
    served = serve(folder, "--reviewer", "anna", "--sample", 6, "--at-random")
    tab = browser.tab()
    tab.open(served.address)
    shown = "document.querySelector('#view > img')?.complete"
    done = "document.querySelector('#progress').textContent"
    for position, key in enumerate("0123s"):
        tab.wait(f"document.body.classList.contains('ready') && {shown}")
        body = str(tab.js("document.body.innerText"))
        assert audit.ids[lines[position]] not in body
        assert "uggest" not in body
        tab.press(key)
        tab.wait(f"{done} === '{position + 1} of 6 answered'")
    tab.wait(shown)
    tab.press("ArrowLeft")
    tab.wait(shown)
    tab.press("2")  # it can be graded after all
    tab.wait(f"{shown} && document.querySelector('#position').textContent === '6 of 6'")
    tab.open(f"http://127.0.0.1:{served.port}/")  # a reload goes on where it was
    tab.wait(f"document.body.classList.contains('ready') && {shown}")
    assert tab.js(done) == "5 of 6 answered"
    tab.press("1")
    tab.wait("!document.querySelector('#finished').hidden")
    assert tab.complaints() == []
    tab.press("ArrowLeft")
    tab.wait(shown)
    tab.press("s")
    tab.wait("!document.querySelector('#finished').hidden")
    said = str(tab.js("document.querySelector('#finished').innerText"))
    assert "All answered" in said
    assert "5 of 6 images have a verified grade." in said
    said = served.interrupt()
    grades = [0, 1, 2, 3, 2]
    lines = lines[:5]
    wrong = sum(int(audit.labels[line]) != grade for line, grade in zip(lines, grades, strict=True))
    assert f"Wrong among 5 verified labels: {wrong}, " in said
    assert "Next: run srjt audit again" in said
    expected = {
        audit.ids[line]: audit.grades[grade] for line, grade in zip(lines, grades, strict=True)
    }
    assert read_verified_grades(folder) == expected


@pytest.mark.slow
@needs_browser
def test_the_page_shows_more_until_the_interval_is_short_enough(
    serve: Any, browser: Browser, tmp_path: Path
) -> None:
    folder = make_audit(tmp_path / "audit", images=54)
    served = serve(folder, "--reviewer", "anna", "--within", "0.1%")
    tab = browser.tab()
    tab.open(served.address)
    shown = "document.querySelector('#view > img')?.complete"
    done = "document.querySelector('#progress').textContent"
    tab.wait(f"document.body.classList.contains('ready') && {shown}")
    for answered in range(1, 55):
        tab.wait(shown)
        tab.press("0")
        tab.wait(f"{done} === '{answered} of {50 if answered < 50 else 54} answered'")
    tab.wait("!document.querySelector('#finished').hidden")
    assert tab.complaints() == []
    said = served.interrupt()
    assert "After 54 labels: " in said
    assert "Next: run srjt audit again" in said


# A worklist of srjt readers: each reader's own images, blind, and the answers as readings.
NAMES = ["a.png", "b.png", "c.png"]


def facts(*grades: str) -> str:
    counts = {"source": "t.csv", "noun": "image", "items": 3, "readings": 3, "agreement": {}}
    names = {"grades": grades, "readers": ["anna", "bo"], "probabilities_sha256": None}
    return json.dumps({"format": 4, **names, **counts})


@pytest.fixture
def readers(tmp_path: Path) -> Path:
    """A folder as srjt readers writes it, with three images and a worklist."""
    folder = tmp_path / "readers"
    folder.mkdir()
    for shade, name in enumerate(NAMES):
        Image.new("RGB", (8, 8), (60 * shade, 0, 0)).save(tmp_path / name)
    (folder / "readers.json").write_text(facts("mild", "moderate", "severe"))
    images = pd.DataFrame({"id": NAMES, "image": [str(tmp_path / name) for name in NAMES]})
    images.to_csv(folder / "consensus.csv", index=False)
    (folder / "readings.csv").write_text(
        "image,reader,grade,date,patient,consensus,probability\n"
        "a.png,anna,mild,2024-05-01,p,mild,0.9\nb.png,bo,severe,,q,severe,0.8\nc.png,bo,mild,,q,mild,0.6\n"
    )
    (folder / "worklist.csv").write_text(
        "image,reader,gain\nc.png,anna,0.2\na.png,bo,0.15\nb.png,anna,0.1\n"
    )
    return folder


def test_each_reviewer_sees_their_own_images_in_the_order_of_the_list(readers: Path) -> None:
    source = read_readers_folder(readers)
    assert blind_readings.worklist_lines(readers / "worklist.csv", source, reviewer="anna") == [
        2,
        1,
    ]
    assert blind_readings.worklist_lines(readers / "worklist.csv", source, reviewer="bo") == [0]
    with refuses("no_match", "reviewer", says=("'kim'", "anna, bo")):
        blind_readings.worklist_lines(readers / "worklist.csv", source, reviewer="kim")


@pytest.mark.parametrize(
    ("text", "code", "option"),
    [
        ("image,gain\na.png,1\n", "wrong_file", "worklist"),
        ("image,reader\nz.png,anna\n", "no_match", ""),
    ],
)
def test_other_tables_are_refused(readers: Path, text: str, code: str, option: str) -> None:
    (readers / "other.csv").write_text(text)
    with refuses(code, option):
        blind_readings.worklist_lines(
            readers / "other.csv", read_readers_folder(readers), reviewer="anna"
        )


def test_answers_become_readings_and_no_verified_grades(readers: Path) -> None:
    source = read_readers_folder(readers)
    decisions = Decisions(readers / "decisions.sqlite")
    session = BlindSession(
        audit=source, decisions=decisions, reviewer="anna", lines=[2, 1], purpose="read"
    )
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
    # the patient as in the earlier readings of the image
    last = table.iloc[-1][["image", "reader", "grade", "patient"]]
    assert last.tolist() == ["c.png", "anna", "moderate", "q"]
    assert found.problems == ()


def test_an_audit_takes_a_worklist_too(audit_folder: Path, tmp_path: Path) -> None:
    audit = read_audit(audit_folder)
    worklist = tmp_path / "worklist.csv"
    wanted = pd.DataFrame({"item": audit.ids[:3], "reader": ["anna", "bo", "anna"], "gain": 0.1})
    wanted.to_csv(worklist, index=False)
    assert blind_readings.worklist_lines(worklist, audit, reviewer="anna") == [0, 2]
    decisions = Decisions(audit_folder / "decisions.sqlite")
    decisions.add_answer(audit.ids[0], purpose="read", reviewer="=cmd()", grade=audit.grades[1])
    table, _ = new_readings(audit, decisions.answers("read"))
    decisions.close()
    (row,) = table.drop(columns="date").to_dict("records")
    assert row == {"image": audit.ids[0], "reader": "'=cmd()", "grade": audit.grades[1]}


def test_the_export_appends_and_says_what_is_next(readers: Path, srjt: Any) -> None:
    order = ("review", "export", readers, "--readings", "--out", readers / "more.csv")
    code, said = srjt(*order)
    assert (code, "has no new readings yet" in said) == (2, True)
    decisions = Decisions(readers / "decisions.sqlite")
    decisions.add_answer("c.png", purpose="read", reviewer="anna", grade="severe")
    decisions.close()
    code, said = srjt(*order)
    assert (code, "4 readings, 1 of them new." in said) == (0, True)
    assert f"Next: srjt readers {readers / 'more.csv'} --out {readers}2" in said
    assert srjt(*order)[0] == 2  # never by accident


@pytest.mark.slow
@needs_browser
def test_a_worklist_is_read_in_the_browser(readers: Path, browser: Browser, serve: Any) -> None:
    (readers / "readers.json").write_text(facts("1", "2", "3"))
    served = serve(readers, "--reviewer", "anna", "--worklist", readers / "worklist.csv")
    tab = browser.tab()
    tab.open(served.address)
    for position, key in enumerate("12"):
        tab.wait(
            "document.body.classList.contains('ready') && document.querySelector('#view > img')?.complete"
        )
        names = tab.js("[...document.querySelectorAll('.grade')].map((b) => b.innerText)")
        assert [name.split() for name in names] == [
            [key, "Grade", key] for key in "123"
        ]  # not twice the key
        tab.press(key)
        tab.wait(
            f"document.querySelector('#progress').textContent === '{position + 1} of 2 answered'"
        )
    tab.wait("!document.querySelector('#finished').hidden")
    assert "2 of 2 images have a grade." in str(
        tab.js("document.querySelector('#finished').innerText")
    )
    assert "Read: 2 of 2 images graded." in served.interrupt()
