"""The review page's security rules: who may use the server, and what its pages may load.

- Host: only names of this machine, or any IP address with ``--allow-remote``. A hostile page that makes its own
  domain name resolve to this machine (DNS rebinding) sends that name, and is refused.
- Token: the printed address contains a random token; the first visit exchanges it for a cookie that every other
  request needs. The browser is opened with a token that works once, because other users of the machine can read
  command lines.
- Origin: only the review page itself may send decisions, and only short ones.
- Headers: pages load scripts, styles and images from this server alone.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LOOPBACK", "AccessRules", "SecurityMiddleware", "parse_number"]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_BODY = 16_384  # bytes
MAX_DIGITS = 20  # of a number in a request; Python refuses to convert 4,300
TOO_LONG = "The request is too long for a decision."

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

# A redirect by status would not send the SameSite=strict cookie if the address was clicked on another site.
LOGIN_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Review</title>
<link rel="icon" href="/page/icon.svg"><meta http-equiv="refresh" content="0; url=/{query}">"""


@dataclass(frozen=True, kw_only=True)
class AccessRules:
    """The host names by which the server is reached, and the secrets that give access."""

    host_names: frozenset[str] = LOOPBACK
    any_address: bool = False  # accept every IP address as Host
    cookie: str = "srjt-review"  # the name includes the port, because browsers share cookies between ports
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    one_time_tokens: set[str] = field(default_factory=set, repr=False)

    def new_one_time_token(self) -> str:
        token = secrets.token_urlsafe(32)
        self.one_time_tokens.add(token)
        return token

    def accepts_login(self, token: str) -> bool:
        """Whether the token of an address is valid; a one-time token is used up."""
        if token in self.one_time_tokens:
            self.one_time_tokens.remove(token)
            return True
        return self.is_token(token)

    def is_token(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self.token.encode())

    def accepts_host(self, host: str) -> bool:
        """Whether a Host header names this server."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self.host_names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.any_address


class SecurityMiddleware:
    """Wraps the whole application: checks every request and adds the headers to every response."""

    def __init__(self, app: ASGIApp, *, access: AccessRules) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no websockets here

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        received = 0

        async def receive_limited() -> Message:
            """What is received counts, not the Content-Length: chunked requests ignore it."""
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY:
                raise HTTPException(413, TOO_LONG, headers={"Connection": "close"})
            return message

        response = self._login_or_refusal(scope)
        await (self.app if response is None else response)(scope, receive_limited, send_with_headers)

    def _login_or_refusal(self, scope: Scope) -> Response | None:
        """The response to a request that does not reach the application; None if it does."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self.access.accepts_host(host):
            return PlainTextResponse("This server does not have that host name.", 421)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        token = query.pop("token", None)
        if token is not None and scope["method"] == "GET" and scope["path"] == "/":
            return self._log_in(query) if self.access.accepts_login(token) else _forbidden()
        if not self.access.is_token(_cookie(headers, self.access.cookie)):
            return _forbidden()
        if scope["method"] not in ("GET", "HEAD"):
            if headers.get("origin") not in (f"http://{host}", f"https://{host}"):
                return PlainTextResponse("Only the review page itself may send decisions.", 403)
            length = headers.get("content-length", "")
            if not length.isdigit():
                return PlainTextResponse("The request has no Content-Length.", 411)
            if (number := parse_number(length)) is None or number > MAX_BODY:
                return PlainTextResponse(TOO_LONG, 413)
        return None

    def _log_in(self, query: Mapping[str, str]) -> Response:
        remaining = urlencode(query)  # escapes all characters that are special in HTML, except "&"
        page = HTMLResponse(
            LOGIN_PAGE.format(query=f"?{remaining}".replace("&", "&amp;") if remaining else "")
        )
        page.set_cookie(self.access.cookie, self.access.token, httponly=True, samesite="strict", path="/")
        return page


def parse_number(text: str) -> int | None:
    """A non-negative integer of a request; None if it is none, or too long."""
    if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
        return int(text)
    return None


def _forbidden() -> Response:
    return PlainTextResponse(
        "Open this page with the complete address that srjt review printed, including the token.\n", 403
    )


def _cookie(headers: Headers, name: str) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value
