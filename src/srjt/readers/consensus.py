"""The consensus of several readers: what the true grade of each item probably is, and how reliable
each reader is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from srjt.errors import SrjtError, count_of, unknown_name
from srjt.json_values import DictMixin
from srjt.noise.estimate import rate_text
from srjt.noise.matrices import SHARED_ERRORS, seen
from srjt.notebook import HasPage
from srjt.readers.basis import Basis, Undetermined
from srjt.readers.intervals import ReaderIntervals, reader_intervals
from srjt.readers.model import Fit, chunks
from srjt.readers.readings import (
    ENOUGH,
    Evidence,
    Floats,
    Ints,
    Readings,
    Repeats,
    TwoReadings,
    evidence_of,
    two_readings,
)
from srjt.readers.variants import Variants, fit_variants, information, predictive

HALF_WIDTH = 0.05  # of an interval that settles a rate
_AMOUNTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_POWERS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_STEPS = 200  # of expectation–maximisation of one share


@dataclass(frozen=True, kw_only=True)
class Consensus(ReaderIntervals, DictMixin, HasPage):
    """The true grades as far as the readings tell them, and how each reader reads."""

    items: list[str]
    readers: list[str]
    grades: tuple[str, ...]
    posterior: Floats  # (I, C) p(true grade | all readings)
    grade: Ints  # (I,) the posterior's median: the least expected absolute error
    certainty: Floats  # (I,) probability of this grade
    risk: Floats  # (I,) expected absolute error of this grade
    error: float  # share of the items whose grade is probably wrong
    error_interval: tuple[float, float]
    difficulty: Floats  # (I,) probability that the mean reader misreads the item
    prior: Floats  # (C,) shares of the true grades
    mean_matrix: Floats  # (C, C) of all readings
    readings: Ints  # (R,) how many readings each reader made
    determined: (
        bool  # whether readings of the same items, or a reference, tell how good readers are
    )
    undetermined: Undetermined | None  # why not; None if they do
    basis: Basis  # what the result rests on
    network_power: float | None  # of the network's probabilities; None without a network
    variants: Variants = field(repr=False)

    @property
    def reason(self) -> str:
        """Why it is not determined how often readers err, in one sentence; "" if it is."""
        return "" if self.undetermined is None else self.undetermined.sentence

    @property
    def assumption(self) -> str:
        """What the result rests on, in one sentence or two."""
        return self.basis.sentence

    def __repr__(self) -> str:
        return f"<Consensus: {str(self).splitlines()[0]}>"

    def __str__(self) -> str:
        counts = (
            f"{count_of(len(self.items), 'item')}, {count_of(int(self.readings.sum()), 'reading')}"
            f" by {count_of(len(self.readers), 'reader')}"
        )
        # the numbers would come from the model's defaults alone
        if self.variants.evidence.single.all():
            return f"{counts}, one of each item\n  not determined: {self.reason}"
        wrong = error = None
        if self.determined:
            wrong = self.overall_noise_rate
            error = self.error
        lines = [
            f"{counts}, wrong: {rate_text(wrong, self.overall_noise_rate_interval)}",
            f"  wrong consensus grades: {rate_text(error, self.error_interval)}",
        ]
        if not self.determined:
            lines.append(f"  not determined: {self.reason}")
        return "\n".join([*lines, f"  {self.assumption}"])


def consensus(
    readings: Readings,
    *,
    probabilities: ArrayLike | None = None,
    repeats: Repeats = "one reading",
    shared_errors: float = SHARED_ERRORS,
    confidence: float = 0.95,
) -> Consensus:
    """The true grade of each item given all its readings, and each reader's matrix.

    Parameters
    ----------
    readings : Readings
        Where it has a ``reference``, that grade is certain.
    probabilities : (I, C) array, optional
        Out-of-fold probabilities of a network, one row for each item. The network is one more
        witness, but it learnt from the same readers and repeats their common errors. So its rows,
        divided by their mean, enter to a power between 0 and 1: the one under which readings that
        were left out are likeliest, given the network and the item's other readings. An error that
        all readers and the network share remains.
    repeats : {"one reading", "independent", "estimated"}
        What several readings of an item by the same reader are. "one reading": together they weigh
        as much as one, because a reader repeats errors. "independent": each weighs as one; for a
        crowd that enters as one reader. "estimated": the first weighs as one, each further one as
        much as second readings depart from mere repetition (``persistence``).
    shared_errors : float
        How often something in an item misleads all its readers, as a multiple (0 to 1) of how often
        one errs alone. Readings cannot tell it; the intervals reach from never to as often. A
        reference of 20 items or more does: then the amount is estimated. The grades do not depend
        on it.
    confidence : float
        Of the intervals.

    Returns
    -------
    Consensus
        If ``determined`` is false, the readings do not tell how often readers err, and the
        certainties rest on what is usual; ``reason`` says why.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(0, 4, size=80)
    >>> item, reader = np.repeat(np.arange(80), 3), np.tile([0, 1, 2], 80)
    >>> error = np.where(rng.random(240) < 0.3, rng.choice([-1, 1], size=240), 0)
    >>> names = {"items": list(map(str, range(80))), "readers": ["Kim", "Lee", "May"]}
    >>> grade = (true[item] + error).clip(0, 3)
    >>> readings = Readings(**names, grades=tuple("0123"), item=item, reader=reader, grade=grade)
    >>> agreed = consensus(readings)
    >>> bool((agreed.grade == true).mean() > 0.8)
    True
    """
    Readings.check(readings)
    _check_options(repeats, shared_errors, confidence)
    again = 0.0
    if repeats == "estimated":
        again = 1.0 - persistence(readings)
    evidence = evidence_of(readings, repeats=repeats, again=again)
    power: float | None = None
    if probabilities is not None:
        evidence, power = _with_network(evidence, _log_ratio(probabilities, readings))
    variants = fit_variants(evidence)
    posterior = variants.mean(lambda fit: fit.posterior)
    prior = variants.mean(lambda fit: fit.grades)
    grade = _grades(posterior, readings, evidence)
    made = np.bincount(readings.reader, minlength=len(readings.readers))
    share = made / made.sum()
    undetermined = _why_undetermined(readings, evidence)
    intervals = reader_intervals(
        variants, share=share, determined=undetermined is None, confidence=confidence
    )
    mean = np.einsum("r,rcj->cj", share, intervals.matrices)
    reference = _reference(readings)
    compared = int((reference >= 0).sum()) >= ENOUGH
    if undetermined:  # even a reader's own errors are a guess
        shared_errors = 0.0
    elif compared:
        shared_errors = _shared_errors(variants, reference, mean)
    if_alone = posterior
    if shared_errors:
        mean = _matrix_of_those_who_look(intervals, prior, share=share, crowd=evidence.crowd)
        true = posterior @ true_given_seen(mean, shared_errors)
        posterior = np.where(reference[:, None] >= 0, posterior, true)
    least, most = _errors(variants, grade)
    if shared_errors and not compared:  # no reading tells how often
        misled = intervals.overall_noise_rate_interval[1]
        as_often = if_alone @ true_given_seen(mean, 1.0)
        most = max(1.0 - (1.0 - most) * (1.0 - misled), _wrong(as_often, grade))
        intervals = with_shared_errors(intervals, prior, share=share, amount=shared_errors)
    certainty = posterior[np.arange(len(grade)), grade]
    rate = intervals.overall_noise_rate
    return Consensus(
        items=readings.items,
        readers=readings.readers,
        grades=readings.grades,
        posterior=posterior,
        grade=grade,
        certainty=certainty,
        risk=(posterior * np.abs(np.arange(posterior.shape[1]) - grade[:, None])).sum(axis=1),
        error=float(1.0 - certainty.mean()),
        error_interval=(least, most),
        difficulty=_difficulty(variants, share),
        prior=prior,
        mean_matrix=np.einsum("r,rcj->cj", share, intervals.matrices),
        readings=made,
        determined=undetermined is None,
        undetermined=undetermined,
        basis=_basis(evidence, compared=compared, shared=shared_errors, rate=rate),
        network_power=power,
        variants=variants,
        **vars(intervals),
    )


def _grades(posterior: Floats, readings: Readings, evidence: Evidence) -> Ints:
    """(I,) the grade of each item. An error that all readers share has no direction that could move
    it."""
    grade = posterior_median(posterior)
    if evidence.single.all() and np.bincount(readings.item).max() == 1:
        # only what is usual for readers could contradict them
        grade[readings.item] = readings.grade
    return grade


def _reference(readings: Readings) -> Ints:
    """(I,) the reference grades, −1 where there is none."""
    if readings.reference is None:
        return np.full(len(readings.items), -1)
    return readings.reference


def _matrix_of_those_who_look(
    intervals: ReaderIntervals, prior: Floats, *, share: Floats, crowd: bool
) -> Floats:
    """(C, C) the mean matrix of the readers who share errors: in a crowd some hardly look at the
    items, and these do not."""
    weights = share
    if crowd:
        telling = share * information(intervals.matrices, prior)
        weights = telling / telling.sum()
    return np.asarray(np.einsum("r,rcj->cj", weights, intervals.matrices))


def _check_options(repeats: str, shared_errors: float, confidence: float) -> None:
    if repeats not in get_args(Repeats):
        raise unknown_name("value of repeats", repeats, get_args(Repeats))
    if not 0.0 < confidence < 1.0:
        raise SrjtError(
            f"confidence lies between 0 and 1; got {confidence:g}.",
            code="out_of_bounds",
            option="confidence",
        )
    if not 0.0 <= shared_errors <= 1.0:
        raise SrjtError(
            f"shared_errors lies between 0 and 1; got {shared_errors:g}.",
            code="out_of_bounds",
            option="shared_errors",
        )


def persistence(readings: Readings) -> float:
    """The share of second readings of an item by the same reader that repeat the first grade
    whatever the item shows, 0 to 1; the others are drawn as the model has it. Of greatest
    likelihood; 1 if nobody has read an item twice.

    The model is fitted to the first readings alone.
    """
    twice = two_readings(readings)
    if not len(twice.item):
        return 1.0
    evidence = evidence_of(readings.first(), repeats="one reading")
    fresh = next_grade(fit_variants(evidence), twice.item, twice.reader)
    return repeated_share(twice, fresh)


def next_grade(variants: Variants, item: Ints, reader: Ints) -> Floats:
    """(K, C) the probabilities of the grades if a reader (K,) reads an item (K,) once more: given
    the item, readings are independent."""
    fresh = np.zeros((len(item), variants.evidence.classes))
    for weight, fit in zip(variants.weights, variants.fits, strict=True):
        by_state = fit.by_state(variants.evidence, slice(None))
        for one in np.unique(reader):
            rows = np.flatnonzero(reader == one)
            fresh[rows] += weight * by_state[item[rows]] @ fit.matrices[one]
    return fresh


def repeated_share(twice: TwoReadings, fresh: Floats) -> float:
    """The share of greatest likelihood. fresh: (K, C) from ``next_grade``.

    Examples
    --------
    >>> zero = np.zeros(4, dtype=int)
    >>> twice = TwoReadings(zero, zero, np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))
    >>> round(repeated_share(twice, np.full((4, 2), 0.5)), 3)
    0.5
    """
    same = (twice.first == twice.second).astype(np.float64)
    drawn = fresh[np.arange(len(same)), twice.second]
    share = 0.5
    for _ in range(_STEPS):
        repeated = share * same
        share = float((repeated / (repeated + (1.0 - share) * drawn)).mean())
    return share


def _with_network(evidence: Evidence, ratio: Floats) -> tuple[Evidence, float]:
    """The evidence with the network as a witness, and the power with which it enters."""
    power = _network_power(evidence, ratio)
    if not power and not evidence.anchored:
        return replace(evidence, log_factor=None), power
    return replace(evidence, log_factor=power * ratio + _log_factor(evidence)), power


def _log_factor(evidence: Evidence) -> Floats | float:
    if evidence.log_factor is None:
        return 0.0
    return evidence.log_factor


def posterior_median(posterior: Floats) -> Ints:
    """(I,) the lower median of each row, which minimises the expected absolute error."""
    return np.asarray((posterior.cumsum(axis=1)[:, :-1] < 0.5 - 1e-9).sum(axis=1), dtype=np.int64)


def _log_ratio(probabilities: ArrayLike, readings: Readings) -> Floats:
    """(I, C) the network's log probabilities relative to their mean, which the prior already
    contains."""
    p = np.asarray(probabilities, dtype=np.float64)
    shape = (len(readings.items), len(readings.grades))
    if p.shape != shape:
        raise SrjtError(
            f"probabilities have a row for each item, a column per grade {shape}; got {p.shape}.",
            code="wrong_shape",
            option="probabilities",
        )
    if not np.isfinite(p).all() or (p < 0).any() or np.abs(p.sum(axis=1) - 1.0).max() > 1e-3:
        raise SrjtError(
            "Each row of the probabilities must be positive and sum to 1: pass softmax outputs.",
            code="wrong_values",
            option="probabilities",
        )
    p = np.maximum(p, 1e-6)
    return np.asarray(np.log(p) - np.log(p.mean(axis=0)))


def _network_power(evidence: Evidence, ratio: Floats) -> float:
    """The power of the network's probabilities under which left-out readings are likeliest."""
    # the same items are drawn, so it tells each row's network
    network = replace(evidence, log_factor=ratio)
    rest, held_out = evidence.hold_out(last=True)
    rows = network.hold_out(last=True)[0].log_factor
    if not held_out.nnz or rows is None:
        return 1.0
    fit = fit_variants(rest).fits[0]
    known = _log_factor(rest)
    witness = {power: replace(rest, log_factor=power * rows + known) for power in _POWERS}
    return max(_POWERS, key=lambda power: predictive(witness[power], held_out, fit))


def with_shared_errors(
    intervals: ReaderIntervals, grades: Floats, *, share: Floats, amount: float
) -> ReaderIntervals:
    """What holds of the true grade if something misleads all readers of an item alike, as it
    misleads one of them.

    The model's true grade is what the readers see in an item. Given the true grade they see another
    one with ``amount`` times the probabilities of their mean matrix. No reading tells how often; so
    the intervals reach from never to as often as one reader errs alone.

    grades: (C,) shares of the true grades. share: (R,) of each reader among the readings. amount: 0
    to 1.
    """
    mean = np.einsum("r,rcj->cj", share, intervals.matrices)
    matrices = np.einsum("ca,raj->rcj", seen(mean, amount), intervals.matrices)
    low, high = intervals.matrices_interval
    most = np.einsum("ca,eraj->ercj", mean, intervals.matrices_interval)
    rate = 1.0 - np.diagonal(matrices, axis1=1, axis2=2) @ grades
    fewest, most_wrong = intervals.noise_rate_interval
    least, misled = intervals.overall_noise_rate_interval
    return replace(
        intervals,
        matrices=matrices,
        matrices_interval=np.stack([np.minimum(low, most[0]), np.maximum(high, most[1])]),
        noise_rate=rate,
        noise_rate_interval=np.stack([fewest, 1.0 - (1.0 - most_wrong) * (1.0 - misled)]),
        overall_noise_rate=float(rate @ share),
        overall_noise_rate_interval=(least, 1.0 - (1.0 - misled) ** 2),
    )


def true_given_seen(mean: Floats, amount: float) -> Floats:
    """(C, C) Pr(true grade | what all readers see), for grades that are as frequent: an error has
    no direction."""
    given_true = seen(mean, amount)
    return np.asarray((given_true / given_true.sum(axis=0)).T)


def _shared_errors(variants: Variants, reference: Ints, mean: Floats) -> float:
    """The amount of shared errors under which the reference is likeliest, if it is hidden."""
    rows = np.flatnonzero(reference >= 0)
    hidden = replace(variants.evidence, log_factor=None)
    posterior = variants.mean(lambda fit: fit.by_state(hidden, rows) @ fit.states.of_grade)

    def likelihood(amount: float) -> float:
        true = posterior @ true_given_seen(mean, amount)
        return float(np.log(true[np.arange(len(rows)), reference[rows]] + 1e-12).sum())

    return max(_AMOUNTS, key=likelihood)


def _wrong(posterior: Floats, grade: Ints) -> float:
    """The expected share of wrong grades."""
    return float(1.0 - posterior[np.arange(len(grade)), grade].mean())


def _errors(variants: Variants, grade: Ints) -> tuple[float, float]:
    """The least and the largest share of wrong grades, if readers share no errors."""
    errors = [_wrong(fit.posterior, grade) for fit in variants.fits]
    low = min(errors)
    high = max(errors)
    evidence = variants.evidence
    apart = evidence.told_apart()
    if not apart.all() and not evidence.single.all():
        low = 0.0
        high = max(high, float(evidence.disagreement()[0][~apart].max()))
    return low, high


def _difficulty(variants: Variants, share: Floats) -> Floats:
    """(I,) probability that the mean reader misreads each item."""

    def by(fit: Fit) -> Floats:
        mean = np.einsum("r,rsj->sj", share, fit.matrices)
        missed = 1.0 - mean[np.arange(len(mean)), fit.states.grade]
        rows = chunks(len(fit.posterior))
        return np.concatenate([fit.by_state(variants.evidence, some) @ missed for some in rows])

    return variants.mean(by)


def _why_undetermined(readings: Readings, evidence: Evidence) -> Undetermined | None:
    """Why the readers' errors are not determined; None if they are."""
    known = 0 if readings.reference is None else int((readings.reference >= 0).sum())
    several = int((evidence.weight > 1.5).sum())
    if known >= ENOUGH or several >= ENOUGH:
        return None
    if len(readings.readers) == 1 and not known:
        return Undetermined(kind="one_reader")
    if not several and not known:
        return Undetermined(kind="no_pairs")
    return Undetermined(kind="few", several=several, known=known)


def _basis(evidence: Evidence, *, compared: bool, shared: float, rate: float) -> Basis:
    """What is taken for granted. shared: as a multiple of a reader's own errors, 0 for none."""
    if compared:
        return Basis(kind="reference")
    if not evidence.single.all() and not evidence.told_apart().all():
        enough = 50 * math.ceil(rate * (1.0 - rate) * (1.96 / HALF_WIDTH) ** 2 / 50)
        return Basis(kind="two_readers", items=enough)
    if not shared:
        return Basis(kind="unbiased")
    return Basis(kind="shared_errors", times=shared)
