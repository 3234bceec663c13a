"""What a consensus is good for: a network as one more reader, compared with the others, and what to read next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError
from srjt.ordinal.intervals import Interval, patient_draws
from srjt.readers.agreement import weighted_kappa
from srjt.readers.consensus import Consensus, posterior_median
from srjt.readers.model import (
    Evidence,
    Fit,
    Variants,
    evidence_of,
    fit_variants,
    log_columns,
    maximise,
    state_posterior,
)
from srjt.readers.readings import Readings, first_readings

# Is a network as good as a reader? The network is one more reader among them.

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NetworkComparison:
    """The network beside the readers. Kappas are quadratic; nan where they are undefined.

    ``by_reader`` has a row for each reader that shares items with another one: ``reader``, ``items`` (that others have
    read too), ``network_kappa`` and ``others_kappa`` (the reader's κ with the network, and with the other readers),
    ``reader_to_consensus`` and ``network_to_consensus`` (κ of the reader and of the network with the consensus of all
    *other* readers, on the same items) and ``difference`` (network − reader) with ``low`` and ``high``.
    """

    by_reader: pd.DataFrame
    difference: (
        Interval  # mean over the readers of network − reader, both against the consensus of the others
    )
    margin: float
    not_inferior: bool  # whether the interval lies above −margin
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON keeps them; None where something is undefined."""
        plain: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        rows = self.by_reader.astype(object).where(self.by_reader.notna(), None).to_dict("records")
        values = {k: v if np.isfinite(v) else None for k, v in self.difference._asdict().items()}
        return plain | {"by_reader": rows, "difference": values}


def compare_network(
    readings: Readings,
    predicted: npt.ArrayLike,
    *,
    margin: float = 0.05,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> NetworkComparison:
    """Compare a network with each reader, leaving that reader out of the consensus.

    Both are compared with the consensus of the *other* readers on the items that the reader has read, so neither is
    judged by itself. The network must not have been trained on these items.

    Parameters
    ----------
    readings : Readings
        Its ``reference`` is not used; its ``groups`` are resampled.
    predicted : (I,) array of int
        The network's grade of each item, −1 where there is none.
    margin : float
        The network is not inferior if its κ is at most this much below the readers', with confidence.
    resamples, seed, confidence
        Of the bootstrap over the patients.

    Returns
    -------
    NetworkComparison

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(0, 4, size=200)
    >>> item, reader = np.repeat(np.arange(200), 3), np.tile([0, 1, 2], 200)
    >>> error = np.where(rng.random(600) < 0.3, rng.choice([-1, 1], size=600), 0)
    >>> readings = Readings(
    ...     items=[f"{i}.png" for i in range(200)],
    ...     readers=["Kim", "Lee", "May"],
    ...     grades=("0", "1", "2", "3"),
    ...     item=item,
    ...     reader=reader,
    ...     grade=(true[item] + error).clip(0, 3),
    ... )
    >>> compare_network(readings, true, resamples=100).not_inferior
    True
    """
    Readings.check(readings)
    network = _check(readings, predicted, margin=margin, resamples=resamples, confidence=confidence)
    classes, owner = len(readings.grades), readings.owner()
    weights = np.concatenate([*patient_draws(int(owner.max()) + 1, resamples, seed=seed)])
    visits = first_readings(readings)
    number = np.bincount(visits.item, minlength=len(readings.items))
    tails = ((1.0 - confidence) / 2.0, 1.0 - (1.0 - confidence) / 2.0)
    evidence = evidence_of(Readings(**{**vars(readings), "reference": None}), repeats="one reading")
    variants = fit_variants(evidence)
    rows: list[dict[str, Any]] = []
    draws: list[Floats] = []
    for reader in range(len(readings.readers)):
        own = (visits.reader == reader) & (number[visits.item] > 1) & (network[visits.item] >= 0)
        if not own.any():
            continue
        item, grade = visits.item[own], visits.grade[own]
        others = posterior_median(_without(reader, evidence, variants))
        by = {"classes": classes, "owner": owner[item], "weights": weights}
        reader_kappa = _kappa(grade, others[item], **by)
        network_kappa = _kappa(network[item], others[item], **by)
        low, high = _quantiles((network_kappa - reader_kappa)[1:], tails)
        beside = (visits.reader != reader) & np.isin(visits.item, item)
        mine = np.zeros(len(readings.items), dtype=np.int64)
        mine[item] = grade
        rows.append(
            {
                "reader": readings.readers[reader],
                "items": len(item),
                "network_kappa": float(_kappa(grade, network[item], **by)[0]),
                "others_kappa": _table_kappa(mine[visits.item[beside]], visits.grade[beside], classes),
                "reader_to_consensus": float(reader_kappa[0]),
                "network_to_consensus": float(network_kappa[0]),
                "difference": float(network_kappa[0] - reader_kappa[0]),
                "low": low,
                "high": high,
            }
        )
        draws.append(network_kappa - reader_kappa)
    if not rows:
        raise SrjtError(
            "No item that the network has graded was read by two readers: a reader can only be compared with others."
        )
    with np.errstate(invalid="ignore"):
        defined = [one for one in draws if np.isfinite(one[0])]
        mean = np.nanmean(defined, axis=0) if defined else np.full(1 + resamples, np.nan)
    low, high = _quantiles(mean[1:], tails)
    difference = Interval(float(mean[0]), low, high)
    passed = bool(low > -margin)
    return NetworkComparison(
        by_reader=pd.DataFrame(rows),
        difference=difference,
        margin=margin,
        not_inferior=passed,
        sentence=_sentence(difference, margin=margin, passed=passed, readers=len(rows)),
    )


def _check(
    readings: Readings, predicted: npt.ArrayLike, *, margin: float, resamples: int, confidence: float
) -> Ints:
    given = np.asarray(predicted)
    if given.shape != (len(readings.items),) or given.dtype.kind not in "iu":
        raise SrjtError(f"predicted holds a whole grade, or −1, for each of the {len(readings.items)} items.")
    if (given < -1).any() or (given >= len(readings.grades)).any():
        raise SrjtError(f"Predicted grades are 0 … {len(readings.grades) - 1}, or −1 where there is none.")
    if margin <= 0 or resamples < 1 or not 0.0 < confidence < 1.0:
        raise SrjtError(
            "margin is positive, resamples at least 1 and confidence between 0 and 1; "
            f"got {margin:g}, {resamples} and {confidence:g}."
        )
    return given.astype(np.int64)


def _without(reader: int, evidence: Evidence, variants: Variants) -> Floats:
    """(I, C) the posterior without one reader. The fit of all readers is the start, so few iterations are left."""
    said = evidence.said.copy()
    said.data[said.indices // evidence.classes == reader] = 0.0
    others = replace(evidence, said=said)

    def posterior(fit: Fit) -> Floats:
        own = maximise(
            others, fit.states, fit.family, strength=fit.strength, start=fit, iterations=30, tolerance=2e-4
        )
        return own.posterior

    return variants.mean(posterior)


def _kappa(one: Ints, other: Ints, *, classes: int, owner: Ints, weights: Floats) -> Floats:
    """(1 + B,) quadratic κ of two readers, as it is and of each draw."""
    own = np.zeros((weights.shape[1], classes * classes))
    np.add.at(own, (owner, one * classes + other), 1.0)
    return weighted_kappa((weights @ own).reshape(-1, classes, classes), power=2)


def _table_kappa(one: Ints, other: Ints, classes: int) -> float:
    table = np.zeros((classes, classes))
    np.add.at(table, (one, other), 1.0)
    return float(weighted_kappa(table, power=2))


def _quantiles(draws: Floats, tails: tuple[float, float]) -> tuple[float, float]:
    defined = draws[np.isfinite(draws)]
    if not len(defined):
        return float("nan"), float("nan")
    low, high = np.quantile(defined, tails)
    return float(low), float(high)


def _sentence(difference: Interval, *, margin: float, passed: bool, readers: int) -> str:
    who = f"{readers} readers" if readers > 1 else "the one reader"
    if not np.isfinite(difference.value):
        return f"The network cannot be compared with {who}: all grades are the same."
    value, low, high = difference
    if high < 0:
        span = f"κ is {-value:.2f} lower ({-high:.2f}–{-low:.2f})"
    elif low > 0:
        span = f"κ is {value:.2f} higher ({low:.2f}–{high:.2f})"
    else:
        span = f"κ differs by {value:+.2f} ({low:+.2f} to {high:+.2f})"
    return f"Non-inferiority to {who} (margin {margin:g} κ) {'' if passed else 'not '}shown: {span}."


# What to read next, and by whom, to gain most.

NEW_READER = "new reader"  # who has read nothing yet

_CELLS = 4_000_000  # items × readers at once


def next_readings(
    consensus: Consensus,
    readings: Readings,
    *,
    count: int,
    per_reader: int | None = None,
    new_reader: bool = False,
) -> pd.DataFrame:
    """The readings that reduce the expected absolute error of the consensus most.

    Each item occurs at most once, and no reader is asked for an item twice. Items with a reference are left out.

    Parameters
    ----------
    consensus : Consensus
        Of the same readings.
    readings : Readings
    count : int
        How many readings are wanted.
    per_reader : int, optional
        The most readings by one reader. Default: no limit, so the best reader may get all.
    new_reader : bool
        Ask one new reader, ``"new reader"``, who reads like the average of the others: for readings where every reader
        has read every item.

    Returns
    -------
    DataFrame
        ``item``, ``reader`` and ``gain``, the expected reduction of the item's expected absolute error; the largest
        gain first. It is shorter than ``count`` if readers have no more to read.

    Examples
    --------
    >>> from srjt.readers import consensus
    >>> readings = Readings(
    ...     items=["agreed", "doubtful"],
    ...     readers=["Kim", "Lee", "May"],
    ...     grades=("0", "1", "2"),
    ...     item=[0, 0, 1, 1],
    ...     reader=[0, 1, 0, 1],
    ...     grade=[0, 0, 0, 2],
    ... )
    >>> next_readings(consensus(readings), readings, count=1)[["item", "reader"]].values.tolist()
    [['doubtful', 'May']]
    """
    Readings.check(readings)
    if count < 1 or (per_reader is not None and per_reader < 1):
        raise SrjtError(f"count and per_reader are at least 1; got {count} and {per_reader}.")
    if consensus.items != readings.items or consensus.readers != readings.readers:
        raise SrjtError(
            "The consensus is of other items or readers: pass the readings that it was made from."
        )
    names = [NEW_READER] if new_reader else readings.readers
    item, reader, gain = _candidates(
        consensus, readings, count=count, per_reader=per_reader, new_reader=new_reader
    )
    order = np.argsort(-gain, kind="stable")
    taken: list[int] = []
    asked = np.zeros(len(names), dtype=np.int64)
    used: set[int] = set()
    for one in order.tolist():
        who = int(reader[one])
        if len(taken) == count:
            break
        if int(item[one]) in used or (per_reader is not None and asked[who] >= per_reader):
            continue
        used.add(int(item[one]))
        asked[who] += 1
        taken.append(one)
    return pd.DataFrame(
        {
            "item": [readings.items[i] for i in item[taken]],
            "reader": [names[r] for r in reader[taken]],
            "gain": gain[taken],
        }
    )


def expected_gain(consensus: Consensus, items: Ints, *, new_reader: bool = False) -> Floats:
    """The expected reduction of the expected absolute error by one more reading.

    Parameters
    ----------
    consensus : Consensus
    items : (n,) array of int
        Positions of items.
    new_reader : bool
        By a new reader, who reads like the average of the others.

    Returns
    -------
    (n, R) array of float, or (n, 1) of a new reader
        For each item and each reader; never negative.
    """
    evidence, classes = consensus.evidence, len(consensus.grades)
    distance = np.abs(np.subtract.outer(np.arange(classes), np.arange(classes))).astype(np.float64)
    known: list[tuple[Floats, Floats, Floats]] = []
    share = consensus.readings / consensus.readings.sum()
    for weight, fit in zip(consensus.variants.weights, consensus.variants.fits, strict=True):
        prior = fit.states.prior(fit.grades, fit.kinds)
        columns = log_columns(fit.matrices)
        by_state = state_posterior(evidence, states=fit.states, prior=prior, columns=columns, rows=items)
        matrices = np.einsum("r,rsj->sj", share, fit.matrices)[None] if new_reader else fit.matrices
        known.append(
            (weight * by_state, matrices, fit.states.of_grade @ distance)
        )  # (S, C): cost of saying a grade
    now = np.sum([by_state @ cost for by_state, _, cost in known], axis=0).min(axis=1)
    after = np.zeros((len(items), 1 if new_reader else evidence.readers))
    for said in range(classes):
        risks = [
            np.sum(
                [by_state @ (matrices[:, :, said] * cost[:, grade]).T for by_state, matrices, cost in known],
                axis=0,
            )
            for grade in range(classes)
        ]
        after += np.minimum.reduce(risks)  # the best grade after this reading
    return np.asarray(np.maximum(now[:, None] - after, 0.0))


def _candidates(
    consensus: Consensus, readings: Readings, *, count: int, per_reader: int | None, new_reader: bool
) -> tuple[Ints, Ints, Floats]:
    """Items and readers with their gains, as many as may matter.

    A gain is at most the item's risk: items are looked at by falling risk until no other can come among the first.
    Limits per reader send an item to its second-best reader, so more of them are then looked at.
    """
    readers = 1 if new_reader else len(readings.readers)
    done = np.unique(readings.item * readers + readings.reader)
    enough = count if per_reader is None else 4 * count
    found: list[tuple[Ints, Ints, Floats]] = []
    best = np.zeros(0)
    for items in _by_risk(consensus, readings, size=max(1, _CELLS // readers)):
        if len(best) >= enough and np.sort(best)[-enough] >= consensus.risk[items[0]]:
            break
        gain = expected_gain(consensus, items, new_reader=new_reader)
        if not new_reader:
            pair = items[:, None] * readers + np.arange(readers)
            gain[np.isin(pair, done)] = -1.0
        best = np.concatenate([best, gain.max(axis=1)])
        place, reader = np.nonzero(gain >= 0)
        found.append((items[place], reader, gain[place, reader]))
    if not found:
        none = np.zeros(0, dtype=np.int64)
        return none, none, np.zeros(0)
    item, reader, gain = (np.concatenate(part) for part in zip(*found, strict=True))
    return item, reader, gain


def _by_risk(consensus: Consensus, readings: Readings, *, size: int) -> Iterator[Ints]:
    """Items without a reference by falling risk, in chunks."""
    order = np.argsort(-consensus.risk, kind="stable")
    if readings.reference is not None:
        order = order[readings.reference[order] < 0]
    size = min(size, 2000)
    for start in range(0, len(order), size):
        yield order[start : start + size]
