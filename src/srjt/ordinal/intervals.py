"""How sure a metric is: intervals by resampling patients, not images.

Images of one patient resemble each other, so resampling images would make every interval too narrow.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.ordinal.metrics import METRICS

__all__ = ["Interval", "bootstrap_metrics", "resampled_metrics"]

Floats = npt.NDArray[np.float64]


class Interval(NamedTuple):
    value: float
    low: float
    high: float


def bootstrap_metrics(
    true: npt.ArrayLike,
    predicted: npt.ArrayLike,
    *,
    num_classes: int,
    groups: Sequence[Hashable] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """true, predicted: (N,) grades; groups: (N,) patients (None: each sample on its own) → metric → interval.

    Percentile bootstrap.
    """
    found = resampled_metrics(
        true, predicted, num_classes=num_classes, groups=groups, resamples=resamples, seed=seed
    )
    tails = [(1 - level) / 2, 1 - (1 - level) / 2]
    intervals = {}
    for name, (value, *draws) in found.items():
        low, high = np.nanquantile(draws, tails) if np.isfinite(draws).any() else (np.nan, np.nan)
        intervals[name] = Interval(float(value), float(low), float(high))
    return intervals


def resampled_metrics(
    true: npt.ArrayLike,
    predicted: npt.ArrayLike,
    *,
    num_classes: int,
    groups: Sequence[Hashable] | None = None,
    metrics: Iterable[str] = tuple(METRICS),
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Floats]:
    """As ``bootstrap_metrics`` → metric → (1 + resamples,): of the patients as they are, then of each draw of them.

    The same groups and seed give the same draws: what two methods say of the same samples may be subtracted. Every
    metric is a function of the confusion matrix, and a resampled confusion matrix is a weighted sum of the patients'
    own, so nothing is recounted.
    """
    y, p = np.asarray(true, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    if len(y) == 0 or len(y) != len(p):
        raise SrjtError(f"{len(y)} true and {len(p)} predicted grades: both are needed, and as many.")
    _, owner = np.unique(
        np.arange(len(y)) if groups is None else np.asarray([str(g) for g in groups]), return_inverse=True
    )
    patients = int(owner.max()) + 1
    own = np.zeros((patients, num_classes * num_classes))
    np.add.at(own, (owner, y * num_classes + p), 1.0)
    draws = np.random.Generator(np.random.PCG64(seed)).multinomial(
        patients, np.full(patients, 1.0 / patients), size=resamples
    )
    weights = np.concatenate([np.ones((1, patients)), draws])
    confusions = (weights @ own).reshape(-1, num_classes, num_classes)
    return {name: np.array([METRICS[name](confusion) for confusion in confusions]) for name in metrics}
