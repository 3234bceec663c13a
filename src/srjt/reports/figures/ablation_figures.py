"""Why hard selection is better, epoch by epoch: the ablation's cells side by side, a panel for each host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from srjt.reports.figures.canvas import PALETTE, Drawing
from srjt.reports.figures.curves import Curve, small_multiples
from srjt.reports.figures.method_curves import BAND, curves, file_name, incomplete, line_name, rates, under
from srjt.reports.figures.styles import Style
from srjt.reports.tables.ablation import CELLS, MethodVariant, Usage, ablation
from srjt.reports.tables.results import METRIC_NAMES
from srjt.studies.paper import display_name

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

__all__ = ["CELL_STYLES", "ablation_figures"]

# The selecting loss has the colour and the marker, the updating one the dashes and the filling. So "+ours" is
# full and its host dashed, as in every other figure.
CELL_STYLES = {
    (select, update): Style(
        colour=PALETTE["blue" if select == "hard" else "vermillion"],
        marker="o" if select == "hard" else "s",
        dashes="-" if update == "soft" else (0, (5, 2)),
        filled=update == "soft",
        width=2.0 if (select, update) == ("hard", "soft") else 1.5,
        bold=(select, update) == ("hard", "soft"),
    )
    for select, update in CELLS
}
SUBTITLE = "each line: loss that selects/loss that updates; hard/hard is the host, hard/soft is + Ours"
KEY = (
    "Each line is called by the loss that selects and the loss that updates: hard/hard is the host itself, hard/soft "
    "is “+ Ours”. Circles: hard selection, squares: soft selection; full lines: soft updating, dashed: hard updating"
)


def ablation_figures(results: StudyResults, noise: str) -> list[Drawing]:
    """Label precision and test MAE over epochs; nothing where no run selects by the soft loss."""
    if not _hosts(results, noise):
        return []
    m = results.metrics
    results = replace(results, metrics=m[m["noise"] == noise])  # a study may have millions of rows
    drawings = (_label_precision(results, noise), _test_mae(results, noise))
    return [drawing for drawing in drawings if drawing is not None]


def _hosts(results: StudyResults, noise: str) -> dict[str, dict[Usage, MethodVariant]]:
    """Of the ablation those that also select by the soft loss: of the others the usual figures show all there is."""
    runs = results.runs[results.runs["noise"] == noise]
    found = ablation(zip(runs["method"], runs["variant"], strict=True))
    return {host: cells for host, cells in found.items() if any(select == "soft" for select, _ in cells)}


def _label_precision(results: StudyResults, noise: str) -> Drawing | None:
    rate = rates(results).get(noise)
    level = None if rate is None else (1 - rate, f"1 − ε = {1 - rate:.2f}")
    return _drawing(
        results,
        noise,
        split="train",
        metric="label_precision",
        title="Share of correct labels among the selected, by selection and updating",
        said=f"Label precision of the selection {under(noise)}: the share of truly clean samples among those learnt "
        "from.",
        reference=level,
        closing="" if level is None else " The thin line at 1 − ε is what no selection gives.",
    )


def _test_mae(results: StudyResults, noise: str) -> Drawing | None:
    name = METRIC_NAMES["mae"][1]
    return _drawing(
        results,
        noise,
        split="test",
        metric="mae",
        title=f"Test {name}, by selection and updating",
        said=f"Test {name} {under(noise)}, mean over folds and networks; lower is better.",
    )


def _drawing(
    results: StudyResults,
    noise: str,
    *,
    split: str,
    metric: str,
    title: str,
    said: str,
    reference: tuple[float, str] | None = None,
    closing: str = "",
) -> Drawing | None:
    panels: dict[str, list[Curve]] = {}
    styles: dict[str, Style] = {}
    missing: dict[str, str] = {}
    for host, cells in _hosts(results, noise).items():
        sources = {source: "/".join(usage) for usage, source in cells.items()}
        lines, short = curves(results, noise, split=split, metric=metric, sources=sources)
        if lines:
            panels[display_name(host)] = lines
        styles |= {line_name(source): CELL_STYLES[usage] for usage, source in cells.items()}
        missing |= {f"{display_name(host)} {label}": what for label, what in short.items()}
    if not panels:
        return None
    return Drawing(
        name=file_name(f"ablation-{metric.replace('_', '-')}-{noise}"),
        figure=small_multiples(
            panels, styles=styles, xlabel="epoch", title=title, subtitle=SUBTITLE, reference=reference
        ),
        caption=f"{said} {KEY}; {BAND}.{closing}" + incomplete(missing),
        alt=f"Curve charts, one for each host, {under(noise)}: {title}. At the end: "
        + "; ".join(
            f"{host}: " + ", ".join(f"{line.label} {line.y[-1]:.3f}" for line in lines)
            for host, lines in panels.items()
        )
        + ".",
    )
