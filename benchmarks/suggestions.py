"""Of the grades that an audit suggests, how many are right, and how many correct labels would be
spoilt?

    python benchmarks/suggestions.py                             simulated readers, about two minutes on one core
    python benchmarks/suggestions.py --probabilities FILE ...    settings of noisy_settings.py, or of your own network
    python benchmarks/suggestions.py --audit FOLDER ...          audits of labels whose true grades are known

``all``: every label for which another grade is more probable. ``suggested``: those of them that the
audit suggests, because of such suggestions at least half are expected to be right, and the networks
recognise both grades. right: the share whose grade is the true one; spoilt: the share whose label
was right. ``expected``: what the audit expects.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from noisy_settings import read
from simulated_readers import simulations

from srjt.auditing.scores import network_scores
from srjt.noise import estimate_noise
from srjt.noise.quality import suggestion_shares, true_grade_posterior


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--probabilities", type=Path, nargs="+", default=[], help="npz files")
    arguments.add_argument(
        "--audit", type=Path, nargs="+", default=[], help="folders of srjt audit"
    )
    arguments.add_argument("--seeds", type=int, default=2)
    given = arguments.parse_args()
    found = pd.DataFrame(rows(given)).set_index("setting")
    print(found.round(2).to_string())
    counts = found[["all", "suggested"]].sum()
    for name in counts.index:
        right, spoilt = (
            (found[name] * found[f"{name}: {what}"].fillna(0)).sum() for what in ("right", "spoilt")
        )
        share = max(counts[name], 1)
        print(
            f"{name}: {counts[name]:,.0f}; right {right / share:.2f}, spoilt {spoilt / share:.2f}"
        )


def rows(given: argparse.Namespace) -> Iterator[dict[str, object]]:
    for folder in given.audit:
        table = pd.read_csv(folder / "audit.csv", dtype=str, keep_default_na=False)
        if "verified_grade" in table:  # of these the audit was told the true grade
            table = table[table["verified_grade"] == ""]
        grades = pd.read_json(folder / "audit.json", typ="series")["grades"]
        p = table[[f"p_{code}" for code in range(len(grades))]].astype(float).to_numpy()
        likeliest = np.array(grades, dtype=object)[p.argmax(axis=1)]
        offered = (table["suggested"] == likeliest).to_numpy()
        yield row(
            str(folder),
            table["grade"].to_numpy(),
            table["true_grade"].to_numpy(),
            likeliest,
            offered,
            table["right"].astype(float).to_numpy(),
        )
    for file in given.probabilities:
        one = read(file)
        yield judged(f"{file.stem}", one.labels, one.true, one.probabilities, one.groups)
    if not given.audit and not given.probabilities:
        for k, one in enumerate(simulations(range(given.seeds), sizes=(600,))):
            yield judged(
                f"{k} {one.noise}, {one.kind}, blur {one.blur:g}",
                one.labels,
                one.true,
                one.probabilities,
                None,
            )


def judged(
    name: str, labels: np.ndarray, true: np.ndarray, p: np.ndarray, groups: np.ndarray | None
) -> dict[str, object]:
    estimate = estimate_noise(labels, p, groups=groups, bootstrap=40)
    likeliest = true_grade_posterior(labels, p, groups=groups, rate=estimate.rate).argmax(axis=1)
    right = suggestion_shares(labels, p, likeliest, estimate=estimate, groups=groups)
    grades = [str(code) for code in range(p.shape[1])]
    seen = network_scores(labels, [p.argmax(axis=1)], grades=grades)["grades"]
    known = np.array([grade["recognised"] for grade in seen])
    offered = (right >= 0.5) & known[labels] & known[likeliest] & estimate.learnt
    return row(name, labels, true, likeliest, offered, right)


def row(
    name: str,
    labels: np.ndarray,
    true: np.ndarray,
    likeliest: np.ndarray,
    offered: np.ndarray,
    expected: np.ndarray,
) -> dict[str, object]:
    found: dict[str, object] = {"setting": name, "wrong": float((labels != true).mean())}
    for which, rows in (
        ("all", labels != likeliest),
        ("suggested", (labels != likeliest) & offered),
    ):
        found[which] = int(rows.sum())
        found[f"{which}: right"] = float((likeliest == true)[rows].mean()) if rows.any() else np.nan
        found[f"{which}: spoilt"] = float((labels == true)[rows].mean()) if rows.any() else np.nan
    found["expected"] = float(expected[rows].mean()) if rows.any() else np.nan
    return found


if __name__ == "__main__":
    main()
