"""The seven cases on which the recipe is judged, for ``recipe_on_features.py`` and
``evidence/recipe_on_images.py``.

DeepDRiD with four injected noises, EyePACS with its own labels, APPA-REAL with one random human
vote per image, ACNE04 with the reading of one random doctor per image. Every training and
validation label is noisy; the test side is judged against the true grade (ACNE04: the published
grade; EyePACS: its labels, and what a method is told about its noise is the paper's assumption). A
data set is one .npz file: ``x`` (features, or images as JPEG bytes with ``ends``), ``grade``,
``patient`` and, where people graded the images, ``votes`` (N, V), −1 where there are fewer. A case
has all labels, or 1,000 or 300 of them (SIZES).

A method is a name of METHODS, or a name with settings: ``srjt:learning_rate=0.002,balance=0.25``.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import srjt
from srjt import noise
from srjt.data import Manifest, Split, folds, from_arrays
from srjt.ordinal import Purpose, decode, metrics
from srjt.ordinal.decoding import GradeRule, grade_rule_for
from srjt.settings import parse_overrides
from srjt.training.config import TrainConfig
from srjt.training.crossfit import cross_fit
from srjt.training.train import train_from_config
from srjt.training.trained import Setup

CASES = (
    ("deepdrid", "truncated"),
    ("deepdrid", "quasi"),
    ("acne", "doctor"),
    ("appareal", "vote"),
    ("eyepacs", "as_it_is"),
    ("deepdrid", "boundary"),
    ("deepdrid", "one-sided"),
)
ALL = 0  # labels
SIZES = (300, 1000, ALL)  # labels of a case, as ``part`` takes them
RATE = 0.4  # of the quasi and the truncated noise
LOWER = 0.55  # one-sided: this share of the grades above the mildest is labelled one lower
BLUR = 0.5  # boundary: standard deviation of the reader's severity, in grades
ASSUMED = 0.3  # EyePACS: the rate that the paper assumes, and its quasi matrix
VERIFIED = 100
EPOCHS = {"acne": 1.5}  # as many times the usual epochs: it has the fewest images

# What a method is told: nothing, the true rate, the true matrix, the true grades of a hundred
# labels, or of all.
METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "srjt": ("srjt", "nothing", {}),
    "standard": ("standard", "nothing", {}),
    "co-teaching+ours": ("co-teaching+ours", "rate", {}),
    "f-correction": ("f-correction", "matrix", {}),
    "eae": ("eae", "nothing", {}),
    "clean labels": ("standard", "truth", {}),
    "standard, best epoch": ("standard", "nothing", {"keep": "best"}),
    "srjt, 100 verified": ("srjt", "verified", {}),
    "srjt, balance 0.25": ("srjt", "nothing", {"balance": 0.25}),
    "srjt, true matrix": ("srjt", "matrix", {}),
    "clean labels, agreement": ("srjt", "truth", {"transition": "identity"}),
    "former srjt": ("jocor+ours", "estimated rate", {"balance": 0.5, "method_options": "former"}),
    "sord": ("sord", "nothing", {}),
    "elr": ("elr", "nothing", {}),
    "gce": ("gce", "nothing", {}),
    "co-teaching": ("co-teaching", "rate", {}),
    "jocor+ours": ("jocor+ours", "rate", {}),
    "codis+ours": ("codis+ours", "rate", {}),
    "jocor": ("jocor", "rate", {}),
    "codis": ("codis", "rate", {}),
    "f-correction, estimated": ("f-correction", "estimated matrix", {}),
    "reweight": ("reweight", "matrix", {}),
    "cdr": ("cdr", "rate", {}),
    "label-smooth": ("label-smooth", "nothing", {}),
    "mixup": ("mixup", "nothing", {}),
    "garg": ("garg", "matrix", {}),
    "sce": ("sce", "nothing", {}),
    "corn": ("corn", "nothing", {}),
    "cdw-ce": ("cdw-ce", "nothing", {}),
}
FIRST = list(METHODS)[:6]
NAMES = ("accuracy", "mae", "macro_f1", "qwk")
# predict: the grades that srjt predict gives; for_macro_f1: with the target metric macro_f1
DECODINGS = ("predict", "argmax", "median", "expected", "for_macro_f1")
FIELDS = ["set", "noise", "fold", "seed", "method", "told", "rate", "estimated_rate", "seconds", *(
    f"{name} {decoding} {who}"
    for who in ("network", "ensemble") for decoding in (*DECODINGS, "noisy validation") for name in NAMES
)]  # fmt: skip
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class DataSet:
    clean: Manifest  # grades as published, or true
    splits: list[Split]
    votes: Ints | None = None
    severity: Floats | None = None  # for the boundary noise


def open_set(file: Path, *, limit: int | None = None) -> DataSet:
    """The samples of a file, and five folds of 60 / 20 / 20 % that are disjoint by patient."""
    with np.load(file) as saved:
        found = {name: saved[name][:limit] for name in saved.files if name != "x"}
        x = saved["x"][:limit] if "ends" not in found else _decode(saved["x"], found["ends"])
    clean = from_arrays(
        x, found["grade"], patients=found.get("patient"), true_grades=found["grade"]
    )
    return DataSet(
        clean=clean, splits=folds(clean, folds=5, seed=0, by="stratified"), votes=found.get("votes")
    )


def part(data: DataSet, fold: int, size: int) -> Split:
    """So many images beside the fold's test side, whole patients, a fifth of them for validation;
    with ALL the fold as it is. Smaller parts are in the larger ones."""
    whole = data.splits[fold]
    if size == ALL:
        return whole
    rows = np.concatenate([whole.train, whole.validation])
    patients = np.array(data.clean.patients or data.clean.ids, dtype=str)[rows]
    names = np.random.default_rng(fold).permutation(np.unique(patients))
    place = {name: number for number, name in enumerate(names)}
    rows = rows[np.argsort([place[name] for name in patients], kind="stable")][:size]
    held = len(rows) // 5
    return Split(train=np.sort(rows[held:]), validation=np.sort(rows[:held]), test=whole.test)


@cache
def _opened(file: Path, limit: int | None) -> DataSet:
    return open_set(file, limit=limit)


def _decode(content: npt.NDArray[np.uint8], ends: Ints) -> npt.NDArray[np.uint8]:
    from PIL import Image

    begins = np.concatenate([[0], ends[:-1]])
    pairs = zip(begins, ends, strict=True)
    return np.stack([np.asarray(Image.open(io.BytesIO(content[a:b].tobytes()))) for a, b in pairs])


def noisy_labels(data: DataSet, kind: str, *, seed: int) -> tuple[Ints, Floats]:
    """(N,) labels and the (C, C) matrix that a method may be told."""
    true, classes = data.clean.labels, data.clean.num_classes
    rng = np.random.default_rng(seed)
    counts = data.clean.class_counts
    if kind == "as_it_is":
        rho = noise.rho_for_rate("quasi", rate=ASSUMED, class_counts=counts)
        return true, noise.transition_matrix("quasi", num_classes=classes, rho=rho)
    if kind in ("quasi", "truncated"):
        rho = noise.rho_for_rate(kind, rate=RATE, class_counts=counts)
        matrix = noise.transition_matrix(kind, num_classes=classes, rho=rho)
        return noise.corrupt(true, matrix, seed=seed), matrix
    if kind == "one-sided":
        matrix = np.diag([1.0] + [1.0 - LOWER] * (classes - 1)) + np.diag(
            [LOWER] * (classes - 1), k=-1
        )
        return noise.corrupt(true, matrix, seed=seed), matrix
    if kind in ("vote", "doctor"):
        assert data.votes is not None
        which = (rng.random(len(true)) * (data.votes >= 0).sum(axis=1)).astype(np.int64)
        labels = data.votes[np.arange(len(true)), which].astype(np.int64)
    else:  # a reader who sees the place within the grade up to a blur
        assert data.severity is not None
        place = np.empty(len(true))
        for grade in range(classes):
            rows = np.flatnonzero(true == grade)
            place[rows] = (data.severity[rows].argsort().argsort() + 0.5) / max(len(rows), 1)
        labels = (
            np.floor(true + place + rng.normal(0.0, BLUR, len(true)))
            .clip(0, classes - 1)
            .astype(np.int64)
        )
    joint = np.zeros((classes, classes))
    np.add.at(joint, (true, labels), 1.0)
    return labels, joint / joint.sum(axis=1, keepdims=True)


def one_run(
    data: DataSet,
    kind: str,
    *,
    fold: int,
    seed: int,
    method: str,
    device: str | None,
    keep: Path | None = None,
    shared_estimate: Path | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Train, and judge the test side by every decoding: a row of the results.

    keep: a file for the probabilities of the held-out sides. shared_estimate: a folder for the
    noise estimate, for runs that share it.
    """
    known, _, given_settings = method.partition(":")
    name, told, changes = METHODS[known]
    changes = changes | parse_overrides(given_settings.split(",") if given_settings else [])
    labels, matrix = noisy_labels(data, kind, seed=1000 * fold + seed)
    split, true = data.splits[fold], data.clean.labels
    given = labels.copy()
    given[split.test] = true[split.test]
    rate = float((given != true)[split.train].mean()) if kind != "as_it_is" else ASSUMED
    manifest = data.clean.with_noisy_labels(true if told == "truth" else given)
    options, begin = {**settings, **changes}, time.perf_counter()
    if told in ("rate", "matrix"):
        options["noise_rate"] = rate
    if told == "matrix":
        options["transition"] = matrix.tolist()
    if told.startswith("estimated"):
        options["noise_rate"] = "auto"
    if options.get("transition") == "identity":
        options["transition"] = np.eye(len(matrix)).tolist()
    if options.get("method_options") == "former":
        ramp = max(1, round(0.4 * options["epochs"]))
        options["method_options"] = {"agree": "all", "co_lambda": 1.0, "ramp_epochs": ramp}
    if told == "verified":
        some = np.random.default_rng(seed).choice(
            split.train, min(VERIFIED, len(split.train)), replace=False
        )
        verified = np.full(len(true), -1)
        verified[some] = true[some]
        manifest.table["verified_grade"] = verified
    run = train_from_config(
        manifest,
        TrainConfig().replace(method=name, seed=seed, **options),
        setup=Setup(split=split, device=device),
        shared_estimate=shared_estimate,
    )
    seconds, estimate = time.perf_counter() - begin, run.noise_estimate
    row: dict[str, Any] = {
        "set": "", "noise": kind, "fold": fold, "seed": seed, "method": method, "told": told, "rate": f"{rate:.4f}",
        "estimated_rate": "" if estimate is None else f"{estimate.rate:.4f}",
        "seconds": f"{seconds:.1f}",
    }  # fmt: skip
    noisy = given[split.validation]
    rules = {
        "predict": _rule(run, noisy, purpose=run.config.target_metric),
        "for_macro_f1": _rule(run, noisy, purpose="macro_f1"),
    }
    for side in ("validation", "test"):
        p = torch.as_tensor(run.held_out[side].probabilities, dtype=torch.float64)  # (K, N, C)
        judged = torch.as_tensor(
            given[split.validation] if side == "validation" else true[split.test]
        )
        for who, probabilities in (("network", p), ("ensemble", p.mean(dim=0, keepdim=True))):
            for decoding in DECODINGS if side == "test" else ("predict",):
                judgements = [
                    scores(judged, one, len(matrix))
                    for one in _grades(run, probabilities, decoding, rules)
                ]
                for score in NAMES:
                    column = f"{score} {decoding if side == 'test' else 'noisy validation'} {who}"
                    row[column] = f"{np.mean([one[score] for one in judgements]):.5f}"
    if keep is not None:
        sides = {
            side: run.held_out[side].probabilities.astype(np.float16)
            for side in ("validation", "test")
        }
        np.savez_compressed(keep, **sides, noisy=noisy, true=true[split.test])
    return row


def _grades(
    run: srjt.Run, probabilities: torch.Tensor, decoding: str, rules: Mapping[str, GradeRule]
) -> torch.Tensor:
    """(K, N, C) probabilities → (K, N) grades; those of ``rules`` as ``srjt predict`` does, which
    undoes soft labels."""
    if decoding in rules:
        return rules[decoding].grades(probabilities)
    return (
        run.method.grades_of(probabilities)
        if decoding == "argmax"
        else decode(probabilities, decoding)
    )


def _rule(run: srjt.Run, noisy: Ints, *, purpose: Purpose) -> GradeRule:
    """What a grade is for this metric, fitted as ``srjt predict`` does."""
    return grade_rule_for(
        purpose,
        validation=torch.as_tensor(
            run.held_out["validation"].probabilities, dtype=torch.float64
        ).mean(dim=0),
        labels=torch.as_tensor(noisy),
        soft_labels=run.method.learnt_soft_labels(),
    )


def scores(true: torch.Tensor, predicted: torch.Tensor, classes: int) -> dict[str, float]:
    """Of grades (N,)."""
    counts = metrics.confusion_matrix(true, predicted, num_classes=classes).numpy()
    return {
        "accuracy": metrics.METRICS["accuracy"](counts),
        "mae": metrics.METRICS["mae"](counts),
        "macro_f1": metrics.METRICS["macro_f1"](counts),
        "qwk": metrics.METRICS["qwk"](counts),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", nargs="+", default=["all"], help="such as deepdrid:quasi")
    parser.add_argument(
        "--methods", nargs="+", default=list(METHODS), metavar="METHOD[:SETTING=VALUE,…]"
    )
    parser.add_argument("--folds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="start no run that would end later"
    )
    parser.add_argument(
        "--processes", type=int, default=1, help="so many trainings at the same time"
    )
    parser.add_argument("--device")
    parser.add_argument(
        "--probabilities", type=Path, help="a folder for the predictions of the held-out sides"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="CSV file; what is in it is not run again"
    )


def planned(args: argparse.Namespace) -> Iterator[tuple[str, str, int, int, str]]:
    """(set, noise, fold, seed, method): the most important methods in all cases first, then one
    after the other."""
    cases = [case for case in CASES if args.cases == ["all"] or ":".join(case) in args.cases]
    first = [method for method in args.methods if method in FIRST]
    told = {method: METHODS[method.partition(":")[0]][1] for method in args.methods}
    for tier in (first, *([method] for method in args.methods if method not in FIRST)):
        for seed in args.seeds:
            for fold in args.folds:
                for name, kind in cases:
                    for method in tier:
                        if kind == "as_it_is" and told[method] in ("truth", "verified"):
                            continue  # the truth is not known
                        if name == "deepdrid" and kind != "quasi" and told[method] == "truth":
                            continue  # the same true labels: trained once
                        yield name, kind, fold, seed, method


def run_all(args: argparse.Namespace, **settings: Any) -> None:
    """Append one row per run to ``args.out``; runs that are in it already are skipped, so that it
    can be resumed."""
    begin, seconds = time.monotonic(), dict.fromkeys((name for name, _ in CASES), 0.0)
    done: set[tuple[str, ...]] = set()
    if args.out.exists():
        with args.out.open(newline="") as file:
            rows = csv.DictReader(file)
            done = {
                tuple(row[name] for name in ("set", "noise", "fold", "seed", "method"))
                for row in rows
            }
    waiting = [job for job in planned(args) if tuple(map(str, job)) not in done]
    if any(kind == "boundary" for _, kind, *_ in waiting):
        data = open_set(args.sets / "deepdrid.npz", limit=args.limit)
        with_severity(
            data, args.out, device=args.device, **settings
        )  # once, before several processes need it
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        running: set[Future[dict[str, Any]]] = set()
        while waiting or running:
            while waiting and len(running) < args.processes:
                if time.monotonic() - begin + seconds[waiting[0][0]] > 60 * args.minutes:
                    print("time is up: run the same command again to continue", flush=True)
                    waiting = []
                else:
                    running.add(pool.submit(_one_job, args, waiting.pop(0), settings))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for one in ended:
                row = one.result()
                seconds[row["set"]] = max(seconds[row["set"]], float(row["seconds"]))
                _append(args.out, row)


def _one_job(
    args: argparse.Namespace, job: tuple[str, str, int, int, str], settings: Mapping[str, Any]
) -> dict[str, Any]:
    name, kind, fold, seed, method = job
    data = _opened(args.sets / f"{name}.npz", args.limit)
    if kind == "boundary":
        data = with_severity(data, args.out, device=args.device, **settings)
    keep = None
    if args.probabilities is not None:
        args.probabilities.mkdir(parents=True, exist_ok=True)
        keep = (
            args.probabilities
            / f"{name}-{kind}-{fold}-{seed}-{method.replace(':', '-').replace(',', '-')}.npz"
        )
    settings = {**settings, "epochs": round(EPOCHS.get(name, 1) * settings["epochs"])}
    return {
        **one_run(
            data,
            kind,
            fold=fold,
            seed=seed,
            method=method,
            device=args.device,
            keep=keep,
            **settings,
        ),
        "set": name,
    }


def append_row(file: Path, row: Mapping[str, Any], *, fields: Sequence[str]) -> None:
    """To a file of results. A file that exists keeps its columns."""
    fresh = not file.exists()
    if not fresh:
        with file.open(newline="") as opened:
            fields = next(csv.reader(opened))
    with file.open("a", newline="") as opened:
        writer = csv.DictWriter(opened, fields, extrasaction="ignore")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def _append(file: Path, row: Mapping[str, Any]) -> None:
    append_row(file, row, fields=FIELDS)
    print(
        f"{row['set']} {row['noise']}, fold {row['fold']}, seed {row['seed']}, {row['method']}: "
        f"MAE {row['mae predict ensemble']}, macro-F1 {row['macro_f1 predict ensemble']}, {row['seconds']} s",
        flush=True,
    )


def with_severity(data: DataSet, results: Path, *, device: str | None, **settings: Any) -> DataSet:
    """With the expected grade (N,) by networks that were trained on the true grades of other
    patients."""
    file = results.with_name(f"{results.stem}-severity.npy")
    if not file.exists():
        config = TrainConfig(method="standard", **settings)
        fitted = cross_fit(data.clean, config=config, folds=3, setup=Setup(device=device))
        np.save(file, fitted.probabilities @ np.arange(data.clean.num_classes))
    return replace(data, severity=np.load(file))
