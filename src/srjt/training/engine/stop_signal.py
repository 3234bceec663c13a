"""Stop on request: Ctrl-C and SIGTERM end the training after the current step, with its state saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, ClassVar

from srjt.errors import Interrupted

__all__ = ["StopRequest"]


class StopRequest:
    """A context in which the first signal sets ``number``; a second one has its usual, immediate effect.

    ``stopping``: whether the last one in this process has received a signal and is saving its state, or has done so
    and the process is ending.
    """

    stopping: ClassVar[bool] = False

    def __init__(self) -> None:
        self.number: int | None = None
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        StopRequest.stopping = False
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous_handlers[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        StopRequest.stopping = True
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}

    def __exit__(self, kind: object, exception: object, trace: object) -> None:
        StopRequest.stopping = isinstance(
            exception, Interrupted
        )  # not if it had finished before it could stop
        self._restore_handlers()
