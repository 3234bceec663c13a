"""Draw docs/images/overview.png: wrong labels, what they do to a training, and how they are found.

    python benchmarks/overview_picture.py          # about six minutes on one core

Synthetic images, three seeds; 30 % of the training labels are wrong by one grade. The middle panel is the accuracy on
test images with true grades after each epoch, mean and range over the seeds. The right panel has every label of the
audit of seed 0, the most doubtful first.
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

import srjt
from srjt import noise
from srjt.data import Manifest, Split, folds
from srjt.data.splits import corrupt_sides
from srjt.data.synthetic import generate
from srjt.reports.figures.canvas import GREY, INK, PALETTE, house_style, new_figure

RATE, SEEDS, COLUMNS = 0.3, (0, 1, 2), 40
METHODS = {"standard": "vermillion", "srjt": "blue"}
SETTINGS = {"network": "tiny", "image_size": 64, "crop": 60, "learning_rate": 2e-3, "device": "cpu"}


def noisy_images(seed: int) -> tuple[Manifest, Split]:
    clean = generate(images=1200, patients=120, size=64, seed=seed)
    split = folds(clean, folds=5, seed=seed)[0]
    rho = noise.rho_for_rate("truncated", rate=RATE, class_counts=clean.class_counts)
    matrix = noise.transition_matrix("truncated", num_classes=clean.num_classes, rho=rho)
    return corrupt_sides(clean, split, matrix, seed=seed)[0], split


def accuracies(
    data: Manifest, split: Split, method: str, *, seed: int, epochs: int
) -> npt.NDArray[np.float64]:
    """(epochs,) accuracy on the test side, by the mean of the networks."""
    run = srjt.train(data, split=split, method=method, epochs=epochs, seed=seed, **SETTINGS)
    found = run.metrics.query("split == 'test' and metric == 'accuracy'")
    by = "ensemble" if "ensemble" in set(found["network"]) else "1"
    return found[found["network"] == by].sort_values("epoch")["value"].to_numpy(np.float64)


def draw_labels(part: SubFigure, data: Manifest, rows: npt.NDArray[np.int64]) -> None:
    assert data.arrays is not None
    assert data.true_labels is not None
    part.suptitle("Some labels are wrong, …", x=0.02, ha="left", fontsize=11, color=INK)
    for axes, row in zip(part.subplots(2, len(rows) // 2).flat, rows, strict=True):
        given, true = int(data.labels[row]), int(data.true_labels[row])
        axes.imshow(data.arrays[row])
        axes.set_axis_off()
        right = given == true
        axes.set_title(
            f"grade {given}" if right else f"grade {given}, truly {true}", loc="center", fontsize=8,
            color=INK if right else PALETTE["vermillion"], fontweight="normal" if right else "bold",
        )  # fmt: skip


def draw_curves(part: SubFigure, curves: dict[str, npt.NDArray[np.float64]]) -> None:
    part.suptitle("… plain training learns them, …", x=0.02, ha="left", fontsize=11, color=INK)
    axes = part.subplots()
    for method, scores in curves.items():
        epochs = np.arange(1, scores.shape[1] + 1)
        axes.fill_between(
            epochs, scores.min(axis=0), scores.max(axis=0), color=PALETTE[METHODS[method]], alpha=0.18
        )
        axes.plot(epochs, scores.mean(axis=0), color=PALETTE[METHODS[method]], linewidth=2)
        axes.annotate(
            method, (epochs[-1], scores[:, -5:].mean()), xytext=(5, 0), textcoords="offset points", va="center",
            color=PALETTE[METHODS[method]], fontsize=10, fontweight="bold", annotation_clip=False,
        )  # fmt: skip
    axes.set_xlabel("epoch")
    axes.set_ylim(0.45, None)  # the first epoch of three seeds may lie below
    axes.set_ylabel("accuracy on true grades")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def draw_audit(part: SubFigure, scores: pd.DataFrame) -> None:
    part.suptitle("… and an audit finds them.", x=0.02, ha="left", fontsize=11, color=INK)
    wrong = (scores["grade"] != scores["true_grade"]).to_numpy()
    wrong = wrong[: len(wrong) // COLUMNS * COLUMNS].reshape(-1, COLUMNS)
    axes = part.subplots()
    axes.imshow(
        wrong, cmap=ListedColormap(["#d9d8d6", PALETTE["vermillion"]]), aspect="auto", interpolation="none"
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
    parser.add_argument("--out", type=Path, default=Path("docs/images/overview.png"))
    parser.add_argument("--epochs", type=int, default=30)
    given = parser.parse_args()
    sets = {seed: noisy_images(seed) for seed in SEEDS}
    curves = {
        method: np.stack([accuracies(*sets[seed], method, seed=seed, epochs=given.epochs) for seed in SEEDS])
        for method in METHODS
    }
    for method, found in curves.items():
        print(
            f"{method}: best {found.mean(axis=0).max():.3f}, last ten epochs {found[:, -10:].mean():.3f}",
            flush=True,
        )
    data, split = sets[0]
    audited = srjt.audit(data.select(split.train), epochs=given.epochs, **SETTINGS)
    scores = audited.scores
    print(f"estimated noise rate {audited.estimate.rate:.3f}, of the {len(scores) // 10} most doubtful labels "
          f"{(scores['grade'] != scores['true_grade'])[: len(scores) // 10].mean():.0%} are wrong")  # fmt: skip
    assert data.true_labels is not None
    true = data.true_labels[split.train]
    rows = np.concatenate([split.train[true == grade][:2] for grade in range(data.num_classes)])
    buffer = io.BytesIO()
    picture(data, rows, curves, scores).savefig(buffer, dpi=150)
    Image.open(buffer).convert("RGB").quantize(256).save(given.out, optimize=True)  # a third of the bytes


if __name__ == "__main__":
    main()
