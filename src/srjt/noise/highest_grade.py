"""The highest true grade of a patient's images, from labels that are partly wrong.

The highest of several noisy labels is too high: the more images, the more likely that one label is wrong upwards. With
the transition matrix P of the noise, the labels of n images say more. The model of a patient with the highest grade H:
each image shows H with probability s, else a lower grade, all equally likely; at least one image shows H; labels are
wrong independently. s and the prior of H are fitted by maximum likelihood. Without noise the posterior is certain, and
is the highest label.

Weights need no such model. If labels are wrong independently, given the true grades t_1 … t_n of the images, then
row ỹ_i of P⁻¹, summed up to the grade c, has the mean [t_i ≤ c], and the mean of a product is the product of the means:

    E ∏_i Σ_{c' ≤ c} (P⁻¹)[ỹ_i, c'] = [t_1 ≤ c] · … · [t_n ≤ c] = [highest true grade ≤ c],

whatever the true grades of the other images are. The differences between neighbouring c are the weights of the highest
grade. They sum to 1, may be negative, and grow exponentially with the number of images.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError

__all__ = ["highest_grade_posterior", "highest_grade_weights"]

Floats = npt.NDArray[np.float64]
SHOWN = np.linspace(0.05, 1.0, 20)  # values of s that are tried
STEPS = 50  # of the expectation maximisation for the prior


def highest_grade_posterior(
    labels: npt.ArrayLike,
    units: npt.ArrayLike,
    transition: npt.ArrayLike,
    *,
    certain: npt.ArrayLike | None = None,
) -> Floats:
    """p(highest true grade | labels) of each patient.

    Parameters
    ----------
    labels : array-like of int, shape (N,)
        Grades of the images, possibly wrong.
    units : array-like of int, shape (N,)
        The patient of each image, 0 … M − 1.
    transition : array-like, shape (C, C)
        P[i, j] = Pr(label = j | true grade = i).
    certain : array-like of bool, shape (N,), optional
        Labels that are known to be right, such as verified ones.

    Returns
    -------
    array, shape (M, C)

    Examples
    --------
    >>> from srjt.noise.highest_grade import highest_grade_posterior
    >>> highest_grade_posterior([0, 1, 0], [0, 0, 1], [[1, 0], [0, 1]]).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    y, u = np.asarray(labels, dtype=np.int64), np.asarray(units, dtype=np.int64)
    matrix = np.asarray(transition, dtype=np.float64)
    classes = len(matrix)
    if y.shape != u.shape or not len(y) or matrix.shape != (classes, classes):
        raise SrjtError(
            f"Labels and units must be lists of one length, and the matrix square; got {y.shape}, {u.shape} and "
            f"{matrix.shape}."
        )
    seen = matrix[:, y].T  # (N, C): probability of the label by true grade
    if certain is not None:
        right = np.asarray(certain, dtype=bool)
        seen[right] = np.eye(classes)[y[right]]
    lower = np.zeros_like(seen)  # … by the mean of the lower grades
    lower[:, 1:] = np.cumsum(seen, axis=1)[:, :-1] / np.arange(1, classes)
    likelihoods, scales = zip(*(_likelihood(seen, lower, u, shown=float(s)) for s in SHOWN), strict=True)
    values, posteriors = _fit_priors(np.stack(likelihoods))
    values += scales
    if not np.isfinite(values).any():
        raise SrjtError("The labels of a patient are impossible under this transition matrix.")
    return np.asarray(posteriors[int(values.argmax())])


def highest_grade_weights(
    labels: npt.ArrayLike,
    units: npt.ArrayLike,
    transition: npt.ArrayLike,
    *,
    certain: npt.ArrayLike | None = None,
) -> Floats | None:
    """Weights of each patient's highest grade whose mean, over the labels, is 1 for the true one and 0 for the others.

    Parameters
    ----------
    labels, units, transition, certain
        As for ``highest_grade_posterior``.

    Returns
    -------
    array, shape (M, C), or None
        None where the matrix cannot be inverted, or the products of many images overflow. With one image per patient:
        rows of the inverse matrix.

    Examples
    --------
    >>> from srjt.noise.highest_grade import highest_grade_weights
    >>> highest_grade_weights([0, 0], [0, 0], [[0.75, 0.25], [0.25, 0.75]]).tolist()
    [[2.25, -1.25]]
    """
    y, u = np.asarray(labels, dtype=np.int64), np.asarray(units, dtype=np.int64)
    matrix = np.asarray(transition, dtype=np.float64)
    if np.linalg.cond(matrix) > 1e6:
        return None
    own = np.linalg.inv(matrix)[y]
    if certain is not None:
        right = np.asarray(certain, dtype=bool)
        own[right] = np.eye(len(matrix))[y[right]]
    below = np.ones((int(u.max()) + 1, len(matrix)))  # of "no image is worse than c"
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply.at(below, u, np.cumsum(own, axis=1))
        weights = np.diff(below, axis=1, prepend=0.0)
    return weights if np.isfinite(weights).all() else None


def _likelihood(
    seen: Floats, lower: Floats, units: npt.NDArray[np.int64], *, shown: float
) -> tuple[Floats, float]:
    """(M, C) scaled probabilities of the patients' labels by highest grade, and the logarithm of all scales."""
    with np.errstate(divide="ignore"):
        either = _sums(np.log(shown * seen + (1 - shown) * lower), units)
        never = _sums(np.log((1 - shown) * lower), units)  # no image shows the highest grade
        either[:, 0] = _sums(np.log(seen[:, :1]), units)[:, 0]  # there is no grade below the mildest
        never[:, 0] = -np.inf
    sizes = np.bincount(units)[:, None]
    somewhere = np.where(np.arange(seen.shape[1]) == 0, 1.0, 1.0 - (1.0 - shown) ** sizes)
    top = either.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    scaled: Floats = np.clip(np.exp(either - top) - np.exp(never - top), 0.0, None) / somewhere
    return scaled, float(top.sum())


def _fit_priors(likelihood: Floats) -> tuple[Floats, Floats]:
    """(S, M, C) by s → the highest log-likelihoods (S,) over the prior of the grades, and the posteriors (S, M, C)."""
    prior = np.full((len(likelihood), 1, likelihood.shape[2]), 1.0 / likelihood.shape[2])
    posterior, total = likelihood, np.ones((*likelihood.shape[:2], 1))
    for _ in range(STEPS):
        posterior = likelihood * prior
        total = posterior.sum(axis=2, keepdims=True)
        posterior = posterior / np.maximum(total, 1e-300)  # impossible labels remain so in every step
        prior = posterior.mean(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.log(total).sum(axis=(1, 2)), posterior


def _sums(values: Floats, units: npt.NDArray[np.int64]) -> Floats:
    return np.stack([np.bincount(units, weights=column) for column in values.T], axis=1)
