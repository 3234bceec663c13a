"""Pairs of readings of the same item."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from srjt.readers.readings import Readings

__all__ = ["Pairs", "Visits", "first_readings", "read_twice", "shared_readings"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Visits:
    """The first reading of each item by each reader, ordered by item and reader."""

    item: Ints
    reader: Ints
    grade: Ints
    row: Ints  # which reading it is


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """All pairs of readings of one item by two readers."""

    item: Ints  # (K,)
    grade_first: Ints  # (K,)
    grade_second: Ints  # (K,)
    pair: Ints  # (K,) index into first and second
    first: Ints  # (P,) readers, of lower number
    second: Ints  # (P,)
    visits: Visits


def first_readings(readings: Readings) -> Visits:
    """The first reading of each item by each reader: the earliest by time, otherwise by place."""
    order = np.arange(len(readings))
    if readings.times is not None:
        order = np.argsort(readings.times, kind="stable")  # NaT last
    key = readings.item[order] * len(readings.readers) + readings.reader[order]
    row = order[np.unique(key, return_index=True)[1]]
    return Visits(item=readings.item[row], reader=readings.reader[row], grade=readings.grade[row], row=row)


def shared_readings(readings: Readings) -> Pairs:
    """Pairs by the distance of their places in the list of visits: as many passes as an item has readers."""
    visits = first_readings(readings)
    left: list[Ints] = []
    right: list[Ints] = []
    for step in range(1, int(np.bincount(visits.item).max())):
        here = np.flatnonzero(visits.item[:-step] == visits.item[step:])
        left.append(here)
        right.append(here + step)
    one = np.concatenate(left) if left else np.zeros(0, dtype=np.int64)
    other = np.concatenate(right) if right else np.zeros(0, dtype=np.int64)
    readers = len(readings.readers)
    found, pair = np.unique(visits.reader[one] * readers + visits.reader[other], return_inverse=True)
    return Pairs(
        item=visits.item[one],
        grade_first=visits.grade[one],
        grade_second=visits.grade[other],
        pair=pair.astype(np.int64),
        first=found // readers,
        second=found % readers,
        visits=visits,
    )


def read_twice(readings: Readings) -> tuple[Ints, Floats]:
    """Of each reader: how many items were read several times, and the share of equal grades among pairs of readings.

    The share is nan where nothing was read twice.
    """
    readers, classes = len(readings.readers), len(readings.grades)
    visit, place = np.unique(readings.item * readers + readings.reader, return_inverse=True)
    times = np.bincount(place)
    equal = np.bincount(np.unique(place * classes + readings.grade, return_inverse=True)[1])
    # pairs among n readings: n (n − 1) / 2; the equal ones by grade
    grade_of = np.unique(place * classes + readings.grade) // classes
    reader = visit % readers
    items = np.bincount(reader[times > 1], minlength=readers)
    all_pairs = np.bincount(reader, times * (times - 1) / 2, minlength=readers)
    same = np.bincount(reader[grade_of], equal * (equal - 1) / 2, minlength=readers)
    return items, np.where(all_pairs > 0, same / np.maximum(all_pairs, 1), np.nan)
