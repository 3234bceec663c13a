"""The first model on a laptop: ``--preset cpu`` beside what anybody would try first, and
``srjt analyse`` with its defaults, on photographs.

    srjt weights fetch efficientnet-lite0
    python benchmarks/first_model.py compare DATA --sizes 300 1000 --out first_model.csv
    python benchmarks/first_model.py analyse DATA --draws 0 1 2 --out first_hour.csv
    python benchmarks/first_model.py table first_model.csv

DATA holds one folder for each set, with a ``labels.csv`` (image, grade, patient). The images on
which the features of the preset were chosen (``CHOSEN_ON``) are left out. Seconds are those of one
core. Rows that are in the file already are skipped.

``compare``: of the next 3,400 images, 400 are held out, by patient; of the others so many are drawn
for training, with the given labels or with quasi errors in 40 % of them. All are judged by the
given grades of the held-out images, which count as true. A grade is the median of the
probabilities. ``preset cpu``, scikit-learn's logistic regression, with a cross-validated strength,
and AutoGluon, if autogluon.tabular is installed, learn from the same features of a frozen
EfficientNet-Lite0. AutoGluon has its default preset, one core and three minutes. That a run of
``--preset cpu`` is a training on such features, to the bit, is a test. ``small network`` is what
the preset trains without weights. Seconds include the features of the training images.

``analyse``: 600 images are drawn, whole patients. ACNE04 has the reading of one random doctor as
the label of an image, and is judged by it. Written for each draw: the mean absolute error on the
test side, that of one grade for all, and both on all images, each predicted by a training of the
audit that has not seen its patient; and the verdict of the page.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.preprocessing import StandardScaler

import srjt
from srjt import noise
from srjt.auditing.audit import DEFAULTS
from srjt.data import Manifest, Split, read
from srjt.data.inspection import inspect_source
from srjt.inference.embed import embed
from srjt.ordinal import decode, metrics
from srjt.reports import analysis
from srjt.reports.pages.analysis import across_folds, verdict_of
from srjt.training.config import TrainConfig
from srjt.training.reporters import reporter_in_python

GRADES = {"acne160": "published_grade", "appareal144": "true_grade"}  # else grade
SETS = ("knee160", "deepdrid256", "acne160")
AUTOGLUON = "AutoGluon"
METHODS = ("one grade for all", "small network", "logistic regression", AUTOGLUON, "preset cpu")
ON_FEATURES = ("logistic regression", AUTOGLUON, "preset cpu")
NOISES = (0.0, 0.4)
TEST = 400
BACKBONE = "efficientnet-lite0-stages"
# images of each set, by patients in the order of a seed, on which the features were chosen: mean and
# deviation of each stage, among the last map, single stages, maxima and grids
CHOSEN_ON = {"acne160": 600, "deepdrid256": 600, "knee160": 1200}
CHOICE_SEED = 77
MOST = 3400  # images of a set
TIMED_ON = 128
ANALYSED = 600  # images of ``analyse``
FIRST_SEED = 900
AUTOGLUON_SECONDS = 180
STRENGTHS = 10.0 ** np.arange(-6.0, 1.1)  # C of scikit-learn
KEY = ("set", "images", "noise", "draw", "method")

Ints = npt.NDArray[np.int64]


def open_set(folder: Path) -> Manifest:
    """The images of a set that no choice has seen."""
    column = GRADES.get(folder.name, "grade")
    data = read(folder / "labels.csv", grade_column=column, progress=False)
    owners = np.array(data.patients or data.ids, dtype=object)
    names = np.random.default_rng(CHOICE_SEED).permutation(pd.unique(owners))
    place = {name: number for number, name in enumerate(names)}
    order = np.argsort([place[owner] for owner in owners], kind="stable")
    return data.select(order[CHOSEN_ON.get(folder.name, 0) :][:MOST])


def draw_rows(data: Manifest, *, size: int, draw: int) -> tuple[Ints, Ints]:
    """(n,) rows for training and (m,) held-out rows of other patients: the same held-out ones for
    every size."""
    owners = np.array(data.groups or data.ids, dtype=object)
    names = np.random.default_rng(draw).permutation(np.unique(owners))
    place = {name: number for number, name in enumerate(names)}
    order = np.argsort([place[owner] for owner in owners], kind="stable")
    last = owners[order[TEST - 1]]
    held_out = int(np.flatnonzero(owners[order] == last)[-1]) + 1  # all images of the last patient
    return order[held_out:][:size], order[:held_out]


def run_one(
    method: str,
    data: Manifest,
    features: Manifest,
    *,
    train: Ints,
    test: Ints,
    rate: float,
    draw: int,
) -> tuple[npt.NDArray[np.floating], float]:
    """(m, C) probabilities for the held-out rows, and the seconds of one core."""
    true = data.labels
    labels = true
    if rate:
        rho = noise.rho_for_rate("quasi", rate=rate, class_counts=data.class_counts)
        matrix = noise.transition_matrix("quasi", num_classes=data.num_classes, rho=rho)
        labels = noise.corrupt(true, matrix, seed=1000 + draw)
    begin = time.process_time()
    if method == "one grade for all":
        p = np.eye(data.num_classes)[[int(np.median(labels[train]))] * len(test)]
    elif method == "logistic regression":
        p = logistic_regression(features, labels, train=train, test=test)
    elif method == AUTOGLUON:
        p = autogluon(features, labels, train=train, test=test)
    else:
        rows = np.concatenate([train, test])
        samples = (data if method == "small network" else features).select(rows)
        given = np.concatenate([labels[train], true[test]])
        places = np.arange(len(rows))
        split = Split(train=places[: len(train)], validation=places[:0], test=places[len(train) :])
        settings: dict[str, Any] = (
            {"preset": "cpu", "network": "tiny"} if method == "small network" else {}
        )
        run = srjt.train(
            samples.with_noisy_labels(given), split=split, progress=False, device="cpu", **settings
        )
        p = run.held_out["test"].probabilities.mean(axis=0)
    return np.asarray(p, dtype=np.float64), time.process_time() - begin


def logistic_regression(
    features: Manifest, labels: Ints, *, train: Ints, test: Ints
) -> npt.NDArray[np.floating]:
    """Multinomial regression, whose strength five folds by patient choose by the log-likelihood."""
    x = np.asarray(features.arrays, dtype=np.float64)
    scaler = StandardScaler().fit(x[train])
    # a rotation into as many columns as there are rows changes nothing for a ridge penalty, and is
    # much faster
    axes = np.linalg.svd(scaler.transform(x[train]), full_matrices=False)[2].T
    learnt, answered = (scaler.transform(x[part]) @ axes for part in (train, test))
    groups = np.array(features.groups or features.ids, dtype=object)[train]
    y = labels[train]
    parts = list(StratifiedGroupKFold(5, shuffle=True, random_state=0).split(learnt, y, groups))

    def probabilities(
        rows: Ints, judged: npt.NDArray[np.floating], strength: float
    ) -> npt.NDArray[np.floating]:
        model = LogisticRegression(C=strength, max_iter=300).fit(learnt[rows], y[rows])
        p = np.full((len(judged), features.num_classes), 1e-6)  # a grade without labels
        p[:, model.classes_] = np.maximum(model.predict_proba(judged), 1e-6)
        return p

    likelihoods: list[float] = []
    for strength in STRENGTHS:
        each = [
            np.log(probabilities(a, learnt[b], strength)[np.arange(len(b)), y[b]]).sum()
            for a, b in parts
        ]
        likelihoods.append(sum(each))
        if len(likelihoods) > 2 and likelihoods[-3] > likelihoods[-2] > likelihoods[-1]:
            break
    return probabilities(np.arange(len(train)), answered, STRENGTHS[int(np.argmax(likelihoods))])


def autogluon(
    features: Manifest, labels: Ints, *, train: Ints, test: Ints
) -> npt.NDArray[np.floating]:
    """The default preset, which chooses and combines models by a part of the rows."""
    from autogluon.tabular import TabularPredictor

    table = pd.DataFrame(np.asarray(features.arrays)).add_prefix("f")
    with tempfile.TemporaryDirectory() as place:
        predictor = TabularPredictor(
            "grade", problem_type="multiclass", eval_metric="log_loss", path=place, verbosity=0
        )
        learnt = table.iloc[train].assign(grade=labels[train])
        predictor.fit(learnt, time_limit=AUTOGLUON_SECONDS, num_cpus=1)
        found = predictor.predict_proba(table.iloc[test])
    p = np.zeros((len(test), features.num_classes))  # it leaves out grades with few labels
    p[:, found.columns.to_numpy(dtype=int)] = found
    return p


def features_of(data: Manifest, weights: str | None, cache: Path | None = None) -> Manifest:
    """The features that ``--preset cpu`` learns from."""
    features, _ = embed(
        data,
        backbone=BACKBONE,
        weights=weights,
        image_size=224,
        crop=224,
        resize="pad",
        batch_size=16,
        device="cpu",
        cache=cache,
    )
    return features


def seconds_per_image(data: Manifest, weights: str | None) -> float:
    """The time of decoding and of the features, on a few images that no cache holds."""
    few = data.select(np.arange(min(TIMED_ON, len(data))))
    with tempfile.TemporaryDirectory() as empty:
        begin = time.process_time()
        features_of(few, weights, cache=Path(empty))
        return (time.process_time() - begin) / len(few)


def compare(args: argparse.Namespace) -> None:
    """Append one row for each training to ``args.out``, the small trainings first."""
    done: set[tuple[str, ...]] = set()
    if args.out.exists():
        done = set(pd.read_csv(args.out)[list(KEY)].astype(str).itertuples(index=False, name=None))
    sets: dict[str, tuple[Manifest, Manifest, float]] = {}
    methods = list(args.methods)
    if AUTOGLUON in methods and importlib.util.find_spec("autogluon") is None:
        print("AutoGluon is left out: pip install autogluon.tabular[lightgbm,xgboost] adds it.")
        methods.remove(AUTOGLUON)
    for key in itertools.product(args.sizes, args.draws, args.sets, NOISES, methods):
        size, draw, name, rate, method = key
        if (name, str(size), str(rate), str(draw), method) in done:
            continue
        if name not in sets:
            data = open_set(args.data / name)
            each = seconds_per_image(data, args.weights)
            sets[name] = (data, features_of(data, args.weights), each)
        data, features, each = sets[name]
        train, test = draw_rows(data, size=size, draw=draw)
        if len(train) < 0.9 * size:
            continue  # the set has not so many images
        p, seconds = run_one(method, data, features, train=train, test=test, rate=rate, draw=draw)
        if method in ON_FEATURES:
            seconds += each * len(train)
        counts = metrics.confusion_matrix(
            torch.as_tensor(data.labels[test]),
            decode(torch.from_numpy(p), "median"),
            num_classes=data.num_classes,
        ).numpy()
        scores = {metric: f"{metrics.METRICS[metric](counts):.4f}" for metric in ("mae", "qwk")}
        start = dict(zip(KEY, (name, size, rate, draw, method), strict=True))
        row = pd.DataFrame([{**start, **scores, "seconds": f"{seconds:.0f}"}])
        row.to_csv(args.out, mode="a", header=not args.out.exists(), index=False)
        print(*row.iloc[0], flush=True)


def draw_table(folder: Path, draw: int) -> pd.DataFrame:
    """600 images with their labels: image, grade and, where it is known, patient."""
    data = open_set(folder)
    owners = np.array(data.patients or data.ids, dtype=object)
    names = np.random.default_rng(FIRST_SEED + draw).permutation(pd.unique(owners))
    place = {name: number for number, name in enumerate(names)}
    rows = np.argsort([place[owner] for owner in owners], kind="stable")[:ANALYSED]
    table = pd.DataFrame(
        {"image": data.table["image"].to_numpy()[rows], "grade": data.labels[rows]}
    )
    if data.patients is not None:
        table["patient"] = owners[rows]
    readings = folder / "readings.csv"
    if readings.exists():
        by_doctor = pd.read_csv(readings).sample(frac=1, random_state=draw)
        one = by_doctor.drop_duplicates("image").set_index("image")["grade"]
        table = table[table["image"].isin(one.index)]
        table["grade"] = table["image"].map(one)
    table["image"] = [str(data.root / name) for name in table["image"]]
    return table


def analyse_one(folder: Path, draw: int, weights: str | None) -> dict[str, Any]:
    """A row of the results."""
    given: dict[str, Any] = {"preset": "cpu"}
    if weights:
        given["weights"] = weights
    with tempfile.TemporaryDirectory() as place:
        labels = Path(place) / "labels.csv"
        draw_table(folder, draw).to_csv(labels, index=False)
        began = sum(os.times()[:4])  # of this process and its children
        done = analysis.analyse(
            inspect_source(labels, {}),
            out=Path(place) / "analysis",
            config=TrainConfig().replace(**given),
            audit_config=TrainConfig(**DEFAULTS).replace(**analysis.audit_settings(given)),
            watching=analysis.Watching(
                tell=lambda text: None, open=lambda: reporter_in_python(None, progress=False)
            ),
        )
        seconds = sum(os.times()[:4]) - began
        across = across_folds(done)
        assert across is not None
        verdict = verdict_of(done, across)[0]
    test = done.evaluation
    return {
        "set": folder.name,
        "draw": draw,
        "mae": test.intervals["mae"].value,
        "one_grade": test.gain.naive,
        "mae_all": across.gain.score,
        "one_grade_all": across.gain.naive,
        "verdict_test": test.gain.verdict,
        "verdict": verdict,
        "seconds": seconds,
    }


def analyse(args: argparse.Namespace) -> None:
    """Add one row for each set and draw to ``args.out``."""
    rows = pd.read_csv(args.out).to_dict("records") if args.out.exists() else []
    done = {(row["set"], row["draw"]) for row in rows}
    for draw in args.draws:
        for name in args.sets:
            if (name, draw) not in done:
                rows.append(analyse_one(args.data / name, draw, args.weights))
                pd.DataFrame(rows).to_csv(args.out, index=False)
                print(rows[-1], flush=True)


def table(args: argparse.Namespace) -> None:
    """Means over the draws as a table of Markdown; the rows of ``analyse`` as they are."""
    rows = pd.read_csv(args.file)
    if "verdict" in rows:
        print(rows.round(3).to_string(index=False))
    else:
        print(markdown(rows))


def markdown(rows: pd.DataFrame) -> str:
    """Errors with the given labels and with 40 % wrong ones, means over the draws, a row for each
    set and size."""
    methods = [method for method in METHODS if (rows["method"] == method).any()]
    lines = [
        "| set, images | draws | " + " | ".join(methods) + " | minutes |",
        "|---|---|" + "---|" * len(methods) + "---|",
    ]
    for (name, images), part in rows.groupby(["set", "images"], sort=True):
        cells = []
        for method in methods:
            errors = part[part["method"] == method].groupby("noise")["mae"].mean()
            given, wrong = errors.reindex(NOISES)
            cells.append(f"{given:.2f} / {wrong:.2f}".replace("nan", "–"))  # not run yet
        minutes = part[part["method"] == "preset cpu"]["seconds"].mean() / 60
        draws = part["draw"].nunique()
        lines.append(f"| {name}, {images:,} | {draws} | {' | '.join(cells)} | {minutes:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    comparing = commands.add_parser("compare")
    comparing.add_argument("--sizes", nargs="+", type=int, default=[300, 1000, 3000])
    comparing.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    comparing.set_defaults(do=compare)
    analysing = commands.add_parser("analyse")
    analysing.set_defaults(do=analyse)
    for command in (comparing, analysing):
        command.add_argument("data", type=Path)
        command.add_argument("--sets", nargs="+", default=SETS)
        command.add_argument("--draws", nargs="+", type=int, default=[0, 1, 2])
        command.add_argument("--weights", help="default: the published ones")
        command.add_argument("--out", type=Path, required=True)
    showing = commands.add_parser("table")
    showing.add_argument("file", type=Path)
    showing.set_defaults(do=table)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.do(args)


if __name__ == "__main__":
    main()
