"""Ordinal learning from several readers: every method on ACNE04 and APPA-REAL, five folds and seeds.

    python benchmarks/ordinal_readers/run.py acne acne.npz DATA/acne160 --out ordinal_readers.csv
    python benchmarks/ordinal_readers/run.py appareal appareal.npz DATA/appareal144 --out ordinal_readers.csv
    python benchmarks/ordinal_readers/run.py table ordinal_readers.csv

The .npz files come from ``features.py``. The head is linear, on 128 principal components. Its weight
decay is chosen for each method by the method's own loss on the readings of the validation side; no
reference grade is used before the scores. Runs that the file holds already are not run again. A
minute per seed and set on one core.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from cases import Case, Floats, Ints, cases

from methods import METHODS, Method
from srjt.ordinal import metrics
from srjt.studies.results import corrected_t_test

DECAYS = (1.0, 0.3, 0.1, 0.03, 0.01)
STEPS = 40
RATE = 0.05
TEST_TO_TRAIN = 1 / 3  # a fold is for testing, three are for training
SCORES = ("MAE", "macro_f1", "log_loss")
KEY = ("set", "seed", "fold", "method")


def fit(case: Case, method: Method) -> Floats:
    """(n, C) probabilities of the test side, with the weight decay of least validation loss. Each
    decay starts from where the larger one before ended."""
    loss, extra = method(case)
    weight = torch.zeros(case.features.shape[1], case.classes, dtype=torch.float64)
    bias = torch.zeros(case.classes, dtype=torch.float64)
    parameters = [weight.requires_grad_(), bias.requires_grad_(), *extra]

    def head(features: torch.Tensor) -> torch.Tensor:
        return (features @ weight + bias).log_softmax(dim=1)

    optimizer = torch.optim.Adam(parameters, lr=RATE)
    best = np.inf
    for decay in DECAYS:
        for _ in range(STEPS):
            optimizer.zero_grad()
            (loss(head, "train") + decay * (weight**2).sum() / 2).backward()
            optimizer.step()
        with torch.no_grad():
            value = float(loss(head, "validation"))
            if value < best:
                best = value
                answer = head(torch.as_tensor(case.features[case.test])).exp().numpy()
    return answer


def judge(p: Floats, true: Ints) -> dict[str, float]:
    """Scores of probabilities (n, C), decoded by their median."""
    median = (p.cumsum(axis=1)[:, :-1] < 0.5).sum(axis=1)
    counts = np.zeros((p.shape[1], p.shape[1]))
    np.add.at(counts, (true, median), 1.0)
    return {
        "MAE": float(metrics.METRICS["mae"](counts)),
        "macro_f1": float(metrics.METRICS["macro_f1"](counts)),
        "log_loss": float(-np.log(p[np.arange(len(true)), true] + 1e-12).mean()),
    }


def run(args: argparse.Namespace) -> None:
    done: set[tuple[str, ...]] = set()
    if args.out.exists():
        with args.out.open(newline="") as file:
            done = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    else:
        args.out.write_text(",".join([*KEY, *SCORES]) + "\n")
    for seed in args.seeds:
        for fold, (case, true) in enumerate(cases(args.set, args.features, args.folder, seed=seed)):
            for name, method in METHODS.items():
                key = (args.set, str(seed), str(fold), name)
                if key in done or (args.methods and name not in args.methods):
                    continue
                scores = judge(fit(case, method), true[case.test])
                with args.out.open("a", newline="") as file:
                    csv.writer(file).writerow([*key, *(f"{scores[one]:.5f}" for one in SCORES)])
        print(f"{args.set}: seed {seed}", flush=True)


def table(args: argparse.Namespace) -> None:
    """Means over folds and seeds, and how far each method is from another one (the best, unless one
    is named), with the interval and p of Nadeau and Bengio's corrected test of the folds."""
    runs = pd.read_csv(args.out)
    for name, of_set in runs.groupby("set", sort=False):
        for score in SCORES:
            wide = of_set.pivot_table(index=["fold", "seed"], columns="method", values=score)
            sign = -1.0 if score == "macro_f1" else 1.0
            other = args.against or (sign * wide.mean()).idxmin()
            rows = {}
            for method in METHODS:
                off = (wide[method] - wide[other]).unstack("seed").to_numpy()
                test = corrected_t_test(off, test_train_ratio=TEST_TO_TRAIN)
                rows[method] = [
                    wide[method].mean(),
                    test.difference,
                    test.low,
                    test.high,
                    test.p_value,
                ]
            shown = pd.DataFrame(rows, index=["mean", "difference", "low", "high", "p"]).T
            print(f"\n{name}, {score}, compared with {other}\n{shown.round(4).to_string()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name in ("acne", "appareal"):
        command = commands.add_parser(name)
        command.add_argument("features", type=Path)
        command.add_argument("folder", type=Path)
        command.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
        command.add_argument("--methods", nargs="+", choices=METHODS)
        command.add_argument("--out", type=Path, default=Path("ordinal_readers.csv"))
        command.set_defaults(run=run, set=name)
    shown = commands.add_parser("table")
    shown.add_argument("out", type=Path)
    shown.add_argument("--against", choices=METHODS, help="compare with this method")
    shown.set_defaults(run=table)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.run(args)


if __name__ == "__main__":
    main()
