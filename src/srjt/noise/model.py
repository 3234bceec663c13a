"""The model behind a noise estimate: the forms that label errors may have, the severity that orders
the samples between two grades, the fit, and the posterior probability of the true grade.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag  # type: ignore[import-untyped]
from scipy.optimize import nnls  # type: ignore[import-untyped]
from scipy.special import expit, ndtr, ndtri, softmax  # type: ignore[import-untyped]

from srjt.noise.matrices import FAMILIES, Floats, Ints, family_weights

# p(true grade | image, label), given how the labels arise.
#
# What the network's probabilities are is not known. It may have learnt to see the true grade, or it
# has learnt what the readers write. Three pure functions of labels (N,) and probabilities (N, C)
# follow:
#
# - ``bayes``: the network tells the true grade, and readers err by a matrix;
# - ``by_grade``: the same, or the network tells the label, from which the matrix is removed again
#   (deconvolution); the likelihood of the labels decides between the two;
# - ``by_severity``: the network tells the reader's own grade. The reader cuts a severity of their
#   own into grades, which differs from the image's severity by a blur that is the same for every
#   image.
#
# Each fits the inverse temperature of the network to the labels, so neither an over-confident
# network nor one that has learnt the noise is taken at its word.

# log inverse temperatures
_LOWEST = np.log(0.1)
_HIGHEST = np.log(10.0)
_NEGLIGIBLE = 1e-3  # a grade less probable than that changes no quality by more than that
_STEPS = 20  # of the deconvolution; 400 change quality by less than 0.02 on average
_POINTS = 5  # of the reader's severity within a grade
_TINY = float(np.finfo(np.float32).tiny)  # networks compute in single precision: less is 0


def bayes(labels: Ints, probabilities: Floats, transition: Floats) -> Floats:
    """(N, C): p(true grade | x, label) ∝ t(x) P[:, label], with t(x) ∝ p(x)^β.

    β, the network's inverse temperature for the *true* grades, makes the labels likeliest: below 1
    where the network is over-confident, above 1 where it has learnt the noise.
    """
    return _told_the_truth(labels, probabilities, transition)[0]


def by_grade(labels: Ints, probabilities: Floats, transition: Floats) -> Floats:
    """(N, C): as ``bayes``, but the network may also have learnt p(label | x) instead of p(true
    grade | x)."""
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
    ):  # expectation maximisation: t(x) whose t(x) P is nearest to what the network says
        true = true * ((said / np.maximum(true @ transition, 1e-300)) @ transition.T)
        true /= np.maximum(true.sum(axis=1, keepdims=True), 1e-300)
    learnt = _normalised(true * transition.T[labels], otherwise=said)
    return np.asarray(share * truth + (1.0 - share) * learnt)


def by_severity(
    labels: Ints,
    probabilities: Floats,
    transition: Floats,
    readers: list[float],
    weights: list[float],
) -> Floats:
    """(N, C): the mean, by ``weights``, over ``readers``, the reader's shares of the blur's
    variance.

    In units of an image's blur its cuts are u_k(x) = Φ⁻¹(p(grade ≤ k | x)), up to a factor that
    makes the labels likeliest. The reader's severity z is standard normal; given z, the image's is
    normal with mean (1 − r) z and variance r (1 − r). Cuts that are far apart belong to a clear
    image: the reader's blur, which is the same for every image, is a larger share r of its blur.
    ``readers`` are the shares at the median image.
    """
    told = probits(probabilities)
    given = transition.T[labels]
    factor = _minimum(
        lambda log_factor: -_log_sum((_grades(np.exp(log_factor) * told) * given).sum(axis=1)),
        _LOWEST,
        _HIGHEST,
    )
    cuts = np.exp(factor) * told
    reader_grade = _normalised(
        _grades(cuts) * given, otherwise=_grades(cuts)
    )  # of the reader, given the label
    clear = _clearness(cuts)
    ends = np.full((len(labels), 1), np.inf)
    below, above = (
        ndtr(np.concatenate(both, axis=1)) for both in ((-ends, cuts, ends), (ends, -cuts, -ends))
    )
    posterior = np.zeros_like(reader_grade)
    for grade in range(reader_grade.shape[1]):
        rows = np.flatnonzero(reader_grade[:, grade] > _NEGLIGIBLE)
        for point in (
            np.arange(_POINTS) + 0.5
        ) / _POINTS:  # equally likely severities within the grade
            left, right = (
                tail[rows, grade] * (1.0 - point) + tail[rows, grade + 1] * point
                for tail in (below, above)
            )
            z = np.where(
                left < 0.5, ndtri(np.maximum(left, _TINY)), -ndtri(np.maximum(right, _TINY))
            )
            for reader, weight in zip(readers, weights, strict=True):
                r = np.clip(reader * clear[rows], _NEGLIGIBLE, 1.0 - _NEGLIGIBLE)[:, None]
                reached = ndtr((cuts[rows] - (1.0 - r) * z[:, None]) / np.sqrt(r * (1.0 - r)))
                true = np.diff(reached, axis=1, prepend=0.0, append=1.0)
                posterior[rows] += weight / _POINTS * reader_grade[rows, grade, None] * true
    return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))


def _told_the_truth(
    labels: Ints, probabilities: Floats, transition: Floats
) -> tuple[Floats, float]:
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
    """(N, C − 1): Φ⁻¹ of the cumulative probabilities, from the nearer end, which is more
    precise."""
    below = probabilities.cumsum(axis=1)[:, :-1]
    above = probabilities[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
    low = ndtri(np.maximum(below, _TINY))
    high = -ndtri(np.maximum(above, _TINY))
    return np.asarray(np.where(below < 0.5, low, high), dtype=np.float64)


def _grades(cuts: Floats) -> Floats:
    """(N, C): the probabilities of the grades between the cuts (N, C − 1) of a standard normal
    severity."""
    return np.asarray(np.diff(ndtr(cuts), axis=1, prepend=0.0, append=1.0).clip(min=0.0))


def _clearness(cuts: Floats) -> Floats:
    """(N,): the squared distance between cuts, which is one grade in units of the blur; 1 at the
    median image.

    Cuts count by the probability of the grades around them. Of two grades there is one cut: all
    images are alike.
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
    left = high - ratio * (high - low)
    right = low + ratio * (high - low)
    at_left = loss(left)
    at_right = loss(right)
    for _ in range(10):
        if at_left < at_right:
            high = right
            right = left
            at_right = at_left
            left = high - ratio * (high - low)
            at_left = loss(left)
        else:
            low = left
            left = right
            at_left = at_right
            right = low + ratio * (high - low)
            at_right = loss(right)
    return (low + high) / 2


# Images in the order of their severity under the network, and the label counts of similar images.

# cells: blocks of rank, each cut by width; finer cells change no estimate by 0.001
_BLOCKS = 134
_WIDTHS = 3
_DIGITS = 9  # severities that differ by less are equal


class Images(NamedTuple):
    """What the model knows of each image."""

    position: Floats  # (N,) rank of the severity, in (0, 1)
    width: Floats  # (N,) rank of the spread among neighbours, in (−1, 1)
    cell: Ints  # (N,)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Label counts of similar images, weighted for repeated patients."""

    images: Images
    counts: Floats  # (M, C)
    position: Floats  # (M,)
    width: Floats  # (M,)

    @cached_property
    def weights(self) -> Floats:
        return np.asarray(self.counts.sum(axis=1))


def rank_images(probabilities: Floats, *, by_median: bool = False) -> Images:
    """(N, C) probabilities → ranks; equal images share a rank, so the order of the samples does not
    matter.

    by_median: the position is the rank of the median severity under the probabilities instead of
    the expected grade.
    """
    samples, classes = probabilities.shape
    grade = np.arange(classes) - (classes - 1) / 2
    mean = probabilities @ grade
    spread = np.sqrt(np.maximum(probabilities @ grade**2 - mean**2, 0.0)).round(_DIGITS)
    severity = _median(probabilities) if by_median else mean
    position = (_ranks(severity.round(_DIGITS)) - 0.5) / samples
    blocks = max(1, min(_BLOCKS, samples // _WIDTHS))
    block = np.minimum((position * blocks).astype(np.int64), blocks - 1)
    order = np.lexsort((spread, block))
    width = np.empty(samples)
    for members in np.split(order, np.flatnonzero(np.diff(block[order])) + 1):
        width[members] = 2.0 * (_ranks(spread[members]) - 0.5) / len(members) - 1.0
    third = np.minimum(((width + 1.0) / 2.0 * _WIDTHS).astype(np.int64), _WIDTHS - 1)
    _, cell = np.unique(block * _WIDTHS + third, return_inverse=True)
    return Images(position=position, width=width, cell=cell.astype(np.int64))


def _median(probabilities: Floats) -> Floats:
    """(N,): the severity, in grades, that the image exceeds with probability 1/2 under the network.

    Unlike the expected grade it does not move towards the middle of the scale when an image is
    blurred. Between two boundaries of grades, and beyond the last ones, Φ⁻¹ of the cumulative
    probability is taken as linear.
    """
    cuts = probits(probabilities)
    if cuts.shape[1] == 1:
        return -cuts[:, 0]
    rows = np.arange(len(cuts))
    # the pair of cuts around 0, or nearest to it
    left = np.clip((cuts < 0.0).sum(axis=1) - 1, 0, cuts.shape[1] - 2)
    low = cuts[rows, left]
    high = cuts[rows, left + 1]
    return np.asarray(left - low / np.maximum(high - low, 10.0**-_DIGITS))


def _ranks(values: Floats) -> Floats:
    """1 … N; equal values share the mean of their ranks."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[which])


def pool(labels: Ints, images: Images, *, classes: int, repeated: float = 1.0) -> Cells:
    """Label counts by cell. ``repeated``: how many labels carry the information of one (patients; 1
    = independent)."""
    cells = int(images.cell.max()) + 1
    counts = np.bincount(images.cell * classes + labels, minlength=cells * classes).reshape(
        cells, classes
    )
    size = counts.sum(axis=1)
    return Cells(
        images=images,
        counts=counts / repeated,
        position=np.bincount(images.cell, images.position) / size,
        width=np.bincount(images.cell, images.width) / size,
    )


# Families of transition matrices, as smooth functions of unbounded parameters, for estimating them.
#
# - those of ``FAMILIES`` have one parameter, the level;
# - ``banded``: each grade has its own rates of being labelled too low and too high, and every
#   further step is rarer by one common factor;
# - ``lowered``, ``raised``: as ``banded``, but on one side of the diagonal there may be up to four
#   wrong labels for each right one: most labels of a grade may be too low, or too high. Grades can
#   almost change names, so only clear images at the ends of the scale, where no grade is left to
#   change with, show such errors;
# - ``boundary``: the identity. Labels are wrong near the boundary between two grades only, which
#   ``model`` describes.

SYMMETRIC = tuple(FAMILIES)
FORMS = {
    **{name: declared.meaning for name, declared in FAMILIES.items()},
    "banded": (
        "each grade has its own error rates, which change by one factor with every further grade"
    ),
    "boundary": "errors only near the boundary between two grades",
    "lowered": "labels of a grade are mostly or often too low, each grade at its own rate",
    "raised": "labels of a grade are mostly or often too high, each grade at its own rate",
}
ONE_SIDED = {"lowered": -1, "raised": 1}  # the side of the diagonal
_SHARPNESS = (
    8.0  # min(1, x) as the smooth function (1 + x^−8)^(−1/8), which differs from it by 8 % at most
)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Parameters θ (M,) ↔ matrix (C, C), with a Gaussian prior on θ.

    Entries off the diagonal are ``largest * sigmoid(θ) * shape`` where ``largest`` is given, else
    ``exp(offset + Σ θ_m directions_m)``, but at most ``limit``, times the diagonal. It is 1 except
    in one-sided forms: the right grade is the likeliest label, as the largest rate assumes, and
    grades cannot change names.
    """

    form: str
    mean: Floats  # (M,) of the prior
    precision: Floats  # (M,)
    directions: Floats  # (M, C, C)
    offset: float = 0.0
    largest: float | None = None
    limit: Floats | float = 1.0  # (C, C)

    def matrix(self, theta: Floats) -> Floats:
        """(C, C) row-stochastic."""
        if self.largest is None:
            # rows in proportion to their diagonal, which no other entry exceeds by more than its
            # limit
            rates = np.exp(-np.logaddexp(0.0, -_SHARPNESS * self._log_rates(theta)) / _SHARPNESS)
            weights = np.where(np.eye(len(rates)) > 0, 1.0, self.limit * rates)
            return np.asarray(weights / weights.sum(axis=1, keepdims=True))
        off_diagonal = self.largest * float(expit(theta[0])) * self.directions[0]
        return np.asarray(off_diagonal + np.diag(np.maximum(1.0 - off_diagonal.sum(axis=1), 0.0)))

    def jacobian(self, theta: Floats) -> Floats:
        """(M, C, C): the derivative of the matrix by each parameter."""
        if self.largest is None:
            p = self.matrix(theta)
            change = (
                expit(-_SHARPNESS * self._log_rates(theta)) * self.directions
            )  # of the log weights
            return np.asarray(p * (change - (p * change).sum(axis=2, keepdims=True)))
        share = float(expit(theta[0]))
        change = self.largest * share * (1.0 - share) * self.directions[0]
        return np.asarray(change - np.diag(change.sum(axis=1)))[None]

    def _log_rates(self, theta: Floats) -> Floats:
        """In proportion to the limit."""
        return np.asarray(
            self.offset + np.tensordot(theta, self.directions, axes=1) - np.log(self.limit)
        )

    def starts(self) -> list[Floats]:
        """Where searches begin: with few wrong labels and with many, because the likelihood may
        have several peaks."""
        if not len(self.mean):
            return [self.mean]
        levels = (-1.5, 0.0, 1.5) if self.form in ONE_SIDED else (-1.5, 1.5)
        return [self.mean + level * np.eye(len(self.mean))[0] for level in levels]


def family(form: str, *, num_classes: int) -> Family:
    """The family of a form.

    The priors say that noise is neither absent nor everything: log odds of the level with standard
    deviation 1, around a quarter of the largest possible level (symmetric forms) or one wrong label
    for eight right ones in each neighbouring grade (``banded``). Log rates of single grades and
    directions vary around the common one with variance 1/2. In one-sided forms the level is one
    wrong label for each right one, and 60 times less on the other side, give or take a factor e².
    """
    grade = np.arange(num_classes)
    step = grade[None, :] - grade[:, None]
    distance = np.abs(step)
    if form in FAMILIES:
        shape = family_weights(form, num_classes)
        return Family(
            form=form,
            mean=np.array([np.log(1 / 3)]),
            precision=np.array([1.0]),
            directions=shape[None],
            largest=float(1.0 / shape.sum(axis=1).max()),
        )
    if form == "boundary":
        none = np.empty(0)
        directions = np.empty((0, num_classes, num_classes))
        return Family(form=form, mean=none, precision=none, directions=directions, offset=-np.inf)
    single_rates = [
        ((grade[:, None] == i) & (np.sign(step) == side)).astype(np.float64)
        for i in grade
        for side in (-1, 1)
        if 0 <= i + side < num_classes
    ]
    often = (distance > 0).astype(np.float64)
    further = np.maximum(distance - 1, 0).astype(np.float64)
    mean = [np.log(1 / 8), -1.0]
    precision = [1.0, 1.0]
    common = [often, further]
    limit: Floats | float = 1.0
    if form in ONE_SIDED:
        side = np.sign(step) == ONE_SIDED[form]
        mean = [0.0, -4.0, -1.0]
        precision = [1.0, 0.25, 1.0]
        common = [side * often, often - side, further]
        limit = np.where(side, 4.0, 1.0)
    return Family(
        form=form,
        mean=np.array(mean + [0.0] * len(single_rates)),
        precision=np.array(precision + [2.0] * len(single_rates)),
        directions=np.stack([*common, *single_rates]),
        limit=limit,
    )


# The model behind the noise estimate: a severity that is seen through a blur, cut into grades, and
# mislabelled.
#
# An image shows a severity g(x) up to a blur. With thresholds c_1 < … < c_{C−1} between the grades,
# in units of the blur,
#
#     t_i(x) = Φ((c_{i+1} − g(x)) / σ(x)) − Φ((c_i − g(x)) / σ(x)),
#     p(label = j | x) = Σ_i t_i(x) P_ij.
#
# g is a piecewise linear function of the *rank* of the image's severity under the network's
# probabilities (the expected grade or the median, whichever predicts the labels better), and log σ
# is proportional to how wide these probabilities are among images of about the same rank. So the
# model uses how the network orders images, not how sure it says it is: whether the network is
# calibrated to the true grades, to the noisy labels or to nothing changes little. P has one of the
# forms in ``families``.
#
# The samples enter through label counts in a few hundred cells of similar rank and width. The cost
# of a fit hence does not grow with the number of samples.

_KNOTS_PER_GRADE = 3  # of g: enough to bend inside every grade
_NODES = ndtri((np.arange(41) + 0.5) / 41)  # equally likely values of a standard normal variable
_SPAN = 6.0  # blurs that a grade is wide before the data speak: images show their grade
# one label in a thousand is any grade, in every form: no single label decides between forms
_SLIP = 1e-3
_PREDICTIVE = 64  # draws of the parameters, in pairs of opposite ones, for held-out labels


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The fit of one form, with what is needed to draw from its posterior and to apply it to
    images."""

    problem: _Problem
    theta: Floats
    covariance: Floats
    log_evidence: float  # Laplace's approximation of the marginal likelihood

    @property
    def form(self) -> str:
        return self.problem.kin.form

    def transition(self) -> Floats:
        """(C, C)."""
        return self.problem.kin.matrix(self.theta[self.problem.grades_end :])

    def true_grades(self, images: Images | Cells) -> Floats:
        """(N, C): t(x), which sums to 1."""
        return self.problem.true_grades(self.theta, images)

    def joint(self, images: Images | Cells, *, reader: float = 0.0) -> Floats:
        """(N, C, C): p(true grade, label | x).

        reader: the share of the blur's variance that is the reader's and not the image's. The
        reader then cuts a severity of their own into grades, which is wrong near the boundaries. It
        leaves p(label | x) as it is.
        """
        if not reader:
            return np.asarray(self.true_grades(images)[:, :, None] * self.transition())
        cuts, centre, scale = self.problem.severity(self.theta, images)
        image_blur = (1.0 - reader) ** 0.5 / scale
        reader_blur = reader**0.5 / scale
        graded_as = np.zeros(
            (len(centre), len(cuts) + 1, len(cuts) + 1)
        )  # p(true grade, the reader's grade | x)
        rows = np.arange(len(centre))
        for node in _NODES:
            severity = centre + image_blur * node
            below = ndtr((cuts - severity[:, None]) / reader_blur[:, None])
            graded = np.diff(below, axis=1, prepend=0.0, append=1.0)
            graded_as[rows, np.searchsorted(cuts, severity)] += graded / len(_NODES)
        return np.asarray(graded_as @ self.transition())

    def pair(self, images: Images | Cells, *, reader: float = 0.0) -> Floats:
        """(N, C, C): p(label, second label | x), of two readers who err alike and independently,
        given the severity.

        reader: as for ``joint``. The more of the blur is the readers', the more often they differ.
        """
        matrix = self.transition()
        if not reader:
            return np.asarray(np.einsum("nc,cj,ck->njk", self.true_grades(images), matrix, matrix))
        cuts, centre, scale = self.problem.severity(self.theta, images)
        image_blur = (1.0 - reader) ** 0.5 / scale
        reader_blur = reader**0.5 / scale
        both = np.zeros((len(centre), len(cuts) + 1, len(cuts) + 1))
        for node in _NODES:
            below = ndtr((cuts - (centre + image_blur * node)[:, None]) / reader_blur[:, None])
            said = np.diff(below, axis=1, prepend=0.0, append=1.0) @ matrix
            both += said[:, :, None] * said[:, None, :] / len(_NODES)
        return both


def fit_model(cells: Cells, kin: Family) -> Fit:
    """The parameters of largest penalised likelihood, by damped Fisher scoring from few and from
    many wrong labels."""
    problem = _Problem(cells, kin)
    begins = [problem.start(rates) for rates in kin.starts()]
    theta, value = max(
        (_climb(problem, begin, steps=60) for begin in begins), key=lambda end: end[1]
    )
    information = problem.expand(theta)[2]
    volume = np.linalg.slogdet(problem.prior_precision)[1] - np.linalg.slogdet(information)[1]
    return Fit(
        problem=problem,
        theta=theta,
        covariance=np.asarray(np.linalg.inv(information), dtype=np.float64),
        log_evidence=value + 0.5 * float(volume),
    )


def held_out_likelihood(fit: Fit, labels: Ints, part: Ints, *, averaged: bool = True) -> Floats:
    """(N,) log p(label | x) of each sample under a fit to the samples of the other parts.

    averaged: the probabilities are means over the posterior of that fit. Under its parameters
    alone, few labels would speak against the form whose parameters they leave most open. Parameters
    are drawn from the normal approximation and weighted by how much likelier they are under the
    posterior: where the two differ, unweighted means would be those of parameters that the other
    labels have excluded.
    """
    likelihood = np.empty(len(labels))
    whole = fit.problem.cells
    cell = whole.images.cell
    repeated = len(labels) / whole.counts.sum()
    rng = np.random.Generator(np.random.PCG64(0))
    half = rng.standard_normal((_PREDICTIVE // 2, len(fit.theta)))
    normal = np.concatenate([half, -half])
    for k in range(int(part.max()) + 1):
        out = np.flatnonzero(part == k)
        inside = cell[out] * fit.problem.classes + labels[out]
        left_out = (
            np.bincount(inside, minlength=whole.counts.size).reshape(whole.counts.shape) / repeated
        )
        problem = fit.problem
        theta = fit.theta
        if len(out) < len(labels):  # of a single patient nothing can be held out
            problem = _Problem(replace(whole, counts=whole.counts - left_out), problem.kin)
            theta, _ = _climb(problem, theta, steps=5)  # from the fit to all samples, which is near
        mean = problem.label_probabilities(theta)
        if averaged:
            mean = _predictive(problem, theta, normal)
        likelihood[out] = np.log(mean)[cell[out], labels[out]]
    return likelihood


def _predictive(problem: _Problem, theta: Floats, normal: Floats) -> Floats:
    """(M, C): p(label | x) of each cell, averaged over the posterior around its mode ``theta``.

    normal: (S, K) standard normal draws. A weight beyond √S times the mean (Ionides, Journal of
    Computational and Graphical Statistics 2008) is spread over all draws: no single one decides.
    """
    root = np.linalg.cholesky(problem.expand(theta)[2])
    drawn = theta + np.linalg.solve(root.T, normal.T).T
    labelled = np.array([problem.label_probabilities(one) for one in drawn])  # (S, M, C)
    posterior = [problem.penalised(one, q) for one, q in zip(drawn, labelled, strict=True)]
    weights = softmax(posterior + 0.5 * (normal**2).sum(axis=1))
    weights = np.minimum(weights, len(normal) ** -0.5)
    weights += (1.0 - weights.sum()) / len(weights)
    return np.asarray(np.tensordot(weights, labelled, axes=1))


class _Problem:
    """The penalised log-likelihood with its gradient and Fisher information.

    θ holds the log distances between thresholds (C − 2), g at its knots, the factor of the width in
    log σ, and the parameters of P. Priors, in units of the blur: a grade is six blurs wide, give or
    take a factor e²; second differences of g have standard deviation 1; the widest images are
    blurred up to e^{±1} more than the middle ones.
    """

    def __init__(self, cells: Cells, kin: Family) -> None:
        self.cells = cells
        self.kin = kin
        self.classes = cells.counts.shape[1]
        self.spans = self.classes - 2
        self.knots = _KNOTS_PER_GRADE * self.classes + 1
        self.width_at = self.spans + self.knots
        self.grades_end = self.width_at + 1
        bends = np.diff(np.eye(self.knots), 2, axis=0)
        # the second term only keeps the matrix invertible: straight lines have no second
        # differences
        curve = bends.T @ bends + 1e-4 * np.eye(self.knots)
        self.prior_precision = block_diag(
            np.eye(self.spans) / 4.0, curve, 4.0, np.diag(kin.precision)
        )
        spans = np.full(self.spans, np.log(_SPAN))
        self.prior_mean = np.concatenate([spans, np.zeros(self.knots + 1), kin.mean])
        above = np.arange(1, self.classes)[:, None] > np.arange(1, self.classes - 1)
        self.spread = above - above.mean(axis=0)  # (C − 1, C − 2): thresholds are centred around 0
        self.of_cells = self._basis(cells)

    def basis(self, at: Images | Cells) -> Floats:
        """(N, knots) weights of the knots of g."""
        return self.of_cells if at is self.cells else self._basis(at)

    def _basis(self, at: Images | Cells) -> Floats:
        place = np.clip(at.position * (self.knots - 1), 0.0, self.knots - 1 - 1e-9)
        left = place.astype(np.int64)
        basis = np.zeros((len(place), self.knots))
        rows = np.arange(len(place))
        basis[rows, left] = 1.0 - (place - left)
        basis[rows, left + 1] = place - left
        return basis

    def start(self, rates: Floats) -> Floats:
        """Thresholds six blurs apart, and as many images in each grade as there are labels of it.

        Where most labels of a grade may be wrong, as many images as the matrix of ``rates`` takes
        there to be.
        """
        cuts = self.spread @ np.exp(self.prior_mean[: self.spans])
        shares = self.cells.counts.sum(axis=0) / self.cells.counts.sum()
        if self.kin.form in ONE_SIDED:
            shares = nnls(self.kin.matrix(rates).T, shares)[0] + 0.01
            shares /= shares.sum()
        reached = np.concatenate([[0.0], np.cumsum(shares)[:-1], [1.0]])
        ends = np.concatenate([[cuts[0] - 3.0], cuts, [cuts[-1] + 3.0]])
        g = np.interp(np.linspace(0.0, 1.0, self.knots), reached, ends)
        return np.concatenate([self.prior_mean[: self.spans], g, [0.0], rates])

    def severity(self, theta: Floats, at: Images | Cells) -> tuple[Floats, Floats, Floats]:
        """Thresholds (C − 1,), g (N,) and 1 / σ (N,)."""
        cuts = self.spread @ np.exp(theta[: self.spans])
        g = self.basis(at) @ theta[self.spans : self.width_at]
        return cuts, g, np.exp(-theta[self.width_at] * at.width)

    def true_grades(self, theta: Floats, at: Images | Cells) -> Floats:
        cuts, g, scale = self.severity(theta, at)
        return _grades((cuts - g[:, None]) * scale[:, None])

    def label_probabilities(self, theta: Floats) -> Floats:
        """(M, C): p(label | x) of each cell."""
        return np.asarray(self.true_grades(theta, self.cells) @ self._labelled(theta))

    def _labelled(self, theta: Floats) -> Floats:
        """(C, C): p(label | true grade), slips included."""
        return np.asarray(
            (1.0 - _SLIP) * self.kin.matrix(theta[self.grades_end :]) + _SLIP / self.classes
        )

    def value(self, theta: Floats) -> float:
        return self.penalised(theta, self.label_probabilities(theta))

    def penalised(self, theta: Floats, q: Floats) -> float:
        off = theta - self.prior_mean
        return float((self.cells.counts * np.log(q)).sum() - 0.5 * off @ self.prior_precision @ off)

    def expand(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """Value, gradient (K,) and Fisher information (K, K) with the prior's."""
        cuts, g, scale = self.severity(theta, self.cells)
        off = (cuts - g[:, None]) * scale[:, None]
        t = _grades(off)
        P = self._labelled(theta)
        q = t @ P
        density = np.exp(-0.5 * off**2) / np.sqrt(2.0 * np.pi)
        by_off = density[:, :, None] * -np.diff(P, axis=0)  # ∂q_j / ∂off_k
        by_cut = by_off * scale[:, None, None]
        change = np.empty((*q.shape, len(theta)))  # ∂q_j / ∂θ
        by_span = self.spread * np.exp(theta[: self.spans])
        knots = self.basis(self.cells)
        change[:, :, : self.spans] = np.einsum("mkj,ks->mjs", by_cut, by_span)
        change[:, :, self.spans : self.width_at] = (
            -by_cut.sum(axis=1)[:, :, None] * knots[:, None, :]
        )
        change[:, :, self.width_at] = (
            -(by_off * off[:, :, None]).sum(axis=1) * self.cells.width[:, None]
        )
        by_matrix = (1.0 - _SLIP) * self.kin.jacobian(theta[self.grades_end :])
        change[:, :, self.grades_end :] = np.tensordot(t, by_matrix, axes=(1, 1)).transpose(0, 2, 1)
        pull = self.prior_precision @ (theta - self.prior_mean)
        gradient = np.tensordot(self.cells.counts / q, change, axes=([0, 1], [0, 1])) - pull
        weighted = change * (self.cells.weights[:, None] / q)[:, :, None]
        flat = (-1, len(theta))
        information = weighted.reshape(flat).T @ change.reshape(flat) + self.prior_precision
        return self.penalised(theta, q), gradient, information


def _climb(problem: _Problem, theta: Floats, *, steps: int) -> tuple[Floats, float]:
    damping = 1e-3
    value, gradient, information = problem.expand(theta)
    for _ in range(steps):
        move = np.linalg.solve(information + damping * np.diag(np.diag(information)), gradient)
        move *= min(
            1.0, 3.0 / float(np.abs(move).max() + 1e-300)
        )  # no further than three blurs at once
        reached = problem.value(theta + move)
        if reached > value:
            gain = reached - value
            theta = theta + move
            damping = max(damping / 5, 1e-6)
            if gain < 1e-3:
                return theta, reached
            value, gradient, information = problem.expand(theta)
        else:
            damping *= 10
            if damping > 1e6:
                break
    return theta, value
