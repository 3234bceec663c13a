"""A report as one HTML file: nothing is fetched, nothing but its own script runs, everything given is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from srjt._version import __version__
from srjt.errors import SrjtError
from srjt.reports.figures.canvas import Drawing, inline_svg
from srjt.reports.tables.table import Table

__all__ = ["Note", "Page", "Section", "Tile", "drawings", "render", "write_page"]


@dataclass(frozen=True, kw_only=True)
class Note:
    """Something to know before reading on; ``details`` are (summary, verbatim text), closed at first."""

    text: str
    details: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A small picture with what is said of it."""

    picture: str  # a data URI; "" where there is none
    title: str
    number: str
    share: float  # 0 … 1, drawn as a bar
    text: str  # which sample it is
    right: bool = False  # drawn quietly: nothing is in doubt


@dataclass(frozen=True, kw_only=True)
class Section:
    """Shown in the order of the fields."""

    slug: str
    heading: str
    text: Sequence[str] = ()  # paragraphs
    code: str = ""
    facts: Sequence[tuple[str, str]] = ()  # term, what it is
    counts: Sequence[tuple[str, int]] = ()  # grade, images: a table with bars
    hint: str = ""  # for the screen, not for paper
    tiles: Sequence[Tile] = ()
    tables: Sequence[Table] = ()
    closed: bool = False  # whether the tables are folded away at first
    drawings: Sequence[Drawing] = ()
    parts: Sequence[Section] = ()  # one level further down


@dataclass(frozen=True, kw_only=True)
class Page:
    kind: str  # above the title: "Study", "Run"
    title: str
    lead: str
    notes: Sequence[Note] = ()
    sections: Sequence[Section] = field(default_factory=tuple)


def drawings(page: Page) -> list[Drawing]:
    """All figures of a page."""
    found: list[Drawing] = []
    for section in page.sections:
        for part in (section, *section.parts):
            found += part.drawings
    return found


def render(page: Page) -> str:
    """The whole file."""
    import jinja2
    from markupsafe import Markup

    style, script = _asset("page.css"), _asset("page.js")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # the one script of the page is known by its hash: another one, however it came there, is not run
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.from_string(_asset("page.html")).render(
        page=page,
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        version=__version__,
        svg=lambda drawing: Markup(inline_svg(drawing)),
        size=_size,
    )


def write_page(page: Page, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # a file name need not be valid text
        path.write_bytes(render(page).encode("utf-8", "replace"))
    except OSError as problem:
        raise SrjtError(f"The report cannot be written to {path}: {problem.strerror}.") from None


def _size(drawing: Drawing) -> str:
    """How much room a figure needs on the page."""
    width = drawing.figure.get_figwidth()
    return "wide" if width > 6 else "small" if width < 4.5 else "usual"


def _asset(name: str) -> str:
    return (resources.files("srjt.reports.pages") / "assets" / name).read_text(encoding="utf-8")
