"""What a worker process of the pool executes: one task after another, until it is told to stop or has no parent."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from srjt.errors import Interrupted, SrjtError
from srjt.files import is_locked
from srjt.training.engine.fork_server import SIGNALS
from srjt.training.engine.stop_signal import StopRequest

__all__ = ["READY", "Warned", "handle_signals", "serve", "stop_unless_locked"]

READY = None  # the first message of a worker


class Warned(NamedTuple):
    """A message of a worker: a warning, for the process that may show a progress bar on the same terminal."""

    text: str


def serve(connection: Connection[Any, Any], threads: int | None, variables: dict[str, str]) -> None:
    """The main function of a worker: execute tasks until the connection is closed."""
    os.environ.update(variables)  # before its first use of the GPU
    current: list[Path] = []
    handle_signals(stop_unless_locked(current))
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the server has blocked them
        connection.send(READY)
        import torch

        from srjt.training.engine.process_state import preserve_process_state, release_memory

        gc.freeze()  # what the imports made lives for ever; else every collection would search it for garbage
        warnings.showwarning = _send_warnings(connection)
        if threads is not None:
            torch.set_num_threads(threads)
        while True:
            function, arguments, device, folder = connection.recv()
            current[:] = [folder]
            result, error, expected = None, "", True
            with preserve_process_state():
                try:
                    result = function(*arguments, device=device)
                except SrjtError as problem:
                    error = str(problem)
                except Exception as problem:
                    error, expected = "".join(traceback.format_exception(problem)), False
            current.clear()
            release_memory()
            connection.send((result, error, expected))
            if not expected:
                break
    except Interrupted as stopped:
        handle_signals(signal.SIG_IGN)
        sys.exit(stopped.status)
    except (EOFError, OSError):  # no more tasks, or nobody is left to report to
        pass


def stop_unless_locked(current: list[Path]) -> Callable[[int, FrameType | None], None]:
    """A handler that ends the process at once, except during a training, whose saving it must not disturb.

    Training handles the first signal itself and saves its state. More signals follow: the pool repeats its request,
    and Ctrl-C and job schedulers signal all processes of a job. The trainings of a noise estimate are in another folder
    than the task's.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if not (StopRequest.stopping or (current and is_locked(current[0]))):
            handle_signals(signal.SIG_IGN)
            raise Interrupted(number, "Stopped before training began.")

    return handle


def handle_signals(handler: Any) -> None:
    for number in SIGNALS:
        signal.signal(number, handler)


def _send_warnings(connection: Connection[Any, Any]) -> Callable[..., None]:
    """Warnings as sentences, without the lines of code that they came from."""

    def send(message: Warning | str, *where: Any, **more: Any) -> None:
        if (
            threading.current_thread() is threading.main_thread()
        ):  # two threads must not send at the same time
            with contextlib.suppress(OSError):  # nobody is left to warn
                connection.send(Warned(str(message)))
        else:
            print(f"Warning: {message}", file=sys.stderr)

    return send


def _stop_with_parent() -> None:
    """Stop this process if its parent was killed: a killed process cannot stop its workers."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    while True:
        with contextlib.suppress(OSError):
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)
