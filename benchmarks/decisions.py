"""Decisions on simulated patients, for whom everything is known.

    python benchmarks/decisions.py intervals   # do 95 % intervals of a sensitivity contain the true one?
    python benchmarks/decisions.py threshold   # does a threshold found on validation keep its sensitivity?
    python benchmarks/decisions.py pooling [--out FILE]    # one answer per patient: highest, mean, learned

Patients differ, and images of one patient are alike. Every number is a mean over fresh draws; ± is
its standard error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.noise.matrices import corrupt, transition_matrix
from srjt.noise.quality import highest_grade_posterior
from srjt.ordinal.decisions import proportion_interval, threshold_for_sensitivity
from srjt.ordinal.decoding import fit_pooling, highest_per_unit, pool_probabilities
from srjt.ordinal.metrics import METRICS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def mean(values: list[float]) -> str:
    return f"{np.nanmean(values):.3f} ± {np.nanstd(values) / np.sqrt(len(values)):.3f}"


# ---------------------------------------------------------------------- intervals


def bootstrap(
    right: npt.NDArray[np.bool_], owner: Ints, rng: np.random.Generator
) -> tuple[float, float]:
    """The percentile bootstrap of patients."""
    hits, sizes = np.bincount(owner, weights=right), np.bincount(owner)
    draws = rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=500)
    low, high = np.quantile((draws @ hits) / (draws @ sizes), [0.025, 0.975])
    return float(low), float(high)


def intervals(repeats: int) -> None:
    print("Share of 95 % intervals that contain the true sensitivity (1 to 8 images per patient)")
    print(
        f"{'patients':>8} {'true':>6}  {'ours':>15}  {'patients resampled':>18}  {'as if independent':>17}"
    )
    for patients in (10, 20, 50, 200):
        for true in (0.8, 0.95):
            rng = np.random.default_rng(patients)
            found: dict[str, list[float]] = {"ours": [], "bootstrap": [], "independent": []}
            for _ in range(repeats):
                owner = np.repeat(np.arange(patients), rng.integers(1, 9, patients))
                own = rng.beta(4 * true, 4 * (1 - true), patients)
                right = rng.random(len(owner)) < own[owner]
                _, low, high = proportion_interval(right, groups=owner.tolist())
                found["ours"].append(low <= true <= high)
                low, high = bootstrap(right, owner, rng)
                found["bootstrap"].append(low <= true <= high)
                _, low, high = proportion_interval(right)
                found["independent"].append(low <= true <= high)
            ours, resampled, independent = (mean(values) for values in found.values())
            print(f"{patients:>8} {true:>6}  {ours:>15}  {resampled:>18}  {independent:>17}")


# ---------------------------------------------------------------------- threshold


def scores(rng: np.random.Generator, samples: int) -> tuple[Floats, Ints]:
    """p(grade ≥ 2) of samples whose severity is known up to an error, and their true grades 0 …
    3."""
    severity = rng.normal(1.5, 1.2, samples)
    seen = severity + rng.normal(0, 0.6, samples)
    return 1 / (1 + np.exp(-3 * (seen - 1.5))), np.clip(np.round(severity), 0, 3).astype(np.int64)


def threshold(repeats: int) -> None:
    print(
        "Thresholds for a sensitivity of 0.95, found on validation samples, on 20,000 new ones with true grades"
    )
    print(
        f"{'validation':>10} {'labels':>12}  {'sensitivity':>15} {'specificity':>15}  {'by the quantile':>15}"
    )
    for samples in (40, 200, 1000):
        for wrong in (0.0, 0.2, 0.4):
            rng = np.random.default_rng(samples)
            found: list[list[float]] = [[], [], []]
            for _ in range(repeats):
                score, grade = scores(rng, samples)
                labels = grade
                if wrong:
                    matrix = transition_matrix("truncated", num_classes=4, rho=wrong / 1.5)
                    labels = corrupt(grade, matrix, seed=int(rng.integers(2**31)))
                positive = labels >= 2
                if not positive.any():
                    continue
                chosen = threshold_for_sensitivity(positive, score, sensitivity=0.95).threshold
                quantile = float(np.quantile(score[positive], 0.05, method="lower"))
                new, true = scores(rng, 20_000)
                found[0].append(float((new[true >= 2] >= chosen).mean()))
                found[1].append(float((new[true < 2] < chosen).mean()))
                found[2].append(float((new[true >= 2] >= quantile).mean()))
            text = "true" if not wrong else f"{wrong:.0%} wrong"
            sensitivity, specificity, plain = map(mean, found)
            print(f"{samples:>10} {text:>12}  {sensitivity:>15} {specificity:>15}  {plain:>15}")


# ---------------------------------------------------------------------- pooling


def patients_of(
    rng: np.random.Generator, patients: int, *, images: int, shown: float
) -> tuple[Floats, Ints, Ints]:
    """Probabilities (N, 4), patients (N,) and labels (N,). shown: share of images with the
    patient's grade; the others have a lower one."""
    owner = np.repeat(np.arange(patients), rng.integers(1, 2 * images, patients))
    grade = rng.choice(4, patients, p=[0.5, 0.2, 0.2, 0.1])
    worst = rng.random(len(owner)) < shown
    # the patient's grade shows in one image at least
    worst[np.unique(owner, return_index=True)[1]] = True
    label = np.where(worst, grade[owner], rng.integers(0, 4, len(owner)) % (grade[owner] + 1))
    # the networks make the same mistake in all images of a patient, and one of their own in each
    seen = label + 0.4 * rng.normal(size=patients)[owner] + 0.6 * rng.normal(size=len(owner))
    logits = -2.0 * (seen[:, None] - np.arange(4)) ** 2
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), owner, label.astype(np.int64)


def pooling(repeats: int, out: Path | None) -> None:
    print(
        "One answer per patient: fitted on 100 patients with 20 % wrong labels, judged by the truth of 500 others"
    )
    print(
        "naive: fitted by the highest of the noisy labels; learned: by what the labels and the noise matrix say"
    )
    print(f"{'images':>6} {'shown':>5}  {'':9} {'QWK':>15} {'−log p(grade)':>15}")
    matrix = transition_matrix("truncated", num_classes=4, rho=0.13)
    rows: list[dict[str, object]] = []
    for images in (2, 8, 40):
        for shown in (0.2, 1.0):
            rng = np.random.default_rng(images)
            found: dict[str, tuple[list[float], list[float]]] = {
                name: ([], []) for name in ("highest", "mean", "naive", "learned")
            }
            for _ in range(repeats):
                p, owner, label = patients_of(rng, 100, images=images, shown=shown)
                noisy = corrupt(label, matrix, seed=int(rng.integers(2**31)))
                fitted = {
                    "naive": fit_pooling(p, owner, highest_per_unit(noisy, owner)),
                    "learned": fit_pooling(p, owner, highest_grade_posterior(noisy, owner, matrix)),
                }
                p, owner, label = patients_of(rng, 500, images=images, shown=shown)
                true = highest_per_unit(label, owner)
                for name, (kappa, loss) in found.items():
                    how = "learned" if name in fitted else name
                    pooled = pool_probabilities(p, owner, pooling=how, learned=fitted.get(name))  # type: ignore[arg-type]
                    grade = pooled.argmax(axis=1)
                    if name == "highest":
                        grade = highest_per_unit(p.argmax(axis=1), owner)
                    confusion = np.bincount(4 * true + grade, minlength=16).reshape(4, 4)
                    kappa.append(METRICS["qwk"](confusion))
                    chosen = pooled[np.arange(len(true)), true]
                    loss.append(float(-np.log(np.maximum(chosen, 1e-6)).mean()))
            for name, (kappa, loss) in found.items():
                print(f"{images:>6} {shown:>5}  {name:9} {mean(kappa):>15} {mean(loss):>15}")
                rows += [
                    {
                        "images": images,
                        "shown": shown,
                        "pooling": name,
                        "draw": k,
                        "QWK": round(value, 5),
                    }
                    for k, value in enumerate(kappa)
                ]
    if out is not None:
        pd.DataFrame(rows).to_csv(out, index=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["intervals", "threshold", "pooling"])
    parser.add_argument("--repeats", type=int, default=0, help="draws per line")
    parser.add_argument("--out", type=Path, help="a CSV file with a row for each draw of pooling")
    given = parser.parse_args()
    {"intervals": lambda: intervals(given.repeats or 1000),
     "threshold": lambda: threshold(given.repeats or 300),
     "pooling": lambda: pooling(given.repeats or 10, given.out)}[given.what]()  # fmt: skip


if __name__ == "__main__":
    main()
