"""Readings: which reader gave which item which grade, the pairs of readings of one item, and what
the readings are evidence of: a sparse matrix that the model is fitted to, and whose errors it can
tell from those of others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags  # type: ignore[import-untyped]

from srjt.errors import SrjtError, count_of
from srjt.ordinal import patient_codes

# Grades that several readers gave to the same items.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Repeats = Literal["one reading", "independent", "estimated"]


@dataclass(frozen=True, kw_only=True)
class Readings:
    """M readings of I items by R readers on C grades.

    Parameters
    ----------
    items, readers, grades : of str, lengths I, R and C
        Their names; the mildest grade first.
    item, reader, grade : (M,) array of int
        Of each reading: the positions in ``items``, ``readers`` and ``grades``. The same reader may
        read an item twice.
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
    times: NDArray[np.datetime64] | None = None

    def __post_init__(self) -> None:
        if len(self.grades) < 2:
            raise SrjtError(
                f"Readings need a scale of at least two grades; it has {len(self.grades)}.",
                code="too_few",
                option="grades",
            )
        if not len(self.item):
            raise SrjtError(
                "There are no readings: at least one grade by one reader is needed.", code="too_few"
            )
        for name, names in (("item", self.items), ("reader", self.readers), ("grade", self.grades)):
            self._whole(name, len(self.item), "reading", range(len(names)))
        if self.reference is not None:
            self._whole("reference", len(self.items), "item", range(-1, len(self.grades)))
        for name, size, what in (
            ("groups", len(self.items), "items"),
            ("times", len(self.item), "readings"),
        ):
            if (values := getattr(self, name)) is not None and len(values) != size:
                raise SrjtError(
                    f"{len(values)} {name} for {size} {what}: they must be as many.",
                    code="wrong_shape",
                    option=name,
                )
        if self.times is not None:
            object.__setattr__(self, "times", np.asarray(self.times, dtype="datetime64[s]"))

    def _whole(self, name: str, size: int, what: str, numbers: range) -> None:
        """Make one of the fields an array (size,) of int64 with these numbers."""
        array = np.asarray(getattr(self, name))
        if array.shape != (size,) or array.dtype.kind not in "iu":
            raise SrjtError(
                f"{name} holds one whole number for each of the {size} {what}s; it has the shape"
                f" {array.shape} and the type {array.dtype}.",
                code="wrong_shape",
                option=name,
            )
        if len(outside := np.flatnonzero((array < numbers.start) | (array >= numbers.stop))):
            unknown = ", or be −1 where it is unknown" if numbers.start else ""
            raise SrjtError(
                f"{what.capitalize()} {outside[0]} has the {name} {array[outside[0]]}; it must lie"
                f" in 0 … {numbers.stop - 1}{unknown}.",
                code="out_of_bounds",
                option=name,
            )
        # the dataclass is frozen for its users
        object.__setattr__(self, name, array.astype(np.int64))

    @staticmethod
    def check(value: object) -> None:
        """Raise an error for something that is not ``Readings``, such as the table that they were
        read from."""
        if not isinstance(value, Readings):
            raise SrjtError(
                "Readings are wanted, such as srjt.data.read_readings(table).readings; got"
                f" {type(value).__name__}.",
                code="wrong_type",
            )

    def __repr__(self) -> str:
        counts = (
            f"{count_of(len(self), 'reading')} of {count_of(len(self.items), 'item')} by "
            f"{count_of(len(self.readers), 'reader')}"
        )
        return f"<Readings: {counts}, grades {', '.join(self.grades)}>"

    def __len__(self) -> int:
        return len(self.item)

    def rows(self, rows: NDArray[Any]) -> Readings:
        """Some of the readings, by (M,) of bool or positions, of the same items and readers."""
        times = None
        if self.times is not None:
            times = self.times[rows]
        return replace(
            self,
            item=self.item[rows],
            reader=self.reader[rows],
            grade=self.grade[rows],
            times=times,
        )

    def owner(self) -> Ints:
        """(I,) the number of each item's group."""
        return patient_codes(self.groups, len(self.items))

    def first(self) -> Readings:
        """The first reading of each item by each reader, in their order: the earliest by time,
        otherwise by place."""
        # by time NaT is last
        order = (
            np.arange(len(self)) if self.times is None else np.argsort(self.times, kind="stable")
        )
        key = self.item[order] * len(self.readers) + self.reader[order]
        return self.rows(order[np.unique(key, return_index=True)[1]])

    def pairs(self) -> Pairs:
        """Pairs by the distance of their places in the list of visits: as many passes as an item
        has readers."""
        visits = self.first()
        readers = len(self.readers)
        left = [np.zeros(0, dtype=np.int64)]
        right = [np.zeros(0, dtype=np.int64)]
        for step in range(1, int(np.bincount(visits.item).max())):
            left.append(np.flatnonzero(visits.item[:-step] == visits.item[step:]))
            right.append(left[-1] + step)
        one = np.concatenate(left)
        other = np.concatenate(right)
        pairs, pair = np.unique(
            visits.reader[one] * readers + visits.reader[other], return_inverse=True
        )
        return Pairs(
            item=visits.item[one],
            grade_first=visits.grade[one],
            grade_second=visits.grade[other],
            pair=pair.astype(np.int64),
            first=pairs // readers,
            second=pairs % readers,
            visits=visits,
        )

    def read_twice(self) -> tuple[Ints, Floats]:
        """Of each reader: how many items were read several times, and the share of equal grades
        among pairs of readings, nan where nothing was read twice.
        """
        readers = len(self.readers)
        classes = len(self.grades)
        visit, place = np.unique(self.item * readers + self.reader, return_inverse=True)
        times = np.bincount(place)
        cell, equal = np.unique(place * classes + self.grade, return_counts=True)
        # pairs among n readings: n (n − 1) / 2; the equal ones by grade
        reader = visit % readers
        items = np.bincount(reader[times > 1], minlength=readers)
        all_pairs = np.bincount(reader, times * (times - 1) / 2, minlength=readers)
        same = np.bincount(reader[cell // classes], equal * (equal - 1) / 2, minlength=readers)
        return items, np.where(all_pairs > 0, same / np.maximum(all_pairs, 1), np.nan)


class Pairs(NamedTuple):
    """All pairs of readings of one item by two readers."""

    item: Ints  # (K,)
    grade_first: Ints  # (K,)
    grade_second: Ints  # (K,)
    pair: Ints  # (K,) index into first and second
    first: Ints  # (P,) readers, of lower number
    second: Ints  # (P,)
    visits: Readings  # the first reading of each item by each reader


class TwoReadings(NamedTuple):
    """The first two readings of each item by the same reader, in their order."""

    item: Ints  # (K,)
    reader: Ints  # (K,)
    first: Ints  # (K,) grades
    second: Ints  # (K,)

    def rows(self, rows: Bools) -> TwoReadings:
        return TwoReadings(*(column[rows] for column in self))


def two_readings(readings: Readings) -> TwoReadings:
    """By time, otherwise by place in the table."""
    one, other = _read_twice(readings)
    return TwoReadings(
        readings.item[one], readings.reader[one], readings.grade[one], readings.grade[other]
    )


def days_between(readings: Readings) -> Floats:
    """(K,) the days between the two readings of ``two_readings``; nan where a time is unknown."""
    one, other = _read_twice(readings)
    if readings.times is None:
        return np.full(len(one), np.nan)
    return np.asarray((readings.times[other] - readings.times[one]) / np.timedelta64(1, "D"))


def _read_twice(readings: Readings) -> tuple[Ints, Ints]:
    """(K,) and (K,) which readings are the first and the second of an item by the same reader."""
    order = np.arange(len(readings))
    if readings.times is not None:
        order = np.argsort(readings.times, kind="stable")
    visit = (readings.item * len(readings.readers) + readings.reader)[order]
    by_visit = order[np.argsort(visit, kind="stable")]
    visit = np.sort(visit, kind="stable")
    starts = np.flatnonzero(np.r_[True, visit[1:] != visit[:-1]])
    twice = starts[np.diff(np.r_[starts, len(visit)]) > 1]
    return by_visit[twice], by_visit[twice + 1]


# The readings as the consensus model takes them: a sparse matrix of items × reader and grade.

ENOUGH = 20  # items that show something
# More readers are enough to see that some hardly look. The likelihood of left-out readings cannot
# choose: it prefers a model of unclear items where that is right less often
# (``benchmarks/crowds.py models``).
_CROWD = 50
_CLAMP = -1e9  # the logarithm of almost nothing, finite so that no sum becomes nan
_HELD_OUT_ITEMS = 20_000


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the model is fitted to."""

    said: csr_matrix  # (I, R·C) weight of each reader's grades
    readers: int
    classes: int
    log_factor: Floats | None = None  # (I, C) of other witnesses: the reference, a network
    anchored: bool = False  # whether a reference fixes the readers' common bias
    patient: Ints | None = None  # (I,) None: each item is a patient of its own

    def items(self, rows: Ints) -> Evidence:
        """Of some items."""
        return replace(
            self,
            said=self.said[rows],
            log_factor=None if self.log_factor is None else self.log_factor[rows],
            patient=None if self.patient is None else self.patient[rows],
        )

    @property
    def crowd(self) -> bool:
        """Whether there are so many readers that some may hardly look at the items."""
        return self.readers > _CROWD

    @cached_property
    def weight(self) -> Floats:
        """(I,) of all readings of an item."""
        return np.asarray(self.said.sum(axis=1)).ravel()

    @cached_property
    def single(self) -> Bools:
        """(I,) items with one reading, and no other witness."""
        once = self.weight <= 1.0
        return once if self.log_factor is None else once & ~self.log_factor.any(axis=1)

    @cached_property
    def comparable(self) -> csr_matrix:
        """(I, R·C) the readings that tell how readers read. One reader's reading of an item that
        nobody else has read does not: it would only make the reader's errors fit the frequencies of
        the grades."""
        if self.readers > 1 or not self.single.any():
            return self.said
        return diags((~self.single).astype(np.float64)).tocsr() @ self.said

    @cached_property
    def single_readings(self) -> Floats:
        """(C,) of these items, by grade."""
        votes = np.asarray(self.said[self.single].sum(axis=0))
        return np.asarray(votes.reshape(self.readers, -1).sum(axis=0))

    def told_apart(self) -> Bools:
        """(R,) whether the readings, or a reference, tell a reader's errors from those of the
        others.

        Of two readers who disagree either may be right. Third readings of 20 of a reader's items
        tell, or of all of them, and so do independent readings by one reader, as by a crowd.
        Several readers in pairs tell something: not enough for an interval that holds
        (``benchmarks/readers.py simulated --counts 2``).
        """
        if self.anchored:
            return np.ones(self.readers, dtype=bool)
        said = self.said.tocoo()
        place = (said.row, said.col // self.classes)
        read = csr_matrix((said.data, place), shape=(said.shape[0], self.readers))
        read.sum_duplicates()
        item, reader = read.nonzero()
        third = np.asarray(read.sum(axis=1)).ravel()[item] > 2.5
        telling = np.bincount(reader, third | (read.data > 1.5), minlength=self.readers)
        return np.asarray(
            telling >= np.clip(np.bincount(reader, minlength=self.readers), 1, ENOUGH)
        )

    def disagreement(self) -> tuple[Floats, Floats]:
        """Of each reader (R,): the share of other readings of the same items that differ, and on
        how many items."""
        said = self.said.tocoo()
        reader, grade = np.divmod(said.col, self.classes)
        cell = said.row.astype(np.int64) * self.classes + grade
        # by item and grade
        votes = np.bincount(cell, said.data, minlength=said.shape[0] * self.classes)
        _, place = np.unique(said.row.astype(np.int64) * self.readers + reader, return_inverse=True)
        by_reader = np.bincount(place, said.data)[place]
        others = self.weight[said.row] - by_reader
        several = others > 1e-9
        same = (votes[cell] - said.data)[several] / others[several]
        weight = said.data[several] / by_reader[several]
        items = np.bincount(reader[several], weight, minlength=self.readers)
        differ = np.bincount(reader[several], weight * (1.0 - same), minlength=self.readers)
        return differ / np.maximum(items, 1e-12), items.astype(np.float64)

    def hold_out(self, *, last: bool = False) -> tuple[Evidence, csr_matrix]:
        """A fifth of the readings of at most 20,000 items taken out; an item's last one only with
        ``last``."""
        rng = np.random.Generator(np.random.PCG64(0))
        rows = np.sort(rng.permutation(self.said.shape[0])[:_HELD_OUT_ITEMS])
        chosen_items = self.items(rows)
        said = chosen_items.said.tocoo()
        out = rng.random(said.nnz) < 0.2
        out &= (np.bincount(said.row[~out], minlength=len(rows))[said.row] > 0) | last

        def part(chosen: Bools) -> csr_matrix:
            return csr_matrix(
                (said.data[chosen], (said.row[chosen], said.col[chosen])), shape=said.shape
            )

        return replace(chosen_items, said=part(~out)), part(out)


def evidence_of(readings: Readings, *, repeats: Repeats, again: float = 0.0) -> Evidence:
    """The readings, and the reference where there is one.

    again: with repeats="estimated", what each further reading of an item by the same reader weighs,
    0 to 1.
    """
    items = len(readings.items)
    readers = len(readings.readers)
    classes = len(readings.grades)
    weight = np.ones(len(readings))
    if repeats != "independent":
        visit = readings.item * readers + readings.reader
        _, pair, times = np.unique(visit, return_inverse=True, return_counts=True)
        weight = (1.0 + again * (times - 1.0))[pair] / times[pair]
    column = readings.reader * classes + readings.grade
    factor = None
    if readings.reference is not None and (known := readings.reference >= 0).any():
        factor = np.zeros((items, classes))
        factor[known] = _CLAMP
        factor[known, readings.reference[known]] = 0.0
    return Evidence(
        said=csr_matrix((weight, (readings.item, column)), shape=(items, readers * classes)),
        readers=readers,
        classes=classes,
        log_factor=factor,
        anchored=factor is not None,
        patient=None if readings.groups is None else readings.owner(),
    )
