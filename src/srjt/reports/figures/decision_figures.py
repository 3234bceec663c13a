"""The curves of a decision: ROC, precision and recall, net benefit, risk and coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from srjt.inference.abstain import Abstention
from srjt.inference.decide import Decision
from srjt.ordinal.intervals import Interval
from srjt.reports.figures.canvas import GREY, INK, PALETTE, CaptionedFigure, house_style, new_figure

__all__ = ["decision_figures", "risk_coverage_figure"]

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
