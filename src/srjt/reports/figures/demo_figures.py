"""The figures of the demo: where the labels are wrong, who is best, who learns the mistakes, what the audit finds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from srjt.reports.demo.facts import BINS, AuditFacts, SeedFacts
from srjt.reports.demo.findings import Ranking, precision_at
from srjt.reports.figures.canvas import GREY, INK, PALETTE, CaptionedFigure, house_style, new_figure
from srjt.reports.figures.curves import Curve, chart
from srjt.reports.figures.styles import method_styles

__all__ = ["precision_figure", "ranking_figure", "repeated_figure", "severity_figure"]


def severity_figure(seeds: Sequence[SeedFacts]) -> CaptionedFigure:
    """The share of wrong labels by severity."""
    images, mild, severe = (
        np.sum([getattr(one.labels, name) for one in seeds], axis=0) for name in ("images", "mild", "severe")
    )
    mild, severe = mild / np.maximum(images, 1), severe / np.maximum(images, 1)
    return CaptionedFigure(
        name="demo-labels",
        figure=_draw_severity(mild, severe),
        caption="Share of wrong labels by true severity, all seeds together. Grades change at the vertical lines.",
        alt=f"Bars of the share of wrong labels by severity; the highest is {np.max(mild + severe):.0%}.",
    )


@house_style
def _draw_severity(mild: np.ndarray, severe: np.ndarray) -> Figure:
    figure = new_figure(5.4, 2.8)
    axes = figure.add_axes((0.1, 0.18, 0.87, 0.7))
    at = (np.arange(len(mild)) + 0.5) / BINS
    axes.bar(at, mild, width=0.8 / BINS, color=PALETTE["blue"], alpha=0.85)
    axes.bar(at, severe, bottom=mild, width=0.8 / BINS, color=PALETTE["vermillion"], alpha=0.85)
    for boundary in range(1, len(mild) // BINS):
        axes.axvline(boundary, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xlabel="true severity; grade 0 from 0 to 1, grade 1 from 1 to 2, …", xlim=(0, len(mild) / BINS))
    axes.set_title("Share of wrong labels", pad=8)
    top = float(np.max(mild + severe, initial=0.05))
    axes.set_ylim(0, 1.25 * top)
    axes.text(0.02, 0.97, "■ too mild", color=PALETTE["blue"], transform=axes.transAxes, va="top")
    axes.text(0.2, 0.97, "■ too severe", color=PALETTE["vermillion"], transform=axes.transAxes, va="top")
    return figure


def ranking_figure(ranking: Ranking, values: Mapping[str, Sequence[float]]) -> CaptionedFigure:
    """Each method's MAE: a dot per seed, the mean and its interval."""
    return CaptionedFigure(
        name="demo-mae",
        figure=_draw_ranking(ranking, values),
        caption="MAE on the test images: dots are seeds, diamonds their means, bars 95 % intervals over seeds.",
        alt="Mean absolute error: "
        + ", ".join(f"{name} {ranking.means[name].value:.3f}" for name in ranking.order)
        + ".",
    )


@house_style
def _draw_ranking(ranking: Ranking, values: Mapping[str, Sequence[float]]) -> Figure:
    figure = new_figure(5.4, 0.75 + 0.42 * len(ranking.order))
    left = 0.15 + 0.075 * max(map(len, ranking.order))
    width, height = figure.get_size_inches()
    axes = figure.add_axes((left / width, 0.45 / height, 0.97 - left / width, 1 - 0.55 / height))
    styles = method_styles(sorted(ranking.order))
    for place, name in enumerate(ranking.order):
        colour = styles[name].colour
        mean, low, high = ranking.means[name]
        axes.scatter(
            values[name], [place + 0.2] * len(values[name]), s=12, color=colour, alpha=0.55, linewidth=0
        )
        if math.isfinite(low):
            axes.plot([low, high], [place, place], color=colour, linewidth=2, solid_capstyle="round")
        axes.plot([mean], [place], marker="D", markersize=6, color=colour)
    axes.set_ylim(len(ranking.order) - 0.5, -0.5)
    axes.set_yticks(range(len(ranking.order)), ranking.order)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GREY, alpha=0.22, linewidth=0.6)
    axes.set_xlabel("MAE; less is better")
    return figure


def repeated_figure(
    curves: Mapping[str, Sequence[Sequence[float]]], *, unseen: float | None
) -> CaptionedFigure:
    """The share of wrong labels that the networks repeat, by epoch. curves: method → (S, E)."""
    drawn = []
    for name, rows in curves.items():
        values = np.asarray(rows, dtype=np.float64)
        spread = values.std(axis=0) if len(values) > 1 else None
        epochs = np.arange(1, values.shape[1] + 1, dtype=np.float64)
        drawn.append(Curve(name=name, x=epochs, y=values.mean(axis=0), spread=spread))
    reference = None if unseen is None else (unseen, "never seen")
    bands = "; bands: one standard deviation" if any(curve.spread is not None for curve in drawn) else ""
    return CaptionedFigure(
        name="demo-repeated",
        figure=chart(
            drawn,
            xlabel="epoch",
            title="Share of the wrong training labels that the networks repeat",
            styles=method_styles(sorted(curves)),
            reference=reference,
        ),
        caption=f"Mean over the seeds{bands}. A network repeats a label if its most likely grade is that label.",
        alt="At the end: " + ", ".join(f"{curve.name} {curve.y[-1]:.0%}" for curve in drawn) + ".",
    )


def precision_figure(facts: AuditFacts) -> CaptionedFigure:
    """Precision among the k most doubtful labels."""
    return CaptionedFigure(
        name="demo-audit",
        figure=_draw_precision(facts),
        caption="The share of wrong labels among the k most doubtful ones, beside that of a random choice.",
        alt=f"Precision {precision_at(facts.wrong_by_rank, 20):.0%} at 20 labels, "
        f"{precision_at(facts.wrong_by_rank, facts.wrong):.0%} at {facts.wrong}.",
    )


@house_style
def _draw_precision(facts: AuditFacts) -> Figure:
    figure = new_figure(5.4, 2.8)
    axes = figure.add_axes((0.1, 0.18, 0.87, 0.7))
    found = np.cumsum(facts.wrong_by_rank) / np.arange(1, facts.labels + 1)
    first = min(10, facts.labels)  # before, one label more or less is a jump
    axes.plot(np.arange(first, facts.labels + 1), found[first - 1 :], color=PALETTE["blue"], linewidth=1.8)
    chance = facts.wrong / facts.labels
    axes.axhline(chance, color=INK, linewidth=0.8)
    axes.annotate("random choice", (1, chance), xycoords=("axes fraction", "data"), xytext=(-2, -3), fontsize=8,
                  textcoords="offset points", ha="right", va="top")  # fmt: skip
    axes.set(xlabel="k, the number of labels looked at", ylim=(0, 1.03), xlim=(0, facts.labels))
    axes.set_title("Share of wrong labels among the k most doubtful", pad=8)
    axes.grid(axis="y", color=GREY, alpha=0.22, linewidth=0.6)
    return figure
