"""Do ranges of grades contain the true grade as often as promised, when the calibration labels are
partly wrong?

    python benchmarks/ranges.py                                        # simulated readers
    python benchmarks/ranges.py --per-patient --seeds 500 506 --splits 60    # one range per patient, of pooled images
    python benchmarks/ranges.py --shared --seeds 500 506 --splits 60   # errors that readers share with the network
    python benchmarks/ranges.py --probabilities probabilities/votes    # human votes, from human_votes.py
    python benchmarks/ranges.py --features deepdrid.npz                # injected noise; heads are trained on features

Each data set is cut in two by patient. The noise is estimated from the labels of one part, as a run
does on its training side. The other part is split at random 200 times into patients to calibrate on
and patients to test on. Labels of the calibration patients are noisy; the test counts how often a
range contains the *true* grade of a random image of a patient. "as promised" allows for the
binomial error of that many patients. Compared are

- ``labels``: split conformal prediction that takes the labels as right, with the same scores;
- ``TorchCP``: its split predictor with its APS scores, if it is installed; its sets may have holes;
- ``conservative``: what holds whatever wrong labels depend on;
- ``unknown``: our default, and ``class-conditional``: for labels whose errors do not depend on the
  image;
- ``each grade``: our default, with the promise for each true grade;
- ``verified``: 200 of the calibration labels, at random, have been verified, or all labels of 50
  patients;
- ``true grades``: split conformal prediction with the true grades, which nobody has.

With ``--per-patient`` the true grade of a patient is the highest one of its images; ``labels`` and
``TorchCP`` take the highest label as right. The simulated images become patients of one to six
images with similar grades; in the setting "together" all labels of a patient are wrong in the same
way.

With ``--shared`` a share of the wrong labels misleads the network as well: it sees an image of the
labelled grade. "rate" is the 95 % interval of the noise rate: how often it holds the true rate, and
its width.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from simulated_readers import simulate

from srjt import noise
from srjt.data import read
from srjt.inference.options import Answering
from srjt.inference.range_evidence import unit_evidence
from srjt.inference.ranges import calibrate_ranges, conservative_thresholds
from srjt.noise.estimate import estimate_noise
from srjt.noise.quality import LabelNoise, NoiseBounds, estimated_noise
from srjt.ordinal.decoding import Pooling, highest_per_unit, pool_probabilities
from srjt.ordinal.ranges import patient_weights
from srjt.training.config import TrainConfig
from srjt.training.crossfit import cross_fit
from srjt.training.held_out import HeldOut

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SPLITS, VERIFIED, VERIFIED_PATIENTS = 200, 200, 50
METHODS = (
    "rate",
    "labels",
    "TorchCP",
    "conservative",
    "unknown",
    "class-conditional",
    "each grade",
    "verified",
    "true grades",
)


@dataclass(frozen=True, kw_only=True)
class Data:
    setting: str
    probabilities: Floats  # (N, C)
    labels: Ints
    true: Ints
    patients: npt.NDArray[Any]  # (N,)
    pool: Pooling | None = None  # one range per patient


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--probabilities", type=Path, nargs="*", help="folders of .npz files")
    parser.add_argument("--per-patient", action="store_true", help="one range per patient")
    parser.add_argument(
        "--shared", action="store_true", help="wrong labels that mislead the network, too"
    )
    parser.add_argument(
        "--features", type=Path, help="features with clean grades, as srjt reads them"
    )
    parser.add_argument("--seeds", type=int, nargs=2, default=(500, 510), help="of the simulations")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument(
        "--out", type=Path, help="a CSV file with a row for each method and data set"
    )
    args = parser.parse_args()
    if args.probabilities:
        source: Iterator[Data] = stored(args.probabilities)
    elif args.shared:
        source = shared(range(*args.seeds))
    elif args.features:
        source = injected(args.features)
    elif args.per_patient:
        source = simulated_patients(range(*args.seeds))
    else:
        source = simulated(range(*args.seeds))
    if args.per_patient:
        source = per_patient(source)
    by_setting: dict[str, list[Data]] = {}
    for data in source:
        by_setting.setdefault(data.setting, []).append(data)
    rows: list[dict[str, object]] = []
    for setting, sets in by_setting.items():
        each = max(1, args.splits // len(sets))
        found = [
            evaluate(data, coverage=args.coverage, splits=each, seed=k)
            for k, data in enumerate(sets)
        ]
        rows += [
            {
                "setting": setting,
                "data set": k,
                "method": name,
                "coverage": row[:, 0].mean(),
                "width": row[:, 1].mean(),
                "worst grade": np.nanmean(row[:, 2:], axis=0).min(),
            }
            for k, one in enumerate(found)
            for name, row in one.items()
        ]
        patients = (
            len({name for data in sets for name in data.patients}) // 2
        )  # the other half is for the noise
        show(setting, found, coverage=args.coverage, splits=each * len(sets), patients=patients)
    if args.out:
        pd.DataFrame(rows).round(5).to_csv(args.out, index=False)


def simulated(seeds: range) -> Iterator[Data]:
    for seed in seeds:
        for family, name in (
            ("quasi, truncated", "truncated"),
            ("asymmetric", "one-sided"),
            ("asymmetric", "by class"),
            ("boundary", "boundary"),
        ):
            one = simulate(family, name, seed=seed, kinds=("over-confident",), sizes=(3000,))[0]
            yield Data(
                setting=f"simulated, {name}",
                probabilities=one.probabilities,
                labels=one.labels,
                true=one.true,
                patients=np.array([f"{seed}-{row}" for row in range(len(one.true))]),
            )


def shared(seeds: range) -> Iterator[Data]:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        for one in simulated(seeds):
            if "boundary" in one.setting:
                continue
            rng = np.random.default_rng(one.labels[:20])
            wrong = np.flatnonzero((one.labels != one.true) & (rng.random(len(one.true)) < share))
            seen = one.probabilities.copy()
            for grade in np.unique(one.labels[wrong]):
                right = np.flatnonzero((one.labels == grade) & (one.true == grade))
                rows = wrong[one.labels[wrong] == grade]
                seen[rows] = one.probabilities[rng.choice(right, len(rows))]
            yield replace(one, setting=f"simulated, {share:.0%} shared", probabilities=seen)


def simulated_patients(seeds: range) -> Iterator[Data]:
    for one in simulated(seeds):
        if "by class" in one.setting:
            continue
        rng = np.random.default_rng([len(one.true), *one.labels[:20]])
        order = np.argsort(
            one.true + rng.normal(size=len(one.true)), kind="stable"
        )  # similar grades
        sizes = rng.integers(1, 7, len(order))
        patients = np.repeat(np.arange(len(sizes)), sizes)[: len(order)]
        seed = one.patients[0].split("-")[0]
        grouped = replace(
            one, probabilities=one.probabilities[order], labels=one.labels[order], true=one.true[order],
            patients=np.array([f"{seed}-{patient}" for patient in patients]),
        )  # fmt: skip
        yield grouped
        if "truncated" in one.setting:
            first = np.unique(patients, return_index=True)[1]
            error = (grouped.labels - grouped.true)[first][patients]
            together = (grouped.true + error).clip(0, one.probabilities.shape[1] - 1)
            yield replace(grouped, setting="simulated, together", labels=together)


def per_patient(source: Iterator[Data]) -> Iterator[Data]:
    pools: tuple[Pooling, ...] = ("highest", "mean")
    for data in source:
        for pool in pools:
            yield replace(data, setting=f"{data.setting}, per patient, {pool}", pool=pool)


def stored(folders: list[Path]) -> Iterator[Data]:
    for file in sorted(file for folder in folders for file in folder.glob("*.npz")):
        with np.load(file) as z:
            p = z["probabilities"].astype(np.float64)
            yield Data(
                setting=f"{file.parent.name}, {file.stem.split('_')[1]}",
                probabilities=p / p.sum(axis=1, keepdims=True),
                labels=z["labels"],
                true=z["true"],
                patients=z["groups"],
            )


def injected(file: Path) -> Iterator[Data]:
    """Out-of-fold probabilities of heads that are trained on noisy labels."""
    clean = read(file)
    classes, counts = clean.num_classes, clean.class_counts
    matrices = {
        kind: noise.transition_matrix(
            kind, num_classes=classes, rho=noise.rho_for_rate(kind, rate=0.3, class_counts=counts)
        )
        for kind in ("quasi", "truncated")
    }
    matrices["one-sided"] = 0.7 * np.eye(classes) + 0.3 * np.eye(classes, k=-1)
    matrices["one-sided"][0] = np.eye(classes)[0]
    for kind, matrix in matrices.items():
        for seed in range(3):
            noisy = clean.with_noisy_labels(
                noise.corrupt(clean.labels, matrix, seed=seed, ids=clean.ids)
            )
            config = TrainConfig(method="sord", network="linear", epochs=30, seed=seed)
            fitted = cross_fit(noisy, config=config, folds=5)
            true = fitted.manifest.true_labels
            assert true is not None
            yield Data(
                setting=f"{file.stem}, {kind}",
                probabilities=fitted.probabilities.astype(np.float64),
                labels=fitted.manifest.labels,
                true=true,
                patients=np.array(fitted.manifest.groups or fitted.manifest.ids),
            )


def evaluate(data: Data, *, coverage: float, splits: int, seed: int) -> dict[str, Floats]:
    """Method → (splits, 2 + C): coverage, width, coverage of each grade."""
    rng = np.random.default_rng(seed)
    names, owner = np.unique(data.patients, return_inverse=True)
    order = rng.permutation(len(names))
    outside = np.isin(owner, order[: len(names) // 2])
    estimate = estimate_noise(
        data.labels[outside], data.probabilities[outside], groups=data.patients[outside]
    )
    known = estimated_noise(estimate)
    rest = order[len(names) // 2 :]
    low, high = estimate.rate_interval
    wrong = float((data.labels != data.true)[outside].mean())
    held = float(low <= wrong <= high)
    found: dict[str, list[Floats]] = {"rate": [np.array([held, high - low, held])]}
    for _ in range(splits):
        rest = rng.permutation(rest)
        cal, test = (
            np.flatnonzero(np.isin(owner, part)) for part in np.split(rest, [len(rest) // 2])
        )
        true, patients = data.true[test], data.patients[test]
        if data.pool is not None:
            codes, patients = pd.factorize(patients)
            true = highest_per_unit(true, codes)
        for name, inside in ranges(data, cal, test, known, coverage=coverage, rng=rng).items():
            found.setdefault(name, []).append(summary(inside, true, patients))
    return {name: np.array(rows) for name, rows in found.items()}


def ranges(
    data: Data,
    cal: Ints,
    test: Ints,
    known: NoiseBounds,
    *,
    coverage: float,
    rng: np.random.Generator,
) -> dict[str, npt.NDArray[np.bool_]]:
    """Method → (N, C), whether each grade is in the range of each test image, or test patient."""
    owner, test_owner = (pd.factorize(data.patients[rows])[0] for rows in (cal, test))
    if data.pool is None:
        some = rng.choice(len(cal), size=min(VERIFIED, len(cal)), replace=False)
    else:
        chosen = rng.choice(
            owner.max() + 1, size=min(VERIFIED_PATIENTS, owner.max() + 1), replace=False
        )
        some = np.flatnonzero(np.isin(owner, chosen))
    checked = np.full(len(cal), -1)
    checked[some] = data.true[cal[some]]

    def side(labels: Ints, verified: Ints | None = None) -> HeldOut:
        return HeldOut(
            ids=[str(row) for row in cal],
            probabilities=data.probabilities[None, cal],
            labels=labels,
            verified_labels=verified,
            patients=data.patients[cal].tolist(),
            groups=data.patients[cal].tolist(),
        )

    noisy = side(data.labels[cal])
    found: dict[str, npt.NDArray[np.bool_]] = {}
    settings: dict[str, tuple[HeldOut, LabelNoise, str | None]] = {
        "labels": (noisy, "none", None),
        "unknown": (noisy, "unknown", None),
        "class-conditional": (noisy, "class-conditional", None),
        "each grade": (noisy, "unknown", "grade"),
        "verified": (side(data.labels[cal], checked), "unknown", None),
        "true grades": (side(data.true[cal]), "none", None),
    }
    answering = Answering(coverage=coverage)
    if data.pool is not None:
        answering = Answering(coverage=coverage, per=("patient",), pool=data.pool)
    for name, (samples, label_noise, by) in settings.items():
        options = Answering(**{**vars(answering), "label_noise": label_noise, "coverage_by": by})
        rule = calibrate_ranges(samples, options, noise=known)
        scores = rule.scores(data.probabilities[test], test_owner)
        found[name] = filled(scores <= rule.thresholds)
        if name == "unknown":
            before = rule.scores(data.probabilities[cal], owner)
            units = np.arange(len(cal)) if data.pool is None else owner
            evidence = unit_evidence(noisy, units, data.probabilities[cal], known, "none")
            safe = conservative_thresholds(before, evidence, known, coverage=coverage)
            found["conservative"] = scores <= safe
    peer = torchcp_sets(data, cal, test, coverage=coverage)
    return found if peer is None else found | {"TorchCP": peer}


def filled(inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Grades between two that are inside are inside."""
    above, below = np.cumsum(inside, axis=1) > 0, np.cumsum(inside[:, ::-1], axis=1)[:, ::-1] > 0
    return np.asarray(above & below)


def torchcp_sets(
    data: Data, cal: Ints, test: Ints, *, coverage: float
) -> npt.NDArray[np.bool_] | None:
    try:
        import torch
        from torchcp.classification.predictor import SplitPredictor
        from torchcp.classification.score import APS
    except ImportError:
        return None
    p, q, labels = data.probabilities[cal], data.probabilities[test], data.labels[cal]
    if data.pool is not None:
        owner, test_owner = (pd.factorize(data.patients[rows])[0] for rows in (cal, test))
        labels = highest_per_unit(labels, owner)
        p, q = (
            pool_probabilities(r, u, pooling=data.pool) for r, u in ((p, owner), (q, test_owner))
        )
    logits, new = (torch.from_numpy(np.log(np.maximum(r, 1e-12))) for r in (p, q))
    predictor = SplitPredictor(APS(randomized=False), device=torch.device("cpu"))
    predictor.calculate_threshold(logits, torch.from_numpy(labels), alpha=1 - coverage)
    return np.asarray(predictor.predict_with_logits(new), dtype=bool)


def summary(inside: npt.NDArray[np.bool_], true: Ints, patients: npt.NDArray[Any]) -> Floats:
    weights = patient_weights(patients.tolist(), len(true))
    right = inside[np.arange(len(true)), true]
    of_grade = [
        np.average(right[true == c], weights=weights[true == c]) if (true == c).any() else np.nan
        for c in range(inside.shape[1])
    ]
    return np.array(
        [
            np.average(right, weights=weights),
            np.average(inside.sum(axis=1), weights=weights),
            *of_grade,
        ]
    )


def show(
    setting: str, found: list[dict[str, Floats]], *, coverage: float, splits: int, patients: int
) -> None:
    allowed = 1.96 * (coverage * (1 - coverage) / patients) ** 0.5
    print(f"\n{setting}: {splits} splits of {len(found)} data sets, {patients:,} patients")
    print(f"{'':20s}{'coverage':>10s}{'width':>8s}{'worst grade':>13s}   as promised")
    for name in METHODS:
        if name not in found[0]:
            continue
        rows = [one[name] for one in found]
        covered, width = (float(np.mean([row[:, k].mean() for row in rows])) for k in (0, 1))
        worst = float(np.mean([np.nanmean(row[:, 2:], axis=0).min() for row in rows]))
        verdict = "yes" if covered >= coverage - allowed else "NO"
        verdict += ", too wide" if covered > coverage + 2 * allowed else ""
        print(f"{name:20s}{covered:10.3f}{width:8.2f}{worst:13.3f}   {verdict}", flush=True)


if __name__ == "__main__":
    main()
