"""``srjt review`` as a process: its output, its end, its errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

from srjt.auditing.folder import read_audit
from srjt.auditing.review_log import Decisions
from srjt.cli import main


@pytest.mark.slow
def test_it_prints_the_address_serves_and_prints_a_summary(
    audit_folder: Path, serve: Callable[..., Any]
) -> None:
    served = serve(audit_folder, "--reviewer", "anna", "--limit", 5)
    browser = build_opener(HTTPCookieProcessor())
    browser.open(served.address).read()
    home = f"http://127.0.0.1:{served.port}"
    assert b"review.js" in browser.open(home).read()
    assert b'"queue":5' in browser.open(f"{home}/api/samples").read()
    sample = read_audit(audit_folder).ids[0].encode()
    body = b'{"line": 0, "id": "%s", "action": "keep", "seen": 0, "since": 0}' % sample
    browser.open(Request(f"{home}/api/decide", body, {"Origin": home})).read()
    said = served.interrupt()
    assert served.process.returncode == 0
    assert "1 of 5 reviewed, 0 changed, estimated remaining noise" in said
    assert "1 decided in this session" in said
    assert f"srjt review export {audit_folder} --out labels_clean.csv" in said
    assert "Traceback" not in said
    assert [entry.reviewer for entry in Decisions(audit_folder / "decisions.sqlite").log()] == ["anna"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "0.0.0.0"], "--allow-remote"),
        (["--reviewer", " "], "--reviewer NAME"),
        (["../no/folder"], "is not the folder of an audit"),
    ],
)
def test_bad_input_is_one_sentence(
    options: list[str],
    says: str,
    audit_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = [] if options[0].startswith("..") else [str(audit_folder)]
    monkeypatch.setattr(sys, "argv", ["srjt", "review", *folder, *options, "--no-open"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("verb", [[], ["export"]])
@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"not a database" * 100])
def test_lost_decisions_are_reported_and_not_replaced(
    verb: list[str],
    content: bytes,
    audit_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = audit_folder / "decisions.sqlite"
    log.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["srjt", "review", *verb, str(audit_folder)])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(log) in said
    assert "restore a copy of it, or delete decisions.sqlite* in that folder to start again" in said
    assert log.read_bytes() == content


def test_the_help_needs_no_server() -> None:
    asked = "import sys; sys.argv = ['srjt', 'review', '--help']\nfrom srjt.cli import app\n"
    code = asked + "try: app()\nexcept SystemExit: pass\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"starlette", "uvicorn", "torch", "pandas", "numpy"} & set(loaded)
