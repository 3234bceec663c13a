"""Which noise explains the labels? Every form of noise, weighted by how well it predicts them.

Three kinds of readers are equally likely beforehand: readers whose errors are symmetric and depend on the true grade
alone (three forms), readers who prefer a direction or a grade (``banded``), and readers who are unsure near the
boundary between two grades (``boundary``). The last kind predicts the same labels as perfect readers of unclear images.
How much of the blur is the reader's is therefore not in the data: each of ``READER_SHARES`` is equally likely. Readers
who prefer a direction are as likely to be unsure near boundaries, too, as not: real readers are (APPA-REAL).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from srjt.noise.families import FORMS, SYMMETRIC, Form, family
from srjt.noise.model import Cells, Fit, Images, fit_model, held_out_likelihood, pool, rank_images

__all__ = ["READER_SHARES", "Explanation", "Explanations", "bayes", "explain", "rows_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PARTS = 5  # of the patients, each held out once
READER_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the blur's variance; the middles of five equal parts


@dataclass(frozen=True, kw_only=True)
class Explanation:
    fit: Fit
    reader: float  # share of the blur's variance that is the reader's
    weight: float  # of all explanations they sum to 1
    doubtful_weight: float  # likewise, with less trust in the model

    def joint(self, cells: Cells, theta: Floats | None = None) -> Floats:
        """(C, C): p(true grade, label), averaged over the images."""
        shares = cells.weights / cells.weights.sum()
        joint = np.tensordot(shares, self.fit.joint(cells, theta, reader=self.reader), axes=1)
        return np.asarray(joint / joint.sum())


@dataclass(frozen=True, kw_only=True)
class Explanations:
    images: Images
    cells: Cells
    all: tuple[Explanation, ...]
    held_out: dict[str, float]  # mean held-out log-likelihood

    def __iter__(self) -> Iterator[Explanation]:
        """Those that matter."""
        return (one for one in self.all if one.weight > 1e-4)

    @cached_property
    def form_weights(self) -> dict[Form, float]:
        """Sums to 1."""
        found: dict[Form, float] = {}
        for one in self.all:
            found[one.fit.form] = found.get(one.fit.form, 0.0) + one.weight
        return {form: min(weight, 1.0) for form, weight in found.items()}

    @cached_property
    def joint(self) -> Floats:
        """(C, C): p(true grade, label), averaged over the images and the explanations."""
        total = sum(one.weight * one.joint(self.cells) for one in self)
        return np.asarray(total / np.sum(total))

    def label_probabilities(self) -> Floats:
        """(N, C): p(label | x)."""
        return np.asarray(
            sum(
                weight * (fit.true_grades(self.images) @ fit.transition())
                for fit, weight in (
                    (one.fit, self.form_weights[one.fit.form]) for one in self._one_per_form()
                )
            )
        )

    def given_verified(self, labels: Ints, probabilities: Floats, rows: Ints, true: Ints) -> Explanations:
        """Weighted anew after the true grades of some rows are known."""
        logs = np.array([np.log(one.doubtful_weight + 1e-12) for one in self.all])
        for k, one in enumerate(self.all):
            posterior = bayes(labels, probabilities, rows_of(one.joint(self.cells)))[rows, true]
            logs[k] += np.log(0.999 * posterior + 0.001).sum()  # a verified grade may be wrong, too
        pairs = zip(self.all, _normalised(logs).tolist(), strict=True)
        return replace(self, all=tuple(replace(one, weight=w, doubtful_weight=w) for one, w in pairs))

    def _one_per_form(self) -> list[Explanation]:
        return list({one.fit.form: one for one in self}.values())


def bayes(labels: Ints, probabilities: Floats, transition: Floats) -> Floats:
    """(N, C): p(true grade | x, label) ∝ t(x) P[:, label], with t(x) ∝ p(x)^β.

    β, the network's inverse temperature for the *true* grades, makes the labels likeliest: below 1 where the network is
    over-confident, above 1 where it has learnt the noise. Networks round small probabilities to zero: 1e-12 is used.
    """
    log_p = np.log(np.maximum(probabilities, 1e-12))
    log_p -= log_p.max(axis=1, keepdims=True)
    given = transition.T[labels]

    def joint(log_beta: float) -> Floats:
        t = np.exp(np.exp(log_beta) * log_p)
        return np.asarray(t / t.sum(axis=1, keepdims=True) * given)

    def loss(log_beta: float) -> float:
        return -float(np.log(np.maximum(joint(log_beta).sum(axis=1), 1e-300)).sum())

    best = joint(_minimum(loss, np.log(0.1), np.log(10.0)))
    total = best.sum(axis=1, keepdims=True)
    # A label that the matrix excludes for every grade the image may have: the image alone decides.
    return np.where(total > 1e-300, best / np.maximum(total, 1e-300), probabilities)


def rows_of(joint: Floats) -> Floats:
    """(…, C, C) p(label | true grade) from p(true grade, label): rows that sum to 1."""
    return np.asarray(joint / np.maximum(joint.sum(axis=-1, keepdims=True), 1e-300))


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


def explain(
    labels: Ints, probabilities: Floats, *, owner: Ints | None = None, repeated: float = 1.0
) -> Explanations:
    """Fit every form to labels (N,) and out-of-fold probabilities (N, C); ``repeated`` as in ``pool``.

    ``weight``, for the point, is the posterior probability of a form (Bayesian model averaging). ``doubtful_weight``,
    for the interval, trusts the model less: it comes from held-out likelihoods and is averaged over their sampling
    error, with patients (``owner``) as the unit, as in pseudo-BMA+ (Yao et al., Bayesian Analysis 2018).
    """
    classes = probabilities.shape[1]
    patients = np.arange(len(labels)) if owner is None else owner
    part = patients % min(_PARTS, int(patients.max()) + 1)  # patients in turn: nothing depends on chance
    images = rank_images(probabilities)
    cells = pool(labels, images, classes=classes, repeated=repeated)
    forms = [form for form in FORMS if classes > 2 or form not in SYMMETRIC[1:]]  # of two grades they are one
    fits = [fit_model(cells, family(form, num_classes=classes)) for form in forms]
    held_out = [held_out_likelihood(fit, labels, images, part) for fit in fits]
    kinds = [sum(form in SYMMETRIC for form in forms) if form in SYMMETRIC else 1 for form in forms]
    log_prior = np.array([_log_prior(fit, kind) for fit, kind in zip(fits, kinds, strict=True)])
    by_patient = np.array([np.bincount(patients, one) for one in held_out])
    found = []
    weights = _normalised(np.array([fit.log_evidence for fit in fits]) + log_prior).tolist()
    doubtful_weights = _doubtful_weights(by_patient, log_prior, repeated=repeated)
    for fit, weight, doubtful in zip(fits, weights, doubtful_weights, strict=True):
        for reader, share in _readers(fit.form):
            found.append(
                Explanation(fit=fit, reader=reader, weight=weight * share, doubtful_weight=doubtful * share)
            )
    means: dict[str, float] = {form: float(one.mean()) for form, one in zip(forms, held_out, strict=True)}
    return Explanations(images=images, cells=cells, all=tuple(found), held_out=means)


def _readers(form: Form) -> list[tuple[float, float]]:
    """Shares of the blur that may be the reader's, each with its probability."""
    unsure = [(share, 1.0 / len(READER_SHARES)) for share in READER_SHARES]
    if form == "boundary":
        return unsure
    if form == "banded":
        return [(0.0, 0.5)] + [(share, 0.5 * probability) for share, probability in unsure]
    return [(0.0, 1.0)]


def _log_prior(fit: Fit, forms_of_kind: int) -> float:
    """Not possible if a grade is labelled as another more often than as itself: grades could then change names."""
    transition = fit.transition()
    dominant = (transition.argmax(axis=1) == np.arange(len(transition))).all()
    return -float(np.log(forms_of_kind)) if dominant else -1e6


def _doubtful_weights(likelihood: Floats, log_prior: Floats, *, repeated: float) -> list[float]:
    """Weights (F,) from held-out log-likelihoods (F, patients), averaged over the sampling error of their sums."""
    off = likelihood - likelihood.mean(axis=1, keepdims=True)
    draws = np.random.Generator(np.random.PCG64(0)).multivariate_normal(
        likelihood.sum(axis=1) / repeated + log_prior, off @ off.T / repeated, size=1000, method="eigh"
    )
    mean: list[float] = _normalised(draws).mean(axis=0).tolist()
    return mean


def _normalised(logs: Floats) -> Floats:
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
