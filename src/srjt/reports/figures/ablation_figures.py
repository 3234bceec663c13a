"""Figures of the ablation, hard or soft loss for selection and update: one panel per host."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from srjt.reports.figures.canvas import PALETTE, CaptionedFigure
from srjt.reports.figures.curves import Curve, small_multiples
from srjt.reports.figures.method_curves import (
    curve_name,
    file_name,
    incomplete_note,
    method_curves,
    nominal_rates,
    spread_note,
)
from srjt.reports.figures.styles import Style
from srjt.reports.noise_names import noise_phrase
from srjt.reports.tables.ablation import LOSS_USAGES, LossUsage, MethodVariant, ablation
from srjt.reports.tables.statistics import METRIC_NAMES
from srjt.studies.paper import display_name

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

__all__ = ["USAGE_STYLES", "ablation_figures"]

# The loss for selection gives colour and marker, the loss for the update dashes and filling. So "+ours" is solid and
# its host dashed, as in every other figure.
USAGE_STYLES = {
    (select, update): Style(
        colour=PALETTE["blue" if select == "hard" else "vermillion"],
        marker="o" if select == "hard" else "s",
        dashes="-" if update == "soft" else (0, (5, 2)),
        filled=update == "soft",
        width=2.0 if (select, update) == ("hard", "soft") else 1.5,
        bold=(select, update) == ("hard", "soft"),
    )
    for select, update in LOSS_USAGES
}
SUBTITLE = "each curve: loss for selection/loss for the update; hard/hard is the host, hard/soft is + Ours"
KEY = (
    "Each curve is named after the loss for selection and the loss for the update: hard/hard is the host itself, "
    "hard/soft is “+ Ours”. Circles: hard selection, squares: soft selection; solid lines: soft update, dashed: hard "
    "update"
)


def ablation_figures(results: StudyResults, noise: str) -> list[CaptionedFigure]:
    """Label precision and test MAE over epochs; no figures if no run selects by the soft loss."""
    if not _hosts(results, noise):
        return []
    metrics = results.metrics
    results = replace(
        results, metrics=metrics[metrics["noise"] == noise]
    )  # a study may have millions of rows
    figures = (_label_precision(results, noise), _test_mae(results, noise))
    return [figure for figure in figures if figure is not None]


def _hosts(results: StudyResults, noise: str) -> dict[str, dict[LossUsage, MethodVariant]]:
    """The hosts of the ablation that also select by the soft loss; other figures show the rest."""
    runs = results.runs[results.runs["noise"] == noise]
    found = ablation(zip(runs["method"], runs["variant"], strict=True))
    return {host: usages for host, usages in found.items() if any(select == "soft" for select, _ in usages)}


def _label_precision(results: StudyResults, noise: str) -> CaptionedFigure | None:
    rate = nominal_rates(results).get(noise)
    level = None if rate is None else (1 - rate, f"1 − ε = {1 - rate:.2f}")
    return _figure(
        results,
        noise,
        split="train",
        metric="label_precision",
        title="Share of correct labels among the selected, by selection and updating",
        summary=f"Label precision of the selection {noise_phrase(noise)}: the share of selected samples whose label is "
        "correct.",
        reference=level,
        closing="" if level is None else " The thin line at 1 − ε is the label precision without selection.",
    )


def _test_mae(results: StudyResults, noise: str) -> CaptionedFigure | None:
    name = METRIC_NAMES["mae"][1]
    return _figure(
        results,
        noise,
        split="test",
        metric="mae",
        title=f"Test {name}, by selection and updating",
        summary=f"Test {name} {noise_phrase(noise)}, mean over folds and networks; lower is better.",
    )


def _figure(
    results: StudyResults,
    noise: str,
    *,
    split: str,
    metric: str,
    title: str,
    summary: str,
    reference: tuple[float, str] | None = None,
    closing: str = "",
) -> CaptionedFigure | None:
    panels: dict[str, list[Curve]] = {}
    styles: dict[str, Style] = {}
    missing: dict[str, str] = {}
    for host, usages in _hosts(results, noise).items():
        labels = {source: "/".join(usage) for usage, source in usages.items()}
        curves, missing_runs = method_curves(results, noise, split=split, metric=metric, labels=labels)
        if curves:
            panels[display_name(host)] = curves
        styles |= {curve_name(source): USAGE_STYLES[usage] for usage, source in usages.items()}
        missing |= {f"{display_name(host)} {label}": what for label, what in missing_runs.items()}
    if not panels:
        return None
    return CaptionedFigure(
        name=file_name(f"ablation-{metric.replace('_', '-')}-{noise}"),
        figure=small_multiples(
            panels, styles=styles, xlabel="epoch", title=title, subtitle=SUBTITLE, reference=reference
        ),
        caption=f"{summary} {KEY}{spread_note(itertools.chain(*panels.values()))}.{closing}"
        + incomplete_note(missing),
        alt=f"Curve charts, one for each host, {noise_phrase(noise)}: {title}. At the end: "
        + "; ".join(
            f"{host}: " + ", ".join(f"{curve.label} {curve.y[-1]:.3f}" for curve in curves)
            for host, curves in panels.items()
        )
        + ".",
    )
