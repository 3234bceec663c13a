"""The model behind the noise estimate: label ~ Σ_i t_i(x) P_ij, fitted to out-of-fold probabilities.

t(x), the probabilities of the *true* grade, are the network's probabilities p(x) recalibrated:

    log t_i(x) = b_i + β log p_i(x) + γ i s(x) + δ i² v(x) + constant

with a bias for each grade, an inverse temperature β, and terms in the mean s(x) and the variance v(x) of the
grade under p(x): γ says how much the order of the grades counts, and δ that an image which the network finds
unclear is so. P has one of the forms in ``transitions``. All are fitted together, so the
network may approximate the noisy or the true grades. (The former costs more: simulated noise of 0.3 comes out lower
by 0.03 to 0.04, as p is then a mixture, of which no recalibration is quite t.)

Labels that are wrong and images that are ambiguous look alike where t is free to be blurred: P and t can trade
places at almost the same likelihood. What tells them apart is how t falls off away from a boundary between
grades, which the few parameters above describe. Where that is little, many levels of noise explain the labels
about equally well: ``profile`` returns the best fit at each level, for ``estimation`` to weigh.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from srjt.noise.families import LEVELS, Family, Form, family

__all__ = ["Fit", "design", "fit_mixture", "log_likelihood", "profile", "recalibrated"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_RIDGE = 0.02  # precision of the prior around t = p: it keeps separable data finite, and tiny ones sensible
_PRESENT = 3.0  # samples of each grade that are taken for granted, lest a grade be explained away altogether
_FLOOR = 1e-6  # networks that have learnt by heart give zeros
_TINY = 1e-12
_CLEAREST = 100  # one sample in so many counts as clearest
_NEAR = np.linspace(-3.0, 3.0, 9)  # standard errors around the best level, where most of the weight will lie


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Parameters of the model, and what they make of the samples they were fitted to."""

    form: Form
    theta: Floats  # (F + M,): of t, then of P
    transition: Floats  # (C, C)
    prior: Floats  # (C,) mean of t
    objective: float  # penalised log-likelihood
    ambiguity: float  # mean entropy of t, in nats, of the clearest samples

    @property
    def rate(self) -> float:
        return float(self.prior @ (1.0 - np.diag(self.transition)))

    @property
    def temperature(self) -> float:
        """1 / β: above 1 where the network was too sure of itself."""
        return float(1.0 / max(self.theta[len(self.prior) - 1], 1e-3))


def design(probabilities: Floats, *, ranking: bool = False) -> Floats:
    """(N, C) → (N, C, F = C + 2): log t = design @ θ + constant.

    ranking: in place of the variance, the mean log-probability by grade, which goes on rising where s(x)
    saturates. It ranks labels a little better once P is known; while P is sought it would only blur t.
    """
    samples, classes = probabilities.shape
    grade = np.arange(classes) - (classes - 1) / 2  # centred, so that reversing the grades only changes signs
    log_p = np.log(np.clip(probabilities, _FLOOR, None))
    mean = probabilities @ grade
    reached = np.arange(classes)[:, None] >= np.arange(1, classes)  # (C, C − 1): biases between neighbours
    parts = np.empty((samples, classes, classes + 2))
    parts[:, :, : classes - 1] = reached
    parts[:, :, classes - 1] = log_p - log_p.mean(axis=1, keepdims=True)
    parts[:, :, classes] = mean[:, None] * grade
    if ranking:
        parts[:, :, classes + 1] = 0.3 * (log_p @ grade)[:, None] * grade
    else:
        parts[:, :, classes + 1] = (probabilities @ grade**2 - mean**2)[:, None] * grade**2
    return parts


def recalibrated(parts: Floats, fit: Fit) -> Floats:
    """(N, C, F) → (N, C): t(x), the probabilities of the true grade."""
    return np.exp(_log_softmax(parts @ fit.theta[: parts.shape[2]]))


def log_likelihood(labels: Ints, parts: Floats, fit: Fit) -> Floats:
    """(N,) each sample's."""
    q = (recalibrated(parts, fit) * fit.transition.T[labels]).sum(axis=1)
    return np.asarray(np.log(np.clip(q, _TINY, None)))


def profile(labels: Ints, parts: Floats, best: Fit) -> list[Fit]:
    """The best fit at each of many levels of noise, by rising rate, of the form whose ``best`` fit is known.

    The levels are spread over all that the form can hold and crowd around the best one. From there each fit
    begins at its neighbour's end.
    """
    classes, features = parts.shape[1:]
    kin = family(best.form, num_classes=classes)
    problem = _Problem(labels, parts, np.ones(len(labels)), kin)
    error = float(np.linalg.inv(problem.expand(best.theta)[2])[features, features]) ** 0.5
    centre = best.theta[features]
    near = centre + min(error, 1.0) * _NEAR
    levels = np.unique(np.concatenate([LEVELS, near.clip(LEVELS[0], LEVELS[-1])]))
    fits = []
    for side in (levels[levels <= centre][::-1], levels[levels > centre]):
        theta = np.delete(best.theta, features)
        for level in side:
            fit = fit_mixture(labels, parts, form=kin.at(float(level)), start=theta, steps=10)
            theta = fit.theta
            fits.append(fit)
    return sorted(fits, key=lambda fit: fit.rate)


def fit_mixture(
    labels: Ints,
    parts: Floats,
    *,
    form: Form | Family,
    weights: Floats | None = None,
    start: Floats | None = None,
    steps: int = 80,
) -> Fit:
    """labels (N,), design (N, C, F), weights (N,) → the fit of largest penalised likelihood.

    Fisher scoring with Levenberg's damping, from ``start`` (a θ) or from two beginnings, with little and with much
    noise, of which the better end counts.
    """
    samples, classes, features = parts.shape
    kin = form if isinstance(form, Family) else family(form, num_classes=classes)
    w = np.ones(samples) if weights is None else weights
    used = np.flatnonzero(w)
    problem = _Problem(labels[used], parts[used], w[used], kin)
    if start is not None:
        begins = [start]
    else:
        begins = [
            np.concatenate([problem.mean[:features], kin.start(noisy=noisy)]) for noisy in (False, True)
        ]
    theta, objective = max((_climb(problem, begin, steps) for begin in begins), key=lambda end: end[1])
    log_t = _log_softmax(problem.parts @ theta[:features])
    t = np.exp(log_t)
    clearest = np.sort(-(t * log_t).sum(axis=1))[: max(1, len(t) // _CLEAREST)]
    return Fit(
        form=kin.form,
        theta=theta,
        transition=kin.matrix(theta[features:]),
        prior=problem.weights @ t / problem.weights.sum(),
        objective=objective,
        ambiguity=float(clearest.mean()),
    )


class _Problem:
    """The penalised log-likelihood with its gradient and Fisher information."""

    def __init__(self, labels: Ints, parts: Floats, weights: Floats, kin: Family) -> None:
        self.labels, self.parts, self.weights, self.kin = labels, parts, weights, kin
        self.rows = np.arange(len(labels))
        features = parts.shape[2]
        self.mean = np.concatenate([np.zeros(features), kin.mean])
        self.mean[parts.shape[1] - 1] = 1.0  # β: the network's own temperature
        self.precision = np.concatenate([np.full(features, _RIDGE), kin.precision])

    def value(self, theta: Floats) -> float:
        t, q, _ = self._forward(theta)
        return self._value(theta, t, q)

    def expand(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """Value, gradient (K,) and Fisher information (K, K) with the prior's."""
        t, q, P = self._forward(theta)
        features = self.parts.shape[2]
        weighted = t[:, :, None] * self.parts  # t_i φ_if
        centre = weighted.sum(axis=1)
        change = np.empty((*q.shape, len(theta)))  # ∂q_j / ∂θ
        change[:, :, :features] = P.T @ weighted - q[:, :, None] * centre[:, None, :]
        change[:, :, features:] = np.tensordot(t, self.kin.jacobian(theta[features:]), axes=(1, 1)).transpose(
            0, 2, 1
        )
        relative = change / q[:, :, None]
        gradient = self.weights @ relative[self.rows, self.labels] - self.precision * (theta - self.mean)
        lack = _PRESENT / np.clip(self.weights @ t, _TINY, None)
        pull = lack - (t @ lack)[:, None]  # towards grades that are hardly present
        gradient[:features] += np.tensordot(self.weights[:, None] * t * pull, self.parts, axes=2)
        change *= self.weights[:, None, None]
        flat = (-1, len(theta))
        information = change.reshape(flat).T @ relative.reshape(flat) + np.diag(self.precision)
        return self._value(theta, t, q), gradient, information

    def _forward(self, theta: Floats) -> tuple[Floats, Floats, Floats]:
        features = self.parts.shape[2]
        t = np.exp(_log_softmax(self.parts @ theta[:features]))
        P = self.kin.matrix(theta[features:])
        return t, np.clip(t @ P, _TINY, None), P

    def _value(self, theta: Floats, t: Floats, q: Floats) -> float:
        likelihood = self.weights @ np.log(q[self.rows, self.labels])
        present = _PRESENT * np.log(np.clip(self.weights @ t / self.weights.sum(), _TINY, None)).sum()
        return float(likelihood + present - 0.5 * (self.precision * (theta - self.mean) ** 2).sum())


def _climb(problem: _Problem, theta: Floats, steps: int) -> tuple[Floats, float]:
    damping = 1e-3
    value, gradient, information = problem.expand(theta)
    for _ in range(steps):
        move = np.linalg.solve(information + damping * np.diag(np.diag(information)), gradient)
        move *= min(1.0, 3.0 / float(np.abs(move).max() + 1e-300))
        reached = problem.value(theta + move)
        if reached > value:
            gain, theta, damping = reached - value, theta + move, max(damping / 5, 1e-6)
            if gain < 1e-4:
                return theta, reached
            value, gradient, information = problem.expand(theta)
        else:
            damping *= 10
            if damping > 1e6:
                break
    return theta, value


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
