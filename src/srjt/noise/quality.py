"""The quality of each label: how likely it is right, what the true grade probably is, what can be
promised of true grades that were not seen, and the highest true grade of a patient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from srjt.errors import SrjtError
from srjt.noise.estimate import Groups, NoiseEstimate, check_labels
from srjt.noise.explain import explain
from srjt.noise.matrices import Floats, Ints, check_matrix, transition_of, true_given_label
from srjt.noise.model import bayes
from srjt.noise.verified import Verified, quality_with_rate, read_verified
from srjt.ordinal import patient_codes

# Which labels are wrong? p(true grade | image, label), and with it how far each label can be
# trusted.

_PARTS = 5  # of the patients: each is calibrated by the others


def label_quality(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    transition: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    groups: Groups = None,
    verified: ArrayLike | None = None,
    rate: float | None = None,
    label_rates: ArrayLike | None = None,
) -> Floats:
    """The probability (N,) that each label is right, given the image and the label; low is bad.

    Of labels with a quality of 0.3 about 30 % are right, as far as the noise rate is known.

    Parameters
    ----------
    labels, probabilities, transition, prior, groups, verified, rate, label_rates
        As for ``true_grade_posterior``. The quality of a verified label is 1 or 0.

    Examples
    --------
    >>> labels = np.array([0, 0, 1, 1, 1, 0] * 20)
    >>> second = np.array([0.1, 0.2, 0.9, 0.7, 0.8, 0.9] * 20)
    >>> probabilities = np.stack([1.0 - second, second], axis=1)
    >>> int(label_quality(labels, probabilities)[:6].argmin())
    5
    """
    posterior = true_grade_posterior(
        labels,
        probabilities,
        transition=transition,
        prior=prior,
        groups=groups,
        verified=verified,
        rate=rate,
        label_rates=label_rates,
    )
    return np.asarray(posterior[np.arange(len(posterior)), np.asarray(labels)])


def true_grade_posterior(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    transition: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    groups: Groups = None,
    verified: ArrayLike | None = None,
    rate: float | None = None,
    label_rates: ArrayLike | None = None,
    same_image: ArrayLike | None = None,
) -> Floats:
    """p(true grade | image, label) (N, C); the suggested grade is the largest entry of a row.

    It is the mean over the forms of noise that explain the labels, as in ``estimate_noise``, and
    over what the network may have learnt: the true grades or the noisy labels. The network's
    temperature is fitted to the labels, so over-confident networks are corrected.

    Parameters
    ----------
    labels : (N,) array of int
        Grades 0 … C − 1.
    probabilities : (N, C) array of float
        Out-of-fold probabilities of any network.
    transition : (C, C) array, optional
        P[i, j] = Pr(label = j | true grade = i), if it is known: p(true grade | image, label) ∝
        p(x)^β P[:, label]. None: estimated from the same arrays.
    prior : (C,) array, optional
        Shares of the true grades that the answer is fitted to. None: as the labels have it.
    groups : (N,) sequence, optional
        Patients, as in ``estimate_noise``.
    verified : (N,) array, optional
        True grades where they are known, −1 or nan elsewhere. A known grade has the probability 1,
        and explanations that predict the known grades count more.
    rate : float, optional
        The share of wrong labels that the answer is fitted to, for example ``NoiseEstimate.rate``.
        The order of the labels stays. None: as the explanations have it.
    label_rates : (C,) array, optional
        Instead of ``rate``, the share of wrong labels of each given grade, for example the first
        column of ``NoiseEstimate.verified_shares``. The order of the labels of one grade stays.
    same_image : (N,) array of int, optional
        Equal numbers for samples that show the same image. Where their labels differ, all of them
        are evidence of one true grade, so that at most one of the labels is probably right. Equal
        labels may be copies: they count once.

    Examples
    --------
    >>> labels = np.array([0, 0, 1, 1, 1, 0] * 20)
    >>> second = np.array([0.1, 0.2, 0.9, 0.7, 0.8, 0.9] * 20)
    >>> probabilities = np.stack([1.0 - second, second], axis=1)
    >>> true_grade_posterior(labels, probabilities).shape
    (120, 2)
    """
    y, p = check_labels(labels, probabilities)
    classes = p.shape[1]
    checked = read_verified(verified, samples=len(y), classes=classes)
    if transition is None:
        explanations = explain(y, p, patient_codes(groups, len(y)), checked)
        matrix = transition_of(explanations.joint)
        posterior = explanations.posterior(y, p)
    else:
        matrix = check_matrix(transition, num_classes=classes)
        posterior = bayes(y, p, matrix)
    if prior is not None:  # a factor for each grade: iterative proportional fitting
        shares = np.asarray(prior, dtype=np.float64)
        possible = shares.shape == (classes,) and ((shares >= 0) & (shares < np.inf)).all()
        if not possible or not shares.sum() > 0:
            raise SrjtError(
                f"The prior must hold a share for each of the {classes} grades, none negative.",
                code="wrong_values",
            )
        for _ in range(50):
            posterior = posterior * (
                shares / shares.sum() / np.maximum(posterior.mean(axis=0), 1e-12)
            )
            posterior = posterior / np.maximum(posterior.sum(axis=1, keepdims=True), 1e-300)
    posterior = np.asarray(posterior / posterior.sum(axis=1, keepdims=True)).clip(0.0, 1.0)
    if label_rates is not None:
        posterior = _with_label_rates(posterior, y, check_rates(label_rates, classes), checked)
    elif rate is not None:
        posterior = _with_rate(posterior, y, rate, checked)
    for rows in _contradictory(
        y, same_image
    ):  # last, because one row for all of them is what makes it true
        posterior[rows] = _joint(posterior[rows], matrix.T[y[rows]])
    posterior[checked.rows] = np.eye(classes)[checked.true]
    return posterior


def suggestion_shares(
    labels: ArrayLike,
    probabilities: ArrayLike,
    suggested: ArrayLike,
    *,
    estimate: NoiseEstimate,
    groups: Groups = None,
) -> Floats:
    """The share (N,) of suggestions like each one that is expected to be right, if it contradicts
    the label.

    Below one half a suggestion does more harm than good.

    Let A be the share of labels that agree with the networks where they say a grade as confidently
    as here, and ε the share of wrong labels. Networks that are right in a share a of the cases
    agree with a (1 − ε) of the labels, and a ε of the suggestions correct an error, among 1 − A
    that contradict the label: the share is A / (1 − A) · ε / (1 − ε). A is calibrated by
    cross-fitting, isotonically, from other patients. ε is what the data show: the lower end of the
    interval, and without verified labels no more than if networks and labels erred equally often.
    Labels and images alone hardly tell whose error a disagreement is.

    labels, probabilities, groups: as for ``true_grade_posterior``. suggested: (N,) the grade that
    would be suggested for each sample. estimate: from the same labels and probabilities.
    """
    from sklearn.isotonic import IsotonicRegression

    y, p = check_labels(labels, probabilities)
    part = patient_codes(groups, len(y)) % _PARTS
    grade = np.asarray(suggested, dtype=np.int64)
    said = p[np.arange(len(y)), grade]
    agrees = np.eye(p.shape[1])[y]
    agreement = np.zeros(len(y))
    for one in np.unique(part):
        others = part != one
        held_out = part == one
        if not others.any():  # a single patient
            continue
        # One disagreement at full confidence more than was seen: a few samples do not make it
        # certain.
        x = np.append(p[others].ravel(), 1.0)
        hit = np.append(agrees[others].ravel(), 0.0)
        calibrated = IsotonicRegression(out_of_bounds="clip").fit(x, hit)
        agreement[held_out] = calibrated.predict(said[held_out])
    rate = estimate.rate_interval[0]
    if not estimate.verified:
        rate = min(rate, 1.0 - float((p.argmax(axis=1) == y).mean()) ** 0.5)
    odds = agreement / np.maximum(1.0 - agreement, 1e-12) * rate / max(1.0 - rate, 1e-12)
    return np.asarray(np.minimum(odds, 1.0))


def check_rates(rates: ArrayLike, classes: int) -> Floats:
    """(C,) shares of wrong labels, one of each given grade, or an error that says what is wrong."""
    shares = np.asarray(rates, dtype=np.float64)
    if shares.shape != (classes,) or not ((shares >= 0.0) & (shares <= 1.0)).all():
        raise SrjtError(
            f"label_rates holds a share between 0 and 1 for each of the {classes} grades.",
            code="wrong_values",
        )
    return shares


def _with_rate(posterior: Floats, labels: Ints, rate: float, checked: Verified) -> Floats:
    """The posterior with one factor for the odds of every label being right, such that this share
    of all is wrong."""
    right, known = _known_quality(posterior, labels, checked)
    return _with_quality(posterior, labels, quality_with_rate(right, rate, known))


def _with_label_rates(posterior: Floats, labels: Ints, rates: Floats, checked: Verified) -> Floats:
    """As ``_with_rate``, with one factor for the labels of each grade, by its own share (C,)."""
    right, known = _known_quality(posterior, labels, checked)
    for grade in np.unique(labels).tolist():
        rows = np.flatnonzero(labels == grade)
        least = 0.5 * len(rows) / len(labels)  # half a label of all, as with one rate
        right[rows] = quality_with_rate(right[rows], float(rates[grade]), known[rows], least=least)
    return _with_quality(posterior, labels, right)


def _known_quality(
    posterior: Floats, labels: Ints, checked: Verified
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """(N,) the probability that each label is right, 0 or 1 where it is verified; and where it
    is."""
    right = posterior[np.arange(len(labels)), labels]
    right[checked.rows] = labels[checked.rows] == checked.true
    known = np.zeros(len(labels), dtype=bool)
    known[checked.rows] = True
    return right, known


def _with_quality(posterior: Floats, labels: Ints, quality: Floats) -> Floats:
    """The posterior with these probabilities (N,) of the labels; the other grades keep their
    proportions."""
    rows = np.arange(len(labels))
    right = posterior[rows, labels]
    others = posterior * ((1.0 - quality) / np.maximum(1.0 - right, 1e-300))[:, None]
    others[rows, labels] = quality
    return np.asarray(others / others.sum(axis=1, keepdims=True))


def _contradictory(labels: Ints, same_image: ArrayLike | None) -> list[Ints]:
    """The rows of each image that has two labels."""
    if same_image is None:
        return []
    image = np.asarray(same_image)
    order = np.argsort(image, kind="stable")
    ends = np.flatnonzero(np.diff(image[order])) + 1
    return [
        rows
        for rows in np.split(order, ends)
        if len(rows) > 1 and len(set(labels[rows].tolist())) > 1
    ]


def _joint(posterior: Floats, likelihood: Floats) -> Floats:
    """(C,) p(true grade | image, all labels of it).

    posterior: (M, C), each from one of the labels; likelihood: (M, C) P[:, label] of each.
    """
    others = np.stack(
        [np.delete(likelihood, row, axis=0).prod(axis=0) for row in range(len(likelihood))]
    )
    joint = (posterior * others).mean(axis=0)
    # Labels that no grade can have together: the image decides.
    return np.asarray(joint / joint.sum() if joint.sum() > 1e-300 else posterior.mean(axis=0))


# What labels say about true grades: weights for calibrating on labels that may be wrong.
#
# Which weights are right depends on what wrong labels depend on, which labels and probabilities
# alone cannot show:
#
# - **On the true grade alone** ("class-conditional"). Then Σ_c (P⁻¹)[ỹ, c] · f(x, c) has the mean
#   of f(x, true grade), whatever the network's probabilities are.
# - **On the image as well.** Readers and networks may be misled by the same images: the network
#   then agrees with a wrong label, and the weights above promise too much. p(true grade | label),
#   without the image, promises enough as long as an image does not mislead about its true grade
#   *given the label*: of two images with one label, the one that looks more severe is not the
#   milder one more often than chance.
# - **On anything.** Only how many labels are wrong by how many grades is used.

LabelNoise = Literal["unknown", "class-conditional", "none"]


@dataclass(frozen=True, kw_only=True)
class NoiseBounds:
    """What is known about the noise of labels."""

    joint: Floats  # (C, C) p(true grade, label), as far as it is known
    rates: tuple[float, float]  # the lowest and the highest plausible share of wrong labels
    determined: bool  # whether the labels show how many are wrong
    samples: int = 0  # labels that it was estimated from; 0 if it was given

    def lowest(self) -> Floats:
        """(C, C) the joint distribution with no more wrong labels than are certain."""
        return scaled_joint(self.joint, rate=self.rates[0])

    def highest(self) -> Floats:
        """(C, C) the joint distribution with as many wrong labels as are plausible."""
        return scaled_joint(self.joint, rate=self.rates[1])

    def wrong_by(self, grades: int) -> float:
        """At most this share of the labels is wrong by at least so many grades."""
        return float(self.highest()[_distance(self.joint) >= grades].sum())


def given_noise(transition: ArrayLike, shares: ArrayLike) -> NoiseBounds:
    """Noise of a known transition matrix (C, C); shares: of the labels, (C,)."""
    matrix = np.asarray(transition, dtype=np.float64)
    labelled = np.asarray(shares, dtype=np.float64)
    prior = np.maximum(np.linalg.lstsq(matrix.T, labelled, rcond=None)[0], 1e-6)
    joint = (prior / prior.sum())[:, None] * matrix
    rate = float(1.0 - np.trace(joint))
    return NoiseBounds(joint=joint, rates=(rate, rate), determined=True)


def estimated_noise(estimate: NoiseEstimate, *, rate: float | None = None) -> NoiseBounds:
    """Noise of an estimate with its uncertainty; rate: the share of wrong labels, if that is
    known."""
    joint = estimate.prior[:, None] * estimate.transition
    return NoiseBounds(
        joint=joint if rate is None else scaled_joint(joint, rate=rate),
        rates=estimate.rate_interval if rate is None else (rate, rate),
        determined=estimate.identifiable or rate is not None,
        samples=estimate.samples,
    )


def scaled_joint(joint: Floats, *, rate: float) -> Floats:
    """The same errors, (C, C), more or less often: the share of wrong labels becomes ``rate``."""
    right = np.diag(np.diag(joint))
    wrong = joint - right
    if wrong.sum() <= 0.0:  # no error is known: any neighbour
        wrong = joint.sum(axis=1, keepdims=True) * (_distance(joint) == 1)
    scaled = right * (1.0 - rate) / max(float(right.sum()), 1e-12) + wrong * rate / float(
        wrong.sum()
    )
    return np.asarray(scaled / scaled.sum())


def _distance(joint: Floats) -> Ints:
    """(C, C) |i − j|"""
    return np.asarray(np.abs(np.subtract.outer(*[np.arange(len(joint))] * 2)))


def posterior_weights(labels: Ints, joint: Floats) -> Floats:
    """(N, C) p(true grade | label), from p(true grade, label)."""
    return np.asarray(true_given_label(joint)[labels])


def inverse_weights(labels: Ints, joint: Floats) -> Floats | None:
    """(N, C) rows of P⁻¹, which sum to 1 and may be negative; None where P cannot be inverted."""
    transition = transition_of(joint)
    if np.linalg.cond(transition) > 1e6:
        return None
    return np.asarray(np.linalg.inv(transition)[labels])


# The highest true grade of a patient's images, from labels that are partly wrong.
#
# The highest of several noisy labels is too high: the more images, the more likely that one label
# is wrong upwards. With the transition matrix P of the noise, the labels of n images say more. The
# model of a patient with the highest grade H: each image shows H with probability s, else a lower
# grade, all equally likely; at least one image shows H; labels are wrong independently. s and the
# prior of H are fitted by maximum likelihood. Without noise the posterior is certain, and is the
# highest label.
#
# Weights need no such model. If labels are wrong independently, given the true grades t_1 … t_n of
# the images, then row ỹ_i of P⁻¹, summed up to the grade c, has the mean [t_i ≤ c], and the mean of
# a product is the product of the means:
#
#     E ∏_i Σ_{c' ≤ c} (P⁻¹)[ỹ_i, c'] = [t_1 ≤ c] · … · [t_n ≤ c] = [highest true grade ≤ c],
#
# whatever the true grades of the other images are. The differences between neighbouring c are the
# weights of the highest grade. They sum to 1, may be negative, and grow exponentially with the
# number of images.

_SHOWN = np.linspace(0.05, 1.0, 20)  # values of s that are tried
_STEPS = 50  # of the expectation maximisation for the prior


def highest_grade_posterior(
    labels: ArrayLike, units: ArrayLike, transition: ArrayLike, *, certain: ArrayLike | None = None
) -> Floats:
    """p(highest true grade | labels) (M, C) of each patient.

    labels: (N,) grades of the images, possibly wrong. units: (N,) the patient of each image, 0 … M
    − 1. transition: (C, C) P[i, j] = Pr(label = j | true grade = i). certain: (N,) of bool, labels
    that are known to be right.
    """
    y = np.asarray(labels, dtype=np.int64)
    u = np.asarray(units, dtype=np.int64)
    matrix = np.asarray(transition, dtype=np.float64)
    classes = len(matrix)
    if y.shape != u.shape or not len(y) or matrix.shape != (classes, classes):
        raise SrjtError(
            f"Labels and units are lists of one length, the matrix is square; got {y.shape},"
            f" {u.shape}, {matrix.shape}.",
            code="wrong_shape",
        )
    seen = matrix[:, y].T  # (N, C): probability of the label by true grade
    if certain is not None:
        right = np.asarray(certain, dtype=bool)
        seen[right] = np.eye(classes)[y[right]]
    lower = np.zeros_like(seen)  # … by the mean of the lower grades
    lower[:, 1:] = np.cumsum(seen, axis=1)[:, :-1] / np.arange(1, classes)
    likelihoods, scales = zip(
        *(_likelihood(seen, lower, u, shown=float(s)) for s in _SHOWN), strict=True
    )
    values, posteriors = _fit_priors(np.stack(likelihoods))
    values += scales
    if not np.isfinite(values).any():
        raise SrjtError(
            "The labels of a patient are impossible under this transition matrix.",
            code="wrong_values",
        )
    return np.asarray(posteriors[int(values.argmax())])


def highest_grade_weights(
    labels: ArrayLike, units: ArrayLike, transition: ArrayLike, *, certain: ArrayLike | None = None
) -> Floats | None:
    """Weights (M, C) of each patient's highest grade whose mean, over the labels, is 1 for the true
    one, else 0.

    None where the matrix cannot be inverted, or the products of many images overflow. With one
    image per patient: rows of the inverse matrix. The arguments are those of
    ``highest_grade_posterior``.
    """
    y = np.asarray(labels, dtype=np.int64)
    u = np.asarray(units, dtype=np.int64)
    matrix = np.asarray(transition, dtype=np.float64)
    if np.linalg.cond(matrix) > 1e6:
        return None
    of_image = np.linalg.inv(matrix)[y]
    if certain is not None:
        right = np.asarray(certain, dtype=bool)
        of_image[right] = np.eye(len(matrix))[y[right]]
    below = np.ones((int(u.max()) + 1, len(matrix)))  # of "no image is worse than c"
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply.at(below, u, np.cumsum(of_image, axis=1))
        weights = np.diff(below, axis=1, prepend=0.0)
    return weights if np.isfinite(weights).all() else None


def _likelihood(seen: Floats, lower: Floats, units: Ints, *, shown: float) -> tuple[Floats, float]:
    """(M, C) scaled probabilities of the patients' labels by highest grade, and the logarithm of
    all scales."""
    with np.errstate(divide="ignore"):
        either = _sums(np.log(shown * seen + (1 - shown) * lower), units)
        never = _sums(np.log((1 - shown) * lower), units)  # no image shows the highest grade
        either[:, 0] = _sums(np.log(seen[:, :1]), units)[
            :, 0
        ]  # there is no grade below the mildest
        never[:, 0] = -np.inf
    sizes = np.bincount(units)[:, None]
    somewhere = np.where(np.arange(seen.shape[1]) == 0, 1.0, 1.0 - (1.0 - shown) ** sizes)
    top = either.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    scaled: Floats = np.clip(np.exp(either - top) - np.exp(never - top), 0.0, None) / somewhere
    return scaled, float(top.sum())


def _fit_priors(likelihood: Floats) -> tuple[Floats, Floats]:
    """(S, M, C) by s → the highest log-likelihoods (S,) over the prior of the grades, and the
    posteriors (S, M, C)."""
    prior = np.full((len(likelihood), 1, likelihood.shape[2]), 1.0 / likelihood.shape[2])
    posterior = likelihood
    total = np.ones((*likelihood.shape[:2], 1))
    for _ in range(_STEPS):
        posterior = likelihood * prior
        total = posterior.sum(axis=2, keepdims=True)
        posterior = posterior / np.maximum(
            total, 1e-300
        )  # impossible labels remain so in every step
        prior = posterior.mean(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.log(total).sum(axis=(1, 2)), posterior


def _sums(values: Floats, units: Ints) -> Floats:
    return np.stack([np.bincount(units, weights=column) for column in values.T], axis=1)
