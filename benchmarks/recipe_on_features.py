"""The recipe on frozen features: against every method of the catalogue in six cases, and in the
small.

    python benchmarks/recipe_on_features.py run FEATURES --folds 2 3 4 --out recipe_features.csv
    python benchmarks/recipe_on_features.py table recipe_features.csv

FEATURES is a folder with deepdrid.npz, eyepacs.npz and appareal.npz: ``x`` (N, F) features of a
frozen network, and ``grade``, ``patient`` and ``votes`` as ``recipe_cases.py`` says. To make them
from the images of ``evidence/recipe_on_images.py pack``, with EfficientNet-Lite0 and its ImageNet
weights:

    python benchmarks/recipe_on_features.py make small --weights lite0.safetensors --out FEATURES

or, as the preset ``cpu`` does, with ``--stages`` and the weights of srjt's own efficientnet-lite0.

The recipe was developed on folds 0 and 1 of DeepDRiD; its other folds and the other sets are what
counts.

In the small: 100, 300, 1,000 and all training labels, five kinds of noise, against scikit-learn's
logistic regression with a cross-validated strength and the median grade for all, on features made
with ``--stages``. All are told nothing:

    python benchmarks/recipe_on_features.py small FEATURES --sets deepdrid acne knee --folds 2 3 4 --out small.csv
    python benchmarks/recipe_on_features.py small-table small.csv

A grade is the median of the probabilities, for all of them. The head was developed on folds 0 and 1
of DeepDRiD, ACNE04 and the knees.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import recipe_cases
import recipe_table
import torch
from recipe_cases import Floats, Ints
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.preprocessing import StandardScaler

import srjt
from srjt import noise
from srjt.data import Split
from srjt.ordinal import decode, metrics

PRESET_SIDE = 224  # of the preset ``cpu``


def make(sets: Path, out: Path, *, weights: str, stages: bool, limit: int | None) -> None:
    """Features of all pixels by a frozen network; stages: those of the preset ``cpu``."""
    from srjt import networks
    from srjt.data.images.feed import normalise

    out.mkdir(parents=True, exist_ok=True)
    name = "efficientnet-lite0-stages" if stages else "timm:tf_efficientnet_lite0"
    for file in sorted(sets.glob("*.npz")):
        data = recipe_cases.open_set(file, limit=limit)
        pixels = data.clean.arrays
        assert pixels is not None
        shape = (3, PRESET_SIDE, PRESET_SIDE) if stages else (3, *pixels.shape[1:3])
        backbone = networks.build(
            name, head=lambda _: torch.nn.Identity(), in_shape=shape, pretrained=weights, seed=0
        ).eval()
        parts = []
        with torch.inference_mode():
            for part in np.array_split(pixels, max(1, len(pixels) // 64)):
                images = torch.from_numpy(part).permute(0, 3, 1, 2)
                parts.append(backbone(normalise(enlarged(images) if stages else images)))
        x = torch.cat(parts)
        with np.load(file) as saved:
            columns: dict[str, Any] = {
                column: saved[column][:limit]
                for column in saved.files
                if column not in ("x", "ends")
            }
        np.savez(out / file.name, x=(x if stages else x.half()).numpy(), **columns)
        print(f"{file.stem}: {len(pixels):,} rows", flush=True)


def enlarged(images: torch.Tensor) -> torch.Tensor:
    """(B, 3, S, S) bytes → (B, 3, 224, 224) bytes."""
    size = (PRESET_SIDE, PRESET_SIDE)
    large = torch.nn.functional.interpolate(
        images.float(), size=size, mode="bicubic", antialias=True
    )
    return large.round().clamp(0, 255).to(torch.uint8)


# In the small: sizes, kinds of noise, and peers that anybody would try first.

SIZES = (100, 300, 1000, 10**9)  # training labels; the last: all
NOISES = (("clean", 0.0), ("quasi", 0.2), ("quasi", 0.4), ("truncated", 0.4), ("one-sided", 0.0))
PEERS = ("median grade", "logistic regression", "srjt")
STRENGTHS = 10.0 ** np.arange(-6.0, 1.1)  # C of scikit-learn
KEY = ("set", "labels", "noise", "rate", "fold", "method")
COLUMNS = (*KEY, "network", "estimated_rate", "mae", "macro_f1", "seconds")


def small(args: argparse.Namespace) -> None:
    """Append one row per run to ``args.out``; runs that are in it already are skipped, so that it
    can be resumed."""
    done = set()
    if args.out.exists():
        done = set(pd.read_csv(args.out)[list(KEY)].astype(str).itertuples(index=False, name=None))
    for size in args.sizes:
        for fold in args.folds:
            for name in args.sets:
                data = recipe_cases.open_set(args.features / f"{name}.npz")
                rows = np.random.default_rng(fold).permutation(data.splits[fold].train)[:size]
                if size < SIZES[-1] and len(rows) < size * 0.8:
                    continue  # it has not so many labels
                for kind, rate in NOISES:
                    for method in args.methods:
                        key = (name, size, kind, rate, fold, method)
                        if tuple(map(str, key)) not in done:
                            found = small_run(data, rows, kind, rate=rate, fold=fold, method=method)
                            _append_small(args.out, {**dict(zip(KEY, key, strict=True)), **found})


def small_run(
    data: recipe_cases.DataSet, rows: Ints, kind: str, *, rate: float, fold: int, method: str
) -> dict[str, Any]:
    """Learn from the training rows (n,) with noisy labels, and judge the fold's test side by its
    true grades."""
    true, test = data.clean.labels, data.splits[fold].test
    labels = noisy_labels(data, kind, rate=rate, seed=1000 * fold)
    begin = time.process_time()
    found: dict[str, Any] = {"network": "", "estimated_rate": ""}
    if method == "median grade":
        p = np.eye(data.clean.num_classes)[[int(np.median(labels[rows]))] * len(test)]
    elif method == "logistic regression":
        p = logistic_regression(data, rows, labels[rows], test)
    else:  # srjt, or srjt on a given head: srjt:odds
        given = np.where(np.isin(np.arange(len(true)), test), true, labels)
        split = Split(train=rows, validation=rows[:0], test=test)
        network = method.partition(":")[2] or None
        run = srjt.train(
            data.clean.with_noisy_labels(given), split=split, network=network, progress=False
        )
        p = run.held_out["test"].probabilities.mean(axis=0)
        found["network"] = run.config.network
        found["estimated_rate"] = (
            "" if run.noise_estimate is None else f"{run.noise_estimate.rate:.3f}"
        )
    grades = decode(torch.from_numpy(np.asarray(p, dtype=np.float64)), "median")
    counts = metrics.confusion_matrix(
        torch.as_tensor(true[test]), grades, num_classes=p.shape[1]
    ).numpy()
    scores = {name: f"{metrics.METRICS[name](counts):.4f}" for name in ("mae", "macro_f1")}
    return {**found, **scores, "seconds": f"{time.process_time() - begin:.1f}"}


def noisy_labels(data: recipe_cases.DataSet, kind: str, *, rate: float, seed: int) -> Ints:
    true, classes = data.clean.labels, data.clean.num_classes
    if kind == "clean":
        return true
    if kind == "one-sided":
        return recipe_cases.noisy_labels(data, kind, seed=seed)[0]
    rho = noise.rho_for_rate(kind, rate=rate, class_counts=data.clean.class_counts)
    return noise.corrupt(
        true, noise.transition_matrix(kind, num_classes=classes, rho=rho), seed=seed
    )


def logistic_regression(data: recipe_cases.DataSet, rows: Ints, labels: Ints, test: Ints) -> Floats:
    """Probabilities (M, C) by scikit-learn's multinomial regression, whose strength five folds by
    patient choose."""
    features = np.asarray(data.clean.arrays, dtype=np.float64)
    scaler = StandardScaler().fit(features[rows])
    # a rotation into as many columns as there are rows changes nothing for a ridge penalty, and is
    # much faster
    axes = np.linalg.svd(scaler.transform(features[rows]), full_matrices=False)[2].T
    x, x_test = (scaler.transform(features[part]) @ axes for part in (rows, test))
    owners = np.array(data.clean.groups or data.clean.ids)[rows]
    parts = list(StratifiedGroupKFold(5, shuffle=True, random_state=0).split(x, labels, owners))

    def probabilities(learnt: Ints, judged: Floats, strength: float) -> Floats:
        model = LogisticRegression(C=strength, max_iter=300).fit(x[learnt], labels[learnt])
        found = np.full((len(judged), data.clean.num_classes), 1e-6)  # a grade without labels
        found[:, model.classes_] = np.maximum(model.predict_proba(judged), 1e-6)
        return found

    likelihoods = []
    for strength in STRENGTHS:
        held_out = [
            np.log(probabilities(a, x[b], strength)[np.arange(len(b)), labels[b]]).sum()
            for a, b in parts
        ]
        likelihoods.append(sum(held_out))
        if len(likelihoods) > 2 and likelihoods[-3] > likelihoods[-2] > likelihoods[-1]:
            break
    best = STRENGTHS[int(np.argmax(likelihoods))]
    return probabilities(np.arange(len(rows)), x_test, best)


def _append_small(file: Path, row: dict[str, Any]) -> None:
    pd.DataFrame([row], columns=list(COLUMNS)).to_csv(
        file, mode="a", header=not file.exists(), index=False
    )
    print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)


def small_table(files: list[Path]) -> None:
    """MAE and macro-F1 by method: means over the folds; and where srjt is behind."""
    runs = pd.concat([pd.read_csv(file) for file in files])
    cases = ["labels", "set", "noise", "rate"]
    for score in ("mae", "macro_f1"):
        table = runs.pivot_table(index=cases, columns="method", values=score)
        print(
            f"\n{score}, means over {runs['fold'].nunique()} folds\n\n{table.round(3).to_string()}"
        )
        print(f"\nmeans by size\n\n{table.groupby('labels').mean().round(3).to_string()}")
    by_fold = runs.pivot_table(index=[*cases, "fold"], columns="method", values="mae")
    for peer in [
        name
        for name in ("logistic regression", "median grade")
        if name in by_fold and "srjt" in by_fold
    ]:
        each = (by_fold["srjt"] - by_fold[peer]).dropna().groupby(cases)
        behind = pd.DataFrame({"behind": each.mean(), "standard_error": each.sem()})
        worse = behind[behind["behind"] > 0.01]
        clear = (worse["behind"] > 2.0 * worse["standard_error"]).sum()
        print(
            f"\nsrjt against {peer}: {behind['behind'].mean():+.4f} on average over {len(behind)} cases; behind by "
            f"more than 0.01 in {len(worse)}, in {clear} of them by more than two standard errors."
        )
        print(worse.round(3).to_string() if len(worse) else "")
    heads = runs[runs["method"] == "srjt"].groupby("labels")["network"].value_counts()
    print(f"\nthe head that srjt chose\n\n{heads.to_string()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("sets", type=Path)
    making.add_argument("--weights", required=True)
    making.add_argument("--limit", type=int)
    making.add_argument("--stages", action="store_true", help="as the preset cpu does")
    making.add_argument("--out", type=Path, default=Path("features"))
    running = commands.add_parser("run")
    running.add_argument("sets", type=Path)
    running.add_argument("--epochs", type=int, default=30)
    running.add_argument("--limit", type=int, help="so many rows of each set only, to try it out")
    recipe_cases.add_arguments(running)
    in_the_small = commands.add_parser("small")
    in_the_small.add_argument("features", type=Path)
    in_the_small.add_argument("--sets", nargs="+", default=["deepdrid", "acne", "knee"])
    in_the_small.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    in_the_small.add_argument("--folds", nargs="+", type=int, default=[2, 3, 4])
    in_the_small.add_argument(
        "--methods", nargs="+", default=PEERS, help="also srjt:odds and srjt:mlp"
    )
    in_the_small.add_argument("--out", type=Path, required=True)
    for name in ("table", "small-table"):
        commands.add_parser(name).add_argument("results", type=Path, nargs="+")
    args = parser.parse_args()
    if args.command == "make":
        make(args.sets, args.out, weights=args.weights, stages=args.stages, limit=args.limit)
    elif args.command == "table":
        recipe_table.show(args.results)
    elif args.command == "small":
        small(args)
    elif args.command == "small-table":
        small_table(args.results)
    else:
        recipe_cases.run_all(args, network="mlp", epochs=args.epochs)


if __name__ == "__main__":
    main()
