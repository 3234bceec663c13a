"""How often ranges of grades contain the true grade, and how wide they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.inference.range_rule import RangeRule
from srjt.ordinal.intervals import Interval
from srjt.ordinal.ranges import patient_weights

__all__ = ["RangeEvaluation", "evaluate_ranges"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RangeEvaluation:
    """The ranges of evaluated samples; patients count equally, as in the promise.

    Attributes
    ----------
    promised : float
        The coverage that was promised.
    coverage, width : Interval
        The share of samples whose label is in the range, and the mean number of grades in it, with 95 % intervals.
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
    """Compare ranges (N,) with labels (N,); the intervals resample ``groups``."""
    _, owner = np.unique(np.arange(len(labels)) if groups is None else list(groups), return_inverse=True)
    weights = patient_weights(groups, len(labels))
    patients = int(owner.max()) + 1
    draws = np.random.Generator(np.random.PCG64(seed)).multinomial(
        patients, np.full(patients, 1.0 / patients), size=resamples
    )
    times = np.concatenate([np.ones((1, patients)), draws])

    def mean(values: npt.NDArray[Any], of: npt.NDArray[np.bool_]) -> Interval:
        own = weights * of
        sums, sizes = (times @ np.bincount(owner, w, minlength=patients) for w in (own * values, own))
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = sums / sizes
        if not np.isfinite(shares[0]):
            return Interval(np.nan, np.nan, np.nan)
        ends = np.nanquantile(shares[1:], [0.025, 0.975]) if resamples else (np.nan, np.nan)
        return Interval(float(shares[0]), float(ends[0]), float(ends[1]))

    inside = (low <= labels) & (labels <= high)
    every = np.ones(len(labels), dtype=bool)
    return RangeEvaluation(
        promised=rule.coverage,
        coverage=mean(inside, every),
        width=mean(high - low + 1, every),
        grades=[(int((labels == c).sum()), mean(inside, labels == c)) for c in range(num_classes)],
        promise=str(rule),
    )
