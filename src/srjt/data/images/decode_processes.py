"""Processes that decode image files and write the pixels into a store.

Threads of one process share Python's lock, which is needed for about 0.4 ms per image: on many cores it limits how
fast small images are decoded. The processes are not started by ``multiprocessing``, which would import the user's
script again, or fork beside a GPU. They end when the process that started them does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

from srjt.data.images.decode import BadImageError, Resize, read_image
from srjt.data.images.positioned_write import open_for_writing, write_at

__all__ = ["DecodeProcesses", "serve"]

# It imports srjt from where this process did. Its errors are not shown: the caller decodes what it could not.
PROGRAM = "import sys; sys.path[:] = {path!r}; from srjt.data.images.decode_processes import serve; serve()"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class DecodeProcesses:
    """Decode files to size × size, and write the pixels of row i at ``offset + i · 3 · size²`` of the file ``pixels``.

    As many threads may call ``decode`` at a time as there are processes.
    """

    def __init__(
        self, count: int, *, files: Sequence[Path], pixels: Path, offset: int, size: int, resize: Resize
    ) -> None:
        self._files = files
        self._settings = {"pixels": os.fspath(pixels), "offset": offset, "size": size, "resize": resize}
        self._started: list[subprocess.Popen[bytes]] = []
        self._idle: SimpleQueue[subprocess.Popen[bytes] | None] = SimpleQueue()  # None: one that has failed
        for _ in range(count):
            self._idle.put(self._start())

    def _start(self) -> subprocess.Popen[bytes] | None:
        if not sys.executable or getattr(sys, "frozen", False):  # no interpreter to start
            return None
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM.format(path=sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD},
            )
        except OSError:  # too many processes
            return None
        self._started.append(process)
        return process

    def __enter__(self) -> DecodeProcesses:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._started:
            process.kill()  # no answer is missing: nothing is lost
        for process in self._started:
            process.communicate()

    def decode(self, rows: Sequence[int]) -> list[str | None] | None:
        """For each row None, or the reason why its file cannot be read; None alone if the process has failed."""
        process = self._idle.get()
        reasons = None if process is None else self._ask(process, rows)
        self._idle.put(None if reasons is None else process)
        return reasons

    def _ask(self, process: subprocess.Popen[bytes], rows: Sequence[int]) -> list[str | None] | None:
        files = [os.fspath(self._files[row]) for row in rows]
        request = {**self._settings, "rows": list(rows), "files": files}
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            reasons: list[str | None] = json.loads(process.stdout.readline())
        except (OSError, ValueError):  # it ended before it answered
            return None
        return reasons


def serve() -> None:
    """Answer requests on stdin until it is closed. The first error that is not a bad image ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    for line in sys.stdin.buffer:
        request = json.loads(line)
        size = request["size"]
        file = open_for_writing(request["pixels"])
        reasons: list[str | None] = []
        for row, path in zip(request["rows"], request["files"], strict=True):
            try:
                picture = read_image(path, size=size, resize=request["resize"])
            except BadImageError as error:
                reasons.append(error.reason)
                continue
            write_at(file, picture, request["offset"] + row * 3 * size * size)
            reasons.append(None)
        os.close(file)
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(reasons), flush=True)
