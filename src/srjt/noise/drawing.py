"""Which labels to verify: drawn by doubt, with known probabilities, so that few of them say as much
as many at random.

The share of wrong labels is estimated by the audit's doubt of all labels, corrected by the verified
ones (see ``srjt.noise.verified``). What is left to learn from a label is whether it is wrong beyond
its doubt q, which varies by q (1 − q): labels are drawn with probabilities in proportion to the
square root of that (Zrnic and Candès, active statistical inference, 2024). The doubt is believed
only by half, the other half is the mean doubt of all labels: so no label is drawn less than 0.7
times as often as at random, and no weight is larger than √2 times the usual one, however wrong the
doubt is.

A label has a random number u and a size s, and labels are verified in the order of u / s (priority
sampling; Duffield, Lund and Thorup, 2007). The first n are a sample of a fixed size, and a larger
sample begins with the smaller one. Given the place τ of the label after the last one, each label is
drawn with the probability min(1, s τ), and a sum of the sample divided by these probabilities is
unbiased. If all sizes are equal, this is a simple random sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit  # type: ignore[import-untyped]

from srjt.errors import SrjtError
from srjt.noise.matrices import Floats, Ints
from srjt.noise.verified import wilson_interval

# With the seed alone, whoever injected noise with the same seed would draw by the very numbers that
# made labels wrong.
_PURPOSE = 0x76657269
# How far to believe the doubt: in the draw, chosen on simulated labels, and in a plan, chosen on
# labels of ACNE04 by one doctor (benchmarks/active_verification.py).
BELIEVED = 0.5
PLANNED = 0.25


@dataclass(frozen=True, eq=False)
class Drawing:
    """N labels in the order in which they are verified.

    Attributes
    ----------
    order : ndarray of int64, shape (N,)
        The rows of the labels.
    size : ndarray of float64, shape (N,)
        How often each row is drawn, relative to the others; 1 on average.
    place : ndarray of float64, shape (N,)
        Each row's random number divided by its size; ``order`` sorts it.
    """

    order: Ints
    size: Floats
    place: Floats

    def probability(self, drawn: int) -> Floats:
        """(N,) the probability with which each row is among the first ``drawn`` ones.

        Of the others it is what it would have been. It is 1 for all rows if all are drawn.
        """
        if not 0 <= drawn <= len(self.order):
            raise SrjtError(
                f"Of {len(self.order):,} labels {drawn:,} cannot be drawn.", code="out_of_bounds"
            )
        if drawn == len(self.order):
            return np.ones(len(self.order))
        return np.asarray(np.minimum(1.0, self.size * self.place[self.order[drawn]]))


def draw_by_doubt(doubt: ArrayLike, *, seed: int = 0) -> Drawing:
    """Draw labels for verification, doubtful ones more often.

    Parameters
    ----------
    doubt : (N,) array of float
        The probability that each label is wrong, as far as anybody knows; all equal: a simple
        random sample.
    seed : int
        Of the random numbers. The same numbers belong to the same rows, whatever the doubt is.

    Examples
    --------
    >>> drawing = draw_by_doubt([0.0] * 50 + [0.5] * 50)
    >>> sample, chance = drawing.order[:20], drawing.probability(20)
    >>> len(sample), bool(chance[99] > 1.4 * chance[0])
    (20, True)
    """
    size = draw_sizes(_probabilities(doubt))
    rng = np.random.Generator(np.random.PCG64([seed, _PURPOSE]))
    place = (1.0 - rng.random(len(size))) / size
    return Drawing(order=np.argsort(place, kind="stable"), size=size, place=place)


def _probabilities(doubt: ArrayLike) -> Floats:
    given = np.asarray(doubt, dtype=np.float64)
    if given.ndim != 1 or not len(given) or not ((given >= 0.0) & (given <= 1.0)).all():
        raise SrjtError(
            "The doubt of each label is a probability: one number between 0 and 1 for each.",
            code="wrong_values",
        )
    return given


def expected_probability(size: Floats, drawn: int) -> Floats:
    """(N,) the probability with which each label is among the first ``drawn`` ones, before the
    draw.

    ``Drawing.probability`` is the one after it: the sum over all labels is ``drawn`` only on
    average, so that a plan must not be made of one draw.
    """
    place = 0.0
    for _ in range(len(size)):
        certain = size * place >= 1.0
        before = place
        place = (drawn - certain.sum()) / max(float(size[~certain].sum()), 1e-12)
        if place <= before:  # no further label is certain to be drawn
            break
    return np.asarray(np.minimum(1.0, size * place))


def draw_sizes(doubt: Floats) -> Floats:
    """(N,) how often each label is drawn, relative to the others; 1 on average."""
    believed = BELIEVED * doubt + (1.0 - BELIEVED) * doubt.mean()
    size = np.sqrt(believed * (1.0 - believed))
    return np.asarray(size / size.mean()) if size.mean() > 0.0 else np.ones(len(doubt))


def labels_needed(
    doubt: ArrayLike, *, within: float, rate: float | None = None, confidence: float = 0.95
) -> int:
    """How many labels, drawn by doubt, to verify to know the share of wrong ones within ±
    ``within``.

    Parameters
    ----------
    doubt : (N,) array of float
        The probability that each label is wrong. A quarter of it is believed: networks doubt the
        labels of real readers with more confidence than they earn.
    within : float
        Half the width of the interval that is wanted.
    rate : float, optional
        The share of wrong labels to plan for, if it is not the mean doubt.
    confidence : float
        Of the interval.

    Examples
    --------
    >>> labels_needed([0.02] * 800 + [0.6] * 200, within=0.05)
    155
    """
    given = _probabilities(doubt)
    if not 0.0 < within < 1.0:
        raise SrjtError(f"A half-width lies between 0 and 1; got {within:g}.", code="out_of_bounds")
    size = draw_sizes(given)
    mean = float(given.mean())
    q = PLANNED * given + (1.0 - PLANNED) * mean
    planned = mean if rate is None else rate
    # What a label leaves to learn, as if all labels were as much harder as the planned rate is than
    # the mean doubt.
    left = q * (1.0 - q) * planned * (1.0 - planned) / max(mean * (1.0 - mean), 1e-9)
    few = 1
    many = len(q)
    while many - few > 1:
        middle = (few + many) // 2
        probability = expected_probability(size, middle)
        weight = 1.0 / (probability * len(q))
        # as ``use_verified`` has it: half an error that nobody doubts is added
        variance = float((left * weight * (1.0 - probability)).sum()) / len(q)
        variance += 0.5 * float((weight**2 * (1.0 - probability)).mean())
        worth = max(planned * (1.0 - planned), 1e-9) / max(variance, 1e-12)
        low, high = wilson_interval(
            planned, worth, quantile=float(stdtrit(middle, 0.5 + confidence / 2.0))
        )
        few, many = (middle, many) if (high - low) / 2.0 > within else (few, middle)
    return many
