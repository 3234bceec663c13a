"""Who may talk to the review's server: the browser that was given the token, and no page of anybody else."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LOOPBACK", "Door", "Guard"]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
LARGEST_BODY = 16_384

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    # Another port of this machine is the same "site" to a cookie, but not the same origin.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

# A real redirect would not carry the strict cookie when the address was clicked on another site.
ENTER = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Review</title>
<link rel="icon" href="/page/icon.svg"><meta http-equiv="refresh" content="0; url=/{query}">"""


@dataclass(frozen=True, kw_only=True)
class Door:
    """What opens it. ``names``: host names by which the server is known; ``any_address``: IP addresses too.

    A page that rebinds its own name to this machine sends that name as Host, never an address.
    """

    names: frozenset[str] = LOOPBACK
    any_address: bool = False
    cookie: str = "srjt-review"  # told apart by port, which cookies are not
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    tickets: set[str] = field(default_factory=set, repr=False)  # tokens that are good for one visit

    def ticket(self) -> str:
        """For a command line, which other users of the machine can read."""
        made = secrets.token_urlsafe(32)
        self.tickets.add(made)
        return made

    def opens(self, token: str) -> bool:
        if token in self.tickets:
            self.tickets.remove(token)
            return True
        return self.fits(token)

    def fits(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self.token.encode())

    def knows(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.any_address


class Guard:
    """Around the whole application: checks every request, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, *, door: Door) -> None:
        self.app = app
        self.door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no sockets here

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self._refusal(scope)
        await (self.app if refused is None else refused)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self.door.knows(host):
            return PlainTextResponse("This server does not go by that name.", 421)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        given = query.pop("token", None)
        if given is not None and scope["method"] == "GET" and scope["path"] == "/":
            return self._enter(query) if self.door.opens(given) else _closed()
        if not self.door.fits(_cookie(headers, self.door.cookie)):
            return _closed()
        if scope["method"] not in ("GET", "HEAD"):
            if headers.get("origin") not in (f"http://{host}", f"https://{host}"):
                return PlainTextResponse("Only the review's own page may decide.", 403)
            if not headers.get("content-length", "").isdigit():
                return PlainTextResponse("How long is it?", 411)
            if int(headers["content-length"]) > LARGEST_BODY:
                return PlainTextResponse("A decision is shorter than that.", 413)
        return None

    def _enter(self, query: Mapping[str, str]) -> Response:
        kept = urlencode(query)  # which escapes everything that HTML would understand but "&"
        page = HTMLResponse(ENTER.format(query=f"?{kept}".replace("&", "&amp;") if kept else ""))
        page.set_cookie(self.door.cookie, self.door.token, httponly=True, samesite="strict", path="/")
        return page


def _closed() -> Response:
    return PlainTextResponse(
        "This page opens with the whole address that srjt review has printed, the token included.\n", 403
    )


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
