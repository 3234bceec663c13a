"""One method against others on the same patients: scores, and differences with intervals and Holm's
correction.

    python benchmarks/evidence/compare.py benchmarks/evidence/results/held_out.csv.xz --of srjt
    python benchmarks/evidence/compare.py predictions --of srjt --against sord --views 10 --figures figures

reads what predictions.py wrote, a folder of tables or all in one. Networks are averaged; ``--views
10`` averages ten views of an image as well, and ``--plain`` scores the methods compared with as the
paper does: each network alone, one view, their mean. A score is the mean over the runs of a
setting.

Intervals contain other patients *and* other trainings. Seeds of one fold share their test patients:
patients are resampled, each with all of his or her images, and the variance between seeds is added.
Several folds have their own patients and trainings each: the corrected t-test over folds contains
both. **Bold**: p < 0.05 after Holm's correction for the number of differences in the table.
``--best`` compares with the best of the others, chosen for each half of the patients by the other
half, because the best by the same patients would look better than it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from differences import Difference, crossed_difference

from srjt.errors import SrjtError, unknown_name
from srjt.ordinal.intervals import holm, resampled_metrics
from srjt.ordinal.metrics import METRICS
from srjt.reports.figures.canvas import (
    GREY,
    INK,
    PALETTE,
    CaptionedFigure,
    house_style,
    new_figure,
    save_figure,
)
from srjt.studies.results import corrected_t_test

SHOWN = {"accuracy": "accuracy", "mae": "MAE", "macro_f1": "macro-F1"}
RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What one training of a method said about its test images."""

    true: np.ndarray  # (N,)
    patients: np.ndarray  # (N,)
    grades: np.ndarray  # (A, N): one row, or one for each network that is scored alone


Runs = dict[tuple[int, int], Answers]  # by fold and seed


class Compared(NamedTuple):
    """Of one metric: both scores, and their difference."""

    ours: float
    theirs: float
    difference: Difference
    clear: bool = False  # after Holm's correction


class Row(NamedTuple):
    noise: str
    against: str
    by_metric: dict[str, Compared]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("predictions", type=Path)
    parser.add_argument("--of", required=True, help="a method, or method:variant")
    parser.add_argument("--against", action="append", help="by default all others; repeatable")
    parser.add_argument(
        "--best", action="store_true", help="with the best of them only, chosen on other patients"
    )
    parser.add_argument("--views", type=int, default=1, choices=(1, 2, 10))
    parser.add_argument("--plain", action="store_true")
    parser.add_argument(
        "--ratio", type=float, default=1 / 3, help="test size / training size, for several folds"
    )
    parser.add_argument("--figures", type=Path, help="folder for differences.svg and .png")
    given = parser.parse_args(words)
    table = _read(given.predictions)
    for name in [given.of, *(given.against or [])]:
        if name not in set(table["named"]):
            raise unknown_name("method", name, set(table["named"]))
    rows, trained = [], set()
    for noise in sorted(set(table["noise"])):
        ours = _runs(table, noise, given.of, views=given.views, alone=False)
        views = 1 if given.plain else given.views
        others = {
            name: runs
            for name in given.against or sorted(set(table["named"]) - {given.of})
            if (runs := _runs(table, noise, name, views=views, alone=given.plain))
        }
        if not ours or not others:
            continue
        for name, theirs in others.items():
            _check_same(noise, name, ours, theirs)
        if given.best:
            best = {
                metric: _compared(ours, _best_elsewhere(others, metric), metric, given.ratio)
                for metric in SHOWN
            }
            rows.append(Row(noise, f"best of {len(others)}", best))
        else:
            rows += [
                Row(
                    noise,
                    name,
                    {metric: _compared(ours, theirs, metric, given.ratio) for metric in SHOWN},
                )
                for name, theirs in others.items()
            ]
        trained.add((len({fold for fold, _ in ours}), len({seed for _, seed in ours})))
    if not rows:
        raise SrjtError(
            f"{given.predictions} has no setting with {given.of} and a method to compare it with."
        )
    rows = _marked(rows)
    print(f"| noise | against | {' | '.join(SHOWN.values())} |\n|:--|:--|{':-:|' * len(SHOWN)}")
    for row in rows:
        cells = (_cell(row.by_metric[metric]) for metric in SHOWN)
        print(f"| {_shown(row.noise)} | `{row.against}` | {' | '.join(cells)} |")
    print(f"\n{_legend(rows, trained)}")
    if given.figures is not None:
        save_figure(_figure(rows, given.of), given.figures)


def _read(source: Path) -> pd.DataFrame:
    files = sorted(source.glob("*.csv")) if source.is_dir() else [source]
    if not files or not files[0].is_file():
        raise SrjtError(f"{source} holds no tables: make them with predictions.py.")
    as_text = {"noise": str, "method": str, "variant": str, "patient": str}
    table = pd.concat(
        pd.read_csv(f, dtype=as_text, keep_default_na=False, na_values=[""]) for f in files
    )
    table["named"] = table["method"] + (":" + table["variant"]).fillna("")
    return table


def _runs(table: pd.DataFrame, noise: str, named: str, *, views: int, alone: bool) -> Runs:
    found = table[(table["noise"] == noise) & (table["named"] == named)]
    columns = [f"views {views}, network {k}" for k in (1, 2)] if alone else [f"views {views}, both"]
    columns = [name for name in columns if name in found]
    return {
        (int(fold), int(seed)): Answers(
            true=run["true"].to_numpy(),
            patients=run["patient"].to_numpy(),
            grades=run[columns]
            .dropna(axis=1)
            .to_numpy(np.int64)
            .T,  # a single network has no second
        )
        for (fold, seed), run in found.groupby(["fold", "seed"])
    }


def _check_same(noise: str, against: str, ours: Runs, theirs: Runs) -> None:
    same = ours.keys() == theirs.keys() and all(
        np.array_equal(run.true, theirs[key].true)
        and np.array_equal(run.patients, theirs[key].patients)
        for key, run in ours.items()
    )
    if not same:
        raise SrjtError(
            f"{noise}: {against} was not tested in the same folds and seeds, on the same images."
        )


def _compared(ours: Runs, theirs: Runs, metric: str, ratio: float) -> Compared:
    """Both are resampled by the same draws of patients."""
    several = len({fold for fold, _ in ours}) > 1
    resamples = 0 if several else RESAMPLES
    left, right = (
        {key: _scores(run, metric, resamples) for key, run in runs.items()}
        for runs in (ours, theirs)
    )
    scores = [float(np.mean([draws[0] for draws in found.values()])) for found in (left, right)]
    gaps = {key: left[key] - right[key] for key in left}
    if several:
        folds = pd.Series({key: draws[0] for key, draws in gaps.items()}).groupby(level=0).mean()
        test = corrected_t_test(folds.to_numpy(), test_train_ratio=ratio)
        missing = [
            np.nan if value is None else value for value in (test.low, test.high, test.p_value)
        ]
        difference = Difference(scores[0] - scores[1], *missing)
    else:
        patients = len(set(next(iter(ours.values())).patients))
        difference = crossed_difference(list(gaps.values()), patients=patients)
    return Compared(scores[0], scores[1], difference)


def _scores(run: Answers, metric: str, resamples: int) -> np.ndarray:
    """(1 + resamples,) values; of networks that are scored alone, their mean."""
    classes = 1 + int(max(run.true.max(), run.grades.max()))
    each = [
        resampled_metrics(
            run.true,
            grades,
            num_classes=classes,
            groups=run.patients.tolist(),
            metrics=[metric],
            resamples=resamples,
        )[metric]
        for grades in run.grades
    ]
    return np.mean(each, axis=0)


def _best_elsewhere(others: dict[str, Runs], metric: str) -> Runs:
    """The answers of the method that is best on one half of the patients, about the other half;
    both ways."""
    everyone = np.unique(
        np.concatenate([run.patients for run in next(iter(others.values())).values()])
    )
    first_half = np.random.default_rng(0).permutation(everyone)[: len(everyone) // 2]
    sign = 1 if METRICS[metric].lower_is_better else -1

    def score(runs: Runs, *, first: bool) -> float:
        chosen = {key: np.isin(run.patients, first_half) == first for key, run in runs.items()}
        return float(
            np.mean(
                [
                    _scores(_part(runs[key], rows), metric, 0)[0]
                    for key, rows in chosen.items()
                    if rows.any()
                ]
            )
        )

    by_first, by_second = (
        min(others, key=lambda n: sign * score(others[n], first=f)) for f in (True, False)
    )
    joined = {}
    for key, run in others[by_first].items():
        other = others[by_second][key]
        networks = max(len(run.grades), len(other.grades))  # a single one counts for both
        mine, theirs = (
            np.broadcast_to(g, (networks, g.shape[1])) for g in (run.grades, other.grades)
        )
        joined[key] = replace(run, grades=np.where(np.isin(run.patients, first_half), theirs, mine))
    return joined


def _part(run: Answers, rows: np.ndarray) -> Answers:
    return Answers(true=run.true[rows], patients=run.patients[rows], grades=run.grades[:, rows])


def _marked(rows: list[Row]) -> list[Row]:
    """The rows, with Holm's correction over all their differences."""
    corrected = iter(
        holm([row.by_metric[metric].difference.p_value for row in rows for metric in SHOWN])
    )
    return [
        row._replace(
            by_metric={
                m: row.by_metric[m]._replace(clear=bool(next(corrected) < 0.05)) for m in SHOWN
            }
        )
        for row in rows
    ]


def _shown(noise: str) -> str:
    return "as given" if noise == "none" else noise


def _cell(found: Compared) -> str:
    value, low, high, _ = found.difference
    gap = f"**{value:+.3f}**" if found.clear else f"{value:+.3f}"
    interval = "no interval" if np.isnan(low) else f"{low:+.3f} to {high:+.3f}"
    return f"{found.ours:.3f}, {found.theirs:.3f}: {gap} ({interval})".replace("-", "−")


def _legend(rows: list[Row], trained: set[tuple[int, int]]) -> str:
    """What the intervals contain, and what is bold."""
    parts = []
    for folds, seeds in sorted(trained):
        if folds > 1:
            parts.append(
                f"the {folds} folds, which have their own patients and trainings (corrected t-test)"
            )
        elif seeds > 1:
            parts.append(f"other patients (resampled) and other trainings ({seeds} seeds)")
        else:
            parts.append("nothing: there is one training, which says nothing about others")
    single = sum(clear_alone(row.by_metric[metric].difference) for row in rows for metric in SHOWN)
    clear = sum(row.by_metric[metric].clear for row in rows for metric in SHOWN)
    return (
        f"95 % intervals contain {'; '.join(parts)}. {single} of {len(rows) * len(SHOWN)} exclude zero; "
        f"bold: p < 0.05 after Holm's correction, {clear}."
    )


def clear_alone(difference: Difference) -> bool:
    return difference.low > 0 or difference.high < 0


@house_style
def _figure(rows: list[Row], of: str) -> CaptionedFigure:
    """A panel for each metric, in all of them better to the right."""
    figure = new_figure(7.4, 1.1 + 0.27 * len(rows))
    figure.set_layout_engine("constrained")
    figure.suptitle(
        f"{of} minus another method, 95 % intervals (patients and trainings); to the right {of} is better\n"
        "coloured: p < 0.05 after Holm's correction",
        fontsize=9.5,
    )
    names = [f"{_shown(row.noise)}, {row.against}" for row in rows]
    panels = figure.subplots(1, len(SHOWN), sharey=True)
    for panel, (metric, title) in zip(panels, SHOWN.items(), strict=True):
        for height, row in enumerate(rows):
            value, low, high, _ = row.by_metric[metric].difference
            better = (value > 0) != (metric == "mae")
            colour = (
                PALETTE["blue" if better else "vermillion"] if row.by_metric[metric].clear else GREY
            )
            panel.plot([low, high], [height, height], color=colour, linewidth=1.6)
            panel.plot(value, height, "o", color=colour, markersize=4.5)
        panel.axvline(0, color=INK, linewidth=0.7)
        panel.set_title(title)
        panel.set_yticks(range(len(rows)), names)
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.tick_params(length=0)
        if metric == "mae":
            panel.invert_xaxis()
    return CaptionedFigure(name="differences", figure=figure, caption="", alt="")


if __name__ == "__main__":
    try:
        main()
    except SrjtError as problem:
        raise SystemExit(str(problem)) from None
