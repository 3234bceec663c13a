"""A few verified grades determine the noise rate, whatever the model assumes.

The verified labels must be drawn at random: all alike, or each with a known probability, by which
it is weighted (see ``srjt.noise.drawing``). The share of wrong ones among them is unbiased, and if
all are drawn alike, its Clopper-Pearson interval is exact. The model's probability that a label is
wrong, known for every label, makes the interval shorter: the mean of the model's answers over all
labels plus the mean of its errors on the verified ones (prediction-powered inference, Angelopoulos
et al., Science 2023; the factor of the model's answers is the one that makes the variance smallest,
Angelopoulos, Duchi and Zrnic 2023). The labels at hand are a finite population, so the mean of the
model's answers over them has no sampling error. A sample that happens to hold none of the errors
that the model misses must not be taken for proof that there are none; where the model would not
make the interval shorter, the sample alone counts.

Of very few verified labels the share says little: two wrong ones of two do not mean that all labels
are wrong. As long as the interval of a rate of one half would be wider than one half, which is so
with fewer than 17, the rate is the average of their share and of the rate that the model guesses
without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq  # type: ignore[import-untyped]
from scipy.special import betaincinv, expit, gammaln, logit, stdtrit  # type: ignore[import-untyped]

from srjt.errors import SrjtError
from srjt.noise.matrices import Floats, Ints

_LARGEST = 30.0  # log odds beyond any probability that matters
_WIDE = 0.5  # an interval of the rate that says little; 17 verified labels have a shorter one
# So many verified labels say as much about the rate as networks that saw none: their guess had a
# mean error of 0.06 to 0.09 on photographs and X-rays of which 29 to 45 % had wrong labels
# (benchmarks/evidence/few_labels.py). If 2 % are wrong, the guess is too high, and the average of
# it and ten verified labels has twice the error of these alone.
_GUESS_WORTH = 20.0

# Of the model beside verified labels: as many of them for each label, from a quarter to 1,024.
_STRENGTHS = 2.0 ** np.arange(-2, 11)


class Verified(NamedTuple):
    rows: Ints
    true: Ints  # grades of these rows
    probability: Floats  # with which each of these rows was drawn

    @property
    def weights(self) -> Floats:
        """Of the rows, with the sum 1."""
        inverse = 1.0 / self.probability
        return np.asarray(inverse / inverse.sum())

    @property
    def at_random(self) -> bool:
        """Whether all rows were drawn with the same probability."""
        return not len(self.rows) or bool(np.ptp(self.probability) < 1e-9)


@dataclass(frozen=True, kw_only=True)
class VerifiedRate:
    """The share of wrong labels, by a verified sample together with the model."""

    rate: float
    interval: tuple[float, float]
    lower_bound: float
    joint: Floats  # (C, C) p(true grade, label)
    worth: float  # size of a plain sample with the same variance
    enough: bool  # whether they suffice for a rate; else the model's guess counts, too
    # (C,) of each given grade the share of wrong labels, which add up to ``rate``, and its interval
    by_label: tuple[tuple[float, float, float], ...]


def exact_interval(share: float, size: float, *, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share.

    Parameters
    ----------
    share : float
        The observed share.
    size : float
        The number of independent observations; it need not be whole.
    confidence : float
        Of the interval.

    Examples
    --------
    >>> low, high = exact_interval(0.2, 50)
    >>> round(low, 3), round(high, 3)
    (0.1, 0.337)
    """
    tail = (1.0 - confidence) / 2.0
    hits = share * size
    misses = (1.0 - share) * size
    low = float(betaincinv(hits, misses + 1.0, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1.0, misses, 1.0 - tail)) if misses > 0 else 1.0
    return low, high


def wilson_interval(
    share: float, size: float, *, quantile: float = 1.959964
) -> tuple[float, float]:
    """Wilson's interval of a share; ``quantile`` of the normal distribution, or of Student's for an
    estimated size.

    Examples
    --------
    >>> low, high = wilson_interval(0.2, 50)
    >>> round(low, 3), round(high, 3)
    (0.112, 0.33)
    """
    more = quantile**2 / size
    middle = (share + more / 2.0) / (1.0 + more)
    half = quantile * np.sqrt(share * (1.0 - share) / size + more / (4.0 * size)) / (1.0 + more)
    return max(float(middle - half), 0.0), min(float(middle + half), 1.0)


def beta_interval(mean: Floats, variance: Floats, *, confidence: float) -> Floats:
    """(2, …) lower and upper ends of beta distributions with these moments; they hold the mean."""
    inside = np.clip(mean, 1e-9, 1.0 - 1e-9)
    size = np.maximum(inside * (1.0 - inside) / np.maximum(variance, 1e-12) - 1.0, 1e-3)
    tail = (1.0 - confidence) / 2.0
    ends = np.stack(
        [betaincinv(inside * size, (1.0 - inside) * size, q) for q in (tail, 1.0 - tail)]
    )
    ends = np.where(np.isfinite(ends), ends, mean)
    return np.stack([np.minimum(ends[0], mean), np.maximum(ends[1], mean)])


def labels_to_verify(
    rate: float,
    *,
    within: float = 0.05,
    verified: int = 0,
    worth: float | None = None,
    confidence: float = 0.95,
) -> int:
    """How many more labels to verify, at random, to know the noise rate within ± ``within``.

    Parameters
    ----------
    rate : float
        What the rate is expected to be, for example ``NoiseEstimate.rate``; 0.5 is the worst case.
    within : float
        Half the width of the interval that is wanted.
    verified : int
        Labels verified so far.
    worth : float, optional
        ``NoiseEstimate.verified_worth``: what they are worth together with the model. None: as many
        as they are.
    confidence : float
        Of the interval.

    Examples
    --------
    >>> labels_to_verify(0.2, within=0.05)
    264
    """
    if not 0.0 <= rate <= 1.0 or not 0.0 < within < 1.0:
        raise SrjtError(
            f"A rate and a half-width lie between 0 and 1; got {rate:g} and {within:g}.",
            code="out_of_bounds",
        )
    gain = worth / verified if worth and verified else 1.0
    few = 1
    many = 1
    while _half_width(rate, many * gain, confidence) > within:
        few = many
        many = 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (
            (middle, many)
            if _half_width(rate, middle * gain, confidence) > within
            else (few, middle)
        )
    return max(0, many - verified)


def _half_width(rate: float, size: float, confidence: float) -> float:
    low, high = exact_interval(rate, size, confidence=confidence)
    return (high - low) / 2.0


def read_verified(
    verified: ArrayLike | None, *, samples: int, classes: int, probability: ArrayLike | None = None
) -> Verified:
    """(N,) grades with −1 or nan where unknown → the known ones; None: of no label.

    probability: (N,) with which each label was drawn for verification; None: all with the same.
    """
    grades = np.full(samples, -1.0) if verified is None else np.asarray(verified, dtype=np.float64)
    if grades.shape != (samples,):
        raise SrjtError(
            f"verified holds one grade for each of the {samples} labels; got {grades.shape}.",
            code="wrong_shape",
        )
    rows = np.flatnonzero(~np.isnan(grades) & (grades != -1))
    true = grades[rows]
    if (true != true.round()).any() or (true < 0).any() or (true >= classes).any():
        raise SrjtError(
            f"Verified grades are whole numbers 0 … {classes - 1}, or −1 or nan where unknown.",
            code="unknown_grade",
        )
    drawn = np.full(samples, len(rows) / max(samples, 1))
    if probability is not None:
        drawn = np.asarray(probability, dtype=np.float64)
        if drawn.shape != (samples,) or not ((drawn[rows] > 0.0) & (drawn[rows] <= 1.0)).all():
            raise SrjtError(
                "verified_probability holds one number for each label: of a verified one the"
                " probability with which it was drawn, above 0 and at most 1.",
                code="wrong_values",
            )
    return Verified(rows=rows, true=true.astype(np.int64), probability=drawn[rows])


def repetition(values: Floats, owner: Ints) -> float:
    """How many samples carry the information of one, because values of one patient repeat each
    other.

    The variance of the mean if patients are independent, divided by the variance if samples were;
    at least 1.
    """
    return _repeated(values - values.mean(), owner)


def _repeated(off: Floats, owner: Ints) -> float:
    alone = float((off**2).sum())
    together = float((np.bincount(owner, off) ** 2).sum())
    return max(1.0, together / alone) if alone > 0 else 1.0


def quality_with_rate(
    quality: Floats, rate: float, known: NDArray[np.bool_], *, least: float = 0.5
) -> Floats:
    """(N,) qualities with one factor for the odds of every label that is not known, such that this
    share of all labels is wrong. The order of the labels stays.

    known: (N,) labels whose quality is 0 or 1 for certain. least: so many of the others are
    expected to be wrong, and to be right, at least: else their order could not be seen.
    """
    if not 0.0 <= rate <= 1.0:
        raise SrjtError(f"A rate lies between 0 and 1; got {rate:g}.", code="out_of_bounds")
    unknown = np.flatnonzero(~known)
    if not len(unknown):
        return quality
    wrong = rate * len(quality) - float((1.0 - quality[known]).sum())
    least = min(least, len(unknown) / 10)
    wrong = min(max(wrong, least), len(unknown) - least)
    odds = logit(quality[unknown])

    def left(shift: float) -> float:
        return float((1.0 - expit(odds + shift)).sum()) - wrong

    if (
        left(-_LARGEST) <= 0.0 or left(_LARGEST) >= 0.0
    ):  # labels that are certainly right or wrong forbid it
        return quality
    fitted = quality.copy()
    fitted[unknown] = expit(odds + brentq(left, -_LARGEST, _LARGEST))
    return fitted


def use_verified(
    labels: Ints,
    posterior: Floats,
    checked: Verified,
    *,
    owner: Ints,
    confidence: float,
    guess: Callable[[], float] | None = None,
    doubt: Floats | None = None,
) -> VerifiedRate:
    """Combine verified grades with the model's p(true grade | x, label), ``posterior`` (N, C).

    guess: the rate without the verified grades, which is computed for a sample that is too small;
    None: the mean of ``doubt``. doubt: (N,) an earlier model's probability that each label is
    wrong; None: that of ``posterior``.
    """
    samples = len(posterior)
    rows = checked.rows
    wrong = (labels[rows] != checked.true).astype(np.float64)
    if doubt is None:
        doubt = 1.0 - posterior[np.arange(samples), labels]
    share = verified_share(
        wrong,
        doubt[rows],
        checked,
        mean_doubt=float(doubt.mean()),
        samples=samples,
        owner=owner,
        confidence=confidence,
    )
    rate = share.rate
    lower_bound = share.lower_bound
    # whatever the draw: 6 wrong ones of 6 are few, too
    enough = 2.0 * _half_width(0.5, share.worth, confidence) <= _WIDE
    if not enough:
        low, high = share.interval
        guessed = float(doubt.mean()) if guess is None else guess()
        both = share.worth * share.rate + _GUESS_WORTH * guessed
        rate = min(max(both / (share.worth + _GUESS_WORTH), low), high)
        lower_bound = min(lower_bound, rate)
    shares = [
        _share_of_label(grade, labels, wrong, doubt, checked, owner=owner, confidence=confidence)
        for grade in range(posterior.shape[1])
    ]
    sizes = np.bincount(labels, minlength=len(shares))
    known = np.zeros(samples, dtype=bool)
    known[rows] = True
    right = posterior[np.arange(samples), labels]
    right[rows] = 1.0 - wrong
    fitted = 1.0 - quality_with_rate(right, rate, known)
    wrong_of_label: Floats = np.bincount(labels, fitted, len(sizes)).astype(np.float64)
    expected = wrong_of_label / np.maximum(sizes, 1)
    return VerifiedRate(
        rate=rate,
        interval=share.interval,
        lower_bound=lower_bound,
        joint=_joint(labels, posterior, checked, rate=rate),
        worth=min(share.worth, float(samples)),
        enough=enough,
        by_label=_adding_up(
            _shrunk(shares, expected, confidence=confidence), sizes / samples, rate
        ),
    )


def _share_of_label(
    grade: int,
    labels: Ints,
    wrong: Floats,
    doubt: Floats,
    checked: Verified,
    *,
    owner: Ints,
    confidence: float,
) -> Share:
    """The share of wrong labels among those of one grade; wrong: (n,) of the verified ones."""
    given = labels == grade
    of_grade = given[checked.rows]
    if not of_grade.any():
        mean = float(doubt[given].mean()) if given.any() else 0.0
        return Share(rate=mean, interval=(0.0, 1.0), lower_bound=0.0, worth=0.0)
    part = Verified(
        rows=checked.rows[of_grade],
        true=checked.true[of_grade],
        probability=checked.probability[of_grade],
    )
    return verified_share(
        wrong[of_grade],
        doubt[part.rows],
        part,
        mean_doubt=float(doubt[given].mean()),
        samples=int(given.sum()),
        owner=owner,
        confidence=confidence,
    )


def _shrunk(shares: list[Share], expected: Floats, *, confidence: float) -> Floats:
    """(3, C) the share of wrong labels of each given grade, its lower and its upper end.

    The few verified labels of a grade alone are often farther from the truth than the model is. So
    the share is the mean of both: the verified labels count as much as the model is wrong by more
    than chance, over all grades (the variance between them after DerSimonian and Laird 1986). Of
    too few for a rate the interval alone counts.

    shares: (C,) by the verified labels; expected: (C,) the model's, with the rate of all labels.
    """
    point = np.array([share.rate for share in shares])
    low, high = np.array([share.interval for share in shares]).T
    enough = np.array(
        [2.0 * _half_width(0.5, share.worth, confidence) <= _WIDE for share in shares]
    )
    variance = np.maximum((high - low) / 4.0, 1e-6) ** 2  # four standard errors
    weights = np.where(enough, 1.0 / variance, 0.0)
    off = point - expected
    total = float(weights.sum())
    spread = total - float((weights**2).sum()) / max(total, 1e-300)
    excess = float(weights @ off**2) - (int((weights > 0.0).sum()) - 1)
    between = max(excess, 0.0) / spread if spread > 0.0 else 0.0
    trust = np.where(weights > 0.0, between / (between + variance), 0.0)
    return np.stack([np.clip(expected + trust * off, low, high), low, high])


def _adding_up(
    shares: Floats, sizes: Floats, rate: float
) -> tuple[tuple[float, float, float], ...]:
    """The shares of wrong labels of each given grade, within their intervals, so that together they
    are the rate of all.

    Each grade has an estimate of its own, so they do not quite add up. What is missing is divided
    as least squares do: by how uncertain each share is, and how many labels have the grade.

    shares: (3, C) share, lower end and upper end; sizes: (C,) parts of the labels.
    """
    point, low, high = shares
    pull = sizes * np.maximum(high - low, 1e-9) ** 2

    def moved(by: float) -> Floats:
        return np.asarray(np.clip(point + by * pull, low, high))

    most = 1.0 / max(float(pull[sizes > 0].min()), 1e-12)  # moves each grade to an end

    def missing(by: float) -> float:
        return rate - float(sizes @ moved(by))

    if missing(-most) < 0.0:
        by = -most
    elif missing(most) > 0.0:
        by = most
    else:
        by = brentq(missing, -most, most)
    together = moved(by)
    return tuple(zip(together.tolist(), low.tolist(), high.tolist(), strict=True))


class Share(NamedTuple):
    """The share of wrong labels by verified ones."""

    rate: float
    interval: tuple[float, float]
    lower_bound: float  # one-sided, with the same confidence
    worth: float  # of infinitely many labels, the size of a simple random sample that tells as much


def verified_share(
    wrong: Floats,
    doubt: Floats,
    checked: Verified,
    *,
    mean_doubt: float,
    samples: int,
    owner: Ints,
    confidence: float = 0.95,
) -> Share:
    """The share of wrong labels among ``samples``, by the verified ones and, if that is more
    certain, the doubt.

    wrong, doubt: (n,) of the verified labels, whether each is wrong, and the probability of it.
    mean_doubt: of all labels. owner: (N,) patients.
    """
    size = len(wrong)
    weights = checked.weights
    _, patient = np.unique(owner[checked.rows], return_inverse=True)
    # what is not verified may be all right or all wrong
    least = float(wrong.sum()) / samples
    most = least + (samples - size) / samples
    squares = float((weights**2).sum())
    # of all labels that are not verified, or of the variance that is not known already
    rest = float((weights**2 * (1.0 - checked.probability)).sum()) / squares
    rest = max(rest, 1.0 / samples)

    def inside(ends: tuple[float, float]) -> tuple[float, float]:
        return min(max(ends[0], least), most), max(min(ends[1], most), least)

    rate = float(weights @ wrong)
    equal = 1.0 / squares / _repeated(weights * (wrong - rate), patient)  # by the sample alone
    interval = inside(exact_interval(rate, equal / rest, confidence=confidence))
    lower_bound = inside(exact_interval(rate, equal / rest, confidence=2.0 * confidence - 1.0))[0]
    if factor := _factor(wrong, doubt, weights):
        left = wrong - factor * doubt
        left_mean = float(weights @ left)
        off = weights * (left - left_mean)
        mean = min(max(factor * mean_doubt + left_mean, least), most)
        # Two numbers, the mean and the factor, come from the sample itself. There may be errors
        # that the model does not suspect, and right labels that it does, too rare for the sample:
        # half a one of the usual weight is added.
        repeated = _repeated(off, patient)
        patients = max(1.0 / squares / repeated, 3.0)
        variance = float((off**2).sum()) * repeated * patients / (patients - 2.0)
        variance += 0.5 * float((weights**3).sum()) / (squares * equal) ** 2
        likely = min(max(mean, 0.5 * squares), 1.0 - 0.5 * squares)
        together = min(likely * (1.0 - likely) / variance, equal / size * samples)
        two_sided, one_sided = (
            float(stdtrit(patients - 1.0, q)) for q in (0.5 + confidence / 2.0, confidence)
        )
        ends = inside(wilson_interval(mean, together / rest, quantile=two_sided))
        if ends[1] - ends[0] < interval[1] - interval[0]:  # else the model does not help
            rate = mean
            equal = together
            interval = ends
            lower_bound = inside(wilson_interval(mean, together / rest, quantile=one_sided))[0]
    return Share(rate=rate, interval=interval, lower_bound=lower_bound, worth=equal / rest)


def _factor(wrong: Floats, doubt: Floats, weights: Floats) -> float:
    """How far to trust the model's answers: the slope of the errors (n,) on them, from 0 to 1."""
    if len(wrong) <= 2 or np.ptp(wrong) < 1e-9 or np.ptp(doubt) < 1e-9:
        return 0.0
    off = doubt - float(weights @ doubt)
    squares = weights**2
    slope = float((squares * off) @ (wrong - float(weights @ wrong)) / ((squares * off) @ off))
    return min(max(slope, 0.0), 1.0)


def _joint(labels: Ints, posterior: Floats, checked: Verified, *, rate: float) -> Floats:
    """(C, C) p(true grade, label) with this rate.

    For each label the verified true grades are counted, and the model's p(true grade | label) is
    added as a prior (Dirichlet). How many verified labels the prior is worth, the verified labels
    tell: the result is averaged over strengths by the likelihood of the counts. A model that they
    contradict counts little. (Its explanations were weighed by the same labels before, so it counts
    for a little too much.)
    """
    classes = posterior.shape[1]
    one_hot_labels = np.eye(classes)[labels]
    share = one_hot_labels.mean(axis=0)
    model = (
        posterior.T @ one_hot_labels + 0.5
    )  # half a label in each cell keeps what it missed possible
    model /= model.sum(axis=0)
    weights = checked.weights
    counted = weights / float((weights**2).sum())  # as many as a simple random sample would tell
    seen = np.eye(classes)[checked.true].T @ (counted[:, None] * one_hot_labels[checked.rows])
    logs = np.array([_log_likelihood(seen, strength * model) for strength in _STRENGTHS])
    evidence = np.exp(logs - logs.max())
    column = np.zeros_like(model)
    for weight, strength in zip(evidence / evidence.sum(), _STRENGTHS, strict=True):
        column += weight * (seen + strength * model) / (seen.sum(axis=0) + strength)
    joint = column * share
    right = np.diag(np.diag(joint))
    off = joint - right
    return np.asarray((1.0 - rate) * right / right.sum() + rate * off / off.sum())


def _log_likelihood(counts: Floats, prior: Floats) -> float:
    """Of counts (C, C) whose columns are Dirichlet-multinomial with the columns of ``prior``, up to
    a constant."""
    both = counts.sum(axis=0) + prior.sum(axis=0)
    before = prior.sum(axis=0)
    return float(
        (gammaln(before) - gammaln(both)).sum() + (gammaln(counts + prior) - gammaln(prior)).sum()
    )
