"""p(true grade | image, label), given how the labels arise.

What the network's probabilities are is not known. It may have learnt to see the true grade, or it has learnt what the
readers write. Three pure functions of labels (N,) and probabilities (N, C) follow:

- ``bayes``: the network tells the true grade, and readers err by a matrix;
- ``by_grade``: the same, or the network tells the label, from which the matrix is removed again (deconvolution);
  the likelihood of the labels decides between the two;
- ``by_severity``: the network tells the reader's own grade. The reader cuts a severity of their own into grades, which
  differs from the image's severity by a blur that is the same for every image.

Each fits the inverse temperature of the network to the labels, so neither an over-confident network nor one that has
learnt the noise is taken at its word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtr, ndtri  # type: ignore[import-untyped]

__all__ = ["bayes", "by_grade", "by_severity", "probits"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_LOWEST, _HIGHEST = np.log(0.1), np.log(10.0)  # log inverse temperatures
_NEGLIGIBLE = 1e-3  # a grade less probable than that changes no quality by more than that
_STEPS = 20  # of the deconvolution; 400 change quality by less than 0.02 on average
_POINTS = 5  # of the reader's severity within a grade
_TINY = float(np.finfo(np.float32).tiny)  # networks compute in single precision: less is 0


def bayes(labels: Ints, probabilities: Floats, transition: Floats) -> Floats:
    """(N, C): p(true grade | x, label) ∝ t(x) P[:, label], with t(x) ∝ p(x)^β.

    β, the network's inverse temperature for the *true* grades, makes the labels likeliest: below 1 where the network is
    over-confident, above 1 where it has learnt the noise.
    """
    return _told_the_truth(labels, probabilities, transition)[0]


def by_grade(labels: Ints, probabilities: Floats, transition: Floats) -> Floats:
    """(N, C): as ``bayes``, but the network may also have learnt p(label | x) instead of p(true grade | x)."""
    truth, log_truth = _told_the_truth(labels, probabilities, transition)
    tempered = _tempered(probabilities)
    rows = np.arange(len(labels))

    def loss(log_beta: float) -> float:
        return -_log_sum(tempered(log_beta)[rows, labels])

    beta = _minimum(loss, _LOWEST, _HIGHEST)
    share = float(expit(log_truth + loss(beta)))  # of the network that tells the true grade
    if share > 1.0 - _NEGLIGIBLE:
        return truth
    said = tempered(beta)
    true = said
    for _ in range(
        _STEPS
    ):  # expectation maximisation: the t(x) whose t(x) P is nearest to what the network says
        true = true * ((said / np.maximum(true @ transition, 1e-300)) @ transition.T)
        true /= np.maximum(true.sum(axis=1, keepdims=True), 1e-300)
    learnt = _normalised(true * transition.T[labels], otherwise=said)
    return np.asarray(share * truth + (1.0 - share) * learnt)


def by_severity(
    labels: Ints,
    probabilities: Floats,
    transition: Floats,
    readers: Sequence[float],
    weights: Sequence[float],
) -> Floats:
    """(N, C): the mean, by ``weights``, over ``readers``, the reader's shares of the blur's variance.

    In units of an image's blur its cuts are u_k(x) = Φ⁻¹(p(grade ≤ k | x)), up to a factor that makes the labels
    likeliest. The reader's severity z is standard normal; given z, the image's is normal with mean (1 − r) z and
    variance r (1 − r). Cuts that are far apart belong to a clear image: the reader's blur, which is the same for every
    image, is a larger share r of its blur. ``readers`` are the shares at the median image.
    """
    told = probits(probabilities)
    given = transition.T[labels]
    factor = _minimum(
        lambda log_factor: -_log_sum((_grades(np.exp(log_factor) * told) * given).sum(axis=1)),
        _LOWEST,
        _HIGHEST,
    )
    cuts = np.exp(factor) * told
    own = _normalised(_grades(cuts) * given, otherwise=_grades(cuts))  # of the reader, given the label
    clear = _clearness(cuts)
    ends = np.full((len(labels), 1), np.inf)
    below, above = (
        ndtr(np.concatenate(both, axis=1)) for both in ((-ends, cuts, ends), (ends, -cuts, -ends))
    )
    posterior = np.zeros_like(own)
    for grade in range(own.shape[1]):
        rows = np.flatnonzero(own[:, grade] > _NEGLIGIBLE)
        for point in (np.arange(_POINTS) + 0.5) / _POINTS:  # equally likely severities within the grade
            left, right = (
                tail[rows, grade] * (1.0 - point) + tail[rows, grade + 1] * point for tail in (below, above)
            )
            z = np.where(left < 0.5, ndtri(np.maximum(left, _TINY)), -ndtri(np.maximum(right, _TINY)))
            for reader, weight in zip(readers, weights, strict=True):
                r = np.clip(reader * clear[rows], _NEGLIGIBLE, 1.0 - _NEGLIGIBLE)[:, None]
                reached = ndtr((cuts[rows] - (1.0 - r) * z[:, None]) / np.sqrt(r * (1.0 - r)))
                true = np.diff(reached, axis=1, prepend=0.0, append=1.0)
                posterior[rows] += weight / _POINTS * own[rows, grade, None] * true
    return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))


def _told_the_truth(labels: Ints, probabilities: Floats, transition: Floats) -> tuple[Floats, float]:
    """``bayes``, and the log-likelihood of the labels."""
    tempered = _tempered(probabilities)
    given = transition.T[labels]

    def loss(log_beta: float) -> float:
        return -_log_sum((tempered(log_beta) * given).sum(axis=1))

    beta = _minimum(loss, _LOWEST, _HIGHEST)
    # A label that the matrix excludes for every grade the image may have: the image alone decides.
    return _normalised(tempered(beta) * given, otherwise=probabilities), -loss(beta)


def _tempered(probabilities: Floats) -> Callable[[float], Floats]:
    """log β → p^β, normalised. Networks round small probabilities to zero: 1e-12 is used."""
    log_p = np.log(np.maximum(probabilities, 1e-12))
    log_p -= log_p.max(axis=1, keepdims=True)

    def at(log_beta: float) -> Floats:
        p = np.exp(np.exp(log_beta) * log_p)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    return at


def probits(probabilities: Floats) -> Floats:
    """(N, C − 1): Φ⁻¹ of the cumulative probabilities, from the nearer end, which is more precise."""
    below = probabilities.cumsum(axis=1)[:, :-1]
    above = probabilities[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
    low, high = ndtri(np.maximum(below, _TINY)), -ndtri(np.maximum(above, _TINY))
    return np.asarray(np.where(below < 0.5, low, high), dtype=np.float64)


def _grades(cuts: Floats) -> Floats:
    return np.asarray(np.diff(ndtr(cuts), axis=1, prepend=0.0, append=1.0).clip(min=0.0))


def _clearness(cuts: Floats) -> Floats:
    """(N,): the squared distance between cuts, which is one grade in units of the blur; 1 at the median image.

    Cuts count by the probability of the grades around them. Of two grades there is one cut: all images are alike.
    """
    if cuts.shape[1] < 2:
        return np.ones(len(cuts))
    p = _grades(cuts)
    around = p[:, :-2] + p[:, 1:-1] + p[:, 2:] + 1e-12
    square = ((np.diff(cuts, axis=1) * around).sum(axis=1) / around.sum(axis=1)) ** 2
    middle = float(np.median(square))
    return np.asarray(square / middle) if middle > 0 else np.ones(len(cuts))


def _normalised(joint: Floats, *, otherwise: Floats) -> Floats:
    total = joint.sum(axis=1, keepdims=True)
    return np.where(total > 1e-300, joint / np.maximum(total, 1e-300), otherwise)


def _log_sum(likelihood: Floats) -> float:
    return float(np.log(np.maximum(likelihood, 1e-12)).sum())


def _minimum(loss: Callable[[float], float], low: float, high: float) -> float:
    """Of a function with one minimum, by golden section, to 1 % of the interval."""
    ratio = (5**0.5 - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(10):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = loss(right)
    return (low + high) / 2
