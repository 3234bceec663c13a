"""How often the labels of one reader, one grade or one patient are wrong, with an interval that
holds it.

The quality of a label comes from all labels together, and so does the share of wrong ones. A group
has its own share: its labels are wrong with odds that differ from those of all others by a factor.
The factor is not known; it is normal on a logarithmic scale beforehand, and the labels of the group
say how probable each value is. Given the factor, the number of wrong labels in the group varies,
because each label is wrong or right. And the share of wrong labels among all has an interval of its
own: what is said of a group is said for its lower end, its point and its upper end, and the
interval of the group reaches from the lowest to the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax  # type: ignore[import-untyped]

from srjt.errors import SrjtError
from srjt.noise.matrices import Floats, Ints
from srjt.noise.verified import beta_interval, quality_with_rate

_LOG_FACTORS = np.linspace(-4.0, 4.0, 33)  # of the odds of an error in one group
# their standard deviation before the data: where 20 % are wrong, 8 % or 40 % in another group
_SPREAD = 1.0


class GroupRate(NamedTuple):
    """Of one group."""

    samples: int
    errors: float  # expected
    rate: float
    interval: tuple[float, float]


def group_rates(
    quality: ArrayLike,
    groups: ArrayLike,
    *,
    rates: Sequence[float],
    verified: ArrayLike | None = None,
    by_label: bool = False,
    repeated: float = 1.0,
    confidence: float = 0.95,
) -> list[GroupRate]:
    """The share of wrong labels in each group, with an interval.

    Parameters
    ----------
    quality : (N,) array of float
        The probability that each label is right, from ``label_quality``.
    groups : (N,) array of int
        The number of each label's group, 0 … G − 1.
    rates : sequence of float
        The lower end, the point and the upper end of the share of wrong labels among all.
    verified : (N,) array of bool, optional
        Labels whose quality is known: 0 or 1.
    by_label : bool
        Whether a group is all labels of one grade. The frequency of a label already says how often
        it is given in error, so such a group is as the model has it, and only its interval is
        widened.
    repeated : float
        How many labels carry the information of one, because those of a patient repeat each other.
    confidence : float
        Of the intervals.

    Returns
    -------
    list of GroupRate
        One for each group.

    Examples
    --------
    >>> quality = np.array([0.9] * 50 + [0.2] * 10 + [0.95] * 60)
    >>> reader = np.repeat([0, 1], 60)
    >>> worse, better = group_rates(quality, reader, rates=(0.1, 0.135, 0.2))
    >>> bool(worse.interval[0] > better.rate)
    True
    """
    right = np.asarray(quality, dtype=np.float64)
    group = np.asarray(groups, dtype=np.int64)
    if right.shape != group.shape or right.ndim != 1 or not len(right):
        raise SrjtError(
            f"Qualities and groups are two lists of one length; got {right.shape} and"
            f" {group.shape}.",
            code="wrong_shape",
        )
    known = (
        np.zeros(len(right), dtype=bool) if verified is None else np.asarray(verified, dtype=bool)
    )
    size = np.bincount(group)
    low, mean, high = (
        _given_rate(
            right, group, rate, known, by_label=by_label, repeated=repeated, confidence=confidence
        )
        for rate in rates
    )
    point = mean[0]
    lowest = np.minimum.reduce([low[1], mean[1], high[1], point])
    highest = np.maximum.reduce([low[2], mean[2], high[2], point])
    # labels are counted: fewer than one wrong label is none
    lowest = np.floor(lowest * size + 1e-3) / np.maximum(size, 1)
    highest = np.ceil(highest * size - 1e-3) / np.maximum(size, 1)
    return [
        GroupRate(int(count), float(rate * count), float(rate), (float(least), float(most)))
        for count, rate, least, most in zip(size, point, lowest, highest, strict=True)
    ]


def _given_rate(
    quality: Floats,
    group: Ints,
    rate: float,
    known: NDArray[np.bool_],
    *,
    by_label: bool,
    repeated: float,
    confidence: float,
) -> Floats:
    """(3, G): the expected share of wrong labels in each group, and its interval, if this share of
    all is wrong."""
    doubt = 1.0 - quality_with_rate(quality, rate, known)
    size = np.maximum(np.bincount(group), 1)
    usual = np.bincount(group, doubt) / size if by_label else np.full(len(size), doubt.mean())
    log_odds = []
    expected = []
    spread = []
    for log_factor in _LOG_FACTORS:
        more = np.expm1(log_factor)
        likelihood = np.bincount(group, np.log1p(doubt * more)) - size * np.log1p(usual * more)
        log_odds.append(likelihood / repeated - 0.5 * (log_factor / _SPREAD) ** 2)
        wrong = doubt * (1.0 + more) / (1.0 + doubt * more)
        expected.append(np.bincount(group, wrong))
        spread.append(np.bincount(group, wrong * (1.0 - wrong)))
    weights = softmax(log_odds, axis=0)  # (factors, G)
    mean = (weights * expected).sum(axis=0)
    variance = (weights * (repeated * np.array(spread) + (expected - mean) ** 2)).sum(axis=0)
    share = mean / size
    return np.stack([share, *beta_interval(share, variance / size**2, confidence=confidence)])
