"""What a network should learn from k readings of each image: MAE on the true grade of images that it has not seen.

    python benchmarks/reader_targets.py votes FEATURES --out reader_targets.csv        # half an hour on one core
    python benchmarks/reader_targets.py simulated --seeds 10 --out reader_targets.csv  # a quarter of an hour
    python benchmarks/reader_targets.py table reader_targets.csv

``simulated``: rows of 32 features that show the severity through noise, and the readers of ``readers.py``. ``votes``:
FEATURES holds appareal.npz, as ``recipe_on_features.py`` makes it: faces, and k random ones of the guesses of the age
group, the same with each k and some more. The targets ``consensus`` to ``resample`` are the values of
``reader_targets``; ``one reading``, ``majority`` and ``median`` (both the lower one of a tie) know nothing of the
readers' model. Runs that the file holds already are not run again.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

import readers
import srjt
from srjt.data import Manifest, Split, folds, from_arrays
from srjt.ordinal import decode
from srjt.readers import Consensus, Readings, consensus
from srjt.readers.consensus import posterior_median

TARGETS = ("one reading", "majority", "median", "consensus", "certainty", "posterior", "resample")
COUNTS = (1, 2, 3, 5)
METHODS = ("standard", "eae", "srjt")
LACKING = (("srjt", "resample"), ("eae", "posterior"))  # combinations that srjt.train refuses
WORLDS = ("severity", "irregular")
FIRST_SEED = 92_000  # the default was chosen on other seeds, and on another split of the votes
SPLIT_SEED = 1  # of the votes
FEATURES, BLUR = 32, 0.5  # of the simulated rows; the blur in grades
KEY = ["set", "readings", "seed", "fold", "method", "target"]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Case:
    key: tuple[str, int, int, int]  # set, readings, seed, fold
    clean: Manifest
    split: Split
    readings: Readings
    found: Consensus


def simulated(args: argparse.Namespace) -> Iterator[Case]:
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for world in WORLDS:
            for count in args.counts:
                found, true, _ = readers.simulate(world, count=count, seed=seed)
                rng = np.random.default_rng([seed, count])
                severity = true + rng.uniform(-0.5, 0.5, size=len(true)) + BLUR * rng.normal(size=len(true))
                direction = rng.normal(size=FEATURES) / FEATURES**0.5
                x = 3.0 * np.outer(severity, direction) + rng.normal(size=(len(true), FEATURES))
                # a grade may be missing among few items
                clean = from_arrays(x.astype(np.float32), true, true_grades=true, names=found.grades).manifest
                split = folds(clean, folds=5, seed=0, by="stratified")[0]
                agreed = consensus(found)
                yield Case(
                    key=(world, count, seed, 0), clean=clean, split=split, readings=found, found=agreed
                )


def votes(args: argparse.Namespace) -> Iterator[Case]:
    with np.load(args.features / "appareal.npz") as saved:
        x, true, given = (saved[name] for name in ("x", "grade", "votes"))
    clean = from_arrays(x.astype(np.float32), true, true_grades=true).manifest
    splits = folds(clean, folds=5, seed=SPLIT_SEED, by="stratified")
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        rng = np.random.default_rng(seed)
        order = np.where(given >= 0, rng.random(given.shape), 2.0).argsort(axis=1)
        for count in args.counts:
            grade = np.take_along_axis(given, order[:, :count], axis=1).ravel()
            item, one = np.repeat(np.arange(len(true)), count), np.zeros(len(grade), dtype=np.int64)
            found = readers.make_readings(item, one, grade, classes=clean.num_classes)
            agreed = consensus(found, repeats="independent")
            for fold in args.folds:
                key = ("votes", count, seed, fold)
                yield Case(key=key, clean=clean, split=splits[fold], readings=found, found=agreed)


def labels_of(case: Case, target: str) -> Ints:
    """(N,) the grades that the target makes of the readings; on the test side the true ones."""
    shares = readers.votes(case.readings)
    labels = {
        "one reading": case.readings.grade[np.unique(case.readings.item, return_index=True)[1]],
        "majority": shares.argmax(axis=1),
        "median": posterior_median(shares),
    }.get(target, case.found.grade)
    true = case.clean.labels
    return np.where(np.isin(np.arange(len(true)), case.split.test), true, labels).astype(np.int64)


def one_run(case: Case, labels: Ints, *, method: str, target: str, **settings: Any) -> float:
    """The MAE of the networks' mean probabilities, decoded by their median, on the true grades of the test side."""
    found, true, test = case.found, case.clean.labels, case.split.test
    manifest = case.clean.with_noisy_labels(labels)
    if target in TARGETS[3:]:
        columns = {f"p_true_{grade}": found.posterior[:, grade] for grade in range(case.clean.num_classes)}
        manifest = replace(manifest, table=manifest.table.assign(**columns))
        settings["reader_targets"] = target
    if method == "srjt":
        settings["noise_rate"] = "auto"
    run = srjt.train(
        manifest, split=case.split, method=method, network="mlp", device="cpu", seed=case.key[2],
        **settings,
    )  # fmt: skip
    p = torch.as_tensor(run.held_out["test"].probabilities, dtype=torch.float64).mean(dim=0, keepdim=True)
    return float(np.abs(decode(p, "median")[0].numpy() - true[test]).mean())


def run_all(args: argparse.Namespace) -> None:
    done: set[tuple[str, ...]] = set()
    if args.out.exists():
        with args.out.open(newline="") as file:
            done = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    same: dict[tuple[object, ...], float] = {}  # targets that give the same labels need one training
    for case in args.cases(args):
        for method in args.methods:
            for target in args.targets:
                key = (*map(str, case.key), method, target)
                if key in done or (method, target) in LACKING:
                    continue
                start, labels = time.perf_counter(), labels_of(case, target)
                kind = "labels" if method != "srjt" and target in TARGETS[:4] else (target, case.key[1])
                told = (case.key[0], *case.key[2:], method, kind, labels.tobytes())
                if told not in same:
                    same[told] = one_run(case, labels, method=method, target=target, epochs=args.epochs)
                error = same[told]
                fresh = not args.out.exists()
                with args.out.open("a", newline="") as file:
                    writer = csv.writer(file)
                    if fresh:
                        writer.writerow([*KEY, "MAE"])
                    writer.writerow([*key, f"{error:.5f}"])
                print(*key, f"{error:.3f}", f"{time.perf_counter() - start:.1f} s", flush=True)


def table(args: argparse.Namespace) -> None:
    """Mean MAE, and the mean difference from the consensus with its standard error over the runs."""
    found = pd.concat([pd.read_csv(file) for file in args.files])
    by = ["method", "set", "readings"]
    wide = found.pivot_table(index=KEY[:-1], columns="target", values="MAE")
    wide = wide[[target for target in TARGETS if target in wide]].dropna(subset="consensus")
    off = wide.sub(wide["consensus"], axis=0)
    print(wide.groupby(by).mean().round(3).to_string())
    for name in ("method", ["method", "set"]):
        grouped = off.groupby(name)
        print(f"\ndifference from the consensus by {name}\n{grouped.mean().round(4).to_string()}")
        print(f"standard error\n{grouped.sem().round(4).to_string()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("simulated")
    one.set_defaults(run=run_all, cases=simulated)
    two = commands.add_parser("votes")
    two.add_argument("features", type=Path)
    two.add_argument("--folds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    two.set_defaults(run=run_all, cases=votes)
    for command in (one, two):
        command.add_argument("--seeds", type=int, default=2)
        command.add_argument("--first-seed", type=int, default=FIRST_SEED)
        command.add_argument("--counts", nargs="+", type=int, default=COUNTS)
        command.add_argument("--methods", nargs="+", default=METHODS[:2], choices=METHODS)
        command.add_argument("--targets", nargs="+", default=TARGETS, choices=TARGETS)
        command.add_argument("--epochs", type=int, default=30)
        command.add_argument("--out", type=Path, required=True)
    three = commands.add_parser("table")
    three.add_argument("files", nargs="+", type=Path)
    three.set_defaults(run=table)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.run(args)


if __name__ == "__main__":
    main()
