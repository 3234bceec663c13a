"""Ranges of grades that contain the true grade with a promised probability: split conformal prediction for patients.

**Nested ranges.** The range of an image begins with its most likely grade and grows by the likelier of its two
neighbours, until it holds all grades: it has no holes. The score of a grade is the probability that the range holds
before that grade enters. The range at a threshold q holds the grades with a score of at most q. A higher q gives a
wider range.

**Patients.** Images of one patient resemble each other, so patients are the unit: each has the weight 1, shared by its
images. Let A_g(q) be the share of patient g's images whose true grade has a score of at most q. The threshold is

    the smallest q with   A_1(q) + … + A_G(q) ≥ coverage · (G + 1).

If the new patient is exchangeable with the G patients, the range of a random image of the new patient contains the
true grade with probability ≥ coverage: with the new patient's own A on the left, which is not negative, and G + 1 on
the right, the sum is symmetric in G + 1 patients, whose mean share at the threshold is then at least the coverage
(hierarchical conformal prediction, Lee, Barber and Willett 2023). With one image per patient it is ordinary split
conformal prediction.

**Weights.** Where true grades are not known, each grade c of a calibration image has a weight, for example
p(true grade = c | label), and A_g sums the weights of the grades with a score of at most q. Weights may be negative
(a column of an inverse matrix); then the sum must stay above its bound for all thresholds beyond q, too, and the bound
allows for the most negative new patient. For ranges that cover each grade with the promised probability, the weights
of one grade give its own threshold, and G becomes the patients' total weight of that grade.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError

__all__ = ["grade_ranges", "patient_weights", "range_scores", "range_threshold"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def range_scores(probabilities: npt.ArrayLike) -> Floats:
    """The score of every grade: the probability that the growing range holds before the grade enters.

    Parameters
    ----------
    probabilities : array-like, shape (N, C)

    Returns
    -------
    ndarray, shape (N, C)
        0 for the most likely grade. Ties go to the milder grade.

    Examples
    --------
    >>> from srjt.ordinal.ranges import range_scores
    >>> range_scores([[0.125, 0.5, 0.25, 0.125]]).tolist()
    [[0.75, 0.0, 0.5, 0.875]]
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2:
        raise SrjtError(f"Probabilities have the shape (N, C); got {p.shape}.")
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
        low, high = np.where(up, low, entering), np.where(up, entering, high)
    return scores


def patient_weights(groups: Sequence[Hashable] | None, samples: int) -> Floats:
    """One patient's images share the weight 1.

    Parameters
    ----------
    groups : sequence, length N, or None
        Patients. None: every sample is its own.
    samples : int
        N.

    Returns
    -------
    ndarray, shape (N,)

    Examples
    --------
    >>> from srjt.ordinal.ranges import patient_weights
    >>> patient_weights(["a", "b", "b"], 3).tolist()
    [1.0, 0.5, 0.5]
    """
    if groups is None:
        return np.ones(samples)
    if len(groups) != samples:
        raise SrjtError(f"{len(groups)} groups for {samples} samples: they must be as many.")
    _, owner, images = np.unique([str(group) for group in groups], return_inverse=True, return_counts=True)
    return np.asarray(1.0 / images[owner])


def range_threshold(
    scores: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    *,
    coverage: float,
    groups: Sequence[Hashable] | None = None,
) -> float:
    """The threshold at which ranges have the promised coverage.

    Parameters
    ----------
    scores : array-like, shape (N,) or (N, M)
        Scores of the true grade of each calibration sample, or of M grades that may be the true one.
    weights : array-like of the same shape, optional
        How much each score counts, for example p(true grade | label). Default: 1.
    coverage : float
        The promised probability, between 0 and 1.
    groups : sequence, length N, optional
        Patients. Default: every sample is its own.

    Returns
    -------
    float
        Infinite if there are too few patients for this coverage: then only the range of all grades keeps the promise.

    Examples
    --------
    >>> from srjt.ordinal.ranges import range_threshold
    >>> range_threshold([0.0, 0.1, 0.2, 0.9], coverage=0.6)
    0.2
    >>> range_threshold([0.0, 0.1, 0.2, 0.9], coverage=0.9)
    inf
    """
    if not 0.0 < coverage < 1.0:
        raise SrjtError(f"A coverage lies between 0 and 1, for example 0.9; got {coverage:g}.")
    s = np.asarray(scores, dtype=np.float64)
    s = s.reshape(len(s), -1)
    own = np.ones_like(s) if weights is None else np.asarray(weights, dtype=np.float64).reshape(s.shape)
    # what a new patient may take away from the sum, relative to the bound: at most its largest row, and all of its
    # negative weights
    worst = coverage * own.sum(axis=1) + np.maximum(-own, 0.0).sum(axis=1)
    spare = max(float(worst.max(initial=0.0)), coverage)
    w = own * patient_weights(groups, len(s))[:, None]
    order = np.argsort(s, axis=None, kind="stable")
    ordered, reached = s.ravel()[order], np.cumsum(w.ravel()[order])
    need = coverage * float(w.sum()) + spare
    if not np.isfinite(need):
        return float("inf")
    ends = np.append(ordered[1:] > ordered[:-1], True) if len(ordered) else np.empty(0, dtype=bool)
    short = np.flatnonzero(ends & (reached < need - 1e-9 * (1.0 + abs(need))))
    first = int(short[-1]) + 1 if len(short) else 0
    return float(ordered[first]) if first < len(ordered) else float("inf")


def grade_ranges(scores: npt.ArrayLike, thresholds: npt.ArrayLike) -> tuple[Ints, Ints]:
    """The lowest and the highest grade of each range.

    Parameters
    ----------
    scores : array-like, shape (N, C)
        From ``range_scores``.
    thresholds : float, or array-like of shape (C,) or (N, C)
        A threshold for all grades, or one for each grade. Grades between two that enter are filled in.

    Returns
    -------
    low, high : ndarray of int64, shape (N,)
        The most likely grade alone where no grade enters.

    Examples
    --------
    >>> from srjt.ordinal.ranges import grade_ranges
    >>> low, high = grade_ranges([[0.75, 0.0, 0.5, 0.875]], 0.6)
    >>> low.tolist(), high.tolist()
    ([1], [2])
    """
    s = np.asarray(scores, dtype=np.float64)
    inside = s <= np.asarray(thresholds, dtype=np.float64)
    nothing = ~inside.any(axis=1)
    inside[nothing, s[nothing].argmin(axis=1)] = True
    return inside.argmax(axis=1), s.shape[1] - 1 - inside[:, ::-1].argmax(axis=1)
