"""A forest plot: the differences between runs with their intervals."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure

from srjt.inference.compare import Comparison, Difference
from srjt.ordinal.metrics import METRICS
from srjt.reports.figures.canvas import (
    GREY,
    INK,
    PALETTE,
    CaptionedFigure,
    house_style,
    new_figure,
    printable,
)

__all__ = ["forest_figure"]

ROW = 0.26  # inches of a row
LETTER = 0.073


def forest_figure(comparison: Comparison) -> CaptionedFigure:
    """Differences from the first run; metrics of which more is better on the left, the others on the right."""
    first = printable(comparison.runs[0])
    shown = [row for row in comparison.differences if math.isfinite(row.difference.value)]
    clear = [row for row in shown if row.difference.low > 0 or row.difference.high < 0]
    resampled = "patients" if comparison.patients else "images"
    return CaptionedFigure(
        name="comparison",
        figure=_draw(comparison, shown),
        caption=f"Difference from {first}, with the {comparison.level:.0%} interval over {resampled}. "
        "Blue diamonds: the interval does not contain 0.",
        alt=f"Forest plot of {len(shown)} differences from {first}; {len(clear)} intervals do not contain 0.",
    )


@house_style
def _draw(comparison: Comparison, shown: list[Difference]) -> Figure:
    panels = {
        "more is better →": [row for row in shown if not METRICS[row.metric].lower_is_better],
        "← less is better": [row for row in shown if METRICS[row.metric].lower_is_better],
    }
    runs = comparison.runs[1:]
    longest = max(len(METRICS[row.metric].long_name) for row in shown) if shown else 1
    rows = max(map(len, panels.values())) + len(runs) * (len(runs) > 1)
    left, wide, gap, bottom, top = 0.15 + LETTER * longest, 2.2, 0.25, 0.5, 0.35
    width, height = 2 * (left + wide + gap), bottom + top + ROW * max(rows, 1)
    figure = new_figure(width, height)
    axes: Any = None
    for place, (title, differences) in enumerate(panels.items()):
        x = left + place * (left + wide + gap)
        box = (x / width, bottom / height, wide / width, (height - bottom - top) / height)
        axes = figure.add_axes(box, sharex=axes)
        _draw_panel(axes, differences, runs=runs, rows=rows)
        axes.set_title(title, pad=8)
        axes.set_xlabel(f"difference from {printable(comparison.runs[0], longest=24)}", labelpad=2)
    return figure


def _draw_panel(axes: Any, differences: list[Difference], *, runs: tuple[str, ...], rows: int) -> None:
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.grid(axis="x", color=GREY, alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)
    at, labels = 0, []
    for run in runs:
        if len(runs) > 1:
            labels.append((at, printable(run, longest=30), True))
            at += 1
        for row in (row for row in differences if row.run == run):
            value, low, high = row.difference
            clear = low > 0 or high < 0
            colour = PALETTE["blue"] if clear else GREY
            if math.isfinite(low):
                axes.plot([low, high], [at, at], color=colour, linewidth=1.6, solid_capstyle="round")
            axes.plot([value], [at], marker="D" if clear else "o", markersize=5, color=colour)
            labels.append((at, METRICS[row.metric].long_name, False))
            at += 1
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_yticks([place for place, _, _ in labels], [text for _, text, _ in labels])
    for tick, (_, _, bold) in zip(axes.get_yticklabels(), labels, strict=True):
        tick.set_fontweight("bold" if bold else "normal")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=5)
    axes.margins(x=0.08)
