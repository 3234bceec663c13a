"""The web application of the review: the page, the images, the decisions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from srjt.auditing.folder import AuditFolder
from srjt.data.grade_names import display_grade
from srjt.errors import SrjtError, count_of
from srjt.review.decisions import ConflictError, Decisions, LogEntry
from srjt.review.images import EncodedImage, full_image, image_problem, thumbnail, where_they_look
from srjt.review.progress import review_progress
from srjt.review.security import AccessRules, SecurityMiddleware, parse_number

__all__ = ["ReviewSession", "create_app", "grade_keys"]

PAGE_FILES = {
    "index.html": "text/html",
    "review.css": "text/css",
    "icon.svg": "image/svg+xml",
    "review.js": "text/javascript",
    "audit.js": "text/javascript",
    "grade_name.js": "text/javascript",
    "image_cache.js": "text/javascript",
    "api.js": "text/javascript",
    "zoom.js": "text/javascript",
}
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
        return _json(
            {
                "reviewer": self.reviewer,
                "folder": str(audit.folder),
                "queue": self.queue,
                "notice": audit.notice,
                "judged": audit.judged,
                "trusted": audit.trusted,
                "grades": audit.grades,
                "names": [display_grade(grade, audit.grade_names) for grade in audit.grades]
                if audit.grade_names
                else None,
                "keys": grade_keys(audit.grades),
                "ids": audit.ids,
                "labels": audit.labels.tolist(),
                "suggested": audit.suggested.tolist(),
                "quality": np.round(audit.quality, 4).tolist(),
                "probabilities": np.round(10_000 * audit.probabilities).astype(int).ravel().tolist(),
                "network_grades": [grades.tolist() for grades in audit.network_grades],
                "selected": [None if share != share else share for share in np.round(audit.selected, 3)],
                "patients": _name_codes(audit.patients),
                "readers": _name_codes(audit.readers),
                "has_neighbours": audit.neighbours is not None,
                "twins": None if audit.twins is None else audit.twins.tolist(),
            }
        )

    def updates(self, since: int) -> dict[str, Any]:
        """What has changed after revision ``since`` of the log."""
        current = self.decisions.current
        with self.decisions.lock:
            changed = [sample for sample, revision in current.last_revision.items() if revision > since]
            return {
                "revision": current.revision,
                "progress": review_progress(self.audit, current, queue=self.queue).to_dict(),
                "changes": [self._change(sample) for sample in changed if sample in self.audit.line_of],
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

    def _change(self, sample: str) -> dict[str, Any]:
        current = self.decisions.current
        return {
            "line": self.audit.line_of[sample],
            "seen": current.last_revision[sample],
            "decision": self.decision_json(current.get(sample)),
        }


def create_app(session: ReviewSession, access: AccessRules) -> Starlette:
    """The application behind the security rules. Handlers are plain functions: Starlette runs them in threads."""
    audit, decisions = session.audit, session.decisions

    def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in PAGE_FILES:
            raise HTTPException(404)
        content = (resources.files("srjt.review") / "page" / name).read_bytes()
        return Response(content, media_type=PAGE_FILES[name])

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

    def post(work: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
        async def handler(request: Request) -> Response:
            try:
                body = json.loads(await request.body())
            except (ValueError, RecursionError, ClientDisconnect):  # the last: nobody reads the answer
                body = None
            if not isinstance(body, dict):
                raise HTTPException(400, "The request is not a JSON object.")
            try:
                return JSONResponse(await run_in_threadpool(work, body))
            except ConflictError as conflict:
                updates = session.updates(_integer(body, "since"))
                return JSONResponse({**updates, "current": session.decision_json(conflict.current)}, 409)
            except SrjtError as problem:  # a full disk, or a log that another process has locked
                return PlainTextResponse(f"{problem} The decision was not saved.", 503)

        return handler

    return Starlette(
        routes=[
            Route("/", page),
            Route("/page/{name}", page),
            Route("/image/{line}", image(full_image)),
            Route("/thumb/{line}", image(thumbnail)),
            Route("/map/{line}", image(where_they_look)),
            Route("/api/samples", samples),
            Route("/api/updates", updates),
            Route("/api/neighbours/{line}", neighbours),
            Route("/api/problem/{line}", problem),
            Route("/api/decide", post(decide), methods=["POST"]),
            Route("/api/undo", post(undo), methods=["POST"]),
        ],
        middleware=[Middleware(SecurityMiddleware, access=access)],
    )


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


def _integer(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise HTTPException(400, f"{name} must be a non-negative integer.")
    return value


def _name_codes(values: list[str] | None) -> dict[str, Any] | None:
    """Each name once, and the position of every sample's name among them."""
    if values is None:
        return None
    names: dict[str, int] = {}
    codes = [names.setdefault(value.strip() or "(not given)", len(names)) for value in values]
    return {"names": list(names), "codes": codes}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_to_python).encode()


def _to_python(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
