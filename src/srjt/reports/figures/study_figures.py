"""The figures of a study and of a single run, each with its caption and its text for those who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from srjt.reports.figures.ablation_figures import ablation_figures
from srjt.reports.figures.canvas import Drawing
from srjt.reports.figures.curves import Curve, chart, mean_over_networks
from srjt.reports.figures.matrices import matrix_figure
from srjt.reports.figures.method_curves import (
    BAND,
    KINDS,
    curves,
    ends,
    file_name,
    incomplete,
    methods_of,
    noise_name,
    noises,
    over_folds,
    plain_methods,
    rates,
    under,
)
from srjt.reports.figures.styles import Style, method_styles
from srjt.reports.tables.study_tables import METRIC_NAMES
from srjt.studies.noise_spec import parse_noise
from srjt.studies.paper import display_name, is_ours

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

__all__ = [
    "confusion_matrices",
    "injected_matrix",
    "mae_against_rate",
    "noise_figures",
    "precision_curves",
    "run_figures",
    "score_curves",
    "selection_recall",
    "study_figures",
]

LAST = 10  # epochs, as in the tables


def study_figures(results: StudyResults) -> list[Drawing]:
    """Every figure that the finished runs allow."""
    per_noise = [drawing for noise in noises(results) for drawing in noise_figures(results, noise)]
    matrices = [injected_matrix(results, noise) for noise in noises(results)]
    ablation = [drawing for noise in noises(results) for drawing in ablation_figures(results, noise)]
    return [d for d in (*ablation, *per_noise, *mae_against_rate(results), *matrices) if d is not None]


def noise_figures(results: StudyResults, noise: str) -> list[Drawing]:
    """The curves, the selection and the confusion matrices of one noise."""
    m = results.metrics
    results = replace(results, metrics=m[m["noise"] == noise])  # a study may have millions of rows
    drawings = (
        score_curves(results, noise, metric="accuracy"),
        score_curves(results, noise, metric="mae"),
        precision_curves(results, noise),
        selection_recall(results, noise),
        confusion_matrices(results, noise),
    )
    return [drawing for drawing in drawings if drawing is not None]


def score_curves(results: StudyResults, noise: str, *, metric: str) -> Drawing | None:
    """A metric of the test side over epochs: accuracy or mae."""
    short_name, long_name = METRIC_NAMES[metric]
    lines, short = curves(
        results, noise, split="test", metric=metric, sources=plain_methods(methods_of(results))
    )
    if not lines:
        return None
    name = long_name if metric == "accuracy" else short_name
    return Drawing(
        name=file_name(f"{metric}-{noise}"),
        figure=chart(lines, styles=_styles(results), xlabel="epoch", title=f"Test {name}"),
        caption=f"Test {name} {under(noise)}, mean over folds and networks; {BAND}." + incomplete(short),
        alt=f"Curve chart of the test {name} over epochs {under(noise)}. {ends(lines)}",
    )


def precision_curves(results: StudyResults, noise: str) -> Drawing | None:
    """Only methods that leave samples out: for the others the curve is the level 1 − ε itself."""
    sources = plain_methods(_selecting(results, noise))
    lines, short = curves(results, noise, split="train", metric="label_precision", sources=sources)
    if not lines:
        return None
    rate = rates(results).get(noise)
    title = "Share of correct labels among the selected"
    return Drawing(
        name=file_name(f"label-precision-{noise}"),
        figure=chart(
            lines,
            styles=_styles(results),
            xlabel="epoch",
            title=title,
            reference=None if rate is None else (1 - rate, f"1 − ε = {1 - rate:.2f}: no selection"),
        ),
        caption=f"Label precision of the selection {under(noise)}: the share of truly clean samples among "
        f"those learnt from; {BAND}. Methods that select nothing stay on the line 1 − ε." + incomplete(short),
        alt=f"Curve chart of label precision over epochs {under(noise)}. {ends(lines)}",
    )


def selection_recall(results: StudyResults, noise: str) -> Drawing | None:
    """Which share of each grade's clean samples is learnt from: does the selection neglect the rare grades?"""
    grades = [str(grade) for grade in results.facts["grades"]]
    m, runs = results.metrics, _plain_runs(results, noise)
    done = runs.loc[runs["status"] == "done", "key"]
    m = m[m["key"].isin(list(done)) & m["metric"].str.startswith("label_recall[")]
    m = m[m["epoch"] > m.groupby("key")["epoch"].transform("max") - LAST]
    lines = []
    for method in _selecting(results, noise):
        mine = m[m["method"] == method]
        if mine.empty:
            continue
        per_seed = mine.groupby(["fold", "seed", "metric"])["value"].mean()
        folds = per_seed.groupby(["fold", "metric"]).mean().unstack("metric")
        folds = folds.reindex(columns=[f"label_recall[{c}]" for c in range(len(grades))])
        lines.append(
            over_folds((method, ""), folds.set_axis(range(len(grades)), axis=1), label=display_name(method))
        )
    if not lines:
        return None
    return Drawing(
        name=file_name(f"selection-recall-{noise}"),
        figure=chart(
            lines,
            styles=_styles(results),
            xlabel="grade",
            title="Share of the clean samples that is selected",
            xticks=(range(len(grades)), grades),
            error_bars=True,
        ),
        caption=f"Selection recall per grade {under(noise)}, mean over the last ten epochs (all, if fewer), "
        "networks and folds; bars: one standard deviation over the folds (population, ddof = 0).",
        alt=f"Dot plot of the selection's recall for each grade {under(noise)}. "
        + " ".join(
            f"{line.label}: "
            + ", ".join(f"{grades[int(x)]} {y:.2f}" for x, y in zip(line.x, line.y, strict=True))
            + "."
            for line in lines
        ),
    )


def confusion_matrices(results: StudyResults, noise: str) -> Drawing | None:
    chosen = _plain_runs(results, noise)
    panels: dict[str, npt.NDArray[np.float64]] = {}
    for method in methods_of(results):
        keys = [key for key in chosen.loc[chosen["method"] == method, "key"] if key in results.confusions]
        if keys:
            panels[display_name(method)] = np.sum([results.confusions[key] for key in keys], axis=0)
    if not panels:
        return None
    return Drawing(
        name=file_name(f"confusion-{noise}"),
        figure=matrix_figure(
            panels,
            grades=results.facts["grades"],
            rows="true grade",
            columns="predicted grade",
            write=_count_and_share,
            emphasised=[display_name(method) for method in methods_of(results) if is_ours(method)],
        ),
        caption=f"Confusion matrices on the test side {under(noise)} after the last epoch. Colour and per "
        "cent: share of the row; below it the count, folds and networks pooled.",
        alt=f"Confusion matrices {under(noise)}. Share of the test side predicted correctly: "
        + ", ".join(f"{name} {np.trace(m) / max(m.sum(), 1):.2f}" for name, m in panels.items())
        + ".",
    )


def mae_against_rate(results: StudyResults) -> list[Drawing]:
    """One figure for each kind of noise that was injected at two rates or more."""
    known = rates(results)
    scores = results.scores
    scores = scores[(scores["split"] == "test") & (scores["metric"] == "mae") & (scores["variant"] == "")]
    drawings = []
    for kind, name in KINDS.items():
        at = {
            noise: known[noise]
            for noise in noises(results)
            if parse_noise(noise).kind == kind and noise in known
        }
        if len(at) < 2:
            continue
        lines = []
        for method in methods_of(results):
            mine = scores[(scores["method"] == method) & scores["noise"].isin(list(at))]
            if mine.empty:
                continue
            folds = mine.assign(rate=mine["noise"].map(at)).pivot_table(
                index="fold", columns="rate", values="value"
            )
            lines.append(over_folds((method, ""), folds, label=display_name(method)))
        if not lines:
            continue
        ticks = sorted(at.values())
        drawings.append(
            Drawing(
                name=file_name(f"mae-against-rate-{kind}"),
                figure=chart(
                    lines,
                    styles=_styles(results),
                    xlabel="noise rate ε (nominal)",
                    title="Mean absolute error on the test side",
                    xticks=(ticks, [f"{rate:.2g}" for rate in ticks]),
                    error_bars=True,
                ),
                caption=f"MAE against the rate of {name} noise, mean over the last ten epochs (all, if "
                "fewer), networks and folds; bars: one standard deviation over the folds (population, "
                "ddof = 0). Lower is better.",
                alt=f"Curve chart of the mean absolute error against the rate of {name} noise. {ends(lines)}",
            )
        )
    return drawings


def injected_matrix(results: StudyResults, noise: str) -> Drawing | None:
    """The transition matrix, and beside it the one that the draws came to where that is recorded."""
    rows = results.noise[results.noise["noise"] == noise]
    given = parse_noise(noise).kind == "none"
    panels: dict[str, npt.NDArray[np.float64]] = {}
    for column, title in (
        ("matrix", "Assumed" if given else "Nominal"),
        ("realised_matrix", "Realised, mean over folds"),
    ):
        known = [] if column not in rows else [np.asarray(m, float) for m in rows[column] if m is not None]
        if known:
            panels[title] = np.nan_to_num(np.nanmean(known, axis=0))
    if not panels:
        return None
    grades = [str(grade) for grade in results.facts["grades"]]
    first = next(iter(panels.values()))
    return Drawing(
        name=file_name(f"noise-{noise}"),
        figure=_transition(panels, grades),
        caption=f"{noise_name(noise)}: probability of each label (columns) given the true grade (rows)"
        + (", as the methods that need it are told; nothing is injected." if given else "."),
        alt=f"Transition matrix. {_kept_right(first, grades)}",
    )


def run_figures(
    metrics: pd.DataFrame,
    *,
    grades: Sequence[str],
    noise_rate: float | None = None,
    confusion: npt.ArrayLike | None = None,
    noise_matrix: npt.ArrayLike | None = None,
    pooled: bool = False,
) -> list[Drawing]:
    """A single run. metrics: its table. noise_rate: realised; noise_matrix: (C, C) realised, where the true
    grades are known. confusion: (C, C) counts on the test side."""
    drawings = []

    def add(name: str, title: str, lines: Sequence[Curve], caption: str, level: float | None = None) -> None:
        if lines:
            reference = None if level is None else (level, f"1 − ε = {level:.2f}: no selection")
            figure = chart(lines, xlabel="epoch", title=title, reference=reference)
            alt = f"Curve chart over epochs: {title}. {ends(lines)}"
            drawings.append(Drawing(name=name, figure=figure, caption=caption, alt=alt))

    def over_epochs(split: str, metric: str, label: str) -> list[Curve]:
        curve = mean_over_networks(metrics, split=split, metric=metric, pooled=pooled).dropna()
        return [_line(label, curve)] if len(curve) else []

    scored = [line for split in ("test", "validation") for line in over_epochs(split, "accuracy", split)]
    add("accuracy", "Accuracy", scored, "Accuracy after each epoch, mean over the networks. Validation labels "
        "are as noisy as those of training, which bounds what can be reached there.")  # fmt: skip
    errors = [line for split in ("test", "validation") for line in over_epochs(split, "mae", split)]
    add(
        "mae", "Mean absolute error", errors, "MAE after each epoch, mean over the networks. Lower is better."
    )
    recall = over_epochs("train", "label_recall", "all")
    if recall and recall[0].y.min() < 1:  # something is left out
        add("label-precision", "Share of correct labels among the selected",
            over_epochs("train", "label_precision", "selected"),
            "Label precision: the share of truly clean samples among those learnt from.",
            None if noise_rate is None else 1 - noise_rate)  # fmt: skip
        per_grade = [
            line
            for c, grade in enumerate(grades)
            for line in over_epochs("train", f"label_recall[{c}]", str(grade))
        ]
        add("selection-recall", "Share of the clean samples that is selected", per_grade,
            "Selection recall per grade: which share of its correctly labelled samples is learnt from.")  # fmt: skip
    if confusion is not None:
        counts = np.asarray(confusion, dtype=np.float64)
        drawings.append(
            Drawing(
                name="confusion",
                figure=matrix_figure(
                    {"Test side": counts},
                    grades=grades,
                    rows="true grade",
                    columns="predicted grade",
                    write=_count_and_share,
                ),
                caption="Confusion matrix on the test side after the last epoch, networks pooled. Colour and per "
                "cent: share of the row; below it the count.",
                alt="Confusion matrix. Share predicted correctly: "
                f"{np.trace(counts) / max(counts.sum(), 1):.2f}.",
            )
        )
    if noise_matrix is not None:
        matrix = np.asarray(noise_matrix, dtype=np.float64)
        drawings.append(
            Drawing(
                name="noise",
                figure=_transition({"Realised": matrix}, grades),
                caption="The labels trained on (columns) against the true grades (rows), as shares of each row.",
                alt=f"Transition matrix. {_kept_right(matrix, grades)}",
            )
        )
    return drawings


def _styles(results: StudyResults) -> dict[str, Style]:
    """One look for the whole study: a method keeps its colour from figure to figure."""
    return method_styles(methods_of(results))


def _plain_runs(results: StudyResults, noise: str) -> pd.DataFrame:
    """The runs of a noise without the ablation's variants: those are for the tables."""
    runs = results.runs
    return runs[(runs["noise"] == noise) & (runs["variant"] == "")]


def _selecting(results: StudyResults, noise: str) -> list[str]:
    """Methods that leave clean samples out at some time, which is to say: that select."""
    m = results.metrics
    partial = m[(m["noise"] == noise) & (m["metric"] == "label_recall") & (m["value"] < 1)]
    return [method for method in methods_of(results) if method in set(partial["method"])]


def _line(name: str, curve: pd.Series) -> Curve:
    return Curve(name=name, x=curve.index.to_numpy(np.float64), y=curve.to_numpy(np.float64))


def _count_and_share(count: float, share: float) -> str:
    return f"{share:.0%}\n{count:,.0f}" if count else "0"


def _probability(value: float, share: float) -> str:
    return f"{value:.3f}" if value else "0"


def _transition(panels: dict[str, npt.NDArray[np.float64]], grades: Sequence[str]) -> Figure:
    return matrix_figure(panels, grades=grades, rows="true grade", columns="label", write=_probability)


def _kept_right(matrix: npt.NDArray[np.float64], grades: Sequence[str]) -> str:
    kept = ", ".join(f"{grade} {p:.2f}" for grade, p in zip(grades, np.diag(matrix), strict=True))
    return f"Probability that a label is right, by true grade: {kept}."
