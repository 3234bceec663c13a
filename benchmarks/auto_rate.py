"""What it costs not to know how noisy the labels are: ``--noise-rate auto`` beside the known rate.

    python benchmarks/auto_rate.py                                  # synthetic images; ten minutes on two cores
    python benchmarks/auto_rate.py --data features.npz --network mlp --epochs 30

Two studies of the same runs, folds and noisy labels. In one the methods are told the rate that was
injected, in the other they estimate it from the training labels alone. A third line learns from
soft labels that follow the estimate, p(true grade | label), instead of the paper's exp(−|d|). Test
grades are true.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from srjt.studies.results import collect_results

NOISES = ("quasi:0.2", "quasi:0.4", "truncated:0.2", "truncated:0.4")
METHOD, FOLLOWING = "co-teaching+ours", "co-teaching+ours:label_matrix=estimated"
SHOWN = ("accuracy", "mae", "macro_f1")


def study(
    out: Path, args: argparse.Namespace, *, methods: list[str], rate: str | None
) -> pd.DataFrame:
    """Run, or go on with, one study → its test scores, and the rates that were estimated in it."""
    train: dict[str, object] = {"network": args.network, "epochs": args.epochs}
    config: dict[str, object] = {
        "source": args.data,
        "methods": methods,
        "noises": list(NOISES),
        "folds": 5,
    }
    if args.data == "synthetic":
        config["reading"] = {"images": 1500, "patients": 150, "size": 64}
        train |= {"image_size": 64, "crop": 60, "learning_rate": 2e-3, "eval_batch_size": 256}
    if rate is not None:
        config["noise_rate"] = rate
    out.mkdir(parents=True, exist_ok=True)
    file = out / "study.yaml"
    file.write_text(yaml.safe_dump({**config, "train": train}))
    only = [word for fold in range(args.folds) for word in ("--fold", str(fold))]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "srjt",
            "study",
            "run",
            "--config",
            str(file),
            *only,
            "--out",
            str(out / "study"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    results = collect_results(out / "study")
    scores = results.scores
    scores = scores[(scores["split"] == "test") & scores["metric"].isin(SHOWN)]
    estimates = results.noise[["noise", "fold", "seed", "realised_rate", "estimated_rate"]]
    return scores.merge(estimates, on=["noise", "fold", "seed"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", default="synthetic", help="synthetic, or what srjt study would read"
    )
    parser.add_argument("--network", default="tiny")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--folds", type=int, default=3, help="how many of five")
    parser.add_argument("--out", type=Path, help="keeps the runs, so that a second call goes on")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = args.out or Path(scratch)
        known = study(out / "known", args, methods=[METHOD], rate=None).assign(told="known rate")
        auto = study(out / "auto", args, methods=[METHOD, FOLLOWING], rate="auto")
    auto = auto.assign(told=np.where(auto["variant"] == "", "auto", "auto, soft labels follow it"))
    scores = pd.concat([known, auto])
    print(
        f"{METHOD} on {args.data}, {args.folds} folds, {args.epochs} epochs; test scores, true grades\n"
    )
    table = scores.pivot_table(
        index=["noise", "told"], columns="metric", values="value", sort=False
    )
    print(table[list(SHOWN)].round(3).to_string())
    rates = auto.drop_duplicates(["noise", "fold"]).groupby("noise", sort=False)
    print("\n" + rates[["realised_rate", "estimated_rate"]].mean().round(3).to_string())
    by_fold = scores.pivot_table(index=["noise", "fold", "metric"], columns="told", values="value")
    difference = by_fold.sub(by_fold["known rate"], axis=0).drop(columns="known rate")
    print("\nmean difference to the known rate (and its standard error over noise × fold):")
    for metric in SHOWN:
        part = difference.xs(metric, level="metric")
        text = ", ".join(f"{name} {v.mean():+.3f} ({v.sem():.3f})" for name, v in part.items())
        print(f"  {metric}: {text}")


if __name__ == "__main__":
    main()
