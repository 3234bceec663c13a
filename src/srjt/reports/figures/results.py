"""The figures of single results: a run, an evaluation with its decisions, a comparison of runs, several readers."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from srjt.errors import SrjtError
from srjt.inference.compare import Comparison, Difference
from srjt.inference.decide import Abstention, Decision
from srjt.inference.evaluate import Evaluation
from srjt.inference.subgroups import Subgroups
from srjt.ordinal.calibration import CalibrationBin
from srjt.ordinal.intervals import Interval
from srjt.ordinal.metrics import METRICS, NaiveBaseline
from srjt.reports.figures.canvas import (
    GREY,
    INK,
    PALE,
    PALETTE,
    SHADE,
    CaptionedFigure,
    Curve,
    chart,
    confusion_panel,
    correct_labels,
    house_style,
    mean_over_networks,
    new_figure,
    panel,
    printable,
    transition_figure,
)
from srjt.reports.figures.study import describe_ends

# Reliability diagrams: how often predictions are right, by how sure they are.

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


# The figures of a single run.


def combined_networks(metrics: pd.DataFrame, pooled: bool) -> Literal["", "mean", "pooled"]:
    """How the scores of the networks are combined: the mean, or pooled predictions; "" for one network."""
    networks = set(metrics.loc[metrics["split"].isin(["validation", "test"]), "network"])
    if pooled and "pooled" in networks:
        return "pooled"
    return "mean" if len(networks - {"ensemble", "pooled"}) > 1 else ""


def run_figures(
    metrics: pd.DataFrame,
    *,
    grades: Sequence[str],
    sides: Sequence[str] = ("test", "validation"),
    naive: NaiveBaseline | None = None,
    noise_rate: float | None = None,
    pooled: bool = False,
) -> list[CaptionedFigure]:
    """The curves of a run over its epochs.

    metrics: the table of the run. sides: that are shown. naive: one grade for all samples of the first of them that
    the run has. noise_rate: share of wrong training labels, if the true grades are known.
    """
    figures = []

    def curve(split: str, metric: str, label: str) -> list[Curve]:
        values = mean_over_networks(metrics, split=split, metric=metric, pooled=pooled).dropna()
        x, y = values.index.to_numpy(np.float64), values.to_numpy(np.float64)
        return [Curve(name=label, x=x, y=y)] if len(values) else []

    def add(
        name: str,
        title: str,
        curves: Sequence[Curve],
        level: float | None = None,
        text: str = "one grade for all",
    ) -> None:
        if curves:
            figure = chart(
                curves, xlabel="epoch", title=title, reference=None if level is None else (level, text)
            )
            alt = f"Curve chart over epochs: {title}. {describe_ends(curves)}"
            figures.append(CaptionedFigure(name=name, figure=figure, caption="", alt=alt))

    for name, title in (("mae", "Mean absolute error, lower is better"), ("accuracy", "Accuracy")):
        shown = [one for side in sides for one in curve(side, name, side)]
        add(name, title, shown, None if naive is None else float(getattr(naive, name)))
    add("loss", "Training loss", curve("train", "loss", "loss"))
    recall = curve("train", "label_recall", "all")
    if recall and recall[0].y.min() < 1:  # the method selects
        add(
            "label-precision",
            "Share of correct labels among the selected",
            curve("train", "label_precision", "selected"),
            None if noise_rate is None else 1 - noise_rate,
            "" if noise_rate is None else f"1 − ε = {1 - noise_rate:.2f}: no selection",
        )
        add(
            "selection-recall",
            "Share of correctly labelled samples that is selected",
            [c for n, grade in enumerate(grades) for c in curve("train", f"label_recall[{n}]", str(grade))],
        )
    return figures


def realised_noise_figure(matrix: npt.ArrayLike, grades: Sequence[str]) -> CaptionedFigure:
    """Training labels by true grade, matrix (C, C)."""
    shares = np.asarray(matrix, dtype=np.float64)
    return CaptionedFigure(
        name="noise",
        figure=transition_figure({"Realised": shares}, grades=grades),
        caption="Training labels (columns) by true grade (rows), as shares of each row.",
        alt=f"Transition matrix. {correct_labels(shares, grades)}",
    )


# A run in one figure: learning curves beside the confusion matrix.

HEIGHT, CURVES, MATRIX = 2.9, 4.1, 3.2  # inches
# not those of predict, which recalibrates and may decode otherwise: the last value differs from the score of the run
SHOWN = {"accuracy": "Accuracy of the networks' own grades", "mae": "MAE of the networks' own grades"}


class ShownFigure(Figure):
    """A figure that a notebook shows although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png", dpi=110)
        return png.getvalue()


@house_style
def run_overview(
    metrics: pd.DataFrame, judged: Evaluation | None, *, grades: Sequence[str], pooled: bool = False
) -> ShownFigure:
    """Accuracy and MAE per epoch, and the confusion matrix of one side, as far as the run has them.

    metrics: the table of the run, may be empty. grades: names for display. pooled: as for ``last_epochs``.
    """
    curves = {title: _curves(metrics, name, pooled=pooled) for name, title in SHOWN.items()}
    drawn = {title: found for title, found in curves.items() if found}
    width = CURVES * len(drawn) + (0.0 if judged is None else MATRIX)
    if not width:
        raise SrjtError("There is nothing to plot: the run has neither scores per epoch nor a held-out side.")
    figure = ShownFigure(figsize=(width, HEIGHT))
    FigureCanvasAgg(figure)
    for place, (title, found) in enumerate(drawn.items()):
        part = (place * CURVES / width, (place + 1) * CURVES / width)
        panel(figure, found, xlabel="epoch", title=title, part=part)
    if judged is not None:
        confusion_panel(
            figure,
            judged.confusion,
            grades=grades,
            title=f"Confusion matrix, {judged.side} side",
            rows=judged.judged_by.removesuffix("s"),
            left=CURVES * len(drawn),
        )
    return figure


def _curves(metrics: pd.DataFrame, metric: str, *, pooled: bool) -> list[Curve]:
    found = []
    for side in ("test", "validation") if len(metrics) else ():
        values = mean_over_networks(metrics, split=side, metric=metric, pooled=pooled).dropna()
        if len(values):
            x, y = values.index.to_numpy(np.float64), values.to_numpy(np.float64)
            found.append(Curve(name=side, x=x, y=y))
    return found


# The curves of a decision: ROC, precision and recall, net benefit, risk and coverage.

SIDE = 2.7  # inches of a panel


def decision_figures(decision: Decision, *, grade: str) -> list[CaptionedFigure]:
    """ROC and precision–recall curves where they exist, and the decision curve.

    grade: how people read the grade from which samples are referred.
    """
    figures = []
    sensitivity, specificity, precision, _ = (
        decision.operating_point[name]
        for name in ("sensitivity", "specificity", "positive_predictive_value", "negative_predictive_value")
    )
    if decision.roc is not None:
        area = decision.areas["roc_area"]
        figures.append(
            CaptionedFigure(
                name="roc",
                figure=_square(
                    decision.roc.false_positive_rate, decision.roc.sensitivity,
                    xlabel="1 − specificity", title="Sensitivity", diagonal=True,
                    point=(1 - specificity.value, sensitivity.value),
                ),
                caption=f"ROC curve of the referral from grade {grade} on; area {_text(area)}. The dot is the "
                "operating point, the line that of a random decision.",
                alt=f"ROC curve, area {area.value:.3f}.",
            )
        )  # fmt: skip
    if decision.precision_recall is not None:
        area = decision.areas["average_precision"]
        curve = decision.precision_recall
        figures.append(
            CaptionedFigure(
                name="precision-recall",
                figure=_square(
                    np.append(0.0, curve.sensitivity), np.append(curve.precision[0], curve.precision),
                    xlabel="sensitivity (recall)", title="Positive predictive value (precision)",
                    level=decision.positives / decision.samples,
                    point=(sensitivity.value, precision.value), steps=True,
                ),
                caption=f"Precision and recall of the referral from grade {grade} on; average precision "
                f"{_text(area)}. The dot is the operating point, the line the share of samples to refer.",
                alt=f"Precision–recall curve, average precision {area.value:.3f}.",
            )
        )  # fmt: skip
    bottom, _ = _range_shown(decision)
    cut = bool(np.nanmin(decision.net_benefit.model) < bottom)
    figures.append(
        CaptionedFigure(
            name="decision-curve",
            figure=_net_benefit(decision),
            caption=f"Decision curve of the referral from grade {grade} on: net benefit per sample if a missed one "
            "weighs as much as (1 − threshold)/threshold needless referrals."
            + (f" The model's curve is cut off below {bottom:.2f}.".replace("-", "−") if cut else ""),
            alt="Net benefit of the model, of referring everyone and of referring nobody, by threshold.",
        )
    )
    return figures


def risk_coverage_figure(abstention: Abstention) -> CaptionedFigure:
    """The share of wrong answers among the most confident samples."""
    answers = "referrals" if abstention.about == "referral" else "grades"
    marked = "" if abstention.wanted is None else f" The dot leaves {abstention.share:.1%} to a person."
    return CaptionedFigure(
        name="risk-coverage",
        figure=_risk_coverage(abstention),
        caption=f"Share of wrong {answers} if the least confident answers are left to a person.{marked}",
        alt=f"Risk–coverage curve; without abstention {abstention.curve.risk[-1]:.3f} of the {answers} are wrong.",
    )


def _text(area: Interval) -> str:
    return f"{area.value:.3f} ({area.low:.3f} – {area.high:.3f})"


@house_style
def _square(
    x: Any,
    y: Any,
    *,
    xlabel: str,
    title: str,
    point: tuple[float, float],
    diagonal: bool = False,
    level: float | None = None,
    steps: bool = False,
) -> Figure:
    figure, axes = _panel(xlabel=xlabel, title=title)
    if diagonal:
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    if level is not None:
        axes.axhline(level, color=GREY, linewidth=0.8)
    axes.plot(x, y, color=PALETTE["blue"], linewidth=1.8, drawstyle="steps-pre" if steps else "default")
    if np.isfinite(point).all():
        axes.plot(*point, marker="o", markersize=6, color=PALETTE["vermillion"], clip_on=False, zorder=4)
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure


def _range_shown(decision: Decision) -> tuple[float, float]:
    """The net benefits that the figure shows: all of the model's, but none below the least that is worth showing.

    Near a threshold of 1 a single needless referral costs more than all others together.
    """
    highest = max(decision.positives / decision.samples, 0.02)
    lowest = 1.05 * float(np.nanmin(decision.net_benefit.model))
    return max(-highest, min(-0.25 * highest, lowest)), 1.08 * highest


@house_style
def _net_benefit(decision: Decision) -> Figure:
    figure, axes = _panel(xlabel="threshold", title="Net benefit", right=1.5)
    curve = decision.net_benefit
    bottom, top = _range_shown(decision)
    axes.plot(curve.threshold, curve.model, color=PALETTE["blue"], linewidth=1.8, label="model", zorder=3)
    axes.plot(curve.threshold, curve.refer_all, color=GREY, linewidth=1.2, linestyle=(0, (5, 2)),
              label="refer everyone")  # fmt: skip
    axes.axhline(0.0, color=INK, linewidth=0.8, label="refer nobody")
    axes.set(xlim=(0, 1), ylim=(bottom, top))
    if decision.threshold is not None and 0 < decision.threshold < 1:
        at = float(np.interp(decision.threshold, curve.threshold, curve.model))
        if bottom <= at:
            axes.plot(
                [decision.threshold], [at], marker="o", markersize=6, color=PALETTE["vermillion"], zorder=4
            )
    # beside the panel, where no curve passes
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8.5, handlelength=1.8)
    return figure


@house_style
def _risk_coverage(abstention: Abstention) -> Figure:
    figure, axes = _panel(xlabel="share of samples with an answer", title="Share of wrong answers")
    coverage, risk = abstention.curve
    axes.plot(coverage, risk, color=PALETTE["blue"], linewidth=1.8)
    if abstention.wanted is not None and abstention.share < 1:
        at = float(np.interp(1 - abstention.share, coverage, risk))
        axes.plot([1 - abstention.share], [at], marker="o", markersize=6, color=PALETTE["vermillion"],
                  clip_on=False, zorder=4)  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, max(1.1 * float(risk.max()), 0.01)))
    return figure


def _panel(*, xlabel: str, title: str, right: float = 0.25) -> tuple[Figure, Any]:
    left, bottom, top = 0.55, 0.5, 0.3
    width, height = left + SIDE + right, bottom + SIDE + top
    figure = new_figure(width, height)
    axes = figure.add_axes((left / width, bottom / height, SIDE / width, SIDE / height))
    axes.set_xlabel(xlabel)
    axes.set_title(title, pad=8)
    axes.grid(color=GREY, alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


# A forest plot: the differences between runs with their intervals.

FOREST_ROW = 0.26  # inches of a row
LETTER = 0.073


def forest_figure(comparison: Comparison) -> CaptionedFigure:
    """Differences from the first run; metrics of which more is better above, the others below."""
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
    drawn = {title: _forest_rows(rows, runs) for title, rows in panels.items() if rows}
    longest = max(len(METRICS[row.metric].long_name) for row in shown) if shown else 1
    left, wide, bottom, top = 0.15 + LETTER * longest, 2.0, 0.5, 0.35
    width = left + wide + 0.2
    height = sum(bottom + top + FOREST_ROW * len(rows) for rows in drawn.values()) or 1.0
    figure = new_figure(width, height)
    axes, y = None, height
    for title, rows in drawn.items():
        y -= top + FOREST_ROW * len(rows)
        box = (left / width, y / height, wide / width, FOREST_ROW * len(rows) / height)
        axes = figure.add_axes(box, sharex=axes)
        _draw_forest(axes, rows, at=0.0)
        axes.set_title(title, pad=8)
        y -= bottom
    if axes is not None:
        axes.set_xlabel(f"difference from {printable(comparison.runs[0], longest=24)}", labelpad=2)
    return figure


class ForestRow(NamedTuple):
    """A number with its interval, or a heading; clear: whether it is more than chance."""

    label: str
    interval: Interval | None = None
    clear: bool = False


def _forest_rows(differences: list[Difference], runs: tuple[str, ...]) -> list[ForestRow]:
    rows = []
    for run in runs:
        rows += [ForestRow(printable(run, longest=30))] if len(runs) > 1 else []
        for row in (row for row in differences if row.run == run):
            clear = row.difference.low > 0 or row.difference.high < 0
            rows.append(ForestRow(METRICS[row.metric].long_name, row.difference, clear))
    return rows


def _draw_forest(axes: Any, rows: Sequence[ForestRow], *, at: float) -> None:
    """Rows from top to bottom. at: where the vertical line is."""
    axes.axvline(at, color=INK, linewidth=0.8)
    axes.grid(axis="x", color=GREY, alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)
    for place, row in enumerate(rows):
        if row.interval is None:
            continue
        value, low, high = row.interval
        colour = PALETTE["blue"] if row.clear else GREY
        if math.isfinite(low):
            axes.plot([low, high], [place, place], color=colour, linewidth=1.6, solid_capstyle="round")
        axes.plot([value], [place], marker="D" if row.clear else "o", markersize=5, color=colour)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_fontweight("bold" if row.interval is None else "normal")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=5)
    axes.margins(x=0.08)


def subgroup_figure(subgroups: Subgroups, *, all_samples: float) -> CaptionedFigure:
    """The mean absolute error of every group. all_samples: that of all."""
    rows, nothing = [], Interval(math.nan, math.nan, math.nan)
    for column, groups in itertools.groupby(subgroups.groups, key=lambda group: group.column):
        rows.append(ForestRow(printable(column, longest=24)))
        for group in groups:
            name = printable(group.name, longest=24) + (" (too few)" if group.too_few else "")
            clear = bool(group.gaps) and group.gaps["mae"].adjusted <= 0.05
            rows.append(ForestRow(name, group.scores.get("mae", nothing), clear))
    differing = sum(row.clear for row in rows)
    return CaptionedFigure(
        name="subgroups",
        figure=_draw_subgroups(rows, all_samples),
        caption="Mean absolute error with its 95 % interval over patients; the line is that of all samples. Blue "
        "diamonds: the gap to all others is more than chance, after Holm's correction.",
        alt=f"Forest plot of {len(subgroups.groups)} groups; {differing} differ from the rest.",
    )


@house_style
def _draw_subgroups(rows: Sequence[ForestRow], all_samples: float) -> Figure:
    left, wide, bottom, top = 0.15 + LETTER * max(len(row.label) for row in rows), 2.6, 0.5, 0.1
    width, height = left + wide + 0.2, bottom + top + FOREST_ROW * len(rows)
    figure = new_figure(width, height)
    box = (left / width, bottom / height, wide / width, FOREST_ROW * len(rows) / height)
    axes = figure.add_axes(box)
    _draw_forest(axes, rows, at=all_samples)
    axes.set_xlabel("mean absolute error", labelpad=2)
    return figure


# Figures of several readers: how well each two agree, who grades higher, and what changes over time.

Floats = npt.NDArray[np.float64]
CELL = 0.42  # inches
READER_ROW = 0.24  # inches
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
    width, height = label + 3.6, 0.6 + READER_ROW * len(names)
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
