"""Reliability diagrams: how often predictions are right, by how sure they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from srjt.ordinal.calibration import CalibrationBin
from srjt.reports.figures.canvas import GREY, PALETTE, house_style, new_figure, printable

__all__ = ["reliability_figure"]

PANEL = 2.3  # inches


@house_style
def reliability_figure(panels: Mapping[str, Sequence[CalibrationBin]]) -> Figure:
    """panels: title → bins. The area of a point is its share of the samples; the diagonal is perfect."""
    width, height = 0.55 + len(panels) * (PANEL + 0.3), PANEL + 0.85
    figure = new_figure(width, height)
    for place, (title, bins) in enumerate(panels.items()):
        left = 0.55 + place * (PANEL + 0.3)
        axes = figure.add_axes((left / width, 0.5 / height, PANEL / width, PANEL / height))
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
        confidence, accuracy, samples = zip(*bins, strict=True)
        axes.plot(confidence, accuracy, color=PALETTE["blue"], linewidth=1.2)
        areas = [12 + 240 * count / sum(samples) for count in samples]
        axes.scatter(confidence, accuracy, s=areas, color=PALETTE["blue"], alpha=0.75, linewidths=0)
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal", xlabel="probability of the predicted grade")
        axes.set_title(printable(title, longest=36), pad=6)
        if place == 0:
            axes.set_ylabel("share predicted right")
        else:
            axes.set_yticklabels([])
    return figure
