"""The model behind the noise estimate: label ~ Σ_i t_i(x) P_ij, fitted to out-of-fold probabilities.

t(x), the probabilities of the *true* grade, are the network's probabilities p(x) recalibrated:

    log t_i(x) = b_i + β log p_i(x) + γ i s(x) + constant,        s(x) = Σ_i i p_i(x)

with a bias for each grade, an inverse temperature β, and a term γ in the expected grade s(x) that says how
much the order of the grades counts. P has one of the forms in ``transitions``. All are fitted together, so it
does not matter whether the network approximates the noisy or the true grades.

Labels that are wrong and images that are ambiguous look alike where t is free to be blurred: P and t can trade
places at almost the same likelihood. What tells them apart is how t falls off away from a boundary between
grades, which the few parameters above describe, and a mild preference for sharp t: a nat of ambiguity
(entropy of t) costs ``SHARPNESS`` nats of likelihood. So of two explanations that fit about equally well, the
one in which the images show their grade is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from srjt.ordinal.transitions import Family, Form, family

__all__ = ["OWN_SHARPNESS", "SHARPNESS", "Fit", "design", "fit_mixture", "fitness", "recalibrated"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SHARPNESS = 0.02
# Labels several grades off cannot be ambiguity, and show quasi noise by themselves: there half of it does.
OWN_SHARPNESS: dict[Form, float] = {"quasi": SHARPNESS / 2, "truncated": SHARPNESS, "banded": SHARPNESS}
_RIDGE = 0.02  # precision of the prior around t = p: it keeps separable data finite, and tiny ones sensible
_PRESENT = 3.0  # samples of each grade that are taken for granted, lest a grade be explained away altogether
_FLOOR = 1e-6  # networks that have learnt by heart give zeros
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Parameters of the model, and what they make of the samples they were fitted to."""

    family: Family
    theta: Floats  # (F + M,): of t, then of P
    transition: Floats  # (C, C)
    prior: Floats  # (C,) mean of t
    objective: float  # penalised log-likelihood

    @property
    def form(self) -> Form:
        return self.family.form

    @property
    def rate(self) -> float:
        return float(self.prior @ (1.0 - np.diag(self.transition)))

    @property
    def temperature(self) -> float:
        """1 / β: above 1 where the network was too sure of itself."""
        return float(1.0 / max(self.theta[len(self.prior) - 1], 1e-3))


def design(probabilities: Floats, *, finer: bool = False) -> Floats:
    """(N, C) → (N, C, F = C + 1): log t = design @ θ + constant.

    finer: one more term, in the mean log-probability by grade, which goes on rising where s(x) saturates. It
    ranks labels a little better once P is known; while P is sought it would only blur t.
    """
    samples, classes = probabilities.shape
    grade = np.arange(classes) - (classes - 1) / 2  # centred, so that reversing the grades only changes signs
    log_p = np.log(np.clip(probabilities, _FLOOR, None))
    reached = np.arange(classes)[:, None] >= np.arange(1, classes)  # (C, C − 1): biases between neighbours
    parts = np.empty((samples, classes, classes + 1 + finer))
    parts[:, :, : classes - 1] = reached
    parts[:, :, classes - 1] = log_p - log_p.mean(axis=1, keepdims=True)
    parts[:, :, classes] = (probabilities @ grade)[:, None] * grade
    if finer:
        parts[:, :, classes + 1] = 0.3 * (log_p @ grade)[:, None] * grade
    return parts


def recalibrated(parts: Floats, fit: Fit) -> Floats:
    """(N, C, F) → (N, C): t(x), the probabilities of the true grade."""
    return np.exp(_log_softmax(parts @ fit.theta[: parts.shape[2]]))


def fitness(labels: Ints, parts: Floats, fit: Fit, *, sharpness: float = SHARPNESS) -> tuple[Floats, Floats]:
    """Each sample's log-likelihood, and the same less the price of its ambiguity: (N,), (N,)."""
    log_t = _log_softmax(parts @ fit.theta[: parts.shape[2]])
    t = np.exp(log_t)
    likelihood = np.log(np.clip((t * fit.transition.T[labels]).sum(axis=1), _TINY, None))
    return likelihood, likelihood + sharpness * (t * log_t).sum(axis=1)


def fit_mixture(
    labels: Ints,
    parts: Floats,
    *,
    form: Form | Family,
    weights: Floats | None = None,
    start: Fit | None = None,
    sharpness: float = SHARPNESS,
    steps: int = 80,
) -> Fit:
    """labels (N,), design (N, C, F), weights (N,) → the fit of largest penalised likelihood.

    Fisher scoring with Levenberg's damping, from ``start`` or from two beginnings, with little and with much
    noise, of which the better end counts.
    """
    samples, classes, features = parts.shape
    kin = form if isinstance(form, Family) else family(form, num_classes=classes)
    w = np.ones(samples) if weights is None else weights
    used = np.flatnonzero(w)
    problem = _Problem(labels[used], parts[used], w[used], kin, sharpness)
    if start is not None:
        begins = [start.theta]
    else:
        begins = [
            np.concatenate([problem.mean[:features], kin.start(noisy=noisy)]) for noisy in (False, True)
        ]
    theta, objective = max((_climb(problem, begin, steps) for begin in begins), key=lambda end: end[1])
    t = np.exp(_log_softmax(problem.parts @ theta[:features]))
    return Fit(
        family=kin,
        theta=theta,
        transition=kin.matrix(theta[features:]),
        prior=problem.weights @ t / problem.weights.sum(),
        objective=objective,
    )


class _Problem:
    """The penalised log-likelihood with its gradient and Fisher information."""

    def __init__(self, labels: Ints, parts: Floats, weights: Floats, kin: Family, sharpness: float) -> None:
        self.labels, self.parts, self.weights, self.kin, self.sharpness = (
            labels,
            parts,
            weights,
            kin,
            sharpness,
        )
        self.rows = np.arange(len(labels))
        features = parts.shape[2]
        self.mean = np.concatenate([np.zeros(features), kin.mean])
        self.mean[parts.shape[1] - 1] = 1.0  # β: the network's own temperature
        self.precision = np.concatenate([np.full(features, _RIDGE), kin.precision])

    def value(self, theta: Floats) -> float:
        t, _, entropy, q, _ = self._forward(theta)
        return self._value(theta, t, entropy, q)

    def expand(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """Value, gradient (K,) and Fisher information (K, K) with the prior's."""
        t, log_t, entropy, q, P = self._forward(theta)
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
        pull = (
            self.sharpness * (log_t + entropy[:, None]) + lack - (t @ lack)[:, None]
        )  # of the two penalties
        gradient[:features] += np.tensordot(self.weights[:, None] * t * pull, self.parts, axes=2)
        change *= self.weights[:, None, None]
        flat = (-1, len(theta))
        information = change.reshape(flat).T @ relative.reshape(flat) + np.diag(self.precision)
        return self._value(theta, t, entropy, q), gradient, information

    def _forward(self, theta: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        features = self.parts.shape[2]
        log_t = _log_softmax(self.parts @ theta[:features])
        t = np.exp(log_t)
        P = self.kin.matrix(theta[features:])
        return t, log_t, -(t * log_t).sum(axis=1), np.clip(t @ P, _TINY, None), P

    def _value(self, theta: Floats, t: Floats, entropy: Floats, q: Floats) -> float:
        likelihood = self.weights @ (np.log(q[self.rows, self.labels]) - self.sharpness * entropy)
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
