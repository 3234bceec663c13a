"""The web application that verifies a random sample, or reads a worklist: images and grades, and nothing that shows
what a label is.

The page knows an image by its position in the sample. An id may be the name of a folder that is named like the grade,
a line of the audit is the rank of its doubt, and a file may have the label in its metadata: the server sends none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from srjt.auditing.folder import AuditFolder
from srjt.data.grade_names import display_grade
from srjt.data.readers_folder import ReadersFolder
from srjt.errors import SrjtError
from srjt.review.app import grade_keys
from srjt.review.decisions import Decisions
from srjt.review.images import pixels_alone
from srjt.review.security import AccessRules, SecurityMiddleware, parse_number

__all__ = ["CANNOT_TELL", "BlindSession", "create_blind_app"]

PAGE_FILES = {
    "sample.html": "text/html",
    "review.css": "text/css",
    "icon.svg": "image/svg+xml",
    "sample.js": "text/javascript",
    "grade_name.js": "text/javascript",
    "image_cache.js": "text/javascript",
    "api.js": "text/javascript",
    "zoom.js": "text/javascript",
}
CANNOT_TELL = -1  # an answer


@dataclass(frozen=True, kw_only=True)
class BlindSession:
    """One reviewer who verifies a sample, or reads a worklist."""

    audit: AuditFolder | ReadersFolder
    decisions: Decisions
    reviewer: str
    lines: Sequence[int]  # the sample, or this reviewer's part of the worklist
    purpose: Literal["verify", "read"] = "verify"
    grade_names: Mapping[str, str] = field(default_factory=dict)  # for people; empty: none

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


def create_blind_app(session: BlindSession, access: AccessRules) -> Starlette:
    """The application behind the same security rules as the review's."""
    audit = session.audit

    def page(request: Request) -> Response:
        name = request.path_params.get("name", "sample.html")
        if name not in PAGE_FILES:
            raise HTTPException(404)
        content = (resources.files("srjt.review") / "page" / name).read_bytes()
        return Response(content, media_type=PAGE_FILES[name])

    def sample(request: Request) -> Response:
        try:
            answers = session.answers()
        except SrjtError as problem:
            raise HTTPException(503, str(problem)) from None
        names = [display_grade(grade, session.grade_names) for grade in audit.grades]
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

    async def answer(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except (ValueError, RecursionError, ClientDisconnect):  # the last: nobody reads the answer
            body = None
        position = _integer(body, "position", 0, len(session.lines) - 1)
        grade = _integer(body, "grade", CANNOT_TELL, len(audit.grades) - 1)
        try:
            await run_in_threadpool(session.answer, position, grade)
        except SrjtError as problem:  # a full disk, or a log that another process has locked
            return PlainTextResponse(f"{problem} The answer was not saved.", 503)
        return JSONResponse({"position": position, "grade": grade})

    return Starlette(
        routes=[
            Route("/", page),
            Route("/page/{name}", page),
            Route("/image/{position}", image),
            Route("/api/sample", sample),
            Route("/api/answer", answer, methods=["POST"]),
        ],
        middleware=[Middleware(SecurityMiddleware, access=access)],
    )


def _integer(body: Any, name: str, low: int, high: int) -> int:
    value = body.get(name) if isinstance(body, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise HTTPException(400, f"{name} must be a whole number from {low} to {high}.")
    return value
