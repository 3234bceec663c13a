"""The noise of labels whose true grades are known as probabilities, from several readers: nothing is estimated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["PosteriorNoise", "noise_from_posterior"]

Floats = npt.NDArray[np.float64]


class PosteriorNoise(NamedTuple):
    """rate: share of wrong labels. transition: P[i, j] = Pr(label = j | true = i). posterior: Pr(true = i | label = j),
    in row j. Rows of a grade that does not occur are those of labels without noise."""

    rate: float
    transition: Floats
    posterior: Floats


def noise_from_posterior(labels: npt.ArrayLike, posterior: npt.ArrayLike) -> PosteriorNoise:
    """The expected noise of ``labels`` (N,), given ``posterior`` (N, C): the probability of each true grade.

    Parameters
    ----------
    labels : (N,) array of int
    posterior : (N, C) array of float
        Rows sum to 1.

    Returns
    -------
    PosteriorNoise
        The share of wrong labels, and the two matrices.

    Examples
    --------
    >>> from srjt.noise import noise_from_posterior
    >>> noise = noise_from_posterior([0, 0, 1], [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    >>> round(noise.rate, 3)
    0.167
    >>> noise.transition.round(2).tolist()
    [[1.0, 0.0], [0.33, 0.67]]
    """
    truth = np.asarray(posterior, dtype=np.float64)
    joint = truth.T @ np.eye(truth.shape[1])[np.asarray(labels, dtype=np.int64)]  # [true, label]
    return PosteriorNoise(float(1 - np.trace(joint) / joint.sum()), _rows(joint), _rows(joint.T))


def _rows(counts: Floats) -> Floats:
    sums = counts.sum(axis=1, keepdims=True)
    return np.where(sums > 0, counts / np.where(sums > 0, sums, 1.0), np.eye(len(counts)))
