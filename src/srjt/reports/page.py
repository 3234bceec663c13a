"""A page: a verdict, key numbers, sections and notes; and its text as HTML, for a terminal, a
notebook or Markdown.

The HTML is one file: it loads nothing, runs only its own script, and escapes all text from files.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cache, partial, singledispatch
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srjt._version import __version__
from srjt.errors import SrjtError
from srjt.files import explain_write_errors, write_output
from srjt.ordinal.intervals import Interval
from srjt.reports.figures.canvas import CaptionedFigure, inline_svg, save_figure
from srjt.reports.table import MISSING, Table, TableCell, between, escape_markdown

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup
    from rich.console import RenderableType

WIDTH = 80  # columns of a page as text
REMARKS = 1  # that a terminal shows: 24 lines are a screen
TILES = 12  # of a section that a notebook shows, unless a page says otherwise


@dataclass(frozen=True)
class KeyNumber:
    """One of the few numbers that a reader looks for first."""

    label: str
    value: str
    interval: str = ""  # "0.31 – 0.53"
    compared: str = ""  # what to compare it with: "one grade for all: 0.67"

    @classmethod
    def of(
        cls, label: str, number: Interval, pattern: str = ".3f", *, compared: str = ""
    ) -> KeyNumber:
        """A number with its interval, each as far as it is defined."""
        value = MISSING
        if math.isfinite(number.value):
            value = f"{number.value:{pattern}}".replace("-", "−")
        interval = ""
        if number.high - number.low >= 1e-9:  # else no draw of a bootstrap differs
            interval = between(number.low, number.high, pattern)
        return cls(label, value, interval, compared)


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A small picture with its text."""

    picture: str  # a data URI; "" if there is none
    title: str
    number: str = ""
    share: float | None = None  # 0 … 1, drawn as a bar
    detail: str = ""  # a further line
    text: str = ""  # id of the sample
    # name → value, by which a long gallery can be filtered and sorted; names in small letters
    keys: Mapping[str, str] = field(default_factory=dict)
    # (picture, title) of others, side by side with the first
    beside: Sequence[tuple[str, str]] = ()
    # (picture, title) of training images, which the reader can open
    similar: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Section:
    """Shown in the order of the fields."""

    slug: str
    heading: str
    _: KW_ONLY
    text: Sequence[str] = ()  # paragraphs
    code: str = ""
    facts: Sequence[tuple[str, str]] = ()  # term, value
    links: Sequence[tuple[str, str]] = ()  # text, and the address of a page beside this one
    tiles: Sequence[Tile] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[CaptionedFigure] = ()
    parts: Sequence[Section] = ()  # subsections
    closed: bool = False  # whether all but the heading is hidden until the reader opens it
    brief: bool = False  # whether a terminal and a notebook show it too


@dataclass(frozen=True, kw_only=True, repr=False)
class Page:
    """The report of a result. Print it, let a notebook show it, or ``save`` it as an HTML file."""

    kind: str  # above the title: "Study", "Run"
    title: str  # what was found, in a few words
    lead: str  # the next important fact, a sentence or two
    key_numbers: Sequence[KeyNumber] = ()
    figure: CaptionedFigure | None = None  # the one that matters, on the first screen
    figure_table: Table | None = None  # its numbers: what a terminal shows instead
    warnings: Sequence[str] = ()  # shown at the top
    # below the warnings: summary, and a text that the reader can open
    details: Sequence[tuple[str, str]] = ()
    remarks: Sequence[str] = ()  # folded away at the end
    sections: Sequence[Section] = ()
    # 0 … 1, of something that is still running: a browser loads the page again
    progress: float | None = None
    without_ids: bool = False  # whether ids, patients and paths were left out
    has_ids_option: bool = True  # whether the command that wrote it has --without-ids
    tiles: int = TILES  # of a section that a notebook shows

    @property
    def has_links(self) -> bool:
        """Whether it leads to files beside it."""
        return any(section.links for section in self.sections)

    @property
    def verdict(self) -> str:
        """Title and lead as sentences."""
        return f"{self.title}. {self.lead}".strip()

    def save(self, path: str | Path, *, figures: str | Path | None = None) -> list[Path]:
        """Write the page to an HTML file, and every figure as SVG and PNG to the folder
        ``figures``."""
        write_page(self, Path(path))
        return [Path(path), *save_figures(self, figures)]

    def __repr__(self) -> str:
        return page_text(self)

    def _repr_html_(self) -> str:
        return notebook_html(self)


# Leave out what names people or places, before a page is sent.

NAMING = {  # columns
    "id",
    "image",
    "highest_image",
    "patient",
    "sample",
    "reader",
    "reviewer",
    "images",
    "path",
    "file",
}
LEFT_OUT = "(left out)"
_PATH = re.compile(r"(?:hf:/|[A-Za-z]:\\|~|\.{1,2})?(?:[/\\][^\s/\\'\",;:()<>|]+)+[/\\]?")
_WORD = re.compile(r"[^\s,;()'\"]+")


def leave_out_ids(page: Page, names: Iterable[str] = ()) -> Page:
    """The page without ids, patients and paths.

    Pictures and numbers stay. names: of samples and patients, which are left out of sentences too;
    names of one or two letters are left alone there, because they are numbers and words as well.
    """
    known = {name for name in names if len(name) > 2}

    def clean_word(word: re.Match[str]) -> str:
        if word[0].rstrip(".:") in known:
            return LEFT_OUT
        return word[0]

    def clean(text: str) -> str:
        if text.startswith("data:"):  # a picture
            return text
        return _WORD.sub(clean_word, _PATH.sub(LEFT_OUT, text))

    def clean_table(table: Table) -> Table:
        rows = []
        for number, row in enumerate(table.rows, start=1):
            cells = []
            for column, cell in zip(table.columns, walk(row.cells), strict=True):
                names = column.name.casefold() in NAMING
                if names and cell.text not in ("", MISSING, "all"):
                    cell = replace(cell, text=f"{column.name} {number}")
                cells.append(cell)
            rows.append(replace(row, cells=tuple(cells)))
        return replace(
            table, title=clean(table.title), caption=clean(table.caption), rows=tuple(rows)
        )

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, Table):
            return clean_table(value)
        if isinstance(value, Tile):
            others: dict[str, Any] = {}
            for name in ("beside", "similar"):
                others[name] = [(one, "") for one, _ in getattr(value, name)]
            others["keys"] = {name: key for name, key in value.keys.items() if name not in NAMING}
            return replace(
                value, title=clean(value.title), detail=clean(value.detail), text="", **others
            )
        if isinstance(value, (Page, Section, TableCell)):
            cleaned = {}
            for part in fields(value):
                if part.init:
                    cleaned[part.name] = walk(getattr(value, part.name))
            return replace(value, **cleaned)
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(walk(part) for part in value)
        return value

    without: Page = walk(page)
    return replace(without, without_ids=True)


@singledispatch
def page_of(result: object) -> Page:
    """The page of a result: ``srjt.report(result)``. A new kind of result registers the function
    that makes its page."""
    raise SrjtError(
        f"There is no page of a {type(result).__name__}. srjt.report takes a result of srjt, or the"
        " folder of a study, a run or an audit.",
        code="wrong_type",
    )


def page_figures(page: Page) -> list[CaptionedFigure]:
    """All figures of a page."""
    figures = [*filter(None, [page.figure])]
    for section in page.sections:
        for part in (section, *section.parts):
            figures += part.figures
    return figures


def save_figures(page: Page, folder: str | Path | None) -> list[Path]:
    """Write every figure of a page as SVG and PNG; None: none of them."""
    files: list[Path] = []
    if folder is not None:
        for figure in page_figures(page):
            files += save_figure(figure, Path(folder))
    return files


# HTML: a whole file, or the part of it that a notebook shows.


def render(page: Page) -> str:
    """The HTML of a page."""
    from markupsafe import Markup

    script = _asset("page.js")
    # the policy names the page's script by its hash; a browser runs no other
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src"
        " data:; base-uri 'none'; form-action 'none'"
    )
    style = Markup(_asset("colours.css") + _asset("page.css"))
    template = templates().get_template("page.html")
    return template.render(
        page=page, policy=policy, style=style, script=Markup(script), version=__version__
    )


def notebook_html(page: Page) -> str:
    """Verdict, key numbers, figure, warnings and the brief sections, in the colours of the
    notebook."""
    parts: Any = templates().get_template("parts.html").module
    shown = str(parts.first(page))
    for section in page.sections:
        if not section.brief:
            continue
        text = list(section.text)
        more = len(section.tiles) - page.tiles
        if more > 0:
            text.append(f"The whole page has {more:,} more.")
        shown += str(parts.whole(replace(section, text=text, tiles=section.tiles[: page.tiles])))
    # nested rules apply inside this element only; a notebook's theme need not be that of the system
    return f'<style>.srjt {{ {_asset("page.css")} }}</style><div class="srjt">{shown}</div>'


def write_page(
    page: Page, path: Path, *, write: Callable[[Path, bytes], None] = write_output
) -> None:
    """Write the page to an HTML file. write: ``write_atomically`` for a file in a folder of
    ours."""
    content = render(page).encode("utf-8", "replace")  # file names may be invalid text
    with explain_write_errors(f"{path} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, content)


@cache  # a live page is written after every epoch
def templates() -> jinja2.Environment:
    """The files of ``pages/assets``, as templates."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_asset),
    )
    environment.globals["svg"] = lambda captioned: Markup(inline_svg(captioned))
    environment.filters["breakable"] = breakable
    environment.filters["whole_options"] = whole_options
    environment.filters["with_command"] = with_command
    return environment


# after eight digits of a hash, and after a point, slash or underscore in a name
_BREAKS = re.compile(r"[0-9a-f]{8}(?=[0-9a-f]{8})|[/._](?=[A-Za-z])")


def breakable(text: str) -> Markup:
    """The text as HTML in which a browser may break hashes, paths and names of files, where no
    style sheet can say so. Nothing is added to what a reader copies."""
    from markupsafe import Markup, escape

    return Markup(_BREAKS.sub(r"\g<0><wbr>", str(escape(text))))


def whole_options(text: str) -> Markup:
    """A text as HTML whose options no browser breaks: they break after a hyphen."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(?<![^\s(])--[\w-]+", r"<span>\g<0></span>", str(escape(text))))


# at the end of a paragraph after a colon, or in brackets
_COMMAND = re.compile(
    r"((?<=: )srjt [a-z]+ (?:(?!\. ).)+?(?=\.?$)|(?<=\()srjt [a-z]+ --[^()]+(?=\)))"
)


def with_command(paragraph: str) -> Markup:
    """A paragraph as HTML in which a command looks like one."""
    from markupsafe import Markup

    parts = [whole_options(part) for part in _COMMAND.split(paragraph)]
    parts[1::2] = [Markup("<code>{}</code>").format(command) for command in parts[1::2]]
    return Markup().join(parts)


@cache
def _asset(name: str) -> str:
    return (resources.files("srjt.reports.pages") / "assets" / name).read_text(encoding="utf-8")


# A terminal: the verdict, the key numbers, one table, the first notes.


def terminal(page: Page) -> Iterator[RenderableType]:
    """What a terminal shows, in order: ``Text`` for a sentence, and tables. A warning is yellow."""
    from rich.table import Table as RichTable
    from rich.text import Text

    yield Text(page.verdict)
    if page.key_numbers:
        numbers = RichTable(box=None, show_header=False, padding=(0, 2, 0, 0))
        numbers.add_column()
        numbers.add_column(justify="right", style="bold", no_wrap=True)
        for number in page.key_numbers:
            numbers.add_row(number.label, number.value, number.interval, number.compared)
        yield numbers
    if page.figure_table is not None:
        yield page.figure_table.rich()
    for section in page.sections:
        if section.brief:
            yield from map(Table.rich, section.tables)
            yield from map(Text, section.text)
    yield from map(partial(Text, style="yellow"), page.warnings)
    yield from map(partial(Text, style="dim"), page.remarks[:REMARKS])


def page_text(page: Page) -> str:
    """The page as a terminal of 80 columns shows it, without colours."""
    from rich.text import Text

    from srjt.console import Console

    console = Console(
        width=WIDTH, file=io.StringIO(), markup=False, highlight=False, color_system=None
    )
    for part in terminal(page):
        if isinstance(part, Text):  # broken at spaces only: a path stays in one piece
            part = textwrap.fill(part.plain, WIDTH, break_long_words=False, break_on_hyphens=False)
        console.print(part, soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


# Markdown, for a model card or a checklist.


def markdown(page: Page) -> str:
    """Title, lead, texts and tables as Markdown. Section headings are of the second level."""
    parts = [f"# {escape_markdown(page.title)}", escape_markdown(page.lead)]
    for section in page.sections:
        parts.append(f"## {escape_markdown(section.heading)}")
        parts += map(escape_markdown, section.text)
        for table in section.tables:
            parts.append(table.markdown().rstrip())
    return "\n\n".join(filter(None, parts)) + "\n"
