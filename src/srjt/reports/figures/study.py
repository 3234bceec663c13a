"""The figures of a study, each with its caption and a description for readers who cannot see it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.reports.figures.canvas import (
    PALETTE,
    CaptionedFigure,
    Curve,
    Style,
    chart,
    confusion_figure,
    correct_labels,
    mean_over_networks,
    method_styles,
    small_multiples,
    transition_figure,
)
from srjt.reports.statistics import (
    LOSS_USAGES,
    METRIC_NAMES,
    NOISE_NAMES,
    LossUsage,
    MethodVariant,
    ablation,
    noise_name,
    noise_phrase,
)
from srjt.studies.config import parse_noise
from srjt.studies.results import display_name, is_ours, paper_order
from srjt.training.checkpoint import LAST

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

# The curves of a study's methods: mean and standard deviation over folds.


def study_noises(results: StudyResults) -> list[str]:
    return list(dict.fromkeys([*results.facts.get("noises", []), *results.runs["noise"]]))


def study_methods(results: StudyResults) -> list[str]:
    return paper_order([*results.facts.get("methods", []), *results.runs["method"]])


def nominal_rates(results: StudyResults) -> dict[str, float]:
    """Noise → its nominal rate on the class mix of the data, mean over folds; else the rate in its name."""
    named = {noise: parse_noise(noise).rate for noise in study_noises(results)}
    known = results.noise.dropna(subset=["nominal_rate"]).groupby("noise")["nominal_rate"].mean()
    return {
        **{n: r for n, r in named.items() if r is not None},
        **{str(n): float(r) for n, r in known.items()},
    }


def method_curves(
    results: StudyResults, noise: str, *, split: str, metric: str, labels: Mapping[MethodVariant, str]
) -> tuple[list[Curve], dict[str, str]]:
    """A curve per method, mean and standard deviation over folds (seeds averaged first), and label → what is missing.

    labels: (method, variant) → label of its curve. Finished runs only; if a method has none, its unfinished runs, up
    to the last epoch that all of them have reached. Failed runs never.
    """
    metrics, runs = results.metrics, results.runs
    metrics = metrics[
        (metrics["noise"] == noise) & (metrics["split"] == split) & (metrics["metric"] == metric)
    ]
    runs = runs[runs["noise"] == noise]
    pooled = results.facts.get("config", {}).get("convention") == "published-code"
    curves, missing = [], {}
    for (method, variant), label in labels.items():
        planned = runs[(runs["method"] == method) & (runs["variant"] == variant)]
        done = planned[planned["status"] == "done"]
        chosen = done if len(done) else planned[planned["status"] != "failed"]
        table = metrics[metrics["key"].isin(list(chosen["key"]))]
        if table.empty:
            continue
        if len(done) < len(planned):
            missing[label] = f"{len(done)} of {len(planned)} runs" if len(done) else "unfinished"
        per_run = {
            key: mean_over_networks(rows, split=split, metric=metric, pooled=pooled)
            for key, rows in table.groupby("key")
        }
        by_epoch = pd.DataFrame(per_run).dropna()  # the epochs that all runs have reached
        if by_epoch.empty:
            continue
        fold_of = chosen.set_index("key")["fold"]
        folds = by_epoch.T.groupby(fold_of.reindex(by_epoch.columns).to_numpy()).mean()
        curves.append(fold_curve((method, variant), folds, label=label))
    return curves, missing


def method_labels(methods: Iterable[str]) -> dict[MethodVariant, str]:
    """(method, no variant) → its name in figures."""
    return {(method, ""): display_name(method) for method in methods}


def curve_name(source: MethodVariant) -> str:
    """As on the command line: "co-teaching", "co-teaching:select=soft"."""
    return ":".join(filter(None, source))


def fold_curve(source: MethodVariant, folds: pd.DataFrame, *, label: str) -> Curve:
    """folds: one row per fold, one column per value of x. The spread is None for a single fold."""
    return Curve(
        name=curve_name(source),
        label=label,
        x=folds.columns.to_numpy(np.float64),
        y=folds.mean().to_numpy(np.float64),
        spread=folds.std(ddof=0).to_numpy(np.float64) if len(folds) > 1 else None,
    )


def spread_note(curves: Iterable[Curve], *, shown_as: str = "bands") -> str:
    """What bands or bars show, for a caption; empty if there are none, because there is one fold only."""
    if all(curve.spread is None for curve in curves):
        return ""
    return f"; {shown_as}: one standard deviation over the folds (population, ddof = 0)"


def incomplete_note(missing: Mapping[str, str]) -> str:
    """The end of a caption that names the methods with missing runs."""
    if not missing:
        return ""
    if len(missing) > 4 and len(set(missing.values())) == 1:
        return f" Incomplete: {len(missing)} methods, each {next(iter(missing.values()))}."
    return " Incomplete: " + "; ".join(f"{name}, {what}" for name, what in missing.items()) + "."


def describe_ends(curves: Sequence[Curve]) -> str:
    """The last values as a sentence, highest first, for readers who cannot see the curves."""
    last = sorted(((float(curve.y[-1]), curve.label or curve.name) for curve in curves), reverse=True)
    return "At the end: " + ", ".join(f"{name} {value:.3f}" for value, name in last) + "."


def file_name(text: str) -> str:
    """A name for a file on every system: "mae quasi:rho=0.1" → "mae-quasi-rho-0.1"."""
    return "-".join("".join(c if c.isascii() and (c.isalnum() or c in ".+-") else " " for c in text).split())


# Figures of the ablation, hard or soft loss for selection and update: one panel per host.

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


# The figures of a study, each with its caption and a description for readers who cannot see it.


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
