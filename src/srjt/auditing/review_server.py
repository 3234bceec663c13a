"""The web server of the review: open a port, bound the connections, open the browser, run until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

from srjt.auditing.review_app import (
    LOOPBACK,
    AccessRules,
    BlindSession,
    ReviewSession,
    create_app,
)
from srjt.errors import SrjtError

if TYPE_CHECKING:
    import uvicorn

# Bounds on connections: clients that never finish their requests must not keep the reviewer out. uvicorn's own
# limits do not prevent it: ``limit_concurrency`` refuses the newest connection, which is the reviewer's, and
# ``timeout_keep_alive`` waits for a first answer.
#
# A connection has ``REQUEST_SECONDS`` for each request, headers and body. There are at most
# ``MAX_CONNECTIONS``: a new one replaces the one that has been waiting longest for a complete request. A
# browser opens about six.

MAX_CONNECTIONS = 32
# Connections that asyncio accepts at once, before any is closed. Small, so that they, MAX_CONNECTIONS and an image for
# each of Starlette's 40 threads stay below 128 open files.
BACKLOG = 16
REQUEST_SECONDS = 10.0


class BoundedConnection(H11Protocol):
    """uvicorn's connection with a deadline for each request, and a maximum number of connections."""

    waiting_since = 0.0  # the time of the connection or of its last response
    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_deadline()
        if len(self.connections) > MAX_CONNECTIONS:
            self._close_oldest()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        super().connection_lost(exc)

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


# The web server of the review: open a port, run until Ctrl-C, open the browser.


@dataclass(frozen=True, kw_only=True)
class Server:
    """A listening socket and the rules for access to it."""

    socket: socket.socket
    host: str
    port: int
    access: AccessRules

    def address(self, token: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={token}"


def listen(*, host: str = "127.0.0.1", port: int = 0, allow_remote: bool = False) -> Server:
    """Listen on ``port`` (0: any free one). Addresses that other machines reach need ``allow_remote``."""
    local = _is_loopback(host)
    if not local and not allow_remote:
        raise SrjtError(
            f"--host {host} lets other machines reach the page: add --allow-remote if that is intended."
        )
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as problem:
        raise SrjtError(f"There is no address {host}: {problem.strerror or problem}.") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(64)
    except OSError as problem:
        listening.close()
        raise SrjtError(
            f"Port {port} of {host} cannot be used ({problem.strerror}): choose another --port, or omit it."
        ) from None
    port = listening.getsockname()[1]
    own_names = {host} if local else {host, socket.gethostname().lower(), socket.getfqdn().lower()}
    access = AccessRules(host_names=LOOPBACK | own_names, any_address=not local, cookie=f"srjt-review-{port}")
    shown_host = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return Server(socket=listening, host=shown_host, port=port, access=access)


def create_web_server(session: ReviewSession | BlindSession, server: Server) -> uvicorn.Server:
    """The web server of a review, which runs with ``run(sockets=[server.socket])``."""
    import uvicorn

    # a client that repeats an error, such as too many open files, must not fill the disk
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        create_app(session, server.access),
        http=BoundedConnection,
        backlog=BACKLOG,
        log_level="critical",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve(session: ReviewSession | BlindSession, server: Server, *, started: Callable[[], object]) -> None:
    """Run until Ctrl-C or SIGTERM. ``started`` is called when the page can be opened."""
    web_server = create_web_server(session, server)
    # Both signals raise KeyboardInterrupt after the server has stopped, so that the command can print a summary.
    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        started()
        with contextlib.suppress(KeyboardInterrupt):
            web_server.run(sockets=[server.socket])
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
        server.socket.close()


def open_browser(server: Server) -> bool:
    """Open the page with a one-time token. False if there is no display."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    address = server.address(server.access.new_one_time_token())
    threading.Timer(0.3, webbrowser.open, [address]).start()
    return True


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
