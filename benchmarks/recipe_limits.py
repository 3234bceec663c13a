"""Where a default must not fail: few samples, many or few grades, one common grade, clean labels, a
small network.

    python benchmarks/recipe_limits.py                  # minutes on two cores; --seeds 3 by default
    python benchmarks/recipe_limits.py --only images    # the row with images alone

Every method is told nothing. Samples are features with a latent severity, or the synthetic images;
labels err by one grade, more often downwards, and near the boundary (or not at all). Judged on
2,000 (images: 600) samples with true grades of other patients: MAE of the median grade and macro-F1
of the most likely one. ``naive`` always says the median of the training labels; a method that is
not better than it has collapsed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from feature_study import PATIENT

import srjt
from srjt.data import Manifest, Split, from_arrays
from srjt.data.synthetic import generate
from srjt.ordinal import decode, metrics

METHODS = ("srjt", "standard", "eae")
TEST = 2000


@dataclass(frozen=True)
class Case:
    name: str
    shares: tuple[float, ...]  # of the grades
    samples: int
    # the share of labels that err to the lower grade, of those above the mildest
    lower: float = 0.25
    higher: float = 0.08


CASES = (
    Case("five grades, 3,000 samples", (0.4, 0.2, 0.2, 0.1, 0.1), 3000),
    Case("three grades", (0.4, 0.35, 0.25), 3000),
    Case("ten grades", (0.1,) * 10, 3000),
    Case("73 % have one grade", (0.73, 0.07, 0.14, 0.04, 0.02), 3000),
    Case("300 samples", (0.4, 0.2, 0.2, 0.1, 0.1), 300),
    Case("300 samples, 73 %", (0.73, 0.07, 0.14, 0.04, 0.02), 300),
    Case("clean labels", (0.4, 0.2, 0.2, 0.1, 0.1), 3000, 0.0, 0.0),
    Case("clean labels, 300 samples", (0.4, 0.2, 0.2, 0.1, 0.1), 300, 0.0, 0.0),
    Case("clean labels, 73 %", (0.73, 0.07, 0.14, 0.04, 0.02), 3000, 0.0, 0.0),
)


def features(case: Case, *, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """(N + TEST, 64) features and true grades (N + TEST,): severity and seven other traits, mixed
    by a random layer."""
    draws = np.random.default_rng(seed)
    rows = case.samples + TEST
    traits = draws.normal(size=(rows, 8))
    grades = np.digitize(traits[:, 0], np.quantile(traits[:, 0], np.cumsum(case.shares)[:-1]))
    x = np.tanh(0.7 * traits @ draws.normal(size=(8, 64))) + 0.5 * draws.normal(size=(rows, 64))
    return x.astype(np.float32), grades


def one_grade_off(
    grades: npt.NDArray[np.int64], *, classes: int, lower: float, higher: float, seed: int
) -> npt.NDArray[np.int64]:
    chance = np.random.default_rng([seed, 1]).random(len(grades))
    return (grades - (chance < lower) + (chance > 1 - higher)).clip(0, classes - 1)


def on_features(case: Case, *, seed: int) -> tuple[Manifest, Split]:
    x, true = features(case, seed=seed)
    labels = one_grade_off(
        true, classes=len(case.shares), lower=case.lower, higher=case.higher, seed=seed
    )
    labels[case.samples :] = true[case.samples :]
    manifest = from_arrays(x, labels, patients=np.arange(len(x)) // PATIENT, true_grades=true)
    return manifest, _split(case.samples, len(x))


def on_images(*, seed: int) -> tuple[Manifest, Split]:
    """300 synthetic images of 48 pixels for training and validation, 600 to judge."""
    drawn = generate(images=900, patients=300, size=48, seed=seed)
    true = drawn.labels
    labels = one_grade_off(true, classes=drawn.num_classes, lower=0.25, higher=0.08, seed=seed)
    labels[300:] = true[300:]
    return drawn.with_noisy_labels(labels), _split(300, 900)


def _split(samples: int, rows: int) -> Split:
    kept = samples * 4 // 5
    return Split(
        train=np.arange(kept), validation=np.arange(kept, samples), test=np.arange(samples, rows)
    )


def judge(
    manifest: Manifest, split: Split, *, method: str, seed: int, **settings: object
) -> tuple[float, float]:
    """MAE of the median grade and macro-F1 of the most likely grade."""
    true = torch.as_tensor(manifest.true_labels[split.test])
    if method == "naive":
        found = np.full(len(true), int(np.median(manifest.labels[split.train])))
        answers = [torch.as_tensor(found)] * 2
    else:
        run = srjt.train(manifest, split=split, method=method, seed=seed, device="cpu", **settings)  # type: ignore[arg-type]
        p = torch.as_tensor(run.held_out["test"].probabilities, dtype=torch.float64).mean(dim=0)
        answers = [decode(p, "median"), p.argmax(dim=-1)]
    counts = [
        metrics.confusion_matrix(true, grades, num_classes=manifest.num_classes).numpy()
        for grades in answers
    ]
    return metrics.METRICS["mae"](counts[0]), metrics.METRICS["macro_f1"](counts[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", choices=("features", "images"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    made: dict[str, tuple[Callable[[int], tuple[Manifest, Split]], dict[str, object]]] = {}
    if args.only != "images":
        for case in CASES:
            made[case.name] = (lambda seed, case=case: on_features(case, seed=seed), {"epochs": 30})
    if args.only != "features":
        made["300 images, tiny"] = (
            lambda seed: on_images(seed=seed),
            {"network": "tiny", "pretrained": False, "image_size": 48, "crop": 44, "epochs": 30},
        )
    rows = []
    for name, (make, settings) in made.items():
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            manifest, split = make(seed)
            for method in ("naive", *METHODS):
                mae, f1 = judge(manifest, split, method=method, seed=seed, **settings)
                rows.append(
                    {"case": name, "seed": seed, "method": method, "MAE": mae, "macro-F1": f1}
                )
        table = pd.DataFrame(rows)
        mean = (
            table[table["case"] == name].groupby("method", sort=False)[["MAE", "macro-F1"]].mean()
        )
        said = "  ".join(
            f"{method} {row['MAE']:.3f}/{row['macro-F1']:.3f}" for method, row in mean.iterrows()
        )
        print(f"{name:28} {said}", flush=True)


if __name__ == "__main__":
    main()
