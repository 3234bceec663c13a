"""Draw docs/images/overview.png from the folder of a demo: wrong labels, what they do to a
training, and their audit.

    srjt demo && python benchmarks/overview_picture.py srjt-demo

The middle panel is the share of the wrong training labels that a network gives after each epoch.
The right panel has every label of the audit, the most doubtful first.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure, SubFigure
from PIL import Image

from srjt.data import Manifest, read
from srjt.data.synthetic import generate
from srjt.reports.figures.canvas import GREY, INK, PALETTE, house_style, new_figure
from srjt.training.checkpoint import read_metrics
from srjt.training.config import load_preset

COLUMNS = 40
FOLDERS = {"standard": "plain", "srjt": "model"}  # of the analysis
COLOURS = {"standard": "vermillion", "srjt": "blue"}


def repeated(folder: Path) -> npt.NDArray[np.float64]:
    """(epochs,) share of the wrong training labels that a run gives, the mean of the networks."""
    metrics = read_metrics(folder / "metrics.csv")
    chosen = metrics.query(
        "split == 'wrong_labels' and metric == 'accuracy' and network in ('1', '2')"
    )
    return chosen.groupby("epoch")["value"].mean().to_numpy(np.float64)


def draw_labels(part: SubFigure, data: Manifest, rows: npt.NDArray[np.int64]) -> None:
    assert data.arrays is not None
    assert data.true_labels is not None
    part.suptitle("Some labels are wrong, …", x=0.02, ha="left", fontsize=11, color=INK)
    for axes, row in zip(part.subplots(2, len(rows) // 2).flat, rows, strict=True):
        label, true = int(data.labels[row]), int(data.true_labels[row])
        axes.imshow(data.arrays[row])
        axes.set_axis_off()
        right = label == true
        axes.set_title(
            f"grade {label}" if right else f"grade {label}, truly {true}", loc="center", fontsize=8,
            color=INK if right else PALETTE["vermillion"], fontweight="normal" if right else "bold",
        )  # fmt: skip


def draw_curves(part: SubFigure, curves: dict[str, npt.NDArray[np.float64]]) -> None:
    part.suptitle("… plain training learns them, …", x=0.02, ha="left", fontsize=11, color=INK)
    axes = part.subplots()
    for method, scores in curves.items():
        colour = PALETTE[COLOURS[method]]
        epochs = np.arange(1, len(scores) + 1)
        axes.plot(epochs, scores, color=colour, linewidth=2)
        axes.annotate(
            method,
            (epochs[-1], scores[-5:].mean()),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=10,
            fontweight="bold",
            annotation_clip=False,
        )
    axes.set_xlabel("epoch")
    axes.set_ylim(0.0, None)
    axes.set_ylabel("wrong labels repeated")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def draw_audit(part: SubFigure, scores: pd.DataFrame) -> None:
    part.suptitle("… and an audit finds them.", x=0.02, ha="left", fontsize=11, color=INK)
    wrong = (scores["grade"] != scores["true_grade"]).to_numpy()
    wrong = wrong[: len(wrong) // COLUMNS * COLUMNS].reshape(-1, COLUMNS)
    axes = part.subplots()
    axes.imshow(
        wrong,
        cmap=ListedColormap(["#d9d8d6", PALETTE["vermillion"]]),
        aspect="auto",
        interpolation="none",
    )
    axes.set_xticks([])
    axes.set_yticks([0, len(wrong) - 1], ["most\ndoubtful", "least"])
    axes.tick_params(length=0, labelcolor=GREY)
    axes.set_xlabel(f"{wrong.size:,} labels; orange: wrong ({wrong.mean():.0%})")
    for side in axes.spines.values():
        side.set_visible(False)


@house_style
def picture(data: Manifest, rows: npt.NDArray[np.int64], curves: dict[str, npt.NDArray[np.float64]],
            scores: pd.DataFrame) -> Figure:  # fmt: skip
    figure = new_figure(11.0, 3.1)
    figure.set_layout_engine("constrained")
    figure.set_facecolor("white")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(1.25, 1.1, 0.85), wspace=0.04)
    draw_labels(left, data, rows)
    draw_curves(middle, curves)
    draw_audit(right, scores)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("demo", type=Path, nargs="?", default=Path("srjt-demo"))
    parser.add_argument("--out", type=Path, default=Path("docs/images/overview.png"))
    options = parser.parse_args()
    analysed = options.demo / "analysis"
    curves = {method: repeated(analysed / folder) for method, folder in FOLDERS.items()}
    labels = read(options.demo / "images" / "noisy.csv")
    reading = load_preset("demo")["reading"]
    drawn = generate(**reading, seed=0)
    data = drawn.with_noisy_labels(labels.labels)
    assert data.ids == labels.ids
    assert data.true_labels is not None
    rows = np.concatenate(
        [np.flatnonzero(data.true_labels == grade)[:2] for grade in range(data.num_classes)]
    )
    scores = pd.read_csv(analysed / "audit" / "audit.csv")
    buffer = io.BytesIO()
    picture(data, rows, curves, scores).savefig(buffer, dpi=150)
    Image.open(buffer).convert("RGB").quantize(256).save(
        options.out, optimize=True
    )  # a third of the bytes


if __name__ == "__main__":
    main()
