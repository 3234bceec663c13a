"""Which labels are wrong? p(true grade | image, label), and with it how far each label can be trusted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from srjt import noise
from srjt.errors import SrjtError
from srjt.noise.estimate import check_labels, choose_form
from srjt.noise.families import fixed
from srjt.noise.model import design, fit_mixture, recalibrated

__all__ = ["label_quality", "true_grade_posterior"]

Floats = npt.NDArray[np.float64]


def label_quality(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    transition: npt.ArrayLike | None = None,
    prior: npt.ArrayLike | None = None,
) -> Floats:
    """(N,) p(label correct | image, label) in [0, 1]; low is bad.

    labels: (N,) grades; probabilities: (N, C), out-of-fold, of any network. See ``true_grade_posterior``.
    """
    y = np.asarray(labels)
    posterior = true_grade_posterior(y, probabilities, transition=transition, prior=prior)
    return np.asarray(posterior[np.arange(len(y)), y])


def true_grade_posterior(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    transition: npt.ArrayLike | None = None,
    prior: npt.ArrayLike | None = None,
) -> Floats:
    """(N, C) p(true grade | image, label) ∝ t(x) P[:, label]; the suggested grade is its largest entry.

    t(x) are the probabilities recalibrated against the labels, as in ``estimate_noise``. transition: (C, C),
    for example ``NoiseEstimate.transition``; None: estimated from the same arrays. prior: (C,) shares of the
    true grades to which t(x) is then fitted; None: as the labels and the matrix have it.
    """
    y, p = check_labels(labels, probabilities)
    classes = p.shape[1]
    matrix = (
        choose_form(y, design(p))[0].transition
        if transition is None
        else noise.check_matrix(transition, num_classes=classes)
    )
    parts = design(p, ranking=True)
    t = recalibrated(parts, fit_mixture(y, parts, form=fixed(matrix)))
    if prior is not None:
        t = _with_shares(t, _shares(prior, classes))
    joint = t * matrix.T[y]
    total = joint.sum(axis=1, keepdims=True)
    # A label that the matrix rules out for every likely grade: the image alone decides.
    return np.asarray(np.where(total > 1e-300, joint / np.maximum(total, 1e-300), t))


def _shares(prior: npt.ArrayLike, classes: int) -> Floats:
    shares = np.asarray(prior, dtype=np.float64)
    if shares.shape != (classes,) or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise SrjtError(f"The prior must hold a share for each of the {classes} grades, none negative.")
    return np.asarray(shares / shares.sum())


def _with_shares(t: Floats, shares: Floats) -> Floats:
    """t with a factor for each grade such that its mean is ``shares`` (iterative proportional fitting)."""
    for _ in range(50):
        t = t * (shares / np.maximum(t.mean(axis=0), 1e-12))
        t = t / np.maximum(t.sum(axis=1, keepdims=True), 1e-300)
    return t
