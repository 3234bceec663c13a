"""What 100 verified grades do to a training: used for the matrix alone, or also learnt without
correction.

    python benchmarks/verified_targets.py FEATURES/acne.npz --out verified_targets.csv

The file holds features as ``recipe_on_features.py make`` writes them. The head is an mlp, 40
epochs, seed 0, all five folds; nothing was chosen on them. Printed: the mean MAE and macro-F1
without verified grades, with both uses, and the differences by fold.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from unittest import mock

import pandas as pd
import recipe_cases

from srjt.training.batches import NO_READERS

USES = {
    "none": ("srjt", False),
    "matrix": ("srjt, 100 verified", False),
    "matrix and labels": ("srjt, 100 verified", True),
}


def one(data: recipe_cases.DataSet, kind: str, fold: int, use: str) -> dict[str, object]:
    """A training: its MAE and macro-F1 by true grades."""
    method, learnt = USES[use]
    as_before = mock.patch("srjt.training.reader_targets.verified_targets", return_value=NO_READERS)
    settings = {"method": method, "device": "cpu", "network": "mlp", "epochs": 40}
    if learnt:
        row = recipe_cases.one_run(data, kind, fold=fold, seed=0, **settings)
    else:
        with as_before:
            row = recipe_cases.one_run(data, kind, fold=fold, seed=0, **settings)
    scores = {name: float(row[f"{name} predict ensemble"]) for name in ("mae", "macro_f1")}
    return {"noise": kind, "fold": fold, "use": use, **scores}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("features", type=Path)
    parser.add_argument("--noises", nargs="+", default=["quasi", "one-sided", "doctor"])
    parser.add_argument("--folds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("verified_targets.csv"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    data = recipe_cases.open_set(args.features)
    rows = []
    for kind in args.noises:
        for fold in args.folds:
            rows += [one(data, kind, fold, use) for use in USES]
            table = pd.DataFrame(rows).assign(set=args.features.stem)
            table.to_csv(args.out, index=False)
    print(table.pivot_table(["mae", "macro_f1"], "noise", "use").round(3).to_string())


if __name__ == "__main__":
    main()
