"""Starting real ``srjt`` processes that begin at once, and holding their trainings where a test
wants them."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# A fast machine would be done before anything could happen "in the middle" of a training.
PAUSE = """
import os, signal, time
from pathlib import Path
from srjt.training.workers import StopRequest
from srjt.training.checkpoint import MetricsLog

add = MetricsLog.add

def add_and_pause(log, rows):
    rows = list(rows)
    add(log, rows)
    while {within!r} in str(log.path) and rows[0].epoch >= int(Path({limit!r}).read_text()):
        if not isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), StopRequest):
            return  # the training has been asked to stop: its handlers are gone
        if os.getppid() == 1:
            os._exit(1)  # the test has ended
        time.sleep(0.005)

MetricsLog.add = add_and_pause
"""


def epochs_done(run: Path) -> int:
    """How many epochs a run has written."""
    lines = (
        (run / "metrics.csv").read_text().splitlines(True) if (run / "metrics.csv").exists() else []
    )
    whole = [line for line in lines[1:] if line.endswith("\n")]
    return int(whole[-1].partition(",")[0]) if whole else 0


class Limit:
    """The epoch after which trainings pause until the limit is raised, or until they are asked to
    stop or killed.

    ``code`` is Python for the process that trains: lines of setup for the launcher, or a module for
    ``--import``. within: a part of the path of the runs that pause. Default: all.
    """

    def __init__(self, file: Path, *, epoch: int, within: str = "") -> None:
        self.file = file
        self.code = PAUSE.format(limit=str(file), within=within)
        self.raise_to(epoch)

    def raise_to(self, epoch: int) -> None:
        draft = self.file.with_suffix(".draft")
        draft.write_text(str(epoch))
        draft.replace(self.file)  # at once: others are reading

    def lift(self) -> None:
        self.raise_to(1_000_000)


class Launcher:
    """Starts ``srjt`` processes; see launcher.py.

    python: of which environment, if not of this one. env: its environment variables, if others.
    under: a command that watches it, such as strace.
    """

    def __init__(
        self,
        cache: Path,
        *,
        python: Path | str = sys.executable,
        env: Any = None,
        under: Sequence[str] = (),
    ) -> None:
        self.cache = cache
        command = [*under, str(python), str(Path(__file__).with_name("launcher.py"))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()

    def order(self, **what: Any) -> Any:
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(
        self, *argv: object, says: Path, setup: list[str] | None = None, env: Any = None
    ) -> int:
        """The process id of ``srjt argv…``; ``says`` gets its output. setup: Python lines run in it
        before."""
        environment = {"SRJT_CACHE": str(self.cache), "COLUMNS": "80", **(env or {})}
        where = {"cwd": str(says.parent), "says": str(says), "env": environment}
        pid: int = self.order(argv=[str(a) for a in argv], setup=setup or [], **where)
        return pid

    def wait(self, pid: int) -> int:
        code: int = self.order(wait=pid)
        return code

    def run(self, *argv: object, says: Path) -> int:
        return self.wait(self.start(*argv, says=says))

    def wait_until(
        self, pid: int, happened: Callable[[], bool], *, seconds: float = 60.0
    ) -> int | None:
        """Until something has happened (None), or the process has ended before it (its exit
        code)."""
        end = time.monotonic() + seconds
        while not happened():
            code: int | None = self.order(poll=pid)
            if code is not None:
                return code
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.002)
        return None
