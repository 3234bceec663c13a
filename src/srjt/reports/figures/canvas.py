"""Figures as inline SVG: the canvas, the style of each method, curves, and matrices."""

from __future__ import annotations

import html
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from srjt.files import explain_write_errors, write_atomically
from srjt.ordinal.intervals import Interval
from srjt.studies.results import OURS, is_ours, is_recipe

# Okabe and Ito's palette, which colour-blind people can distinguish; without yellow, too pale for a
# line on white.
PALETTE = {
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "orange": "#e69f00",
    "sky": "#56b4e9",
}
# of a matrix cell: nearly the same blue, separate so that a dark page can change it alone
SHADE = "#0071b1"
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
    "figure.constrained_layout.w_pad": 0.08,  # inches
    "figure.constrained_layout.h_pad": 0.06,
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


house_style = _style()  # a decorator of functions that draw


class ShownFigure(Figure):
    """A figure that a notebook shows although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png", dpi=110)
        return png.getvalue()


def new_figure(width: float, height: float) -> ShownFigure:
    """An empty figure, in inches, whose axes leave room for all texts: no pyplot, no global
    state."""
    return ShownFigure(figsize=(width, height), layout="constrained")


def printable(text: object, *, longest: int = 40) -> str:
    """Text from a file, made printable and shortened for a figure."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in str(text))
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def inline_svg(captioned: CaptionedFigure) -> str:
    """An <svg> element for an HTML page, without a background and with colours that the page can
    change.

    Each colour becomes a CSS variable (--blue, …) with the colour as its default, which a dark page
    overrides.
    """
    text = figure_bytes(captioned, "svg", facecolor="none").decode()
    text = text[text.index("<svg") :]
    # the style has a rule for "*", which would apply to the whole page; the metadata is not needed
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    for name, colour in (*PALETTE.items(), ("ink", INK), ("grey", GREY), ("shade", SHADE)):
        text = text.replace(colour, f"var(--{name}, {colour})")
    return text.strip().replace(
        "<svg", f'<svg role="img" aria-label="{html.escape(captioned.alt)}"', 1
    )


def save_figure(captioned: CaptionedFigure, folder: Path) -> list[Path]:
    """Write ``name.svg`` and ``name.png`` and return their paths."""
    files = [folder / f"{captioned.name}.{kind}" for kind in ("svg", "png")]
    with explain_write_errors(f"The figures cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            write_atomically(file, figure_bytes(captioned, file.suffix[1:]))
    return files


def figure_bytes(captioned: CaptionedFigure, kind: str, *, facecolor: str = "white") -> bytes:
    """The figure as an SVG or PNG file: the same bytes for the same figure."""
    file = io.BytesIO()
    left_out = {"svg": ("Date", "Creator", "Format", "Type"), "png": ("Software",)}
    with _style(), mpl.rc_context({"svg.hashsalt": captioned.name}):
        metadata = dict.fromkeys(left_out[kind])
        captioned.figure.savefig(file, format=kind, dpi=200, facecolor=facecolor, metadata=metadata)
    if kind == "png":
        return file.getvalue()
    # the ids of groups (axes_1, text_3, …) repeat in every figure of a page; nothing refers to them
    return re.sub(rb'<g id="[^"]*"', b"<g", file.getvalue())


# Colour, dashes and marker of each method: the same in every figure, and distinguishable without
# colour.

FEW = 6  # up to this many methods each has its own colour

Dashes = str | tuple[float, tuple[float, ...]]
_DASHES: tuple[Dashes, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.5)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (8, 2, 2, 2)),
    (0, (2.5, 1.5)),
)
_MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True, kw_only=True)
class Style:
    colour: str
    dashes: Dashes = "-"
    marker: str = ""
    filled: bool = True
    prominent: bool = True  # False: grey and thin, but labelled
    bold: bool = False  # its name; its line is wider


def method_styles(methods: Sequence[str]) -> dict[str, Style]:
    """A style for each method, in the given order.

    "+ours" and its host share a colour and a marker: "+ours" has a solid line and filled markers,
    the host a dashed line and open markers. With more than six methods all others are grey, except
    a recipe. A recipe, such as srjt, has the first colour in every figure.
    """
    hosts = {name.removesuffix(OURS) for name in methods if name.endswith(OURS)}
    crowded = len(methods) > FEW and bool(hosts)
    families = sorted(
        dict.fromkeys(name.removesuffix(OURS) for name in methods),
        key=lambda name: (not is_recipe(name), name not in hosts),
    )
    coloured = [family for family in families if family in hosts or not crowded or is_ours(family)]
    colours = (*PALETTE.values(), INK)
    chosen = {}
    for name in methods:
        family = name.removesuffix(OURS)
        if family not in coloured:
            dashes = _DASHES[families.index(family) % len(_DASHES)]
            chosen[name] = Style(colour=GREY, dashes=dashes, prominent=False)
            continue
        ours = is_ours(name)
        is_host = family in hosts and not ours
        number = coloured.index(family)
        chosen[name] = Style(
            colour=colours[number % len(colours)],
            dashes="-" if ours else _DASHES[(number + is_host) % len(_DASHES)],
            marker=_MARKERS[number % len(_MARKERS)],
            filled=not is_host,
            bold=ours,
        )
    return chosen


# Curves with their names at the right end instead of a legend, and a band of one standard
# deviation.

Floats = npt.NDArray[np.float64]
LINE_HEIGHT = 0.155  # inches of a label
LETTER = 0.073  # inches, on average; wide enough for the fonts a page may choose
# from a curve to its name
LEADER = {"arrowstyle": "-", "linewidth": 0.7, "shrinkB": 0, "relpos": (0, 0.5)}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """x, y: (N,), from 0 to ``most``. spread: (N,) standard deviation, or None if there is one fold
    only."""

    name: str  # the text at its end
    x: Floats
    y: Floats
    spread: Floats | None = None
    most: float = math.inf  # a band ends at the ends of a metric's range


@house_style
def chart(
    curves: Sequence[Curve], *, width: float = 5.4, height: float = 3.6, **options: Any
) -> ShownFigure:
    """One panel as a figure, in inches; ``options`` as for ``panel``."""
    figure = new_figure(width, max(height, 0.8 + LINE_HEIGHT * len(curves)))
    panel(figure.subplots(), curves, **options)
    return figure


def panel(
    axes: Any,
    curves: Sequence[Curve],
    *,
    xlabel: str,
    title: str,
    styles: Mapping[str, Style] | None = None,
    reference: tuple[float, str] | None = None,
    xticks: tuple[Sequence[float], Sequence[str]] | None = None,
) -> None:
    """Draw the curves, with their names at their ends.

    reference: a level and its name, drawn as a thin line. xticks: positions and their labels.
    """
    styles = styles or method_styles([curve.name for curve in curves])
    # a title is read first, a label beside the axis last
    prepare_axes(axes, title, xlabel=xlabel, grid="y")
    prominent_last = sorted(curves, key=lambda curve: styles[curve.name].prominent)
    for curve in prominent_last:  # on top
        _plot_curve(axes, curve, styles[curve.name])
    axes.margins(x=0.02, y=0.08)
    if xticks is not None:
        axes.set_xticks(xticks[0], [printable(label, longest=14) for label in xticks[1]])
    else:
        axes.locator_params(axis="x", integer=xlabel == "epoch", nbins=7)
    if reference is not None:
        level, text = reference
        axes.axhline(level, color=INK, linewidth=0.8, zorder=1.5)
        axes.annotate(
            text,
            (1, level),
            xycoords=("axes fraction", "data"),
            xytext=(-2, -3),
            textcoords="offset points",
            fontsize=8,
            ha="right",
            va="top",
        )
    _label_ends(axes, curves, styles)


def prepare_axes(axes: Any, title: str, *, grid: Literal["x", "y", "both"], **more: Any) -> None:
    """A title and a thin grid. more: as for ``Axes.set``."""
    axes.set(**more)
    axes.set_title(title, pad=8)
    axes.grid(axis=grid, color=GREY, alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)


def _plot_curve(axes: Any, curve: Curve, style: Style) -> None:
    # not those of grey curves: fourteen bands would hide the curves
    if style.prominent and curve.spread is not None and np.nanmax(curve.spread, initial=0) > 0:
        low = np.maximum(curve.y - curve.spread, 0.0)
        high = np.minimum(curve.y + curve.spread, curve.most)
        axes.fill_between(curve.x, low, high, color=style.colour, alpha=0.14, linewidth=0)
    width = 1.5 if style.prominent else 0.9
    if style.bold:
        width = 2.0
    points = len(curve.x)
    marker = style.marker
    if points == 1 and not marker:
        marker = "o"
    axes.plot(
        curve.x,
        curve.y,
        color=style.colour,
        linestyle=style.dashes,
        linewidth=width,
        marker=marker,
        markersize=4,
        markevery=max(1, points // 8),
        markerfacecolor=style.colour if style.filled else "none",
        markeredgewidth=1,
        solid_capstyle="round",
        zorder=3 if style.prominent else 2,
    )


def spread_apart(wanted: npt.ArrayLike, *, gap: float, low: float, high: float) -> Floats:
    """(N,) wanted heights → (N,) heights at least ``gap`` apart within [low, high], as near as
    possible.

    Least squares under these constraints is isotonic regression after the gaps are subtracted. If N
    heights do not fit, they are spread evenly.
    """
    from sklearn.isotonic import isotonic_regression

    heights = np.asarray(wanted, dtype=np.float64)
    order = np.argsort(heights, kind="stable")
    steps = min(gap, (high - low) / max(len(heights) - 1, 1)) * np.arange(len(heights))
    fitted = isotonic_regression(heights[order] - steps)
    placed = np.empty_like(heights)
    placed[order] = np.clip(fitted, low, high - steps[-1]) + steps
    return placed


def _label_ends(axes: Any, curves: Sequence[Curve], styles: Mapping[str, Style]) -> None:
    """Write the names into the right margin, at the height of the ends of their curves, with a thin
    leader to each."""
    axes.autoscale_view()
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    axes.set(xlim=(left, right), ylim=(bottom, top))  # the labels must not change the limits
    ends = []
    for curve in curves:
        finite = np.flatnonzero(np.isfinite(curve.y))
        end = (right, bottom)
        if len(finite):
            end = (curve.x[finite[-1]], curve.y[finite[-1]])
        ends.append(end)
    line = LINE_HEIGHT / (axes.figure.get_figheight() - 0.8)  # what is above and below the axes
    wanted = [(y - bottom) / (top - bottom) for _, y in ends]
    heights = spread_apart(wanted, gap=line, low=-line / 2, high=1 + line / 2)
    for curve, end, height in zip(curves, ends, heights, strict=True):
        style = styles[curve.name]
        axes.annotate(
            printable(curve.name, longest=30),
            end,
            (1.05, height),
            textcoords="axes fraction",
            va="center",
            fontsize=8.5,
            fontweight="bold" if style.bold else "normal",
            color=INK if style.prominent else GREY,
            annotation_clip=False,
            arrowprops={**LEADER, "color": style.colour},
        )


def mean_over_networks(
    metrics: pd.DataFrame, *, split: str, metric: str, pooled: bool, by: Sequence[str] = ("epoch",)
) -> pd.Series:
    """One metric by epoch, or by further columns: the mean of the networks, or of their pooled
    predictions."""
    chosen = metrics[(metrics["split"] == split) & (metrics["metric"] == metric)]
    networks = set(chosen["network"])
    wanted = {"pooled"} if pooled and "pooled" in networks else networks - {"ensemble", "pooled"}
    return chosen[chosen["network"].isin(wanted)].groupby(list(by))["value"].mean()


# Confusion and transition matrices as figures: the darker a cell, the larger its share of the row.

PANEL = 1.95  # inches
ACROSS = 4  # panels in a row
LONGEST_NAME = 20  # letters of a grade beside a matrix: "4 (proliferative DR)"
PALE = 0.8  # up to this share dark text is legible on the blue, on a light page and on a dark one

Panels = Mapping[str, npt.ArrayLike]  # title → (C, C) counts or probabilities
Write = Callable[[float, float], str]


@house_style
def matrix_figure(
    panels: Panels, *, grades: Sequence[str], emphasised: Sequence[str] = (), **options: Any
) -> ShownFigure:
    """One matrix beside the other. emphasised: titles in bold. options: as for ``draw_matrix``."""
    across = min(ACROSS, max(len(panels), 1))
    down = -(-len(panels) // across)
    longest = min(max(map(len, grades), default=1), LONGEST_NAME)
    width = 0.42 + 0.07 * longest + across * (PANEL + 0.22)
    below = 0.05 * longest if _are_long(grades) else 0.1
    figure = new_figure(width, 0.42 + below + down * (PANEL + 0.38))
    every = figure.subplots(down, across, squeeze=False).ravel()
    for place, (axes, (title, matrix)) in enumerate(zip(every, panels.items(), strict=False)):
        lowest = place + across >= len(panels)
        first = place % across == 0
        draw_matrix(axes, matrix, grades, names=(lowest, first), **options)
        weight = "bold" if title in emphasised else "normal"
        axes.set_title(printable(title), pad=5, fontweight=weight)
    for axes in every[len(panels) :]:
        axes.remove()
    return figure


def draw_matrix(
    axes: Any,
    matrix: npt.ArrayLike,
    grades: Sequence[str],
    *,
    rows: str,
    columns: str,
    write: Write,
    names: tuple[bool, bool] = (True, True),
) -> None:
    """Draw a matrix (C, C): the larger the share of a cell in its row, the darker it is.

    rows, columns: labels of the axes. write: (value, share of its row) → the text of a cell. names:
    whether the grades are named below and beside it.
    """
    values = np.asarray(matrix, dtype=np.float64)
    size = len(values)
    sums = values.sum(axis=1, keepdims=True)
    shares = np.divide(values, sums, out=np.zeros_like(values), where=sums > 0)
    axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal", xticks=[], yticks=[])
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    for (i, j), share in np.ndenumerate(shares):
        if share > 0:
            axes.add_patch(
                Rectangle((j, i), 1, 1, facecolor=SHADE, alpha=float(share), linewidth=0)
            )
        axes.add_patch(
            Rectangle((j, i), 1, 1, fill=False, edgecolor=GREY, alpha=0.35, linewidth=0.5)
        )
        axes.text(
            j + 0.5,
            i + 0.5,
            write(float(values[i, j]), float(share)),
            ha="center",
            va="center",
            linespacing=1.15,
            fontsize=7.5 if size <= 5 else max(36 / size, 5.5),
            color=INK if share <= PALE else "white",
        )
    shown = [printable(grade, longest=LONGEST_NAME) for grade in grades]
    below, beside = names
    if below:
        axes.set_xlabel(columns)
        axes.set_xticks(np.arange(size) + 0.5, shown)
    if beside:
        axes.set_ylabel(rows)
        axes.set_yticks(np.arange(size) + 0.5, shown)
    if _are_long(shown):
        axes.tick_params(axis="x", rotation=35)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def _are_long(names: Sequence[str]) -> bool:
    """Whether the names do not fit side by side below a matrix."""
    return max(map(len, names), default=0) > 28 // max(len(names), 1)


def _share_and_count(count: float, share: float) -> str:
    return f"{share:.0%}\n{count:,.0f}" if count else "0"


CONFUSION: dict[str, Any] = {
    "rows": "true grade",
    "columns": "predicted grade",
    "write": _share_and_count,
}


def confusion_figure(panels: Panels, *, grades: Sequence[str], **more: Any) -> ShownFigure:
    """Confusion matrices: each cell shows its share of the row and its count. more: as for
    ``matrix_figure``."""
    return matrix_figure(panels, grades=grades, **{**CONFUSION, **more})


def transition_figure(
    panels: Panels,
    *,
    grades: Sequence[str],
    digits: int = 3,
    rows: str = "true grade",
    columns: str = "label",
) -> Figure:
    """Transition matrices: the probability of each label (column) for each true grade, or what
    ``rows`` says."""

    def write(value: float, share: float) -> str:
        return f"{value:.{digits}f}" if value else "0"

    return matrix_figure(panels, grades=grades, rows=rows, columns=columns, write=write)


# Intervals: a row for each, and the line of no difference.

ROW = 0.26  # inches
LONGEST_LABEL = 30  # letters


class Estimate(NamedTuple):
    """A row of an interval plot; without an interval, a heading. clear: whether it is more than
    chance."""

    label: str
    interval: Interval | None = None
    clear: bool = False


@house_style
def interval_figure(
    panels: Mapping[str, Sequence[Estimate]], *, xlabel: str, at: float = 0.0
) -> Figure:
    """panels: title → rows, one panel below the other, on the same axis. at: where the vertical
    line is."""
    longest = max((len(row.label) for rows in panels.values() for row in rows), default=1)
    counts = [len(rows) for rows in panels.values()] or [1]
    width = 2.4 + LETTER * min(longest, LONGEST_LABEL)
    figure = new_figure(width, 0.8 * len(counts) + ROW * sum(counts))
    grid = figure.subplots(len(counts), 1, sharex=True, squeeze=False, height_ratios=counts)
    every = grid.ravel()
    for axes, (title, rows) in zip(every, panels.items(), strict=False):
        prepare_axes(axes, title, grid="x", ylim=(len(rows) - 0.4, -0.6))
        axes.axvline(at, color=INK, linewidth=0.8)
        for place, row in enumerate(rows):
            if row.interval is not None:
                _plot_interval(axes, place, row.interval, clear=row.clear)
        labels = [printable(row.label, longest=LONGEST_LABEL) for row in rows]
        axes.set_yticks(range(len(rows)), labels)
        for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
            tick.set_fontweight("bold" if row.interval is None else "normal")
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelbottom=True)
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=5)
        axes.margins(x=0.08)
    every[-1].set_xlabel(xlabel, labelpad=2)
    return figure


def _plot_interval(axes: Any, height: float, interval: Interval, *, clear: bool) -> None:
    """clear: whether it is more than chance."""
    value, low, high = interval
    colour = PALETTE["blue"] if clear else GREY
    if math.isfinite(low):
        line = [height, height]
        axes.plot([low, high], line, color=colour, linewidth=1.6, solid_capstyle="round")
    axes.plot([value], [height], marker="D" if clear else "o", markersize=5, color=colour)
