"""How often the 95 % intervals of scores against the true grades hold them, although only doubtful
labels are known.

    python benchmarks/true_scores.py simulated --out FILE   # half an hour on one core
    python benchmarks/true_scores.py acne FILE              # item, reader, grade, published_grade

**Simulated**: 300 images of 150 patients, four grades. Readers and the network see the severity
within the grade with an error, readers with a bias. What is known: three readings of each image;
100 verified grades; the matrix of the label noise. The network is one of

- apart: it errs independently of the readers given the severity;
- alike: on half of the images it says what the readers say, wrong or not (one of them, at random);
- misled: on 12 % of the images all readers and the network see a neighbouring grade;
- immune: as above, but the network sees the true one.

The truth is the score on 400,000 images. "By the labels": the interval of the same score if the
labels (the consensus of the readers) are taken as the truth.

**ACNE04**: doctors' readings, the published grade hidden. The network is simulated from the
published grade: apart, alike, and a sixth doctor who is left out of the readers. Each trial has
half of the images; the truth is the score on all of them by the published grade.

**What holds** (300 trials a row: a standard error of 0.015 at 0.93, 0.017 at 0.90): verified grades
0.94 to 1.00, with widths of 0.17 to 0.19 for the accuracy, whatever the network is. Readings 0.98
to 1.00, also for an immune network, widths 0.43 to 0.49: bounds, so no value is shown with them.
Bounds that assumed that errors of all readers mislead the network, too, held an immune one in 0.15
to 0.65 of 20 trials. A matrix: 1.00, widths 0.35 to 0.48. By the labels alone: 0.00 to 0.94. On
ACNE04 (20 trials: too few for more than a hint) 37 of 40 rows are always covered, two recalls in
0.90 and the accuracy of one doctor in 0.85; by the labels alone 0.00 to 1.00.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.inference.answers import Answers
from srjt.inference.aspects.referral import ReferralRule
from srjt.inference.true_scores import TrueScores, true_scores
from srjt.noise.quality import given_noise
from srjt.ordinal.intervals import bootstrap_metrics
from srjt.readers import Readings, consensus

Ints = npt.NDArray[np.int64]
GRADES, PATIENTS, IMAGES = 4, 150, 300
SHARES = (0.4, 0.3, 0.2, 0.1)
NETWORKS = ("apart", "alike", "misled", "immune")
KNOWN = ("3 readings", "100 verified", "matrix")
SCORES = ("mae", "accuracy", "qwk", "recall_2", "sensitivity")
MISLED = 0.12
REFER = 2
REFERRED = ReferralRule(position=REFER, threshold=None, origin="")


def see(
    severity: npt.NDArray[np.float64], spread: float, rng: np.random.Generator, bias: float = 0.0
) -> Ints:
    seen = np.rint(severity + bias + spread * rng.normal(size=severity.shape))
    return np.clip(seen, 0, GRADES - 1).astype(np.int64)


def population(
    network: str, images: int, readers: int, rng: np.random.Generator
) -> tuple[Ints, Ints, Ints, Ints]:
    """True grades (N,), readings (N, R), the network's grades (N,) and patients (N,)."""
    patient = np.arange(images) // (IMAGES // PATIENTS)
    true = rng.choice(GRADES, size=images, p=SHARES)
    again = (
        rng.random(images) < 0.5
    )  # the second image of a patient often has the grade of the first
    true = np.where(again, true[np.maximum(patient * 2, 0).clip(max=images - 1)], true)
    severity = true + rng.uniform(-0.5, 0.5, size=images)
    common = severity.copy()
    if network in ("misled", "immune"):
        wrong = rng.random(images) < MISLED
        step = np.where(
            true == 0, 1, np.where(true == GRADES - 1, -1, rng.choice([-1, 1], size=images))
        )
        common = severity + wrong * step
    biases = np.linspace(-0.15, 0.15, readers) if readers > 1 else [0.0]
    readings = np.stack([see(common, 0.4, rng, bias) for bias in biases], axis=1)
    predicted = see(severity if network == "immune" else common, 0.35, rng)
    if network == "alike":
        one = readings[np.arange(images), rng.integers(readers, size=images)]
        predicted = np.where(rng.random(images) < 0.5, one, predicted)
    return true, readings, predicted, patient


def table_of(readings: Ints, patient: Ints) -> Readings:
    images, readers = readings.shape
    return Readings(
        items=[str(i) for i in range(images)],
        readers=[str(r) for r in range(readers)],
        grades=tuple(str(c) for c in range(GRADES)),
        item=np.repeat(np.arange(images), readers),
        reader=np.tile(np.arange(readers), images),
        grade=readings.ravel(),
        groups=[str(p) for p in patient],
    )


def scores_of(true: Ints, predicted: Ints) -> dict[str, float]:
    """The scores, by definition."""
    error = np.abs(true - predicted)
    chance = (np.subtract.outer(np.arange(GRADES), np.arange(GRADES)) ** 2).astype(float)
    one, other = (np.bincount(x, minlength=GRADES) / len(true) for x in (true, predicted))
    return {
        "mae": float(error.mean()),
        "accuracy": float((error == 0).mean()),
        "qwk": 1.0 - float((error**2).mean() / (one @ chance @ other)),
        "recall_2": float((predicted[true == 2] == 2).mean()),
        "sensitivity": float((predicted[true >= REFER] >= REFER).mean()),
    }


def matrix_of(true: Ints, labels: Ints) -> npt.NDArray[np.float64]:
    counts = np.zeros((GRADES, GRADES))
    np.add.at(counts, (true, labels), 1.0)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def trial(
    known: str, network: str, matrix: npt.NDArray[np.float64], rng: np.random.Generator
) -> tuple[TrueScores, dict[str, tuple[float, float]]]:
    readers = int(known.split()[0]) if known.endswith("readings") else 1
    true, readings, predicted, patient = population(network, IMAGES, readers, rng)
    table, labels = table_of(readings, patient), readings[:, 0]
    groups = [str(p) for p in patient]
    how: dict[str, object] = {}
    if known == "100 verified":
        verified = np.full(IMAGES, -1)
        rows = rng.choice(IMAGES, 100, replace=False)
        verified[rows] = true[rows]
        how["verified"] = verified
    elif known == "matrix":
        how["noise"] = given_noise(matrix, np.bincount(labels, minlength=GRADES) / IMAGES)
    else:
        how["readings"] = table
        labels = consensus(table).grade
    answers = Answers(
        probabilities=np.eye(GRADES)[predicted], grades=predicted, labels=labels, groups=groups
    )
    found = true_scores(answers, refer=REFERRED, resamples=400, **how)  # type: ignore[arg-type]
    assert found is not None
    plain = bootstrap_metrics(labels, predicted, num_classes=GRADES, groups=groups, resamples=400)
    return found, {name: (plain[name].low, plain[name].high) for name in ("mae", "accuracy", "qwk")}


def summary(rows: list[tuple[object, ...]]) -> pd.DataFrame:
    """Coverage, mean width and mean error of the value by setting and score."""
    frame = pd.DataFrame(
        rows,
        columns=[
            "known",
            "network",
            "score",
            "truth",
            "value",
            "low",
            "high",
            "label_low",
            "label_high",
        ],
    )
    frame["covered"] = (frame["low"] <= frame["truth"]) & (frame["truth"] <= frame["high"])
    labelled = frame["label_low"].notna()
    frame["covered by the labels"] = np.where(
        labelled,
        (frame["label_low"] <= frame["truth"]) & (frame["truth"] <= frame["label_high"]),
        np.nan,
    )
    frame["width"], frame["bias"] = frame["high"] - frame["low"], frame["value"] - frame["truth"]
    kept = ["truth", "covered", "width", "bias", "covered by the labels"]
    by = frame.groupby(["known", "network", "score"], sort=False)
    return by[kept].mean().round(3).assign(trials=by.size()).reset_index()


def rows_of(
    known: str,
    network: str,
    found: TrueScores,
    plain: dict[str, tuple[float, float]],
    truth: dict[str, float],
) -> Iterator[tuple[object, ...]]:
    for score in truth:
        yield (
            known,
            network,
            score,
            truth[score],
            *found.scores[score],
            *plain.get(score, (np.nan, np.nan)),
        )


def simulated(trials: int) -> pd.DataFrame:
    rows: list[tuple[object, ...]] = []
    for place, network in enumerate(NETWORKS):
        true, readings, predicted, _ = population(network, 400_000, 1, np.random.default_rng(place))
        matrix = matrix_of(true, readings[:, 0])
        for number, known in enumerate(KNOWN):
            if network == "alike" and known.endswith(
                "readings"
            ):  # it repeats these readers, not one of one
                true, _, predicted, _ = population(
                    network, 400_000, int(known[0]), np.random.default_rng(place)
                )
            truth = scores_of(true, predicted)
            for one in range(trials):
                rng = np.random.default_rng([place, number, one])
                rows += rows_of(known, network, *trial(known, network, matrix, rng), truth)
            print(
                summary(rows[-trials * len(SCORES) :]).to_string(index=False, header=number == 0),
                flush=True,
            )
    return summary(rows)


def acne(file: Path, trials: int) -> pd.DataFrame:
    table = pd.read_csv(file).dropna()
    items, item = np.unique(table["item"], return_inverse=True)
    readers, reader = np.unique(table["reader"], return_inverse=True)
    grade = table["grade"].to_numpy(np.int64)
    true = table.groupby(item)["published_grade"].first().to_numpy(np.int64)
    rows: list[tuple[object, ...]] = []
    for network in ("apart", "alike", *(f"doctor {name}" for name in readers)):
        for one in range(trials):
            rng = np.random.default_rng(one)
            predicted = np.clip(
                true + np.where(rng.random(len(true)) < 0.3, rng.choice([-1, 1], len(true)), 0),
                0,
                3,
            )
            kept, judged = np.ones(len(item), dtype=bool), np.ones(len(items), dtype=bool)
            if network == "alike":  # half of the answers are those of one of the doctors
                order = rng.permutation(len(item))
                said = predicted.copy()
                said[item[order]] = grade[order]
                predicted = np.where(rng.random(len(true)) < 0.5, said, predicted)
            elif network != "apart":
                own = readers[reader] == network.removeprefix("doctor ")
                kept, judged = ~own, np.isin(np.arange(len(items)), item[own])
                predicted = predicted.copy()
                predicted[item[own]] = grade[own]
            judged &= np.isin(np.arange(len(items)), item[kept])
            truth = scores_of(true[judged], predicted[judged])
            drawn = rng.permutation(np.flatnonzero(judged))[: judged.sum() // 2]
            new = np.full(len(items), -1)
            new[drawn] = np.arange(len(drawn))
            kept &= new[item] >= 0
            read = Readings(
                items=[str(items[i]) for i in drawn], readers=[str(name) for name in readers],
                grades=("0", "1", "2", "3"), item=new[item[kept]], reader=reader[kept], grade=grade[kept],
            )  # fmt: skip
            labels, answers = consensus(read).grade, predicted[drawn]
            judged = Answers(
                probabilities=np.eye(GRADES)[answers], grades=answers, labels=labels, groups=None
            )
            found = true_scores(judged, refer=REFERRED, readings=read, resamples=400)
            assert found is not None
            plain = bootstrap_metrics(labels, answers, num_classes=GRADES, resamples=400)
            ends = {
                name: (plain[name].low, plain[name].high) for name in ("mae", "accuracy", "qwk")
            }
            rows += rows_of("doctors", network, found, ends, truth)
    return summary(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("simulated", "acne"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--trials", type=int, default=300, help="for acne, 20 take ten minutes")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = simulated(asked.trials) if asked.what == "simulated" else acne(asked.file, asked.trials)
    print(found.to_string(index=False))
    if asked.out:
        found.to_csv(asked.out, index=False)


if __name__ == "__main__":
    main()
