"""Out-of-fold probabilities for labels that people really gave: one vote per image, where the truth
is known.

    python benchmarks/human_votes.py APPA-REAL --network timm:tf_efficientnet_lite0 --weights lite0.safetensors \\
        --size 144 --crop 128 --epochs 15 --seeds 0 1 2 --out probabilities/votes

APPA-REAL is a folder with labels.csv (image, true_grade) and votes.csv (image, grade): faces, the
true age group, and 33 guesses of it. For each seed one random vote per image is the label; networks
are trained on the votes of other images. The files are read by ``noise_estimation.py
--probabilities`` and ``label_errors.py --probabilities``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.data import read
from srjt.training.config import TrainConfig
from srjt.training.crossfit import cross_fit
from srjt.training.reporters import reporter_for
from srjt.training.trained import Setup


def one_vote_each(folder: Path, *, seed: int) -> pd.DataFrame:
    """image, grade (a random vote), true_grade."""
    truth = pd.read_csv(folder / "labels.csv")[["image", "true_grade"]]
    votes = pd.read_csv(folder / "votes.csv")[["image", "grade"]].dropna()
    chosen = votes.sample(frac=1, random_state=seed).drop_duplicates("image")
    return truth.merge(chosen.astype({"grade": int}), on="image")[["image", "grade", "true_grade"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--network", default="tiny")
    parser.add_argument("--weights")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--crop", type=int, default=56)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--methods", nargs="+", default=["sord", "standard"])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--limit", type=int, help="so many images only, to try it out")
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in args.seeds:
        labelled = one_vote_each(args.folder, seed=seed)[: args.limit]
        table = args.out / f"labels_seed{seed}.csv"
        labelled.to_csv(table, index=False)
        manifest = read(table, images=args.folder)
        for method in args.methods:
            config = TrainConfig(
                method=method,
                network=args.network,
                weights=args.weights,
                image_size=args.size,
                crop=args.crop,
                epochs=args.epochs,
                batch_size=args.batch_size,
                learning_rate=args.learning_rate,
                seed=seed,
            )
            fitted = cross_fit(
                manifest,
                config=config,
                folds=args.folds,
                setup=Setup(device=args.device, reporter=reporter_for()),
            )
            true, labels = fitted.manifest.true_labels, fitted.manifest.labels
            assert true is not None
            matrix = np.zeros((manifest.num_classes, manifest.num_classes))
            np.add.at(matrix, (true, labels), 1.0)
            file = args.out / f"votes_{method}_seed{seed}.npz"
            np.savez_compressed(
                file,
                labels=labels,
                true=true,
                probabilities=fitted.probabilities.astype(np.float32),
                groups=np.array(fitted.manifest.ids),
                kind="votes",
                rate=float((labels != true).mean()),
                matrix=matrix / matrix.sum(axis=1, keepdims=True),
            )
            right = (fitted.probabilities.argmax(axis=1) == true).mean()
            print(
                f"{file}: {(labels != true).mean():.3f} of the labels wrong, networks right on {right:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
