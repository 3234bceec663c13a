"""One answer for several images: of a patient, an eye, a series.

The grade of a patient is the highest grade of the images. With F_i(c) = p(grade of image i ≤ c), the learned pooling is

    −log F(c) = weight · M(−log F_1(c), −log F_2(c), …)

where M is the power mean with an exponent from 1, the plain mean, to infinity, the highest. So it lies between the two
fixed rules: an exponent of 1 averages the images, a large one believes the worst image, and the weight corrects images
that are too sure. Both numbers are fitted by maximum likelihood of the patients' highest labels.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError, suggest

__all__ = ["LearnedPooling", "Pooling", "fit_pooling", "highest_per_unit", "pool_probabilities"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pooling = Literal["highest", "mean", "learned"]

_SMALLEST = 1e-6  # of a probability: float32 rounds smaller ones to 0, whose logarithm is infinite
_EXPONENTS = (1.0, 64.0)  # with 64 the power mean of 1,000 images is within 11 % of their highest value
_WEIGHTS = (1 / 16, 16.0)


class LearnedPooling(NamedTuple):
    """Parameters of the learned pooling.

    Attributes
    ----------
    exponent : float
        From 1 (the mean of the images) to 64 (nearly the highest of them).
    weight : float
        Below 1: higher grades become less likely than the images say; above 1: more likely.
    """

    exponent: float
    weight: float


def pool_probabilities(
    probabilities: npt.ArrayLike,
    units: npt.ArrayLike,
    *,
    how: Pooling = "highest",
    learned: LearnedPooling | None = None,
) -> Floats:
    """Probabilities of the grade of each unit (patient, eye, series) from those of its images.

    Parameters
    ----------
    probabilities : array-like, shape (N, C)
    units : array-like of int, shape (N,)
        The unit of each image, 0 … M − 1.
    how : {"highest", "mean", "learned"}
        Highest grade, if the images of a unit agree as much as they can: p(grade ≤ c) is the smallest of the images'.
        Mean probabilities. Or the learned pooling.
    learned : LearnedPooling, optional
        From ``fit_pooling``, for ``how="learned"``.

    Returns
    -------
    array, shape (M, C)

    Examples
    --------
    >>> from srjt.ordinal.pooling import pool_probabilities
    >>> pool_probabilities([[0.75, 0.25], [0.25, 0.75]], [0, 0]).tolist()
    [[0.25, 0.75]]
    >>> pool_probabilities([[0.75, 0.25], [0.25, 0.75]], [0, 0], how="mean").tolist()
    [[0.5, 0.5]]
    """
    p, u = _checked(probabilities, units)
    if how == "mean":
        return _sums(p, u) / np.bincount(u)[:, None]
    reached = np.minimum(np.cumsum(p, axis=1), 1.0)
    reached[:, -1] = 1.0  # rounding
    if how == "highest":
        lowest = np.ones((int(u.max()) + 1, p.shape[1]))
        np.minimum.at(lowest, u, reached)
        return np.diff(lowest, axis=1, prepend=0.0)
    if how != "learned":
        raise suggest("pooling", how, get_args(Pooling))
    if learned is None:
        raise SrjtError("The learned pooling needs its parameters: learned=fit_pooling(…).")
    return _pool(_surprise(reached), u, learned)


def highest_per_unit(grades: npt.ArrayLike, units: npt.ArrayLike) -> Ints:
    """The highest grade of each unit.

    Parameters
    ----------
    grades : array-like of int, shape (N,)
    units : array-like of int, shape (N,)
        The unit of each image, 0 … M − 1.

    Returns
    -------
    array of int64, shape (M,)

    Examples
    --------
    >>> from srjt.ordinal.pooling import highest_per_unit
    >>> highest_per_unit([0, 2, 1], [0, 0, 1]).tolist()
    [2, 1]
    """
    g, u = np.asarray(grades, dtype=np.int64), np.asarray(units, dtype=np.int64)
    found = np.full(int(u.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(found, u, g)
    return found


def fit_pooling(probabilities: npt.ArrayLike, units: npt.ArrayLike, labels: npt.ArrayLike) -> LearnedPooling:
    """The exponent and the weight under which the units' labels are most likely.

    A weak prior keeps both near 1 and 4 where few units decide: normal, of their logarithms, with a standard
    deviation of 1.

    Parameters
    ----------
    probabilities : array-like, shape (N, C)
    units : array-like of int, shape (N,)
        The unit of each image, 0 … M − 1.
    labels : array-like of int, shape (M,), or of float, shape (M, C)
        The highest label of each unit, or the probabilities of its highest grade.

    Returns
    -------
    LearnedPooling

    Examples
    --------
    >>> from srjt.ordinal.pooling import fit_pooling
    >>> fitted = fit_pooling([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]], [0, 0, 1], [1, 0])
    >>> 1 <= fitted.exponent <= 64
    True
    """
    from scipy.optimize import minimize  # type: ignore[import-untyped]

    p, u = _checked(probabilities, units)
    y = np.asarray(labels)
    if len(y) != int(u.max()) + 1:
        raise SrjtError(f"{int(u.max()) + 1} units and {len(y)} labels: there must be as many of both.")
    target = np.eye(p.shape[1])[y.astype(np.int64)] if y.ndim == 1 else y.astype(np.float64)
    reached = np.minimum(np.cumsum(p, axis=1), 1.0)
    reached[:, -1] = 1.0
    surprise = _surprise(reached)
    bounds = [tuple(map(math.log, _EXPONENTS)), tuple(map(math.log, _WEIGHTS))]
    centre = (math.log(4.0), 0.0)

    def loss(logarithms: Floats) -> float:
        pooled = _pool(surprise, u, LearnedPooling(*np.exp(logarithms)))
        surprises = -(target * np.log(np.maximum(pooled, _SMALLEST))).sum()
        return float(surprises + 0.5 * ((logarithms - centre) ** 2).sum())

    # the likelihood may have two maxima: one near the mean, one near the highest
    starts = [np.array([exponent, 0.0]) for exponent in np.linspace(bounds[0][0], bounds[0][1], 4)]
    found = min(
        (minimize(loss, start, method="Nelder-Mead", bounds=bounds) for start in starts),
        key=lambda result: float(result.fun),
    )
    exponent, weight = np.exp(found.x)
    return LearnedPooling(float(exponent), float(weight))


def _pool(surprise: Floats, units: Ints, learned: LearnedPooling) -> Floats:
    """(N, C) −log F of the images → (M, C) probabilities of the units."""
    highest = np.zeros((int(units.max()) + 1, surprise.shape[1]))
    np.maximum.at(highest, units, surprise)
    # relative to the highest, so that no power overflows
    relative = np.divide(surprise, highest[units], out=np.zeros_like(surprise), where=highest[units] > 0)
    mean = _sums(relative**learned.exponent, units) / np.bincount(units)[:, None]
    reached = np.exp(-learned.weight * highest * mean ** (1.0 / learned.exponent))
    return np.diff(reached, axis=1, prepend=0.0).clip(min=0.0)


def _surprise(reached: Floats) -> Floats:
    return -np.log(np.maximum(reached, _SMALLEST))


def _sums(values: Floats, units: Ints) -> Floats:
    """(N, C) → (M, C) sums of each unit."""
    return np.stack([np.bincount(units, weights=column) for column in values.T], axis=1)


def _checked(probabilities: npt.ArrayLike, units: npt.ArrayLike) -> tuple[Floats, Ints]:
    p, u = np.asarray(probabilities, dtype=np.float64), np.asarray(units, dtype=np.int64)
    if p.ndim != 2 or u.shape != (len(p),) or not len(p):
        raise SrjtError(f"Probabilities (N, C) need one unit per image (N,); got {p.shape} and {u.shape}.")
    return p, u
