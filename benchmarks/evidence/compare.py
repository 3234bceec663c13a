"""One method against others on the same patients: scores, and differences with intervals by resampling patients.

    python benchmarks/evidence/compare.py benchmarks/evidence/results/held_out.csv.xz --of srjt
    python benchmarks/evidence/compare.py predictions --of srjt --against sord --views 10 --figures figures

reads what predictions.py wrote, a folder of tables or all in one. Networks are averaged; ``--views 10`` averages ten
views of an image as well, and ``--plain`` scores the methods compared with as the paper does: each network alone,
one view, their mean. Folds and seeds of a setting are pooled, and a patient is drawn with all of his or her images.
So the intervals are about other patients; three seeds say little about other trainings.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from srjt.errors import SrjtError, suggest
from srjt.ordinal.intervals import resampled_metrics
from srjt.reports.figures.canvas import (
    GREY,
    INK,
    PALETTE,
    CaptionedFigure,
    house_style,
    new_figure,
    save_figure,
)

SHOWN = {"accuracy": "accuracy", "mae": "MAE", "macro_f1": "macro-F1"}
RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a method said about the test images of all folds."""

    true: np.ndarray  # (N,)
    patients: np.ndarray  # (N,)
    grades: np.ndarray  # (A, N): one row, or one for each network that is scored alone


class Difference(NamedTuple):
    """Of one metric: both scores, and the 95 % interval of their difference."""

    ours: float
    theirs: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        return self.low > 0 or self.high < 0


class Row(NamedTuple):
    noise: str
    against: str
    by_metric: dict[str, Difference]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("predictions", type=Path)
    parser.add_argument("--of", required=True, help="a method, or method:variant")
    parser.add_argument("--against", action="append", help="by default all others; repeatable")
    parser.add_argument("--views", type=int, default=1, choices=(1, 2, 10))
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--figures", type=Path, help="folder for differences.svg and .png")
    given = parser.parse_args()
    table = _read(given.predictions)
    for name in [given.of, *(given.against or [])]:
        if name not in set(table["named"]):
            raise suggest("method", name, set(table["named"]))
    rows = []
    for noise in sorted(set(table["noise"])):
        ours = _pooled(table, noise, given.of, views=given.views, alone=False)
        for name in given.against or sorted(set(table["named"]) - {given.of}):
            theirs = _pooled(table, noise, name, views=1 if given.plain else given.views, alone=given.plain)
            if ours is not None and theirs is not None:
                rows.append(_compared(noise, name, ours, theirs))
    if not rows:
        raise SrjtError(
            f"{given.predictions} has no setting with {given.of} and a method to compare it with."
        )
    print(f"| noise | against | {' | '.join(SHOWN.values())} |\n|:--|:--|{':-:|' * len(SHOWN)}")
    for row in rows:
        cells = (_cell(row.by_metric[metric]) for metric in SHOWN)
        print(f"| {row.noise} | `{row.against}` | {' | '.join(cells)} |")
    if given.figures is not None:
        save_figure(_figure(rows, given.of), given.figures)


def _read(source: Path) -> pd.DataFrame:
    files = sorted(source.glob("*.csv")) if source.is_dir() else [source]
    if not files or not files[0].is_file():
        raise SrjtError(f"{source} holds no tables: make them with predictions.py.")
    as_text = {"noise": str, "method": str, "variant": str, "patient": str}
    table = pd.concat(pd.read_csv(f, dtype=as_text, keep_default_na=False, na_values=[""]) for f in files)
    table["named"] = table["method"] + (":" + table["variant"]).fillna("")
    return table


def _pooled(table: pd.DataFrame, noise: str, named: str, *, views: int, alone: bool) -> Answers | None:
    found = table[(table["noise"] == noise) & (table["named"] == named)]
    if found.empty:
        return None
    found = found.sort_values(["fold", "seed"], kind="stable")
    columns = [f"views {views}, network {k}" for k in (1, 2)] if alone else [f"views {views}, both"]
    columns = [name for name in columns if name in found]
    return Answers(
        true=found["true"].to_numpy(),
        patients=found["patient"].to_numpy(),
        grades=found[columns].dropna(axis=1).to_numpy(np.int64).T,  # a single network has no second
    )


def _compared(noise: str, against: str, ours: Answers, theirs: Answers) -> Row:
    """Both are resampled by the same draws of patients."""
    if not (np.array_equal(ours.true, theirs.true) and np.array_equal(ours.patients, theirs.patients)):
        raise SrjtError(f"{noise}: {against} was not tested in the same folds and seeds, on the same images.")
    classes = 1 + int(max(ours.true.max(), ours.grades.max(), theirs.grades.max()))
    left, right = (_scores(answers, classes) for answers in (ours, theirs))
    by_metric = {}
    for metric in SHOWN:
        low, high = np.quantile((left[metric] - right[metric])[1:], [0.025, 0.975])
        by_metric[metric] = Difference(left[metric][0], right[metric][0], low, high)
    return Row(noise, against, by_metric)


def _scores(answers: Answers, classes: int) -> dict[str, np.ndarray]:
    """(1 + RESAMPLES,) values by metric; of networks that are scored alone, their mean."""
    each = [
        resampled_metrics(
            answers.true,
            grades,
            num_classes=classes,
            groups=answers.patients.tolist(),
            metrics=SHOWN,
            resamples=RESAMPLES,
        )
        for grades in answers.grades
    ]
    return {metric: np.mean([one[metric] for one in each], axis=0) for metric in SHOWN}


def _cell(d: Difference) -> str:
    gap = f"**{d.ours - d.theirs:+.3f}**" if d.clear else f"{d.ours - d.theirs:+.3f}"
    return f"{d.ours:.3f}, {d.theirs:.3f}: {gap} ({d.low:+.3f} to {d.high:+.3f})".replace("-", "−")


@house_style
def _figure(rows: list[Row], of: str) -> CaptionedFigure:
    """A panel for each metric, in all of them better to the right."""
    figure = new_figure(7.4, 0.9 + 0.27 * len(rows))
    figure.set_layout_engine("constrained")
    figure.suptitle(
        f"{of} minus another method, 95 % of resampled patients; to the right {of} is better", fontsize=9.5
    )
    names = [f"{'as given' if row.noise == 'none' else row.noise}, {row.against}" for row in rows]
    panels = figure.subplots(1, len(SHOWN), sharey=True)
    for panel, (metric, title) in zip(panels, SHOWN.items(), strict=True):
        for height, row in enumerate(rows):
            d = row.by_metric[metric]
            better = (d.ours > d.theirs) != (metric == "mae")
            colour = PALETTE["blue" if better else "vermillion"] if d.clear else GREY
            panel.plot([d.low, d.high], [height, height], color=colour, linewidth=1.6)
            panel.plot(d.ours - d.theirs, height, "o", color=colour, markersize=4.5)
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
