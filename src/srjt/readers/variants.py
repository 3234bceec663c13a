"""Variants of the consensus model, weighted by how likely they make readings that were left out.

The variants: whether items of a grade are all alike, and how strongly readers are tied to the
family. A few hundred readings seldom tell which is right; what differs between the variants is
part of the doubt. A crowd has one model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from srjt.readers import crowd
from srjt.readers.model import STRENGTHS, Fit, GridFit, beginning, maximise
from srjt.readers.readings import ENOUGH, Evidence, Floats

_STRENGTHS_OF_PAIRS = STRENGTHS[:3]  # down to 30
_FEW = 10  # readings per reader
# Left-out readings of one item are not independent, so a difference of their log-likelihoods counts
# half.
_TEMPERATURE = 2.0
_SMALLEST_WEIGHT = 0.02


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Fits of the model, the likeliest first, their weights (V,), and what they were fitted to."""

    evidence: Evidence
    fits: tuple[Fit, ...]
    weights: Floats

    def mean(self, value: Callable[[Fit], Floats]) -> Floats:
        """The weighted mean of a value over the variants."""
        parts = [weight * value(fit) for weight, fit in zip(self.weights, self.fits, strict=True)]
        return np.asarray(sum(parts[1:], parts[0]))


def fit_variants(evidence: Evidence) -> Variants:
    """Fit the variants of the model that matter."""
    if evidence.crowd:
        fit = crowd.fit(evidence, free=_deep(evidence))
        return Variants(evidence=evidence, fits=(fit,), weights=np.ones(1))
    weights = _weights(_scores(evidence))
    fits: dict[tuple[bool, float], GridFit] = {}
    for alike in sorted({alike for alike, _ in weights}):
        loosest = min(strength for with_items, strength in weights if with_items == alike)
        for fit_of_path in _path(evidence, alike=alike, tolerance=2e-4):
            fits[alike, fit_of_path.strength] = fit_of_path
            if fit_of_path.strength == loosest:
                break
    order = sorted(weights, key=lambda variant: -weights[variant])
    return Variants(
        evidence=evidence,
        fits=tuple(fits[variant] for variant in order),
        weights=np.array([weights[variant] for variant in order]),
    )


def _weights(scores: dict[tuple[bool, float], float]) -> dict[tuple[bool, float], float]:
    """The variants with a weight that matters, from log-likelihoods."""
    best = max(scores.values())
    raw = {
        variant: float(np.exp((score - best) / _TEMPERATURE)) for variant, score in scores.items()
    }
    least = _SMALLEST_WEIGHT * sum(raw.values())
    kept = {variant: weight for variant, weight in raw.items() if weight > least}
    return {variant: weight / sum(kept.values()) for variant, weight in kept.items()}


def _scores(evidence: Evidence) -> dict[tuple[bool, float], float]:
    """The log-likelihood of left-out readings under each variant: (whether items are alike,
    strength)."""
    rest, held_out = evidence.hold_out()
    if not held_out.nnz:
        return {(False, STRENGTHS[0]): 0.0}
    scores: dict[tuple[bool, float], float] = {}
    deep = _deep(evidence)
    for alike in (True, False) if deep else (False,):
        last = -np.inf
        for fit in _path(rest, alike=alike, tolerance=1e-3, deep=deep):
            score = scores[alike, fit.strength] = float(held_out.sum()) * predictive(
                rest, held_out, fit
            )
            if score < last:
                break
            last = score
    return scores


def _deep(evidence: Evidence) -> bool:
    """Two readings of an item do not tell items apart from readers (three do): then only small
    departures are tried."""
    return evidence.anchored or int((evidence.weight > 2.0).sum()) >= ENOUGH


def _strengths(evidence: Evidence, *, deep: bool) -> tuple[float, ...]:
    """The ties to the family that are tried."""
    if evidence.said.sum() < _FEW * evidence.readers:  # too few to know a reader's own matrix
        return STRENGTHS[:1]
    return STRENGTHS if deep else _STRENGTHS_OF_PAIRS


def _path(
    evidence: Evidence, *, alike: bool, tolerance: float, deep: bool = True
) -> Iterator[GridFit]:
    """Fits with weaker and weaker ties to the family, each from where the one before ended."""
    fit = beginning(evidence, alike=alike)
    for strength in _strengths(evidence, deep=deep):
        fit = maximise(evidence, replace(fit, strength=strength), tolerance=tolerance)
        yield fit


def predictive(evidence: Evidence, held_out: csr_matrix, fit: Fit) -> float:
    """The mean log-likelihood of held-out readings (I, R·C) given the others."""
    by_state = fit.by_state(evidence, slice(None))
    said = held_out.tocoo()
    likelihood = (by_state[said.row] * np.exp(fit.columns[said.col])).sum(axis=1)
    return float(said.data @ np.log(likelihood)) / float(held_out.sum())


def information(matrices: Floats, grades: Floats) -> Floats:
    """(R,) what a reading of each reader tells of the true grade, in nats.

    matrices: (R, C, C) Pr(reading | true grade). grades: (C,) shares of the true grades.

    Examples
    --------
    >>> guesses = np.full((2, 2), 0.5)
    >>> information(np.stack([np.eye(2), guesses]), np.array([0.5, 0.5])).round(3).tolist()
    [0.693, 0.0]
    """
    said = np.einsum("c,rcj->rj", grades, matrices)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = matrices * np.log(matrices / said[:, None, :])
    return np.asarray(np.nan_to_num(each).sum(axis=2) @ grades)
