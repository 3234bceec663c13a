"""A page as one HTML file: it loads nothing, runs only its own script, and escapes all text from files."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from srjt._version import __version__
from srjt.data.images.thumbnails import data_uri
from srjt.errors import SrjtError
from srjt.files import write_atomically, write_output
from srjt.reports.figures.canvas import CaptionedFigure, inline_svg
from srjt.reports.tables.table import Table

if TYPE_CHECKING:
    import jinja2

__all__ = ["Note", "Page", "Section", "Tile", "data_uri", "page_figures", "render", "write_page"]


@dataclass(frozen=True, kw_only=True)
class Note:
    """A note at the top of the page; ``details`` are (summary, verbatim text), closed at first."""

    text: str
    details: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A small picture with its text."""

    picture: str  # a data URI; "" if there is none
    title: str
    number: str = ""
    share: float | None = None  # 0 … 1, drawn as a bar
    detail: str = ""  # a further line
    text: str = ""  # id of the sample
    more: Sequence[str] = ()  # further pictures, shown when the reader opens them
    right: bool = False  # True: shown in grey, because the label is likely to be right


@dataclass(frozen=True, kw_only=True)
class Section:
    """Shown in the order of the fields."""

    slug: str
    heading: str
    text: Sequence[str] = ()  # paragraphs
    code: str = ""
    facts: Sequence[tuple[str, str]] = ()  # term, value
    counts: Sequence[tuple[str, int]] = ()  # grade, samples: a table with bars
    counted: str = "samples"  # what these numbers are of
    hint: str = ""  # not printed
    large_tiles: Sequence[Tile] = ()
    tiles: Sequence[Tile] = ()
    tables: Sequence[Table] = ()
    closed: bool = False  # whether the tables are hidden until the reader opens them
    figures: Sequence[CaptionedFigure] = ()
    parts: Sequence[Section] = ()  # subsections


@dataclass(frozen=True, kw_only=True)
class Page:
    kind: str  # above the title: "Study", "Run"
    title: str
    lead: str
    links: Sequence[tuple[str, str]] = ()  # text, file beside the page
    notes: Sequence[Note] = ()
    sections: Sequence[Section] = field(default_factory=tuple)
    refresh: int = 0  # seconds after which a browser loads the page again; 0: never


def page_figures(page: Page) -> list[CaptionedFigure]:
    """All figures of a page."""
    sections = [part for section in page.sections for part in (section, *section.parts)]
    return [figure for section in sections for figure in section.figures]


def render(page: Page) -> str:
    """The HTML of a page."""
    from markupsafe import Markup

    style, script = _asset("page.css"), _asset("page.js")
    # the policy names the page's script by its hash; a browser runs no other
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(
        page=page,
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        version=__version__,
        svg=lambda captioned: Markup(inline_svg(captioned)),
        size=_size,
    )


def write_page(page: Page, path: Path, *, follow_links: bool = True) -> None:
    """Write the page to an HTML file. follow_links: as in ``write_atomically``."""
    content = render(page).encode("utf-8", "replace")  # file names may be invalid text
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if follow_links:
            write_output(path, content)
        else:
            write_atomically(path, content, follow_links=False)
    except OSError as problem:
        raise SrjtError(f"The report cannot be written to {path}: {problem.strerror}.") from None


def _size(captioned: CaptionedFigure) -> str:
    """The CSS class for the width of a figure."""
    width = captioned.figure.get_figwidth()
    return "wide" if width > 6 else "small" if width < 4.5 else "usual"


@cache  # a live page is written after every epoch
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_asset("page.html"))


@cache
def _asset(name: str) -> str:
    return (resources.files("srjt.reports.pages") / "assets" / name).read_text(encoding="utf-8")
