"""Workers share a GPU through NVIDIA's service, for which a shell script stands in: it writes down how it is called."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from srjt.training import workers
from srjt.training.workers import PIPES, PROGRAM, share_gpus

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the service exists on Linux only")

STAND_IN = """#!/bin/sh
[ -n "$1" ] || read command
echo "$1$command in $CUDA_MPS_PIPE_DIRECTORY, sees ${CUDA_VISIBLE_DEVICES:-all}" >> "$STAND_IN_LOG"
exit ${STAND_IN_STATUS:-0}
"""
TWICE = ("cuda:0", "cuda:1", "cuda:0")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the service was told; its program is found and works."""
    program = tmp_path / "bin" / PROGRAM
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a service that does not end leaves its folder
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    monkeypatch.delenv(PIPES, raising=False)
    monkeypatch.setattr(workers, "PROBE", f"import os; assert os.path.isdir(os.environ['{PIPES}'])")
    monkeypatch.setattr(workers, "DEFAULT_PIPES", tmp_path / "machine")
    return tmp_path / "log"


def test_the_service_runs_while_a_gpu_has_several_workers(log: Path) -> None:
    with share_gpus(TWICE) as variables:
        folder = variables[PIPES]
        assert Path(folder).is_dir()
        assert log.read_text() == f"-d in {folder}, sees all\n"
    assert log.read_text().splitlines()[1:] == [f"quit in {folder}, sees all"]
    assert not Path(folder).exists()
    assert PIPES not in os.environ


@pytest.mark.parametrize("devices", [("cuda:0", "cuda:1"), ("cpu", "cpu"), (None, None), ()])
def test_it_is_not_started_where_no_gpu_has_several_workers(
    log: Path, devices: tuple[str | None, ...]
) -> None:
    with share_gpus(devices) as variables:
        assert variables == {}
    assert not log.exists()


def test_a_service_that_runs_already_is_used(
    log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / f"{PROGRAM}.pid").write_text(f"{os.getpid()}\n")
    with share_gpus(TWICE) as variables:
        assert variables == {PIPES: str(tmp_path / "machine")}
    monkeypatch.setattr(workers, "DEFAULT_PIPES", tmp_path / "none")
    monkeypatch.setenv(PIPES, str(tmp_path))
    with share_gpus(TWICE) as variables:
        assert variables == {PIPES: str(tmp_path)}
    with share_gpus(("cuda:0", "cuda:1")) as variables:
        assert variables == {}
    assert not log.exists()


def test_what_another_service_has_left_behind_does_not_count(log: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / f"{PROGRAM}.pid").write_bytes(ended.stdout)
    with share_gpus(TWICE) as variables:
        assert variables
    assert log.exists()


def test_a_service_that_is_not_ready_is_asked_again(
    log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = tmp_path / "tried"
    monkeypatch.setattr(
        workers,
        "PROBE",
        f"from pathlib import Path; tried = Path({str(tried)!r}).exists(); Path({str(tried)!r}).touch()\n"
        "raise SystemExit(0 if tried else 807)",
    )
    with share_gpus(TWICE) as variables:
        assert variables


def test_a_service_that_does_not_end_is_not_waited_for(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "KEEPER", "echo started; cat; exec sleep 600")
    monkeypatch.setattr(workers, "PATIENCE", 0.5)
    popen, started = subprocess.Popen, list[subprocess.Popen[bytes]]()
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    with share_gpus(TWICE):
        pass
    assert started[0].poll() is None
    started[0].kill()
    started[0].wait()


@pytest.mark.parametrize("fault", ["missing", "does not start", "no process can compute"])
def test_without_the_service_the_workers_take_turns(
    log: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "missing":
        monkeypatch.setattr(workers, "PROGRAM", "no-such-program")
    elif fault == "does not start":
        monkeypatch.setenv("STAND_IN_STATUS", "1")
    else:
        monkeypatch.setattr(workers, "PROBE", "raise SystemExit(3)")
    with share_gpus(TWICE) as variables:
        assert variables == {}
    told = [line.split(" ")[0] for line in log.read_text().splitlines()] if log.exists() else []
    assert told == ([] if fault == "missing" else ["-d", "quit"])


@pytest.mark.slow
def test_the_service_ends_with_a_process_that_is_killed(log: Path) -> None:
    program = (
        "import os, sys\n"
        "from srjt.training import workers as gpu_sharing\n"
        "gpu_sharing.PROBE, gpu_sharing.SAVING_SECONDS = '', 0\n"
        "gpu_sharing.DEFAULT_PIPES = gpu_sharing.Path('none')\n"
        "with gpu_sharing.share_gpus(('cuda:0', 'cuda:0')) as variables:\n"
        "    assert variables\n"
        "    os.killpg(os.getpgid(0), 2)\n"  # Ctrl-C, which this process ignores as well
        f"    os.kill(os.getpid(), {signal.SIGKILL:d})\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", f"import signal; signal.signal(2, signal.SIG_IGN)\n{program}"],
        check=False,
        start_new_session=True,
    )
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while "quit in" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)
