"""How often 95 % intervals of a difference contain the truth: patients alone resampled, and patients and trainings.

    python benchmarks/interval_coverage.py        # some minutes on one core

Two methods that are equally good are trained R times each and tested on the same 80 patients with four images each.
Images of a patient are difficult together, and each training has its own mistakes: its rate of errors varies, and
which grade it prefers. The true difference is 0. "Seeds vary": the standard deviation of the rate of errors.
"""

from __future__ import annotations

import numpy as np

from srjt.ordinal.differences import crossed_difference
from srjt.ordinal.intervals import resampled_metrics

PATIENTS, IMAGES, GRADES = 80, 4, 4
SIMULATIONS, RESAMPLES = 400, 150
METRICS = ("mae", "macro_f1")


def answers(true: np.ndarray, difficulty: np.ndarray, vary: float, random: np.random.Generator) -> np.ndarray:
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


def main() -> None:
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
                print(f"{trainings:9} {vary:11}   {metric:10}{alone:15.3f}{crossed:24.3f}", flush=True)


if __name__ == "__main__":
    main()
