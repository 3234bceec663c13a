"""Figures of several readers: how well each two agree, who grades higher, and what changes over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from srjt.reports.figures.canvas import GREY, INK, PALETTE, SHADE, house_style, new_figure, printable
from srjt.reports.figures.matrices import PALE

__all__ = ["bias_figure", "drift_figure", "kappa_figure"]

Floats = npt.NDArray[np.float64]
CELL = 0.42  # inches
ROW = 0.24  # inches
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))


@house_style
def kappa_figure(names: Sequence[str], kappa: Floats) -> Figure:
    """kappa: (R, R), NaN where two readers have no image in common. The darker a cell, the better they agree."""
    shown = [printable(name, longest=16) for name in names]
    size = len(names)
    label = 0.25 + 0.075 * max(map(len, shown), default=1)
    side = max(size * CELL, 1.2)
    width, height = label + side + 0.15, label + side + 0.15
    figure = new_figure(width, height)
    axes = figure.add_axes((label / width, label / height, side / width, side / height))
    axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal")
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    for (i, j), value in np.ndenumerate(kappa):
        if i == j:
            continue
        shade = 0.0 if np.isnan(value) else float(np.clip(value, 0, 1))
        if shade > 0:
            axes.add_patch(Rectangle((j, i), 1, 1, facecolor=SHADE, alpha=shade, linewidth=0))
        axes.add_patch(Rectangle((j, i), 1, 1, fill=False, edgecolor=GREY, alpha=0.35, linewidth=0.5))
        text = "–" if np.isnan(value) else f"{value:.2f}".replace("-", "−")
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=7,
                  color=INK if shade <= PALE else "white")  # fmt: skip
    ticks = np.arange(size) + 0.5
    axes.set_xticks(ticks, shown, rotation=90)
    axes.set_yticks(ticks, shown)
    return figure


@house_style
def bias_figure(names: Sequence[str], bias: Floats, intervals: Floats) -> Figure:
    """bias: (R,) in grades, with its interval (R, 2), NaN where there is none. The mildest reader at the bottom."""
    order = np.argsort(bias, kind="stable")
    shown = [printable(names[i], longest=20) for i in order]
    label = 0.25 + 0.075 * max(map(len, shown), default=1)
    width, height = label + 3.6, 0.6 + ROW * len(names)
    figure = new_figure(width, height)
    axes = figure.add_axes((label / width, 0.45 / height, 3.45 / width, (height - 0.55) / height))
    places = np.arange(len(order))
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.hlines(places, intervals[order, 0], intervals[order, 1], color=PALETTE["blue"], linewidth=1.4)
    axes.plot(bias[order], places, "o", color=PALETTE["blue"], markersize=4)
    reach = max(0.1, 1.1 * float(np.nanmax(np.abs(np.column_stack([bias, intervals])))))
    axes.set(xlim=(-reach, reach), ylim=(-0.7, len(order) - 0.3))
    axes.set_yticks(places, shown)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("grades higher →")
    return figure


@house_style
def drift_figure(series: Mapping[str, tuple[npt.NDArray[np.datetime64], Floats]]) -> Figure:
    """series: reader → times and mean difference from the consensus, in grades."""
    figure = new_figure(6.4, 2.6)
    axes = figure.add_axes((0.1, 0.2, 0.62, 0.72))
    colours = list(PALETTE.values())
    axes.axhline(0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    for place, (name, (times, values)) in enumerate(series.items()):
        axes.plot(times.astype("datetime64[D]"), values, marker="o", markersize=3, linewidth=1.3,
                  color=colours[place % len(colours)], linestyle=_DASHES[place // len(colours) % len(_DASHES)],
                  label=printable(name, longest=18))  # fmt: skip
    locator = AutoDateLocator(minticks=2, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_ylabel("grades higher")
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=8)
    return figure
