"""Binding, announcing, serving until Ctrl-C."""

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

from srjt.errors import SrjtError
from srjt.review.security import LOOPBACK, Door
from srjt.review.server import Desk, create_app

__all__ = ["Listening", "listen", "open_browser", "serve"]


@dataclass(frozen=True, kw_only=True)
class Listening:
    """A bound socket and what opens the page behind it."""

    socket: socket.socket
    host: str
    port: int
    door: Door

    def address(self, token: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={token}"


def listen(*, host: str = "127.0.0.1", port: int = 0, remote: bool = False) -> Listening:
    """Take ``port`` (0: any free one). Beyond this machine only where ``remote`` says that it is meant."""
    local = _is_loopback(host)
    if not local and not remote:
        raise SrjtError(
            f"--host {host} would let other machines reach the page: add --allow-remote if you mean it."
        )
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as problem:
        raise SrjtError(f"There is no address {host}: {problem.strerror or problem}.") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
        bound.listen(64)
    except OSError as problem:
        bound.close()
        raise SrjtError(
            f"Port {port} of {host} cannot be used ({problem.strerror}): give another --port, or none."
        ) from None
    taken = bound.getsockname()[1]
    door = Door(
        names=LOOPBACK
        | ({host} if local else {host, socket.gethostname().lower(), socket.getfqdn().lower()}),
        any_address=not local,
        cookie=f"srjt-review-{taken}",
    )
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return Listening(socket=bound, host=shown, port=taken, door=door)


def serve(desk: Desk, at: Listening, *, started: Callable[[], object]) -> None:
    """Answer until Ctrl-C or SIGTERM. ``started`` is called when the page can be opened."""
    import uvicorn

    config = uvicorn.Config(
        create_app(desk, at.door),
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    # Both signals end in KeyboardInterrupt once the server has come down, so that the session can be summed up.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        started()
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[at.socket])
    finally:
        signal.signal(signal.SIGTERM, before)
        at.socket.close()


def open_browser(at: Listening) -> bool:
    """Whether there is a screen to open it on. The address carries a ticket for one visit, not the token."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    address = at.address(at.door.ticket())
    threading.Timer(0.3, webbrowser.open, [address]).start()
    return True


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
