"""Starting real ``srjt`` processes that begin at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Launcher:
    """Starts ``srjt`` processes; see launcher.py."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("launcher.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, **what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(
        self, *argv: object, says: Path, setup: list[str] | None = None, env: dict[str, str] | None = None
    ) -> int:
        """The process id of ``srjt argv…``; ``says`` gets its output. setup: Python lines run in it before."""
        environment = {"SRJT_CACHE": str(self.cache), "COLUMNS": "80", **(env or {})}
        pid: int = self.order(
            argv=[str(a) for a in argv],
            cwd=str(says.parent),
            says=str(says),
            env=environment,
            setup=setup or [],
        )
        return pid

    def wait(self, pid: int) -> int:
        code: int = self.order(wait=pid)
        return code

    def wait_until(self, pid: int, happened: Callable[[], bool], *, seconds: float = 60.0) -> int | None:
        """Until something has happened (None), or the process has ended before it (its exit code)."""
        end = time.monotonic() + seconds
        while not happened():
            code: int | None = self.order(poll=pid)
            if code is not None:
                return code
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.002)
        return None
