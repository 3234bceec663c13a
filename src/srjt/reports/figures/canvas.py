"""Figures in one style, with captions, as SVG inside a page or as SVG and PNG files; no window system is needed."""

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
from srjt.files import write_atomically

__all__ = [
    "GREY",
    "INK",
    "PALETTE",
    "SHADE",
    "CaptionedFigure",
    "figure_bytes",
    "house_style",
    "inline_svg",
    "new_figure",
    "printable",
    "save_figure",
]

# Okabe and Ito's palette, which colour-blind people can distinguish; without yellow, too pale for a line on white.
PALETTE = {
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "orange": "#e69f00",
    "sky": "#56b4e9",
}
SHADE = "#0071b1"  # of a matrix cell: nearly the same blue, separate so that a dark page can change it alone
INK = "#1c1b1a"  # a page can replace it by its text colour
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
    "text.parse_math": False,  # the name of a grade may contain "$"
    "svg.fonttype": "none",  # text remains text, which can be searched, read aloud and edited
}


@dataclass(frozen=True, kw_only=True)
class CaptionedFigure:
    """A figure with its caption. ``name`` is also the stem of its files."""

    name: str
    figure: Figure
    caption: str
    alt: str  # a description for readers who cannot see it


@contextmanager
def _style() -> Iterator[None]:
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # characters that the font for measuring lacks; the reader's font will have them
        warnings.filterwarnings("ignore", message="Glyph")
        yield


Draw = TypeVar("Draw", bound=Callable[..., Any])


def house_style(function: Draw) -> Draw:
    """Decorator: the function draws in the style of all figures."""
    return _style()(function)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, with its own canvas: no pyplot, no global state."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def printable(text: object, *, longest: int = 40) -> str:
    """Text from a file, made printable and shortened for a figure."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in str(text))
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def inline_svg(captioned: CaptionedFigure) -> str:
    """An <svg> element for an HTML page, without a background and with colours that the page can change.

    Each colour becomes a CSS variable (--blue, …) with the colour as its default, which a dark page overrides.
    """
    text = _svg(captioned, transparent=True)
    text = text[text.index("<svg") :]
    # the style has a rule for "*", which would apply to the whole page; the metadata is not needed
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    for name, colour in (*PALETTE.items(), ("ink", INK), ("grey", GREY), ("shade", SHADE)):
        text = text.replace(colour, f"var(--{name}, {colour})")
    return text.strip().replace("<svg", f'<svg role="img" aria-label="{html.escape(captioned.alt)}"', 1)


def save_figure(captioned: CaptionedFigure, folder: Path) -> list[Path]:
    """Write ``name.svg`` and ``name.png`` and return their paths."""
    files = [folder / f"{captioned.name}.{kind}" for kind in ("svg", "png")]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            write_atomically(file, figure_bytes(captioned, file.suffix[1:]), follow_links=False)
    except OSError as problem:
        raise SrjtError(f"The figures cannot be written to {folder}: {problem.strerror}.") from None
    return files


def figure_bytes(captioned: CaptionedFigure, kind: str) -> bytes:
    """The figure as an SVG or PNG file, on white."""
    if kind == "svg":
        return _svg(captioned, transparent=False).encode()
    png = io.BytesIO()
    with _style():
        captioned.figure.savefig(png, format="png", dpi=200, facecolor="white", metadata={"Software": None})
    return png.getvalue()


def _svg(captioned: CaptionedFigure, *, transparent: bool) -> str:
    """The same bytes for the same figure, and no id that occurs in two figures of a page."""
    file = io.StringIO()
    with _style(), mpl.rc_context({"svg.hashsalt": captioned.name}):
        captioned.figure.savefig(
            file,
            format="svg",
            facecolor="none" if transparent else "white",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    # the ids of groups (axes_1, text_3, …) repeat in every figure; nothing refers to them
    return re.sub(r'<g id="[^"]*"', "<g", file.getvalue())
