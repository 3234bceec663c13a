"""The figures of a study, each with its caption and a description for readers who cannot see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.reports import study_tables as tables
from srjt.reports.figures import canvas
from srjt.studies.config import parse_noise
from srjt.studies.results import StudyResults, display_name, is_ours, paper_order
from srjt.training.checkpoint import LAST

LAST_EPOCHS = "mean over the last ten epochs (all, if fewer)"
SELECTED = "Share of correct labels among the selected"
SELECTION_RECALL = "Share of correctly labelled samples that is selected"

# What a study has.


def study_noises(results: StudyResults) -> list[str]:
    return list(dict.fromkeys(results.runs["noise"]))


def study_methods(results: StudyResults) -> list[str]:
    return paper_order(results.runs["method"])


def nominal_rates(results: StudyResults) -> dict[str, float]:
    """Noise → its nominal rate on the class mix of the data, mean over folds; else the rate in its name."""
    rates = {noise: parse_noise(noise).rate for noise in study_noises(results)}
    recorded = results.noise.dropna(subset=["nominal_rate"]).groupby("noise")["nominal_rate"].mean()
    rates |= {str(noise): float(rate) for noise, rate in recorded.items()}
    return {noise: rate for noise, rate in rates.items() if rate is not None}


def _selecting_methods(results: StudyResults, noise: str) -> list[str]:
    """Methods that leave out correctly labelled samples in some epoch."""
    metrics = results.metrics
    partial = (metrics["noise"] == noise) & (metrics["metric"] == "label_recall") & (metrics["value"] < 1)
    return [method for method in study_methods(results) if method in set(metrics["method"][partial])]


def _keeps_best(results: StudyResults) -> bool:
    """Whether all runs of the study keep their best epoch, not only those of a variant."""
    return bool(results.facts["study"]["train"].get("keep") == "best")


def no_selection(rate: float | None) -> tuple[float, str] | None:
    """1 − ε, the label precision without selection, and its name."""
    return None if rate is None else (1 - rate, f"1 − ε = {1 - rate:.2f}: no selection")


# The curves of its methods: mean and standard deviation over folds.


def _fold_curve(
    results: StudyResults, source: tables.MethodVariant, folds: pd.DataFrame, *, label: str, metric: str
) -> canvas.Curve:
    """folds: one row per fold, one column per value of x. The spread is None for a single fold."""
    return canvas.Curve(
        most=len(results.facts["grades"]) - 1.0 if metric == "mae" else 1.0,
        name=curve_name(source),
        label=label,
        x=folds.columns.to_numpy(np.float64),
        y=folds.mean().to_numpy(np.float64),
        spread=folds.std(ddof=0).to_numpy(np.float64) if len(folds) > 1 else None,
    )


def curve_name(source: tables.MethodVariant) -> str:
    """As on the command line: "co-teaching", "co-teaching:select=soft"."""
    return ":".join(filter(None, source))


def spread_note(curves: Sequence[canvas.Curve], shown_as: str, *, seeds: int) -> str:
    """What bands or bars show, for a caption; empty if there are none, because there is one fold only."""
    if all(curve.spread is None for curve in curves):
        return ""
    first = ", means over the seeds" if seeds > 1 else ""
    return f"; {shown_as}: one standard deviation over the folds{first} (population, ddof = 0)"


def describe_ends(curves: Sequence[canvas.Curve]) -> str:
    """The last values as a sentence, highest first, for readers who cannot see the curves."""
    last = sorted(((float(curve.y[-1]), curve.label or curve.name) for curve in curves), reverse=True)
    return "At the end: " + ", ".join(f"{name} {value:.3f}" for value, name in last) + "."


def file_name(text: str) -> str:
    """A name for a file on every system: "mae quasi:rho=0.1" → "mae-quasi-rho-0.1"."""
    return "-".join("".join(c if c.isascii() and (c.isalnum() or c in ".+-") else " " for c in text).split())


# Values over epochs.


def noise_figures(results: StudyResults, noise: str) -> list[canvas.CaptionedFigure]:
    """The curves, the selection and the confusion matrices of one noise."""
    figures = (
        score_curves(results, noise, metric="accuracy"),
        score_curves(results, noise, metric="mae"),
        # of methods that do not select the curve is the line at 1 − ε
        _over_epochs(
            results, noise, _selecting_methods(results, noise), name="label-precision", split="train",
            metric="label_precision", title=SELECTED, reference=no_selection(nominal_rates(results).get(noise)),
        ),
        selection_recall(results, noise),
        confusion_matrices(results, noise),
    )  # fmt: skip
    return [figure for figure in figures if figure is not None]


def score_curves(results: StudyResults, noise: str, *, metric: str) -> canvas.CaptionedFigure | None:
    """A test metric over epochs: accuracy or mae."""
    title, methods = "Test MAE" if metric == "mae" else f"Test {metric}", study_methods(results)
    return _over_epochs(results, noise, methods, name=metric, split="test", metric=metric, title=title)


# The loss for selection gives colour and marker, the loss for the update dashes and filling. So "+ours" is solid and
# its host dashed, as in every other figure.
USAGE_STYLES = {
    (select, update): canvas.Style(
        colour=canvas.PALETTE["blue" if select == "hard" else "vermillion"],
        marker="o" if select == "hard" else "s",
        dashes="-" if update == "soft" else (0, (5, 2)),
        filled=update == "soft",
        bold=(select, update) == ("hard", "soft"),
    )
    for select, update in tables.LOSS_USAGES
}
KEY = " Circles: hard selection, squares: soft selection; solid lines: soft update, dashed: hard update."


def ablation_figures(results: StudyResults, noise: str) -> list[canvas.CaptionedFigure]:
    """Hard or soft loss for selection and update: label precision and test MAE over epochs, a figure for each host.

    None if no run selects by the soft loss.
    """
    runs = results.runs[results.runs["noise"] == noise]
    level = no_selection(nominal_rates(results).get(noise))
    figures = [
        _over_epochs(
            results, noise, {source: "/".join(usage) for usage, source in usages.items()}, split=split,
            metric=metric, name=f"ablation-{metric.replace('_', '-')}-{host}", reference=reference, key=KEY,
            title=f"{display_name(host)}: {title}",
            styles={curve_name(source): USAGE_STYLES[usage] for usage, source in usages.items()},
        )
        for split, metric, title, reference in (
            ("train", "label_precision", SELECTED, level),
            ("test", "mae", "Test mean absolute error", None),
        )
        for host, usages in tables.ablation(zip(runs["method"], runs["variant"], strict=True)).items()
        if any(select == "soft" for select, _ in usages)  # other figures show the other hosts
    ]  # fmt: skip
    return [figure for figure in figures if figure is not None]


def _over_epochs(
    results: StudyResults, noise: str, sources: Mapping[tables.MethodVariant, str] | Sequence[str], *, name: str,
    split: str, metric: str, title: str, key: str = "", **options: Any,
) -> canvas.CaptionedFigure | None:  # fmt: skip
    """A curve for each source: mean and standard deviation over folds, seeds and networks averaged first.

    Finished runs only; if a method has none, its unfinished runs, up to the last epoch that all of them have reached.
    Failed runs never.

    sources: (method, variant) → label, or methods. key: what dashes and markers mean. options: as for ``chart``.
    """
    labels = sources if isinstance(sources, Mapping) else {(m, ""): display_name(m) for m in sources}
    metrics, runs = (table[table["noise"] == noise] for table in (results.metrics, results.runs))
    pooled = results.facts["study"]["train"].get("convention") == "published-code"
    values = canvas.mean_over_networks(metrics, split=split, metric=metric, pooled=pooled, by=("epoch", "key")).unstack(
        "key"
    )
    curves, missing = [], []
    for source, label in labels.items():
        planned = runs[(runs[["method", "variant"]] == list(source)).all(axis=1)].set_index("key")
        done = planned[planned["status"] == "done"]
        chosen = done if len(done) else planned[planned["status"] != "failed"]
        by_epoch = values.loc[:, values.columns.isin(chosen.index)].dropna()  # epochs that all have reached
        if by_epoch.empty:
            continue
        if len(done) < len(planned):
            finished = f"{len(done)} of {len(planned)} runs" if len(done) else "unfinished"
            missing.append(f"{label}, {finished}")
        folds = by_epoch.T.groupby(chosen["fold"].reindex(by_epoch.columns).to_numpy()).mean()
        curves.append(_fold_curve(results, source, folds, label=label, metric=metric))
    if not curves:
        return None
    under, note = tables.noise_phrase(noise), spread_note(curves, "bands", seeds=runs["seed"].nunique())
    options = {"styles": canvas.method_styles(study_methods(results)), **options}
    return canvas.CaptionedFigure(
        name=file_name(f"{name}-{noise}"),
        figure=canvas.chart(curves, xlabel="epoch", title=title, **options),
        caption=f"{title} {under}, mean over folds and networks{note}.{key}"
        + (f" Incomplete: {'; '.join(missing)}." if missing else ""),
        alt=f"Curve chart over epochs {under}: {title}. {describe_ends(curves)}",
    )


# Values at a few places: grades, noise rates.


def selection_recall(results: StudyResults, noise: str) -> canvas.CaptionedFigure | None:
    """The share of each grade's correctly labelled samples that is selected: are rare grades neglected?"""
    grades = [str(grade) for grade in results.facts["grades"]]
    metrics, runs = results.metrics, results.runs
    done = runs["key"][(runs[["noise", "variant", "status"]] == [noise, "", "done"]).all(axis=1)]
    metrics = metrics[metrics["key"].isin(list(done))]
    metrics = metrics[metrics["metric"].str.startswith("label_recall[")]
    metrics = metrics[metrics["epoch"] > metrics.groupby("key")["epoch"].transform("max") - LAST]
    places = {f"label_recall[{c}]": c for c in range(len(grades))}
    return _dots(
        results, _selecting_methods(results, noise), metrics.assign(x=metrics["metric"].map(places)),
        name=f"selection-recall-{noise}", title=SELECTION_RECALL, xlabel="grade", metric="label_recall",
        caption=f"{SELECTION_RECALL} {tables.noise_phrase(noise)}, {LAST_EPOCHS}", ticks=(range(len(grades)), grades),
    )  # fmt: skip


def mae_against_rate(results: StudyResults) -> list[canvas.CaptionedFigure]:
    """A figure for each kind of noise that was injected at two rates or more."""
    rates, scores = nominal_rates(results), results.scores
    scores = scores[(scores[["split", "metric", "variant"]] == ["test", "mae", ""]).all(axis=1)]
    over = "mean over the best epoch of each run" if _keeps_best(results) else LAST_EPOCHS
    specs = {noise: parse_noise(noise) for noise in study_noises(results) if noise in rates}
    figures = []
    for kind, name in tables.NOISE_NAMES.items():
        rate_of = {n: rates[n] for n, spec in specs.items() if spec.kind == kind and spec.share == 1.0}
        if kind == "none" or len(rate_of) < 2:
            continue
        ticks = sorted(rate_of.values())
        figures.append(
            _dots(
                results, study_methods(results), scores.assign(x=scores["noise"].map(rate_of)).dropna(subset="x"),
                name=f"mae-against-rate-{kind}", title="Mean absolute error on the test side, lower is better",
                xlabel="noise rate ε (nominal)", ticks=(ticks, [f"{rate:.2g}" for rate in ticks]),
                caption=f"MAE against the rate of {name}, {over}", metric="mae",
            )
        )  # fmt: skip
    return [figure for figure in figures if figure is not None]


def _dots(
    results: StudyResults, methods: Sequence[str], values: pd.DataFrame, *, name: str, title: str, xlabel: str,
    ticks: tuple[Sequence[float], Sequence[str]], caption: str, metric: str,
) -> canvas.CaptionedFigure | None:  # fmt: skip
    """values: method, fold, seed, x and value; seeds and whatever else is repeated are averaged within a fold."""
    seeds = values.groupby(["method", "fold", "seed", "x"])["value"].mean()
    folds = seeds.groupby(["method", "fold", "x"]).mean().unstack("x")
    curves = []
    for method in methods:
        if method in folds.index:
            own = folds.loc[[method]].dropna(axis=1, how="all")
            curves.append(_fold_curve(results, (method, ""), own, label=display_name(method), metric=metric))
    if not curves:
        return None
    text_of = dict(zip(*ticks, strict=True))
    ends = [
        f"{curve.label}: " + ", ".join(f"{text_of[x]} {y:.2f}" for x, y in zip(curve.x, curve.y, strict=True))
        for curve in curves
    ]
    styles = canvas.method_styles(study_methods(results))
    note = spread_note(curves, "bars", seeds=values["seed"].nunique())
    return canvas.CaptionedFigure(
        name=file_name(name),
        figure=canvas.chart(curves, styles=styles, xlabel=xlabel, title=title, xticks=ticks, error_bars=True),
        caption=f"{caption}, networks and folds{note}.",
        alt=f"Dot plot by {xlabel}: {title}. {'; '.join(ends)}.",
    )


# Matrices.


def confusion_matrices(results: StudyResults, noise: str) -> canvas.CaptionedFigure | None:
    """The confusion matrix of each method on the test side."""
    runs = results.runs[(results.runs[["noise", "variant"]] == [noise, ""]).all(axis=1)]
    panels: dict[str, npt.NDArray[np.float64]] = {}
    for method in study_methods(results):
        keys = [key for key in runs["key"][runs["method"] == method] if key in results.confusions]
        if keys:
            panels[display_name(method)] = np.sum([results.confusions[key] for key in keys], axis=0)
    if not panels:
        return None
    epoch = "epoch that was best on the validation side" if _keeps_best(results) else "last epoch"
    right = ", ".join(f"{name} {np.trace(m) / max(m.sum(), 1):.2f}" for name, m in panels.items())
    emphasised = [display_name(method) for method in study_methods(results) if is_ours(method)]
    return canvas.CaptionedFigure(
        name=file_name(f"confusion-{noise}"),
        figure=canvas.confusion_figure(panels, grades=results.facts["grades"], emphasised=emphasised),
        caption=f"Confusion matrices on the test side {tables.noise_phrase(noise)} after the {epoch}. Colour and "
        "percentage: share of the row; below it the count, folds and networks pooled.",
        alt=f"Confusion matrices {tables.noise_phrase(noise)}. Share of the test side predicted correctly: {right}.",
    )


def noise_matrix(results: StudyResults, noise: str) -> canvas.CaptionedFigure | None:
    """The transition matrix and, if it is recorded, the realised one."""
    rows = results.noise[results.noise["noise"] == noise]
    injected = parse_noise(noise).kind != "none"
    estimated = bool(rows["matrix_estimated"].any())
    title = "Estimated, mean over folds" if estimated else "Nominal" if injected else "Assumed"
    source = "estimated from the training labels" if estimated else "as given to the methods that need it"
    panels: dict[str, npt.NDArray[np.float64]] = {}
    for column, name in (("matrix", title), ("realised_matrix", "Realised, mean over folds")):
        recorded = [np.asarray(matrix, float) for matrix in rows.get(column, ()) if matrix is not None]
        if recorded:
            panels[name] = np.nan_to_num(np.nanmean(recorded, axis=0))
    if not panels:
        return None
    grades = [str(grade) for grade in results.facts["grades"]]
    return canvas.CaptionedFigure(
        name=file_name(f"noise-{noise}"),
        figure=canvas.transition_figure(panels, grades=grades),
        caption=f"{tables.noise_name(noise)}: probability of each label (columns) for each true grade (rows)"
        + (f", {source}" if estimated or not injected else "")
        + ("." if injected else "; nothing is injected."),
        alt=f"Transition matrix. {canvas.correct_labels(next(iter(panels.values())), grades)}",
    )
