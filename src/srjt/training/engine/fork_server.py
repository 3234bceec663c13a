"""The fork server: a process that imports torch once, and from which worker processes are forked."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from srjt.errors import SrjtError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

__all__ = ["SIGNALS", "check_not_starting", "start_forkserver"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def check_not_starting(call: str) -> None:
    """An error if this is a worker process that imports the script of its parent, which has made the call."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SrjtError(
            f'A worker process imports your script, which calls {call} again: put the call under if __name__ == "'
            '__main__":.'
        )


def start_forkserver(preload: Sequence[str]) -> ForkServerContext:
    """The process that imports the modules ``preload`` once, forks the workers and ends with the last of them.

    Signals are blocked in it, and in a worker until the worker unblocks them: Ctrl-C and job schedulers signal all
    processes of a job, and without the server nobody would learn how the workers ended. A signal that arrives here in
    the meantime is handled afterwards.
    """
    from multiprocessing import forkserver, resource_tracker

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    resource_tracker.ensure_running()  # first, because it unblocks the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context
