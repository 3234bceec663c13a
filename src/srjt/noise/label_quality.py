"""Which labels are wrong? p(true grade | image, label), and with it how far each label can be trusted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq  # type: ignore[import-untyped]
from scipy.special import expit, logit  # type: ignore[import-untyped]

from srjt import noise
from srjt.errors import SrjtError
from srjt.noise.estimate import Groups, NoiseEstimate, check_labels, patient_numbers
from srjt.noise.explanations import explain, rows_of
from srjt.noise.posterior import bayes
from srjt.noise.verified import Verified, read_verified

__all__ = ["label_quality", "suggestion_shares", "true_grade_posterior"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PARTS = 5  # of the patients: each is calibrated by the others
_LARGEST = 30.0  # log odds beyond any probability that matters


def label_quality(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    transition: npt.ArrayLike | None = None,
    prior: npt.ArrayLike | None = None,
    groups: Groups = None,
    verified: npt.ArrayLike | None = None,
    rate: float | None = None,
) -> Floats:
    """The probability that each label is right, given the image and the label; low is bad.

    Parameters
    ----------
    labels : (N,) array of int
        Grades 0 … C − 1.
    probabilities : (N, C) array of float
        Out-of-fold probabilities of any network.
    transition, prior, groups, verified, rate : optional
        As in ``true_grade_posterior``. The quality of a verified label is 1 or 0.

    Returns
    -------
    (N,) array of float
        In [0, 1]. Of labels with a quality of 0.3 about 30 % are right, as far as the noise rate is known.

    Examples
    --------
    >>> labels = np.array([0, 0, 1, 1, 1, 0] * 20)
    >>> probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.2, 0.8], [0.1, 0.9]] * 20)
    >>> int(label_quality(labels, probabilities)[:6].argmin())
    5
    """
    y = np.asarray(labels)
    posterior = true_grade_posterior(
        y,
        probabilities,
        transition=transition,
        prior=prior,
        groups=groups,
        verified=verified,
        rate=rate,
    )
    return np.asarray(posterior[np.arange(len(y)), y])


def true_grade_posterior(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    transition: npt.ArrayLike | None = None,
    prior: npt.ArrayLike | None = None,
    groups: Groups = None,
    verified: npt.ArrayLike | None = None,
    rate: float | None = None,
    same_image: npt.ArrayLike | None = None,
) -> Floats:
    """p(true grade | image, label); the suggested grade is the largest entry of a row.

    It is the mean over the forms of noise that explain the labels, as in ``estimate_noise``, and over what the network
    may have learnt: the true grades or the noisy labels. The network's temperature is fitted to the labels, so
    over-confident networks are corrected.

    Parameters
    ----------
    labels : (N,) array of int
        Grades 0 … C − 1.
    probabilities : (N, C) array of float
        Out-of-fold probabilities of any network.
    transition : (C, C) array, optional
        P[i, j] = Pr(label = j | true grade = i), if it is known: p(true grade | image, label) ∝ p(x)^β P[:, label].
        None: estimated from the same arrays.
    prior : (C,) array, optional
        Shares of the true grades that the answer is fitted to. None: as the labels have it.
    groups : (N,) sequence, optional
        Patients, as in ``estimate_noise``.
    verified : (N,) array, optional
        True grades where they are known, −1 or nan elsewhere. A known grade has the probability 1, and explanations
        that predict the known grades count more.
    rate : float, optional
        The share of wrong labels that the answer is fitted to, for example ``NoiseEstimate.rate``. The order of the
        labels stays. None: as the explanations have it.
    same_image : (N,) array of int, optional
        Equal numbers for samples that show the same image. Where their labels differ, all of them are evidence of one
        true grade, so that at most one of the labels is probably right. Equal labels may be copies: they count once.

    Returns
    -------
    (N, C) array of float
        Rows sum to 1.

    Examples
    --------
    >>> labels = np.array([0, 0, 1, 1, 1, 0] * 20)
    >>> probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.2, 0.8], [0.1, 0.9]] * 20)
    >>> true_grade_posterior(labels, probabilities).shape
    (120, 2)
    """
    y, p = check_labels(labels, probabilities)
    classes = p.shape[1]
    known = read_verified(verified, samples=len(y), classes=classes)
    if transition is None:
        found = explain(y, p, owner=patient_numbers(groups, len(y)))
        if known is not None:
            found = found.given_verified(y, p, known.rows, known.true)
        matrix, posterior = rows_of(found.joint), found.posterior(y, p)
    else:
        matrix = noise.check_matrix(transition, num_classes=classes)
        posterior = bayes(y, p, matrix)
    if prior is not None:
        posterior = _with_shares(posterior, _shares(prior, classes))
    posterior = np.asarray(posterior / posterior.sum(axis=1, keepdims=True)).clip(0.0, 1.0)
    if rate is not None:
        posterior = _with_rate(posterior, y, rate, known)
    for rows in _contradictory(y, same_image):  # last, because one row for all of them is what makes it true
        posterior[rows] = _joint(posterior[rows], matrix.T[y[rows]])
    if known is not None:
        posterior[known.rows] = np.eye(classes)[known.true]
    return posterior


def suggestion_shares(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    suggested: npt.ArrayLike,
    *,
    estimate: NoiseEstimate,
    groups: Groups = None,
) -> Floats:
    """The share of suggestions like each one that is expected to be right, if it contradicts the label.

    Let A be the share of labels that agree with the networks where they say a grade as confidently as here, and ε the
    share of wrong labels. Networks that are right in a share a of the cases agree with a (1 − ε) of the labels, and
    a ε of the suggestions correct an error, among 1 − A that contradict the label: the share is
    A / (1 − A) · ε / (1 − ε). A is calibrated by cross-fitting, isotonically, from other patients. ε is what the data
    show: the lower end of the interval, and without verified labels no more than if networks and labels erred equally
    often. Labels and images alone hardly tell whose error a disagreement is.

    Parameters
    ----------
    labels : (N,) array of int
        Grades 0 … C − 1.
    probabilities : (N, C) array of float
        Out-of-fold probabilities of any network.
    suggested : (N,) array of int
        The grade that would be suggested for each sample.
    estimate : NoiseEstimate
        From the same labels and probabilities.
    groups : (N,) sequence, optional
        Patients, as in ``estimate_noise``.

    Returns
    -------
    (N,) array of float
        In [0, 1]. Below one half a suggestion does more harm than good.

    Examples
    --------
    >>> labels = np.array([0, 0, 1, 1, 1, 0] * 20)
    >>> probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.2, 0.8], [0.1, 0.9]] * 20)
    >>> estimate = noise.estimate_noise(labels, probabilities, bootstrap=20)
    >>> suggestion_shares(labels, probabilities, probabilities.argmax(axis=1), estimate=estimate).shape
    (120,)
    """
    from sklearn.isotonic import IsotonicRegression

    y, p = check_labels(labels, probabilities)
    owner = patient_numbers(groups, len(y))
    part = (np.arange(len(y)) if owner is None else owner) % _PARTS
    grade = np.asarray(suggested, dtype=np.int64)
    said = p[np.arange(len(y)), grade]
    agrees = np.eye(p.shape[1])[y]
    agreement = np.zeros(len(y))
    for one in np.unique(part):
        others, own = part != one, part == one
        if not others.any():  # a single patient
            continue
        # One disagreement at full confidence more than was seen: a few samples do not make it certain.
        x, hit = np.append(p[others].ravel(), 1.0), np.append(agrees[others].ravel(), 0.0)
        agreement[own] = IsotonicRegression(out_of_bounds="clip").fit(x, hit).predict(said[own])
    rate = estimate.rate_interval[0]
    if not estimate.verified:
        rate = min(rate, 1.0 - float((p.argmax(axis=1) == y).mean()) ** 0.5)
    odds = agreement / np.maximum(1.0 - agreement, 1e-12) * rate / max(1.0 - rate, 1e-12)
    return np.asarray(np.minimum(odds, 1.0))


def _with_rate(posterior: Floats, labels: Ints, rate: float, known: Verified | None) -> Floats:
    """The posterior with one factor for the odds of every label being right, such that this share of all is wrong."""
    if not 0.0 <= rate <= 1.0:
        raise SrjtError(f"A rate lies between 0 and 1; got {rate:g}.")
    rows = np.arange(len(labels))
    right = posterior[rows, labels]
    open_rows, wrong = rows, rate * len(rows)
    if known is not None:
        open_rows = np.setdiff1d(rows, known.rows)
        wrong -= float((labels[known.rows] != known.true).sum())
    if not len(open_rows):
        return posterior
    least = min(0.5, len(open_rows) / 10)  # of none and of all the order of the labels could not be seen
    wrong = min(max(wrong, least), len(open_rows) - least)
    odds = logit(right)

    def left(shift: float) -> float:
        return float((1.0 - expit(odds[open_rows] + shift)).sum()) - wrong

    if (
        left(-_LARGEST) <= 0.0 or left(_LARGEST) >= 0.0
    ):  # labels that are certainly right or wrong do not allow it
        return posterior
    fitted = expit(odds + brentq(left, -_LARGEST, _LARGEST))
    others = posterior * ((1.0 - fitted) / np.maximum(1.0 - right, 1e-300))[:, None]
    others[rows, labels] = fitted
    return np.asarray(others / others.sum(axis=1, keepdims=True))


def _contradictory(
    labels: npt.NDArray[np.generic], same_image: npt.ArrayLike | None
) -> list[npt.NDArray[np.int64]]:
    """The rows of each image that has two labels."""
    if same_image is None:
        return []
    image = np.asarray(same_image)
    order = np.argsort(image, kind="stable")
    ends = np.flatnonzero(np.diff(image[order])) + 1
    return [rows for rows in np.split(order, ends) if len(rows) > 1 and len(set(labels[rows].tolist())) > 1]


def _joint(posterior: Floats, likelihood: Floats) -> Floats:
    """(C,) p(true grade | image, all labels of it).

    posterior: (M, C), each from one of the labels; likelihood: (M, C) P[:, label] of each.
    """
    others = np.stack([np.delete(likelihood, row, axis=0).prod(axis=0) for row in range(len(likelihood))])
    joint = (posterior * others).mean(axis=0)
    # Labels that no grade can have together: the image decides.
    return np.asarray(joint / joint.sum() if joint.sum() > 1e-300 else posterior.mean(axis=0))


def _shares(prior: npt.ArrayLike, classes: int) -> Floats:
    shares = np.asarray(prior, dtype=np.float64)
    if shares.shape != (classes,) or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise SrjtError(f"The prior must hold a share for each of the {classes} grades, none negative.")
    return np.asarray(shares / shares.sum())


def _with_shares(posterior: Floats, shares: Floats) -> Floats:
    """The posterior with a factor for each grade such that its mean is ``shares`` (iterative proportional fitting)."""
    for _ in range(50):
        posterior = posterior * (shares / np.maximum(posterior.mean(axis=0), 1e-12))
        posterior = posterior / np.maximum(posterior.sum(axis=1, keepdims=True), 1e-300)
    return posterior
