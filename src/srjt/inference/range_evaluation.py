"""How often ranges of grades contain the true grade, and how wide they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.inference.range_rule import RangeRule
from srjt.ordinal.decisions import proportion_interval
from srjt.ordinal.intervals import Interval
from srjt.ordinal.ranges import patient_weights

__all__ = ["RangeEvaluation", "evaluate_ranges"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RangeEvaluation:
    """The ranges of evaluated samples; all patients count equally, as in the promise.

    Attributes
    ----------
    promised : float
        The coverage that was promised.
    coverage, width : Interval
        The share of samples whose label is in the range, with Wilson's 95 % interval by patient, and the mean number
        of grades in it, with a bootstrap interval.
    grades : list of (int, Interval)
        Samples of each grade, and their coverage.
    promise : str
        What the promise is, and what it rests on.
    """

    promised: float
    coverage: Interval
    width: Interval
    grades: list[tuple[int, Interval]]
    promise: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **asdict(self),
            "coverage": self.coverage._asdict(),
            "width": self.width._asdict(),
            "grades": [{"samples": count, **interval._asdict()} for count, interval in self.grades],
        }


def evaluate_ranges(
    low: Ints,
    high: Ints,
    labels: Ints,
    *,
    rule: RangeRule,
    num_classes: int,
    groups: Sequence[str] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> RangeEvaluation:
    """Compare ranges (N,) with labels (N,). groups: patients."""
    weights = patient_weights(groups, len(labels))
    inside = (low <= labels) & (labels <= high)

    def covered(of: npt.NDArray[np.bool_]) -> Interval:
        rows = np.flatnonzero(of)
        owners = None if groups is None else [groups[row] for row in rows.tolist()]
        return proportion_interval(inside[rows], groups=owners, weights=weights[rows])

    return RangeEvaluation(
        promised=rule.coverage,
        coverage=covered(np.ones(len(labels), dtype=bool)),
        width=_mean_width(high - low + 1, weights, groups=groups, resamples=resamples, seed=seed),
        grades=[(int((labels == c).sum()), covered(labels == c)) for c in range(num_classes)],
        promise=str(rule),
    )


def _mean_width(
    widths: Ints, weights: Floats, *, groups: Sequence[str] | None, resamples: int, seed: int
) -> Interval:
    """The mean, and its interval by resampling the patients; without an end where there is one patient."""
    _, owner = np.unique(np.arange(len(widths)) if groups is None else list(groups), return_inverse=True)
    patients = int(owner.max()) + 1
    draws = np.random.Generator(np.random.PCG64(seed)).multinomial(
        patients, np.full(patients, 1.0 / patients), size=resamples
    )
    times = np.concatenate([np.ones((1, patients)), draws])
    sums, sizes = (times @ np.bincount(owner, w, minlength=patients) for w in (weights * widths, weights))
    means = sums / sizes
    ends = np.quantile(means[1:], [0.025, 0.975]) if resamples and patients > 1 else (np.nan, np.nan)
    return Interval(float(means[0]), float(ends[0]), float(ends[1]))
