"""How each reader's grades change over time, beside the consensus."""

from __future__ import annotations

import numpy as np

from srjt.readers import Consensus, Readings

__all__ = ["drift"]

PERIODS = 12  # at most this many points of a reader
LEAST = 10  # readings of a point, at least


def drift(readings: Readings, agreed: Consensus) -> dict[str, tuple[list[str], list[float]]]:
    """Reader → dates and mean differences from the consensus in grades, over periods of equally many readings.

    Only readers with dates in two periods or more, the most readings first; empty without dates.
    """
    if readings.times is None:
        return {}
    expected = agreed.posterior @ np.arange(len(readings.grades))
    difference, found = readings.grade - expected[readings.item], {}
    number = np.bincount(readings.reader, minlength=len(readings.readers))
    for reader in np.argsort(-number, kind="stable").tolist():
        own = np.flatnonzero((readings.reader == reader) & ~np.isnat(readings.times))
        periods = min(PERIODS, len(own) // LEAST)
        if periods < 2:
            continue
        own = own[np.argsort(readings.times[own], kind="stable")]
        parts = np.array_split(own, periods)
        dates = [str(readings.times[part[len(part) // 2]].astype("datetime64[D]")) for part in parts]
        found[readings.readers[reader]] = (dates, [float(difference[part].mean()) for part in parts])
    return found
