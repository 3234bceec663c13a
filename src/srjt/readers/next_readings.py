"""What to read next, and by whom, to gain most for a statement: the consensus, the readers' error
rates, or the mean absolute error of a model.

A reading gains what it is expected to take from the doubt about the statement, before anybody knows
what it will say. The statements want different readings. The consensus wants a second opinion where
readers may be wrong. Error rates want items whose true grade is certain, by readers of whom little
is known. The error of a model wants items on which it is not known whether the model is right,
which need not be those on which the grade is unclear.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd

from srjt.errors import SrjtError, unknown_name
from srjt.readers.consensus import Consensus
from srjt.readers.readings import Bools, Floats, Ints, Readings

Goal = Literal["consensus", "readers", "model"]

NEW_READER = "new reader"  # who has read nothing yet

_CELLS = 4_000_000  # items × readers at once
_RATE_UNKNOWN = 12.0  # 1 / variance of an error rate of which nothing is known


def next_readings(
    consensus: Consensus,
    readings: Readings,
    *,
    count: int,
    per_reader: int | None = None,
    new_reader: bool = False,
    goal: Goal = "consensus",
    answers: Ints | None = None,
    unread: Sequence[str] = (),
    unread_by_all: bool = False,
) -> pd.DataFrame:
    """The readings that make a statement most certain.

    Each item occurs at most once, and no reader is asked for an item twice. Items with a reference
    are left out, unless readers are to be known. Of equal gains, the readers get as many each.

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
        Ask one new reader, ``"new reader"``, who reads like the average of the others: for readings
        where every reader has read every item.
    goal : {"consensus", "readers", "model"}
        What is to be known: the true grades (the gain is the expected reduction of the item's
        expected absolute error), the error rate of each reader (of the rate's variance), or the
        mean absolute error of a model (of the variance of the item's absolute error).
    answers : (I,) array of int, optional
        With ``goal="model"``: the grade that the model predicts for each item; −1 for items that
        it was not asked.
    unread : sequence of str
        Items that nobody has read, which may be read, too: the first ones first.
    unread_by_all : bool
        With the goal "consensus": such an item occurs once for each reader, so that the readings
        also tell how well readers agree.

    Returns
    -------
    DataFrame
        ``item``, ``reader`` and ``gain``; the largest gain first. It is shorter than ``count`` if
        readers have no more to read.

    Examples
    --------
    >>> from srjt.readers import consensus
    >>> names = {"items": ["agreed", "doubtful"], "readers": ["Kim", "Lee", "May"]}
    >>> given = {"item": [0, 0, 1, 1], "reader": [0, 1, 0, 1], "grade": [0, 0, 0, 2]}
    >>> readings = Readings(**names, grades=("0", "1", "2"), **given)
    >>> next_readings(consensus(readings), readings, count=1)[["item", "reader"]].values.tolist()
    [['doubtful', 'May']]
    """
    Readings.check(readings)
    if count < 1 or (per_reader is not None and per_reader < 1):
        raise SrjtError(
            f"count and per_reader are at least 1; got {count} and {per_reader}.",
            code="out_of_bounds",
            option="count",
        )
    if consensus.items != readings.items or consensus.readers != readings.readers:
        raise SrjtError(
            "The consensus is of other items or readers: pass the readings that it is of.",
            code="no_match",
        )
    if goal not in get_args(Goal):
        raise unknown_name("goal of further readings", goal, get_args(Goal))
    if (goal == "model") != (answers is not None):
        raise SrjtError(
            "answers, the grades of a model, belong to the goal 'model' alone.",
            code="option_without_effect",
            option="answers",
        )
    names = [NEW_READER] if new_reader else readings.readers
    # a limit sends an item to its second-best reader
    enough = count if per_reader is None else 4 * count
    if goal != "consensus":
        enough = len(readings.items)
    candidates = [
        _candidates(
            consensus, readings, enough=enough, new_reader=new_reader, goal=goal, answers=answers
        )
    ]
    if unread and goal != "model":  # of these, the model's answers are not known
        first = len(readings.items)
        new = np.arange(first, first + min(len(unread), count))
        parts = _parts(consensus, None, new_reader=new_reader)
        of_new = np.tile(_gain(consensus, parts, goal=goal, new_reader=new_reader), (len(new), 1))
        place, by = np.indices(of_new.shape).reshape(2, -1)
        candidates.append((new[place], by, of_new.ravel()))
    item, reader = (np.concatenate([one[part] for one in candidates]) for part in (0, 1))
    together = (item >= len(readings.items)) & unread_by_all
    gain = np.concatenate([one[2] for one in candidates])
    items = [*readings.items, *unread]
    limit = count if per_reader is None else per_reader
    if goal == "readers":
        known = _rate_information(consensus, readings, new_reader=new_reader)
        taken, gain = _take_in_turn(item, reader, gain, known, count=count, limit=limit)
    else:
        taken = _take(item, reader, gain, count=count, limit=limit, together=together)
        gain = gain[taken]
    return pd.DataFrame(
        {
            "item": [items[row] for row in item[taken]],
            "reader": [names[place] for place in reader[taken]],
            "gain": gain,
        }
    )


def _take(
    item: Ints, reader: Ints, gain: Floats, *, count: int, limit: int, together: Bools
) -> list[int]:
    """The candidates with the largest gains, each item once; of those with equal gains, those of
    the readers who have fewest.

    together: (n,) candidates of items that all readers read, or none: by item, then by reader. The
    last such item may be more than was asked.
    """
    worth = gain.copy()
    if together.any():
        readers = int(reader.max()) + 1
        worth[together] = gain[together].reshape(-1, readers).mean(axis=1).repeat(readers)
    worth = (worth / max(worth.max(initial=0.0), 1e-300)).round(6)
    order = np.argsort(-worth, kind="stable")
    taken: list[int] = []
    used: set[int] = set()
    given: Counter[int] = Counter()  # items to each reader
    for equal in np.split(order, np.flatnonzero(np.diff(worth[order])) + 1):
        queues = _queues(equal, reader, together)
        while queues and len(taken) < count:
            for queue in queues:
                while queue and item[queue[0][0]] in used:
                    queue.popleft()
            queues = [queue for queue in queues if queue]
            queues = [q for q in queues if all(given[one] < limit for one in reader[q[0]].tolist())]
            if queues:
                fewest = min(queues, key=lambda q: max(given[one] for one in reader[q[0]].tolist()))
                chosen = fewest.popleft()
                used.add(int(item[chosen[0]]))
                given.update(reader[chosen].tolist())
                taken += chosen
    return taken


def _queues(rows: Ints, reader: Ints, together: Bools) -> list[deque[list[int]]]:
    """Candidates that are taken at once: of each reader one at a time, and all of an item."""
    alone = rows[~together[rows]]
    alone = alone[np.argsort(reader[alone], kind="stable")]
    parts = np.split(alone, np.flatnonzero(np.diff(reader[alone])) + 1)
    queues = [deque([one] for one in part.tolist()) for part in parts]
    if together[rows].any():
        readers = int(reader.max()) + 1
        queues.append(deque(np.sort(rows[together[rows]]).reshape(-1, readers).tolist()))
    return queues


def _take_in_turn(
    item: Ints, reader: Ints, told: Floats, known: Floats, *, count: int, limit: int
) -> tuple[list[int], Floats]:
    """As ``_take``, where a reading makes the next one of the same reader less valuable; and the
    gains.

    told: the information of each candidate about its reader's rate. known: (R,) the information so
    far.
    """
    queues = [np.flatnonzero(reader == one) for one in range(len(known))]
    queues = [queue[np.argsort(-told[queue], kind="stable")] for queue in queues]
    place = np.zeros(len(known), dtype=np.int64)
    known = known.copy()
    given = np.zeros(len(known), dtype=np.int64)
    used: set[int] = set()
    taken: list[int] = []
    gains: list[float] = []
    while len(taken) < count:
        best = np.zeros(len(known))
        for one, queue in enumerate(queues):
            while place[one] < len(queue) and item[queue[place[one]]] in used:
                place[one] += 1
            if place[one] < len(queue) and given[one] < limit:
                more = told[queue[place[one]]]
                best[one] = more / (known[one] * (known[one] + more))
        chosen = int(best.argmax())
        if best[chosen] <= 0.0:
            break
        candidate = int(queues[chosen][place[chosen]])
        taken.append(candidate)
        gains.append(float(best[chosen]))
        used.add(int(item[candidate]))
        given[chosen] += 1
        known[chosen] += told[candidate]
    return taken, np.array(gains)


def expected_gain(
    consensus: Consensus,
    items: Ints,
    *,
    new_reader: bool = False,
    goal: Goal = "consensus",
    answers: Ints | None = None,
) -> Floats:
    """(n, R) what one more reading of items (n,) by each reader is expected to gain.

    It is never negative. With ``new_reader`` (n, 1): of a reader who reads like the average of the
    others. goal "readers": the Fisher information about the reader's error rate.
    """
    parts = _parts(consensus, items, new_reader=new_reader)
    if goal == "model":
        assert answers is not None
        return _model_gain(parts, answers[items], classes=len(consensus.grades))
    return _gain(consensus, parts, goal=goal, new_reader=new_reader)


def _gain(consensus: Consensus, parts: _Parts, *, goal: Goal, new_reader: bool) -> Floats:
    """(n, R) for the consensus or the readers."""
    if goal == "readers":
        return _told_of_rate(parts, _rates(consensus, new_reader=new_reader))
    return _consensus_gain(parts, classes=len(consensus.grades))


# Of each variant of the model: (n, S) p(variant, state | readings), (R, S, C) what readers say, and
# (S, C) the states' grades, one-hot.
_Parts = list[tuple[Floats, Floats, Floats]]


def _parts(consensus: Consensus, items: Ints | None, *, new_reader: bool) -> _Parts:
    """items: None is one item without readings."""
    variants = consensus.variants
    share = consensus.readings / consensus.readings.sum()
    parts: _Parts = []
    for weight, fit in zip(variants.weights, variants.fits, strict=True):
        matrices = np.einsum("r,rsj->sj", share, fit.matrices)[None] if new_reader else fit.matrices
        by_state = weight * (
            fit.prior[None] if items is None else fit.by_state(variants.evidence, items)
        )
        parts.append((by_state, matrices, fit.states.of_grade))
    return parts


def _readers(parts: _Parts) -> int:
    _, matrices, _ = parts[0]
    return len(matrices)


def _distance(classes: int) -> Floats:
    grade = np.arange(classes)
    return np.asarray(np.abs(grade[:, None] - grade), dtype=np.float64)


def _consensus_gain(parts: _Parts, *, classes: int) -> Floats:
    """The expected reduction of the expected absolute error."""
    distance = _distance(classes)
    costs = [of_grade @ distance for _, _, of_grade in parts]
    known = [by_state for by_state, _, _ in parts]
    now = np.sum([one @ cost for one, cost in zip(known, costs, strict=True)], axis=0).min(axis=1)
    after = np.zeros((len(now), _readers(parts)))

    def risk(said: int, grade: int) -> Floats:
        """(n, R) of this grade after this reading, times the reading's probability."""
        each = [
            by_state @ (matrices[:, :, said] * cost[:, grade]).T
            for (by_state, matrices, _), cost in zip(parts, costs, strict=True)
        ]
        return np.asarray(np.sum(each, axis=0))

    for said in range(classes):
        # the best grade
        after += np.minimum.reduce([risk(said, grade) for grade in range(classes)])
    return np.asarray(np.maximum(now[:, None] - after, 0.0))


def _model_gain(parts: _Parts, answers: Ints, *, classes: int) -> Floats:
    """The expected reduction of the variance of |answer − true grade|; 0 where there is no
    answer."""
    error = _distance(classes)[answers]  # (n, C)
    expected = np.zeros((len(answers), _readers(parts)))
    for said in range(classes):
        probability = np.zeros_like(expected)
        mean = np.zeros_like(expected)
        for by_state, matrices, of_grade in parts:
            probability += by_state @ matrices[:, :, said].T
            mean += (by_state * (error @ of_grade.T)) @ matrices[:, :, said].T
        # E[mean²]; the mean is not divided by the probability yet
        expected += mean**2 / np.maximum(probability, 1e-300)
    now = np.zeros(len(answers))
    for by_state, _, of_grade in parts:
        now += (by_state * (error @ of_grade.T)).sum(axis=1)
    gain = np.maximum(expected - now[:, None] ** 2, 0.0)
    return np.where(answers[:, None] < 0, 0.0, gain)


def _rates(consensus: Consensus, *, new_reader: bool) -> Floats:
    """(R,) the error rate of each reader over all items, or of the average reader."""
    rates = np.zeros(len(consensus.readers))
    for weight, fit in zip(consensus.variants.weights, consensus.variants.fits, strict=True):
        right = (fit.matrices * fit.states.of_grade).sum(axis=2)  # (R, S)
        rates += weight * ((1.0 - right) @ fit.prior)
    if new_reader:
        rates = np.average(rates, weights=consensus.readings, keepdims=True)
    return np.maximum(rates, 1e-6)


def _told_of_rate(parts: _Parts, rates: Floats) -> Floats:
    """(n, R) the Fisher information of a reading about its reader's error rate.

    The rate e scales all errors of the reader's matrix alike: d M[s, j] / d e = M[s, j] / e beside
    the state's own grade, and minus their sum there.
    """
    by_state, _, of_grade = parts[0]
    information = np.zeros((len(by_state), len(rates)))
    for said in range(of_grade.shape[1]):
        probability = np.zeros_like(information)
        change = np.zeros_like(information)
        for by_state, matrices, of_grade in parts:
            chance = matrices[:, :, said]
            probability += by_state @ chance.T
            change += by_state @ ((chance - of_grade[:, said]) / rates[:, None]).T
        information += change**2 / np.maximum(probability, 1e-300)
    return information


def _rate_information(consensus: Consensus, readings: Readings, *, new_reader: bool) -> Floats:
    """(R,) what the readings so far tell about each reader's error rate; 1 / its variance."""
    if new_reader:
        return np.full(1, _RATE_UNKNOWN)
    told = expected_gain(consensus, np.arange(len(readings.items)), goal="readers")
    told = told[readings.item, readings.reader]
    told_of_each = np.bincount(readings.reader, told, minlength=len(readings.readers))
    return np.asarray(_RATE_UNKNOWN + told_of_each, dtype=np.float64)


def _candidates(
    consensus: Consensus,
    readings: Readings,
    *,
    enough: int,
    new_reader: bool,
    goal: Goal,
    answers: Ints | None,
) -> tuple[Ints, Ints, Floats]:
    """Items and readers with their gains, as many as may matter.

    The gain of the consensus is at most the item's risk: items are looked at by falling risk until
    no other can come among the first.
    """
    readers = 1 if new_reader else len(readings.readers)
    done = np.unique(readings.item * readers + readings.reader)
    order = np.argsort(-consensus.risk, kind="stable")
    if readings.reference is not None and goal != "readers":
        order = order[readings.reference[order] < 0]
    if answers is not None:
        order = order[answers[order] >= 0]
    size = min(max(1, _CELLS // readers), 2000)
    none = np.zeros(0, dtype=np.int64)
    parts: list[tuple[Ints, Ints, Floats]] = [(none, none, np.zeros(0))]
    best = np.zeros(0)
    for start in range(0, len(order), size):
        items = order[start : start + size]
        if len(best) >= enough and np.sort(best)[-enough] >= consensus.risk[items[0]]:
            break
        gain = expected_gain(consensus, items, new_reader=new_reader, goal=goal, answers=answers)
        if not new_reader:
            gain[np.isin(items[:, None] * readers + np.arange(readers), done)] = -1.0
        best = np.concatenate([best, gain.max(axis=1)])
        place, reader = np.nonzero(gain >= 0)
        parts.append((items[place], reader, gain[place, reader]))
    item, reader, gain = map(np.concatenate, zip(*parts, strict=True))
    return item, reader, gain
