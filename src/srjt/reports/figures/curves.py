"""Curves with their names at the right end instead of a legend, and a band of one standard deviation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from srjt.reports.figures.canvas import GREY, INK, house_style, new_figure, printable
from srjt.reports.figures.styles import Style, method_styles

__all__ = ["Curve", "chart", "mean_over_networks", "panel", "small_multiples", "spread_apart"]

Floats = npt.NDArray[np.float64]
LINE_HEIGHT = 0.155  # inches of a label
LETTER = 0.073  # inches, on average; wide enough for the fonts a page may choose


@dataclass(frozen=True, kw_only=True)
class Curve:
    """x, y: (N,). spread: (N,) standard deviation, or None if there is one fold only."""

    name: str
    x: Floats
    y: Floats
    spread: Floats | None = None
    label: str = ""  # the text at its end; default: its name


@house_style
def chart(curves: Sequence[Curve], *, width: float = 5.4, height: float = 3.6, **options: Any) -> Figure:
    """One panel as a figure, in inches; ``options`` as for ``panel``."""
    figure = new_figure(width, max(height, 0.8 + LINE_HEIGHT * len(curves)))
    panel(figure, curves, **options)
    return figure


def panel(
    figure: Figure,
    curves: Sequence[Curve],
    *,
    xlabel: str,
    title: str,
    styles: Mapping[str, Style] | None = None,
    reference: tuple[float, str] | None = None,
    xticks: tuple[Sequence[float], Sequence[str]] | None = None,
    error_bars: bool = False,
    part: tuple[float, float] = (0.0, 1.0),
) -> None:
    """Draw the curves into a figure, or into a vertical ``part`` of it (from, to, as shares of its width).

    reference: a level and its name, drawn as a thin line. xticks: positions and their labels.
    error_bars: instead of bands, for few values of x; the curves are then shifted a little sideways.
    """
    styles = styles or method_styles([curve.name for curve in curves])
    labels = [printable(curve.label or curve.name, longest=30) for curve in curves]
    width, height = figure.get_size_inches()
    inner = (part[1] - part[0]) * width
    left, right, bottom, top = 0.55, 0.42 + LETTER * max(map(len, labels), default=0), 0.5, 0.3
    box = (part[0] * width + left, bottom, inner - left - right, height - bottom - top)
    axes = figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))
    shifts = _plot_curves(axes, curves, styles, xlabel=xlabel, title=title, reference=reference, xticks=xticks,
                   error_bars=error_bars)  # fmt: skip
    _label_ends(axes, curves, labels, shifts, styles, wide=box[2], high=box[3])


@house_style
def small_multiples(
    panels: Mapping[str, Sequence[Curve]],
    *,
    styles: Mapping[str, Style],
    xlabel: str,
    title: str,
    subtitle: str,
    reference: tuple[float, str] | None = None,
) -> Figure:
    """Panels side by side, three in a row, on the same axes: title of a panel → its curves. Otherwise as ``panel``."""
    across = min(3, len(panels))
    rows = -(-len(panels) // across)
    named = LETTER * max(len(curve.label or curve.name) for curves in panels.values() for curve in curves)
    wide, high = (2.3 if across > 1 else 3.8), 2.6
    left, right, bottom, top, gap = 0.5, 0.42 + named, 0.5, 0.55, 0.3
    width, height = left + across * (wide + right), top + rows * (high + bottom + gap)
    figure = new_figure(width, height)
    figure.text(0.05 / width, 1 - 0.08 / height, title, va="top", fontsize=10.5)
    figure.text(0.05 / width, 1 - 0.31 / height, subtitle, va="top", fontsize=8.5, color=GREY)
    filled: list[tuple[Any, Sequence[Curve], Floats]] = []
    for place, (name, curves) in enumerate(panels.items()):
        row, column = divmod(place, across)
        x, y = left + column * (wide + right), height - top - (row + 1) * (high + gap) - row * bottom
        first = filled[0][0] if filled else None
        box = (x / width, y / height, wide / width, high / height)
        axes = figure.add_axes(box, sharex=first, sharey=first)
        axes.tick_params(labelleft=column == 0)
        shifts = _plot_curves(axes, curves, styles, xlabel=xlabel, title=printable(name), reference=reference)
        filled.append((axes, curves, shifts))
    for axes, curves, shifts in filled:  # after all panels are drawn, which share their limits
        labels = [printable(curve.label or curve.name) for curve in curves]
        _label_ends(axes, curves, labels, shifts, styles, wide=wide, high=high)
    return figure


def _plot_curves(
    axes: Any,
    curves: Sequence[Curve],
    styles: Mapping[str, Style],
    *,
    xlabel: str,
    title: str,
    reference: tuple[float, str] | None = None,
    xticks: tuple[Sequence[float], Sequence[str]] | None = None,
    error_bars: bool = False,
) -> Floats:
    """Draw everything but the names at the ends. Returns (L,): how far each curve is shifted sideways."""
    axes.set_xlabel(xlabel)
    axes.set_title(title, pad=8)  # above the axes, where it is read first, instead of beside them
    axes.grid(axis="y", color=GREY, alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)
    shifts = _offsets(curves, styles) if error_bars else np.zeros(len(curves))
    # prominent curves last, above the grey ones
    for curve, shift in sorted(
        zip(curves, shifts, strict=True), key=lambda pair: styles[pair[0].name].prominent
    ):
        _plot_curve(axes, curve, styles[curve.name], shift=shift, error_bars=error_bars)
    axes.margins(x=0.02, y=0.08)
    if xticks is not None:
        axes.set_xticks(xticks[0], [printable(label, longest=14) for label in xticks[1]])
    else:
        axes.locator_params(axis="x", integer=xlabel == "epoch", nbins=7)
    if reference is not None:
        level, text = reference
        axes.axhline(level, color=INK, linewidth=0.8, zorder=1.5)
        axes.annotate(text, (1, level), xycoords=("axes fraction", "data"), xytext=(-2, -3), fontsize=8,
                      textcoords="offset points", ha="right", va="top")  # fmt: skip
    return shifts


def _offsets(curves: Sequence[Curve], styles: Mapping[str, Style]) -> Floats:
    """(L,) small shifts, so that the error bars of prominent curves do not cover each other."""
    places = np.unique(np.concatenate([curve.x for curve in curves])) if curves else np.zeros(0)
    apart = float(np.diff(places).min()) if len(places) > 1 else 1.0
    shown = np.array([styles[curve.name].prominent for curve in curves], dtype=bool)
    ranks = np.cumsum(shown) - (shown.sum() + 1) / 2
    return np.where(shown, 0.05 * apart * ranks, 0.0)


def _plot_curve(axes: Any, curve: Curve, style: Style, *, shift: float, error_bars: bool) -> None:
    spread = None if curve.spread is None or not np.nanmax(curve.spread, initial=0) > 0 else curve.spread
    x = curve.x + shift
    if not style.prominent:  # fourteen bands would hide the curves
        spread = None
    if spread is not None and error_bars:
        axes.errorbar(x, curve.y, yerr=spread, fmt="none", ecolor=style.colour, elinewidth=0.8, capsize=1.5)
    elif spread is not None:
        axes.fill_between(x, curve.y - spread, curve.y + spread, color=style.colour, alpha=0.14, linewidth=0)
    axes.plot(
        x,
        curve.y,
        color=style.colour,
        linestyle=style.dashes,
        linewidth=style.width,
        marker=style.marker or ("o" if len(x) == 1 else ""),
        markersize=4,
        markevery=max(1, len(x) // 8),
        markerfacecolor=style.colour if style.filled else "none",
        markeredgewidth=1,
        solid_capstyle="round",
        zorder=3 if style.prominent else 2,
    )


def spread_apart(wanted: npt.ArrayLike, *, gap: float, low: float, high: float) -> Floats:
    """(N,) wanted heights → (N,) heights at least ``gap`` apart within [low, high], as near as possible.

    Least squares under these constraints is isotonic regression after the gaps are subtracted. If N heights do not
    fit, they are spread evenly.
    """
    from sklearn.isotonic import isotonic_regression

    heights = np.asarray(wanted, dtype=np.float64)
    if len(heights) < 2:
        return np.clip(heights, low, high)
    gap = min(gap, (high - low) / (len(heights) - 1))
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(heights))
    fitted = isotonic_regression(heights[order] - steps)
    placed = np.empty_like(heights)
    placed[order] = np.clip(fitted, low, high - steps[-1]) + steps
    return placed


def _label_ends(
    axes: Any,
    curves: Sequence[Curve],
    labels: Sequence[str],
    shifts: Floats,
    styles: Mapping[str, Style],
    *,
    wide: float,
    high: float,
) -> None:
    """Write the names into the right margin, at the height of the ends of their curves, with a thin leader to each."""
    axes.autoscale_view()
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    axes.set(xlim=(left, right), ylim=(bottom, top))  # the labels must not change the limits
    ends = []
    for curve, shift in zip(curves, shifts, strict=True):
        known = np.flatnonzero(np.isfinite(curve.y))
        at = (curve.x[known[-1]] + shift, curve.y[known[-1]]) if len(known) else (right, bottom)
        ends.append(((at[0] - left) / (right - left), (at[1] - bottom) / (top - bottom)))
    room = 0.5 * LINE_HEIGHT / high
    heights = spread_apart([y for _, y in ends], gap=LINE_HEIGHT / high, low=-room, high=1 + room)
    start, stop = 1 + 0.05 / wide, 1 + 0.24 / wide
    for curve, label, (x, y), at in zip(curves, labels, ends, heights, strict=True):
        style = styles[curve.name]
        axes.plot(
            [x, start, stop],
            [y, y, at],
            transform=axes.transAxes,
            color=style.colour,
            linewidth=0.7,
            alpha=0.8,
            clip_on=False,
        )
        axes.text(stop + 0.04 / wide, at, label, transform=axes.transAxes, va="center_baseline", fontsize=8.5,
                  color=INK if style.prominent else GREY,
                  fontweight="bold" if style.bold else "normal")  # fmt: skip


def mean_over_networks(metrics: pd.DataFrame, *, split: str, metric: str, pooled: bool = False) -> pd.Series:
    """One metric of one run by epoch: the mean of its networks, or of their pooled predictions."""
    chosen = metrics[(metrics["split"] == split) & (metrics["metric"] == metric)]
    networks = set(chosen["network"])
    single = networks - {"ensemble", "pooled"}
    wanted = {"pooled"} if pooled and "pooled" in networks else single
    return chosen[chosen["network"].isin(wanted)].groupby("epoch")["value"].mean()
