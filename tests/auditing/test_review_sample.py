"""The blind verification of a random sample: what the server sends, what is stored, what follows from it."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from browser import Browser, needs_browser
from srjt.auditing.folder import read_audit
from srjt.auditing.review_app import CANNOT_TELL, BlindSession, Server, create_web_server, listen
from srjt.auditing.review_log import Decisions, draw_sample, read_verified_grades, with_verified_grades
from srjt.cli import main
from srjt.data import read

PATHS = [
    "/", "/page/sample.js", "/page/review.js", "/page/audit.js", "/page/index.html", "/image/0", "/image/7", "/image/8",
    "/image/-1", "/thumb/0", "/api/sample", "/api/samples", "/api/updates", "/api/neighbours/0", "/map/0", "/pixels/0",
]  # fmt: skip


@pytest.fixture
def session(audit_folder: Path) -> Iterator[BlindSession]:
    audit = read_audit(audit_folder)
    decisions = Decisions(audit_folder / "decisions.sqlite")
    yield BlindSession(audit=audit, decisions=decisions, reviewer="anna", lines=draw_sample(audit, 8))
    decisions.close()


@pytest.fixture
def server(session: BlindSession) -> Iterator[Server]:
    opened = listen()
    running = create_web_server(session, opened)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [opened.socket]}, daemon=True)
    thread.start()
    yield opened
    running.should_exit = True
    thread.join()
    opened.socket.close()


def ask(server: Server, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    host = f"127.0.0.1:{server.port}"
    sent = {"Cookie": f"{server.access.cookie}={server.access.token}", "Origin": f"http://{host}", **headers}
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request(
        "GET" if body is None else "POST", path, None if body is None else json.dumps(body), sent
    )
    answer = connection.getresponse()
    found = answer.status, b"".join(f"{k}: {v}\n".encode() for k, v in answer.getheaders()) + answer.read()
    connection.close()
    return found


def test_a_larger_sample_begins_with_the_smaller_one(audit_folder: Path) -> None:
    audit = read_audit(audit_folder)
    few, all_lines = draw_sample(audit, 5), draw_sample(audit, 10**6)
    assert all_lines[:5] == few
    assert sorted(all_lines) == list(range(len(audit)))


def test_every_label_is_equally_likely_to_be_drawn() -> None:
    """Whatever its rank: over 400 audits with other ids, each of 20 lines is among 5 in about a quarter of them."""
    drawn = np.zeros(20)
    for seed in range(400):
        names = [f"{name:x}" for name in np.random.default_rng(seed).integers(2**40, size=20)]
        audit: Any = SimpleNamespace(ids=names, line_of={name: line for line, name in enumerate(names)})
        drawn[draw_sample(audit, 5)] += 1
    assert drawn.sum() == 2000
    assert np.abs(drawn - 100).max() < 4 * np.sqrt(400 * 0.25 * 0.75)


def test_nothing_that_shows_a_label_leaves_the_server(session: BlindSession, server: Server) -> None:
    """Every address that the review knows, before any answer."""
    audit = session.audit
    answers = {path: ask(server, path) for path in PATHS}
    served = [path for path, (status, _) in answers.items() if status == 200]
    assert served == ["/", "/page/sample.js", "/image/0", "/image/7", "/api/sample"]
    text = b"".join(content for path, (_, content) in answers.items() if not path.startswith("/image"))
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
    assert ask(server, "/api/decide", {"line": 0})[0] == 404


def test_metadata_and_the_reason_of_a_failure_are_not_sent(session: BlindSession, server: Server) -> None:
    from PIL import PngImagePlugin

    first, second = (session.audit.folder / session.audit.images[line] for line in session.lines[:2])
    secret = PngImagePlugin.PngInfo()
    secret.add_text("diagnosis", "Mayo 3")
    Image.open(first).save(first, pnginfo=secret)
    second.write_bytes(b"Mayo 2")
    status, content = ask(server, "/image/0")
    assert status == 200
    assert b"Mayo" not in content
    status, content = ask(server, "/image/1")
    assert status == 404
    assert content.endswith(b"The image cannot be read.")


def test_answers_are_kept_as_verified_grades(
    session: BlindSession, server: Server, audit_folder: Path
) -> None:
    audit, decisions = session.audit, session.decisions
    for position, grade in enumerate([0, 3, CANNOT_TELL, 1, 1]):
        assert ask(server, "/api/answer", {"position": position, "grade": grade})[0] == 200
    ask(server, "/api/answer", {"position": 4, "grade": 2})
    assert session.answers() == [0, 3, CANNOT_TELL, 1, 2, None, None, None]
    names = [audit.ids[line] for line in session.lines]
    expected = {names[0]: "Mayo 0", names[1]: "Mayo 3", names[3]: "Mayo 1", names[4]: "Mayo 2"}
    assert read_verified_grades(audit_folder) == expected
    assert decisions.log() == []  # no label is decided
    other = BlindSession(audit=audit, decisions=decisions, reviewer="ben", lines=session.lines)
    assert other.answers() == [None] * 8
    assert audit.table is not None
    manifest = read(audit.table).manifest
    found = with_verified_grades(manifest, expected)
    assert found.verified_labels is not None
    known = {name: grade for name, grade in zip(found.ids, found.verified_labels, strict=True) if grade >= 0}
    assert known == {name: int(grade[-1]) for name, grade in expected.items()}


@pytest.mark.parametrize(
    "body",
    [[], {"position": 8, "grade": 0}, {"position": -1, "grade": 0}, {"position": 0, "grade": 4},
     {"position": 0, "grade": -2}, {"position": True, "grade": 0}, {"position": 0, "grade": "1"}, {"position": 0}],
)  # fmt: skip
def test_a_bad_answer_is_refused(session: BlindSession, server: Server, body: Any) -> None:
    assert ask(server, "/api/answer", body)[0] == 400
    assert session.answers() == [None] * 8


def test_only_the_page_may_answer(session: BlindSession, server: Server) -> None:
    good = {"position": 0, "grade": 0}
    assert ask(server, "/api/answer", good, Origin="http://evil.example")[0] == 403
    assert ask(server, "/api/answer", good, Cookie="")[0] == 403
    assert session.answers() == [None] * 8


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["srjt", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_export_has_the_verified_grades_and_the_labels_as_they_were(
    session: BlindSession,
    audit_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "checked.csv"
    order = ("review", "export", audit_folder, "--verified", "--out", out)
    session.decisions.decide(
        session.audit.ids[0], reviewer="anna", action="keep", grade="Mayo 1", label="Mayo 1", seen=0
    )
    assert command(monkeypatch, *order) == 2
    assert "Nothing is verified in" in capsys.readouterr().err
    for position in range(5):
        session.answer(position, position % 4)
    assert command(monkeypatch, *order) == 0
    assert "16 rows, 5 verified." in capsys.readouterr().out
    assert session.audit.table is not None
    before, after = (
        pd.read_csv(path, dtype=str, keep_default_na=False) for path in (session.audit.table, out)
    )
    pd.testing.assert_frame_equal(after.drop(columns="verified_grade"), before)
    again = read(out, images=session.audit.table.parent).manifest
    assert again.verified_labels is not None
    assert (again.verified_labels >= 0).sum() == 5


@pytest.mark.parametrize("option", [["--limit", "5"], ["--alone"]])
def test_options_that_a_sample_does_not_have(
    option: list[str],
    audit_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(monkeypatch, "review", audit_folder, "--sample", 5, *option, "--no-open") == 2
    assert "leave out --limit and --alone" in capsys.readouterr().err


@pytest.mark.slow
@needs_browser
def test_a_sample_is_verified_in_the_browser(
    make_audit_folder: Callable[..., Path], serve: Callable[..., Any], tmp_path: Path
) -> None:
    folder = make_audit_folder(tmp_path / "audit", images=56)
    audit = read_audit(folder)
    lines = draw_sample(audit, 6)
    served = serve(folder, "--reviewer", "anna", "--sample", 6)
    browser = Browser(tmp_path / "profile")
    try:
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
    finally:
        browser.close()
    said = served.interrupt()
    grades = [0, 1, 2, 3, 2]
    lines = lines[:5]
    wrong = sum(int(audit.labels[line]) != grade for line, grade in zip(lines, grades, strict=True))
    assert f"Wrong among 5 verified labels: {wrong}, " in said
    assert "run the same srjt audit command again" in said
    assert read_verified_grades(folder) == {
        audit.ids[line]: audit.grades[grade] for line, grade in zip(lines, grades, strict=True)
    }
