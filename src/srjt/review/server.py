"""The web server of the review: open a port, run until Ctrl-C, open the browser."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srjt.errors import SrjtError
from srjt.review.app import ReviewSession, create_app
from srjt.review.blind import BlindSession, create_blind_app
from srjt.review.security import LOOPBACK, AccessRules

if TYPE_CHECKING:
    import uvicorn

__all__ = ["Server", "create_web_server", "listen", "open_browser", "serve"]


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

    from srjt.review.connections import BACKLOG, BoundedConnection, log_once

    log_once()
    config = uvicorn.Config(
        create_blind_app(session, server.access)
        if isinstance(session, BlindSession)
        else create_app(session, server.access),
        http=BoundedConnection,
        backlog=BACKLOG,
        log_level="error",
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
