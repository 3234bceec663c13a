"""Trainings with 100, 300, 1,000 or all labels: ``srjt`` with other weights and lengths, other methods.

    python benchmarks/evidence/few_labels.py run small --weights lite0.safetensors --plan search --minutes 9
    python benchmarks/evidence/few_labels.py table few_labels.csv

``small`` is the folder of ``recipe_on_images.py pack``. Of so many labelled images a fifth is for
validation; smaller samples are parts of the larger ones, by patient. The test side of a fold is
always the same and is judged by the true grade. A plan is a list of (cases, sizes, folds, seeds,
epochs, methods). Settings were chosen on folds 0 and 1; ``power`` and the plans below it use folds
2 to 4 alone. ``lite2`` and ``inception`` need lite2.safetensors and inception.safetensors in the
present folder (lite0_weights.py and inception_weights.py make them), and ``features`` needs
``--features FOLDER`` with what ``recipe_on_features.py make small --stages`` writes: it needs no
GPU. The runs of one setting share their noise estimate. ``run`` appends a row per training and
starts none after so many minutes; the same command continues.

To try it on a CPU: --network tiny --limit 300 --plan try.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch

sys.path.append(str(Path(__file__).parents[1]))
import recipe_cases
from recipe_on_images import CROP, SIDE

from srjt import noise
from srjt.settings import parse_overrides
from srjt.training import loop
from srjt.training.config import TrainConfig
from srjt.training.crossfit import cross_fit
from srjt.training.sides import train_on
from srjt.training.trained import Setup

OPTIMISER = "optimizer=adamw,schedule=cosine,warmup_epochs=1,learning_rate=0.001"
FIT = "srjt:method_options.grows_with=fit,method_options.co_lambda="
VERIFIED = "srjt, 100 verified:method_options.grows_with=fit,method_options.co_lambda="
CHANGES = ("", ",augment=light", ",augment=strong")
BEFORE = "srjt:method_options.grows_with=training,method_options.co_lambda=4"
PEERS = (f"standard:{OPTIMISER}", f"co-teaching+ours:{OPTIMISER}", f"clean labels:{OPTIMISER}")
SORD = f"sord:{OPTIMISER}"
OTHERS = tuple(f"{one}:{OPTIMISER}" for one in ("eae", "corn", "sce", "f-correction"))
# the other methods with another learning rate than that of the recipe
LOWER_RATE, HIGHER_RATE = (
    tuple(method.replace("0.001", rate) for method in (*PEERS[:2], SORD, *OTHERS))
    for rate in ("0.0003", "0.003")
)
REAL = ("knee:quasi", "deepdrid:quasi", "acne:doctor", "appareal:vote")
EVERY = (*REAL, "eyepacs:as_it_is")
ONE_SIDED = ("knee:one-sided", "deepdrid:one-sided")
# other networks, with weights in the present folder
LITE2 = "network=timm:tf_efficientnet_lite2,weights=lite2.safetensors"
INCEPTION = "network=timm:inception_v3,weights=inception.safetensors"
MEDIAN_GRADE = "median grade"
ON_FEATURES = "srjt on features"  # as with the preset cpu
FEW = recipe_cases.SIZES[:2]
ALL = recipe_cases.ALL
MOST_TESTED = 1000  # images

Plan = tuple[
    tuple[str, ...],
    tuple[int, ...],
    tuple[int, ...],
    tuple[int, ...],
    tuple[int, ...],
    tuple[str, ...],
]


def small_batches(*methods: str) -> tuple[str, ...]:
    """The methods with the batches that are better with 300 labels."""
    return tuple(f"{method},batch_size=16" for method in methods)


def on_network(network: str) -> tuple[str, ...]:
    """The three methods that are compared on other networks."""
    return tuple(f"{method},{network}" for method in (f"{FIT}10", *PEERS[:2]))


SMALL_BATCHES = small_batches(f"{FIT}10", *PEERS[:2], SORD)
SEARCHED = (0, 1)  # folds
HELD = (2, 3, 4)
MORE_SEEDS = (1, 2)
PLANS: dict[str, tuple[Plan, ...]] = {
    "try": ((("deepdrid:quasi",), (100,), (0,), (0,), (2,), (BEFORE, f"{FIT}10", PEERS[1])),),
    "try-estimates": (
        (("deepdrid:quasi",), (100,), (0,), (0,), (2,), ("estimate:batch_size=16",)),
    ),
    "estimates": (
        (
            REAL,
            FEW,
            SEARCHED,
            (0,),
            (10, 20, 40),
            ("estimate:method=sord", "estimate:method=sord,batch_size=16"),
        ),
        (
            REAL,
            FEW,
            SEARCHED,
            (0,),
            (20,),
            ("estimate:method=standard,batch_size=16", "estimate:method=sord,folds=6"),
        ),
        (REAL, FEW, SEARCHED, (0,), (40,), (f"estimate:method={FIT}10,transition=identity",)),
    ),
    "search": (
        (REAL, FEW, SEARCHED, (0,), (40,), (f"{FIT}10", BEFORE, *PEERS)),
        (REAL, (ALL,), SEARCHED, (0,), (20,), (f"{FIT}10", BEFORE)),
        (REAL, FEW, SEARCHED, (0,), (40,), (f"{FIT}20", f"{FIT}5", f"{FIT}10,transition=identity")),
        (
            ("knee:one-sided",),
            FEW,
            SEARCHED,
            (0,),
            (40,),
            (f"{FIT}10", BEFORE, *PEERS, f"{FIT}10,transition=identity"),
        ),
    ),
    "length": (
        ((*REAL, "knee:one-sided"), (300,), SEARCHED, (0,), (40,), (f"{FIT}10,batch_size=16",)),
        (REAL, (300,), SEARCHED, (0,), (20,), (f"{FIT}10,batch_size=16",)),
        (REAL, FEW, SEARCHED, (0,), (80, 20), (f"{FIT}10",)),
        (REAL, (300,), SEARCHED, (0,), (150,), (f"{FIT}10",)),
        (REAL, FEW, SEARCHED, (0,), (40,), (f"{FIT}10,batch_size=32",)),
        (REAL, (1000,), SEARCHED, (0,), (20,), (f"{FIT}10,batch_size=16",)),
        (("deepdrid:quasi", "acne:doctor"), (ALL,), SEARCHED, (0,), (40,), (f"{FIT}10",)),
        (REAL, (300,), SEARCHED, (0,), (40,), (f"{FIT}5,batch_size=16",)),
        (REAL, (1000,), SEARCHED, (0,), (150,), (f"{FIT}10",)),
        (("deepdrid:quasi", "acne:doctor"), (ALL,), SEARCHED, (0,), (150, 80), (f"{FIT}10",)),
    ),
    "augment": (
        (REAL, (ALL,), (0,), (0,), (20,), (f"{FIT}10{CHANGES[1]}", f"{FIT}10{CHANGES[2]}")),
        *(
            (REAL, (size,), SEARCHED, (0,), (40,), (f"{FIT}10,batch_size={batch}{change}",))
            for change in CHANGES
            for size, batch in ((300, 16), (1000, 32))
        ),
        (REAL, (1000,), SEARCHED, (0,), (40,), (f"{VERIFIED}10,batch_size=32",)),
        (REAL, (ALL,), SEARCHED, (0,), (20,), (f"{VERIFIED}10",)),
        # changed images may need more epochs
        *(
            (REAL, (size,), SEARCHED, (0,), (80,), (f"{FIT}10,batch_size={batch}{change}",))
            for change in CHANGES[:2]
            for size, batch in ((300, 16), (1000, 32))
        ),
    ),
    "own-rates": (
        (
            REAL,
            (300,),
            SEARCHED,
            (0,),
            (40,),
            (f"{FIT}10,learning_rate=0.003,batch_size=16", f"{FIT}10,batch_size=16"),
        ),
        (REAL, (1000,), SEARCHED, (0,), (40,), (f"{FIT}10,learning_rate=0.003",)),
    ),
    "confirm": (
        (("knee:quasi",), (ALL,), SEARCHED, (0,), (40,), (f"{FIT}10",)),
        (("knee:quasi",), (ALL,), HELD, (0,), (20,), (f"{FIT}10", BEFORE)),
        (
            REAL,
            (300,),
            HELD,
            (0,),
            (40,),
            (f"{FIT}10,batch_size=16", BEFORE, f"{PEERS[0]},batch_size=16"),
        ),
        (
            REAL,
            (300,),
            HELD,
            (0,),
            (40,),
            (f"{PEERS[1]},batch_size=16", f"{PEERS[2]},batch_size=16"),
        ),
        (REAL, (1000,), HELD, (0,), (40,), (f"{FIT}10", BEFORE, *PEERS)),
        (REAL[1:], (ALL,), HELD, (0,), (20,), (f"{FIT}10", BEFORE)),
        (REAL[1:], (ALL,), SEARCHED, (0,), (40,), (f"{FIT}10",)),
        (REAL, (300,), HELD, (0,), (40,), (PEERS[1], PEERS[0])),
    ),
    # more sets, folds, methods and draws for what ``confirm`` has settled
    "power": (
        ((*EVERY, *ONE_SIDED), (300,), HELD, (0,), (40,), SMALL_BATCHES[:2]),
        ((*EVERY, *ONE_SIDED), (1000,), HELD, (0,), (40,), (f"{FIT}10", PEERS[0])),
        (EVERY, (300,), HELD, MORE_SEEDS, (40,), SMALL_BATCHES[:2]),
        (EVERY, (1000,), HELD, MORE_SEEDS, (40,), (f"{FIT}10", PEERS[0])),
    ),
    "others": (
        (EVERY, (300,), HELD, (0,), (40,), small_batches(*PEERS[1:2], SORD, *OTHERS)),
        (EVERY, (1000,), HELD, (0,), (40,), (PEERS[1], SORD, *OTHERS)),
    ),
    "verified": (
        ((*REAL[:3], *ONE_SIDED), (300,), HELD, (0,), (40,), small_batches(f"{VERIFIED}10")),
        ((*REAL[:3], *ONE_SIDED), (1000,), HELD, (0,), (40,), (f"{VERIFIED}10",)),
    ),
    "fewest": ((EVERY, (100,), HELD, (0,), (40,), SMALL_BATCHES[:3]),),
    "all": ((EVERY, (ALL,), HELD, (0, *MORE_SEEDS), (20,), (f"{FIT}10", PEERS[0])),),
    "median": (
        ((*EVERY, *ONE_SIDED), (100, *FEW), HELD, (0, *MORE_SEEDS), (40,), (MEDIAN_GRADE,)),
        ((*EVERY, *ONE_SIDED), (ALL,), HELD, (0,), (20,), (MEDIAN_GRADE,)),
    ),
    "features": (
        (EVERY, (300,), HELD, (0,), (40,), (ON_FEATURES,)),
        (EVERY, (1000,), HELD, (0,), (40,), (ON_FEATURES,)),
        (EVERY, (300,), HELD, MORE_SEEDS, (40,), (ON_FEATURES,)),
        (EVERY, (100,), HELD, (0,), (40,), (ON_FEATURES,)),
        (EVERY, (1000,), HELD, MORE_SEEDS, (40,), (ON_FEATURES,)),
    ),
    "lite2": ((REAL, (1000,), HELD, (0,), (40,), on_network(LITE2)),),
    "inception": ((REAL, (1000,), HELD, (0,), (40,), on_network(INCEPTION)),),
    # all labels of the two smallest sets
    "longer": (
        (
            ("deepdrid:quasi", "acne:doctor"),
            (ALL,),
            HELD,
            (0, *MORE_SEEDS),
            (40,),
            (f"{FIT}10,batch_size=32", BEFORE, f"{PEERS[0]},batch_size=32"),
        ),
    ),
    "rates": (
        (EVERY, (1000,), HELD, (0,), (40,), (*LOWER_RATE, *HIGHER_RATE)),
        (EVERY, (300,), HELD, (0,), (40,), small_batches(*LOWER_RATE, *HIGHER_RATE)),
    ),
    "seeds": (
        (EVERY, (300,), HELD, MORE_SEEDS, (40,), SMALL_BATCHES[2:3]),
        (EVERY, (1000,), HELD, MORE_SEEDS, (40,), PEERS[1:2]),
        (EVERY, (300,), HELD, MORE_SEEDS, (40,), SMALL_BATCHES[3:]),
        (EVERY, (1000,), HELD, MORE_SEEDS, (40,), (SORD,)),
        (ONE_SIDED, (300,), HELD, MORE_SEEDS, (40,), SMALL_BATCHES[:2]),
        (ONE_SIDED, (1000,), HELD, MORE_SEEDS, (40,), (f"{FIT}10", PEERS[0])),
        (EVERY, (ALL,), HELD, (0,), (20,), (PEERS[1], SORD, *OTHERS)),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Job:
    set: str
    noise: str
    labels: int  # 0: all
    fold: int
    seed: int
    epochs: int
    method: str

    @property
    def setting(self) -> str:
        """What the runs that share a noise estimate have in common."""
        kept = ("batch_size", "augment", "network", "learning_rate")
        others = [item for item in self.method.split(",") if item.startswith(kept)]
        if "verified" in self.method:
            others.append("verified")
        return "-".join(
            map(
                str, (self.set, self.noise, self.labels, self.fold, self.seed, self.epochs, *others)
            )
        )


FIELDS = [
    *Job.__dataclass_fields__,
    *(name for name in recipe_cases.FIELDS if name not in Job.__dataclass_fields__),
]

opened = cache(recipe_cases.open_set)


def planned(plans: tuple[Plan, ...]) -> Iterator[Job]:
    for cases, sizes, folds, seeds, epochs, methods in plans:
        for seed in seeds:
            for length in epochs:
                for method in methods:
                    for fold in folds:
                        for size in sizes:
                            for case in cases:
                                name, noise = case.split(":")
                                yield Job(
                                    set=name,
                                    noise=noise,
                                    labels=size,
                                    fold=fold,
                                    seed=seed,
                                    epochs=length,
                                    method=method,
                                )


@contextmanager
def kept_predictions(file: Path) -> Iterator[None]:
    """Keep the out-of-fold predictions that a noise estimate is made of."""

    def keep_and_estimate(labels: Any, probabilities: Any, **others: Any) -> noise.NoiseEstimate:
        file.parent.mkdir(parents=True, exist_ok=True)
        groups = np.array(others["groups"] or range(len(labels)), dtype=str)
        np.savez_compressed(
            file, labels=labels, probabilities=probabilities.astype(np.float32), groups=groups
        )
        return noise.estimate_noise(labels, probabilities, **others)

    with mock.patch("srjt.training.noise_rate.estimate_noise", keep_and_estimate):
        yield


@contextmanager
def judged_at_the_end() -> Iterator[None]:
    """Without the scores of every epoch: of 1,000 images they take longer than training with 300."""
    evaluate = loop._Training.evaluate

    def at_the_end(training: loop._Training) -> dict[str, np.ndarray]:
        return evaluate(training) if training.epoch > training.config.epochs else {}

    with mock.patch.object(loop._Training, "evaluate", at_the_end):
        yield


def estimate(args: argparse.Namespace, data: recipe_cases.DataSet, job: Job) -> dict[str, Any]:
    """The noise estimate by another warm-up: the rate, and how wrong it is."""
    labels, _ = recipe_cases.noisy_labels(data, job.noise, seed=1000 * job.fold + job.seed)
    split = data.splits[job.fold]
    manifest = data.clean.with_noisy_labels(labels)
    given = parse_overrides(
        job.method.removeprefix("estimate:").replace("method=srjt:", "method=srjt,").split(",")
    )
    folds = int(given.pop("folds", 3))
    options = {
        "method": "sord",
        "optimizer": "adamw",
        "schedule": "cosine",
        "warmup_epochs": 1,
        "learning_rate": 1e-3,
    }
    if given.get("transition") == "identity":
        given["transition"] = np.eye(data.clean.num_classes).tolist()
    config = TrainConfig(
        **{**options, **given},
        seed=job.seed,
        epochs=job.epochs,
        network=args.network,
        weights=args.weights,
        pretrained=args.weights is not None,
        image_size=SIDE,
        crop=CROP,
        balance=0.0,
    )
    setup = Setup(device=args.device, split=train_on(split.train))
    begin = time.perf_counter()
    fitted = cross_fit(manifest, config=config, folds=folds, setup=setup)
    true = data.clean.labels[split.train]
    file = args.out.parent / "predictions" / f"{job.setting}-{job.method.replace(':', '-')}.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    groups = np.array(fitted.manifest.groups or fitted.manifest.ids, dtype=str)
    np.savez_compressed(
        file,
        labels=fitted.manifest.labels,
        true=true,
        probabilities=fitted.by_network.astype(np.float32),
        groups=groups,
    )
    found = noise.estimate_noise(
        fitted.manifest.labels, fitted.probabilities, groups=groups.tolist()
    )
    low, high = found.rate_interval
    return {
        **asdict(job),
        "rate": f"{(fitted.manifest.labels != true).mean():.4f}",
        "estimated_rate": f"{found.rate:.4f}",
        "told": f"{low:.3f} to {high:.3f}, {found.informed}",
        "seconds": f"{time.perf_counter() - begin:.1f}",
        "mae predict ensemble": f"{np.abs(fitted.probabilities.argmax(axis=1) - true).mean():.4f}",
    }


def median_grade(data: recipe_cases.DataSet, job: Job) -> dict[str, Any]:
    """No network: the median of the noisy training labels, for every image."""
    labels, _ = recipe_cases.noisy_labels(data, job.noise, seed=1000 * job.fold + job.seed)
    split = data.splits[job.fold]
    grade = int(np.median(labels[split.train]))
    true = torch.as_tensor(data.clean.labels[split.test])
    scores = recipe_cases.scores(true, torch.full_like(true, grade), data.clean.num_classes)
    row: dict[str, Any] = {**asdict(job), "told": "nothing", "seconds": "0"}
    for name, value in scores.items():
        for decoding in ("predict", "for_macro_f1"):
            for who in ("network", "ensemble"):
                row[f"{name} {decoding} {who}"] = f"{value:.5f}"
    return row


def train(args: argparse.Namespace, job: Job) -> dict[str, Any]:
    on_features = job.method == ON_FEATURES
    folder = args.features if on_features else args.sets
    data = opened(folder / f"{job.set}.npz", limit=args.limit)
    split = recipe_cases.part(data, job.fold, job.labels)
    if len(split.test) > MOST_TESTED:
        some = np.random.default_rng(job.fold).choice(split.test, MOST_TESTED, replace=False)
        split = replace(split, test=np.sort(some))
    data = replace(data, splits={job.fold: split})  # type: ignore[arg-type]
    if job.method == MEDIAN_GRADE:
        return median_grade(data, job)
    if job.method.startswith("estimate:"):
        return estimate(args, data, job)
    shared: Path | None = args.out.parent / "estimates" / job.setting
    if on_features or "identity" in job.method:
        shared = None
    settings: dict[str, Any] = {}
    if not on_features:
        settings = {
            "network": args.network,
            "weights": args.weights,
            "pretrained": args.weights is not None,
            "image_size": SIDE,
            "crop": CROP,
            "epochs": job.epochs,
            "eval_batch_size": 256,  # of memory, so that more trainings fit at a time
        }
    predictions = args.out.parent / "predictions" / f"{job.setting}.npz"
    with kept_predictions(predictions), judged_at_the_end():
        row = recipe_cases.one_run(
            data,
            job.noise,
            fold=job.fold,
            seed=job.seed,
            method="srjt" if on_features else job.method,
            device=args.device,
            shared_estimate=shared,
            **settings,
        )
    return {**row, **asdict(job)}


def run(args: argparse.Namespace) -> None:
    begin = time.monotonic()
    done: set[Job] = set()
    if args.out.exists():
        rows = pd.read_csv(args.out)[list(Job.__dataclass_fields__)]
        done = {Job(**row) for row in rows.to_dict("records")}  # type: ignore[misc]
    chosen = [job for plan in args.plan for job in planned(PLANS[plan])]
    waiting = [job for job in dict.fromkeys(chosen) if job not in done]
    print(f"{len(waiting)} trainings", flush=True)
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        running: dict[Future[dict[str, Any]], Job] = {}
        while waiting or running:
            while (
                waiting
                and len(running) < args.processes
                and time.monotonic() - begin < 60 * args.minutes
            ):
                job = waiting.pop(0)
                running[pool.submit(train, args, job)] = job
            if not running:
                print(f"time is up, {len(waiting)} trainings are left", flush=True)
                return
            for ended in wait(running, return_when=FIRST_COMPLETED)[0]:
                job = running.pop(ended)
                try:
                    append(args.out, ended.result())
                except Exception as problem:  # the others go on
                    print(job, repr(problem)[:300], flush=True)


def append(file: Path, row: dict[str, Any]) -> None:
    recipe_cases.append_row(file, row, fields=FIELDS)
    name = f"{row['set']}:{row['noise']} {row['labels']} fold {row['fold']} {row['epochs']} epochs {row['method']}"
    print(f"{name}: MAE {row['mae predict ensemble']}, {row['seconds']} s", flush=True)


def table(files: list[Path]) -> None:
    rows = pd.concat([pd.read_csv(file) for file in files])
    rows["case"] = rows["set"] + ":" + rows["noise"]
    for who in ("ensemble", "network"):
        for score in ("mae", "macro_f1"):
            shown = rows.pivot_table(
                f"{score} predict {who}",
                ["labels", "epochs", "method"],
                "case",
                aggfunc="mean",
                margins=False,
            )
            shown["mean"] = shown.mean(axis=1)
            print(f"\n{score}, {who}\n{shown.round(3).to_string()}")
    runs = rows.groupby(["labels", "epochs", "method"]).size()
    print(f"\nruns\n{runs.to_string()}")
    estimates = rows[rows["estimated_rate"].notna()].groupby(
        ["case", "labels", "epochs", "fold", "seed"]
    )
    print(estimates[["rate", "estimated_rate"]].first().round(2).to_string())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("sets", type=Path)
    running.add_argument("--features", type=Path, help="for the plan features")
    running.add_argument("--plan", choices=PLANS, nargs="+", default=["confirm"])
    running.add_argument("--weights")
    running.add_argument("--network", default="timm:tf_efficientnet_lite0")
    running.add_argument("--limit", type=int)
    running.add_argument("--minutes", type=float, default=1e6, help="start no training later")
    running.add_argument("--processes", type=int, default=1)
    running.add_argument("--device")
    running.add_argument("--out", type=Path, default=Path("few_labels.csv"))
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path, nargs="+")
    args = parser.parse_args()
    if args.command == "run" and "features" in args.plan and args.features is None:
        parser.error(
            "the plan features needs --features FOLDER (recipe_on_features.py make --stages)"
        )
    if args.command == "run":
        run(args)
    else:
        table(args.results)


if __name__ == "__main__":
    main()
