"""The figures of single results: a run, an evaluation with its decisions, a comparison of runs,
several readers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from srjt.errors import SrjtError
from srjt.inference.compare import Comparison
from srjt.inference.evaluate import Evaluation
from srjt.ordinal.calibration import CalibrationBin
from srjt.ordinal.intervals import Interval
from srjt.ordinal.metrics import METRICS, NaiveBaseline
from srjt.reports.figures import canvas
from srjt.reports.figures.study import SELECTED, SELECTION_RECALL, describe_ends, no_selection
from srjt.reports.table import ONE_LABEL

# Reliability diagrams: how often the most likely grade is right, by its probability.

PANEL = 2.3  # inches


@canvas.house_style
def reliability_figure(panels: Mapping[str, Sequence[CalibrationBin]]) -> Figure:
    """panels: title → bins. The area of a point is its share of the samples; the diagonal is
    perfect."""
    figure = canvas.new_figure(0.55 + len(panels) * (PANEL + 0.3), PANEL + 0.85)
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False).ravel()
    for axes, (title, bins) in zip(every, panels.items(), strict=True):
        axes.plot([0, 1], [0, 1], color=canvas.GREY, linewidth=0.8, linestyle=(0, (4, 3)))
        confidence, accuracy, samples = zip(*bins, strict=True)
        axes.plot(confidence, accuracy, color=canvas.PALETTE["blue"], linewidth=1.2)
        areas = [12 + 240 * count / sum(samples) for count in samples]
        axes.scatter(
            confidence, accuracy, s=areas, color=canvas.PALETTE["blue"], alpha=0.75, linewidths=0
        )
        axes.set(
            xlim=(0, 1.02),
            ylim=(0, 1.02),
            aspect="equal",
            xlabel="probability of the predicted grade",
        )
        axes.set_title(canvas.printable(title, longest=36), pad=6)
    every[0].set_ylabel("share predicted right")
    return figure


# The curves of a single run over its epochs.

# not those of predict, which recalibrates and may decode otherwise: the last value differs from the
# score of the run
SCORES = {
    "mae": "MAE of the networks' own grades, lower is better",
    "accuracy": "Accuracy of the networks' own grades",
}
OWN_GRADES = (
    "Own grades: the most likely ones. Scores elsewhere are of the grades that srjt predict gives."
)


def run_figures(
    metrics: pd.DataFrame,
    *,
    grades: Sequence[str],
    sides: Sequence[str] = ("test", "validation"),
    naive: NaiveBaseline | None = None,
    noise_rate: float | None = None,
    pooled: bool = False,
) -> list[canvas.CaptionedFigure]:
    """The curves of a run over its epochs.

    metrics: the table of the run. sides: that are shown. naive: one grade for all samples of the
    first of them that the run has. noise_rate: share of wrong training labels, if the true grades
    are known.
    """
    curves = partial(_curves, metrics, pooled=pooled)
    shown: list[tuple[str, str, list[canvas.Curve], tuple[float, str] | None]] = []
    for name, title in SCORES.items():
        level = None
        if naive is not None:
            level = (float(getattr(naive, name)), "one grade for all")
        shown.append((name, title, curves({side: (side, name) for side in sides}), level))
    shown.append(("loss", "Training loss", curves({"loss": ("train", "loss")}), None))
    recall = curves({"all": ("train", "label_recall")})
    if recall and recall[0].y.min() < 1:  # the method selects
        selected = curves({"selected": ("train", "label_precision")})
        by_grade = curves(
            {grade: ("train", f"label_recall[{n}]") for n, grade in enumerate(grades)}
        )
        shown.append(("label-precision", SELECTED, selected, no_selection(noise_rate)))
        shown.append(("selection-recall", SELECTION_RECALL, by_grade, None))
    figures = []
    for name, title, drawn, reference in shown:
        if drawn:
            figure = canvas.CaptionedFigure(
                name=name,
                figure=canvas.chart(drawn, xlabel="epoch", title=title, reference=reference),
                caption=OWN_GRADES if name == "mae" else "",  # once
                alt=f"Curve chart over epochs: {title}. {describe_ends(drawn)}",
            )
            figures.append(figure)
    return figures


def _curves(
    metrics: pd.DataFrame, which: Mapping[str, tuple[str, str]], *, pooled: bool
) -> list[canvas.Curve]:
    """The curves that have values. which: name → side and metric. metrics: the table of a run, may
    be empty."""
    curves: list[canvas.Curve] = []
    if metrics.empty:
        return curves
    for name, (side, metric) in which.items():
        values = canvas.mean_over_networks(
            metrics, split=side, metric=metric, pooled=pooled
        ).dropna()
        if len(values):
            curves.append(
                canvas.Curve(name=name, x=values.index.to_numpy(float), y=values.to_numpy(float))
            )
    return curves


# A run in one figure: learning curves beside the confusion matrix.

CURVES = 4.1  # inches of a panel of curves


@canvas.house_style
def run_overview(
    metrics: pd.DataFrame, judged: Evaluation | None, *, grades: Sequence[str], pooled: bool = False
) -> canvas.ShownFigure:
    """MAE and accuracy per epoch, and the confusion matrix of one side, as far as the run has them.

    metrics: the table of the run, may be empty. grades: names for display. pooled: as for
    ``last_epochs``.
    """
    panels = {}
    for name, title in SCORES.items():
        sides = {"test": ("test", name), "validation": ("validation", name)}
        if curves := _curves(metrics, sides, pooled=pooled):
            panels[title] = curves
    if not panels and judged is None:
        raise SrjtError(
            "There is nothing to plot: the run has neither scores per epoch nor a held-out side.",
            code="too_few",
        )
    widths = [CURVES] * len(panels)
    if judged is not None:
        widths.append(2.8)
    figure = canvas.new_figure(sum(widths), 2.9)
    every = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)
    for axes, (title, curves) in zip(every.ravel(), panels.items(), strict=False):
        canvas.panel(axes, curves, xlabel="epoch", title=title)
    if judged is not None:
        axes = every[0, -1]
        options = {**canvas.CONFUSION, "rows": ONE_LABEL[judged.judged_by]}
        canvas.draw_matrix(axes, judged.confusion, grades, **options)
        axes.set_title(f"Confusion matrix, {judged.side} side", pad=5)
    return figure


# A square panel for the curves of a decision, which the files of aspects draw.

SIDE = 2.7  # inches of a panel
Line = tuple[Any, Any, dict[str, Any]]  # x, y, options of plot
# the curve that the figure is about, and lines to compare it with
CURVE = {"color": canvas.PALETTE["blue"], "linewidth": 1.8, "zorder": 3}
THIN = {"color": canvas.GREY, "linewidth": 0.8}


@canvas.house_style
def square_panel(
    lines: Sequence[Line],
    *,
    xlabel: str,
    title: str,
    point: tuple[float, float] | None,
    ylim: tuple[float, float] = (0, 1.02),
    legend: bool = False,
    **texts: str,
) -> canvas.CaptionedFigure:
    """A square panel with x from 0 to 1. point: a dot on the curve. texts: name, caption and alt of
    the figure."""
    beside = 2.05 if legend else 0.8
    figure = canvas.new_figure(SIDE + beside, SIDE + 0.8)
    axes = figure.subplots()
    canvas.prepare_axes(
        axes, title, grid="both", xlabel=xlabel, xlim=(0, 1), ylim=ylim, box_aspect=1
    )
    for x, y, options in lines:
        axes.plot(x, y, **options)
    if point is not None and np.isfinite(point).all():
        axes.plot(
            *point,
            marker="o",
            markersize=6,
            color=canvas.PALETTE["vermillion"],
            clip_on=False,
            zorder=4,
        )
    if legend:  # beside the panel, where no curve passes
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            frameon=False,
            fontsize=8.5,
            handlelength=1.8,
        )
    return canvas.CaptionedFigure(figure=figure, **texts)


# Forest plots: the differences between runs, and the scores of groups, with their intervals.


def _clear_of_0(label: str, interval: Interval) -> canvas.Estimate:
    return canvas.Estimate(label, interval, interval.low > 0 or interval.high < 0)


def forest_figure(comparison: Comparison) -> canvas.CaptionedFigure:
    """Differences from the first run; metrics of which more is better above, the others below."""
    first = canvas.printable(comparison.runs[0])
    runs = comparison.runs[1:]
    shown = [row for row in comparison.differences if math.isfinite(row.difference.value)]
    panels: dict[str, list[canvas.Estimate]] = {}
    clear = 0
    for title, lower in (("more is better →", False), ("← less is better", True)):
        differences = [row for row in shown if METRICS[row.metric].lower_is_better == lower]
        if not differences:
            continue
        rows = panels.setdefault(title, [])
        for run in runs:
            if len(runs) > 1:
                rows.append(canvas.Estimate(run))
            for row in differences:
                if row.run == run:
                    rows.append(_clear_of_0(METRICS[row.metric].long_name, row.difference))
        clear += sum(row.clear for row in rows)
    resampled = "patients" if comparison.patients else "images"
    return canvas.CaptionedFigure(
        name="comparison",
        figure=canvas.interval_figure(
            panels,
            xlabel=f"difference from {canvas.printable(comparison.runs[0], longest=24)}",
        ),
        caption=(
            f"Difference from {first}, with the {100 * comparison.level:.0f} % interval over"
            f" {resampled}. Blue diamonds: the interval does not contain 0."
        ),
        alt=(
            f"Forest plot of {len(shown)} differences from {first}; {clear} intervals do not"
            " contain 0."
        ),
    )


# Several readers: who grades higher.


def bias_figure(names: Sequence[str], bias: canvas.Floats, intervals: canvas.Floats) -> Figure:
    """bias: (R,) in grades, with its interval (R, 2), NaN where there is none. The mildest reader
    at the bottom."""
    order = np.argsort(-bias, kind="stable")
    rows = [_clear_of_0(names[i], Interval(bias[i], *intervals[i])) for i in order]
    return canvas.interval_figure({"": rows}, xlabel="grades higher →")
