"""Confusion and transition matrices as figures: the darker a cell, the larger its share of the row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from srjt.reports.figures.canvas import GREY, INK, SHADE, house_style, new_figure, printable

__all__ = ["confusion_figure", "confusion_panel", "correct_labels", "matrix_figure", "transition_figure"]

PANEL = 1.95  # inches
ACROSS = 4  # panels in a row
LONGEST_NAME = 20  # letters of a grade beside a matrix: "4 (proliferative DR)"
PALE = 0.8  # up to this share dark text is legible on the blue, on a light page and on a dark one

Write = Callable[[float, float], str]


@house_style
def matrix_figure(
    panels: Mapping[str, npt.ArrayLike],
    *,
    grades: Sequence[str],
    rows: str,
    columns: str,
    write: Write,
    emphasised: Sequence[str] = (),
) -> Figure:
    """panels: title → (C, C) counts or probabilities; each row is shown as shares of its sum.

    rows, columns: labels of the axes. write: (value, share of its row) → the text of a cell.
    emphasised: titles in bold.
    """
    names = _short_names(grades)
    across = min(ACROSS, max(len(panels), 1))
    down = -(-len(panels) // across)
    turned = _are_long(names)
    longest = max(map(len, names), default=1)
    left = 0.42 + 0.07 * longest
    bottom = 0.42 + (0.05 * longest if turned else 0.1)
    step_x, step_y = PANEL + 0.22, PANEL + 0.38
    width, height = left + across * step_x, bottom + down * step_y
    figure = new_figure(width, height)
    for place, (title, matrix) in enumerate(panels.items()):
        row, column = divmod(place, across)
        x, y = left + column * step_x, height - (row + 1) * step_y + 0.08
        axes = figure.add_axes((x / width, y / height, PANEL / width, PANEL / height))
        _draw_matrix(axes, np.asarray(matrix, dtype=np.float64), write=write)
        axes.set_title(printable(title), pad=5, fontweight="bold" if title in emphasised else "normal")
        ticks = np.arange(len(names)) + 0.5
        lowest = place + across >= len(panels)
        axes.set_xticks(ticks, names if lowest else [])
        axes.set_yticks(ticks, names if column == 0 else [])
        if turned:
            _turn_labels(axes)
        if lowest:
            axes.set_xlabel(columns)
        if column == 0:
            axes.set_ylabel(rows)
    return figure


def confusion_panel(
    figure: Figure, counts: npt.ArrayLike, *, grades: Sequence[str], title: str, rows: str, left: float
) -> None:
    """Draw one confusion matrix into a figure, ``left`` inches from its left edge; it takes the full height."""
    names = _short_names(grades)
    width, height = figure.get_size_inches()
    longest = max(map(len, names), default=1)
    start = left + 0.42 + 0.07 * longest
    bottom = 0.24 + 0.034 * longest if _are_long(names) else 0.5
    side = min(height - bottom - 0.3, width - start - 0.1)
    axes = figure.add_axes((start / width, bottom / height, side / width, side / height))
    _draw_matrix(axes, np.asarray(counts, dtype=np.float64), write=_share_and_count)
    ticks = np.arange(len(names)) + 0.5
    axes.set_xticks(ticks, names)
    axes.set_yticks(ticks, names)
    if _are_long(names):
        _turn_labels(axes)
    axes.set(xlabel="predicted grade", ylabel=rows)
    axes.set_title(printable(title), pad=8)


def _short_names(grades: Sequence[str]) -> list[str]:
    return [printable(grade, longest=LONGEST_NAME) for grade in grades]


def _are_long(names: Sequence[str]) -> bool:
    """Whether the names do not fit side by side below a matrix."""
    return max(map(len, names), default=0) > 28 // max(len(names), 1)


def _turn_labels(axes: Any) -> None:
    axes.tick_params(axis="x", rotation=35)
    for label in axes.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor")


def _share_and_count(count: float, share: float) -> str:
    return f"{share:.0%}\n{count:,.0f}" if count else "0"


def confusion_figure(
    panels: Mapping[str, npt.ArrayLike],
    *,
    grades: Sequence[str],
    emphasised: Sequence[str] = (),
    rows: str = "true grade",
) -> Figure:
    """Confusion matrices: each cell shows its share of the row and its count."""
    return matrix_figure(
        panels,
        grades=grades,
        rows=rows,
        columns="predicted grade",
        write=_share_and_count,
        emphasised=emphasised,
    )


def transition_figure(panels: Mapping[str, npt.ArrayLike], *, grades: Sequence[str]) -> Figure:
    """Transition matrices: the probability of each label (column) for each true grade (row)."""

    def write(value: float, share: float) -> str:
        return f"{value:.3f}" if value else "0"

    return matrix_figure(panels, grades=grades, rows="true grade", columns="label", write=write)


def correct_labels(matrix: npt.ArrayLike, grades: Sequence[str]) -> str:
    """The diagonal of a transition matrix as a sentence."""
    shares = ", ".join(f"{g} {p:.2f}" for g, p in zip(grades, np.diag(np.asarray(matrix)), strict=True))
    return f"Probability that a label is correct, by true grade: {shares}."


def _draw_matrix(axes: Any, values: npt.NDArray[np.float64], *, write: Write) -> None:
    size = len(values)
    sums = values.sum(axis=1, keepdims=True)
    shares = np.divide(values, sums, out=np.zeros_like(values), where=sums > 0)
    axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal")
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    for (i, j), share in np.ndenumerate(shares):
        if share > 0:
            axes.add_patch(Rectangle((j, i), 1, 1, facecolor=SHADE, alpha=float(share), linewidth=0))
        axes.add_patch(Rectangle((j, i), 1, 1, fill=False, edgecolor=GREY, alpha=0.35, linewidth=0.5))
        text = write(float(values[i, j]), float(share))
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", linespacing=1.15,
                  fontsize=7.5 if size <= 5 else 36 / size, color=INK if share <= PALE else "white")  # fmt: skip
