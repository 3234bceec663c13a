"""The fork server: a process that imports torch once, and from which worker processes are forked."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from srjt.errors import SrjtError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

__all__ = ["SIGNALS", "check_not_starting", "start_forkserver"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAFE_PATH = "PYTHONSAFEPATH"


def check_not_starting(call: str) -> None:
    """An error if this is a worker process that imports the script of its parent, which has made the call."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SrjtError(
            f'A worker process imports your script, which calls {call} again: put the call under if __name__ == "'
            '__main__":.'
        )


@contextlib.contextmanager
def _without_current_folder() -> Iterator[None]:
    """Python processes that start meanwhile import nothing from the current folder, where python -c looks first.

    A folder that one was sent may contain a random.py. Python 3.10 cannot be told so: its process starts in the folder
    of the standard library, and a worker returns to its own (multiprocessing does that).
    """
    if sys.version_info < (3, 11):
        before = os.getcwd()
        os.chdir(os.path.dirname(os.__file__))
        try:
            yield
        finally:
            os.chdir(before)
        return
    given = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH)
        if given is not None:
            os.environ[SAFE_PATH] = given


def start_forkserver(preload: Sequence[str]) -> ForkServerContext:
    """The process that imports the modules ``preload`` once, forks the workers and ends with the last of them.

    Signals are blocked in it, and in a worker until the worker unblocks them: Ctrl-C and job schedulers signal all
    processes of a job, and without the server nobody would learn how the workers ended. A signal that arrives here in
    the meantime is handled afterwards.
    """
    from multiprocessing import forkserver, resource_tracker

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    with _without_current_folder():
        resource_tracker.ensure_running()  # first, because it unblocks the signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context
