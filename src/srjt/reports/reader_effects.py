"""What each reader does, from the readings and their consensus: means with intervals that resample nobody twice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from srjt.readers import Consensus, Readings

__all__ = ["Means", "drift", "graded_higher", "mean_by_reader", "repeated"]

Floats = npt.NDArray[np.float64]
Z = 1.96
PERIODS = 12  # at most this many points of a reader's drift
LEAST = 10  # readings of a point, at least


class Means(NamedTuple):
    value: Floats  # (R,)
    interval: Floats  # (R, 2) 95 %


def graded_higher(readings: Readings, agreed: Consensus) -> Means:
    """How many grades each reader is above the mean of the posterior of the images that they read."""
    return mean_by_reader(_difference(readings, agreed), readings)


def mean_by_reader(values: Floats, readings: Readings) -> Means:
    """The mean over each reader's readings. Images of one patient count as one observation in the intervals.

    A reader with readings of one patient has the spread of all readers.
    """
    reader, count = readings.reader, len(readings.readers)
    number = np.bincount(reader, minlength=count)
    mean = np.bincount(reader, values, minlength=count) / np.maximum(number, 1)
    rest = values - mean[reader]
    owner = readings.owner()
    key, place = np.unique(reader * (owner.max() + 1) + owner[readings.item], return_inverse=True)
    clusters = np.bincount(place, rest) ** 2
    whose = key // (owner.max() + 1)
    patients = np.bincount(whose, minlength=count)
    variance = np.bincount(whose, clusters, minlength=count) / np.maximum(number, 1) ** 2
    variance *= patients / np.maximum(patients - 1, 1)
    alone = patients < 2
    variance[alone] = values.var() / np.maximum(number[alone], 1)
    reach = Z * np.sqrt(variance)
    return Means(mean, np.stack([mean - reach, mean + reach], axis=1))


def repeated(readings: Readings) -> tuple[npt.NDArray[np.int64], Floats]:
    """(R,) pairs of readings of one image by the same reader, and the share of them with the same grade (or NaN)."""
    count, grades = len(readings.readers), len(readings.grades)
    visit = readings.item * count + readings.reader
    visits, place, times = np.unique(visit, return_inverse=True, return_counts=True)
    of_reader = visits % count
    pairs = np.bincount(of_reader, times * (times - 1) // 2, minlength=count)
    _, first, same = np.unique(visit * grades + readings.grade, return_index=True, return_counts=True)
    equal = np.bincount(of_reader[place[first]], same * (same - 1) // 2, minlength=count)
    share = np.full(count, np.nan)
    np.divide(equal, pairs, out=share, where=pairs > 0)
    return pairs.astype(np.int64), share


def drift(readings: Readings, agreed: Consensus) -> dict[str, tuple[list[str], list[float]]]:
    """Reader → dates and mean differences from the consensus, in periods of equally many readings.

    Only readers with dates on two periods or more; empty without dates.
    """
    if readings.times is None:
        return {}
    difference, found = _difference(readings, agreed), {}
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


def _difference(readings: Readings, agreed: Consensus) -> Floats:
    expected = agreed.posterior @ np.arange(len(readings.grades))
    return np.asarray(readings.grade - expected[readings.item], dtype=np.float64)
