"""Workers that stay: one that dies takes only its own task with it, and
nothing is executed from the current folder, which somebody else may have sent.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import torch

from srjt.errors import Interrupted, SrjtError
from srjt.process import cores
from srjt.training import workers
from srjt.training.workers import Ended, StopRequest, WorkerPool, start_forkserver


def facts(*, device: str | None) -> dict[str, Any]:
    return {"process": os.getpid(), "device": device, "threads": torch.get_num_threads()}


def fail(kind: str, *, device: str | None) -> None:
    if kind == "with a thread":
        threading.Thread(target=time.sleep, args=(600,)).start()
    raise SrjtError("a sentence") if kind == "expected" else RuntimeError("a bug")


def warn(*, device: str | None) -> None:
    warnings.warn("mind this", stacklevel=1)


def end(number: int, *, device: str | None) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def train_until_stopped(file: str, *, device: str | None) -> None:
    """A training that takes a second to save its state."""
    with StopRequest() as stop:
        Path(file).touch()
        while stop.number is None:
            time.sleep(0.01)
        time.sleep(1.0)
        Path(file).write_text("saved")
        raise Interrupted(stop.number, "stopped")


def run(pool: WorkerPool, function: Callable[..., Any], *arguments: Any) -> Ended:
    pool.submit("task", function, *arguments)
    assert pool.running == ["task"]
    while not (ended := pool.wait()):
        pass
    assert pool.running == []
    assert ended[0].name == "task"
    return ended[0]


@pytest.mark.slow
def test_a_worker_serves_one_task_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with WorkerPool(devices=("cpu",), threads=1, networks=("tiny",)) as pool:

        def look() -> dict[str, Any]:
            result: dict[str, Any] = run(pool, facts).result
            return result

        first = look()
        assert first["device"] == "cpu"
        assert first["threads"] == 1
        with pytest.warns(UserWarning, match="^mind this$"):  # here, not on the terminal
            assert run(pool, warn) == Ended(name="task")
        assert run(pool, fail, "expected") == Ended(name="task", error="a sentence")
        assert look() == first

        bug = run(pool, fail, "unexpected")
        assert not bug.expected
        assert "RuntimeError: a bug" in bug.error
        second = look()
        assert second["process"] != first["process"]

        assert run(pool, end, signal.SIGKILL) == Ended(name="task", exitcode=-signal.SIGKILL)
        third = look()
        (process,) = multiprocessing.active_children()
        process.kill()  # while it is idle
        process.join()
        fourth = look()
        assert len({state["process"] for state in (first, second, third, fourth)}) == 4

        monkeypatch.setattr(workers, "END_SECONDS", 0.1)
        assert "RuntimeError: a bug" in run(pool, fail, "with a thread").error
        assert look()["process"] != fourth["process"]
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_one_worker_that_dies_leaves_others_alone_and_a_stopped_one_saves_its_state(
    tmp_path: Path,
) -> None:
    with WorkerPool(devices=("cpu", "cpu")) as pool:
        pool.submit("training", train_until_stopped, str(tmp_path / "state"))
        assert run_beside(pool, end, signal.SIGKILL).exitcode == -signal.SIGKILL
        assert (
            run_beside(pool, end, signal.SIGTERM).exitcode == 128 + signal.SIGTERM
        )  # no training: at once
        while not (tmp_path / "state").exists():
            time.sleep(0.01)
        ended: list[Ended] = []
        while not ended:
            pool.terminate()  # again and again
            ended = pool.wait(0.05)
    assert ended == [Ended(name="training", exitcode=128 + signal.SIGTERM)]
    assert (tmp_path / "state").read_text() == "saved"


def run_beside(pool: WorkerPool, function: Callable[..., Any], *arguments: Any) -> Ended:
    pool.submit("other", function, *arguments)
    while not (ended := pool.wait()):
        pass
    return ended[0]


# Signals and the fork server.
@pytest.fixture
def worker_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in workers.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    StopRequest.stopping = False


@pytest.mark.usefixtures("worker_handlers")
def test_signals_that_follow_do_not_disturb_a_worker_that_saves_its_state(monkeypatch: Any) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    signal.signal(signal.SIGTERM, workers._exit_unless_saving)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # the pool repeats its request
        assert stop.number == signal.SIGTERM
    signal.raise_signal(signal.SIGTERM)  # while the results are written
    assert exits == []
    with StopRequest():
        pass  # the next training
    signal.raise_signal(signal.SIGTERM)
    assert exits == [128 + signal.SIGTERM]


def test_a_signal_while_the_fork_server_starts_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = set[int]()

    def interrupted_start() -> None:
        blocked.update(signal.pthread_sigmask(signal.SIG_BLOCK, ()))  # what the server inherits
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(forkserver, "ensure_running", interrupted_start)
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        start_forkserver(["srjt.errors"])
        assert stop.number == signal.SIGTERM
    assert blocked >= set(workers.SIGNALS)
    assert signal.getsignal(signal.SIGTERM) is before


SCRIPT = """
import os
import sys

from srjt.training.workers import start_forkserver


def show(file):
    with open(file, "w") as written:
        written.write(os.getcwd())


if __name__ == "__main__":
    context = start_forkserver(["pathlib"])
    worker = context.Process(target=show, args=(sys.argv[1],))
    worker.start()
    worker.join(60)
    print(os.getcwd())
"""


def test_no_module_of_the_current_folder_is_imported(tmp_path: Path) -> None:
    (tmp_path / "script").mkdir()
    script = tmp_path / "script" / "train.py"
    script.write_text(SCRIPT)
    sent = tmp_path / "sent"
    sent.mkdir()
    for name in ("random", "socket", "struct", "tempfile", "threading", "pathlib"):
        (sent / f"{name}.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, script, tmp_path / "folder"]
    done = subprocess.run(command, cwd=sent, env=environment, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(sent)]
    assert (tmp_path / "folder").read_text() == str(sent)
    assert not (tmp_path / "trace").exists()


def test_a_scheduler_may_allow_fewer_cores_and_without_affinity_all_count(monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 5, 7}, raising=False)
    assert cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


# A worker that does not answer: nothing waits for it.

STOPPED_WORKER = """
import multiprocessing, os, signal, sys, time
from srjt.training.workers import WorkerPool

def task(data, *, device):
    return len(data)

if __name__ == "__main__":
    begun = time.monotonic()
    with WorkerPool(devices=("cpu",)) as pool:
        pool.submit("task", task, bytes(5_000_000))  # more than a pipe holds
        (process,) = multiprocessing.active_children()
        os.kill(process.pid, signal.SIGSTOP)
        if sys.argv[1] == "killed":
            time.sleep(0.5)
            os.kill(process.pid, signal.SIGKILL)
            while not (ended := pool.wait()):
                pass
            print(ended[0].exitcode)
            pool.submit("task", task, bytes(5_000_000))
            while not (ended := pool.wait()):
                pass
            print(ended[0].result)
        begun = time.monotonic()
        if sys.argv[1] == "stopped":
            raise KeyboardInterrupt
    print(time.monotonic() - begun)
"""


def interpreters() -> list[str]:
    """This Python; and the system's, if it is older, has the known error and can import what is
    installed here."""
    found = [sys.executable]
    system = "/usr/bin/python3"
    if os.path.exists(system):
        asked = [system, "-c", "import sys; print(sys.version_info[:3])"]
        version = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if version.startswith(str(sys.version_info[:2])[:-1]) and version < "(3, 11, 5)":
            found.append(system)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("python", interpreters())
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_nothing_waits_for_a_worker_that_died_or_stopped_before_it_read_its_task(
    tmp_path: Path, python: str, how: str
) -> None:
    (tmp_path / "script.py").write_text(STOPPED_WORKER)
    packages = os.pathsep.join(
        [str(Path(workers.__file__).parents[2]), str(Path(torch.__file__).parents[1])]
    )
    begun = time.monotonic()
    done = subprocess.run(
        [python, "script.py", how],
        cwd=tmp_path, capture_output=True, text=True, timeout=90, env={**os.environ, "PYTHONPATH": packages},
    )  # fmt: skip
    seconds = time.monotonic() - begun
    if how == "killed":
        assert done.stdout.split()[:2] == ["-9", "5000000"], done.stderr
    else:
        assert "KeyboardInterrupt" in done.stderr
    assert seconds < 60


DEAF = """
import signal, sys, time
from srjt.training.workers import StopRequest

with StopRequest() as stop:
    print("ready", flush=True)
    while not (stop.number and len(sys.argv) > 1):
        time.sleep(0.01)
    stop.begin_saving()
    time.sleep(3)
    print("saved", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("saves", [True, False])
def test_ctrl_c_ends_what_does_not_begin_to_save_its_state(tmp_path: Path, saves: bool) -> None:
    (tmp_path / "script.py").write_text(DEAF)
    command = [sys.executable, str(tmp_path / "script.py"), *(["saves"] if saves else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    says, errors = process.communicate(timeout=30)
    if saves:
        assert (says, process.returncode) == ("saved\n", 0)
    else:
        assert (says, process.returncode) == ("", 130)
        assert "Run the same command again" in errors
        assert time.monotonic() - begun < 2.0
