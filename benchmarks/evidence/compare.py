"""Two methods on the same patients: scores and paired differences with intervals by resampling patients.

    python benchmarks/evidence/compare.py predictions --of srjt --against sord --against co-teaching+ours
    python benchmarks/evidence/compare.py benchmarks/evidence/results/held_out.csv.xz --of srjt --against sord

reads what predictions.py wrote, a folder of tables or all in one. Networks are averaged; ``--views 10`` averages ten
views of an image as well, and ``--plain`` scores the methods compared with as the paper does: each network alone,
one view, their mean. Folds and seeds of a setting are pooled, and a patient is drawn with all of his or her images.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srjt.ordinal.metrics import METRICS

SHOWN = ("accuracy", "mae", "macro_f1")
RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a method said about the test images of all folds."""

    true: np.ndarray  # (N,)
    patients: np.ndarray  # (N,)
    grades: np.ndarray  # (A, N): one row, or one for each network that is scored alone

    def counts(self, classes: int) -> np.ndarray:
        """(A, patients, C²) confusion counts."""
        names, owner = np.unique(self.patients, return_inverse=True)
        counts = np.zeros((len(self.grades), len(names), classes * classes))
        for row, grades in zip(counts, self.grades, strict=True):
            np.add.at(row, (owner, self.true * classes + grades), 1.0)
        return counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("predictions", type=Path)
    parser.add_argument("--of", required=True, help="a method, or method:variant")
    parser.add_argument("--against", action="append", required=True)
    parser.add_argument("--views", type=int, default=1, choices=(1, 2, 10))
    parser.add_argument("--plain", action="store_true")
    given = parser.parse_args()
    table = _read(given.predictions)
    rows = []
    for noise in sorted(set(table["noise"])):
        ours = _pooled(table, noise, given.of, views=given.views, alone=False)
        for name in given.against:
            theirs = _pooled(table, noise, name, views=1 if given.plain else given.views, alone=given.plain)
            if ours is not None and theirs is not None:
                rows += _compared(noise, (given.of, ours), (name, theirs))
    if not rows:
        raise SystemExit(f"{given.predictions} has no noise with both {given.of} and {given.against}.")
    print(pd.DataFrame(rows).to_string(index=False))


def _read(source: Path) -> pd.DataFrame:
    files = sorted(source.glob("*.csv")) if source.is_dir() else [source]
    if not files:
        raise SystemExit(f"{source} holds no tables: make them with predictions.py.")
    kept_as_text = {"noise": str, "variant": str, "patient": str}
    return pd.concat(
        pd.read_csv(file, dtype=kept_as_text, keep_default_na=False, na_values=[""]) for file in files
    )


def _pooled(table: pd.DataFrame, noise: str, wanted: str, *, views: int, alone: bool) -> Answers | None:
    method, _, variant = wanted.partition(":")
    found = table[
        (table["noise"] == noise) & (table["method"] == method) & (table["variant"].fillna("") == variant)
    ].sort_values(["fold", "seed"], kind="stable")
    if found.empty:
        return None
    names = [f"views {views}, network {k}" for k in (1, 2)] if alone else [f"views {views}, both"]
    given = found[names].dropna(axis=1)  # the second of a single network is empty
    return Answers(
        true=found["true"].to_numpy(),
        patients=found["patient"].to_numpy(),
        grades=given.to_numpy(np.int64).T,
    )


def _compared(noise: str, ours: tuple[str, Answers], theirs: tuple[str, Answers]) -> list[dict[str, Any]]:
    """Both are resampled by the same draws of patients."""
    (name, one), (other, two) = ours, theirs
    if not (np.array_equal(one.true, two.true) and np.array_equal(one.patients, two.patients)):
        raise SystemExit(f"{name} and {other} were not tested on the same images.")
    classes = 1 + int(max(one.true.max(), one.grades.max(), two.grades.max()))
    a, b = one.counts(classes), two.counts(classes)
    patients = a.shape[1]
    draws = np.random.default_rng(0).multinomial(patients, np.full(patients, 1 / patients), size=RESAMPLES)
    weights = np.concatenate([np.ones((1, patients)), draws])  # the patients as they are come first
    row: dict[str, Any] = {"noise": noise, "of": name, "against": other, "patients": patients}
    for metric in SHOWN:
        left, right = (
            np.mean(
                [
                    [METRICS[metric](one.reshape(classes, classes)) for one in weights @ part]
                    for part in counts
                ],
                axis=0,
            )
            for counts in (a, b)
        )
        low, high = np.quantile((left - right)[1:], [0.025, 0.975])
        row |= {
            metric: f"{left[0]:.3f}",
            f"theirs {metric}": f"{right[0]:.3f}",
            "difference": f"{left[0] - right[0]:+.3f} ({low:+.3f} to {high:+.3f})",
        }
        row[f"Δ {metric}"] = row.pop("difference")
    return [row]


if __name__ == "__main__":
    main()
