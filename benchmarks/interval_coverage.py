"""How often 95 % intervals contain the truth: of a score, of a difference between methods, and of
the share of wrong labels.

    python benchmarks/interval_coverage.py scores         # a minute
    python benchmarks/interval_coverage.py differences    # some minutes on one core
    python benchmarks/interval_coverage.py verified       # two minutes

**Scores** of a network: plain percentiles of the bootstrap (2.5 % and 97.5 %), and the intervals
that srjt prints, which go farther out the fewer patients there are and allow for errors that have
not occurred (``bootstrap_metrics``). First a network that is too high or too low for each patient;
then rare errors, rare grades, clustered errors, patients with very different numbers of images, and
2 to 10 grades, each with coverage and mean width.

**Differences**: patients alone resampled, and patients and trainings. Two methods that are equally
good are trained R times each and tested on the same 80 patients with four images each. Images of a
patient are difficult together, and each training has its own mistakes: its rate of errors varies,
and which grade it prefers. The true difference is 0. "Seeds vary": the standard deviation of the
rate of errors.

**Verified labels**: the share of wrong labels from 50, 100 and 200 verified ones and a model's
doubt about each of all labels. The model suspects most errors, misses some, which may be too rare
for the sample, and suspects some right labels, more or less loosely; beside the sample alone
(Clopper and Pearson's interval).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.noise.verified import exact_interval, read_verified, use_verified
from srjt.ordinal.intervals import bootstrap_metrics, resampled_metrics, wrong_by
from srjt.ordinal.metrics import METRICS as ALL_METRICS

sys.path.append(str(Path(__file__).parent / "evidence"))

from differences import crossed_difference

PATIENTS, IMAGES, GRADES = 80, 4, 4
SIMULATIONS, RESAMPLES = 400, 150
METRICS = ("mae", "macro_f1")
# Shares of the labels: suspected errors, missed errors, suspected right labels (with how much
# doubt); spread of doubt.
DOUBTS = [
    *((0.08, missed, 0.0, 0.0, 0.0) for missed in (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.06)),
    *((0.08, 0.0, alarms, 0.95, 0.0) for alarms in (0.005, 0.01, 0.015, 0.03, 0.06)),
    (0.01, 0.0, 0.0, 0.0, 0.0),
    (0.02, 0.01, 0.02, 0.6, 0.02),
    (0.0, 0.05, 0.05, 0.6, 0.1),
    (0.03, 0.015, 0.0, 0.0, 0.0),
    (0.05, 0.05, 0.05, 0.6, 0.1),
    (0.2, 0.0, 0.1, 0.6, 0.2),
    (0.2, 0.2, 0.2, 0.6, 0.3),
    (0.3, 0.015, 0.015, 0.95, 0.02),
    (0.45, 0.02, 0.02, 0.6, 0.1),
]


def answers(
    true: np.ndarray, difficulty: np.ndarray, vary: float, random: np.random.Generator
) -> np.ndarray:
    """(N,) grades by one training, wrong by one grade more often where its patient is difficult."""
    rate = np.clip(0.3 + 0.25 * difficulty + vary * random.normal(), 0.02, 0.9)
    upwards = np.clip(0.5 + 2 * vary * random.normal(), 0.05, 0.95)
    step = np.where(random.random(len(true)) < upwards, 1, -1)
    wrong = random.random(len(true)) < rate
    return np.clip(np.where(wrong, true + step, true), 0, GRADES - 1)


def one_study(trainings: int, vary: float, random: np.random.Generator) -> dict[str, np.ndarray]:
    """(R, 1 + resamples) differences by metric."""
    patients = np.repeat(np.arange(PATIENTS), IMAGES)
    true = random.choice(GRADES, len(patients), p=(0.4, 0.3, 0.2, 0.1))
    # each method has its own difficult patients
    difficult = [random.normal(size=PATIENTS)[patients] for _ in range(2)]
    found: dict[str, list[np.ndarray]] = {metric: [] for metric in METRICS}
    for _ in range(trainings):
        left, right = (
            resampled_metrics(
                true, answers(true, level, vary, random), num_classes=GRADES, groups=patients.tolist(),
                metrics=METRICS, resamples=RESAMPLES,
            )
            for level in difficult
        )  # fmt: skip
        for metric in METRICS:
            found[metric].append(left[metric] - right[metric])
    return {metric: np.stack(rows) for metric, rows in found.items()}


NAMES = ("accuracy", "mae", "macro_f1", "qwk")
# patients, images of each (0: skewed), shares of the grades, share of errors, correlation of a
# patient's errors
UNFAVOURABLE = [
    (50, 1, (0.25,) * 4, 0.02, 0.0),
    (30, 1, (0.25,) * 4, 0.05, 0.0),
    (100, 1, (0.85, 0.1, 0.03, 0.02), 0.3, 0.0),
    (300, 1, (0.25,) * 4, 0.002, 0.0),
    (10, 1, (0.5, 0.5), 0.1, 0.0),
    (8, 40, (0.25,) * 4, 0.02, 0.2),
    (10, 10, (0.25,) * 4, 0.1, 0.2),
    (8, 10, (0.1,) * 10, 0.4, 0.1),
    (100, 4, (0.95, 0.05), 0.05, 0.1),
    (40, 0, (0.25,) * 4, 0.3, 0.1),
    (40, 0, (0.25,) * 4, 0.03, 0.3),
    (300, 3, (0.25,) * 4, 0.3, 0.1),
]


def scores(simulations: int = 200) -> None:
    random = np.random.default_rng(22)
    rows = []
    large = biased_answers(200_000, 4, random)
    for patients, images in ((5, 40), (8, 40), (15, 20), (30, 10), (100, 4)):
        samples = (biased_answers(patients, images, random) for _ in range(simulations))
        rows += coverage(
            f"{patients} patients × {images}, biased",
            samples,
            GRADES,
            truths(large[0], large[1], GRADES),
        )
    for patients, images, shares, error, together in UNFAVOURABLE:
        classes = len(shares)
        truth = np.array(shares)[:, None] * (
            (1 - error) * np.eye(classes) + error * wrong_by(1, classes)
        )
        expected = {name: ALL_METRICS[name](truth) for name in NAMES}
        samples = (
            rare_errors(patients, images, shares, error, together, random)
            for _ in range(simulations)
        )
        setting = (
            f"{patients} patients × {images or 'skewed'}, {classes} grades, {error:.1%} errors"
        )
        rows += coverage(setting, samples, classes, expected)
    print(
        pd.DataFrame(rows, columns=["setting", "intervals", *NAMES, "width of MAE"])
        .round(3)
        .to_string(index=False)
    )


def truths(true: np.ndarray, predicted: np.ndarray, classes: int) -> dict[str, float]:
    confusion = np.bincount(classes * true + predicted, minlength=classes**2).reshape(
        classes, classes
    )
    return {name: ALL_METRICS[name](confusion) for name in NAMES}


def coverage(
    setting: str, samples: Iterable[tuple], classes: int, truth: dict[str, float]
) -> list[tuple]:
    """A row for plain percentiles, and one for the intervals that are printed."""
    held = np.zeros((2, len(NAMES)))
    widths, trials = np.zeros(2), 0
    for true, predicted, groups in samples:
        trials += 1
        how = {
            "num_classes": classes,
            "groups": groups.tolist(),
            "metrics": NAMES,
            "resamples": 300,
            "seed": trials,
        }
        drawn, ours = (
            resampled_metrics(true, predicted, **how),
            bootstrap_metrics(true, predicted, **how),
        )
        for place, name in enumerate(NAMES):
            plain = (
                np.nanquantile(drawn[name][1:], [0.025, 0.975])
                if np.isfinite(drawn[name]).any()
                else (0, 0)
            )
            for kind, (low, high) in enumerate((plain, ours[name][1:])):
                held[kind, place] += low - 1e-9 <= truth[name] <= high + 1e-9
                widths[kind] += (high - low) * (name == "mae")
    kinds = zip(("plain", "printed"), held, widths, strict=True)
    return [(setting, kind, *(count / trials), width / trials) for kind, count, width in kinds]


def rare_errors(
    patients: int,
    images: int,
    shares: tuple[float, ...],
    error: float,
    together: float,
    random: np.random.Generator,
) -> tuple[np.ndarray, ...]:
    """(N,) true grades, answers that are wrong by one grade, and patients, whose errors are
    correlated."""
    number = np.full(patients, images)
    if not images:
        number = 1 + np.floor(random.pareto(1.0, patients) * 3).clip(0, 200).astype(int)
    owner = np.repeat(np.arange(patients), number)
    true = random.choice(len(shares), len(owner), p=shares)
    rate = np.full(patients, error)
    if together:
        rate = random.beta(
            error * (1 - together) / together, (1 - error) * (1 - together) / together, patients
        )
    step = np.where(
        true == 0, 1, np.where(true == len(shares) - 1, -1, random.choice([-1, 1], len(owner)))
    )
    return true, np.where(random.random(len(owner)) < rate[owner], true + step, true), owner


def biased_answers(
    patients: int, images: int, random: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """(N,) true grades, predicted grades and patients."""
    shape = (patients, images)
    true = random.uniform(0, GRADES, (patients, 1)) + 0.3 * random.normal(size=shape)
    answer = true + 0.5 * random.normal(size=(patients, 1)) + 0.5 * random.normal(size=shape)
    grades = (
        np.clip(severity, 0, GRADES - 1e-9).astype(int).ravel() for severity in (true, answer)
    )
    return *grades, np.repeat(np.arange(patients), images)


def verified() -> None:
    rows = []
    for place, (samples, doubts, size) in enumerate(
        product((1000, 10_000), DOUBTS, (50, 100, 200))
    ):
        random = np.random.default_rng([21, place])
        trials = np.array([one_sample(samples, size, doubts, random) for _ in range(SIMULATIONS)])
        covered, width, alone, width_alone = trials.mean(axis=0)
        rows.append((samples, *doubts[:3], size, covered, width, alone, width_alone))
    columns = [
        "labels",
        "suspected",
        "missed",
        "alarms",
        "verified",
        "covered",
        "width",
        "alone",
        "width alone",
    ]
    found = pd.DataFrame(rows, columns=columns).round(4)
    print(found.to_string(index=False))
    print("\nlowest coverage and mean width by the number of verified labels")
    least = found.groupby("verified").agg(
        {"covered": "min", "alone": "min", "width": "mean", "width alone": "mean"}
    )
    print(least.round(3).to_string())


def one_sample(
    samples: int, size: int, doubts: tuple[float, ...], random: np.random.Generator
) -> tuple[float, float, float, float]:
    """Whether the interval holds the truth and how wide it is, with the model and by the sample
    alone."""
    suspected, missed, alarms, alarm, spread = doubts
    kind = random.random(samples)
    doubt = np.where(kind < suspected, 0.95, np.where(kind > 1.0 - alarms, alarm, 0.02))
    doubt = np.clip(doubt + spread * random.normal(size=samples), 0.0, 1.0)
    wrong = kind < suspected + missed
    rows = random.choice(samples, size, replace=False)
    checked = np.full(samples, -1)
    checked[rows] = wrong[rows]
    known = read_verified(checked, samples=samples, classes=2)
    assert known is not None
    posterior = np.stack([1.0 - doubt, doubt], axis=1)
    labels = np.zeros(samples, dtype=np.int64)
    low, high = use_verified(
        labels, posterior, known, owner=np.arange(samples), confidence=0.95
    ).interval
    least, most = exact_interval(float(wrong[rows].mean()), size)
    truth = float(wrong.mean())
    return float(low <= truth <= high), high - low, float(least <= truth <= most), most - least


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("scores", "differences", "verified"))
    {"scores": scores, "differences": differences, "verified": verified}[parser.parse_args().what]()


def differences() -> None:
    error = 2 * (0.95 * 0.05 / SIMULATIONS) ** 0.5
    print(f"coverage of 95 % intervals, ± {error:.3f} by chance")
    print(
        f"{'trainings':>9} {'seeds vary':>11}   {'metric':10}{'patients alone':>15}{'patients and trainings':>24}"
    )
    random = np.random.default_rng(20)
    for trainings in (2, 3, 5):
        for vary in (0.0, 0.02, 0.05):
            covered: dict[str, list[tuple[bool, bool]]] = {metric: [] for metric in METRICS}
            for _ in range(SIMULATIONS):
                for metric, draws in one_study(trainings, vary, random).items():
                    low, high = np.quantile(draws.mean(axis=0)[1:], [0.025, 0.975])
                    both = crossed_difference(draws, patients=PATIENTS)
                    covered[metric].append((low <= 0 <= high, both.low <= 0 <= both.high))
            for metric, hits in covered.items():
                alone, crossed = np.mean(hits, axis=0)
                print(
                    f"{trainings:9} {vary:11}   {metric:10}{alone:15.3f}{crossed:24.3f}", flush=True
                )


if __name__ == "__main__":
    main()
