"""Which noise explains the labels? Every form of noise is fitted to labels and out-of-fold
probabilities, and weighted by how well it predicts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax  # type: ignore[import-untyped]

from srjt.noise import model
from srjt.noise.matrices import Floats, Ints, transition_of
from srjt.noise.model import ONE_SIDED, SYMMETRIC
from srjt.noise.verified import Verified, repetition

# Three kinds of readers are equally likely beforehand: readers whose errors are symmetric and
# depend on the true grade alone (three forms), readers who prefer a direction or a grade
# (``banded``), and readers who are unsure near the boundary between two grades (``boundary``). The
# last kind predicts the same labels as perfect readers of unclear images. How much of the blur is
# the reader's is therefore not in the data: each of ``READER_SHARES`` is equally likely. Readers
# who prefer a direction are as likely to be unsure near boundaries, too, as not: real readers are
# (APPA-REAL). Readers whose labels of a grade are mostly wrong, to one side (``lowered``,
# ``raised``), are considered only where they predict held-out labels far better than all others.

_PARTS = 5  # of the patients, each held out once
# Labels that the model uses as independent at most. With more, its own error (g is piecewise
# linear, the blur normal), which is about 0.005 in simulations, would exceed the sampling error,
# and forms would be excluded by it.
_MOST = 5000
# Held-out log-likelihood that a form with more wrong than right labels of a grade must gain: such a
# form changes the names of grades, which moderate errors of the model itself could pay for.
_GAIN = 10.0
FEW = 10  # labels or images of a grade, below which its name could be another's
# Log-likelihood a label by which a form may be ahead although it is wrong: the standard deviation
# of the misfit of the model of *images* (ranks and widths are not all that a network says; the blur
# is not normal), which more labels do not make smaller. Weak networks reach it in simulations;
# noise that can be told from blur reaches three of them and more. Errors by the grade would pay for
# such a misfit in every form alike, so it is between these forms and the others: labels that are
# right but for the blur (``boundary``), and grades that change names (one-sided forms). Half of it
# makes intervals 3 % narrower, but with 100 right labels and a weak network, 15 % of the one-sided
# limits of 95 % were wrong.
_MISFIT = 0.014
READER_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the blur's variance; the middles of five equal parts
FINE_SHARES = (
    0.0,
    *np.linspace(0.025, 0.975, 20).tolist(),
)  # with second readings, which tell the share
# How many labels of a reader are wrong, where the data do not tell: a Beta distribution with mean
# 1/3 and standard deviation 0.18. Readers in published readings err in 20 to 43 % (ACNE04, Brixia,
# Fitzpatrick, LIDC, APPA-REAL).
_READER_RATE = (2.0, 4.0)


def rate_of(joint: Floats) -> float:
    """The share of wrong labels; rounding must not leave it outside [0, 1]."""
    return min(max(1.0 - float(np.trace(joint)), 0.0), 1.0)


@dataclass(frozen=True, kw_only=True)
class WeightedForm:
    fit: model.Fit
    reader: float  # share of the blur's variance that is the reader's
    weight: float  # of all explanations they sum to 1
    doubtful_weight: float  # likewise, with less trust in the model

    @cached_property
    def joint(self) -> Floats:
        """(C, C): p(true grade, label), averaged over the images."""
        cells = self.fit.problem.cells
        shares = cells.weights / cells.weights.sum()
        joint = np.tensordot(shares, self.fit.joint(cells, reader=self.reader), axes=1)
        return np.asarray(joint / joint.sum())


@dataclass(frozen=True, kw_only=True)
class Explanations:
    cells: model.Cells
    all: tuple[WeightedForm, ...]
    held_out: dict[str, float]  # mean held-out log-likelihood
    # labels that carry the information of one, because those of a patient repeat each other
    repeated: float

    def __iter__(self) -> Iterator[WeightedForm]:
        """Those that matter."""
        return (one for one in self.all if one.weight > 1e-4)

    @property
    def one_sided(self) -> bool:
        """Whether most labels of a grade may be wrong."""
        return any(one.fit.form in ONE_SIDED for one in self.all)

    @cached_property
    def form_weights(self) -> dict[str, float]:
        """Sums to 1."""
        weights: dict[str, float] = {}
        for one in self.all:
            weights[one.fit.form] = weights.get(one.fit.form, 0.0) + one.weight
        return {form: min(weight, 1.0) for form, weight in weights.items()}

    @cached_property
    def joint(self) -> Floats:
        """(C, C): p(true grade, label), averaged over the images and the explanations."""
        total = sum(one.weight * one.joint for one in self)
        return np.asarray(total / np.sum(total))

    @cached_property
    def guessed_joint(self) -> Floats:
        """As ``joint``, where the labels do not determine the rate: by the weights that trust the
        model less, and how common the rate of an explanation is among readers.

        Weak networks fit no form well. The evidence then often chooses a form that takes what the
        networks do not know for errors of the readers.
        """
        likely = [one for one in self.all if one.doubtful_weight > 1e-4]
        rates = np.array([rate_of(one.joint) for one in likely])
        first, second = _READER_RATE
        common = rates ** (first - 1.0) * (1.0 - rates) ** (second - 1.0) + 1e-9
        weights = common * [one.doubtful_weight for one in likely]
        total = np.tensordot(weights, np.array([one.joint for one in likely]), axes=1)
        return np.asarray(total / total.sum())

    def label_probabilities(self) -> Floats:
        """(N, C): p(label | x)."""
        fits = {one.fit.form: one.fit for one in self}
        total = np.zeros((len(self.cells.images.cell), self.cells.counts.shape[1]))
        for form, fit in fits.items():
            p = fit.true_grades(self.cells.images) @ fit.transition()
            total += self.form_weights[form] * p
        return total

    def posterior(self, labels: Ints, probabilities: Floats) -> Floats:
        """(N, C): p(true grade | x, label), averaged over the explanations.

        Of readers who are unsure near boundaries the labels do not tell whether the network has
        learnt the true grades, with errors by the matrix of such readers, or the readers' own
        grades: both are equally likely.
        """
        total = np.zeros_like(probabilities)
        for form in {one.fit.form: one for one in self}:
            of_form = [one for one in self if one.fit.form == form]
            transition = of_form[0].fit.transition()
            readers = []
            weights = []
            joint = np.zeros_like(transition)
            for one in of_form:
                if one.reader:
                    readers.append(one.reader)
                    weights.append(one.weight)
                    joint += one.weight * one.joint
                else:
                    total += one.weight * model.by_grade(labels, probabilities, transition)
            if readers:
                by_matrix = model.bayes(labels, probabilities, transition_of(joint))
                total += 0.5 * sum(weights) * by_matrix
                split = model.by_severity(labels, probabilities, transition, readers, weights)
                total += 0.5 * sum(weights) * split
        return np.asarray(total / total.sum(axis=1, keepdims=True))

    def given(self, verified: Verified, labels: Ints, probabilities: Floats) -> Explanations:
        """Weighted anew after the true grades of some rows are known."""
        logs = np.array([np.log(one.doubtful_weight + 1e-12) for one in self.all])
        for k, one in enumerate(self.all):
            posterior = model.bayes(labels, probabilities, transition_of(one.joint))
            likelihood = posterior[verified.rows, verified.true]
            logs[k] += np.log(
                0.999 * likelihood + 0.001
            ).sum()  # a verified grade may be wrong, too
        return self._weighted(self.all, logs)

    def _weighted(self, forms: Sequence[WeightedForm], logs: ArrayLike) -> Explanations:
        """Of these forms, with weights in proportion to the exponentials of ``logs``."""
        weighted = []
        for one, weight in zip(forms, softmax(logs).tolist(), strict=True):
            weighted.append(replace(one, weight=weight, doubtful_weight=weight))
        return replace(self, all=tuple(weighted))

    def given_second(self, labels: Ints, second: Ints) -> Explanations:
        """Weighted anew by second readings (N,), −1 where there is none: how often two readers of
        an image differ tells how much of the blur is theirs. Patients whose labels repeat each
        other count less."""
        rows = np.flatnonzero(second >= 0)
        cell = self.cells.images.cell[rows]
        finer: list[WeightedForm] = []
        logs = []
        for one in self.all:
            if one.reader and one.reader != READER_SHARES[0]:
                continue  # the first one stands for all of its form
            shares = FINE_SHARES if one.reader else (0.0,)
            weight = sum(
                o.doubtful_weight
                for o in self.all
                if o.fit is one.fit and bool(o.reader) == bool(one.reader)
            )
            for share in shares:
                both = np.maximum(one.fit.pair(self.cells, reader=share), 1e-12)
                given = both / both.sum(axis=2, keepdims=True)
                likelihood = given[cell, labels[rows], second[rows]]
                finer.append(replace(one, reader=share))
                log = np.log(
                    0.999 * likelihood + 0.001
                ).sum()  # one label in a thousand may be anything
                logs.append(np.log(weight / len(shares) + 1e-12) + log / self.repeated)
        return self._weighted(finer, logs)


def explain(labels: Ints, probabilities: Floats, owner: Ints, verified: Verified) -> Explanations:
    """Fit every form to labels (N,) and out-of-fold probabilities (N, C) of patients, ``owner``
    (N,).

    ``weight``, for the point, is the posterior probability of a form (Bayesian model averaging).
    ``doubtful_weight``, for the interval, trusts the model less: it comes from held-out likelihoods
    and is averaged over their sampling error, with patients as the unit, as in pseudo-BMA+ (Yao et
    al., Bayesian Analysis 2018), and over the misfit that the model itself may have.
    """
    classes = probabilities.shape[1]
    own_repeated = repetition((probabilities.argmax(axis=1) != labels).astype(np.float64), owner)
    repeated = max(own_repeated, len(labels) / _MOST)
    part = owner % min(_PARTS, int(owner.max()) + 1)  # patients in turn: nothing depends on chance
    banded = _in_best_order(labels, probabilities, repeated=repeated)
    cells = banded.problem.cells

    def fitted(form: str) -> model.Fit:
        return model.fit_model(cells, model.family(form, num_classes=classes))

    fits: dict[str, model.Fit] = {}
    held_out: dict[str, Floats] = {}
    # of two grades the symmetric forms are one
    symmetric = SYMMETRIC[:1] if classes == 2 else SYMMETRIC
    for form in (*symmetric, "banded", "boundary"):
        fits[form] = banded if form == "banded" else fitted(form)
        held_out[form] = model.held_out_likelihood(fits[form], labels, part)

    def at_best(fit: model.Fit) -> float:
        """Held-out likelihood at the fitted parameters: one-sided forms leave theirs so open that
        few labels would never show them."""
        return float(model.held_out_likelihood(fit, labels, part, averaged=False).sum())

    candidates = _one_sided([fitted(form) for form in ONE_SIDED], fits)
    likelihood = max(map(at_best, fits.values())) if candidates else 0.0
    for fit in candidates:
        if (at_best(fit) - likelihood) / repeated > _GAIN:
            fits[fit.form] = fit
            held_out[fit.form] = model.held_out_likelihood(fit, labels, part)
    log_prior = -np.log([len(symmetric) if form in symmetric else 1 for form in fits])
    weights = softmax([fit.log_evidence for fit in fits.values()] + log_prior).tolist()
    doubtful_weights = _doubtful_weights(held_out, owner, log_prior, repeated=repeated)
    every = []
    for fit, weight, doubtful in zip(fits.values(), weights, doubtful_weights, strict=True):
        for reader, share in _readers(fit.form):
            every.append(
                WeightedForm(
                    fit=fit, reader=reader, weight=weight * share, doubtful_weight=doubtful * share
                )
            )
    means = {form: float(one.mean()) for form, one in held_out.items()}
    explained = Explanations(cells=cells, all=tuple(every), held_out=means, repeated=own_repeated)
    return explained.given(verified, labels, probabilities) if len(verified.rows) else explained


def _in_best_order(labels: Ints, probabilities: Floats, *, repeated: float) -> model.Fit:
    """The freest form, fitted to images in the order of severity that predicts the labels
    better."""
    classes = probabilities.shape[1]
    banded = model.family("banded", num_classes=classes)
    by_order = []
    for by_median in (False, True):
        images = model.rank_images(probabilities, by_median=by_median)
        pooled = model.pool(labels, images, classes=classes, repeated=repeated)
        by_order.append(model.fit_model(pooled, banded))
    return max(by_order, key=lambda fit: fit.log_evidence)


def _one_sided(one_sided: Sequence[model.Fit], others: Mapping[str, model.Fit]) -> list[model.Fit]:
    """The one-sided forms that explain the labels better than all others, if no grade is rare."""
    evidence = max(fit.log_evidence for fit in others.values())
    candidates = []
    for fit in one_sided:
        cells = fit.problem.cells
        shares = cells.weights @ fit.true_grades(cells)
        if fit.log_evidence >= evidence and min(*shares, *cells.counts.sum(axis=0)) >= FEW:
            candidates.append(fit)
    return candidates


def _doubtful_weights(
    held_out: Mapping[str, Floats], owner: Ints, log_prior: Floats, *, repeated: float
) -> list[float]:
    """The weight of each form for the interval, from held-out likelihoods (N,) by form and the
    patients, ``owner`` (N,): averaged over the sampling error and over the model's own misfit."""
    by_patient = np.array([np.bincount(owner, one) for one in held_out.values()])
    off = by_patient - by_patient.mean(axis=1, keepdims=True)
    apart = [form not in (*SYMMETRIC, "banded") for form in held_out]
    misfit = (_MISFIT * len(owner) / repeated) ** 2 * np.diag(apart)
    draws = np.random.Generator(np.random.PCG64(0)).multivariate_normal(
        by_patient.sum(axis=1) / repeated + log_prior,
        off @ off.T / repeated + misfit,
        size=1000,
        method="eigh",
    )
    return list(softmax(draws, axis=1).mean(axis=0).tolist())


def _readers(form: str) -> list[tuple[float, float]]:
    """Shares of the blur that may be the reader's, each with its probability."""
    if form in SYMMETRIC:
        return [(0.0, 1.0)]
    none = 0.0 if form == "boundary" else 0.5  # how probable no share is
    shares = [(share, (1.0 - none) / len(READER_SHARES)) for share in READER_SHARES]
    return [(0.0, none), *shares] if none else shares
