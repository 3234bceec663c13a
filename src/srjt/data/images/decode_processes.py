"""Processes that decode image files and write the pixels into a store.

Threads of one process share Python's lock, which is needed for about 0.4 ms per image: on many cores it limits how
fast small images are decoded. The processes are not started by ``multiprocessing``, which would import the user's
script again, or fork beside a GPU. They only help: what they cannot do is left to the caller. Without the process that
started them they end after their current files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue

from PIL import Image

from srjt.data.images.decode import BadImageError, Resize, read_image
from srjt.data.images.positioned_write import open_for_writing, write_at

__all__ = ["DecodeProcesses", "serve"]

MOST = 32  # processes; more are not faster, and each needs 40 MB
START_SECONDS = (
    60  # for a process that imports from a slow disk; after that it is taken to be another program
)
READY = b"ready\n"
PROGRAM = "import sys; sys.path[:] = {path!r}; from srjt.data.images.decode_processes import serve; serve()"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class DecodeProcesses:
    """Decode files to size × size, and write the pixels of row i at ``offset + i · 3 · size²`` of the file ``pixels``.

    As many threads may call ``decode`` at a time as there are processes. ``kill`` ends the processes, also while
    threads wait for them; ``close`` follows when no thread does any more.
    """

    def __init__(
        self, count: int, *, files: Sequence[Path], pixels: Path, offset: int, size: int, resize: Resize
    ) -> None:
        self._count = count
        self._files = files
        self._settings = {"pixels": os.fspath(pixels), "offset": offset, "size": size, "resize": resize}
        self._started: list[subprocess.Popen[bytes]] = []
        self._silent: set[subprocess.Popen[bytes]] = set()  # those that are not ready yet
        self._idle: SimpleQueue[subprocess.Popen[bytes] | None] = SimpleQueue()  # None: one that has failed
        self._watch = threading.Timer(START_SECONDS, self._kill_silent)
        self._watch.daemon = True

    def start(self) -> None:
        for _ in range(self._count):
            self._idle.put(self._start())
        self._watch.start()

    def _start(self) -> subprocess.Popen[bytes] | None:
        if not sys.executable or getattr(sys, "frozen", False):  # no interpreter to start
            return None
        flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
        path = [entry for entry in sys.path if isinstance(entry, str)]
        try:
            process = subprocess.Popen(
                [
                    sys.executable,
                    *flags,
                    "-c",
                    PROGRAM.format(path=path),
                ],  # srjt from where this process has it
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD},
            )
        except OSError:  # too many processes, or too many open files
            return None
        self._started.append(process)
        self._silent.add(process)
        return process

    def decode(self, rows: Sequence[int]) -> list[bool]:
        """For each row whether its pixels are written. If not, its file is bad, or the process has failed."""
        process, done = self._idle.get(), None
        try:
            if process is not None:
                done = self._ask(process, rows)
        finally:
            self._idle.put(None if done is None else process)
        return [False] * len(rows) if done is None else done

    def _ask(self, process: subprocess.Popen[bytes], rows: Sequence[int]) -> list[bool] | None:
        request = {
            **self._settings,
            "rows": list(rows),
            "files": [os.fspath(self._files[row]) for row in rows],
            "largest": Image.MAX_IMAGE_PIXELS,
        }
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process in self._silent:
                if process.stdout.readline() != READY:
                    return None
                self._silent.discard(process)
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            done = json.loads(process.stdout.readline())
        except (OSError, ValueError):  # it ended before it answered
            return None
        return done if isinstance(done, list) and len(done) == len(rows) else None

    def _kill_silent(self) -> None:
        for process in list(self._silent):
            process.kill()

    def kill(self) -> None:
        self._watch.cancel()
        for process in self._started:
            process.kill()

    def close(self) -> None:
        for process in self._started:
            process.communicate()


def serve() -> None:
    """Answer requests on stdin until it is closed. An error that is not a bad image ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    answers = sys.stdout.buffer
    answers.write(READY)
    answers.flush()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        size = request["size"]
        Image.MAX_IMAGE_PIXELS = request["largest"]
        file = open_for_writing(request["pixels"])
        done: list[bool] = []
        for row, path in zip(request["rows"], request["files"], strict=True):
            try:
                picture = read_image(path, size=size, resize=request["resize"])
            except BadImageError:
                done.append(False)
                continue
            write_at(file, picture, request["offset"] + row * 3 * size * size)
            done.append(True)
        os.close(file)
        answers.write(json.dumps(done).encode() + b"\n")
        answers.flush()
