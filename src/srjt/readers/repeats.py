"""The same reader twice: how much of what a reader reads differently from others is noise, and how
much comes back in a second reading. So it is known whether a second reading or a second reader
helps more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from srjt.json_values import DictMixin
from srjt.ordinal.decisions import proportion_interval
from srjt.ordinal.intervals import (
    Interval,
    effective_patients,
    images_worth_one,
    patient_draws,
    wrong_by,
)
from srjt.readers.agreement import ends, interval_of, weighted_kappa
from srjt.readers.readings import (
    Bools,
    Floats,
    Ints,
    Readings,
    TwoReadings,
    days_between,
    two_readings,
)

SOON = 7.0  # days in which a reader may remember a grade
_LIMIT = 1.96  # standard deviations: Bland and Altman's limits of agreement


@dataclass(frozen=True, kw_only=True)
class Repeated(DictMixin):
    """What two readings of an item by the same reader, and by two readers, have in common.

    A reading in grades is the severity of the item, plus what this reader sees in it each time
    (with the reader's bias), plus noise that differs each time. ``noise`` and ``reader_effect``
    are the standard deviations of the two.

    ``by_reader`` has a row for each reader who read an item twice: ``reader``, ``items``, ``exact``
    (share of equal grades), ``kappa`` (quadratic), ``difference`` (second − first) and Bland and
    Altman's limits of agreement ``limit_low`` and ``limit_high``; each with its interval, such as
    ``kappa_low`` and ``kappa_high``.
    """

    readers: list[str]
    by_reader: pd.DataFrame
    items: int  # pairs of readings of an item by one reader
    exact: Interval  # share of equal grades among these
    exact_between: Interval  # among readings of an item by two readers
    noise: float
    reader_effect: float
    soon: int = 0  # second readings less than a week after the first

    @property
    def clear(self) -> bool:
        """Whether readers agree with themselves more often than with each other, beyond the
        intervals of both shares."""
        return self.exact.low > self.exact_between.high

    @property
    def worth(self) -> float:
        """How much of the gain of a second reader a second reading by the same reader has: 0 to 1,
        nan where no reading differs."""
        total = self.noise**2 + self.reader_effect**2
        return self.noise**2 / total if total > 0 else np.nan

    @property
    def readings_for_a_reader(self) -> float:
        """So many readings of one reader are as exact as one reading by each of two; inf if none
        are."""
        left = (self.noise**2 - self.reader_effect**2) / 2.0
        return self.noise**2 / left if left > 0 else np.inf

    def error(self, *, readers: int, readings: int = 1) -> float:
        """The standard error, in grades, of the mean of several readers with several readings each:
        how far it is from the mean of all readers like these."""
        return float(np.sqrt((self.reader_effect**2 + self.noise**2 / readings) / readers))


def repeats_of(
    readings: Readings, *, resamples: int = 1000, seed: int = 0, confidence: float = 0.95
) -> Repeated | None:
    """The agreement of readers with themselves, and what a second reading is worth.

    Only the first two readings of an item by a reader count. None if nobody has read an item twice,
    or no item was read by two readers.

    Parameters
    ----------
    readings : Readings
        Its ``groups`` are resampled.
    resamples, seed, confidence
        Of the bootstrap intervals.

    Examples
    --------
    >>> names = {"items": ["a", "b", "c"], "readers": ["Kim", "Lee"], "grades": ("0", "1", "2")}
    >>> item, reader = [0, 0, 0, 1, 1, 1, 2, 2], [0, 0, 1, 0, 0, 1, 0, 1]
    >>> readings = Readings(**names, item=item, reader=reader, grade=[0, 0, 1, 1, 2, 1, 2, 0])
    >>> repeated = repeats_of(readings, resamples=0)
    >>> round(repeated.exact.value, 2), round(repeated.noise, 2), round(repeated.reader_effect, 2)
    (0.5, 0.5, 0.76)
    """
    Readings.check(readings)
    twice = two_readings(readings)
    pairs = readings.pairs()
    if not len(twice.item) or not len(pairs.item):
        return None
    owner = readings.owner()
    classes = len(readings.grades)
    first = twice.first.astype(np.float64)
    noise = float(((twice.second - first) ** 2).mean()) / 2.0
    between = (pairs.grade_first - pairs.grade_second.astype(np.float64)) ** 2
    rows = []
    for reader in np.unique(twice.reader):
        of_reader = twice.rows(twice.reader == reader)
        patients, patient = np.unique(owner[of_reader.item], return_inverse=True)
        weights = np.concatenate(list(patient_draws(len(patients), resamples, seed=seed)))
        numbers = _with_intervals(
            of_reader, patient, weights, classes=classes, confidence=confidence
        )
        rows.append({"reader": int(reader), "items": len(of_reader.item), **numbers})
    return Repeated(
        readers=readings.readers,
        by_reader=pd.DataFrame(rows),
        items=len(twice.item),
        exact=_equal(twice.first == twice.second, owner[twice.item], confidence),
        exact_between=_equal(
            pairs.grade_first == pairs.grade_second, owner[pairs.item], confidence
        ),
        noise=noise**0.5,
        reader_effect=max(float(between.mean()) / 2.0 - noise, 0.0) ** 0.5,
        soon=int((days_between(readings) < SOON).sum()),  # nan is not
    )


def _equal(same: Bools, owner: Ints, confidence: float) -> Interval:
    return proportion_interval(same, groups=owner.tolist(), level=confidence)


def _with_intervals(
    pairs: TwoReadings, patient: Ints, weights: Floats, *, classes: int, confidence: float
) -> dict[str, float]:
    """The numbers of ``Repeated.by_reader`` of one reader, each with its interval.

    patient: (K,) of each pair. weights: (1 + B, patients) of all patients, then of each draw.
    """
    tables = np.zeros((weights.shape[1], classes, classes))
    np.add.at(tables, (patient, pairs.first, pairs.second), 1.0)
    drawn = (weights @ tables.reshape(len(tables), -1)).reshape(-1, classes, classes)
    # one more item whose grade changes by one, which may have been too rare to occur
    worth = images_worth_one(tables, ~np.eye(classes, dtype=bool), tables.sum(axis=(1, 2)))
    share = drawn[0].sum(axis=1, keepdims=True) / drawn[0].sum()
    with_one = drawn[:1] + worth * share * wrong_by(1, classes)
    number = effective_patients(patient)

    kappa = weighted_kappa(drawn, power=2)
    lower = max(float(kappa[0] - weighted_kappa(with_one, power=2)[0]), 0.0)
    exact = _equal(pairs.first == pairs.second, patient, confidence)
    intervals = {
        "exact": exact,
        "kappa": interval_of(kappa, number, confidence, more=float(kappa[0]) - lower),
    }
    values = _differences(drawn)
    step = np.abs(_differences(with_one)[0] - values[0])
    low, high = ends(values, number, confidence, lower=step, higher=step)
    mean, down, up = (Interval(*three) for three in zip(values[0], low, high, strict=True))
    intervals["difference"] = mean
    intervals["limit_low"] = Interval(-down.value, -down.high, -down.low)
    intervals["limit_high"] = up
    columns: dict[str, float] = {}
    for name, interval in intervals.items():
        for end, value in zip(("", "_low", "_high"), interval, strict=True):
            columns[name + end] = float(value)
    return columns


def _differences(tables: Floats) -> Floats:
    """(…, 3) of tables (…, C, C): the mean of second − first, and how far the limits of agreement
    lie below and above 0."""
    classes = tables.shape[-1]
    apart = np.subtract.outer(np.arange(classes), np.arange(classes)).T  # second − first
    size = tables.sum(axis=(-2, -1))
    mean = (tables * apart).sum(axis=(-2, -1)) / size
    squares = (tables * (apart - mean[..., None, None]) ** 2).sum(axis=(-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        limit = _LIMIT * np.sqrt(squares / (size - 1.0))
    return np.stack([mean, limit - mean, mean + limit], axis=-1)
