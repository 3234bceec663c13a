"""The figures of a study and of a single run, each with its caption and its text for those who cannot see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from srjt.report.canvas import Drawing
from srjt.report.curves import Line, chart, mean_over_networks
from srjt.report.looks import Look, looks
from srjt.report.matrices import matrix_figure
from srjt.report.tables import METRIC_NAMES
from srjt.study.noise_spec import parse_noise
from srjt.study.paper import display_name, is_ours, paper_order

if TYPE_CHECKING:
    from srjt.study.results import StudyResults

__all__ = [
    "confusion_matrices",
    "file_name",
    "injected_matrix",
    "mae_against_rate",
    "noise_figures",
    "noise_name",
    "noises",
    "precision_curves",
    "run_figures",
    "score_curves",
    "selection_recall",
    "study_figures",
]

KINDS = {"quasi": "Quasi-Gaussian", "truncated": "Truncated-Gaussian"}
LAST = 10  # epochs, as in the tables
BAND = "bands: one standard deviation over the folds (population, ddof = 0)"


def study_figures(results: StudyResults) -> list[Drawing]:
    """Every figure that the finished runs allow."""
    per_noise = [drawing for noise in noises(results) for drawing in noise_figures(results, noise)]
    matrices = [injected_matrix(results, noise) for noise in noises(results)]
    return [d for d in (*per_noise, *mae_against_rate(results), *matrices) if d is not None]


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


def noises(results: StudyResults) -> list[str]:
    return list(dict.fromkeys([*results.facts.get("noises", []), *results.runs["noise"]]))


def noise_name(noise: str) -> str:
    """ "quasi:0.2" → "Quasi-Gaussian noise, rate 0.2"; "quasi:rho=0.1" → "Quasi-Gaussian noise, ρ = 0.1"."""
    spec = parse_noise(noise)
    if spec.kind == "none":
        return "Labels as given"
    words = [f"{KINDS.get(spec.kind, spec.kind)} noise"]
    words += [] if spec.rate is None else [f"rate {spec.rate:g}"]
    words += [] if spec.rho is None else [f"ρ = {spec.rho:g}"]
    return ", ".join(words)


def file_name(text: str) -> str:
    """Fit for a file on every system: "mae quasi:rho=0.1" → "mae-quasi-rho-0.1"."""
    return "-".join("".join(c if c.isascii() and (c.isalnum() or c in ".+-") else " " for c in text).split())


def score_curves(results: StudyResults, noise: str, *, metric: str) -> Drawing | None:
    """A metric of the test side over epochs: accuracy or mae."""
    short_name, long_name = METRIC_NAMES[metric]
    lines, short = _curves(results, noise, split="test", metric=metric)
    if not lines:
        return None
    name = long_name if metric == "accuracy" else short_name
    return Drawing(
        name=file_name(f"{metric}-{noise}"),
        figure=chart(lines, styles=_styles(results), xlabel="epoch", title=f"Test {name}"),
        caption=f"Test {name} {_under(noise)}, mean over folds and networks; {BAND}." + _incomplete(short),
        alt=f"Line chart of the test {name} over epochs {_under(noise)}. {_ends(lines)}",
    )


def precision_curves(results: StudyResults, noise: str) -> Drawing | None:
    """Only methods that leave samples out: for the others the curve is the level 1 − ε itself."""
    lines, short = _curves(
        results, noise, split="train", metric="label_precision", methods=_selecting(results, noise)
    )
    if not lines:
        return None
    rate = _rates(results).get(noise)
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
        caption=f"Label precision of the selection {_under(noise)}: the share of truly clean samples among "
        f"those learnt from; {BAND}. Methods that select nothing stay on the line 1 − ε."
        + _incomplete(short),
        alt=f"Line chart of label precision over epochs {_under(noise)}. {_ends(lines)}",
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
        lines.append(_over_folds(method, folds.set_axis(range(len(grades)), axis=1)))
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
        caption=f"Selection recall per grade {_under(noise)}, mean over the last ten epochs (all, if fewer), "
        "networks and folds; bars: one standard deviation over the folds (population, ddof = 0).",
        alt=f"Dot plot of the selection's recall for each grade {_under(noise)}. "
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
    for method in _methods(results):
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
            emphasised=[display_name(method) for method in _methods(results) if is_ours(method)],
        ),
        caption=f"Confusion matrices on the test side {_under(noise)} after the last epoch. Colour and per "
        "cent: share of the row; below it the count, folds and networks pooled.",
        alt=f"Confusion matrices {_under(noise)}. Share of the test side predicted correctly: "
        + ", ".join(f"{name} {np.trace(m) / max(m.sum(), 1):.2f}" for name, m in panels.items())
        + ".",
    )


def mae_against_rate(results: StudyResults) -> list[Drawing]:
    """One figure for each kind of noise that was injected at two rates or more."""
    rates = _rates(results)
    scores = results.scores
    scores = scores[(scores["split"] == "test") & (scores["metric"] == "mae") & (scores["variant"] == "")]
    drawings = []
    for kind, name in KINDS.items():
        at = {
            noise: rates[noise]
            for noise in noises(results)
            if parse_noise(noise).kind == kind and noise in rates
        }
        if len(at) < 2:
            continue
        lines = []
        for method in _methods(results):
            mine = scores[(scores["method"] == method) & scores["noise"].isin(list(at))]
            if mine.empty:
                continue
            folds = mine.assign(rate=mine["noise"].map(at)).pivot_table(
                index="fold", columns="rate", values="value"
            )
            lines.append(_over_folds(method, folds))
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
                alt=f"Line chart of the mean absolute error against the rate of {name} noise. {_ends(lines)}",
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

    def add(name: str, title: str, lines: Sequence[Line], caption: str, level: float | None = None) -> None:
        if lines:
            reference = None if level is None else (level, f"1 − ε = {level:.2f}: no selection")
            figure = chart(lines, xlabel="epoch", title=title, reference=reference)
            alt = f"Line chart over epochs: {title}. {_ends(lines)}"
            drawings.append(Drawing(name=name, figure=figure, caption=caption, alt=alt))

    def over_epochs(split: str, metric: str, label: str) -> list[Line]:
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


# ── what the figures have in common ────────────────────────────────────────────────────────────────────────


def _under(noise: str) -> str:
    name = noise_name(noise)
    return "with the labels as given" if parse_noise(noise).kind == "none" else f"under {name}"


def _methods(results: StudyResults) -> list[str]:
    return paper_order([*results.facts.get("methods", []), *results.runs["method"]])


def _styles(results: StudyResults) -> dict[str, Look]:
    """One look for the whole study: a method keeps its colour from figure to figure."""
    return looks(_methods(results))


def _plain_runs(results: StudyResults, noise: str) -> pd.DataFrame:
    """The runs of a noise without the ablation's variants: those are for the tables."""
    runs = results.runs
    return runs[(runs["noise"] == noise) & (runs["variant"] == "")]


def _rates(results: StudyResults) -> dict[str, float]:
    """Nominal rate of each noise on the data's class mix, mean over folds; else the one in its name."""
    rates = {noise: parse_noise(noise).rate for noise in noises(results)}
    known = results.noise.dropna(subset=["nominal_rate"]).groupby("noise")["nominal_rate"].mean()
    return {
        **{n: r for n, r in rates.items() if r is not None},
        **{str(n): float(r) for n, r in known.items()},
    }


def _selecting(results: StudyResults, noise: str) -> list[str]:
    """Methods that leave clean samples out at some time, which is to say: that select."""
    m = results.metrics
    partial = m[(m["noise"] == noise) & (m["metric"] == "label_recall") & (m["value"] < 1)]
    return [method for method in _methods(results) if method in set(partial["method"])]


def _curves(
    results: StudyResults, noise: str, *, split: str, metric: str, methods: Iterable[str] | None = None
) -> tuple[list[Line], dict[str, str]]:
    """A line per method, mean and spread over folds (seeds averaged first), and what is missing of which.

    Finished runs only; where a method has none, those under way, as far as all of them have come.
    """
    m = results.metrics
    m = m[(m["noise"] == noise) & (m["variant"] == "") & (m["split"] == split) & (m["metric"] == metric)]
    runs = _plain_runs(results, noise)
    pooled = results.facts.get("config", {}).get("convention") == "published-code"
    lines, short = [], {}
    for method in methods if methods is not None else _methods(results):
        mine = runs[runs["method"] == method]
        done = mine[mine["status"] == "done"]
        chosen = done if len(done) else mine
        table = m[m["key"].isin(list(chosen["key"]))]
        if table.empty:
            continue
        if len(done) < len(mine):
            short[display_name(method)] = (
                f"{len(done)} of {len(mine)} runs" if len(done) else "unfinished, as far as it has come"
            )
        per_run = {
            key: mean_over_networks(rows, split=split, metric=metric, pooled=pooled)
            for key, rows in table.groupby("key")
        }
        wide = pd.DataFrame(per_run).dropna()  # the epochs that all have reached
        if wide.empty:
            continue
        fold_of = chosen.set_index("key")["fold"]
        folds = wide.T.groupby(fold_of.reindex(wide.columns).to_numpy()).mean()
        lines.append(_over_folds(method, folds))
    return lines, short


def _over_folds(method: str, folds: pd.DataFrame) -> Line:
    """One row per fold, one column per place on the x-axis → their mean, and their spread if there are several."""
    return Line(
        name=method,
        label=display_name(method),
        x=folds.columns.to_numpy(np.float64),
        y=folds.mean().to_numpy(np.float64),
        spread=folds.std(ddof=0).to_numpy(np.float64) if len(folds) > 1 else None,
    )


def _line(name: str, curve: pd.Series) -> Line:
    return Line(name=name, x=curve.index.to_numpy(np.float64), y=curve.to_numpy(np.float64))


def _incomplete(short: dict[str, str]) -> str:
    if not short:
        return ""
    if len(short) > 4 and len(set(short.values())) == 1:
        return f" Incomplete: {len(short)} methods, each {next(iter(short.values()))}."
    return " Incomplete: " + "; ".join(f"{name}, {what}" for name, what in short.items()) + "."


def _ends(lines: Sequence[Line]) -> str:
    """The last values in words, best first, for those who cannot see the lines."""
    last = sorted(((float(line.y[-1]), line.label or line.name) for line in lines), reverse=True)
    return "At the end: " + ", ".join(f"{name} {value:.3f}" for value, name in last) + "."


def _count_and_share(count: float, share: float) -> str:
    return f"{share:.0%}\n{count:,.0f}" if count else "0"


def _probability(value: float, share: float) -> str:
    return f"{value:.3f}" if value else "0"


def _transition(panels: dict[str, npt.NDArray[np.float64]], grades: Sequence[str]) -> Figure:
    return matrix_figure(panels, grades=grades, rows="true grade", columns="label", write=_probability)


def _kept_right(matrix: npt.NDArray[np.float64], grades: Sequence[str]) -> str:
    kept = ", ".join(f"{grade} {p:.2f}" for grade, p in zip(grades, np.diag(matrix), strict=True))
    return f"Probability that a label is right, by true grade: {kept}."
