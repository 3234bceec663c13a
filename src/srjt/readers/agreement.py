"""How well readers agree: weighted κ of each pair, Krippendorff's α, and what each reader does beside the others.

Only pairs of readers that share items are kept, so thousands of readers with a few readings each are no burden.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from srjt.errors import SrjtError, count_of
from srjt.ordinal.intervals import Interval
from srjt.readers.coefficients import krippendorff_alpha, weighted_kappa
from srjt.readers.notebook import agreement_html, with_interval
from srjt.readers.pairs import Pairs, read_twice, shared_readings
from srjt.readers.readings import Readings
from srjt.readers.resampling import draws, ends, interval_of, interval_of_share

__all__ = ["Agreement", "agreement"]

Floats = npt.NDArray[np.float64]

_PAIRS = 1000  # pairs with intervals: those with most shared items


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Agreement of readers. nan stands where something is undefined: no shared items, or one grade only.

    ``pairs`` has a row for each pair of readers with shared items: ``first`` and ``second`` (positions in ``readers``),
    ``items`` (how many both have read), ``quadratic`` (weighted κ) with its interval ``low`` and ``high`` (of the 1,000
    pairs with most items), ``linear``, ``exact`` and ``within_one`` (shares).

    ``by_reader`` has a row for each reader: ``reader``, ``readings``, ``bias`` (grades higher than the others on the
    same items) with ``bias_low`` and ``bias_high``, ``spread`` (standard deviation of that difference), ``repeated``
    (items read twice), ``repeated_exact`` (share of equal grades among them) and ``drift`` (grades per year by which
    the bias grows) with ``drift_low`` and ``drift_high``.
    """

    readers: list[str]
    pairs: pd.DataFrame
    by_reader: pd.DataFrame
    alpha: Interval  # Krippendorff's α for ordinal data
    exact: Interval  # share of equal grades among all pairs of readings of an item
    within_one: Interval
    quadratic: Interval  # weighted κ over all pairs of readings of an item
    shared_items: int  # items that two readers have read

    def __repr__(self) -> str:
        return f"<Agreement: {self._counts()}, quadratic κ {with_interval(self.quadratic)}>"

    def _repr_html_(self) -> str:
        overall = {
            "quadratic weighted κ": self.quadratic,
            "Krippendorff's α": self.alpha,
            "same grade": self.exact,
            "at most one grade apart": self.within_one,
        }
        tables = {"pairs": self.pairs, "by_reader": self.by_reader}
        return agreement_html(self._counts(), overall, readers=self.readers, **tables)

    def _counts(self) -> str:
        return f"{count_of(len(self.readers), 'reader')}, {count_of(self.shared_items, 'shared item')}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON keeps them; None where something is undefined."""
        plain: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in plain.items():
            if isinstance(value, pd.DataFrame):
                plain[name] = [{k: _plain(v) for k, v in row.items()} for row in value.to_dict("records")]
            elif isinstance(value, Interval):
                plain[name] = {k: _plain(v) for k, v in value._asdict().items()}
        return plain


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def agreement(
    readings: Readings, *, resamples: int = 1000, seed: int = 0, confidence: float = 0.95
) -> Agreement:
    """Agreement of each pair of readers and of all, with bootstrap intervals over the patients.

    Parameters
    ----------
    readings : Readings
        Its ``groups`` are resampled. Where a reader has read an item several times, the first reading counts.
    resamples : int
        Number of bootstrap draws; 0 makes the intervals as narrow as the values. Where no draw differs, as where all
        grades are equal, a share gets Wilson's interval.
    seed : int
    confidence : float
        Of the intervals.

    Returns
    -------
    Agreement

    Examples
    --------
    >>> readings = Readings(
    ...     items=["a", "b", "c"],
    ...     readers=["Kim", "Lee"],
    ...     grades=("0", "1", "2"),
    ...     item=[0, 0, 1, 1, 2, 2],
    ...     reader=[0, 1, 0, 1, 0, 1],
    ...     grade=[0, 0, 1, 1, 2, 1],
    ... )
    >>> found = agreement(readings, resamples=0)
    >>> round(float(found.pairs["quadratic"][0]), 3), round(found.exact.value, 3)
    (0.667, 0.667)
    """
    Readings.check(readings)
    if resamples < 0 or not 0.0 < confidence < 1.0:
        raise SrjtError(
            f"resamples counts draws and confidence lies between 0 and 1; got {resamples} and {confidence:g}."
        )
    tails = ((1.0 - confidence) / 2.0, 1.0 - (1.0 - confidence) / 2.0)
    shared = shared_readings(readings)
    classes = len(readings.grades)
    owner = readings.owner()
    groups = int(owner.max()) + 1
    first = np.zeros((len(shared.first), classes, classes))  # the table of each pair
    np.add.at(first, (shared.pair, shared.grade_first, shared.grade_second), 1.0)
    size = first.sum(axis=(1, 2))
    largest = np.sort(np.argsort(-size, kind="stable")[:_PAIRS])
    own, pooled, coincidences, differences = _by_group(readings, shared, owner, largest)
    tables: list[Floats] = []
    alphas: list[Floats] = []
    kappas: list[Floats] = []
    moves: list[Floats] = []
    for weights in draws(groups, resamples, seed=seed, width=max(own.shape[1], differences.shape[1])):
        table = np.asarray((own.T @ weights.T).T).reshape(len(weights), -1, classes, classes)
        kappas.append(weighted_kappa(table, power=2))
        tables.append(np.asarray((pooled.T @ weights.T).T).reshape(-1, classes, classes))
        alphas.append(krippendorff_alpha(np.asarray((coincidences.T @ weights.T).T)))
        moves.append(np.asarray((differences.T @ weights.T).T))
    total = np.concatenate(tables)
    total = total + total.transpose(0, 2, 1)  # neither reader is the first
    low, high = np.full((2, len(first)), np.nan)
    low[largest], high[largest] = ends(np.concatenate(kappas), tails)
    distance = np.abs(np.subtract.outer(np.arange(classes), np.arange(classes)))
    pairs = pd.DataFrame(
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
        }
    )
    return Agreement(
        readers=readings.readers,
        pairs=pairs,
        by_reader=_by_reader(readings, np.concatenate(moves), tails),
        alpha=interval_of(np.concatenate(alphas), tails),
        exact=interval_of_share(total, distance == 0, shared, owner, tails),
        within_one=interval_of_share(total, distance <= 1, shared, owner, tails),
        quadratic=interval_of(weighted_kappa(total, power=2), tails),
        shared_items=len(np.unique(shared.item)),
    )


def _by_group(
    readings: Readings, shared: Pairs, owner: npt.NDArray[np.int64], largest: npt.NDArray[np.int64]
) -> tuple[csr_matrix, csr_matrix, csr_matrix, csr_matrix]:
    """Of each group: the tables of the largest pairs (G, L·C²) and of all together (G, C²), the coincidences (G, C²),
    and the readers' differences (G, 8R).

    The differences are of a reader's grade and the mean of the others on the same item: their number, sum and squares;
    then, of those whose time is known, what the regression on the time needs.
    """
    classes, groups = len(readings.grades), int(owner.max()) + 1
    cell = shared.grade_first * classes + shared.grade_second
    place = np.full(len(shared.first), -1)
    place[largest] = np.arange(len(largest))
    kept = np.flatnonzero(place[shared.pair] >= 0)
    own = csr_matrix(
        (np.ones(len(kept)), (owner[shared.item[kept]], place[shared.pair[kept]] * classes**2 + cell[kept])),
        shape=(groups, len(largest) * classes**2),
    )
    pooled = csr_matrix((np.ones(len(cell)), (owner[shared.item], cell)), shape=(groups, classes**2))
    visits = shared.visits
    number = np.bincount(visits.item, minlength=len(readings.items))
    weight = 1.0 / np.maximum(number[shared.item] - 1, 1)
    mirrored = shared.grade_second * classes + shared.grade_first
    coincidences = csr_matrix(
        (np.r_[weight, weight], (np.r_[owner[shared.item], owner[shared.item]], np.r_[cell, mirrored])),
        shape=(groups, classes**2),
    )
    beside = number[visits.item] > 1
    item, reader, grade = visits.item[beside], visits.reader[beside], visits.grade[beside].astype(np.float64)
    total = np.bincount(visits.item, visits.grade, minlength=len(readings.items))
    off = grade - (total[item] - grade) / (number[item] - 1)
    timed, year = _years(readings, visits.row[beside])
    sums = [timed**0, off, off**2, timed, timed * year, timed * year**2, timed * off, timed * off * year]
    columns = np.concatenate([reader + k * len(readings.readers) for k in range(len(sums))])
    differences = csr_matrix(
        (np.concatenate(sums), (np.tile(owner[item], len(sums)), columns)),
        shape=(groups, len(sums) * len(readings.readers)),
    )
    return own, pooled, coincidences, differences


def _years(readings: Readings, rows: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Of each row whether its time is known, and the years since the mean time."""
    if readings.times is None:
        return np.zeros(len(rows)), np.zeros(len(rows))
    known = ~np.isnat(readings.times[rows])
    seconds = np.where(known, readings.times[rows].astype("datetime64[s]").astype(np.int64), 0).astype(float)
    years = seconds / (365.25 * 86400.0)
    middle = years[known].mean() if known.any() else 0.0
    return known.astype(np.float64), np.where(known, years - middle, 0.0)


def _by_reader(readings: Readings, moves: Floats, tails: tuple[float, float]) -> pd.DataFrame:
    number, total, squares, timed, year, years, off, product = np.split(moves, 8, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        bias = np.where(number > 0, total / number, np.nan)
        spread = np.sqrt(np.maximum(squares[0] / number[0] - bias[0] ** 2, 0.0))
        unequal = timed * years - year**2
        slope = np.where(unequal > 1e-9, (timed * product - year * off) / unequal, np.nan)
    low, high = ends(bias, tails)
    drift_low, drift_high = ends(slope, tails)
    repeated, same = read_twice(readings)
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
