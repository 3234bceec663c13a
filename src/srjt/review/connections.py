"""Bounds on connections: clients that never finish their requests must not keep the reviewer out.

A connection has ``REQUEST_SECONDS`` for each request, headers and body. There are at most ``MAX_CONNECTIONS``: a new
one replaces the one that has been waiting longest for a complete request. A browser opens about six.
"""

from __future__ import annotations

import asyncio
import logging

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["BACKLOG", "MAX_CONNECTIONS", "BoundedConnection", "OnceFilter", "log_once"]

MAX_CONNECTIONS = 32
# Connections that asyncio accepts at once, before any is closed. Small, so that they, MAX_CONNECTIONS and an image for
# each of Starlette's 40 threads stay below 128 open files.
BACKLOG = 16
REQUEST_SECONDS = 10.0
MAX_MESSAGES = 50  # in the log, for as long as the server runs


class BoundedConnection(H11Protocol):
    """uvicorn's connection with a deadline for each request, and a maximum number of connections."""

    waiting_since = 0.0  # the time of the connection or of its last response
    deadline: asyncio.TimerHandle | None = None
    refused = False  # what the client sends is no HTTP

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_deadline()
        if len(self.connections) > MAX_CONNECTIONS:
            self._close_oldest()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.refused:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Answer, then discard the rest of the request until the client closes or its deadline passes.

        Closing a socket with unread bytes resets the connection, and a reset can overtake the answer.
        """
        self.refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # in the middle of another answer
            return
        headers = "content-type: text/plain; charset=utf-8\r\nconnection: close"
        self.transport.write(f"HTTP/1.1 400 Bad Request\r\n{headers}\r\n\r\n{msg}".encode("ascii"))
        self.transport.write_eof()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._start_deadline()

    @property
    def is_waiting(self) -> bool:
        """Whether no complete request is being answered."""
        return self.cycle is None or self.cycle.more_body or self.cycle.response_complete

    def _start_deadline(self) -> None:
        self.waiting_since = self.loop.time()
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = self.loop.call_later(REQUEST_SECONDS, self._check_deadline)

    def _check_deadline(self) -> None:
        if self.is_waiting:
            self.transport.abort()
        else:  # the response takes long
            self._start_deadline()

    def _close_oldest(self) -> None:
        others = (c for c in self.connections if isinstance(c, BoundedConnection) and c is not self)
        waiting = [c for c in others if c.is_waiting and not c.transport.is_closing()]
        oldest = min(waiting, key=lambda connection: connection.waiting_since, default=self)
        oldest.transport.abort()


class OnceFilter(logging.Filter):
    """Lets each message through once, and few in all: a client that repeats an error must not fill the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, str]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = (str(record.msg), repr(record.exc_info and record.exc_info[1]))
        if message in self.seen or len(self.seen) >= MAX_MESSAGES:
            return False
        self.seen.add(message)
        return True


def log_once() -> None:
    """Log each message of the server and of asyncio once."""
    for name in ("asyncio", "uvicorn.error"):
        logger = logging.getLogger(name)
        if not any(isinstance(known, OnceFilter) for known in logger.filters):
            logger.addFilter(OnceFilter())
