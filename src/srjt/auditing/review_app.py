"""The web applications of the review: the page of doubtful labels, the blind page for a random sample or a
worklist, their images, and the rules of who may use them.
"""

from __future__ import annotations

import io
import ipaddress
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from http.cookies import CookieError, SimpleCookie
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srjt.auditing.folder import AuditFolder, image_file
from srjt.auditing.review_log import ConflictError, Decisions, LogEntry, review_progress
from srjt.data.images.decode import BadImageError, UInt8Array, read_image
from srjt.data.sources.readers_folder import ReadersFolder
from srjt.errors import SrjtError, count_of
from srjt.files import read_limited

# The review page's security rules: who may use the server, and what its pages may load.
#
# - Host: only names of this machine, or any IP address with ``--allow-remote``. A hostile page that makes
#   its own domain name resolve to this machine (DNS rebinding) sends that name, and is refused.
# - Token: the printed address contains a random token; the first visit exchanges it for a cookie that every
#   other request needs. The browser is opened with a token that works once, because other users of the
#   machine can read command lines.
# - Origin: only the review page itself may send decisions, and only short ones.
# - Headers: pages load scripts, styles and images from this server alone.

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


# The images of an audit, in formats that a browser shows.

THUMBNAIL_SIZE = 320  # pixels of the longer side
LARGEST_FILE = 2**26  # bytes that are sent to the browser unchanged


class EncodedImage(NamedTuple):
    content: bytes
    media_type: str


def image_path(audit: AuditFolder | ReadersFolder, line: int) -> Path:
    """The file of a sample. Raises ``BadImageError`` if there is none that may be shown."""
    name = audit.images[line]
    if not name:
        raise BadImageError(Path(audit.ids[line]), "there is no image file of this sample")
    return image_file(audit.folder, name)


def full_image(audit: AuditFolder, line: int) -> EncodedImage:
    """The file unchanged if every browser shows it as the networks saw it, else converted to PNG."""
    path = image_path(audit, line)
    try:
        content = read_limited(path, limit=LARGEST_FILE)
    except SrjtError:
        content = b""  # the decoder reports the reason, or shows a large file as a PNG
    if content.startswith(b"\xff\xd8\xff"):
        return EncodedImage(content, "image/jpeg")
    if content.startswith(b"\x89PNG\r\n\x1a\n") and content[24:25] != b"\x10":  # not 16 bits
        return EncodedImage(content, "image/png")
    return _encode(path)


def pixels_alone(audit: AuditFolder | ReadersFolder, line: int) -> EncodedImage:
    """The image as a new PNG, without the metadata of its file."""
    return _encode(image_path(audit, line))


def thumbnail(audit: AuditFolder, line: int) -> EncodedImage:
    return _cached_thumbnail(image_path(audit, line))


@lru_cache(maxsize=512)
def _cached_thumbnail(path: Path) -> EncodedImage:
    return _encode(path, size=THUMBNAIL_SIZE)


def where_they_look(audit: AuditFolder, line: int) -> EncodedImage:
    """The image, once for each network side by side, and below it the same with the map of each network."""
    from PIL import Image

    from srjt.auditing.audit import look_maps  # loads torch: only on demand
    from srjt.inference.explain import side_by_side

    plain, maps = look_maps(audit, line)
    above, below = side_by_side([plain] * len(maps)), side_by_side(maps)
    both = Image.new("RGB", (above.width, 2 * above.height))
    both.paste(above, (0, 0))
    both.paste(below, (0, above.height))
    buffer = io.BytesIO()
    both.save(buffer, "JPEG", quality=88)
    return EncodedImage(buffer.getvalue(), "image/jpeg")


def image_problem(audit: AuditFolder, line: int) -> str:
    """Why an image cannot be shown, in one sentence. The browser itself does not know the reason."""
    try:
        _read(image_path(audit, line))
    except SrjtError as problem:
        return str(problem)
    return "The browser cannot show this image, although it can be read."


def _read(path: Path) -> UInt8Array:
    try:
        return read_image(path)
    except MemoryError:  # the header of an array file may promise any size
        raise BadImageError(path, "it needs more memory than there is") from None


def _encode(path: Path, *, size: int | None = None) -> EncodedImage:
    from PIL import Image

    image = Image.fromarray(_read(path))
    buffer = io.BytesIO()
    if size is not None:
        image.thumbnail((size, size))
        image.save(buffer, "JPEG", quality=88)
        return EncodedImage(buffer.getvalue(), "image/jpeg")
    image.save(buffer, "PNG", compress_level=1)  # speed matters more than size: the server is usually local
    return EncodedImage(buffer.getvalue(), "image/png")


# The web application of the review: the page, the images, the decisions.

MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".svg": "image/svg+xml", ".js": "text/javascript"}
SHARED_FILES = ("review.css", "icon.svg", "grade_name.js", "image_cache.js", "api.js", "zoom.js")
REVIEW_FILES: tuple[str, ...] = ("index.html", "review.js", "audit.js", *SHARED_FILES)
BLIND_FILES: tuple[str, ...] = ("sample.html", "sample.js", *SHARED_FILES)
MAX_UNDO = 200  # decisions that the page can undo


@dataclass(frozen=True, kw_only=True)
class ReviewSession:
    """One reviewer at work on one audit."""

    audit: AuditFolder
    decisions: Decisions
    reviewer: str
    queue: int  # number of labels to review, the most doubtful ones

    @cached_property
    def samples_json(self) -> bytes:
        """Everything that the page shows of the samples, by column: a few megabytes for 100,000 samples."""
        audit = self.audit
        values = {
            "reviewer": self.reviewer,
            "folder": str(audit.folder),
            "queue": self.queue,
            "notice": audit.notice,
            "judged": audit.judged,
            "trusted": audit.trusted,
            "grades": audit.grades,
            "names": audit.grades.shown if audit.grades.names else None,
            "keys": grade_keys(audit.grades),
            "ids": audit.ids,
            "labels": audit.labels.tolist(),
            "suggested": audit.suggested.tolist(),
            "quality": np.round(audit.quality, 4).tolist(),
            "probabilities": np.round(10_000 * audit.probabilities).astype(int).ravel().tolist(),
            "network_grades": [grades.tolist() for grades in audit.network_grades],
            "selected": [None if share != share else share for share in np.round(audit.selected, 3).tolist()],
            "patients": _name_codes(audit.patients),
            "readers": _name_codes(audit.readers),
            "has_neighbours": audit.neighbours is not None,
            "twins": None if audit.twins is None else audit.twins.tolist(),
        }
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()

    def updates(self, since: int) -> dict[str, Any]:
        """What has changed after revision ``since`` of the log."""
        current = self.decisions.current
        with self.decisions.lock:
            changed = [sample for sample, revision in current.last_revision.items() if revision > since]
            return {
                "revision": current.revision,
                "progress": review_progress(self.audit, current, queue=self.queue).to_dict(),
                "changes": [
                    {
                        "line": self.audit.line_of[sample],
                        "seen": current.last_revision[sample],
                        "decision": self.decision_json(current.get(sample)),
                    }
                    for sample in changed
                    if sample in self.audit.line_of
                ],
            }

    def undoable(self) -> list[tuple[int, int]]:
        """(revision, line) of this reviewer's last decisions, oldest first."""
        with self.decisions.lock:
            own = self.decisions.current.by_reviewer(self.reviewer)
        known = (entry for entry in own if entry.id in self.audit.line_of)
        return [(entry.revision, self.audit.line_of[entry.id]) for entry in known][-MAX_UNDO:]

    def decision_json(self, entry: LogEntry | None) -> dict[str, Any] | None:
        """A decision as the page reads it, with the position of the grade; None for a grade of another audit."""
        if entry is None:
            return None
        grade = self.audit.grades.index(entry.to_grade) if entry.to_grade in self.audit.grades else None
        return {
            "revision": entry.revision,
            "reviewer": entry.reviewer,
            "at": entry.at,
            "action": entry.action,
            "grade": grade,
        }


def create_app(session: ReviewSession | BlindSession, access: AccessRules) -> Starlette:
    """The application behind the security rules. Handlers are plain functions: Starlette runs them in threads."""
    if isinstance(session, BlindSession):
        files, routes = BLIND_FILES, _blind_routes(session)
    else:
        files, routes = REVIEW_FILES, _review_routes(session)

    def page(request: Request) -> Response:
        name = request.path_params.get("name", files[0])
        if name not in files:
            raise HTTPException(404)
        content = (resources.files("srjt.auditing") / "page" / name).read_bytes()
        return Response(content, media_type=MEDIA_TYPES[Path(name).suffix])

    return Starlette(
        routes=[Route("/", page), Route("/page/{name}", page), *routes],
        middleware=[Middleware(SecurityMiddleware, access=access)],
    )


Work = Callable[[dict[str, Any]], "dict[str, Any] | Response"]  # body of a request → the answer


def _post(path: str, work: Work, *, what: str) -> Route:
    """A request with a JSON object. what: is not saved on a full disk, or if another process has locked the log."""

    async def handler(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except (ValueError, RecursionError, ClientDisconnect):  # the last: nobody reads the answer
            body = None
        if not isinstance(body, dict):
            raise HTTPException(400, "The request is not a JSON object.")
        try:
            answer = await run_in_threadpool(work, body)
        except SrjtError as problem:
            return PlainTextResponse(f"{problem} The {what} was not saved.", 503)
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    return Route(path, handler, methods=["POST"])


def _review_routes(session: ReviewSession) -> list[Route]:
    audit, decisions = session.audit, session.decisions

    def samples(request: Request) -> Response:
        return Response(session.samples_json, media_type="application/json")

    def updates(request: Request) -> Response:
        since = parse_number(request.query_params.get("since", "0"))
        if since is None:
            raise HTTPException(400, "since must be a revision.")
        try:
            decisions.refresh()
        except SrjtError as problem:
            raise HTTPException(503, str(problem)) from None
        answer = session.updates(since)
        return JSONResponse(answer if since else {**answer, "undoable": session.undoable()})

    def neighbours(request: Request) -> Response:
        line = _requested_line(request, audit)
        if audit.neighbours is None:
            raise HTTPException(404, "This audit has no similar images.")
        lines = audit.neighbours[line].tolist()
        return JSONResponse([[other for other in of_grade if other >= 0] for of_grade in lines])

    def image(encode: Callable[[AuditFolder, int], EncodedImage]) -> Callable[[Request], Response]:
        def handler(request: Request) -> Response:
            try:
                encoded = encode(audit, _requested_line(request, audit))
            except SrjtError as problem:
                raise HTTPException(404, str(problem)) from None
            return Response(encoded.content, media_type=encoded.media_type)

        return handler

    def problem(request: Request) -> Response:
        return JSONResponse({"problem": image_problem(audit, _requested_line(request, audit))})

    def decide(body: dict[str, Any]) -> dict[str, Any]:
        line, seen, since = (_integer(body, name) for name in ("line", "seen", "since"))
        action = body.get("action")
        if line >= len(audit) or audit.ids[line] != body.get("id"):
            raise HTTPException(410, "The audit has changed since this page was opened: reload it.")
        label = audit.labels[line]
        if action == "set":
            grade = _integer(body, "grade")
            if grade >= len(audit.grades):
                raise HTTPException(400, f"There are {len(audit.grades)} grades.")
        elif action in ("keep", "skip"):
            grade = int(label)
        elif action == "accept":
            grade = int(audit.suggested[line])
            if grade < 0:
                raise HTTPException(400, "No grade is suggested for this image.")
        else:
            raise HTTPException(400, "The action must be set, accept, keep or skip.")
        entry = decisions.decide(
            audit.ids[line],
            reviewer=session.reviewer,
            action=action,
            grade=audit.grades[grade],
            label=audit.grades[label],
            seen=seen,
        )
        return {**session.updates(since), "decided": entry.revision}

    def undo(body: dict[str, Any]) -> dict[str, Any]:
        revision, since = _integer(body, "revision"), _integer(body, "since")
        line = dict(session.undoable()).get(revision)
        if line is None:
            raise ConflictError(None, revision)
        decisions.undo(revision, reviewer=session.reviewer, label=audit.grades[audit.labels[line]])
        return {**session.updates(since), "line": line}

    def unless_decided(work: Work) -> Work:
        def checked(body: dict[str, Any]) -> dict[str, Any] | Response:
            try:
                return work(body)
            except ConflictError as conflict:
                updates = session.updates(_integer(body, "since"))
                return JSONResponse({**updates, "current": session.decision_json(conflict.current)}, 409)

        return checked

    return [
        Route("/image/{line}", image(full_image)),
        Route("/thumb/{line}", image(thumbnail)),
        Route("/map/{line}", image(where_they_look)),
        Route("/api/samples", samples),
        Route("/api/updates", updates),
        Route("/api/neighbours/{line}", neighbours),
        Route("/api/problem/{line}", problem),
        _post("/api/decide", unless_decided(decide), what="decision"),
        _post("/api/undo", unless_decided(undo), what="decision"),
    ]


def grade_keys(grades: Sequence[str]) -> list[str]:
    """The digit key of each grade; "" beyond ten.

    0 is the mildest grade, unless every name contains one digit of its own: then 1 sets "Mayo 1", also on a scale
    that starts at 1.
    """
    numbers = [re.findall(r"\d+", name) for name in grades]
    digits = [found[0] for found in numbers if len(found) == 1 and len(found[0]) == 1]
    if len(digits) == len(grades) == len(set(digits)):
        return digits
    return [str(grade) if grade < 10 else "" for grade in range(len(grades))]


def _requested_line(request: Request, audit: AuditFolder) -> int:
    text = str(request.path_params["line"])
    line = parse_number(text)
    if line is None and text.isdigit():
        raise HTTPException(400, "The number of the line is too long.")
    if line is None or line >= len(audit):
        raise HTTPException(404, f"The audit has {count_of(len(audit), 'line')}.")
    return line


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


# The web application that verifies a random sample, or reads a worklist: images and grades, and nothing
# that shows what a label is.
#
# The page knows an image by its position in the sample. An id may be the name of a folder that is named
# like the grade, a line of the audit is the rank of its doubt, and a file may have the label in its
# metadata: the server sends none.

CANNOT_TELL = -1  # an answer


@dataclass(frozen=True, kw_only=True)
class BlindSession:
    """One reviewer who verifies a sample, or reads a worklist."""

    audit: AuditFolder | ReadersFolder
    decisions: Decisions
    reviewer: str
    lines: Sequence[int]  # the sample, or this reviewer's part of the worklist
    purpose: Literal["verify", "read"] = "verify"

    def answers(self) -> list[int | None]:
        """This reviewer's own answers, by position: a grade, ``CANNOT_TELL``, or None where there is none yet."""
        if self.purpose == "read":
            given = {answer.id: answer.grade for answer in self.decisions.readings(reviewer=self.reviewer)}
        else:
            given = self.decisions.verified(reviewer=self.reviewer)
        code_of: dict[str | None, int] = {name: code for code, name in enumerate(self.audit.grades)}
        code_of[None] = CANNOT_TELL
        ids = (self.audit.ids[line] for line in self.lines)
        return [code_of.get(given[name]) if name in given else None for name in ids]

    def answer(self, position: int, grade: int) -> None:
        name = None if grade == CANNOT_TELL else self.audit.grades[grade]
        record = self.decisions.add_reading if self.purpose == "read" else self.decisions.verify
        record(self.audit.ids[self.lines[position]], reviewer=self.reviewer, grade=name)


def _blind_routes(session: BlindSession) -> list[Route]:
    audit = session.audit

    def sample(request: Request) -> Response:
        try:
            answers = session.answers()
        except SrjtError as problem:
            raise HTTPException(503, str(problem)) from None
        names = audit.grades.shown
        about = {"grades": names, "keys": grade_keys(audit.grades), "purpose": session.purpose}
        return JSONResponse({**about, "answers": answers})

    def image(request: Request) -> Response:
        position = parse_number(request.path_params["position"])
        if position is None or position >= len(session.lines):
            raise HTTPException(404, "There is no such image in the sample.")
        try:
            encoded = pixels_alone(audit, session.lines[position])
        except SrjtError:  # the reason may contain the path, and the path the label
            raise HTTPException(404, "The image cannot be read.") from None
        return Response(encoded.content, media_type=encoded.media_type)

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        position = _integer(body, "position", 0, len(session.lines) - 1)
        grade = _integer(body, "grade", CANNOT_TELL, len(audit.grades) - 1)
        session.answer(position, grade)
        return {"position": position, "grade": grade}

    return [
        Route("/image/{position}", image),
        Route("/api/sample", sample),
        _post("/api/answer", answer, what="answer"),
    ]
