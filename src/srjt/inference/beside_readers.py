"""A network as one more reader, beside those who graded the same samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from srjt.data.manifest import Manifest
from srjt.data.select_readings import select_readings
from srjt.errors import SrjtError
from srjt.readers import NetworkComparison, Readings, compare_network

__all__ = ["beside_readers"]

MOST_READERS = 200  # each needs a consensus of the others


def beside_readers(
    readings: Readings, manifest: Manifest, predicted: npt.NDArray[np.int64], *, resamples: int
) -> tuple[NetworkComparison | None, str]:
    """The comparison, or None and why there is none: what else is known of the network does not depend on it.

    predicted: (N,) the network's grade of each sample.
    """
    if len(readings.readers) > MOST_READERS:
        return None, f"The network is compared with at most {MOST_READERS} readers; there are more."
    own = select_readings(readings, manifest.ids)
    if own.groups is None and manifest.groups is not None:
        own = replace(own, groups=manifest.groups)
    try:
        return compare_network(own, predicted, resamples=max(resamples, 1)), ""
    except SrjtError as problem:
        return None, str(problem)
