"""Ranges of grades that contain the true grade with a promised probability: split conformal
prediction for patients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from srjt.errors import SrjtError
from srjt.ordinal import patient_codes
from srjt.ordinal.metrics import Floats, Groups, Ints

# **Nested ranges.** The range of an image begins with its most likely grade and grows by the
# likelier of its two neighbours, until it holds all grades: it has no holes. The score of a grade
# is the probability that the range holds before that grade enters. The range at a threshold q holds
# the grades with a score of at most q. A higher q gives a wider range.
#
# **Patients.** Images of one patient resemble each other, so patients are the unit: each has the
# weight 1, shared by its images. Let A_g(q) be the share of patient g's images whose true grade has
# a score of at most q. The threshold is
#
#     the smallest q with   A_1(q) + … + A_G(q) ≥ coverage · (G + 1).
#
# If the new patient is exchangeable with the G patients, the range of a random image of the new
# patient contains the true grade with probability ≥ coverage: with the new patient's own A on the
# left, which is not negative, and G + 1 on the right, the sum is symmetric in G + 1 patients, whose
# mean share at the threshold is then at least the coverage (hierarchical conformal prediction, Lee,
# Barber and Willett 2023). With one image per patient it is ordinary split conformal prediction.
#
# **Weights.** Where true grades are not known, each grade c of a calibration image has a weight,
# for example p(true grade = c | label), and A_g sums the weights of the grades with a score of at
# most q. Weights may be negative (a column of an inverse matrix); then the sum must stay above its
# bound for all thresholds beyond q, too, and the bound allows for the most negative new patient.
# For ranges that cover each grade with the promised probability, the weights of one grade give its
# own threshold, and G becomes the patients' total weight of that grade.


def range_scores(probabilities: ArrayLike) -> Floats:
    """The score (N, C) of every grade: the probability that the growing range holds before the
    grade enters.

    probabilities: (N, C). 0 for the most likely grade; ties go to the milder grade.

    Examples
    --------
    >>> range_scores([[0.125, 0.5, 0.25, 0.125]]).tolist()
    [[0.75, 0.0, 0.5, 0.875]]
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2:
        raise SrjtError(f"Probabilities have the shape (N, C); got {p.shape}.", code="wrong_shape")
    rows = np.arange(len(p))
    padded = np.pad(p, ((0, 0), (1, 1)), constant_values=-1.0)  # grade c is column c + 1
    low, high = (p.argmax(axis=1) for _ in range(2))
    held = p[rows, low]
    scores = np.zeros_like(p)
    for _ in range(p.shape[1] - 1):
        up = padded[rows, high + 2] > padded[rows, low]
        entering = np.where(up, high + 1, low - 1)
        scores[rows, entering] = held
        held = held + p[rows, entering]
        low = np.where(up, low, entering)
        high = np.where(up, entering, high)
    return scores


def patient_weights(groups: Groups, samples: int) -> Floats:
    """Weights (N,): one patient's images share the weight 1. groups: (N,) patients; None: every
    sample is its own.

    Examples
    --------
    >>> patient_weights(["a", "b", "b"], 3).tolist()
    [1.0, 0.5, 0.5]
    """
    owner = patient_codes(groups, samples)
    return np.asarray(1.0 / np.bincount(owner)[owner])


def range_threshold(
    scores: ArrayLike, weights: ArrayLike | None = None, *, coverage: float, groups: Groups = None
) -> float:
    """The threshold at which ranges have the promised coverage.

    It is infinite if there are too few patients for this coverage: then only the range of all
    grades keeps the promise.

    scores: (N,) of the true grade of each calibration sample, or (N, M) of M grades that may be the
    true one. weights: how much each score counts, for example p(true grade | label); by default 1.
    coverage: the promised probability, between 0 and 1. groups: (N,) patients; without, every
    sample is its own.

    Examples
    --------
    >>> range_threshold([0.0, 0.1, 0.2, 0.9], coverage=0.6)
    0.2
    >>> range_threshold([0.0, 0.1, 0.2, 0.9], coverage=0.9)
    inf
    """
    if not 0.0 < coverage < 1.0:
        raise SrjtError(
            f"A coverage lies between 0 and 1, for example 0.9; got {coverage:g}.",
            code="out_of_bounds",
            option="coverage",
        )
    s = np.asarray(scores, dtype=np.float64)
    s = s.reshape(len(s), -1)
    counted = np.ones_like(s)
    if weights is not None:
        counted = np.asarray(weights, dtype=np.float64).reshape(s.shape)
    # what a new patient may take away from the sum, relative to the bound: at most its largest row,
    # and all of its negative weights
    worst = coverage * counted.sum(axis=1) + np.maximum(-counted, 0.0).sum(axis=1)
    spare = max(float(worst.max(initial=0.0)), coverage)
    w = counted * patient_weights(groups, len(s))[:, None]
    order = np.argsort(s, axis=None, kind="stable")
    ordered = s.ravel()[order]
    reached = np.cumsum(w.ravel()[order])
    need = coverage * float(w.sum()) + spare
    if not np.isfinite(need):
        return float("inf")
    ends = np.append(ordered[1:] > ordered[:-1], True) if len(ordered) else np.empty(0, dtype=bool)
    short = np.flatnonzero(ends & (reached < need - 1e-9 * (1.0 + abs(need))))
    first = int(short[-1]) + 1 if len(short) else 0
    if first < len(ordered):
        return float(ordered[first])
    return float("inf")


def widest_range_threshold(
    scores: ArrayLike,
    candidates: Sequence[ArrayLike],
    *,
    parts: ArrayLike,
    coverage: float,
    groups: Groups = None,
) -> float:
    """The threshold at which ranges have the promised coverage whichever weights are right in each
    part of the samples.

    The samples of a part, for example those with one label, have the weights of one of the
    candidates, or of any mixture of them; another part may have another's. The coverage is a sum
    over the parts and is linear in the weights, so the worst case is found part by part: Σ over the
    parts of the lowest sum among the candidates must reach the bound of ``range_threshold``. The
    threshold is the highest of those of all combinations.

    scores: (N, M) of M grades that may be the true one. candidates: (N, M) weights, none negative.
    parts: (N,) whole numbers from 0. coverage, groups: as for ``range_threshold``.

    Examples
    --------
    >>> scores, parts = [[0.0, 0.5], [0.0, 0.5], [0.4, 0.0], [0.4, 0.0]], [0, 0, 1, 1]
    >>> first, second = [[1, 0]] * 4, [[0, 1]] * 4
    >>> [range_threshold(scores, weights, coverage=0.3) for weights in (first, second)]
    [0.0, 0.0]
    >>> widest_range_threshold(scores, [first, second], parts=parts, coverage=0.3)
    0.4
    """
    if not 0.0 < coverage < 1.0:
        raise SrjtError(
            f"A coverage lies between 0 and 1, for example 0.9; got {coverage:g}.",
            code="out_of_bounds",
            option="coverage",
        )
    s = np.asarray(scores, dtype=np.float64)
    part = np.asarray(parts, dtype=np.int64)
    rows = [np.asarray(weights, dtype=np.float64).reshape(s.shape) for weights in candidates]
    new_patient = coverage * max(1.0, *(float(one.sum(axis=1).max(initial=0.0)) for one in rows))
    share = patient_weights(groups, len(s))[:, None]
    shared = [one * share for one in rows]

    def holds(threshold: float) -> bool:
        inside = (s <= threshold) - coverage
        sums = [np.bincount(part, (weights * inside).sum(axis=1)) for weights in shared]
        worst = float(np.min(sums, axis=0).sum())
        return worst >= new_patient - 1e-9 * (1.0 + len(s))

    # no weight is negative, so that a higher threshold covers no less: bisection
    possible = np.unique(s)
    if not len(possible) or not holds(float(possible[-1])):
        return float("inf")
    short = -1
    enough = len(possible) - 1
    while enough - short > 1:
        middle = (short + enough) // 2
        if holds(float(possible[middle])):
            enough = middle
        else:
            short = middle
    return float(possible[enough])


def grade_ranges(scores: ArrayLike, thresholds: ArrayLike) -> tuple[Ints, Ints]:
    """The lowest and the highest grade (N,) of each range; the most likely grade alone where no
    grade enters.

    scores: (N, C) from ``range_scores``. thresholds: one for all grades, or (C,) or (N, C), one for
    each grade. Grades between two that enter are filled in.

    Examples
    --------
    >>> low, high = grade_ranges([[0.75, 0.0, 0.5, 0.875]], 0.6)
    >>> low.tolist(), high.tolist()
    ([1], [2])
    """
    s = np.asarray(scores, dtype=np.float64)
    inside = s <= np.asarray(thresholds, dtype=np.float64)
    nothing = ~inside.any(axis=1)
    inside[nothing, s[nothing].argmin(axis=1)] = True
    return inside.argmax(axis=1), s.shape[1] - 1 - inside[:, ::-1].argmax(axis=1)
