"""How well readers agree: coefficients, who grades higher, what changes on a second reading, all with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from srjt.errors import SrjtError, count_of
from srjt.ordinal.decisions import proportion_interval
from srjt.ordinal.intervals import Interval, patient_draws
from srjt.progress import html_block, html_table, html_text
from srjt.readers.readings import Pairs, Readings, read_twice, shared_readings

# Coefficients of agreement from counts: weighted κ of two readers, Krippendorff's α of any number.

Floats = npt.NDArray[np.float64]


def weighted_kappa(tables: npt.ArrayLike, *, power: int) -> Floats:
    """Weighted κ of tables of two readers' grades.

    Parameters
    ----------
    tables : (…, C, C) array
        Counts: the one reader's grade in rows, the other's in columns.
    power : {1, 2}
        1: linear, 2: quadratic weights.

    Returns
    -------
    (…) array of float
        nan where both readers gave one and the same grade, or nothing is counted.

    Examples
    --------
    >>> float(weighted_kappa([[20, 5], [10, 15]], power=2).round(3))
    0.4
    """
    counts = np.asarray(tables, dtype=np.float64)
    classes = counts.shape[-1]
    weight = np.abs(np.subtract.outer(np.arange(classes), np.arange(classes))).astype(np.float64) ** power
    size = counts.sum(axis=(-2, -1))
    chance = np.einsum("...i,ij,...j->...", counts.sum(axis=-1), weight, counts.sum(axis=-2))
    seen = (counts * weight).sum(axis=(-2, -1)) * size
    return np.asarray(np.where(chance > 0, 1.0 - seen / np.where(chance > 0, chance, 1.0), np.nan))


def krippendorff_alpha(coincidences: npt.ArrayLike) -> Floats:
    """Krippendorff's α for ordinal grades.

    Parameters
    ----------
    coincidences : (…, C·C) array
        Coincidence matrices: each ordered pair of readings of an item counts 1 / (readings of the item − 1).

    Returns
    -------
    (…) array of float
        nan where only one grade occurs.

    Examples
    --------
    >>> float(krippendorff_alpha([3, 1, 1, 3]).round(3))
    0.562
    """
    flat = np.asarray(coincidences, dtype=np.float64)
    classes = round(flat.shape[-1] ** 0.5)
    table = flat.reshape(*flat.shape[:-1], classes, classes)
    share = table.sum(axis=-1)  # (…, C)
    size = share.sum(axis=-1)
    # the distance of two grades is the number of readings from the one to the other, half of both ends
    rank = share.cumsum(axis=-1) - share / 2.0
    distance = (rank[..., :, None] - rank[..., None, :]) ** 2
    chance = (share[..., :, None] * share[..., None, :] * distance).sum(axis=(-2, -1))
    seen = (table * distance).sum(axis=(-2, -1)) * np.maximum(size - 1.0, 0.0)
    return np.asarray(np.where(chance > 0, 1.0 - seen / np.where(chance > 0, chance, 1.0), np.nan))


# Intervals from bootstrap draws of patients.


def ends(values: Floats, tails: tuple[float, float]) -> tuple[Floats, Floats]:
    """Quantiles over the draws, the first row being the value itself; nan where there is no value."""
    drawn = values[1:] if len(values) > 1 else values
    defined = np.isfinite(drawn)
    found = np.full((2, values.shape[1]), np.nan)
    whole = defined.all(axis=0) & np.isfinite(values[0])
    some = defined.any(axis=0) & np.isfinite(values[0]) & ~whole
    if whole.any():  # much faster than nanquantile
        found[:, whole] = np.quantile(drawn[:, whole], tails, axis=0)
    if some.any():
        found[:, some] = np.nanquantile(drawn[:, some], tails, axis=0)
    return np.minimum(found[0], values[0]), np.maximum(found[1], values[0])


def interval_of(values: Floats, tails: tuple[float, float]) -> Interval:
    low, high = ends(values[:, None], tails)
    return Interval(float(values[0]), float(low[0]), float(high[0]))


def interval_of_share(
    tables: Floats,
    near: npt.NDArray[np.bool_],
    shared: Pairs,
    owner: npt.NDArray[np.int64],
    tails: tuple[float, float],
) -> Interval:
    """The share of pairs in the cells (C, C) of ``near``. tables: (1 + B, C, C), of all pairs and of the draws."""
    size = tables.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = interval_of(tables[:, near].sum(axis=1) / size, tails)
    if len(tables) == 1 or found.low != found.high:
        return found
    return proportion_interval(
        near[shared.grade_first, shared.grade_second],
        groups=owner[shared.item].tolist(),
        level=tails[1] - tails[0],
    )


# Agreement and consensus of readers as a notebook shows them.

PAIRS = 15  # shown; a crowd has hundreds


def agreement_html(
    title: str,
    overall: Mapping[str, Interval],
    *,
    readers: Sequence[str],
    pairs: pd.DataFrame,
    by_reader: pd.DataFrame,
) -> str:
    """Of all readings, of each pair of readers, of each reader; tables as in ``Agreement``."""
    shown = [
        (readers[row["first"]], readers[row["second"]], f"{row['items']:,}", _number(row["quadratic"]),
         _number(row["exact"]))
        for row in pairs.head(PAIRS).to_dict("records")
    ]  # fmt: skip
    more = len(pairs) - len(shown)
    single = [
        (row["reader"], f"{row['readings']:,}", _number(row["bias"], sign="+"), _number(row["spread"]))
        for row in by_reader.to_dict("records")
    ]
    return html_block(
        title,
        html_table((), [(name, with_interval(value)) for name, value in overall.items()], text_columns=2),
        html_table(("first", "second", "shared items", "quadratic κ", "same grade"), shown, text_columns=2),
        html_text(f"… and {more:,} more pairs" if more else ""),
        html_table(("reader", "readings", "bias", "spread"), single),
        html_text("Bias: by how many grades a reader reads higher than the others."),
    )


def consensus_html(
    title: str, by_reader: Sequence[tuple[str, int, Interval, float, float]], *notes: str
) -> str:
    """by_reader: name, readings, share of wrong readings, bias, spread."""
    rows = [
        (
            name,
            f"{count:,}",
            f"{wrong.value:.1%}",
            f"{wrong.low:.1%} – {wrong.high:.1%}",
            f"{bias:+.2f}",
            f"{spread:.2f}",
        )
        for name, count, wrong, bias, spread in by_reader
    ]  # fmt: skip
    header = ("reader", "readings", "wrong", "interval", "bias", "spread")
    return html_block(title, html_table(header, rows) if rows else "", *map(html_text, notes))


def with_interval(interval: Interval) -> str:
    """ "0.71 (0.65 to 0.77)"; – where it is undefined, and no interval where no draw differs."""
    if interval.high - interval.low < 1e-9:
        return _number(interval.value)
    return f"{_number(interval.value)} ({_number(interval.low)} to {_number(interval.high)})"


def _number(value: float, *, sign: str = "") -> str:
    return f"{value:{sign}.2f}" if math.isfinite(value) else "–"


# How well readers agree: weighted κ of each pair, Krippendorff's α, and what each reader does beside the
# others.
#
# Only pairs of readers that share items are kept, so thousands of readers with a few readings each are no
# burden.

# of patients that are resampled together, where there are more: their error is 3 % of a width
_BUNDLES = 2000
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
    owner = readings.owner() % _BUNDLES
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
    for weights in patient_draws(groups, resamples, seed=seed, width=max(own.shape[1], differences.shape[1])):
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
    sums = [np.ones(len(off)), off, off**2]
    if readings.times is not None:
        timed, year = _years(readings.times[visits.row[beside]])
        sums += [timed, timed * year, timed * year**2, timed * off, timed * off * year]
    columns = np.concatenate([reader + k * len(readings.readers) for k in range(len(sums))])
    differences = csr_matrix(
        (np.concatenate(sums), (np.tile(owner[item], len(sums)), columns)),
        shape=(groups, 8 * len(readings.readers)),
    )
    return own, pooled, coincidences, differences


def _years(times: npt.NDArray[np.datetime64]) -> tuple[Floats, Floats]:
    """Of each time whether it is known, and the years since the mean time."""
    timed = ~np.isnat(times)
    seconds = np.where(timed, times.astype("datetime64[s]").astype(np.int64), 0).astype(float)
    years = seconds / (365.25 * 86400.0)
    middle = years[timed].mean() if timed.any() else 0.0
    return timed.astype(np.float64), np.where(timed, years - middle, 0.0)


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
