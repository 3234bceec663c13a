"""Real processes whose standard output is closed, full, ASCII-only or cut off, and Ctrl-C at any
moment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="POSIX shells and signals"),
]

SRJT = f"{sys.executable} -m srjt"


def shell(command: str, cwd: Path, **env: str) -> Any:
    environment = {**os.environ, "SRJT_CACHE": str(cwd / "cache"), "COLUMNS": "80", **env}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_reader_that_exits(labelled: Path, tmp_path: Path) -> None:
    done = shell(
        f"{SRJT} data inspect {labelled} --no-decode | head -n 1; exit ${{PIPESTATUS[0]}}", tmp_path
    )
    assert done.stderr == ""
    # true exits at once, before anything is printed
    done = shell(
        f"{SRJT} data inspect {labelled} --no-decode | true; exit ${{PIPESTATUS[0]}}", tmp_path
    )
    assert (done.returncode, done.stderr) == (141, "")
    done = shell(f"{SRJT} methods | true; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["methods", "data inspect LABELS --no-decode", "--version"])
def test_a_full_disk_behind_standard_output(labelled: Path, tmp_path: Path, command: str) -> None:
    for unbuffered in ("", "1"):
        order = f"{SRJT} {command.replace('LABELS', str(labelled))} > /dev/full"
        done = shell(order, tmp_path, PYTHONUNBUFFERED=unbuffered)
        assert done.stderr == "srjt: Standard output cannot be written: No space left on device.\n"
        assert done.returncode == 2


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_closed_streams(labelled: Path, tmp_path: Path, closed: str) -> None:
    done = shell(
        f"{SRJT} data split {labelled} --grade-column true_grade --out s.csv {closed}", tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "s.csv").read_text().startswith("id,fold,split")


def test_a_terminal_that_knows_ascii_only(labelled: Path, tmp_path: Path) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = shell(f"{SRJT} data inspect {labelled} --no-decode", tmp_path, **ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    done = shell(f"{SRJT} train nowhere-\u00fc.csv --out run", tmp_path, **ascii_only)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_is_asked_for_its_width_and_may_refuse_colours(
    tmp_path: Path, no_color: str
) -> None:
    import fcntl
    import struct
    import termios

    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    subprocess.run(
        [sys.executable, "-m", "srjt", "review", "a-folder-that-is-not-there"],
        cwd=tmp_path,
        env={**environment, "TERM": "xterm", "NO_COLOR": no_color},
        stdout=theirs,
        stderr=theirs,
        timeout=120,
        check=False,
    )
    said = os.read(ours, 4096).decode()
    os.close(theirs)
    os.close(ours)
    lines = re.sub("\x1b\\[[0-9;]*m", "", said).splitlines()
    assert 30 < max(map(len, lines)) <= 50
    assert "a-folder-that-is-not-there" in lines[0] + lines[1]
    assert ("\x1b[31m" in said) == (not no_color)


@pytest.mark.parametrize("tenths", [1, 4, 8, 14, 25])
def test_ctrl_c_while_modules_are_imported(labelled: Path, tmp_path: Path, tenths: int) -> None:
    """Wherever it comes: status 130 (or the signal itself, before Python runs a line of ours) and
    no traceback."""
    order = [sys.executable, "-m", "srjt", "train", str(labelled), "--out", "run", "--network", "resnet18",
             "--no-pretrained", "--noise-rate", "0.2", "--device", "cpu"]  # fmt: skip
    with subprocess.Popen(
        order, cwd=tmp_path, env={**os.environ, "SRJT_CACHE": str(tmp_path / "cache")}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        wait_for_python(process.pid)
        time.sleep(tenths / 10)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode in (130, -signal.SIGINT), err
    assert "Traceback" not in err
    assert process.returncode != 130 or re.search(
        r"^srjt: Stopped.* Run the same command again", err, re.MULTILINE
    )


def wait_for_python(pid: int) -> None:
    """Until the interpreter has installed a handler of ours: one line of /proc/PID/status
    changes."""
    for _ in range(400):
        lines = (
            Path(f"/proc/{pid}/status").read_text().splitlines() if Path("/proc").exists() else []
        )
        caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")), 0)
        if caught >> (signal.SIGINT - 1) & 1:
            time.sleep(0.1)
            return
        time.sleep(0.01)
