"""The figures of a single run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.curves import Curve, chart, mean_over_networks
from srjt.reports.figures.matrices import confusion_figure, correct_labels, transition_figure
from srjt.reports.figures.method_curves import describe_ends
from srjt.training.record.metrics_log import kept_epoch

__all__ = ["combined_networks", "run_figures"]


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
    noise_rate: float | None = None,
    confusion: npt.ArrayLike | None = None,
    noise_matrix: npt.ArrayLike | None = None,
    pooled: bool = False,
    note: str = "",
) -> list[CaptionedFigure]:
    """metrics: the table of the run. confusion: (C, C) counts on the test side. noise_rate, noise_matrix: realised
    rate and (C, C) matrix of the training labels, if the true grades are known. note: which labels the sides are
    evaluated against, a sentence for the captions."""
    figures = []

    def curve(split: str, metric: str, label: str) -> list[Curve]:
        values = mean_over_networks(metrics, split=split, metric=metric, pooled=pooled).dropna()
        x, y = values.index.to_numpy(np.float64), values.to_numpy(np.float64)
        return [Curve(name=label, x=x, y=y)] if len(values) else []

    def add(name: str, title: str, curves: Sequence[Curve], caption: str, level: float | None = None) -> None:
        if curves:
            reference = None if level is None else (level, f"1 − ε = {level:.2f}: no selection")
            figure = chart(curves, xlabel="epoch", title=title, reference=reference)
            alt = f"Curve chart over epochs: {title}. {describe_ends(curves)}"
            figures.append(CaptionedFigure(name=name, figure=figure, caption=caption.strip(), alt=alt))

    accuracy, mae = (
        curve("test", m, "test") + curve("validation", m, "validation") for m in ("accuracy", "mae")
    )
    over = {"mean": ", mean over the networks", "pooled": ", networks pooled"}.get(
        combined_networks(metrics, pooled), ""
    )
    add("accuracy", "Accuracy", accuracy, f"Accuracy after each epoch{over}. {note}")
    add(
        "mae",
        "Mean absolute error",
        mae,
        f"MAE after each epoch{over}. Lower is better. {note}",
    )
    recall = curve("train", "label_recall", "all")
    if recall and recall[0].y.min() < 1:  # the method selects
        add(
            "label-precision",
            "Share of correct labels among the selected",
            curve("train", "label_precision", "selected"),
            "Label precision: the share of selected samples whose label is correct.",
            None if noise_rate is None else 1 - noise_rate,
        )
        add(
            "selection-recall",
            "Share of correctly labelled samples that is selected",
            [c for n, grade in enumerate(grades) for c in curve("train", f"label_recall[{n}]", str(grade))],
            "Selection recall per grade: the share of its correctly labelled samples that is selected.",
        )
    if confusion is not None:
        counts = np.asarray(confusion, dtype=np.float64)
        kept = kept_epoch(metrics)
        after = "the last epoch" if kept is None else f"epoch {kept}, whose networks were kept"
        figures.append(
            CaptionedFigure(
                name="confusion",
                figure=confusion_figure({"Test side": counts}, grades=grades),
                caption=f"Confusion matrix on the test side after {after}{', networks pooled' if over else ''}. "
                "Colour and percentage: share of the row; below it the count.",
                alt=f"Confusion matrix. Share predicted correctly: {np.trace(counts) / max(counts.sum(), 1):.2f}.",
            )
        )
    if noise_matrix is not None:
        matrix = np.asarray(noise_matrix, dtype=np.float64)
        figures.append(
            CaptionedFigure(
                name="noise",
                figure=transition_figure({"Realised": matrix}, grades=grades),
                caption="Training labels (columns) by true grade (rows), as shares of each row.",
                alt=f"Transition matrix. {correct_labels(matrix, grades)}",
            )
        )
    return figures
