"""What a prediction without looking at the sample would score: the least that a classifier has to beat."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["NaiveBaseline", "naive_baseline"]


class NaiveBaseline(NamedTuple):
    """Scores of one grade for all samples, in each metric that grades may be for (``Purpose``)."""

    accuracy: float  # of the most frequent training label
    mae: float  # of the median training label
    macro_f1: float  # of the most frequent training label
    qwk: float = 0.0  # one grade for all agrees by chance alone


def naive_baseline(training_counts: npt.ArrayLike, counts: npt.ArrayLike) -> NaiveBaseline:
    """Scores on samples with ``counts`` (C,) per grade of a prediction from ``training_counts`` (C,) alone."""
    training = np.asarray(training_counts, dtype=np.float64)
    share = np.asarray(counts, dtype=np.float64) / np.sum(counts)
    median = int(np.searchsorted(np.cumsum(training), training.sum() / 2))
    distance = np.abs(np.arange(len(share)) - median)
    frequent = int(np.argmax(training))
    accuracy = float(share[frequent])
    involved = int((share > 0).sum()) + (accuracy == 0)  # grades that are present or predicted
    return NaiveBaseline(
        accuracy=accuracy,
        mae=float(share @ distance),
        macro_f1=2 * accuracy / (1 + accuracy) / involved,
    )
