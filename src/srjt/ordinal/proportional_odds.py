"""The proportional-odds model with a ridge penalty: one severity per sample, and thresholds between
the grades.

Pr(grade ≤ k | x) = σ(θ_k − w·x) with θ_0 < θ_1 < …, the ordinal logistic regression of McCullagh
(1980). It has no epochs, no learning rate and no seed: the penalised likelihood is maximised by
L-BFGS in float64. The strength of the penalty is the one under which held-out labels are likeliest,
with the samples of a patient held out together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize  # type: ignore[import-untyped]
from scipy.special import expit  # type: ignore[import-untyped]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# The prior variance of the severity w·x of a sample, from almost none to beyond what any label
# needs: a factor of √10 moves the held-out likelihood by less than its own sampling error.
VARIANCES = tuple(float(v) for v in 10.0 ** np.arange(-2.5, 3.1, 0.5))
TINY = 1e-300  # a probability of exactly 0 has no logarithm


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What N samples say about their true grades.

    Attributes
    ----------
    values : ndarray, shape (N, C)
        Pr(what was observed | true grade), up to a factor: a column of the matrix of label errors,
        or the readings of several readers. Or, if ``kind`` is ``"probabilities"``, the
        probabilities of the true grades.
    kind : {"likelihoods", "probabilities"}
        The loss of a sample: −log Σ_c p_c L_c, or the cross-entropy −Σ_c q_c log p_c. For a certain
        grade both are −log p at that grade.
    weights : ndarray, shape (N,)
        How often each sample counts.
    """

    values: Floats
    kind: Literal["likelihoods", "probabilities"]
    weights: Floats

    def select(self, rows: npt.NDArray[np.generic]) -> Targets:
        return Targets(values=self.values[rows], kind=self.kind, weights=self.weights[rows])


@dataclass(frozen=True, kw_only=True)
class OddsModel:
    """A fitted model: (F,) weights of the columns and C − 1 ascending thresholds.

    ``strength`` is the ridge strength λ of the penalty λ/2 ‖w‖², and ``held_out`` the mean held-out
    log-likelihood of the targets by strength (empty if it was given).
    """

    weights: Floats
    thresholds: Floats
    strength: float
    held_out: dict[float, float]

    def probabilities(self, x: Floats) -> Floats:
        """(N, F) → (N, C)."""
        return grade_probabilities(x @ self.weights, self.thresholds)


def grade_probabilities(severity: Floats, thresholds: Floats) -> Floats:
    """(N,) severities, (C − 1,) ascending thresholds → (N, C) probabilities of the grades.

    σ(a) − σ(b) = σ(a) σ(−b) (1 − e^(b − a)): the difference itself would round to 0 where both are
    near 1.
    """
    edges = thresholds[None, :] - severity[:, None]
    ones = np.ones((len(severity), 1))
    gaps = np.concatenate([[1.0], -np.expm1(thresholds[:-1] - thresholds[1:]), [1.0]])
    below = np.concatenate([expit(edges), ones], axis=1)
    above = np.concatenate([ones, expit(-edges)], axis=1)
    return np.asarray(below * above * gaps)


def fit_odds(
    x: Floats,
    targets: Targets,
    *,
    fold: Ints | None = None,
    strengths: Sequence[float] | None = None,
) -> OddsModel:
    """Fit the model, with the strength that makes held-out targets likeliest.

    Parameters
    ----------
    x : ndarray, shape (N, F)
        Standardised columns.
    targets : Targets
        What is known of the true grades.
    fold : ndarray of int, shape (N,), optional
        The fold in which each sample is held out. Not needed if there is one strength.
    strengths : sequence of float, optional
        The ridge strengths to choose from. Default: those that give the severity a prior variance
        of ``VARIANCES``.

    Returns
    -------
    OddsModel
    """
    columns = x.shape[1]
    chosen_from = strengths or [columns / variance for variance in VARIANCES]
    # Penalty and model do not change under a rotation: of many columns, only as many directions as
    # samples matter.
    coordinates, axes = _principal(x)
    held_out: dict[float, float] = {}
    strength = chosen_from[0]
    if len(chosen_from) > 1:
        assert fold is not None, "the strength is chosen by held-out samples"
        held_out = _held_out_likelihood(coordinates, targets, fold, chosen_from)
        strength = max(held_out, key=held_out.__getitem__)
    start = None
    for step in sorted((one for one in chosen_from if one >= strength), reverse=True):
        start = _minimise(
            coordinates, targets, step, start, tolerance=1e-7 if step > strength else 1e-10
        )
    assert start is not None
    weights, thresholds = start
    return OddsModel(
        weights=axes @ weights, thresholds=thresholds, strength=strength, held_out=held_out
    )


def held_out_probabilities(x: Floats, targets: Targets, *, fold: Ints, strength: float) -> Floats:
    """(N, C) probabilities of each sample by a model of the other folds."""
    coordinates, _ = _principal(x)
    probabilities = np.empty(targets.values.shape)
    for k in np.unique(fold):
        w, thresholds = _minimise(coordinates[fold != k], targets.select(fold != k), strength, None)
        probabilities[fold == k] = grade_probabilities(coordinates[fold == k] @ w, thresholds)
    return probabilities


def log_likelihood(probabilities: Floats, targets: Targets) -> Floats:
    """(N, C) probabilities → (N,) log-likelihood of each sample's target."""
    if targets.kind == "probabilities":
        return np.asarray((targets.values * np.log(np.maximum(probabilities, TINY))).sum(axis=1))
    return np.asarray(np.log(np.maximum((targets.values * probabilities).sum(axis=1), TINY)))


def _principal(x: Floats) -> tuple[Floats, Floats]:
    """(N, F) → coordinates (N, R) on R orthonormal axes (F, R) that hold all rows."""
    samples, columns = x.shape
    gram = x.T @ x if columns <= samples else x @ x.T
    values, vectors = np.linalg.eigh(gram)
    kept = values > values[-1] * 1e-12
    if not kept.any():  # all columns are constant
        return np.zeros((samples, 1)), np.zeros((columns, 1))
    axes = vectors[:, kept]
    if columns > samples:
        axes = (x.T @ axes) / np.sqrt(values[kept])
    return x @ axes, axes


def _held_out_likelihood(
    z: Floats, targets: Targets, fold: Ints, strengths: Sequence[float]
) -> dict[float, float]:
    """The mean held-out log-likelihood by strength, from the strongest on until it has fallen twice
    in a row."""
    names = np.unique(fold)
    fits: dict[int, tuple[Floats, Floats] | None] = dict.fromkeys(names.tolist())
    likelihoods: dict[float, float] = {}
    for strength in sorted(strengths, reverse=True):
        total = 0.0
        for k in names.tolist():
            rest = fold != k
            held = fold == k
            # each is near the solution of the next stronger one
            fit = _minimise(z[rest], targets.select(rest), strength, fits[k], tolerance=1e-7)
            judged = targets.select(held)
            probabilities = grade_probabilities(z[held] @ fit[0], fit[1])
            total += float(judged.weights @ log_likelihood(probabilities, judged))
            fits[k] = fit
        likelihoods[strength] = total / float(targets.weights.sum())
        last = list(likelihoods.values())[-3:]
        if len(last) == 3 and last[0] > last[1] > last[2]:
            break
    return likelihoods


def _minimise(
    z: Floats,
    targets: Targets,
    strength: float,
    start: tuple[Floats, Floats] | None,
    *,
    tolerance: float = 1e-10,
) -> tuple[Floats, Floats]:
    """(R,) weights and (C − 1,) thresholds of the smallest penalised loss.

    The variables are the weights, scaled so that all have about the same curvature, the first
    threshold, and the logarithms of the gaps between thresholds, which stay positive. Half a sample
    of each grade is added, so that a grade without labels keeps a probability.
    """
    classes = targets.values.shape[1]
    directions = z.shape[1]
    # of a logistic model with a spread-out severity; it only decides how fast the minimum is found
    curvature = 0.15 * float(targets.weights.sum()) * (z**2).mean(axis=0)
    scale = 1.0 / np.sqrt(curvature + strength)
    z, targets = _with_half_samples(z, targets)
    if start is None:
        shares = np.arange(1, classes) / classes
        start = np.zeros(directions), np.log(shares / (1.0 - shares))
    weights, thresholds = start
    first = np.concatenate([weights / scale, thresholds[:1], np.log(np.diff(thresholds))])

    def objective(variables: Floats) -> tuple[float, Floats]:
        w = variables[:directions] * scale
        gaps = np.exp(variables[directions + 1 :].clip(-20.0, 20.0))
        thresholds = variables[directions] + np.concatenate([[0.0], np.cumsum(gaps)])
        loss, by_severity, by_threshold = _loss(z @ w, thresholds, targets)
        loss += 0.5 * strength * float(w @ w)
        gradient_w = (z.T @ by_severity + strength * w) * scale
        later = np.cumsum(by_threshold[::-1])[::-1]  # a gap moves all thresholds after it
        return loss, np.concatenate([gradient_w, later[:1], later[1:] * gaps])

    options = {"maxiter": 500, "maxcor": 20, "ftol": tolerance, "gtol": 1e-5}
    solution = minimize(objective, first, jac=True, method="L-BFGS-B", options=options).x
    gaps = np.exp(solution[directions + 1 :].clip(-20.0, 20.0))
    return solution[:directions] * scale, solution[directions] + np.concatenate(
        [[0.0], np.cumsum(gaps)]
    )


def _with_half_samples(z: Floats, targets: Targets) -> tuple[Floats, Targets]:
    """With half a sample of each grade whose severity is the average, 0."""
    classes = targets.values.shape[1]
    added = Targets(
        values=np.concatenate([targets.values, np.eye(classes)]),
        kind=targets.kind,  # of a certain grade both kinds are the same
        weights=np.concatenate([targets.weights, np.full(classes, 0.5)]),
    )
    return np.concatenate([z, np.zeros((classes, z.shape[1]))]), added


def _loss(severity: Floats, thresholds: Floats, targets: Targets) -> tuple[float, Floats, Floats]:
    """The loss of all samples, and its derivatives by the severities (N,) and thresholds (C −
    1,)."""
    p = np.maximum(grade_probabilities(severity, thresholds), TINY)
    if targets.kind == "probabilities":
        loss = -(targets.values * np.log(p)).sum(axis=1)
        by_p = -targets.values / p
    else:
        observed = np.maximum((targets.values * p).sum(axis=1, keepdims=True), TINY)
        loss = -np.log(observed[:, 0])
        by_p = -targets.values / observed
    by_p *= targets.weights[:, None]
    edges = thresholds[None, :] - severity[:, None]
    density = expit(edges) * expit(-edges)  # of Pr(grade ≤ k), by its threshold
    by_edge = (
        by_p[:, :-1] - by_p[:, 1:]
    ) * density  # a threshold that rises takes from the grade above it
    return float(targets.weights @ loss), -by_edge.sum(axis=1), by_edge.sum(axis=0)
