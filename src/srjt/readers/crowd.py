"""The model of a crowd: many readers, of whom some read little, some hardly look at the items, and
some use the grades as names without an order.

Each reader is of a type: an ordinal matrix, or one that is mixed with a favourite grade. The rows
of the reader's own matrix are drawn from Dirichlet distributions around the rows of the type, with
one of several strengths. If the strength is large, the reader is the type; if it is small, the
matrix is nearly as free as that of Dawid and Skene. The likelihood of a type and a strength is
integrated over the matrices (Dirichlet–multinomial), so few readings leave both open, and their
shares among the readers are fitted. So no variant has to be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, logsumexp, softmax, xlogy  # type: ignore[import-untyped]

from srjt.readers.model import (
    BIAS_SCALE,
    PSEUDO_READERS,
    SPREAD_MEAN,
    SPREAD_SCALE,
    Family,
    Fit,
    States,
    compared,
    item_states,
    maximise,
    ordinal_matrices,
    shares_of_grades,
)
from srjt.readers.readings import Evidence, Floats

_BIAS = (-0.8, -0.4, 0.0, 0.4, 0.8)
_SPREAD = (0.2, 0.45, 0.8, 1.4)
_LAPSE = (0.01, 0.1, 0.35, 1.0)
_LAPSE_PRIOR = (1.62, 0.82, 0.39, 0.2)  # relative to each other
_FAVOURITE = (0.2, 0.5, 0.8, 0.97)  # how often a reader says the favourite grade without looking
_SPREAD_OF_FOND = (0.2, 0.8)  # of readers with a favourite grade, where they look
_SHARE_OF_FOND = 0.15
_STRENGTHS = np.array([100.0, 30.0, 10.0, 3.0])  # pseudo-readings of a row
_TIED = 2  # the first ones, where two readings of an item cannot tell items from readers
_LEAST = 1e-3  # pseudo-readings of each grade: no reading is impossible
_TOLERANCE = 2e-4
_FIRST = 4  # iterations from each start, before one is chosen
_CHUNK = 64  # readers at once: bounds the memory


@dataclass(frozen=True, kw_only=True)
class CrowdFit(Fit):
    """K strengths and T types of readers."""

    shares: Floats  # (K, T) of the readers
    usual: Floats  # (K, T) the shares before any data
    tied: Floats  # (R, K) probabilities of each reader's strength

    @property
    def strengths(self) -> Floats:
        """(K,)"""
        return _STRENGTHS[: len(self.shares)]

    @property
    def log_prior(self) -> Floats:
        return np.asarray(np.log(self.shares.sum(axis=0)))

    def deviation(self, size: Floats) -> Floats:
        return np.asarray((self.tied[:, :, None] / self._total(size + 1.0)).sum(axis=1))

    def _total(self, size: Floats) -> Floats:
        """(R, K, C) pseudo-readings and readings (R, C) of a row."""
        return self.strengths[:, None] + size[:, None]

    def updated(
        self, evidence: Evidence, posterior: Floats, readings: Floats, total: Floats
    ) -> CrowdFit:
        rows = self._rows
        size = readings.sum(axis=2)  # (R, C)
        log = log_marginal(rows, readings) + np.log(self.shares)
        both = softmax(log, axis=(1, 2))  # (R, K, T)
        tied = both.sum(axis=2)
        # the mean of the Dirichlet distributions given the readings
        before = np.einsum("rkt,ktcj->rkcj", both, rows)
        said = tied[:, :, None, None] * readings[:, None]
        shares = both.sum(axis=0) + PSEUDO_READERS * self.usual
        return replace(
            self,
            shares=shares / shares.sum(),
            tied=tied,
            types=both.sum(axis=1),
            grades=shares_of_grades(evidence, posterior),
            matrices=((before + said) / self._total(size)[..., None]).sum(axis=1),
            readings=readings,
            posterior=posterior,
        )

    @property
    def _rows(self) -> Floats:
        """(K, T, C, C) pseudo-readings of the types."""
        classes = self.family.matrices.shape[2]
        pseudo = (1.0 - _LEAST) * self.family.matrices + _LEAST / classes
        return np.asarray(self.strengths[:, None, None, None] * pseudo)

    def bound(self, evidence: Evidence) -> float:
        """A lower bound of the log-likelihood of all readings, with the prior of the shares, up to
        a constant: what the iterations raise, by which two ends can be compared."""
        log = log_marginal(self._rows, self.readings) + np.log(self.shares)
        readers = float(logsumexp(log, axis=(1, 2)).sum())
        types = PSEUDO_READERS * float(xlogy(self.usual, self.shares).sum())
        known = self.posterior * np.log(self.grades) - xlogy(self.posterior, self.posterior)
        if evidence.log_factor is not None:
            known = known + self.posterior * evidence.log_factor
        return readers + types + float(known.sum())


def log_marginal(rows: Floats, readings: Floats) -> Floats:
    """(R, K, T) log-likelihood of the readings (R, C, C), by true grade and grade read, if each row
    of a reader's matrix has a Dirichlet distribution with the parameters ``rows`` (K, T, C, C).

    Examples
    --------
    One reading has the mean of the distribution:

    >>> rows = np.array([[[[3.0, 1.0], [1.0, 3.0]]]])
    >>> readings = np.array([[[1.0, 0.0], [0.0, 0.0]]])
    >>> np.exp(log_marginal(rows, readings)).round(3).tolist()
    [[[0.75]]]
    """
    log = np.empty((len(readings), *rows.shape[:2]))
    for start in range(0, len(readings), _CHUNK):
        some = readings[start : start + _CHUNK, None, None]
        log[start : start + _CHUNK] = gammaln(rows + some).sum(axis=(3, 4))
    log -= gammaln(rows).sum(axis=(2, 3))
    # the same for all types of a strength
    strength = rows[:, :1].sum(axis=3)  # (K, 1, C)
    whole = gammaln(strength + readings.sum(axis=2)[:, None, None]) - gammaln(strength)
    return np.asarray(log - whole.sum(axis=3))


def family_of(states: States, *, favourites: bool) -> tuple[Family, Floats]:
    """The types, and their shares (T,) before any data."""
    classes = states.of_grade.shape[1]
    bias, spread, lapse = (
        axis.ravel() for axis in np.meshgrid(_BIAS, _SPREAD, _LAPSE, indexing="ij")
    )
    matrices = ordinal_matrices(
        states, bias=bias, slope=np.ones_like(bias), spread=spread, lapse=lapse
    )
    off = (np.log(spread) - SPREAD_MEAN) / SPREAD_SCALE
    prior = np.exp(-0.5 * ((bias / BIAS_SCALE) ** 2 + off**2))
    prior *= np.tile(_LAPSE_PRIOR, len(_BIAS) * len(_SPREAD))
    prior /= prior.sum()
    if favourites:
        looks = [
            np.flatnonzero((bias == 0.0) & (spread == one) & (lapse == _LAPSE[0]))[0]
            for one in _SPREAD_OF_FOND
        ]
        level = np.array(_FAVOURITE)[:, None, None, None, None]
        said = np.eye(classes)[None, :, None, None]
        fond = level * said + (1.0 - level) * matrices[looks]  # (level, grade, spread, S, C)
        fond = fond.reshape(-1, *matrices.shape[1:])
        matrices = np.concatenate([matrices, fond])
        bias = np.concatenate([bias, np.zeros(len(fond))])
        spread = np.concatenate([spread, np.tile(_SPREAD_OF_FOND, len(fond) // len(looks))])
        each = np.full(len(fond), _SHARE_OF_FOND / len(fond))
        prior = np.concatenate([(1.0 - _SHARE_OF_FOND) * prior, each])
    return Family(bias=bias, spread=spread, matrices=matrices), prior


def fit(evidence: Evidence, *, free: bool) -> CrowdFit:
    """By expectation–maximisation from the votes, or from votes of which each grade has as many: if
    many readers hardly look and say the same grade, the votes lead to an end that believes them.
    The likelier one is followed. free: whether matrices may be far from the family."""
    states = item_states(evidence.classes, alike=True)
    family, prior = family_of(states, favourites=compared(evidence))
    number = len(_STRENGTHS) if free else _TIED
    usual = np.tile(prior / number, (number, 1))
    blank = CrowdFit(
        states=states,
        family=family,
        shares=usual,
        usual=usual,
        tied=np.empty(0),
        grades=np.empty(0),
        kinds=np.array([1.0]),
        types=np.empty(0),
        matrices=np.empty(0),
        readings=np.empty(0),
        posterior=np.empty(0),
    )
    by_grade = np.tile(np.eye(evidence.classes), (evidence.readers, 1))
    votes = np.asarray(evidence.said @ by_grade)
    if evidence.log_factor is not None:
        votes = votes + softmax(evidence.log_factor, axis=1)
    votes = _shares(votes)
    begun = []
    for start in (votes, _shares(votes / np.maximum(votes.mean(axis=0), 1e-12))):
        readings = np.asarray(evidence.comparable.T @ start)
        readings = readings.reshape(-1, evidence.classes, evidence.classes).transpose(0, 2, 1)
        first = blank.updated(evidence, start, readings, start.sum(axis=0))
        begun.append(maximise(evidence, first, tolerance=0.0, iterations=_FIRST))
    likelier = max(begun, key=lambda one: one.bound(evidence))
    return maximise(evidence, likelier, tolerance=_TOLERANCE)


def _shares(votes: Floats) -> Floats:
    """(I, C) each row with the sum 1; of an item without readings 0."""
    return np.asarray(votes / np.maximum(votes.sum(axis=1, keepdims=True), 1e-12))
