"""What to read next, and by whom, to gain most."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError
from srjt.readers.consensus import Consensus
from srjt.readers.fit import log_columns, state_posterior
from srjt.readers.readings import Readings

__all__ = ["NEW_READER", "expected_gain", "next_readings"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

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
