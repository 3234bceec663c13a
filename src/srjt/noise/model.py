"""The model behind the noise estimate: a severity that is seen through a blur, cut into grades, and mislabelled.

An image shows a severity g(x) up to a blur. With thresholds c_1 < … < c_{C−1} between the grades, in units of the blur,

    t_i(x) = Φ((c_{i+1} − g(x)) / σ(x)) − Φ((c_i − g(x)) / σ(x)),      p(label = j | x) = Σ_i t_i(x) P_ij.

g is a piecewise linear function of the *rank* of the image's severity under the network's probabilities (the expected
grade or the median, whichever predicts the labels better), and log σ is proportional to how wide these probabilities
are among images of about the same rank. So the model uses how the network orders images, not how sure it says it is:
whether the network is calibrated to the true grades, to the noisy labels or to nothing changes little. P has one of
the forms in ``families``.

The samples enter through label counts in a few hundred cells of similar rank and width. The cost of a fit hence does
not grow with the number of samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls  # type: ignore[import-untyped]
from scipy.special import ndtr, ndtri  # type: ignore[import-untyped]

from srjt.noise.families import ONE_SIDED, Family, Form
from srjt.noise.severity_order import Cells, Images

__all__ = ["Fit", "fit_model", "held_out_likelihood"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_KNOTS_PER_GRADE = 3  # of g: enough to bend inside every grade
_NODES = ndtri((np.arange(41) + 0.5) / 41)  # equally likely values of a standard normal variable
_SPAN = 6.0  # blurs that a grade is wide before the data speak: images show their grade
_SLIP = 1e-3  # one label in a thousand is any grade, in every form: no single label decides between forms


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The fit of one form, with what is needed to draw from its posterior and to apply it to images."""

    problem: _Problem
    theta: Floats
    covariance: Floats
    log_evidence: float  # Laplace's approximation of the marginal likelihood

    @property
    def form(self) -> Form:
        return self.problem.kin.form

    def transition(self, theta: Floats | None = None) -> Floats:
        """(C, C)."""
        return self.problem.kin.matrix((self.theta if theta is None else theta)[self.problem.grades_end :])

    def true_grades(self, images: Images | Cells, theta: Floats | None = None) -> Floats:
        """(N, C): t(x), which sums to 1."""
        return self.problem.true_grades(
            self.theta if theta is None else theta, *self.problem.basis(images.position, images.width)
        )

    def joint(self, images: Images | Cells, theta: Floats | None = None, *, reader: float = 0.0) -> Floats:
        """(N, C, C): p(true grade, label | x).

        reader: the share of the blur's variance that is the reader's and not the image's. The reader then cuts a
        severity of their own into grades, which is wrong near the boundaries. It leaves p(label | x) as it is.
        """
        theta = self.theta if theta is None else theta
        if not reader:
            return np.asarray(self.true_grades(images, theta)[:, :, None] * self.transition(theta))
        basis, width = self.problem.basis(images.position, images.width)
        cuts, centre, scale = self.problem.severity(theta, basis, width)
        image_blur, reader_blur = (1.0 - reader) ** 0.5 / scale, reader**0.5 / scale
        own = np.zeros((len(centre), len(cuts) + 1, len(cuts) + 1))  # p(true grade, the reader's grade | x)
        rows = np.arange(len(centre))
        for node in _NODES:
            severity = centre + image_blur * node
            below = ndtr((cuts - severity[:, None]) / reader_blur[:, None])
            graded = _between(below)
            own[rows, np.searchsorted(cuts, severity)] += graded / len(_NODES)
        return np.asarray(own @ self.transition(theta))


def fit_model(cells: Cells, kin: Family) -> Fit:
    """The parameters of largest penalised likelihood, by damped Fisher scoring from few and from many wrong labels."""
    problem = _Problem(cells, kin)
    begins = [problem.start(rates) for rates in kin.starts()]
    theta, value = max((_climb(problem, begin, steps=60) for begin in begins), key=lambda end: end[1])
    information = problem.expand(theta)[2]
    volume = np.linalg.slogdet(problem.prior_precision)[1] - np.linalg.slogdet(information)[1]
    return Fit(
        problem=problem,
        theta=theta,
        covariance=np.asarray(np.linalg.inv(information), dtype=np.float64),
        log_evidence=value + 0.5 * float(volume),
    )


def held_out_likelihood(fit: Fit, labels: Ints, images: Images, part: Ints) -> Floats:
    """(N,) log p(label | x) of each sample under a fit to the samples of the other parts."""
    likelihood = np.empty(len(labels))
    whole = fit.problem.cells
    repeated = len(labels) / whole.counts.sum()
    for k in range(int(part.max()) + 1):
        out = np.flatnonzero(part == k)
        inside = images.cell[out] * fit.problem.classes + labels[out]
        left_out = np.bincount(inside, minlength=whole.counts.size).reshape(whole.counts.shape) / repeated
        problem, theta = fit.problem, fit.theta
        if len(out) < len(labels):  # of a single patient nothing can be held out
            problem = _Problem(replace(whole, counts=whole.counts - left_out), problem.kin)
            theta, _ = _climb(problem, theta, steps=5)  # from the fit to all samples, which is near
        likelihood[out] = np.log(problem.label_probabilities(theta))[images.cell[out], labels[out]]
    return likelihood


class _Problem:
    """The penalised log-likelihood with its gradient and Fisher information.

    θ holds the log distances between thresholds (C − 2), g at its knots, the factor of the width in log σ, and the
    parameters of P. Priors, in units of the blur: a grade is six blurs wide, give or take a factor e²; second
    differences of g have standard deviation 1; the widest images are blurred up to e^{±1} more than the middle ones.
    """

    def __init__(self, cells: Cells, kin: Family) -> None:
        self.cells, self.kin = cells, kin
        self.classes = cells.counts.shape[1]
        self.spans = self.classes - 2
        self.knots = _KNOTS_PER_GRADE * self.classes + 1
        self.width_at = self.spans + self.knots
        self.grades_end = self.width_at + 1
        bends = np.diff(np.eye(self.knots), 2, axis=0)
        total = self.grades_end + len(kin.mean)
        self.prior_precision = np.zeros((total, total))
        self.prior_precision[: self.spans, : self.spans] = np.eye(self.spans) / 4.0
        # the second term only keeps the matrix invertible: straight lines have no second differences
        self.prior_precision[self.spans : self.width_at, self.spans : self.width_at] = (
            bends.T @ bends + 1e-4 * np.eye(self.knots)
        )
        self.prior_precision[self.width_at, self.width_at] = 4.0
        self.prior_precision[self.grades_end :, self.grades_end :] = np.diag(kin.precision)
        self.prior_mean = np.concatenate(
            [np.full(self.spans, np.log(_SPAN)), np.zeros(self.knots + 1), kin.mean]
        )
        above = np.arange(1, self.classes)[:, None] > np.arange(1, self.classes - 1)
        self.spread = above - above.mean(axis=0)  # (C − 1, C − 2): thresholds are centred around 0
        self._basis = self.basis(cells.position, cells.width)

    def basis(self, position: Floats, width: Floats) -> tuple[Floats, Floats]:
        """(N, knots) weights of the knots of g, and the width."""
        at = np.clip(position * (self.knots - 1), 0.0, self.knots - 1 - 1e-9)
        left = at.astype(np.int64)
        basis = np.zeros((len(position), self.knots))
        rows = np.arange(len(position))
        basis[rows, left] = 1.0 - (at - left)
        basis[rows, left + 1] = at - left
        return basis, width

    def start(self, rates: Floats) -> Floats:
        """Thresholds six blurs apart, and as many images in each grade as there are labels of it.

        Where most labels of a grade may be wrong, as many images as the matrix of ``rates`` takes there to be.
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

    def severity(self, theta: Floats, basis: Floats, width: Floats) -> tuple[Floats, Floats, Floats]:
        """Thresholds (C − 1,), g (N,) and 1 / σ (N,)."""
        cuts = self.spread @ np.exp(theta[: self.spans])
        return cuts, basis @ theta[self.spans : self.width_at], np.exp(-theta[self.width_at] * width)

    def true_grades(self, theta: Floats, basis: Floats, width: Floats) -> Floats:
        cuts, g, scale = self.severity(theta, basis, width)
        return _between(ndtr((cuts - g[:, None]) * scale[:, None])).clip(min=0.0)

    def label_probabilities(self, theta: Floats) -> Floats:
        """(M, C): p(label | x) of each cell."""
        return np.asarray(self.true_grades(theta, *self._basis) @ self._labelled(theta))

    def _labelled(self, theta: Floats) -> Floats:
        """(C, C): p(label | true grade), slips included."""
        return np.asarray((1.0 - _SLIP) * self.kin.matrix(theta[self.grades_end :]) + _SLIP / self.classes)

    def value(self, theta: Floats) -> float:
        return self._penalised(theta, self.label_probabilities(theta))

    def _penalised(self, theta: Floats, q: Floats) -> float:
        off = theta - self.prior_mean
        return float((self.cells.counts * np.log(q)).sum() - 0.5 * off @ self.prior_precision @ off)

    def expand(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """Value, gradient (K,) and Fisher information (K, K) with the prior's."""
        basis, width = self._basis
        cuts, g, scale = self.severity(theta, basis, width)
        off = (cuts - g[:, None]) * scale[:, None]
        t = _between(ndtr(off)).clip(min=0.0)
        P = self._labelled(theta)
        q = t @ P
        density = np.exp(-0.5 * off**2) / np.sqrt(2.0 * np.pi)
        by_off = density[:, :, None] * -np.diff(P, axis=0)  # ∂q_j / ∂off_k
        by_cut = by_off * scale[:, None, None]
        change = np.empty((*q.shape, len(theta)))  # ∂q_j / ∂θ
        change[:, :, : self.spans] = np.einsum(
            "mkj,ks->mjs", by_cut, self.spread * np.exp(theta[: self.spans])
        )
        change[:, :, self.spans : self.width_at] = -by_cut.sum(axis=1)[:, :, None] * basis[:, None, :]
        change[:, :, self.width_at] = -(by_off * off[:, :, None]).sum(axis=1) * width[:, None]
        by_matrix = (1.0 - _SLIP) * self.kin.jacobian(theta[self.grades_end :])
        change[:, :, self.grades_end :] = np.tensordot(t, by_matrix, axes=(1, 1)).transpose(0, 2, 1)
        pull = self.prior_precision @ (theta - self.prior_mean)
        gradient = np.tensordot(self.cells.counts / q, change, axes=([0, 1], [0, 1])) - pull
        weighted = change * (self.cells.weights[:, None] / q)[:, :, None]
        flat = (-1, len(theta))
        information = weighted.reshape(flat).T @ change.reshape(flat) + self.prior_precision
        return self._penalised(theta, q), gradient, information


def _between(below: Floats) -> Floats:
    """(N, C): the probabilities of the grades, from those of lying below each threshold (N, C − 1)."""
    ends = np.empty((len(below), below.shape[1] + 2))
    ends[:, 0], ends[:, 1:-1], ends[:, -1] = 0.0, below, 1.0
    return np.asarray(ends[:, 1:] - ends[:, :-1])


def _climb(problem: _Problem, theta: Floats, *, steps: int) -> tuple[Floats, float]:
    damping = 1e-3
    value, gradient, information = problem.expand(theta)
    for _ in range(steps):
        move = np.linalg.solve(information + damping * np.diag(np.diag(information)), gradient)
        move *= min(1.0, 3.0 / float(np.abs(move).max() + 1e-300))  # no further than three blurs at once
        reached = problem.value(theta + move)
        if reached > value:
            gain, theta, damping = reached - value, theta + move, max(damping / 5, 1e-6)
            if gain < 1e-3:
                return theta, reached
            value, gradient, information = problem.expand(theta)
        else:
            damping *= 10
            if damping > 1e6:
                break
    return theta, value
