"""``srjt demo`` in small: a table, a page, and what happens the second time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

import srjt
from srjt.cli.demo import _is_interactive

Srjt = Callable[..., tuple[int, str, str]]
SMALL = ("--images", 200, "--epochs", 3, "--out", "shown")
METHODS = ("standard", "co-teaching+ours", "srjt", "eae")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked for."""
    found: list[str] = []
    monkeypatch.setattr(webbrowser, "open", found.append)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_a_table_a_page_and_what_to_do_next(command: Srjt, opened: list[str]) -> None:
    code, out, err = command("demo", *SMALL, "--seeds", 2, "--jobs", 1)
    assert (code, err) == (0, "")
    assert opened == []  # no terminal, no browser
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines())
    facts = [json.loads(Path(f"shown/seed-{seed}/facts.json").read_text())["facts"] for seed in (0, 1)]
    shown = []
    for method in METHODS:
        (row,) = re.findall(rf"^{re.escape(method)} +(\d.*±.*)$", out, flags=re.MULTILINE)
        numbers = [float(number) for number in re.findall(r"(\d\.\d{3}) ±", row)]
        assert len(numbers) == 4
        mean = sum(one["methods"][method]["scores"]["mae"] for one in facts) / 2
        assert numbers[0] == pytest.approx(mean, abs=6e-4)
        shown.append((out.index(row), numbers[0]))
    assert [mae for _, mae in sorted(shown)] == sorted(mae for _, mae in shown)  # the best first
    page = Path("shown/demo.html").read_text(encoding="utf-8")
    for heading in ("What is wrong with the labels", "Who is best on true grades", "Who learnt the mistakes",
                    "Which labels the audit finds", "A range for one patient"):  # fmt: skip
        assert f">{heading}</h2>" in page
    wrong = facts[0]["labels"]["wrong"]
    assert f"{wrong:,} of these labels are wrong" in page
    assert f"patient {facts[0]['ranges']['patient']}" in page.lower()
    pictures = (
        len(facts[0]["labels"]["examples"])
        + len(facts[0]["audit"]["worst"])
        + len(facts[0]["ranges"]["images"])
    )
    assert page.count("<img ") == pictures
    assert page.count("<svg ") == 4
    assert "shown/demo.html" in out
    assert out.splitlines()[-1].endswith("srjt data inspect labels.csv")
    # the audit can be reviewed
    assert (Path("shown") / "audit" / "audit.json").exists()
    # the second time nothing is trained
    before = Path("shown/seed-0/facts.json").stat().st_mtime_ns
    code, again, _ = command("demo", *SMALL, "--seeds", 2, "--jobs", 1, "--open")
    assert code == 0
    assert again.splitlines()[-12:] == out.splitlines()[-12:]
    assert Path("shown/seed-0/facts.json").stat().st_mtime_ns == before
    assert opened == [Path("shown/demo.html").absolute().as_uri()]
    # processes give the same numbers
    assert command("demo", *SMALL[:-1], "two", "--seeds", 2, "--jobs", 2)[0] == 0
    for seed in (0, 1):
        files = [Path(name) / f"seed-{seed}" / "facts.json" for name in ("shown", "two")]
        assert json.loads(files[0].read_text()) == json.loads(files[1].read_text())
    code, _, err = command("demo", "--images", 210, "--epochs", 3, "--out", "shown", "--jobs", 1)
    assert code == 2
    assert "was made with other settings: choose another --out" in " ".join(err.split())


@pytest.mark.slow
def test_ctrl_c_stops_all_processes_and_keeps_what_is_done(tmp_path: Path) -> None:
    source = str(Path(srjt.__file__).parents[1])
    environment = {**os.environ, "SRJT_CACHE": str(tmp_path / "cache"), "PYTHONPATH": source}
    endless = ["--images", "200", "--epochs", "100000", "--seeds", "3", "--jobs", "2", "--out", "never"]
    running = subprocess.Popen(
        [sys.executable, "-m", "srjt", "demo", *endless],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    begun = [tmp_path / "never" / f"seed-{seed}" / "standard" / "metrics.csv" for seed in (0, 1)]
    while not all(file.exists() and file.read_text().count("\n") > 1 for file in begun):
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate()
    assert running.returncode == 130
    assert err == "srjt: The demo stopped with 0 of 3 seeds done. Run the same command again to resume.\n"
    for file in begun:  # the processes have saved their state
        assert list((file.parent / "checkpoints").iterdir())


def test_a_browser_is_opened_for_a_person_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("CI", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert not _is_interactive()  # no display
    monkeypatch.setenv("DISPLAY", ":0")
    assert _is_interactive()
    monkeypatch.setenv("CI", "true")
    assert not _is_interactive()
    monkeypatch.delenv("CI")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert not _is_interactive()
