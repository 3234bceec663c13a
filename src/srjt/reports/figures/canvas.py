"""Figures as objects: drawn without a window system, shown inside a page or saved as SVG and PNG files."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from srjt.errors import SrjtError

__all__ = ["GREY", "INK", "PALETTE", "SHADE", "Drawing", "blank", "drawn", "inline_svg", "plain", "save"]

# Okabe and Ito's palette: told apart by colour-blind people. Yellow is left out: too pale for a line on white.
PALETTE = {
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "orange": "#e69f00",
    "sky": "#56b4e9",
}
SHADE = "#0071b1"  # of a cell: the same blue, but a page may want it darker under light text
INK = "#1c1b1a"  # what a page may replace by its own text colour
GREY = "#6f6e6d"  # legible on white and on black

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.facecolor": "none",
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.7,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.parse_math": False,  # a grade may be called "$1"
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and edited
}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure and what has to be said about it. ``name`` is also the stem of its files."""

    name: str
    figure: Figure
    caption: str
    alt: str  # what a reader who cannot see it has to know


@contextmanager
def _style() -> Iterator[None]:
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # names in scripts that the measuring font lacks: a reader's own font will have them
        warnings.filterwarnings("ignore", message="Glyph")
        yield


Draw = TypeVar("Draw", bound=Callable[..., Any])


def drawn(function: Draw) -> Draw:
    """Decorator: everything the function draws is in the house style."""
    return _style()(function)


def blank(width: float, height: float) -> Figure:
    """An empty figure, in inches, with a canvas of its own: no pyplot, no global state."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def plain(text: object, *, longest: int = 40) -> str:
    """Text that came from a file, made fit for a figure: printable and not too long."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in str(text))
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def inline_svg(drawing: Drawing) -> str:
    """An <svg> element for an HTML page, without a background and with colours that the page may set.

    Each known colour becomes a CSS variable with itself as the fallback: a dark page defines --blue and so on.
    """
    text = _svg(drawing, transparent=True)
    text = text[text.index("<svg") :]
    # a rule for "*" would hold for the whole page, and ids and namespaces of metadata serve nobody there
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    for name, colour in (*PALETTE.items(), ("ink", INK), ("grey", GREY), ("shade", SHADE)):
        text = text.replace(colour, f"var(--{name}, {colour})")
    return text.strip().replace("<svg", f'<svg role="img" aria-label="{html.escape(drawing.alt)}"', 1)


def save(drawing: Drawing, folder: Path) -> list[Path]:
    """Write ``name.svg`` and ``name.png`` and return their paths."""
    files = [folder / f"{drawing.name}.svg", folder / f"{drawing.name}.png"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files[0].write_text(_svg(drawing, transparent=False), encoding="utf-8")
        with _style():
            drawing.figure.savefig(files[1], dpi=200, facecolor="white", metadata={"Software": None})
    except OSError as problem:
        raise SrjtError(f"The figures cannot be written to {folder}: {problem.strerror}.") from None
    return files


def _svg(drawing: Drawing, *, transparent: bool) -> str:
    """The same figure gives the same bytes, and no two figures of a page share an id."""
    file = io.StringIO()
    with _style(), mpl.rc_context({"svg.hashsalt": drawing.name}):
        drawing.figure.savefig(
            file,
            format="svg",
            facecolor="none" if transparent else "white",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    # the ids of groups (axes_1, text_3, …) repeat in every figure; nothing refers to them
    return re.sub(r'<g id="[^"]*"', "<g", file.getvalue())
