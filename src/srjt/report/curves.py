"""Curves over epochs: test accuracy and label precision, labelled directly at their ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["plot_curves"]

# Okabe and Ito's palette: told apart by colour-blind people; line styles tell them apart in greyscale.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))


def plot_curves(runs: Mapping[str, pd.DataFrame], path: Path, *, noise_rate: float | None = None) -> None:
    """runs: name → metrics table. Two panels into a PNG or SVG file: test accuracy, label precision.

    noise_rate: of the training labels; a line at 1 − ε shows what a random selection would reach.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)  # no pyplot: no global state, no window system
    left, right = figure.subplots(1, 2)
    _panel(left, runs, split="test", metric="accuracy", title="Test accuracy")
    _panel(right, runs, split="train", metric="label_precision", title="Label precision of the selection")
    if noise_rate is not None:
        right.axhline(1 - noise_rate, color="0.5", linewidth=1)
        right.annotate("1 − ε: everything", (0.0, 1 - noise_rate), xycoords=("axes fraction", "data"), color="0.35",
                       xytext=(4, 4), textcoords="offset points", fontsize=9)  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _panel(axes: Any, runs: Mapping[str, pd.DataFrame], *, split: str, metric: str, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel("epoch")
    axes.spines[["top", "right"]].set_visible(False)
    ends = []
    for number, (name, metrics) in enumerate(runs.items()):
        chosen = metrics[(metrics["split"] == split) & (metrics["metric"] == metric)]
        chosen = chosen[~chosen["network"].isin(["ensemble", "pooled"])]
        curve = chosen.groupby("epoch")["value"].mean()
        if curve.empty:
            continue
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            curve.index, curve.to_numpy(), color=colour, linestyle=STYLES[number % len(STYLES)], linewidth=1.8
        )
        ends.append((float(curve.iloc[-1]), curve.index[-1], name, colour))
    axes.margins(x=0.02)
    _label_ends(axes, ends)


def _label_ends(axes: Any, ends: list[tuple[float, int, str, str]]) -> None:
    """Names at the ends of the curves instead of a legend, pushed apart where they would overlap."""
    low, high = axes.get_ylim()
    least = 0.065 * (high - low)
    at = -float("inf")
    for value, epoch, name, colour in sorted(ends):
        at = max(value, at + least)
        axes.annotate(name, (epoch, at), xytext=(6, 0), textcoords="offset points", color=colour, va="center",
                      fontsize=9, annotation_clip=False)  # fmt: skip
