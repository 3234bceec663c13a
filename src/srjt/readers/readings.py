"""Readings: which reader gave which item which grade, and the pairs of readings of one item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError, count_of, printable

# Grades that several readers gave to the same items.

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Readings:
    """M readings of I items by R readers on C grades.

    Parameters
    ----------
    items : list of str, length I
    readers : list of str, length R
    grades : tuple of str, length C
        Names of the grades, mildest first.
    item, reader, grade : (M,) array of int
        Of each reading: the positions in ``items``, ``readers`` and ``grades``. The same reader may read an item twice.
    groups : list of str, length I, optional
        Patients: intervals resample them. Default: each item is its own group.
    reference : (I,) array of int, optional
        The trusted grade of each item, −1 where it is unknown.
    times : (M,) array of datetime64, optional
        When each reading was made, NaT where unknown.

    Examples
    --------
    >>> readings = Readings(
    ...     items=["a.png", "b.png"],
    ...     readers=["Kim", "Lee"],
    ...     grades=("mild", "moderate", "severe"),
    ...     item=[0, 0, 1],
    ...     reader=[0, 1, 0],
    ...     grade=[1, 2, 0],
    ... )
    >>> len(readings)
    3
    """

    items: list[str]
    readers: list[str]
    grades: tuple[str, ...]
    item: Ints
    reader: Ints
    grade: Ints
    groups: list[str] | None = None
    reference: Ints | None = None
    times: npt.NDArray[np.datetime64] | None = None

    def __post_init__(self) -> None:
        if len(self.grades) < 2:
            raise SrjtError(f"Readings need a scale of at least two grades; it has {len(self.grades)}.")
        count = len(self.item)
        if not count:
            raise SrjtError("There are no readings: at least one grade by one reader is needed.")
        for name, names in (("item", self.items), ("reader", self.readers), ("grade", self.grades)):
            _set(self, name, _positions(name, getattr(self, name), count=count, names=names))
        if self.groups is not None and len(self.groups) != len(self.items):
            raise SrjtError(f"{len(self.groups)} groups for {len(self.items)} items: they must be as many.")
        if self.reference is not None:
            _set(self, "reference", _reference(self.reference, items=self.items, grades=self.grades))
        if self.times is not None:
            if len(self.times) != count:
                raise SrjtError(f"{len(self.times)} times for {count} readings: they must be as many.")
            _set(self, "times", np.asarray(self.times, dtype="datetime64[s]"))

    @staticmethod
    def check(value: object) -> None:
        """Raise an error for something that is not ``Readings``, such as the table that they were read from."""
        if not isinstance(value, Readings):
            hint = ": pass its attribute readings" if hasattr(value, "readings") else ""
            raise SrjtError(
                "Readings are wanted, such as srjt.data.read_readings(table).readings; got "
                f"{type(value).__name__}{hint}."
            )

    def __repr__(self) -> str:
        counts = (
            f"{count_of(len(self), 'reading')} of {count_of(len(self.items), 'item')} by "
            f"{count_of(len(self.readers), 'reader')}"
        )
        return f"<Readings: {counts}, grades {', '.join(self.grades)}>"

    def __len__(self) -> int:
        return len(self.item)

    def rows(self, rows: npt.NDArray[Any]) -> Readings:
        """Some of the readings, of the same items and readers.

        Parameters
        ----------
        rows : (M,) array of bool, or array of int
            Which readings.

        Returns
        -------
        Readings
        """
        return replace(
            self,
            item=self.item[rows],
            reader=self.reader[rows],
            grade=self.grade[rows],
            times=None if self.times is None else self.times[rows],
        )

    def owner(self) -> Ints:
        """(I,) the number of each item's group."""
        if self.groups is None:
            return np.arange(len(self.items))
        return np.unique(np.asarray(self.groups, dtype=str), return_inverse=True)[1].astype(np.int64)


def _set(readings: Readings, name: str, value: object) -> None:
    object.__setattr__(readings, name, value)  # the dataclass is frozen for its users


def _positions(name: str, values: npt.ArrayLike, *, count: int, names: Sequence[str]) -> Ints:
    array = np.asarray(values)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise SrjtError(
            f"item, reader and grade hold one whole number for each of the {count} readings; "
            f"{name} has the shape {array.shape} and the type {array.dtype}."
        )
    outside = np.flatnonzero((array < 0) | (array >= len(names)))
    if len(outside):
        raise SrjtError(
            f"Reading {outside[0]} has the {name} {array[outside[0]]}; there are {len(names)}, "
            f"numbered 0 … {len(names) - 1}."
        )
    return array.astype(np.int64)


def _reference(values: npt.ArrayLike, *, items: Sequence[str], grades: Sequence[str]) -> Ints:
    array = np.asarray(values)
    if array.shape != (len(items),) or array.dtype.kind not in "iu":
        raise SrjtError(
            f"reference holds one whole grade, or −1, for each of the {len(items)} items; its shape is {array.shape} "
            f"and its type {array.dtype}."
        )
    outside = np.flatnonzero((array < -1) | (array >= len(grades)))
    if len(outside):
        raise SrjtError(
            f"The reference of item {printable(items[outside[0]])} is {array[outside[0]]}; grades are 0 … "
            f"{len(grades) - 1}, and −1 where it is unknown."
        )
    return array.astype(np.int64)


# Pairs of readings of the same item.


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
    pairs, pair = np.unique(visits.reader[one] * readers + visits.reader[other], return_inverse=True)
    return Pairs(
        item=visits.item[one],
        grade_first=visits.grade[one],
        grade_second=visits.grade[other],
        pair=pair.astype(np.int64),
        first=pairs // readers,
        second=pairs % readers,
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
