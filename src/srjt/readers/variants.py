"""Variants of the consensus model, weighted by how likely they make readings that were left out.

The variants: whether items of a grade are all alike, and how strongly readers are tied to the family. A few hundred
readings seldom tell which is right. The mean over the variants does not depend on one choice, and what differs between
them is part of the doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from srjt.readers.evidence import Evidence
from srjt.readers.family import reader_family
from srjt.readers.fit import CHUNK, Fit, log_columns, maximise, state_posterior
from srjt.readers.states import item_states

__all__ = ["ENOUGH", "Variants", "fit_variants", "hold_out", "predictive"]

Floats = npt.NDArray[np.float64]

_STRENGTHS = (1e6, 100.0, 30.0, 10.0, 3.0)  # pseudo-readings of a row
_SMALLEST_OF_PAIRS = 30.0
_FEW = 10  # readings per reader
_HELD_OUT_ITEMS = 20_000
# Left-out readings of one item are not independent, so a difference of their log-likelihoods counts half.
_TEMPERATURE = 2.0
_SMALLEST_WEIGHT = 0.02
ENOUGH = 20  # items that show something


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Fits of the model, the likeliest first, and their weights (V,)."""

    fits: tuple[Fit, ...]
    weights: Floats

    def mean(self, value: Callable[[Fit], Floats]) -> Floats:
        """The weighted mean of a value over the variants."""
        parts = [weight * value(fit) for weight, fit in zip(self.weights, self.fits, strict=True)]
        return np.asarray(sum(parts[1:], parts[0]))


def fit_variants(evidence: Evidence, *, iterations: int = 100, tolerance: float = 2e-4) -> Variants:
    """Fit the variants of the model that matter."""
    weights = _weights(_scores(evidence, iterations=iterations, tolerance=5 * tolerance))
    found: dict[tuple[bool, float], Fit] = {}
    for alike in sorted({alike for alike, _ in weights}):
        loosest = min(strength for own, strength in weights if own == alike)
        for fit in _path(evidence, alike=alike, iterations=iterations, tolerance=tolerance):
            found[alike, fit.strength] = fit
            if fit.strength == loosest:
                break
    order = sorted(weights, key=lambda variant: -weights[variant])
    return Variants(
        fits=tuple(found[variant] for variant in order),
        weights=np.array([weights[variant] for variant in order]),
    )


def _weights(scores: dict[tuple[bool, float], float]) -> dict[tuple[bool, float], float]:
    """The variants with a weight that matters, from log-likelihoods."""
    best = max(scores.values())
    raw = {variant: float(np.exp((score - best) / _TEMPERATURE)) for variant, score in scores.items()}
    kept = {
        variant: weight for variant, weight in raw.items() if weight > _SMALLEST_WEIGHT * sum(raw.values())
    }
    return {variant: weight / sum(kept.values()) for variant, weight in kept.items()}


def _scores(evidence: Evidence, *, iterations: int, tolerance: float) -> dict[tuple[bool, float], float]:
    """The log-likelihood of left-out readings under each variant: (whether items are alike, strength)."""
    rest, held_out = hold_out(evidence)
    if not held_out.nnz:
        return {(False, _STRENGTHS[0]): 0.0}
    # Two readings of an item do not tell items apart from readers (three do): then only small departures are tried.
    deep = int((np.asarray(evidence.said.sum(axis=1)).ravel() > 2.0).sum()) >= ENOUGH or evidence.anchored
    size = float(held_out.sum())
    scores: dict[tuple[bool, float], float] = {}
    for alike in (True, False) if deep else (False,):
        last = -np.inf
        for fit in _path(rest, alike=alike, iterations=iterations, tolerance=tolerance):
            if fit.strength < _SMALLEST_OF_PAIRS and not deep:
                break
            score = scores[alike, fit.strength] = size * predictive(rest, held_out, fit)
            if score < last:
                break
            last = score
    return scores


def _path(evidence: Evidence, *, alike: bool, iterations: int, tolerance: float) -> Iterator[Fit]:
    """Fits with weaker and weaker ties to the family, each from where the one before ended."""
    states = item_states(evidence.classes, alike=alike)
    several = np.asarray(evidence.said.sum(axis=1)).ravel() > 1.0
    compared = evidence.anchored or int(several.sum()) >= ENOUGH
    family = reader_family(states, favourites=compared)
    fit: Fit | None = None
    few = evidence.said.sum() < _FEW * evidence.readers  # too few readings to know a reader's own matrix
    for strength in _STRENGTHS[:1] if few else _STRENGTHS:
        fit = maximise(
            evidence, states, family, strength=strength, start=fit, iterations=iterations, tolerance=tolerance
        )
        yield fit


def hold_out(evidence: Evidence, *, last: bool = False) -> tuple[Evidence, csr_matrix]:
    """A fifth of the readings of at most 20,000 items taken out; an item's last one only with ``last``."""
    rng = np.random.Generator(np.random.PCG64(0))
    items = evidence.said.shape[0]
    rows = np.sort(rng.permutation(items)[:_HELD_OUT_ITEMS])
    chosen_items = evidence.items(rows)
    said = chosen_items.said.tocoo()
    out = rng.random(said.nnz) < 0.2
    left = np.bincount(said.row[~out], minlength=len(rows))
    out &= (left[said.row] > 0) | last

    def part(chosen: npt.NDArray[np.bool_]) -> csr_matrix:
        return csr_matrix((said.data[chosen], (said.row[chosen], said.col[chosen])), shape=said.shape)

    return replace(chosen_items, said=part(~out)), part(out)


def predictive(evidence: Evidence, held_out: csr_matrix, fit: Fit) -> float:
    """The mean log-likelihood of held-out readings (I, R·C) given the others."""
    columns = log_columns(fit.matrices)
    prior = fit.states.prior(fit.grades, fit.kinds)
    total = 0.0
    for start in range(0, held_out.shape[0], CHUNK):
        rows = slice(start, start + CHUNK)
        by_state = state_posterior(evidence, states=fit.states, prior=prior, columns=columns, rows=rows)
        said = held_out[rows].tocoo()
        likelihood = (by_state[said.row] * np.exp(columns[said.col])).sum(axis=1)
        total += float(said.data @ np.log(likelihood))
    return total / float(held_out.sum())
