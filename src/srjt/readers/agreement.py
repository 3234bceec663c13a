"""How well readers agree: coefficients, who grades higher, and what changes on a second reading,
all with intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from srjt.errors import SrjtError, count_of
from srjt.json_values import DictMixin
from srjt.notebook import HasPage
from srjt.ordinal.decisions import proportion_interval
from srjt.ordinal.intervals import (
    Interval,
    effective_from_sums,
    effective_patients,
    images_worth_one,
    patient_draws,
    percentile_tails,
    wrong_by,
)
from srjt.readers.readings import Bools, Floats, Ints, Pairs, Readings

# Coefficients of agreement from counts and sums, which can be added up over patients. Any number of
# leading axes holds bootstrap draws; nan stands where a coefficient is undefined.


def weighted_kappa(tables: ArrayLike, *, power: int) -> Floats:
    """Weighted κ (…) of counts (…, C, C): the one reader's grade in rows, the other's in columns.

    power: 1 for linear, 2 for quadratic weights. nan where both readers gave one and the same
    grade, or nothing is counted.
    """
    counts = np.asarray(tables, dtype=np.float64)
    classes = counts.shape[-1]
    weight = (
        np.abs(np.subtract.outer(np.arange(classes), np.arange(classes))).astype(np.float64)
        ** power
    )
    size = counts.sum(axis=(-2, -1))
    chance = np.einsum("...i,ij,...j->...", counts.sum(axis=-1), weight, counts.sum(axis=-2))
    seen = (counts * weight).sum(axis=(-2, -1)) * size
    return np.asarray(np.where(chance > 0, 1.0 - seen / np.where(chance > 0, chance, 1.0), np.nan))


def krippendorff_alpha(coincidences: ArrayLike) -> Floats:
    """Krippendorff's α (…) for ordinal grades; nan where only one grade occurs.

    coincidences: (…, C, C) each ordered pair of readings of an item counts 1 / (readings of the
    item − 1).
    """
    table = np.asarray(coincidences, dtype=np.float64)
    share = table.sum(axis=-1)  # (…, C)
    size = share.sum(axis=-1)
    # the distance of two grades is the number of readings from the one to the other, half of both
    # ends
    rank = share.cumsum(axis=-1) - share / 2.0
    distance = (rank[..., :, None] - rank[..., None, :]) ** 2
    chance = (share[..., :, None] * share[..., None, :] * distance).sum(axis=(-2, -1))
    seen = (table * distance).sum(axis=(-2, -1)) * np.maximum(size - 1.0, 0.0)
    return np.asarray(np.where(chance > 0, 1.0 - seen / np.where(chance > 0, chance, 1.0), np.nan))


def fleiss_kappa(tables: ArrayLike, shares: ArrayLike) -> Floats:
    """Fleiss' κ of any number of readings an item. The order of the grades does not count.

    tables: (…, C, C) pairs of readings; each item with several readings counts 1, spread over its
    ordered pairs. shares: (…, C) readings of each grade; each item counts 1, spread over its
    readings.
    """
    share = _normalised(shares)
    return _beyond_chance(tables, np.eye(share.shape[-1]), (share**2).sum(axis=-1))


def gwet_ac2(tables: ArrayLike, shares: ArrayLike) -> Floats:
    """Gwet's AC2 with quadratic weights, which stays high where nearly all readings are one grade.

    tables, shares: as for ``fleiss_kappa``.
    """
    share = _normalised(shares)
    classes = share.shape[-1]
    distance = np.subtract.outer(np.arange(classes), np.arange(classes)) / (classes - 1)
    weight = 1.0 - distance**2
    chance = weight.sum() / (classes * (classes - 1)) * (share * (1.0 - share)).sum(axis=-1)
    return _beyond_chance(tables, weight, chance)


def _normalised(shares: ArrayLike) -> Floats:
    share = np.asarray(shares, dtype=np.float64)
    return np.asarray(share / np.maximum(share.sum(axis=-1, keepdims=True), 1e-300))


def _beyond_chance(tables: ArrayLike, weight: Floats, chance: Floats) -> Floats:
    counts = np.asarray(tables, dtype=np.float64)
    size = counts.sum(axis=(-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        seen = (counts * weight).sum(axis=(-2, -1)) / size
        return np.asarray(np.where(chance < 1.0, (seen - chance) / (1.0 - chance), np.nan))


def icc_one_way(sums: ArrayLike) -> Floats:
    """ICC(1,1) of Shrout and Fleiss: items read by whichever readers, grades as numbers, a single
    reading.

    sums: (…, 6) over the items i with several readings x: their number, Σ n_i, Σ n_i², Σ x, Σ x², Σ
    (Σ x)² / n_i.
    """
    items, size, squared, total, squares, between = np.moveaxis(
        np.asarray(sums, dtype=np.float64), -1, 0
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        among = (between - total**2 / size) / (items - 1)
        within = (squares - between) / (size - items)
        readings = (size - squared / size) / (items - 1)  # an item, were they equally many
        return _ratio(among - within, among + (readings - 1) * within)


def icc_two_way(sums: ArrayLike) -> tuple[Floats, Floats]:
    """ICC(2,1) and ICC(3,1) of Shrout and Fleiss, of items that all readers read, grades as
    numbers.

    ICC(2,1): readers like these in general; a reader's bias counts as disagreement. ICC(3,1): these
    readers; bias does not count. sums: (…, 3 + R) over the items: their number, Σ x², Σ (Σ_r x)²,
    then each reader's Σ x.
    """
    columns = np.asarray(sums, dtype=np.float64)
    items, squares, between = np.moveaxis(columns[..., :3], -1, 0)
    by_reader = columns[..., 3:]
    readers = by_reader.shape[-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = by_reader.sum(axis=-1) ** 2 / (items * readers)
        rows = between / readers - middle
        reader = (by_reader**2).sum(axis=-1) / items - middle
        among = rows / (items - 1)
        rest = (squares - middle - rows - reader) / ((items - 1) * (readers - 1))
        bias = readers * (reader / (readers - 1) - rest) / items
        consistent = among + (readers - 1) * rest
        return _ratio(among - rest, consistent + bias), _ratio(among - rest, consistent)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.asarray(np.where(below > 1e-12, above / below, np.nan))


# Intervals from bootstrap draws of patients.


def ends(
    values: Floats,
    patients: ArrayLike,
    level: float,
    *,
    lower: ArrayLike = 0.0,
    higher: ArrayLike = 0.0,
    highest: float = np.inf,
) -> Floats:
    """(2, K) ends of intervals of numbers (1 + B, K), as they are and of each draw; they hold the
    first row.

    patients: (K,) or one number: effective patients, which tell how far out the ends are. Of one
    patient there is no interval: no draw differs, and none tells of others. lower, higher: (K,) or
    one number: by how much one more disagreement lowers or raises the number. It may have been too
    rare to occur: draws have it with the exponential weight of a patient, those of the lower end
    and those of the higher end. highest: that the number can be.
    """
    count = np.broadcast_to(np.asarray(patients, dtype=np.float64), values.shape[1:])
    tails = percentile_tails(count, level=level)
    if len(values) == 1:
        return np.concatenate([values, values])
    weight = np.random.Generator(np.random.PCG64(1)).standard_exponential((len(values) - 1, 1))
    low = _quantile(
        values[1:] - weight * np.nan_to_num(np.asarray(lower, dtype=np.float64)), tails[0]
    )
    high = _quantile(
        values[1:] + weight * np.nan_to_num(np.asarray(higher, dtype=np.float64)), tails[1]
    )
    # Few patients vary less than all, so that their coefficients are too low, and those of the
    # draws are lower still: the higher end is as far away as the lower one.
    reflected = np.minimum(2.0 * values[0] - _quantile(values[1:], tails[0]), highest)
    high = np.fmax(high, reflected)
    both = np.stack([np.minimum(low, values[0]), np.maximum(high, values[0])])
    both[:, count <= 1.0] = np.nan
    return both


def _quantile(drawn: Floats, share: Floats) -> Floats:
    """(K,) a quantile of each column (B, K), which may have nan; share: (K,)."""
    ordered = np.sort(drawn, axis=0)  # nan is last
    last = np.maximum(np.isfinite(ordered).sum(axis=0) - 1, 0)
    place = share * last
    below = place.astype(np.int64)
    low, high = (
        np.take_along_axis(ordered, at[None], axis=0)[0]
        for at in (below, np.minimum(below + 1, last))
    )
    return np.asarray(low + (place - below) * (high - low))


def interval_of(
    values: Floats, patients: float, level: float, *, more: float = np.nan, lowest: float = -np.inf
) -> Interval:
    """more: the coefficient with one more disagreement. lowest: that it can be."""
    lower = 0.0
    if np.isfinite(more):
        lower = max(float(values[0]) - more, 0.0)
    value = float(values[0])
    low, high = ends(values[:, None], patients, level, lower=lower, highest=1.0)[:, 0].tolist()
    return Interval(value, max(low, min(lowest, value)) if np.isfinite(low) else low, high)


def interval_of_share(
    tables: Floats, near: Bools, shared: Pairs, owner: Ints, level: float
) -> Interval:
    """The share of pairs in the cells (C, C) of ``near``. tables: (1 + B, C, C), of all pairs and
    of the draws."""
    patients = owner[shared.item]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = tables[:, near].sum(axis=1) / tables.sum(axis=(1, 2))
        interval = interval_of(shares, effective_patients(patients), level)
    if len(tables) == 1:
        return interval
    return proportion_interval(
        near[shared.grade_first, shared.grade_second], groups=patients.tolist(), level=level
    )


# How well readers agree: weighted κ of each pair, Krippendorff's α, and what each reader does
# beside the others. Only pairs of readers that share items are kept, so thousands of readers with a
# few readings each are no burden.

# Fields of ``Agreement``, with their names
COEFFICIENTS = {
    "quadratic": "quadratic κ",
    "alpha": "Krippendorff’s α",
    "fleiss": "Fleiss’ κ",
    "ac2": "Gwet’s AC2",
    "icc_one_way": "ICC(1,1)",
    "icc_agreement": "ICC(2,1)",
    "icc_consistency": "ICC(3,1)",
}
WHICH = (
    "Report quadratic κ for two readers and Krippendorff’s α for more; Gwet’s AC2 beside it if"
    " nearly all readings are one grade; ICC(2,1) if a journal asks for it. Fleiss’ κ ignores the"
    " order of the grades."
)

# of patients that are resampled together, where there are more: their error is 3 % of a width
_BUNDLES = 2000
_PAIRS = 1000  # pairs with intervals: those with most shared items


@dataclass(frozen=True, kw_only=True)
class Agreement(DictMixin, HasPage):
    """Agreement of readers. nan stands where something is undefined: no shared items, or one grade
    only.

    ``pairs`` has a row for each pair of readers with shared items: ``first`` and ``second``
    (positions in ``readers``), ``items`` (how many both have read), ``quadratic`` (weighted κ) with
    its interval ``low`` and ``high`` (of the 1,000 pairs with most items), ``linear``, ``exact``
    and ``within_one`` (shares), ``difference`` (mean of first − second, in grades) and Bland and
    Altman's limits of agreement ``limit_low`` and ``limit_high`` (difference ∓ 1.96 SD).

    ``by_reader`` has a row for each reader: ``reader``, ``readings``, ``bias`` (grades higher than
    the others on the same items) with ``bias_low`` and ``bias_high``, ``spread`` (standard
    deviation of that difference), ``repeated`` (items read twice), ``repeated_exact`` (share of
    equal grades among them) and ``drift`` (grades per year by which the bias grows) with
    ``drift_low`` and ``drift_high``.
    """

    readers: list[str]
    pairs: pd.DataFrame
    by_reader: pd.DataFrame
    alpha: Interval  # Krippendorff's α for ordinal data
    fleiss: Interval  # Fleiss' κ
    ac2: Interval  # Gwet's AC2, quadratic weights
    icc_one_way: Interval  # ICC(1,1)
    icc_agreement: Interval  # ICC(2,1), of the items that all readers read
    icc_consistency: Interval  # ICC(3,1), of the same items
    exact: Interval  # share of equal grades among all pairs of readings of an item
    within_one: Interval
    quadratic: Interval  # weighted κ over all pairs of readings of an item
    shared_items: int  # items that two readers have read

    def __repr__(self) -> str:
        """Without an interval where no draw differs."""
        value, low, high = (f"{one:.2f}" if np.isfinite(one) else "–" for one in self.quadratic)
        between = ""
        if self.quadratic.high - self.quadratic.low >= 1e-9:
            between = f" ({low} to {high})"
        counts = (
            f"{count_of(len(self.readers), 'reader')}, {count_of(self.shared_items, 'shared item')}"
        )
        return f"<Agreement: {counts}, quadratic κ {value}{between}>"


def agreement(
    readings: Readings, *, resamples: int = 1000, seed: int = 0, confidence: float = 0.95
) -> Agreement:
    """Agreement of each pair of readers and of all, with bootstrap intervals over the patients.

    Parameters
    ----------
    readings : Readings
        Its ``groups`` are resampled. Where a reader has read an item several times, the first
        reading counts.
    resamples : int
        Number of bootstrap draws; 0 makes the intervals as narrow as the values. Where no draw
        differs, as where all grades are equal, a share gets Wilson's interval; where all items are
        of one patient, the ends of others are nan.
    seed, confidence
        Of the draws, and of the intervals.

    Examples
    --------
    >>> names = {"items": ["a", "b", "c"], "readers": ["Kim", "Lee"], "grades": ("0", "1", "2")}
    >>> grade = [0, 0, 1, 1, 2, 1]
    >>> readings = Readings(**names, item=[0, 0, 1, 1, 2, 2], reader=[0, 1] * 3, grade=grade)
    >>> agree = agreement(readings, resamples=0)
    >>> round(float(agree.pairs["quadratic"][0]), 3), round(agree.exact.value, 3)
    (0.667, 0.667)
    """
    Readings.check(readings)
    if resamples < 0 or not 0.0 < confidence < 1.0:
        raise SrjtError(
            f"resamples counts draws and confidence lies between 0 and 1; got {resamples} and"
            f" {confidence:g}.",
            code="out_of_bounds",
        )
    shared = readings.pairs()
    classes = len(readings.grades)
    owner = readings.owner() % _BUNDLES
    groups = int(owner.max()) + 1
    first = np.zeros((len(shared.first), classes, classes))  # the table of each pair
    np.add.at(first, (shared.pair, shared.grade_first, shared.grade_second), 1.0)
    size = first.sum(axis=(1, 2))
    largest = np.sort(np.argsort(-size, kind="stable")[:_PAIRS])
    sums = _by_group(readings, shared, owner, largest)
    draws = _draws(sums, groups, resamples, seed=seed, classes=classes)
    patients = 0.0
    if len(shared.item):
        patients = effective_patients(owner[shared.item])
    complete = float(_effective(sums["complete"][:, [0]])[0])  # of items that all have read
    by_pair = (np.ones(len(shared.item)), (owner[shared.item], shared.pair))
    of_pair = _effective(csr_matrix(by_pair, shape=(groups, len(first))))
    more = _one_disagreement(sums, classes=classes, readers=len(readings.readers))
    more_of_pair = more.pop("pairs")
    coefficient = partial(
        _coefficient, draws, more, classes=classes, patients=patients, confidence=confidence
    )
    total = draws["pooled"].reshape(-1, classes, classes)
    low, high = np.full((2, len(first)), np.nan)
    low[largest], high[largest] = _kappa_ends(
        first[largest], more_of_pair, draws["pairs"], of_pair[largest], confidence
    )
    quadratic = coefficient(lambda tables: weighted_kappa(tables, power=2), "pooled")
    if len(first) == 1:  # of two readers there is one number
        quadratic = Interval(
            float(weighted_kappa(first, power=2)[0]), float(low[0]), float(high[0])
        )
    distance = np.abs(np.subtract.outer(np.arange(classes), np.arange(classes)))
    return Agreement(
        readers=readings.readers,
        pairs=_pair_table(shared, first, low, high),
        by_reader=_by_reader(
            readings,
            sums["differences"],
            draws["differences"],
            confidence,
            worth=float(more_of_pair.sum()),
        ),
        alpha=coefficient(krippendorff_alpha, "coincidences"),
        fleiss=coefficient(fleiss_kappa, "items", "shares", lowest=_lowest_fleiss(shared.visits)),
        ac2=coefficient(gwet_ac2, "items", "shares"),
        icc_one_way=coefficient(icc_one_way, "one_way"),
        icc_agreement=coefficient(lambda sums: icc_two_way(sums)[0], "complete", patients=complete),
        icc_consistency=coefficient(
            lambda sums: icc_two_way(sums)[1], "complete", patients=complete
        ),
        exact=interval_of_share(total, distance == 0, shared, owner, confidence),
        within_one=interval_of_share(total, distance <= 1, shared, owner, confidence),
        quadratic=quadratic,
        shared_items=len(np.unique(shared.item)),
    )


def _kappa_ends(
    tables: Floats, more: Floats, draws: Floats, patients: Floats, confidence: float
) -> tuple[Floats, Floats]:
    """The ends (P,) of the interval of each pair's quadratic κ.

    tables: (P, C, C) of the pairs. more: what one disagreement more adds to them, which may have
    been too rare to occur.
    """
    with_one = weighted_kappa(tables + more, power=2)
    lower = np.maximum(weighted_kappa(tables, power=2) - with_one, 0.0)
    low, high = ends(draws, patients, confidence, lower=lower, highest=1.0)
    return np.maximum(low, -1.0), high  # nan stays


def _lowest_fleiss(visits: Readings) -> float:
    """The least that Fleiss' κ of so many readings of each item can be, if no two agree."""
    number = np.bincount(visits.item)
    several = number[number > 1]
    return -1.0 / (int(several.min()) - 1) if len(several) else -1.0


def _coefficient(
    draws: dict[str, Floats],
    more: dict[str, Floats],
    function: Callable[..., Floats],
    *names: str,
    classes: int,
    patients: float,
    confidence: float,
    lowest: float = -1.0,
) -> Interval:
    """A coefficient of the draws of these names, with its interval, in which one more disagreement
    may occur. more: what that adds to them."""
    drawn = []
    with_more = []
    for name in names:
        values = draws[name]
        with_one = (values[0] + more[name])[None]
        if name in ("pooled", "coincidences", "items"):
            values = values.reshape(-1, classes, classes)
            with_one = with_one.reshape(-1, classes, classes)
        drawn.append(values)
        with_more.append(with_one)
    lowered = float(function(*with_more)[0])
    return interval_of(function(*drawn), patients, confidence, more=lowered, lowest=lowest)


def _draws(
    sums: dict[str, csr_matrix], groups: int, resamples: int, *, seed: int, classes: int
) -> dict[str, Floats]:
    """The sums of ``_by_group`` (1 + B, …) over all patients and over each draw of them; of pairs,
    which are the widest by far, their κ."""
    widest = max(sums["pairs"].shape[1], sums["differences"].shape[1])
    drawn: dict[str, list[Floats]] = {name: [] for name in sums}
    for weights in patient_draws(groups, resamples, seed=seed, width=widest):
        for name, matrix in sums.items():
            values = np.asarray((matrix.T @ weights.T).T)
            if name == "pairs":
                values = weighted_kappa(values.reshape(len(weights), -1, classes, classes), power=2)
            drawn[name].append(values)
    return {name: np.concatenate(parts) for name, parts in drawn.items()}


def _pair_table(shared: Pairs, first: Floats, low: Floats, high: Floats) -> pd.DataFrame:
    """One row per pair of readers. first: (P, C, C) their tables; low, high: (P,) the interval of
    κ."""
    grades = np.arange(first.shape[1])
    difference = np.subtract.outer(grades, grades)
    distance = np.abs(difference)
    size = first.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (first * difference).sum(axis=(1, 2)) / size
        squares = (first * (difference - mean[:, None, None]) ** 2).sum(axis=(1, 2))
        limit = 1.96 * np.sqrt(squares / (size - 1))  # Bland and Altman's
    return pd.DataFrame(
        {
            "first": shared.first,
            "second": shared.second,
            "items": size.astype(np.int64),
            "quadratic": weighted_kappa(first, power=2),
            "low": low,
            "high": high,
            "linear": weighted_kappa(first, power=1),
            "exact": first[:, distance == 0].sum(axis=1) / np.maximum(size, 1),
            "within_one": first[:, distance <= 1].sum(axis=1) / np.maximum(size, 1),
            "difference": mean,
            "limit_low": mean - limit,
            "limit_high": mean + limit,
        }
    )


def _effective(counts: csr_matrix) -> Floats:
    """(K,) the effective number of patients of each column (G, K) of counts, as
    ``effective_patients``."""
    sums = [np.asarray(counts.power(power).sum(axis=0)).ravel() for power in range(1, 6)]
    return effective_from_sums(*sums, patients=np.asarray((counts > 0).sum(axis=0)).ravel())


def _one_disagreement(
    sums: dict[str, csr_matrix], *, classes: int, readers: int
) -> dict[str, Floats]:
    """What one more item adds to the sums of ``_by_group``: two readings of it (of all readers,
    one) are a grade apart.

    It counts as many times as items of a patient are worth one independent item
    (``images_worth_one``). Its grades are as frequent as those of all pairs.
    """
    pooled = sums["pooled"].toarray().reshape(-1, classes, classes) / 2.0  # both ways
    grade = np.arange(classes, dtype=np.float64)
    if not pooled.sum():
        nothing = {name: np.zeros(matrix.shape[1]) for name, matrix in sums.items()}
        return {**nothing, "pairs": np.zeros((classes, classes))}
    worth = images_worth_one(pooled, grade[:, None] != grade, pooled.sum(axis=(1, 2)))
    share = pooled.sum(axis=(0, 2)) / pooled.sum()
    apart = worth * share[:, None] * wrong_by(1, classes)
    both = apart + apart.T

    def mean(value: Floats) -> float:
        """Of a function (C, C) of the two grades."""
        return float((apart * value).sum())

    one = grade[:, None]
    other = grade[None, :]
    squares = one**2 + other**2
    total = one + other
    of_all = (readers - 1) * one + other
    one_way = [worth, 2.0 * worth, 4.0 * worth, mean(total), mean(squares), mean(total**2) / 2.0]
    complete = [
        worth,
        mean((readers - 1) * one**2 + other**2),
        mean(of_all**2),
        *[mean(of_all) / readers] * readers,
    ]
    return {
        "pairs": apart,
        "pooled": both.ravel(),
        "coincidences": both.ravel(),
        "items": both.ravel() / 2.0,
        "shares": both.sum(axis=1) / 2.0,
        "one_way": np.array(one_way),
        "complete": np.array(complete),
    }


def _by_group(
    readings: Readings, shared: Pairs, owner: Ints, largest: Ints
) -> dict[str, csr_matrix]:
    """What the coefficients are computed from, added up for each of G groups of patients.

    pairs: the tables (G, L·C²) of the largest pairs of readers; pooled: of all pairs, both ways (G,
    C²); coincidences (G, C²); items (G, C²) and shares (G, C), as in ``fleiss_kappa``; one_way and
    complete: as in the ICCs; differences (G, 8R): see ``_differences``.
    """
    classes = len(readings.grades)
    groups = int(owner.max()) + 1
    readers = len(readings.readers)
    visits = shared.visits
    pair_owner = owner[shared.item]

    def summed(rows: Any, columns: Any, values: Any, width: int) -> csr_matrix:
        return csr_matrix((values, (rows, columns)), shape=(groups, width))

    cell = shared.grade_first * classes + shared.grade_second
    mirrored = shared.grade_second * classes + shared.grade_first
    both_ways = np.r_[pair_owner, pair_owner], np.r_[cell, mirrored]
    place = np.full(len(shared.first), -1)
    place[largest] = np.arange(len(largest))
    kept = np.flatnonzero(place[shared.pair] >= 0)
    number = np.bincount(visits.item, minlength=len(readings.items))
    weight = 1.0 / np.maximum(number[shared.item] - 1, 1)
    per_item = weight / np.maximum(number[shared.item], 1)

    total = np.bincount(visits.item, visits.grade, minlength=len(number))
    squares = np.bincount(visits.item, visits.grade.astype(float) ** 2, minlength=len(number))
    several = np.flatnonzero(number > 1)
    n = number[several].astype(float)
    t = total[several]
    q = squares[several]
    one_way = np.stack([np.ones(len(n)), n, n**2, t, q, t**2 / n])
    whole = several[:0]
    if readers > 1:
        whole = np.flatnonzero(number == readers)
    of_whole = np.isin(visits.item, whole)
    beside = number[visits.item] > 1
    sums = _differences(visits, beside, number, total.astype(np.float64))
    reader = visits.reader[beside]
    return {
        "pairs": summed(
            pair_owner[kept],
            place[shared.pair[kept]] * classes**2 + cell[kept],
            np.ones(len(kept)),
            len(largest) * classes**2,
        ),
        "pooled": summed(*both_ways, np.ones(2 * len(cell)), classes**2),
        "coincidences": summed(*both_ways, np.r_[weight, weight], classes**2),
        "items": summed(*both_ways, np.r_[per_item, per_item], classes**2),
        "shares": summed(owner[visits.item], visits.grade, 1.0 / number[visits.item], classes),
        "one_way": summed(
            np.tile(owner[several], 6), np.repeat(np.arange(6), len(several)), one_way.ravel(), 6
        ),
        "complete": summed(
            np.r_[np.tile(owner[whole], 3), owner[visits.item[of_whole]]],
            np.r_[np.repeat(np.arange(3), len(whole)), 3 + visits.reader[of_whole]],
            np.r_[np.ones(len(whole)), squares[whole], total[whole] ** 2, visits.grade[of_whole]],
            3 + readers,
        ),
        "differences": summed(
            np.tile(owner[visits.item[beside]], len(sums)),
            np.concatenate([reader + k * readers for k in range(len(sums))]),
            np.concatenate(sums),
            8 * readers,
        ),
    }


def _differences(visits: Readings, beside: Bools, number: Ints, total: Floats) -> list[Floats]:
    """Of a reader's grade and the mean of the others on the same item: the number of differences,
    their sum and squares; then, of those whose time is known, what the regression on the time
    needs.

    beside: which visits are of items that others have read, too. number, total: (I,) of the
    readings of each item, and of their grades.
    """
    item = visits.item[beside]
    grade = visits.grade[beside].astype(np.float64)
    off = grade - (total[item] - grade) / (number[item] - 1)
    sums = [np.ones(len(off)), off, off**2]
    if visits.times is None:
        return sums
    known = ~np.isnat(visits.times[beside])
    years = np.where(known, visits.times[beside].astype(np.int64), 0) / (365.25 * 86400.0)
    middle = 0.0
    if known.any():
        middle = years[known].mean()
    timed = known.astype(np.float64)
    year = known * (years - middle)
    return [*sums, timed, timed * year, timed * year**2, timed * off, timed * off * year]


def _by_reader(
    readings: Readings, sums: csr_matrix, moves: Floats, level: float, *, worth: float
) -> pd.DataFrame:
    """sums (G, 8R), moves (1 + B, 8R): the differences of ``_by_group``, of each group and of all.
    worth: items that are worth one independent item."""
    readers = len(readings.readers)
    # effective patients of whom others, and dated readings, are known
    beside, dated = (_effective(sums[:, k * readers : (k + 1) * readers]) for k in (0, 3))
    number, total, squares, timed, year, years, off, product = np.split(moves, 8, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        bias = np.where(number > 0, total / number, np.nan)
        spread = np.sqrt(np.maximum(squares[0] / number[0] - bias[0] ** 2, 0.0))
        unequal = timed * years - year**2
        slope = np.where(unequal > 1e-9, (timed * product - year * off) / unequal, np.nan)
    # one more difference by a grade, upwards or downwards
    step = worth / np.maximum(number[0] + worth, 1e-300)
    low, high = ends(bias, beside, level, lower=step, higher=step)
    drift_low, drift_high = ends(slope, dated, level)
    repeated, same = readings.read_twice()
    return pd.DataFrame(
        {
            "reader": readings.readers,
            "readings": np.bincount(readings.reader, minlength=len(readings.readers)),
            "bias": bias[0],
            "bias_low": low,
            "bias_high": high,
            "spread": spread,
            "repeated": repeated,
            "repeated_exact": same,
            "drift": slope[0],
            "drift_low": drift_low,
            "drift_high": drift_high,
        }
    )
