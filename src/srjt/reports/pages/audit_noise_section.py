"""The section about the noise on the page of an audit: rate, form, matrix, and how likely labels are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from srjt.auditing.caveat import judges_labels
from srjt.auditing.headline import estimated_from, form_sentence, label_noun
from srjt.auditing.scores import verified_alone
from srjt.errors import count_of
from srjt.reports.figures.canvas import GREY, PALETTE, CaptionedFigure, house_style, new_figure
from srjt.reports.figures.matrices import matrix_figure
from srjt.reports.pages.html import Section

__all__ = ["noise_section"]

BINS = 20


def noise_section(facts: Mapping[str, Any], summary: Mapping[str, Any], scores: pd.DataFrame) -> Section:
    low, high = summary["rate_interval"]
    judged = judges_labels(summary)
    grades = [str(grade) for grade in facts["grades"]]
    known = summary.get("known")
    panels = {}
    term = "noise rate, without the single readings" if "readings" in summary else "noise rate"
    if judged or summary["identifiable"]:
        guess = "" if summary["identifiable"] else "a guess: "
        entries = [
            (term, f"{guess}{summary['rate']:.1%} (95 % interval: {low:.1%} to {high:.1%})"),
            *_verified_entry(summary),
            ("likeliest form of noise", form_sentence(summary)),
        ]
        panels["Estimated"] = np.asarray(summary["matrix"], dtype=np.float64)
    else:
        entries = [(term, f"not determined: {low:.1%} to {high:.1%}"), *_verified_entry(summary)]
    if judged:
        entries.append(
            (
                f"expected wrong {label_noun(summary)}s",
                f"{summary['expected_errors']:,.0f} of {summary['samples']:,}",
            )
        )
    if known is not None:
        entries.append(("known wrong labels", f"{known['wrong']:,} of {summary['samples']:,}"))
        if "average_precision" in known:
            entries.append(
                (
                    "ranking",
                    f"average precision {known['average_precision']:.1%} (by chance {known['rate']:.1%}); of the "
                    f"{known['wrong']:,} most doubtful labels {known['precision_at_wrong']:.1%} are wrong",
                )
            )
        panels["Known"] = _known_matrix(scores, grades)
    return Section(
        slug="noise",
        heading="Noise",
        text=[_source(facts, readers="readings" in summary)] if "epochs" in facts else [],
        facts=entries,
        figures=[
            *([_matrix(panels, grades)] if panels else []),
            *([_quality(scores["quality"].to_numpy(np.float64))] if judged else []),
        ],
    )


def _matrix(panels: Mapping[str, npt.NDArray[np.float64]], grades: Sequence[str]) -> CaptionedFigure:
    kind, matrix = next(iter(panels.items()))
    rows = (
        f"{grade}: {', '.join(f'{p:.2f}' for p in row)}" for grade, row in zip(grades, matrix, strict=True)
    )
    return CaptionedFigure(
        name="matrix",
        figure=matrix_figure(
            panels,
            grades=grades,
            rows="true grade",
            columns="label",
            write=lambda value, share: f"{value:.2f}",
        ),
        caption="The probability of each label (column) for each true grade (row). The diagonal is correct labels.",
        alt=f"{kind} probability of each label for each true grade: {'; '.join(rows)}",
    )


def _quality(quality: npt.NDArray[np.float64]) -> CaptionedFigure:
    return CaptionedFigure(
        name="quality",
        figure=_histogram(quality),
        caption="The probability that each label is right. Review those on the left.",
        alt=f"Histogram of label quality; below 0.5: {count_of(int((quality < 0.5).sum()), 'label')}.",
    )


def _source(facts: Mapping[str, Any], *, readers: bool) -> str:
    return estimated_from(
        samples=int(facts["samples"]),
        folds=int(facts["folds"]),
        epochs=int(facts["epochs"]),
        readers=readers,
    )


def _verified_entry(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "verified" not in summary:
        return []
    return [("verified labels alone", verified_alone(summary["verified"]))]


def _known_matrix(scores: pd.DataFrame, grades: Sequence[str]) -> npt.NDArray[np.float64]:
    """(C, C) proportions of the labels for each known true grade."""
    counts = pd.crosstab(scores["true_grade"], scores["grade"]).reindex(
        index=list(grades), columns=list(grades), fill_value=0
    )
    joint = counts.to_numpy(np.float64)
    return np.asarray(joint / np.maximum(joint.sum(axis=1, keepdims=True), 1))


@house_style
def _histogram(quality: npt.NDArray[np.float64]) -> Figure:
    figure = new_figure(4.6, 2.5)
    axes = figure.add_axes((0.16, 0.19, 0.81, 0.75))
    counts, edges = np.histogram(quality, bins=BINS, range=(0, 1))
    colours = [PALETTE["vermillion"] if edge < 0.5 - 1e-9 else PALETTE["blue"] for edge in edges[:-1]]
    axes.bar(edges[:-1], counts, width=0.9 / BINS, align="edge", color=colours, alpha=0.8)
    axes.axvline(0.5, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), xlabel="quality: probability that the label is right", ylabel="labels")
    return figure
