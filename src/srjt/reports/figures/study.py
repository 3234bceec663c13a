"""The figures of a study, each with its caption and a description for readers who cannot see it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.reports import study_tables as tables
from srjt.reports.figures import canvas
from srjt.studies.config import parse_noise
from srjt.studies.results import StudyResults, display_name, is_ours, paper_order
from srjt.training.checkpoint import LAST

SELECTED = "Share of correct labels among the selected"
SELECTION_RECALL = "Share of correctly labelled samples that is selected"

# What a study has.


def study_noises(results: StudyResults) -> list[str]:
    return list(dict.fromkeys(results.runs["noise"]))


def study_methods(results: StudyResults) -> list[str]:
    return paper_order(results.runs["method"])


def nominal_rates(results: StudyResults) -> dict[str, float]:
    """Noise that is injected → its nominal rate on the class mix of the data, mean over folds."""
    recorded = results.noise.dropna(subset=["nominal_rate"]).groupby("noise")["nominal_rate"].mean()
    return {str(noise): float(rate) for noise, rate in recorded.items()}


def _selecting_methods(results: StudyResults, noise: str) -> list[str]:
    """Methods that leave out correctly labelled samples in some epoch."""
    metrics = results.metrics
    recall = metrics[(metrics["noise"] == noise) & (metrics["metric"] == "label_recall")]
    selecting = set(recall["method"][recall["value"] < 1])
    return [method for method in study_methods(results) if method in selecting]


def no_selection(rate: float | None) -> tuple[float, str] | None:
    """1 − ε, the label precision without selection, and its name."""
    if rate is None:
        return None
    return 1 - rate, f"1 − ε = {1 - rate:.2f}: no selection"


def describe_ends(curves: Sequence[canvas.Curve]) -> str:
    """The last values as a sentence, highest first, for readers who cannot see the curves."""
    last = sorted(((float(curve.y[-1]), curve.name) for curve in curves), reverse=True)
    return f"At the end: {_numbered([(name, value) for value, name in last], '.3f')}."


def _numbered(numbers: Iterable[tuple[str, float]], pattern: str = ".2f") -> str:
    """ "a 0.25, b 0.50"."""
    return ", ".join(f"{name} {number:{pattern}}" for name, number in numbers)


def file_name(text: str) -> str:
    """A name for a file on every system: "mae quasi:rho=0.1" → "mae-quasi-rho-0.1"."""
    return "-".join(re.sub(r"[^A-Za-z0-9.+-]", " ", text).split())


# Curves: mean and standard deviation over folds, seeds and networks averaged first. Finished runs
# only, no variants.


def noise_figures(results: StudyResults, noise: str) -> list[canvas.CaptionedFigure]:
    """The curves, the selection and the confusion matrices of one noise."""
    # of methods that do not select the curve is the line at 1 − ε
    precision = _over_epochs(
        results,
        noise,
        _selecting_methods(results, noise),
        name="label-precision",
        split="train",
        metric="label_precision",
        title=SELECTED,
        reference=no_selection(nominal_rates(results).get(noise)),
    )
    figures = (
        score_curves(results, noise, metric="accuracy"),
        score_curves(results, noise, metric="mae"),
        precision,
        selection_recall(results, noise),
        confusion_matrices(results, noise),
    )
    return [figure for figure in figures if figure is not None]


def score_curves(
    results: StudyResults, noise: str, *, metric: str
) -> canvas.CaptionedFigure | None:
    """A test metric over epochs: accuracy or mae."""
    naive = tables.naive_values(results, noise, metric)
    level = None
    if len(naive):
        level = (float(naive.mean()), tables.NAIVE_LABEL)
    return _over_epochs(
        results,
        noise,
        study_methods(results),
        name=metric,
        split="test",
        metric=metric,
        title="Test MAE" if metric == "mae" else f"Test {metric}",
        reference=level,
    )


def _over_epochs(
    results: StudyResults,
    noise: str,
    methods: Sequence[str],
    *,
    name: str,
    split: str,
    metric: str,
    **options: Any,
) -> canvas.CaptionedFigure | None:
    metrics = _finished(results, noise)
    if set(metrics["epoch"]) <= {1}:  # nothing to follow, as with odds, which is fitted at once
        return None
    pooled = results.facts["study"]["train"].get("convention") == "published-code"
    metrics = metrics.assign(x=metrics["epoch"])
    by = ("method", "fold", "seed", "x")
    values = canvas.mean_over_networks(metrics, split=split, metric=metric, pooled=pooled, by=by)
    return _curves(
        results,
        methods,
        values.reset_index(),
        name=f"{name}-{noise}",
        metric=metric,
        xlabel="epoch",
        caption=f"{tables.noise_name(noise)}; mean over networks and folds",
        **options,
    )


def selection_recall(results: StudyResults, noise: str) -> canvas.CaptionedFigure | None:
    """The share of each grade's correctly labelled samples that is selected: are rare grades
    neglected?"""
    grades = list(map(str, results.facts["grades"]))
    metrics = _finished(results, noise)
    metrics = metrics[metrics["epoch"] > metrics.groupby("key")["epoch"].transform("max") - LAST]
    places = {f"label_recall[{c}]": c for c in range(len(grades))}
    return _curves(
        results,
        _selecting_methods(results, noise),
        metrics.assign(x=metrics["metric"].map(places)),
        name=f"selection-recall-{noise}",
        title=SELECTION_RECALL,
        xlabel="grade",
        metric="label_recall",
        caption=(
            f"{tables.noise_name(noise)}; mean over the last ten epochs (all, if fewer), networks"
            " and folds"
        ),
        xticks=(range(len(grades)), grades),
    )


def mae_against_rate(results: StudyResults) -> list[canvas.CaptionedFigure]:
    """A figure for each kind of noise that was injected at two rates or more."""
    rates = nominal_rates(results)
    scores = results.scores
    scores = scores[(scores[["split", "metric", "variant"]] == ["test", "mae", ""]).all(axis=1)]
    figures: list[canvas.CaptionedFigure] = []
    for kind, name in tables.NOISE_NAMES.items():
        rate_of = {}
        naive = {}
        for noise in study_noises(results):
            spec = parse_noise(noise)
            if noise in rates and spec.kind == kind and spec.share == 1.0:
                rate_of[noise] = rates[noise]
                naive[rates[noise]] = tables.naive_values(results, noise, "mae").mean()
        if len(rate_of) < 2:
            continue
        ticks = sorted(rate_of.values())
        figure = _curves(
            results,
            study_methods(results),
            scores.assign(x=scores["noise"].map(rate_of)),
            name=f"mae-against-rate-{kind}",
            title="Mean absolute error on the test side, lower is better",
            xlabel="noise rate ε (nominal)",
            xticks=(ticks, [f"{rate:.2g}" for rate in ticks]),
            caption=f"{name}; the scores of the tables, mean over folds",
            metric="mae",
            naive=naive,
        )
        figures += filter(None, [figure])
    return figures


def _finished(results: StudyResults, noise: str) -> pd.DataFrame:
    """The metrics of the finished runs of a noise, without variants."""
    done = (results.runs[["noise", "variant", "status"]] == [noise, "", "done"]).all(axis=1)
    return results.metrics[results.metrics["key"].isin(results.runs.loc[done, "key"])]


def _curves(
    results: StudyResults,
    methods: Sequence[str],
    values: pd.DataFrame,
    *,
    name: str,
    title: str,
    xlabel: str,
    caption: str,
    metric: str,
    xticks: tuple[Sequence[float], Sequence[str]] | None = None,
    naive: Mapping[float, float] | None = None,
    **options: Any,
) -> canvas.CaptionedFigure | None:
    """A curve for each method, mean and standard deviation over folds. xticks, options: as for
    ``chart``.

    naive: x → the score of one grade for all, a curve of its own. values: method, fold, seed, x and
    value; what is repeated is averaged first, then the seeds of a fold.
    """
    runs = values.groupby(["method", "fold", "seed", "x"])["value"].mean()
    folds = runs.groupby(["method", "fold", "x"]).mean().unstack("x")
    most = 1.0
    if metric == "mae":
        most = len(results.facts["grades"]) - 1.0
    curves = []
    for method in methods:
        if method in folds.index:
            of_method = folds.loc[[method]].dropna(axis=1, how="all")
            curves.append(_mean_curve(display_name(method), of_method, most=most))
    if not curves:
        return None
    if any(curve.spread is not None for curve in curves):
        caption += "; bands: one standard deviation over the folds"
        if values["seed"].nunique() > 1:
            caption += ", means over the seeds"
        caption += " (population, ddof = 0)"
    of_methods = canvas.method_styles(study_methods(results))
    styles = dict(zip(map(display_name, of_methods), of_methods.values(), strict=True))
    known = pd.Series(naive, dtype=np.float64).dropna().sort_index()
    if len(known):
        x = known.index.to_numpy(np.float64)
        y = known.to_numpy()
        curves.append(canvas.Curve(name=tables.NAIVE_LABEL, x=x, y=y))
        styles[tables.NAIVE_LABEL] = canvas.Style(
            colour=canvas.INK, dashes=(0, (1, 2)), prominent=False
        )
    described = describe_ends(curves)
    if xticks is not None:  # few values: all of them
        text_of = dict(zip(*xticks, strict=True))
        described = "; ".join(_describe_points(curve, text_of) for curve in curves)
    return canvas.CaptionedFigure(
        name=file_name(name),
        figure=canvas.chart(
            curves, xlabel=xlabel, title=title, xticks=xticks, styles=styles, **options
        ),
        caption=f"{caption}.",
        alt=f"Curves by {xlabel}: {title}. {described}",
    )


def _mean_curve(name: str, folds: pd.DataFrame, *, most: float) -> canvas.Curve:
    """folds: x in columns."""
    spread = None
    if len(folds) > 1:
        spread = folds.std(ddof=0).to_numpy(np.float64)
    return canvas.Curve(
        name=name,
        x=folds.columns.to_numpy(np.float64),
        y=folds.mean().to_numpy(np.float64),
        spread=spread,
        most=most,
    )


def _describe_points(curve: canvas.Curve, text_of: Mapping[float, str]) -> str:
    return (
        f"{curve.name}: {_numbered(zip(map(text_of.__getitem__, curve.x), curve.y, strict=True))}"
    )


# Matrices.


def judged_by(results: StudyResults, noise: str) -> str:
    """ "true" or "given": the grades of the test side. Noise is injected into the labels of other
    sides only."""
    known = results.facts.get("true_grades")
    if known is None and parse_noise(noise).kind == "none":  # a study of an earlier version
        metrics = results.metrics
        known = ((metrics["noise"] == noise) & (metrics["metric"] == "label_precision")).any()
    return "true" if known else "given"


def confusion_matrices(results: StudyResults, noise: str) -> canvas.CaptionedFigure | None:
    """The confusion matrix of each method on the test side."""
    runs = results.runs[(results.runs[["noise", "variant"]] == [noise, ""]).all(axis=1)]
    panels: dict[str, npt.NDArray[np.float64]] = {}
    seeds = max(runs["seed"].nunique(), 1)
    for method in study_methods(results):
        keys = runs["key"][runs["method"] == method]
        matrices = [results.confusions[key] for key in keys if key in results.confusions]
        if matrices:
            panels[display_name(method)] = np.sum(matrices, axis=0) / seeds
    if not panels:
        return None
    averaged = "; mean over seeds" if seeds > 1 else ""
    right = {}
    for name, counts in panels.items():
        right[name] = np.trace(counts) / max(counts.sum(), 1)
    emphasised = list(map(display_name, filter(is_ours, study_methods(results))))
    return canvas.CaptionedFigure(
        name=file_name(f"confusion-{noise}"),
        figure=canvas.confusion_figure(
            panels,
            grades=results.facts["grades"],
            emphasised=emphasised,
            rows=f"{judged_by(results, noise)} grade",
        ),
        caption=(
            f"{tables.noise_name(noise)}; test side, the networks' ensemble. Colour and percentage:"
            " share of the row; below it the number of samples, all folds"
            f" together{averaged}."
        ),
        alt=(
            f"Confusion matrices, {tables.noise_name(noise)}. Share of the test side predicted"
            f" correctly: {_numbered(right.items())}."
        ),
    )


def noise_matrix(results: StudyResults, noise: str) -> canvas.CaptionedFigure | None:
    """The transition matrix and, if it is recorded, the realised one."""
    rows = results.noise[results.noise["noise"] == noise]
    injected = parse_noise(noise).kind != "none"
    estimated = bool(rows["matrix_estimated"].any())
    # noise is injected into given grades
    before = "given grade" if injected and not estimated else "true grade"
    title = "Nominal" if injected else "Given to the methods"
    if estimated:
        determined = bool(rows["determined"].all())
        title = "Estimated, mean over folds" if determined else "Estimated, not determined"
    panels: dict[str, npt.NDArray[np.float64]] = {}
    for column, name in (("matrix", title), ("realised_matrix", "Realised, mean over folds")):
        recorded = []
        for matrix in rows.get(column, ()):
            if matrix is not None:
                recorded.append(np.asarray(matrix, float))
        if recorded:
            panels[name] = np.nan_to_num(np.nanmean(recorded, axis=0))
    if not panels:
        return None
    grades = list(map(str, results.facts["grades"]))
    unchanged = np.diag(next(iter(panels.values())))
    correct = _numbered(zip(grades, unchanged, strict=True))
    return canvas.CaptionedFigure(
        name=file_name(f"noise-{noise}"),
        figure=canvas.transition_figure(panels, grades=grades, rows=before),
        caption=(
            f"{tables.noise_name(noise)}: probability of each label (columns) for each {before}"
            " (rows)."
        ),
        alt=f"Transition matrix. Probability that a label is not changed, by {before}: {correct}.",
    )
