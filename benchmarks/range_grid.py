"""How often do ranges that promise 0.9 contain the true grade: clean and wrong labels, few samples,
weak networks?

    python benchmarks/range_grid.py                          # images; two hours on one core, most of it noise estimates
    python benchmarks/range_grid.py --per-patient            # one range for each patient with one to six images
    python benchmarks/range_grid.py --only clean --repeats 2 # a part of it

Nothing is trained. The severity of an image is normal, half of its variance between patients, and
thresholds cut it into grades. A network sees the severity with an error (``NETWORKS``) and says
p(true grade), too surely, or p(label), as a network does that has learnt the readers' errors.
Labels are right, or wrong by the paper's matrices (``quasi``, ``truncated``), all too low or too
high, by the same number of grades for all images of a patient (``patient``), or where the severity
is near a threshold (``difficulty``). The noise is estimated from as many labels as the ranges are
calibrated on, as a run does on its training side.

Each row is the mean over ``--repeats`` estimates of the noise and ten calibrations for each, judged
on 4,000 new images: coverage (width) by default, with the labels taken as right, and with the true
grades, which nobody has: what that covers beyond 0.9 is there because whole grades enter a range.
``trial`` is one row, for other programs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from srjt import noise
from srjt.inference.options import Answering
from srjt.inference.ranges import RangeRule, calibrate_ranges
from srjt.noise.estimate import estimate_noise
from srjt.noise.quality import LabelNoise, NoiseBounds, estimated_noise
from srjt.ordinal.decoding import highest_per_unit
from srjt.training.held_out import HeldOut

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
NETWORKS = {
    "strong": 0.2,
    "medium": 0.7,
    "weak": 2.0,
}  # the error, in standard deviations of the severity
TOO_SURE = 2.0  # the power of the probabilities of a network that is too sure
BETWEEN = 0.5  # of the variance of the severity, between patients
NEW = 4000  # images that the ranges are judged on


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is simulated."""

    labels: int = 300  # to calibrate on, and to estimate the noise from
    grades: int = 4
    uneven: bool = False
    network: str = "medium"
    learnt: str = "labels"  # or "true", or "too sure"
    noise: str = "none"
    rate: float = 0.0
    images: int = 1  # most images of a patient

    def __str__(self) -> str:
        wrong = f"{self.rate:.0%} {self.noise}" if self.rate else "clean"
        kind = "uneven" if self.uneven else "even"
        return f"{wrong}, {self.labels:,} labels, {self.grades} {kind} grades, {self.network} ({self.learnt})"

    @property
    def thresholds(self) -> Floats:
        """(C − 1,) of the severity. Uneven grades: a common one below the middle, and rare, severe
        ones."""
        if not self.uneven:
            return np.asarray(ndtri(np.arange(1, self.grades) / self.grades))
        return np.linspace(-1.0, 2.0, self.grades - 1) if self.grades > 2 else np.array([1.3])

    @property
    def shares(self) -> Floats:
        """(C,) of the true grades."""
        return np.diff(ndtr(self.thresholds), prepend=0.0, append=1.0)

    @property
    def matrix(self) -> Floats:
        """(C, C) P[i, j] = Pr(label = j | true grade = i) of labels that are wrong by the true
        grade."""
        classes = self.grades
        if not self.rate or self.noise == "difficulty":
            return np.eye(classes)
        if self.noise in ("low", "high"):
            step = -1 if self.noise == "low" else 1
            end = 0 if step < 0 else classes - 1
            wrong = min(self.rate / (1.0 - self.shares[end]), 0.6)
            matrix = (1.0 - wrong) * np.eye(classes) + wrong * np.eye(classes, k=step)
            matrix[end] = np.eye(classes)[end]
            return matrix
        kind = "quasi" if self.noise == "quasi" else "truncated"
        largest = noise.largest_rho(kind, num_classes=classes)
        most = noise.expected_rate(
            noise.transition_matrix(kind, num_classes=classes, rho=largest),
            class_counts=self.shares,
        )
        rho = noise.rho_for_rate(kind, rate=min(self.rate, 0.9 * most), class_counts=self.shares)
        return noise.transition_matrix(kind, num_classes=classes, rho=rho)

    @property
    def reader_error(self) -> float:
        """The error with which a reader sees the severity, if labels are wrong by difficulty."""
        if not self.rate or self.noise != "difficulty":
            return 0.0
        z = ndtri((np.arange(2000) + 0.5) / 2000)
        grade = np.searchsorted(self.thresholds, z)

        def excess(error: float) -> float:
            right = np.diff(_below(self.thresholds, z, error), axis=1)[np.arange(len(z)), grade]
            return 1.0 - float(right.mean()) - self.rate

        return float(brentq(excess, 1e-3, 10.0))


def _below(thresholds: Floats, severity: Floats, error: float) -> Floats:
    """(N, C + 1) the probability of a grade below 0, 1 … C for somebody who sees the severity with
    an error."""
    inner = ndtr((thresholds - severity[:, None]) / error)
    return np.concatenate(
        [np.zeros((len(severity), 1)), inner, np.ones((len(severity), 1))], axis=1
    )


def draw(setting: Setting, rng: np.random.Generator, *, samples: int | None = None) -> HeldOut:
    """Images of new patients, with their true grades."""
    size = setting.labels if samples is None else samples
    owner = np.repeat(np.arange(size), rng.integers(1, setting.images + 1, size))[:size]
    between = rng.normal(size=size)[owner]
    severity = BETWEEN**0.5 * between + (1.0 - BETWEEN) ** 0.5 * rng.normal(size=size)
    true = np.searchsorted(setting.thresholds, severity)
    matrix = setting.matrix
    reader_error = setting.reader_error
    labels = (rng.random(size)[:, None] > matrix[true].cumsum(axis=1)[:, :-1]).sum(axis=1)
    if setting.noise == "difficulty":
        labels = np.searchsorted(
            setting.thresholds, severity + reader_error * rng.normal(size=size)
        )
    if setting.noise == "patient":  # the error of the first image is that of all
        first = np.unique(owner, return_index=True)[1]
        labels = (true + (labels - true)[first][owner]).clip(0, setting.grades - 1)
    error = NETWORKS[setting.network]
    centre = (severity + error * rng.normal(size=size)) / (1.0 + error**2)
    spread = error / (1.0 + error**2) ** 0.5
    if setting.learnt == "labels":
        spread = (spread**2 + reader_error**2) ** 0.5
    p = np.diff(_below(setting.thresholds, centre, spread), axis=1)
    if setting.learnt == "labels":
        p = p @ matrix
    if setting.learnt == "too sure":
        p = np.maximum(p, 1e-12) ** TOO_SURE
    p /= p.sum(axis=1, keepdims=True)
    patients = [str(one) for one in owner.tolist()]
    return HeldOut(
        ids=[str(row) for row in range(size)],
        probabilities=p[None].astype(np.float32),
        labels=labels,
        true_labels=true,
        patients=patients,
        groups=patients,
    )


def noise_of(side: HeldOut) -> NoiseBounds:
    """The noise as a run estimates it."""
    return estimated_noise(
        estimate_noise(side.labels, side.probabilities[0].astype(np.float64), groups=side.groups)
    )


def covered(rule: RangeRule, new: HeldOut) -> tuple[float, float]:
    """Coverage and width of ranges of new images, or of new patients; each patient counts once."""
    assert new.true_labels is not None
    low, high = rule.ranges(new.probabilities[0], new.table)
    owner = np.unique(np.array(new.patients, dtype=np.int64), return_inverse=True)[1]
    true, weights = new.true_labels, 1.0 / np.bincount(owner)[owner]
    if rule.options.per:
        true, weights = highest_per_unit(true, owner), np.ones(int(owner.max()) + 1)
    inside = (low <= true) & (true <= high)
    return float(np.average(inside, weights=weights)), float(
        np.average(high - low + 1, weights=weights)
    )


def trial(
    setting: Setting,
    seed: int,
    *,
    coverage: float = 0.9,
    per_patient: bool = False,
    calibrations: int = 10,
) -> dict[str, tuple[float, float]]:
    """Mean coverage and width by one estimate of the noise: by default, labels taken as right, true
    grades."""
    rng = np.random.default_rng([seed, *str(setting).encode()])
    known = noise_of(draw(setting, rng))
    options = Answering(coverage=coverage, per=("patient",) if per_patient else ())
    found: dict[str, list[tuple[float, float]]] = {}
    kinds: dict[str, LabelNoise] = {"unknown": "unknown", "labels": "none", "true grades": "none"}
    for _ in range(calibrations):
        side, new = draw(setting, rng), draw(setting, rng, samples=NEW)
        for name, label_noise in kinds.items():
            assert side.true_labels is not None
            given = replace(side, labels=side.true_labels) if name == "true grades" else side
            rule = calibrate_ranges(given, replace(options, label_noise=label_noise), noise=known)
            found.setdefault(name, []).append(covered(rule, new))
    return {name: (float(np.mean([c for c, _ in rows])), float(np.mean([w for _, w in rows])))
            for name, rows in found.items()}  # fmt: skip


GRADES = ((2, False), (2, True), (4, False), (5, True), (10, False), (10, True))
WRONG = ("quasi", "truncated", "low", "high", "patient", "difficulty")


def settings(only: str, *, images: int) -> Iterator[Setting]:
    """Clean labels in all sizes; wrong labels of 300 samples of four even and five uneven
    grades."""
    if only in ("clean", "all"):
        for labels, (grades, uneven), network, learnt in product(
            (100, 300, 1000), GRADES, NETWORKS, ("true", "too sure")
        ):
            yield Setting(
                labels=labels, grades=grades, uneven=uneven, network=network, learnt=learnt, images=images
            )  # fmt: skip
    if only in ("wrong", "all"):
        for kind, rate, (grades, uneven), network in product(
            WRONG, (0.1, 0.25, 0.4), GRADES[2:4], NETWORKS
        ):
            yield Setting(
                grades=grades, uneven=uneven, network=network, noise=kind, rate=rate, images=images
            )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("all", "clean", "wrong"), default="all")
    parser.add_argument("--per-patient", action="store_true", help="one range for each patient")
    parser.add_argument(
        "--repeats", type=int, default=4, help="estimates of the noise for each setting"
    )
    parser.add_argument(
        "--part",
        type=int,
        nargs=2,
        default=(0, 1),
        help="every n-th setting, from the k-th on: k n",
    )
    parser.add_argument("--out", type=Path, help="a CSV file")
    args = parser.parse_args()
    rows = []
    images = 6 if args.per_patient else 1
    first, step = args.part
    for setting in [*settings(args.only, images=images)][first::step]:
        found = [trial(setting, seed, per_patient=args.per_patient) for seed in range(args.repeats)]
        means = {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}
        row = {"setting": str(setting), "wrong": setting.rate > 0}
        for name, (share, width) in means.items():
            row |= {name: round(float(share), 4), f"{name}: width": round(float(width), 3)}
        rows.append(row)
        shown = "  ".join(
            f"{name} {share:.3f} ({width:.2f})" for name, (share, width) in means.items()
        )
        print(f"{setting!s:64s}{shown}", flush=True)
        if args.out:
            pd.DataFrame(rows).to_csv(args.out, index=False)


if __name__ == "__main__":
    main()
