"""The figures of a study, each with its caption and a description for readers who cannot see it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.reports.figures.ablation_figures import ablation_figures
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.curves import chart
from srjt.reports.figures.matrices import confusion_figure, correct_labels, transition_figure
from srjt.reports.figures.method_curves import (
    describe_ends,
    file_name,
    fold_curve,
    incomplete_note,
    method_curves,
    method_labels,
    nominal_rates,
    spread_note,
    study_methods,
    study_noises,
)
from srjt.reports.figures.styles import Style, method_styles
from srjt.reports.noise_names import NOISE_NAMES, noise_name, noise_phrase
from srjt.reports.tables.statistics import METRIC_NAMES
from srjt.studies.noise_spec import parse_noise
from srjt.studies.paper import display_name, is_ours
from srjt.training.record.metrics_log import LAST

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

__all__ = [
    "confusion_matrices",
    "mae_against_rate",
    "noise_figures",
    "noise_matrix",
    "precision_curves",
    "score_curves",
    "selection_recall",
    "study_figures",
]


def study_figures(results: StudyResults) -> list[CaptionedFigure]:
    """All figures that the results allow."""
    noises = study_noises(results)
    figures = [figure for noise in noises for figure in ablation_figures(results, noise)]
    figures += [figure for noise in noises for figure in noise_figures(results, noise)]
    figures += mae_against_rate(results)
    return figures + [figure for noise in noises if (figure := noise_matrix(results, noise)) is not None]


def noise_figures(results: StudyResults, noise: str) -> list[CaptionedFigure]:
    """The curves, the selection and the confusion matrices of one noise."""
    metrics = results.metrics
    results = replace(
        results, metrics=metrics[metrics["noise"] == noise]
    )  # a study may have millions of rows
    figures = (
        score_curves(results, noise, metric="accuracy"),
        score_curves(results, noise, metric="mae"),
        precision_curves(results, noise),
        selection_recall(results, noise),
        confusion_matrices(results, noise),
    )
    return [figure for figure in figures if figure is not None]


def score_curves(results: StudyResults, noise: str, *, metric: str) -> CaptionedFigure | None:
    """A test metric over epochs: accuracy or mae."""
    short_name, long_name = METRIC_NAMES[metric]
    labels = method_labels(study_methods(results))
    curves, missing = method_curves(results, noise, split="test", metric=metric, labels=labels)
    if not curves:
        return None
    name = long_name if metric == "accuracy" else short_name
    return CaptionedFigure(
        name=file_name(f"{metric}-{noise}"),
        figure=chart(curves, styles=_styles(results), xlabel="epoch", title=f"Test {name}"),
        caption=f"Test {name} {noise_phrase(noise)}, mean over folds and networks{spread_note(curves)}."
        + incomplete_note(missing),
        alt=f"Curve chart of the test {name} over epochs {noise_phrase(noise)}. {describe_ends(curves)}",
    )


def precision_curves(results: StudyResults, noise: str) -> CaptionedFigure | None:
    """Label precision over epochs, of methods that select: for the others the curve is the line at 1 − ε."""
    labels = method_labels(_selecting_methods(results, noise))
    curves, missing = method_curves(results, noise, split="train", metric="label_precision", labels=labels)
    if not curves:
        return None
    rate = nominal_rates(results).get(noise)
    return CaptionedFigure(
        name=file_name(f"label-precision-{noise}"),
        figure=chart(
            curves,
            styles=_styles(results),
            xlabel="epoch",
            title="Share of correct labels among the selected",
            reference=None if rate is None else (1 - rate, f"1 − ε = {1 - rate:.2f}: no selection"),
        ),
        caption=f"Label precision of the selection {noise_phrase(noise)}: the share of selected samples whose label is "
        f"correct{spread_note(curves)}."
        + ("" if rate is None else " A method without selection stays on the line 1 − ε.")
        + incomplete_note(missing),
        alt=f"Curve chart of label precision over epochs {noise_phrase(noise)}. {describe_ends(curves)}",
    )


def selection_recall(results: StudyResults, noise: str) -> CaptionedFigure | None:
    """The share of each grade's correctly labelled samples that is selected: are rare grades neglected?"""
    grades = [str(grade) for grade in results.facts["grades"]]
    metrics, runs = results.metrics, _runs_without_variant(results, noise)
    done = runs.loc[runs["status"] == "done", "key"]
    metrics = metrics[metrics["key"].isin(list(done)) & metrics["metric"].str.startswith("label_recall[")]
    metrics = metrics[metrics["epoch"] > metrics.groupby("key")["epoch"].transform("max") - LAST]
    curves = []
    for method in _selecting_methods(results, noise):
        rows = metrics[metrics["method"] == method]
        if rows.empty:
            continue
        per_seed = rows.groupby(["fold", "seed", "metric"])["value"].mean()
        folds = per_seed.groupby(["fold", "metric"]).mean().unstack("metric")
        folds = folds.reindex(columns=[f"label_recall[{c}]" for c in range(len(grades))])
        folds = folds.set_axis(range(len(grades)), axis=1)
        curves.append(fold_curve((method, ""), folds, label=display_name(method)))
    if not curves:
        return None
    return CaptionedFigure(
        name=file_name(f"selection-recall-{noise}"),
        figure=chart(
            curves,
            styles=_styles(results),
            xlabel="grade",
            title="Share of correctly labelled samples that is selected",
            xticks=(range(len(grades)), grades),
            error_bars=True,
        ),
        caption=f"Selection recall per grade {noise_phrase(noise)}, mean over the last ten epochs (all, if fewer), "
        f"networks and folds{spread_note(curves, shown_as='bars')}.",
        alt=f"Dot plot of the selection's recall for each grade {noise_phrase(noise)}. "
        + " ".join(
            f"{curve.label}: "
            + ", ".join(f"{grades[int(x)]} {y:.2f}" for x, y in zip(curve.x, curve.y, strict=True))
            + "."
            for curve in curves
        ),
    )


def _keeps_best(results: StudyResults) -> bool:
    """Whether all runs of the study keep their best epoch, not only those of a variant."""
    return bool(results.facts.get("config", {}).get("keep") == "best")


def confusion_matrices(results: StudyResults, noise: str) -> CaptionedFigure | None:
    """The confusion matrix of each method on the test side."""
    runs = _runs_without_variant(results, noise)
    panels: dict[str, npt.NDArray[np.float64]] = {}
    for method in study_methods(results):
        keys = [key for key in runs.loc[runs["method"] == method, "key"] if key in results.confusions]
        if keys:
            panels[display_name(method)] = np.sum([results.confusions[key] for key in keys], axis=0)
    if not panels:
        return None
    return CaptionedFigure(
        name=file_name(f"confusion-{noise}"),
        figure=confusion_figure(
            panels,
            grades=results.facts["grades"],
            emphasised=[display_name(method) for method in study_methods(results) if is_ours(method)],
        ),
        caption=f"Confusion matrices on the test side {noise_phrase(noise)} after the "
        f"{'epoch that was best on the validation side' if _keeps_best(results) else 'last epoch'}. Colour and "
        "percentage: share of the row; below it the count, folds and networks pooled.",
        alt=f"Confusion matrices {noise_phrase(noise)}. Share of the test side predicted correctly: "
        + ", ".join(f"{name} {np.trace(m) / max(m.sum(), 1):.2f}" for name, m in panels.items())
        + ".",
    )


def mae_against_rate(results: StudyResults) -> list[CaptionedFigure]:
    """A figure for each kind of noise that was injected at two rates or more."""
    rates = nominal_rates(results)
    scores = results.scores
    scores = scores[(scores["split"] == "test") & (scores["metric"] == "mae") & (scores["variant"] == "")]
    figures = []
    epochs = "the best epoch of each run" if _keeps_best(results) else "the last ten epochs (all, if fewer)"
    for kind, name in NOISE_NAMES.items():
        rate_of = {n: rates[n] for n in study_noises(results) if parse_noise(n).kind == kind and n in rates}
        if kind == "none" or len(rate_of) < 2:
            continue
        curves = []
        for method in study_methods(results):
            rows = scores[(scores["method"] == method) & scores["noise"].isin(list(rate_of))]
            if rows.empty:
                continue
            rows = rows.assign(rate=rows["noise"].map(rate_of))
            folds = rows.pivot_table(index="fold", columns="rate", values="value")
            curves.append(fold_curve((method, ""), folds, label=display_name(method)))
        if not curves:
            continue
        ticks = sorted(rate_of.values())
        figures.append(
            CaptionedFigure(
                name=file_name(f"mae-against-rate-{kind}"),
                figure=chart(
                    curves,
                    styles=_styles(results),
                    xlabel="noise rate ε (nominal)",
                    title="Mean absolute error on the test side",
                    xticks=(ticks, [f"{rate:.2g}" for rate in ticks]),
                    error_bars=True,
                ),
                caption=f"MAE against the rate of {name}, mean over {epochs}, networks and "
                f"folds{spread_note(curves, shown_as='bars')}. Lower is better.",
                alt=f"Curve chart of the mean absolute error against the rate of {name}. {describe_ends(curves)}",
            )
        )
    return figures


def noise_matrix(results: StudyResults, noise: str) -> CaptionedFigure | None:
    """The transition matrix and, if it is recorded, the realised one."""
    rows = results.noise[results.noise["noise"] == noise]
    injected = parse_noise(noise).kind != "none"
    estimated = "matrix_estimated" in rows and bool(rows["matrix_estimated"].any())
    title = "Estimated, mean over folds" if estimated else "Nominal" if injected else "Assumed"
    source = "estimated from the training labels" if estimated else "as given to the methods that need it"
    titles = {"matrix": title, "realised_matrix": "Realised, mean over folds"}
    panels: dict[str, npt.NDArray[np.float64]] = {}
    for column, title in titles.items():
        known = [] if column not in rows else [np.asarray(m, float) for m in rows[column] if m is not None]
        if known:
            panels[title] = np.nan_to_num(np.nanmean(known, axis=0))
    if not panels:
        return None
    grades = [str(grade) for grade in results.facts["grades"]]
    return CaptionedFigure(
        name=file_name(f"noise-{noise}"),
        figure=transition_figure(panels, grades=grades),
        caption=f"{noise_name(noise)}: probability of each label (columns) for each true grade (rows)"
        + (f", {source}" if estimated or not injected else "")
        + ("." if injected else "; nothing is injected."),
        alt=f"Transition matrix. {correct_labels(next(iter(panels.values())), grades)}",
    )


def _styles(results: StudyResults) -> dict[str, Style]:
    """The same style for a method in all figures of the study."""
    return method_styles(study_methods(results))


def _runs_without_variant(results: StudyResults, noise: str) -> pd.DataFrame:
    """The runs of a noise without the ablation's variants, which the tables show."""
    runs = results.runs
    return runs[(runs["noise"] == noise) & (runs["variant"] == "")]


def _selecting_methods(results: StudyResults, noise: str) -> list[str]:
    """Methods that leave out correctly labelled samples in some epoch."""
    metrics = results.metrics
    partial = metrics[
        (metrics["noise"] == noise) & (metrics["metric"] == "label_recall") & (metrics["value"] < 1)
    ]
    return [method for method in study_methods(results) if method in set(partial["method"])]
