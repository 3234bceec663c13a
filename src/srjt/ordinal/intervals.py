"""How sure a metric is: intervals by resampling patients, not images.

Images of one patient resemble each other, so resampling images would make every interval too narrow.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError
from srjt.ordinal.metrics import METRICS

__all__ = ["Interval", "bootstrap_metrics"]


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

    Percentile bootstrap. Every metric is a function of the confusion matrix, and a resampled confusion
    matrix is a weighted sum of the patients' own, so nothing is recounted.
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
    shape = (num_classes, num_classes)
    resampled = (draws @ own).reshape(resamples, *shape)
    whole = own.sum(axis=0).reshape(shape)
    tails = [(1 - level) / 2, 1 - (1 - level) / 2]
    intervals = {}
    for name, metric in METRICS.items():
        values = np.array([metric(confusion) for confusion in resampled])
        low, high = np.nanquantile(values, tails) if np.isfinite(values).any() else (np.nan, np.nan)
        intervals[name] = Interval(metric(whole), float(low), float(high))
    return intervals
