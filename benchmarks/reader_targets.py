"""What a network should learn from k readings of each image, judged by the true grades of images it
has not seen.

    python benchmarks/reader_targets.py doctors SETS DATA/acne160 --out reader_targets.csv
    python benchmarks/reader_targets.py votes SETS --counts 3 10 --folds 0 1 --out reader_targets.csv
    python benchmarks/reader_targets.py simulated --seeds 3 --out reader_targets.csv
    python benchmarks/reader_targets.py witness SETS DATA/acne160 --set doctors --out reader_witness.csv
    python benchmarks/reader_targets.py table reader_targets.csv

SETS holds acne.npz and appareal.npz: features, as ``recipe_on_features.py`` makes them (seconds a
run on one core), or images, as ``evidence/recipe_on_images.py pack`` does (add --weights
lite0.safetensors --device cuda). ``doctors``: k of the readings of the named doctors of ACNE04,
judged by its published grade. ``votes``: k random guesses of the age group of APPA-REAL's faces.
``simulated``: features that show the severity through noise, and the independent readers of
``readers.py``. The targets ``consensus``, ``posterior`` and ``readers`` are values of
``reader_targets``; ``one reading`` and ``majority`` know nothing of the readers' model. Runs that
the file holds already are not run again. ``witness`` asks the other way round whether networks
improve the consensus: those of the other folds, trained on it, give each image's probabilities,
which enter as such or as the grades of one more reader.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import recipe_cases
import torch

import readers
import srjt
from srjt.data import Manifest, Split, folds, from_arrays
from srjt.ordinal import decode, metrics
from srjt.readers import Consensus, Readings, consensus
from srjt.readers.readings import Repeats

TARGETS = ("one reading", "majority", "consensus", "posterior", "readers")
WORLDS = ("severity", "irregular")
FIRST_SEED = 92_000
FEATURES, BLUR = 32, 0.5  # of the simulated rows; the blur in grades
KEY = ["set", "network", "readings", "seed", "fold", "method", "target"]
WITNESS = ["set", "network", "readings", "seed", "witness"]
SCORES = ["MAE", "macro_f1", "log_loss"]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Case:
    key: tuple[str, int, int, int]  # set, readings, seed, fold
    clean: Manifest
    split: Split
    readings: Readings
    agreed: Consensus


def simulated(args: argparse.Namespace) -> Iterator[Case]:
    for seed in range(FIRST_SEED, FIRST_SEED + args.seeds):
        for world in WORLDS:
            for count in args.counts:
                made, true, _ = readers.simulate(world, count=count, seed=seed)
                rng = np.random.default_rng([seed, count])
                severity = (
                    true
                    + rng.uniform(-0.5, 0.5, size=len(true))
                    + BLUR * rng.normal(size=len(true))
                )
                direction = rng.normal(size=FEATURES) / FEATURES**0.5
                x = 3.0 * np.outer(severity, direction) + rng.normal(size=(len(true), FEATURES))
                # a grade may be missing among few items
                clean = from_arrays(x.astype(np.float32), true, true_grades=true, names=made.grades)
                split = folds(clean, folds=5, seed=0, by="stratified")[0]
                yield Case(
                    key=(world, count, seed, 0),
                    clean=clean,
                    split=split,
                    readings=made,
                    agreed=consensus(made),
                )


def doctors(args: argparse.Namespace) -> Iterator[Case]:
    data = recipe_cases.open_set(args.sets / "acne.npz", limit=args.limit)
    images = pd.read_csv(args.data / "labels.csv")["image"]
    table = pd.read_csv(args.data / "readings.csv").dropna(subset=["grade"])
    table["item"] = table["image"].map({image: row for row, image in enumerate(images)})
    table["doctor"] = table["reader"].astype("category").cat.codes
    table = table[table["item"] < len(data.clean)]
    for seed in range(args.seeds):
        shuffled = table.sample(frac=1, random_state=seed)
        place = shuffled.groupby("item").cumcount()
        for count in args.counts:
            some = shuffled[place < count].sort_values("item")
            item, doctor, grade = (
                some[name].to_numpy(np.int64) for name in ("item", "doctor", "grade")
            )
            made = readers.make_readings(item, doctor, grade, classes=data.clean.num_classes)
            yield from _folds(args, "doctors", data, made, consensus(made), count=count, seed=seed)


def votes(args: argparse.Namespace) -> Iterator[Case]:
    data = recipe_cases.open_set(args.sets / "appareal.npz", limit=args.limit)
    given = data.votes
    assert given is not None
    for seed in range(args.seeds):
        rng = np.random.default_rng(seed)
        order = np.where(given >= 0, rng.random(given.shape), 2.0).argsort(axis=1)
        for count in args.counts:
            grade = np.take_along_axis(given, order[:, :count], axis=1).ravel().astype(np.int64)
            item, nobody = (
                np.repeat(np.arange(len(given)), count),
                np.zeros(len(grade), dtype=np.int64),
            )
            made = readers.make_readings(item, nobody, grade, classes=data.clean.num_classes)
            agreed = consensus(made, repeats="independent")
            yield from _folds(args, "votes", data, made, agreed, count=count, seed=seed)


def _folds(
    args: argparse.Namespace, name: str, data: recipe_cases.DataSet, made: Readings, agreed: Consensus, *,
    count: int, seed: int,
) -> Iterator[Case]:  # fmt: skip
    for fold in args.folds:
        key = (name, count, seed, fold)
        yield Case(key=key, clean=data.clean, split=data.splits[fold], readings=made, agreed=agreed)


def probabilities(
    case: Case, *, method: str, target: str, args: argparse.Namespace
) -> torch.Tensor:
    """(n, C) the networks' mean probabilities for the test side."""
    true, test = case.clean.labels, case.split.test
    labels = {
        "one reading": case.readings.grade[np.unique(case.readings.item, return_index=True)[1]],
        "majority": readers.votes(case.readings).argmax(axis=1),
    }.get(target, case.agreed.grade)
    labels = np.where(np.isin(np.arange(len(true)), test), true, labels).astype(np.int64)
    manifest, settings = case.clean.with_noisy_labels(labels), dict[str, Any]()
    if target in ("posterior", "readers"):
        columns = {f"p_true_{grade}": p for grade, p in enumerate(case.agreed.posterior.T)}
        manifest = replace(manifest, table=manifest.table.assign(**columns))
        settings["reader_targets"] = target
    if method == "srjt":
        settings["noise_rate"] = "auto"
    if args.network != "mlp":
        settings |= {
            "weights": args.weights,
            "pretrained": bool(args.weights),
            "image_size": 128,
            "crop": 112,
        }
    run = srjt.train(
        manifest, split=case.split, method=method, network=args.network, device=args.device, seed=case.key[2],
        epochs=args.epochs, **settings,
    )  # fmt: skip
    return torch.as_tensor(run.held_out["test"].probabilities, dtype=torch.float64).mean(dim=0)


def judge(p: torch.Tensor, true: Ints) -> dict[str, float]:
    """Scores of probabilities (n, C), decoded by their median, by the true grades (n,)."""
    judged = torch.as_tensor(true)
    counts = metrics.confusion_matrix(judged, decode(p, "median"), num_classes=p.shape[1]).numpy()
    return {
        "MAE": metrics.METRICS["mae"](counts),
        "macro_f1": metrics.METRICS["macro_f1"](counts),
        "log_loss": float(-p[torch.arange(len(judged)), judged].clamp(min=1e-12).log().mean()),
    }


def run_all(args: argparse.Namespace) -> None:
    done: set[tuple[str, ...]] = set()
    if args.out.exists():
        with args.out.open(newline="") as file:
            done = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    for case in args.cases(args):
        for method in args.methods:
            for target in args.targets:
                name, *rest = case.key
                key = (name, args.network, *map(str, rest), method, target)
                if key in done or (method, target) == ("standard", "readers"):
                    continue
                start = time.perf_counter()
                p = probabilities(case, method=method, target=target, args=args)
                scores = judge(p, case.clean.labels[case.split.test])
                store(args.out, KEY, key, scores)
                print(
                    *key, f"{scores['MAE']:.3f}", f"{time.perf_counter() - start:.1f} s", flush=True
                )


def store(
    out: Path, columns: Sequence[str], key: tuple[str, ...], scores: dict[str, float]
) -> None:
    fresh = not out.exists()
    with out.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow([*columns, *SCORES])
        writer.writerow([*key, *(f"{scores[one]:.5f}" for one in SCORES)])


def witness(args: argparse.Namespace) -> None:
    """The consensus with and without networks that were not trained on the image, and these
    networks alone."""
    sides: dict[tuple[str, int, int], list[tuple[Case, torch.Tensor]]] = {}
    for case in {"doctors": doctors, "votes": votes}[args.set](args):
        p = probabilities(case, method=args.methods[0], target="posterior", args=args)
        sides.setdefault(case.key[:3], []).append((case, p))
    repeats: Repeats = "independent" if args.set == "votes" else "one reading"
    for (name, count, seed), folds_of_set in sides.items():
        case = folds_of_set[0][0]
        rows = np.concatenate([one.split.test for one, _ in folds_of_set])
        p = torch.cat([p for _, p in folds_of_set])
        for how, scores in with_witness(
            case.readings, rows, p, case.clean.labels[rows], repeats
        ).items():
            store(args.out, WITNESS, (name, args.network, str(count), str(seed), how), scores)
            print(
                name,
                args.network,
                count,
                seed,
                f"{how:22}",
                {k: round(v, 3) for k, v in scores.items()},
            )


def with_witness(
    made: Readings, rows: Ints, p: torch.Tensor, true: Ints, repeats: Repeats
) -> dict[str, dict[str, float]]:
    """Scores of items ``rows`` (n,), whose networks' probabilities are p (n, C)."""
    place = np.full(len(made.items), -1)
    place[rows] = np.arange(len(rows))
    own = place[made.item] >= 0
    item, reader, grade = place[made.item[own]], made.reader[own], made.grade[own]
    classes = len(made.grades)
    alone = readers.make_readings(item, reader, grade, classes=classes)
    network = np.full(len(rows), len(made.readers))
    joined = readers.make_readings(
        np.r_[item, np.arange(len(rows))],
        np.r_[reader, network],
        np.r_[grade, decode(p, "median").numpy()],
        classes=classes,
    )
    found = {
        "readings": consensus(alone, repeats=repeats),
        "with probabilities": consensus(alone, probabilities=p.numpy(), repeats=repeats),
        "with one more reader": consensus(joined, repeats=repeats),
    }
    posteriors = {how: torch.as_tensor(one.posterior) for how, one in found.items()} | {
        "network": p
    }
    return {how: judge(posterior, true) for how, posterior in posteriors.items()}


def table(args: argparse.Namespace) -> None:
    """Means over folds and seeds."""
    runs = pd.concat([pd.read_csv(file) for file in args.files])
    by = ["set", "network", "readings", "method"]
    for score in SCORES:
        wide = runs.pivot_table(index=by, columns="target", values=score)
        print(
            f"{score}\n{wide[[target for target in TARGETS if target in wide]].round(3).to_string()}\n"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, cases in (
        ("doctors", doctors),
        ("votes", votes),
        ("simulated", simulated),
        ("witness", None),
    ):
        command = commands.add_parser(name)
        if cases is not simulated:
            command.add_argument("sets", type=Path)
        if cases in (doctors, None):
            command.add_argument(
                "data", type=Path, help="the folder with labels.csv and readings.csv"
            )
        if cases is None:
            command.add_argument("--set", default="doctors", choices=["doctors", "votes"])
        command.add_argument("--limit", type=int, help="so many images only, to try it out")
        command.add_argument("--folds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
        command.add_argument("--seeds", type=int, default=1)
        command.add_argument("--counts", nargs="+", type=int, default=[2, 3])
        command.add_argument("--methods", nargs="+", default=["srjt"], choices=["standard", "srjt"])
        command.add_argument("--targets", nargs="+", default=TARGETS, choices=TARGETS)
        command.add_argument("--network", default="mlp")
        command.add_argument("--weights")
        command.add_argument("--device", default="cpu")
        command.add_argument("--epochs", type=int, default=30)
        command.add_argument("--out", type=Path, default=Path("reader_targets.csv"))
        command.set_defaults(run=run_all if cases else witness, cases=cases)
    shown = commands.add_parser("table")
    shown.add_argument("files", nargs="+", type=Path)
    shown.set_defaults(run=table)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.run(args)


if __name__ == "__main__":
    main()
