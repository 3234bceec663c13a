"""Which noise explains the labels? Every form of noise, weighted by how well it predicts them.

Three kinds of readers are equally likely beforehand: readers whose errors are symmetric and depend on the true grade
alone (three forms), readers who prefer a direction or a grade (``banded``), and readers who are unsure near the
boundary between two grades (``boundary``). The last kind predicts the same labels as perfect readers of unclear images.
How much of the blur is the reader's is therefore not in the data: each of ``READER_SHARES`` is equally likely. Readers
who prefer a direction are as likely to be unsure near boundaries, too, as not: real readers are (APPA-REAL).
Readers whose labels of a grade are mostly wrong, to one side (``lowered``, ``raised``), are considered only where they
predict held-out labels far better than all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from srjt.noise.families import FORMS, ONE_SIDED, SYMMETRIC, Form, family
from srjt.noise.model import Fit, fit_model, held_out_likelihood
from srjt.noise.posterior import bayes, by_grade, by_severity
from srjt.noise.severity_order import Cells, Images, pool, rank_images
from srjt.noise.verified import repetition

__all__ = ["READER_SHARES", "Explanation", "Explanations", "explain", "rows_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PARTS = 5  # of the patients, each held out once
# Labels that the model uses as independent at most. With more, its own error (g is piecewise linear, the blur normal),
# which is about 0.005 in simulations, would exceed the sampling error, and forms would be excluded by it.
_MOST = 5000
# Held-out log-likelihood that a form with more wrong than right labels of a grade must gain: such a form changes the
# names of grades, which moderate errors of the model itself could pay for.
_GAIN = 10.0
_FEW = 10  # labels or images of a grade, below which its name could be another's
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
    repeated: (
        float  # how many labels carry the information of one, because labels of a patient repeat each other
    )

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

    def posterior(self, labels: Ints, probabilities: Floats) -> Floats:
        """(N, C): p(true grade | x, label), averaged over the explanations.

        Of readers who are unsure near boundaries the labels do not tell whether the network has learnt the true grades,
        with errors by the matrix of such readers, or the readers' own grades: both are equally likely.
        """
        total = np.zeros_like(probabilities)
        for form in {one.fit.form: one for one in self}:
            own = [one for one in self if one.fit.form == form]
            transition = own[0].fit.transition()
            sure, unsure = ([one for one in own if bool(one.reader) == doubt] for doubt in (False, True))
            for one in sure:
                total += one.weight * by_grade(labels, probabilities, transition)
            if unsure:
                weights = [one.weight for one in unsure]
                joint = sum(one.weight * one.joint(self.cells) for one in unsure)
                total += 0.5 * sum(weights) * bayes(labels, probabilities, rows_of(np.asarray(joint)))
                readers = [one.reader for one in unsure]
                split = by_severity(labels, probabilities, transition, readers, weights)
                total += 0.5 * sum(weights) * split
        return np.asarray(total / total.sum(axis=1, keepdims=True))

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


def rows_of(joint: Floats) -> Floats:
    """(…, C, C) p(label | true grade) from p(true grade, label): rows that sum to 1."""
    return np.asarray(joint / np.maximum(joint.sum(axis=-1, keepdims=True), 1e-300))


def explain(labels: Ints, probabilities: Floats, *, owner: Ints | None = None) -> Explanations:
    """Fit every form to labels (N,) and out-of-fold probabilities (N, C) of patients, ``owner`` (N,).

    ``weight``, for the point, is the posterior probability of a form (Bayesian model averaging). ``doubtful_weight``,
    for the interval, trusts the model less: it comes from held-out likelihoods and is averaged over their sampling
    error, with patients as the unit, as in pseudo-BMA+ (Yao et al., Bayesian Analysis 2018).
    """
    classes = probabilities.shape[1]
    patients = np.arange(len(labels)) if owner is None else owner
    own_repeated = repetition((probabilities.argmax(axis=1) != labels).astype(np.float64), patients)
    repeated = max(own_repeated, len(labels) / _MOST)
    part = patients % min(_PARTS, int(patients.max()) + 1)  # patients in turn: nothing depends on chance
    images, free = _best_order(labels, probabilities, repeated=repeated)
    cells = free.problem.cells
    forms = [form for form in FORMS if form not in ONE_SIDED]
    if classes == 2:  # the symmetric forms are one
        forms = [form for form in forms if form not in SYMMETRIC[1:]]
    fits = [
        free if form == "banded" else fit_model(cells, family(form, num_classes=classes)) for form in forms
    ]
    held_out = [held_out_likelihood(fit, labels, images, part) for fit in fits]
    evidence, likelihood = max(fit.log_evidence for fit in fits), max(float(one.sum()) for one in held_out)
    for form in ONE_SIDED:
        fit = fit_model(cells, family(form, num_classes=classes))
        shares = cells.weights @ fit.true_grades(cells)
        if fit.log_evidence < evidence or min(*shares, *cells.counts.sum(axis=0)) < _FEW:
            continue
        one = held_out_likelihood(fit, labels, images, part)
        if (float(one.sum()) - likelihood) / repeated > _GAIN:
            forms, fits, held_out = [*forms, form], [*fits, fit], [*held_out, one]
    kinds = [sum(form in SYMMETRIC for form in forms) if form in SYMMETRIC else 1 for form in forms]
    log_prior = -np.log(kinds)
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
    return Explanations(images=images, cells=cells, all=tuple(found), held_out=means, repeated=own_repeated)


def _best_order(labels: Ints, probabilities: Floats, *, repeated: float) -> tuple[Images, Fit]:
    """Images in the order of severity that predicts the labels better, with the fit of the form that is the freest."""
    classes = probabilities.shape[1]
    free = family("banded", num_classes=classes)
    orders = [rank_images(probabilities, by_median=by_median) for by_median in (False, True)]
    fits = [fit_model(pool(labels, images, classes=classes, repeated=repeated), free) for images in orders]
    best = max(range(len(fits)), key=lambda k: fits[k].log_evidence)
    return orders[best], fits[best]


def _readers(form: Form) -> list[tuple[float, float]]:
    """Shares of the blur that may be the reader's, each with its probability."""
    unsure = [(share, 1.0 / len(READER_SHARES)) for share in READER_SHARES]
    if form == "boundary":
        return unsure
    if form == "banded" or form in ONE_SIDED:
        return [(0.0, 0.5)] + [(share, 0.5 * probability) for share, probability in unsure]
    return [(0.0, 1.0)]


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
