"""The review's server: the page, the images, the decisions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from srjt.errors import SrjtError
from srjt.review import images
from srjt.review.audit_folder import AuditFolder, grade_keys
from srjt.review.decisions import ConflictError, Decisions, LogEntry
from srjt.review.progress import measure
from srjt.review.security import Door, Guard

__all__ = ["Desk", "create_app"]

PAGE = {
    "index.html": "text/html",
    "review.css": "text/css",
    "icon.svg": "image/svg+xml",
    "review.js": "text/javascript",
    "audit.js": "text/javascript",
    "pictures.js": "text/javascript",
    "server.js": "text/javascript",
    "zoom.js": "text/javascript",
}
UNDOABLE = 200  # steps that the page may take back


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What one reviewer works on."""

    audit: AuditFolder
    decisions: Decisions
    reviewer: str
    queue: int  # this many of the most doubtful labels are to be looked at

    @cached_property
    def columns(self) -> bytes:
        """All that the page shows of the samples, column by column: 100,000 of them are a few megabytes."""
        audit = self.audit
        return _json(
            {
                "reviewer": self.reviewer,
                "alone": self.decisions.present.only is not None,
                "folder": str(audit.folder),
                "queue": self.queue,
                "grades": audit.grades,
                "keys": grade_keys(audit.grades),
                "ids": audit.ids,
                "labels": audit.labels.tolist(),
                "suggested": audit.suggested.tolist(),
                "quality": np.round(audit.quality, 4).tolist(),
                "probabilities": np.round(1000 * audit.probabilities).astype(int).ravel().tolist(),
                "votes": [vote.tolist() for vote in audit.votes],
                "selected": [None if share != share else share for share in np.round(audit.selected, 3)],
                "patients": _shared(audit.patients),
                "readers": _shared(audit.readers),
                "comparable": audit.neighbours is not None,
            }
        )

    def news(self, since: int) -> dict[str, Any]:
        """What the page does not know yet when it knows the log up to ``since``."""
        present = self.decisions.present
        with self.decisions.lock:
            touched = [sample for sample, revision in present.touched.items() if revision > since]
            return {
                "revision": present.revision,
                "progress": measure(self.audit, present, queue=self.queue).to_dict(),
                "marks": [self._mark(sample) for sample in touched if sample in self.audit.line_of],
            }

    def undoable(self) -> list[tuple[int, int]]:
        """(revision, line) of this reviewer's last decisions, oldest first."""
        with self.decisions.lock:
            mine = self.decisions.present.by(self.reviewer)
        known = (entry for entry in mine if entry.id in self.audit.line_of)
        return [(entry.revision, self.audit.line_of[entry.id]) for entry in known][-UNDOABLE:]

    def told(self, entry: LogEntry | None) -> dict[str, Any] | None:
        """A decision as the page reads it, grades by their place."""
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

    def _mark(self, sample: str) -> dict[str, Any]:
        present = self.decisions.present
        return {
            "line": self.audit.line_of[sample],
            "seen": present.touched[sample],
            "decision": self.told(present.of(sample)),
        }


def create_app(desk: Desk, door: Door) -> Starlette:
    """Everything behind the door. Plain functions, so that they run in threads and may wait for the disk."""
    audit, decisions = desk.audit, desk.decisions

    def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in PAGE:
            raise HTTPException(404)
        content = (resources.files("srjt.review") / "page" / name).read_bytes()
        return Response(content, media_type=PAGE[name])

    def columns(request: Request) -> Response:
        return Response(desk.columns, media_type="application/json")

    def news(request: Request) -> Response:
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdigit()):
            raise HTTPException(400, "since must be a revision.")
        decisions.catch_up()
        answer = desk.news(int(since))
        return JSONResponse(answer if since != "0" else {**answer, "undoable": desk.undoable()})

    def neighbours(request: Request) -> Response:
        line = _line(request, audit)
        if audit.neighbours is None:
            raise HTTPException(404, "This audit has no neighbours.")
        rows = audit.neighbours[line].tolist()
        return JSONResponse([[other for other in row if other >= 0] for row in rows])

    def picture(show: Callable[[AuditFolder, int], images.Picture]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                shown = show(audit, _line(request, audit))
            except SrjtError as problem:
                raise HTTPException(404, str(problem)) from None
            return Response(shown.content, media_type=shown.media_type)

        return answer

    def problem(request: Request) -> Response:
        return JSONResponse({"problem": images.problem(audit, _line(request, audit))})

    def decide(given: dict[str, Any]) -> dict[str, Any]:
        line, seen, since = _whole(given, "line"), _whole(given, "seen"), _whole(given, "since")
        action = given.get("action")
        if line >= len(audit) or audit.ids[line] != given.get("id"):
            raise HTTPException(410, "The audit has changed since this page was opened: reload it.")
        label = audit.labels[line]
        if action == "set":
            grade = _whole(given, "grade")
            if grade >= len(audit.grades):
                raise HTTPException(400, f"There are {len(audit.grades)} grades.")
        elif action in ("keep", "skip"):
            grade = int(label)
        elif action == "accept":
            grade = int(audit.suggested[line])
        else:
            raise HTTPException(400, "An action is set, accept, keep or skip.")
        made = decisions.decide(
            audit.ids[line],
            reviewer=desk.reviewer,
            action=action,
            grade=audit.grades[grade],
            label=audit.grades[label],
            seen=seen,
        )
        return {**desk.news(since), "decided": made.revision}

    def undo(given: dict[str, Any]) -> dict[str, Any]:
        revision, since = _whole(given, "revision"), _whole(given, "since")
        line = dict(desk.undoable()).get(revision)
        if line is None:
            raise ConflictError(None, revision)
        decisions.undo(revision, reviewer=desk.reviewer, label=audit.grades[audit.labels[line]])
        return {**desk.news(since), "line": line}

    def writing(work: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
        async def answer(request: Request) -> Response:
            try:
                given = json.loads(await request.body())
            except (ValueError, RecursionError):
                given = None
            if not isinstance(given, dict):
                raise HTTPException(400, "This is not a JSON object.")
            try:
                return JSONResponse(await run_in_threadpool(work, given))
            except ConflictError as conflict:
                news = desk.news(_whole(given, "since"))
                return JSONResponse({**news, "present": desk.told(conflict.present)}, 409)
            except SrjtError as failure:  # a full disk, a log that another process holds
                return PlainTextResponse(f"{failure} Nothing was decided.", 503)

        return answer

    return Starlette(
        routes=[
            Route("/", page),
            Route("/page/{name}", page),
            Route("/image/{line:int}", picture(images.full)),
            Route("/thumb/{line:int}", picture(images.thumbnail)),
            Route("/api/audit", columns),
            Route("/api/news", news),
            Route("/api/neighbours/{line:int}", neighbours),
            Route("/api/problem/{line:int}", problem),
            Route("/api/decide", writing(decide), methods=["POST"]),
            Route("/api/undo", writing(undo), methods=["POST"]),
        ],
        middleware=[Middleware(Guard, door=door)],
    )


def _line(request: Request, audit: AuditFolder) -> int:
    line = int(request.path_params["line"])
    if line >= len(audit):
        raise HTTPException(404, f"The audit has {len(audit)} lines.")
    return line


def _whole(given: dict[str, Any], name: str) -> int:
    value = given.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise HTTPException(400, f"{name} must be a whole number.")
    return value


def _shared(values: list[str] | None) -> dict[str, Any] | None:
    """Names once, and for each sample which of them."""
    if values is None:
        return None
    names: dict[str, int] = {}
    places = [names.setdefault(value.strip() or "(not given)", len(names)) for value in values]
    return {"names": list(names), "of": places}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")
