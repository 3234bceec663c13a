"""The web page of the review: doubtful labels, or blindly a random sample or a worklist; its
images, its server, and the rules of who may use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import ipaddress
import json
import logging
import os
import re
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, cast
from urllib.parse import urlsplit

import h11
import numpy as np
import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from srjt.auditing.folder import AuditFolder, image_file
from srjt.auditing.review_log import (
    Action,
    ConflictError,
    Decisions,
    LogEntry,
    Purpose,
    review_progress,
)
from srjt.data.grades import positions
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.sources.readers_folder import ReadersFolder
from srjt.errors import SrjtError
from srjt.files import modified, read_limited
from srjt.json_values import json_values

# The review page's security rules: who may use the server, and what its pages may load.
#
# - Host: only names of this machine, or any IP address with ``--allow-remote``. A hostile page that
#   makes its own domain name resolve to this machine (DNS rebinding) sends that name, and is
#   refused.
# - Token: the printed address contains a random token; the first visit exchanges it for a cookie
#   that every other request needs. The browser is opened with a token that works once, because
#   other users of the machine can read command lines.
# - Origin: only the review page itself may send decisions, and only short ones.
# - Headers: pages load scripts, styles and images from this server alone.

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_BODY = 16_384  # bytes
MOST_CONNECTIONS = 64  # of one address; a browser opens six
REQUEST_SECONDS = 10.0  # for a request to become complete

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    # Another port of this machine is the same "site" to a cookie, but not the same origin.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

# A redirect by status would not send the SameSite=strict cookie if the address was clicked on
# another site.
LOGIN_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Review</title>
<link rel="icon" href="/page/icon.svg"><meta http-equiv="refresh" content="0; url=/">"""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A listening socket, the host names by which it is reached, and the secrets that give
    access."""

    socket: socket.socket
    host: str
    port: int
    host_names: frozenset[str] = LOOPBACK
    any_address: bool = False  # accept every IP address as Host
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    one_time_tokens: set[str] = field(default_factory=set, repr=False)

    @property
    def cookie(self) -> str:
        """The name includes the port, because browsers share cookies between ports."""
        return f"srjt-review-{self.port}"

    def address(self, token: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={token}"

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
        return name in self.host_names or (self.any_address and _is_address(name))


def _is_address(host: str, *, loopback: bool = False) -> bool:
    """Whether ``host`` is an IP address; loopback: of this machine alone."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or not loopback


def secured(app: ASGIApp, server: Server) -> ASGIApp:
    """``app`` behind the rules: every request is checked, and every response has the headers."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        received = 0

        async def receive_limited() -> Message:
            """What is received counts, not the Content-Length: chunked requests ignore it."""
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY:
                raise HTTPException(
                    413, "The request is too long.", headers={"Connection": "close"}
                )
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        response = _login_or_refusal(Request(scope), server)
        await (app if response is None else response)(scope, receive_limited, send_with_headers)

    return checked


def _login_or_refusal(request: Request, server: Server) -> Response | None:
    """The response to a request that does not reach the application; None if it does."""
    host = request.headers.get("host", "")
    if not server.accepts_host(host):
        return PlainTextResponse("This server does not have that host name.", 421)
    token = request.query_params.get("token")
    if token is not None and (request.method, request.scope["path"]) == ("GET", "/"):
        if server.accepts_login(token):
            page = HTMLResponse(LOGIN_PAGE)
            page.set_cookie(server.cookie, server.token, httponly=True, samesite="strict", path="/")
            return page
    elif server.is_token(request.cookies.get(server.cookie, "")):
        if request.method in ("GET", "HEAD"):
            return None
        if request.headers.get("origin") not in (f"http://{host}", f"https://{host}"):
            return PlainTextResponse("Only the review page itself may send decisions.", 403)
        # the server has checked that it is a number
        if int(request.headers.get("content-length", "0")) > MAX_BODY:
            return PlainTextResponse("The request is too long.", 413)
        return None
    return PlainTextResponse(
        "Open this page with the complete address that srjt review printed, including the token.\n",
        403,
    )


# The images of an audit, in formats that a browser shows.

GAP = 8  # pixels between two pictures
THUMBNAIL_SIZE = 320  # pixels of the longer side
LARGEST_FILE = 2**26  # bytes that are sent to the browser unchanged
Source = AuditFolder | ReadersFolder


def _decoded(path: Path) -> Image.Image:
    try:
        return Image.fromarray(read_image(path))
    except MemoryError:  # the header of an array file may promise any size
        raise BadImageError(path, "it needs more memory than there is") from None


def _encoded(image: Image.Image, kind: Literal["png", "jpeg"] = "png") -> bytes:
    buffer = io.BytesIO()
    # for PNG speed matters more than size: the server is usually local
    image.save(buffer, kind, **({"compress_level": 1} if kind == "png" else {"quality": 88}))
    return buffer.getvalue()


def _pixels_alone(source: Source, line: int) -> Response:
    """The image as a new PNG, without the metadata of its file."""
    image = _decoded(image_file(source.folder, source.images[line]))
    return Response(_encoded(image), media_type="image/png")


def _full_image(audit: AuditFolder, line: int) -> Response:
    """The file unchanged if every browser shows it as the networks saw it, else converted to
    PNG."""
    try:
        content = read_limited(image_file(audit.folder, audit.images[line]), limit=LARGEST_FILE)
    except SrjtError:
        content = b""  # the decoder reports the reason, or shows a large file as a PNG
    if content.startswith(b"\xff\xd8\xff"):
        return Response(content, media_type="image/jpeg")
    if content.startswith(b"\x89PNG\r\n\x1a\n") and content[24:25] != b"\x10":  # not 16 bits
        return Response(content, media_type="image/png")
    return _pixels_alone(audit, line)


def _thumbnail(audit: AuditFolder, line: int) -> Response:
    path = image_file(audit.folder, audit.images[line])
    return Response(_cached_thumbnail(path, modified(path)), media_type="image/jpeg")


@lru_cache(maxsize=512)
def _cached_thumbnail(path: Path, changed: int) -> bytes:
    """changed: when the file was, which may hold another image than the last time."""
    image = _decoded(path)
    image.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE))
    return _encoded(image, "jpeg")


def _where_they_look(audit: AuditFolder, line: int) -> Response:
    """The image, once for each network side by side, and below it the same with the map of each
    network."""
    from srjt.auditing.audit import look_maps  # loads torch: only on demand

    plain, maps = look_maps(audit, line)
    step = plain.width + GAP
    both = Image.new("RGB", (step * len(maps) - GAP, 2 * plain.height))
    for place, drawn in enumerate(maps):
        both.paste(plain, (place * step, 0))
        both.paste(drawn, (place * step, plain.height))
    return Response(_encoded(both, "jpeg"), media_type="image/jpeg")


# The web application of the review: the page, the images, the decisions.

MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".js": "text/javascript",
}
SHARED_FILES = ("review.css", "icon.svg", "grade_name.js", "image_cache.js", "api.js", "zoom.js")
MAX_UNDO = 200  # decisions that the page can undo


@dataclass(frozen=True, kw_only=True)
class ReviewSession:
    """One reviewer at work on one audit."""

    audit: AuditFolder
    decisions: Decisions
    reviewer: str
    queue: int  # number of labels to review, the most doubtful ones
    files: ClassVar = ("index.html", "review.js", "audit.js", *SHARED_FILES)
    noun: ClassVar = "decision"

    @cached_property
    def samples_json(self) -> bytes:
        """Everything that the page shows of the samples, by column: a few megabytes for 100,000
        samples."""
        audit = self.audit
        values = {
            "reviewer": self.reviewer,
            "folder": str(audit.folder),
            "queue": self.queue,
            "notice": audit.facts.notice,
            "judged": audit.facts.judged,
            "trusted": audit.facts.trusted,
            "determined": audit.determined,
            "unrecognised": audit.unrecognised,
            "verified": audit.verified.tolist(),
            "grades": audit.grades,
            "names": audit.grades.shown if audit.grades.names else None,
            "keys": grade_keys(audit.grades),
            "ids": audit.ids,
            "labels": audit.labels.tolist(),
            "suggested": audit.suggested.tolist(),
            "quality": np.round(audit.quality, 4).tolist(),
            "probabilities": np.round(10_000 * audit.probabilities).astype(int).ravel().tolist(),
            "network_grades": json_values(audit.network_grades),
            "selected": json_values(np.round(audit.selected, 3)),
            "patients": _name_codes(audit.patients),
            "readers": _name_codes(audit.readers),
            "has_neighbours": audit.neighbours is not None,
            "twins": json_values(audit.twins),
        }
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()

    def updates(self, since: int) -> dict[str, Any]:
        """What has changed after revision ``since`` of the log."""
        current = self.decisions.current
        line_of = self.audit.line_of
        changes = []
        with self.decisions.lock:
            progress = review_progress(
                self.audit, current, queue=self.queue, verified=self.decisions.verified()
            )
            for name, seen in current.last_revision.items():
                if seen > since and name in line_of:
                    decision = self.decision_json(current.get(name))
                    changes.append({"line": line_of[name], "seen": seen, "decision": decision})
            return {
                "revision": current.revision,
                "progress": asdict(progress),
                "changes": changes,
            }

    def undoable(self) -> list[tuple[int, int]]:
        """(revision, line) of this reviewer's last decisions, oldest first."""
        line_of = self.audit.line_of
        with self.decisions.lock:
            entries = self.decisions.current.by_reviewer(self.reviewer)
        undoable = []
        for entry in entries:
            if entry.id in line_of:
                undoable.append((entry.revision, line_of[entry.id]))
        return undoable[-MAX_UNDO:]

    def decision_json(self, entry: LogEntry | None) -> dict[str, Any] | None:
        """A decision as the page reads it, with the position of the grade; None for a grade of
        another audit."""
        if entry is None:
            return None
        grades = self.audit.grades
        shown = {name: getattr(entry, name) for name in ("revision", "reviewer", "at", "action")}
        return {**shown, "grade": positions(grades).get(entry.to_grade)}

    def decide(self, body: dict[str, Any]) -> dict[str, Any]:
        audit = self.audit
        line, seen, since = (_integer(body, name) for name in ("line", "seen", "since"))
        action = str(body.get("action"))
        if line >= len(audit) or audit.ids[line] != body.get("id"):
            raise HTTPException(410, "The audit has changed since this page was opened: reload it.")
        label = int(audit.labels[line])
        grades = {"keep": label, "skip": label, "accept": int(audit.suggested[line])}
        if action == "set":
            grades["set"] = _integer(body, "grade", high=len(audit.grades) - 1)
        if action not in grades:
            raise HTTPException(400, "The action must be set, accept, keep or skip.")
        if grades[action] < 0:
            raise HTTPException(400, "No grade is suggested for this image.")
        entry = self.decisions.decide(
            audit.ids[line],
            reviewer=self.reviewer,
            action=cast(Action, action),
            grade=audit.grades[grades[action]],
            label=audit.grades[label],
            seen=seen,
        )
        return {**self.updates(since), "decided": entry.revision}

    def undo(self, body: dict[str, Any]) -> dict[str, Any]:
        revision = _integer(body, "revision")
        since = _integer(body, "since")
        if (line := dict(self.undoable()).get(revision)) is None:
            raise ConflictError(None)
        label = self.audit.grades[self.audit.labels[line]]
        self.decisions.undo(revision, reviewer=self.reviewer, label=label)
        return {**self.updates(since), "line": line}

    def routes(self) -> list[Route]:
        """What the page asks for."""
        audit = self.audit

        def samples(request: Request) -> Response:
            return Response(self.samples_json, media_type="application/json")

        def updates(request: Request) -> Response:
            since = _number(request.query_params.get("since", "0"), below=2**53)
            self.decisions.refresh()
            answer = self.updates(since)
            return JSONResponse(answer if since else {**answer, "undoable": self.undoable()})

        def neighbours(request: Request) -> Response:
            line = _number(request.path_params["line"], below=len(audit))
            if audit.neighbours is None:
                raise HTTPException(404, "This audit has no similar images.")
            lines = audit.neighbours[line].tolist()
            return JSONResponse([[other for other in of_grade if other >= 0] for of_grade in lines])

        def image(path: str, show: Callable[[AuditFolder, int], Response]) -> Route:
            def handler(request: Request) -> Response:
                return show(audit, _number(request.path_params["line"], below=len(audit)))

            return Route(path, handler)

        def change(path: str, work: Callable[[dict[str, Any]], dict[str, Any]]) -> Route:
            def unless_decided(body: dict[str, Any]) -> Response:
                try:
                    return JSONResponse(work(body))
                except ConflictError as conflict:
                    updates = self.updates(_integer(body, "since"))
                    return JSONResponse(
                        {**updates, "current": self.decision_json(conflict.current)}, 409
                    )

            return _post(path, unless_decided)

        return [
            image("/image/{line}", _full_image),
            image(
                "/pixels/{line}", _pixels_alone
            ),  # decoded here: says why an image cannot be shown
            image("/thumb/{line}", _thumbnail),
            image("/map/{line}", _where_they_look),
            Route("/api/samples", samples),
            Route("/api/updates", updates),
            Route("/api/neighbours/{line}", neighbours),
            change("/api/decide", self.decide),
            change("/api/undo", self.undo),
        ]


def create_app(session: ReviewSession | BlindSession, server: Server) -> ASGIApp:
    """The application behind the security rules. Handlers are plain functions: Starlette runs them
    in threads."""

    def page(request: Request) -> Response:
        name = request.path_params.get("name", session.files[0])
        if name not in session.files:
            raise HTTPException(404)
        content = (resources.files("srjt.auditing") / "page" / name).read_bytes()
        return Response(content, media_type=MEDIA_TYPES[Path(name).suffix])

    def refused(request: Request, problem: Exception) -> Response:
        """An image that cannot be shown; a full disk, or a log that another process has locked."""
        if request.method == "POST":
            return PlainTextResponse(f"{problem} The {session.noun} was not saved.", 503)
        return PlainTextResponse(str(problem), 503 if request.url.path.startswith("/api/") else 404)

    routes = [Route("/", page), Route("/page/{name}", page), *session.routes()]
    return secured(Starlette(routes=routes, exception_handlers={SrjtError: refused}), server)


def _post(path: str, work: Callable[[dict[str, Any]], Response]) -> Route:
    """A request with a JSON object."""

    async def handler(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except (ValueError, RecursionError, ClientDisconnect):  # the last: nobody reads the answer
            body = None
        if not isinstance(body, dict):
            raise HTTPException(400, "The request is not a JSON object.")
        return await run_in_threadpool(work, body)

    return Route(path, handler, methods=["POST"])


def grade_keys(grades: Sequence[str]) -> list[str]:
    """The digit key of each grade; "" beyond ten.

    0 is the mildest grade, unless every name contains one digit of its own: then 1 sets "Mayo 1",
    also on a scale that starts at 1.
    """
    digits = []
    for name in grades:
        numbers = re.findall(r"\d+", name)
        if len(numbers) == 1 and len(numbers[0]) == 1:
            digits += numbers
    if len(digits) == len(grades) == len(set(digits)):
        return digits
    return [str(grade) if grade < 10 else "" for grade in range(len(grades))]


def _number(text: str, *, below: int) -> int:
    """A number in an address. Python refuses to convert 4,300 digits, and takes "²" for one."""
    if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < below:
        return int(text)
    raise HTTPException(404, f"{text[:20]} is not a number from 0 to {below - 1:,}.")


def _integer(body: dict[str, Any], name: str, low: int = 0, high: int = 2**53 - 1) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise HTTPException(400, f"{name} must be a whole number from {low} to {high}.")
    return value


def _name_codes(values: list[str] | None) -> dict[str, Any] | None:
    """Each name once, and the position of every sample's name among them."""
    if values is None:
        return None
    names: dict[str, int] = {}
    codes = [names.setdefault(value.strip() or "(not given)", len(names)) for value in values]
    return {"names": list(names), "codes": codes}


# The web application that verifies a random sample, or reads a worklist: images and grades, and
# nothing that shows what a label is.
#
# The page knows an image by its position in the sample. An id may be the name of a folder that is
# named like the grade, a line of the audit is the rank of its doubt, and a file may have the label
# in its metadata: the server sends none.

CANNOT_TELL = -1  # an answer


@dataclass(frozen=True, kw_only=True)
class BlindSession:
    """One reviewer who verifies a sample, or reads a worklist."""

    audit: Source
    decisions: Decisions
    reviewer: str
    lines: list[int]  # the sample, or this reviewer's part of the worklist
    purpose: Purpose = "verify"
    hidden: frozenset[tuple[str, str]] = frozenset()  # (id, second) of answers before these
    # the lines of a larger sample, which begins with this one, if more are needed when all have an
    # answer
    larger: Callable[[], Sequence[int]] | None = None
    files: ClassVar = ("sample.html", "sample.js", *SHARED_FILES)
    noun: ClassVar = "answer"

    def answers(self) -> list[int | None]:
        """This reviewer's own answers, by position: a grade, ``CANNOT_TELL``, or None where there
        is none yet."""
        code_of = positions(self.audit.grades)
        codes: dict[str, int | None] = {}
        for answer in self.decisions.answers(self.purpose, reviewer=self.reviewer):
            if (answer.id, answer.second) in self.hidden:
                continue
            codes[answer.id] = CANNOT_TELL
            if answer.grade is not None:
                codes[answer.id] = code_of.get(answer.grade)
        return [codes.get(self.audit.ids[line]) for line in self.lines]

    def answer(self, position: int, grade: int) -> None:
        self.decisions.add_answer(
            self.audit.ids[self.lines[position]],
            purpose=self.purpose,
            reviewer=self.reviewer,
            grade=None if grade == CANNOT_TELL else self.audit.grades[grade],
        )
        if self.larger is not None and None not in self.answers():
            with self.decisions.lock:
                self.lines.extend(self.larger()[len(self.lines) :])

    def routes(self) -> list[Route]:
        """What the page asks for."""
        grades = self.audit.grades

        def sample(request: Request) -> Response:
            about = {"grades": grades.shown, "keys": grade_keys(grades), "purpose": self.purpose}
            return JSONResponse({**about, "answers": self.answers()})

        def image(request: Request) -> Response:
            position = _number(request.path_params["position"], below=len(self.lines))
            try:
                return _pixels_alone(self.audit, self.lines[position])
            except SrjtError:  # the reason may contain the path, and the path the label
                raise HTTPException(404, "The image cannot be read.") from None

        def answer(body: dict[str, Any]) -> Response:
            position = _integer(body, "position", 0, len(self.lines) - 1)
            grade = _integer(body, "grade", CANNOT_TELL, len(grades) - 1)
            self.answer(position, grade)
            return JSONResponse({"position": position, "grade": grade, "images": len(self.lines)})

        return [
            Route("/image/{position}", image),
            Route("/api/sample", sample),
            _post("/api/answer", answer),
        ]


# The web server of the review: open a port, run until Ctrl-C, open the browser.


def listen(*, host: str = "127.0.0.1", port: int = 0, allow_remote: bool = False) -> Server:
    """Listen on ``port`` (0: any free one). Addresses that other machines reach need
    ``allow_remote``."""
    local = host == "localhost" or _is_address(host, loopback=True)
    if not local and not allow_remote:
        raise SrjtError(
            f"--host {host} would allow other machines to open the page. If this is intended, add"
            " --allow-remote.",
            code="missing_option",
            option="host",
        )
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        dualstack = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        listening = socket.create_server(address, family=family, dualstack_ipv6=dualstack)
    except OSError as problem:
        raise SrjtError(
            f"Port {port} of {host} cannot be used ({problem.strerror or problem}): choose another"
            " --port or --host.",
            code="unreachable",
            option="port",
        ) from None
    names = {host}
    if not local:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return Server(
        socket=listening,
        host=socket.gethostname() if host in ("0.0.0.0", "::") else host,
        port=listening.getsockname()[1],
        host_names=LOOPBACK | names,
        any_address=not local,
    )


class LimitedProtocol(H11Protocol):
    """HTTP, with an end to requests that never become complete, and few connections of one address.

    Any program of this machine can open connections and send nothing: they must not use up the open
    files.
    """

    of_address: ClassVar[dict[str, list[LimitedProtocol]]] = {}  # oldest first
    _timer: asyncio.TimerHandle | None = None
    _address = ""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        others = self.of_address.setdefault(self._address, [])
        others.append(self)
        # one that has sent a request stays: a browser is behind it
        if len(others) > MOST_CONNECTIONS:
            incomplete = [
                other for other in others if other._timer is not None and other is not self
            ]
            oldest = (incomplete or others)[0]
            others.remove(oldest)  # at once: it is lost a little later
            oldest.transport.abort()
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        receiving = self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])
        if receiving and self._timer is None:
            self._wait_for_request()
        elif not receiving:
            self._request_is_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_is_complete()
        others = self.of_address.get(self._address, [])
        if self in others:
            others.remove(self)
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        self._timer = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _request_is_complete(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def create_web_server(session: ReviewSession | BlindSession, server: Server) -> uvicorn.Server:
    """The web server of a review, which runs with ``run(sockets=[server.socket])``."""
    # a client that repeats an error, such as too many open files, must not fill the disk
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        create_app(session, server),
        http=LimitedProtocol,
        ws="none",
        log_level="critical",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve(
    session: ReviewSession | BlindSession, server: Server, *, started: Callable[[], object]
) -> None:
    """Run until Ctrl-C or SIGTERM. ``started`` is called when the page can be opened."""
    web_server = create_web_server(session, server)
    # Both signals raise KeyboardInterrupt after the server has stopped, so that the command can
    # print a summary.
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
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform.startswith("linux") and not display:
        return False
    token = secrets.token_urlsafe(32)
    server.one_time_tokens.add(token)
    threading.Timer(0.3, webbrowser.open, [server.address(token)]).start()
    return True
