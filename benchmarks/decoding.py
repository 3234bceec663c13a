"""Which rule should turn probabilities into grades? Each purpose's rule beside the most likely
grade.

    python benchmarks/decoding.py [--out FILE]
    python benchmarks/decoding.py --probabilities probabilities/votes

Simulated: a severity with a blurred observation; the network's probabilities are exact up to a
little noise of their logits. What it has learnt is the true grade (*clean*, as after forward
correction), the noisy label (*noisy*, as plain cross-entropy; *over-confident*: twice its logits;
*balanced*: rare grades as likely as common ones, as after drawing them more often; *shy*: rare
grades too seldom) or the soft label of the noisy label (*soft*, as sord and "+ours"). Each rule is
fitted to 300 validation samples (``--validation``) and judged by the true grades of 6,000 others.

With ``--probabilities``: out-of-fold predictions of real networks (``human_votes.py`` writes them),
half of the groups as the validation side, the other half to judge.

The rules were chosen with seeds 0 to 99; the defaults here are others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.stats import norm

from srjt.noise.matrices import corrupt, rho_for_rate, transition_matrix
from srjt.noise.model import bayes
from srjt.ordinal.decoding import (
    decode,
    expected_grade,
    fit_thresholds,
    grade_by_thresholds,
    grade_rule_for,
    undo_soft_labels,
)
from srjt.ordinal.losses import soft_label_matrix
from srjt.ordinal.metrics import METRICS, confusion_matrix

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PURPOSES = ("mae", "accuracy", "qwk", "macro_f1")
NOISES = (("none", 0.0), ("quasi", 0.3), ("truncated", 0.3), ("one-sided", 0.25))
NETWORKS = ("clean", "noisy", "over-confident", "soft", "balanced", "shy")
SHARES = {"4, rare severe": 0.5 ** np.arange(4), "5, even": np.ones(5)}
BLUR, JITTER = 0.5, 0.3  # of the observed severity, and of the network's logits


def noise_matrix(kind: str, rate: float, shares: Floats) -> Floats:
    classes = len(shares)
    if kind == "none":
        return np.eye(classes)
    if kind == "one-sided":  # everything but the mildest grade is labelled one lower
        down = np.r_[0.0, np.full(classes - 1, rate / (1 - shares[0]))]
        return np.diag(1 - down) + np.diag(down[1:], k=-1)
    rho = rho_for_rate(kind, rate=rate, class_counts=1000 * shares)
    return transition_matrix(kind, num_classes=classes, rho=rho)


def simulate(
    seed: int, samples: int, *, shares: Floats, matrix: Floats, network: str
) -> tuple[Ints, Ints, Floats]:
    """True grades, labels, and the network's probabilities."""
    rng = np.random.default_rng(seed)
    cuts = norm.ppf(shares.cumsum()[:-1])
    severity = rng.standard_normal(samples)
    observed = (severity + BLUR * rng.standard_normal(samples)) / (1 + BLUR**2)
    spread = np.sqrt(BLUR**2 / (1 + BLUR**2))
    below = norm.cdf((cuts - observed[:, None]) / spread)
    edges = np.concatenate([np.zeros((samples, 1)), below, np.ones((samples, 1))], axis=1)
    p = np.diff(edges, axis=1).clip(1e-9)
    true = np.digitize(severity, cuts)
    labels = corrupt(true, matrix, ids=range(samples), seed=seed)
    learnt = p if network == "clean" else p @ matrix
    logits = np.log(learnt) * (2.0 if network == "over-confident" else 1.0)
    logits -= {"balanced": 1.0, "shy": -1.0}.get(network, 0.0) * np.log(shares)
    logits += JITTER * rng.standard_normal(p.shape)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return (
        true,
        labels,
        p @ soft_label_matrix(len(shares)).double().numpy() if network == "soft" else p,
    )


def wrong_matrix(matrix: Floats) -> Floats:
    """As many errors, but of another form: truncated instead of quasi, quasi instead of all others;
    0.15 for none."""
    classes = len(matrix)
    rate = 1 - float(np.trace(matrix)) / classes or 0.15
    kind = "truncated" if matrix[0, -1] > 0.0 else "quasi"
    rho = rho_for_rate(kind, rate=rate, class_counts=np.ones(classes))
    return transition_matrix(kind, num_classes=classes, rho=rho)


def rules(
    validation: Floats, labels: Ints, test: Floats, *, matrix: Floats, soft: bool
) -> Iterator[tuple]:
    """(purpose, name of the rule, grades of the test samples)."""
    classes = test.shape[1]
    known, new = torch.from_numpy(validation), torch.from_numpy(test)
    soft_labels = soft_label_matrix(classes).double() if soft else None
    undone = known if soft_labels is None else undo_soft_labels(known, soft_labels)
    severity = expected_grade(known).numpy()
    for purpose in PURPOSES:
        for how in ("argmax", "median", "expected"):
            yield purpose, how, decode(new, how)
        side = {"validation": known, "soft_labels": soft_labels}
        yield (
            purpose,
            "chosen",
            grade_rule_for(purpose, **side, labels=torch.from_numpy(labels)).grades(new),
        )
        yield purpose, "chosen, no labels", grade_rule_for(purpose, **side).grades(new)
        yield (
            purpose,
            "chosen, no validation",
            grade_rule_for(purpose, soft_labels=soft_labels).grades(new),
        )
        # thresholds fitted to the labels as they are, or to p(true grade | image, label) with a
        # noise matrix
        targets = {
            "labels": np.eye(classes)[labels],
            "known noise": bayes(labels, undone.numpy(), matrix),
            "wrong noise": bayes(labels, undone.numpy(), wrong_matrix(matrix)),
        }
        for name, truth in targets.items():
            cuts = fit_thresholds(severity, truth, purpose=purpose)
            yield purpose, f"thresholds, {name}", grade_by_thresholds(new, torch.from_numpy(cuts))


def scored(
    rows: Iterator[tuple], true: Ints, classes: int, **where: object
) -> Iterator[dict[str, object]]:
    for purpose, rule, grades in rows:
        counts = confusion_matrix(torch.from_numpy(true), grades, num_classes=classes)
        yield {**where, "purpose": purpose, "rule": rule, "value": METRICS[purpose](counts.numpy())}


def simulated(seeds: range, *, validation: int, networks: list[str]) -> Iterator[dict[str, object]]:
    for grades, weights in SHARES.items():
        shares = weights / weights.sum()
        for kind, rate in NOISES:
            matrix = noise_matrix(kind, rate, shares)
            for network in networks:
                for seed in seeds:
                    true, labels, p = simulate(
                        seed, validation + 6000, shares=shares, matrix=matrix, network=network
                    )
                    side, rest = slice(0, validation), slice(validation, None)
                    found = rules(
                        p[side], labels[side], p[rest], matrix=matrix, soft=network == "soft"
                    )
                    yield from scored(
                        found, true[rest], len(shares), grades=grades, noise=kind, network=network
                    )


def measured(folder: Path) -> Iterator[dict[str, object]]:
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            p, labels, true = file["probabilities"].astype(np.float64), file["labels"], file["true"]
            groups = file["groups"] if "groups" in file else np.arange(len(true))
            counts = file["matrix"]
        matrix = counts / counts.sum(axis=1, keepdims=True)
        method = next((name for name in ("sord", "standard") if name in path.stem), path.stem)
        _, owner = np.unique(groups, return_inverse=True)
        half = np.random.default_rng(0).permutation(owner.max() + 1) % 2
        for side in (0, 1):
            known = half[owner] == side
            found = rules(p[known], labels[known], p[~known], matrix=matrix, soft=method == "sord")
            yield from scored(
                found, true[~known], p.shape[1], noise="one human vote", network=method
            )


def show(rows: Iterator[dict[str, object]], out: Path | None) -> None:
    table = pd.DataFrame(rows)
    if out is not None:
        means = table.groupby(["network", "noise", "purpose", "rule"], sort=False)["value"].mean()
        means.round(5).reset_index().to_csv(out, index=False)
    order = list(dict.fromkeys(table["rule"]))
    for purpose in PURPOSES:
        part = table[table["purpose"] == purpose]
        wide = part.pivot_table(index="rule", columns="network", values="value", sort=False)
        if part["noise"].nunique() > 1:
            wide = wide.join(
                part.pivot_table(index="rule", columns="noise", values="value", sort=False)
            )
        better = "lower" if METRICS[purpose].lower_is_better else "higher"
        print(f"\n{purpose} ({better} is better)\n{wide.loc[order].round(3).to_string()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--probabilities", type=Path, help="folder of .npz files")
    parser.add_argument(
        "--validation", type=int, default=300, help="samples of the validation side"
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--seeds", type=int, nargs=2, default=(100, 110), metavar=("FIRST", "END"))
    parser.add_argument("--out", type=Path, help="a CSV file of means by network, noise and rule")
    args = parser.parse_args()
    if args.probabilities is not None:
        show(measured(args.probabilities), args.out)
    else:
        seeds = range(*args.seeds)
        show(simulated(seeds, validation=args.validation, networks=args.networks), args.out)


if __name__ == "__main__":
    main()
