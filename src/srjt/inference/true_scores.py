"""Scores against the true grades, from labels that may be wrong: what can be known of them, with
intervals that contain the doubt about the labels.

Everything is a function of one table: how many samples have which true grade and which answer. What
is known decides how the table is estimated, the strongest first.

- **Verified grades of all samples**: plain scores, with their usual intervals.
- **Verified grades** of a random part: the tables by the labels of all samples, and by their
  readings or the network's probabilities, corrected by the verified grades (prediction-powered
  inference, Angelopoulos et al. 2023, with the factors that make the variance smallest). Nothing is
  assumed about the errors of the labels.
- **Several readings**: the posterior of the true grades by the model of ``srjt.readers``.
- **A matrix of the label noise**, given or estimated.
- **The share of wrong labels** alone: bounds of the accuracy and the absolute error.

Readings and a matrix do not tell whether the network errs on the images on which readers err. Two
extremes are computed, and the interval reaches from one to the other:

- *apart*: given the true grade, the network errs independently of the readers. It is one more
  reader (or, with a matrix P, row ỹ of P⁻¹ has the mean of the true grade).
- *alike*: given the readings, the answer tells nothing more about the true grade. A network that
  repeats the readers' errors is such a one; one that is right where they err is better. Only a
  network that is wrong *more* often where the readers err than the readings themselves tell lies
  outside.

Readers may all be misled by the same image. No reading shows it: the intervals reach from never to
as often as one reader errs alone, whether such an image misleads the network, too, or not. They are
bounds rather than an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls  # type: ignore[import-untyped]
from scipy.special import stdtrit  # type: ignore[import-untyped]

from srjt.inference.answers import Answers
from srjt.inference.aspects.referral import ReferralRule
from srjt.json_values import DictMixin
from srjt.noise.model import bayes
from srjt.noise.quality import LabelNoise, NoiseBounds, inverse_weights, posterior_weights
from srjt.noise.verified import Verified, exact_interval, read_verified
from srjt.ordinal import patient_codes
from srjt.ordinal.decisions import operating_point
from srjt.ordinal.intervals import (
    Interval,
    effective_patients,
    images_worth_one,
    percentile_tails,
    resampled_tables,
    slopes,
    wrong_by,
)
from srjt.ordinal.metrics import METRICS, Floats, Ints, divide
from srjt.readers.consensus import consensus, true_given_seen
from srjt.readers.model import refit
from srjt.readers.readings import Readings, evidence_of
from srjt.readers.variants import Variants, fit_variants

Score = Callable[[Floats], Floats]  # from tables (..., C, K) by true grade and answer
Scores = dict[str, Interval]
Basis = Literal["verified grades", "readings", "noise matrix", "share of wrong labels"]

ENOUGH = 20  # verified patients, or wrong ends of an interval, from which a score can be told
DRAWS = 40  # fits of the readers' model to patients drawn with replacement


@dataclass(frozen=True, kw_only=True)
class TrueScores(DictMixin):
    """Scores against the true grades, as far as they can be known.

    Attributes
    ----------
    basis : {"verified grades", "readings", "noise matrix", "share of wrong labels"}
        What they are known from.
    scores : dict of str to Interval
        ``mae``, ``accuracy``, ``qwk``, ``recall_0`` … of each grade and, with a referral,
        ``sensitivity`` and ``specificity``. nan where nothing can be told.
    apart, alike : dict of str to Interval
        Two extremes: the network errs independently of the labels, or repeats their errors.
        ``scores`` reach from one to the other and, with readings, further: by errors that all
        readers share. Empty if nothing is assumed.
    verified : int
        Number of verified grades.
    complete : bool
        Whether all samples have one.
    wrong : tuple of float or None
        The lowest and the highest plausible share of wrong labels, if that is what is used.
    """

    basis: Basis
    scores: Scores
    apart: Scores = field(default_factory=dict)
    alike: Scores = field(default_factory=dict)
    verified: int = 0
    complete: bool = False
    wrong: tuple[float, float] | None = None


def true_scores(
    answers: Answers,
    *,
    refer: ReferralRule | None = None,
    verified: npt.ArrayLike | None = None,
    verified_probability: npt.ArrayLike | None = None,
    readings: Readings | None = None,
    noise: NoiseBounds | None = None,
    label_noise: LabelNoise = "unknown",
    resamples: int = 1000,
) -> TrueScores | None:
    """What can be known about the scores of answers against the true grades.

    Parameters
    ----------
    answers : Answers
        N answers beside labels that may be wrong. The intervals resample their groups.
    refer : ReferralRule, optional
        Which of them are referred.
    verified : (N,) array of int, optional
        True grades of a random part of the samples, −1 for the others; used if 20 patients or more
        have one, or all samples.
    verified_probability : (N,) array of float, optional
        The probability with which each sample was drawn for verification. None: all were drawn
        alike.
    readings : Readings, optional
        Of the same N samples in the same order.
    noise : NoiseBounds, optional
        What is known of the noise of the labels.
    label_noise : {"unknown", "class-conditional", "none"}
        What wrong labels depend on. "class-conditional": on the true grade alone, so the network
        errs independently.
    resamples : int
        Of the bootstrap.

    Returns
    -------
    TrueScores or None
        None if nothing is known about the labels.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(0, 3, size=2000)
    >>> labels = np.where(rng.random(2000) < 0.2, (true + 1) % 3, true)
    >>> verified = np.where(rng.random(2000) < 0.2, true, -1)
    >>> answers = Answers(probabilities=np.eye(3)[true], grades=true, labels=labels, groups=None)
    >>> estimated = true_scores(answers, verified=verified)
    >>> bool((true == labels).mean() < 0.85), estimated.scores["accuracy"].high > 0.97
    (True, True)
    """
    grade = answers.grades
    label = answers.labels
    classes = answers.classes
    owner = patient_codes(answers.groups, len(grade))
    table = _Table(answer=grade, owner=owner, classes=classes, refer_from=None, resamples=resamples)
    if refer is not None:
        table = replace(
            table, answer=grade + classes * refer.applies(answers), refer_from=refer.position
        )
    if verified is not None:
        known = read_verified(
            verified, samples=len(grade), classes=classes, probability=verified_probability
        )
        # weights say that the samples stand for others, so that they are still a part
        if len(known.rows) == len(grade) and known.at_random:
            scores = _by_all_verified(table, answers, known.true, refer)
            return TrueScores(
                basis="verified grades", scores=scores, verified=len(grade), complete=True
            )
        if len(np.unique(owner[known.rows])) >= ENOUGH:
            scores = _by_verified(table, known, _guesses(answers, known, readings))
            return TrueScores(basis="verified grades", scores=scores, verified=len(known.rows))
    if readings is not None:
        agreed = consensus(readings)
        if agreed.determined:
            return _by_readings(table, grade, readings, agreed.variants)
    if noise is None or label_noise == "none":
        return None
    if noise.determined:
        return _by_matrix(table, label, noise, label_noise)
    return TrueScores(
        basis="share of wrong labels", scores=_bounds(table, label, noise), wrong=noise.rates
    )


# The table of true grades and answers, and the scores that are functions of it.


@dataclass(frozen=True, kw_only=True)
class _Table:
    answer: Ints  # (N,) the predicted grade; + C if the sample is referred
    owner: Ints  # (N,) patients
    classes: int
    refer_from: int | None
    resamples: int

    @property
    def answers(self) -> int:
        """K, the number of different answers."""
        return self.classes * (1 if self.refer_from is None else 2)

    def part(self, rows: Ints) -> _Table:
        return replace(self, answer=self.answer[rows], owner=self.owner[rows])

    def scores(self) -> dict[str, Score]:
        """Functions of tables (..., C, K), which may hold small negative numbers."""
        classes = self.classes

        def by_grade(counts: Floats) -> Floats:
            return np.asarray(counts.reshape(*counts.shape[:-1], -1, classes).sum(axis=-2))

        def metric(name: str) -> Score:
            return lambda counts: METRICS[name].function(by_grade(counts))

        def share(rows: range, columns: Sequence[int]) -> Score:
            """Of the samples with one of these true grades, those with one of these answers."""

            def of(counts: Floats) -> Floats:
                of_rows = counts[..., rows.start : rows.stop, :]
                part = of_rows[..., list(columns)].sum(axis=(-2, -1))
                return divide(part, np.maximum(of_rows.sum(axis=(-2, -1)), 0.0), empty=np.nan)

            return of

        by_name = {name: metric(name) for name in ("mae", "accuracy", "qwk")}
        for grade in range(classes):
            answers = range(grade, self.answers, classes)  # referred or not
            by_name[f"recall_{grade}"] = share(range(grade, grade + 1), answers)
        if self.refer_from is not None:
            by_name["sensitivity"] = share(
                range(self.refer_from, classes), range(classes, 2 * classes)
            )
            by_name["specificity"] = share(range(self.refer_from), range(classes))
        return by_name

    def by_patient(self, weights: Floats) -> Floats:
        """(G, C, K) the table of each patient. weights: (N, C) of each true grade."""
        tables = np.zeros((int(self.owner.max()) + 1, self.answers, weights.shape[1]))
        np.add.at(tables, (self.owner, self.answer), weights)
        return tables.transpose(0, 2, 1)

    def resampled(self, weights: Floats) -> Scores:
        """Each score with its interval over patients."""
        by_patient = self.by_patient(weights)
        drawn = resampled_tables(by_patient, resamples=max(self.resamples, 1), seed=0)
        right, wrong = self.added()
        seen = np.maximum(by_patient, 0.0)  # inverse weights may be negative
        worth = images_worth_one(seen, wrong > 0, seen.sum(axis=(1, 2)))
        rng = np.random.Generator(np.random.PCG64(1))
        # half a sample of each grade, as for the metrics of which a rare grade is a part
        more = rng.standard_gamma(0.5, (len(drawn) - 1, self.classes, 1)) * worth
        better = drawn[1:] + more * right
        worse = drawn[1:] + more * wrong
        patients = effective_patients(self.owner)
        tail = float(percentile_tails(patients)[0])
        intervals: Scores = {}
        for name, score in self.scores().items():
            value = float(score(drawn[:1])[0])
            first, last = (better, worse) if name == "mae" else (worse, better)
            interval = Interval(value, np.nan, np.nan)
            if np.isfinite(value) and patients > 1:
                low = np.nanquantile(score(first), tail)
                high = np.nanquantile(score(last), 1.0 - tail)
                interval = Interval(value, min(value, float(low)), max(value, float(high)))
            intervals[name] = _inside(name, interval)
        return intervals

    def added(self) -> tuple[Floats, Floats]:
        """(C, K) a right and a wrong answer to each true grade: wrong by one grade and, with a
        referral, in it, too."""
        eye = np.eye(self.classes)
        off = wrong_by(1, self.classes)
        if self.refer_from is None:
            return eye, off
        referred = (np.arange(self.classes) >= self.refer_from)[:, None]
        right = np.concatenate([eye * ~referred, eye * referred], axis=1)
        wrong = np.concatenate([off * referred, off * ~referred], axis=1)
        return right, wrong


def _inside(name: str, interval: Interval) -> Interval:
    """An interval within the values that the score can have."""
    least = METRICS[name].lowest if name in METRICS else 0.0
    most = np.inf if name == "mae" else 1.0
    return Interval(*(float(np.clip(end, least, most)) for end in interval))


# Verified grades of all samples: nothing is estimated.


def _by_all_verified(
    table: _Table, answers: Answers, true: Ints, refer: ReferralRule | None
) -> Scores:
    """The scores, with the intervals that they have wherever the true grades are known."""
    scores = table.resampled(np.eye(table.classes)[true])
    ordinary = replace(answers, labels=true).intervals(resamples=table.resamples)
    if refer is not None:
        ordinary |= operating_point(
            true >= refer.position, refer.applies(answers), groups=answers.groups
        )
    return {name: ordinary.get(name, score) for name, score in scores.items()}


# Verified grades: the labels of all samples, corrected by a random part.


def _by_verified(table: _Table, verified: Verified, guesses: Floats) -> Scores:
    """guesses: (J, N, C) what is known of all true grades without the verified ones, as
    probabilities."""
    one_hot = np.eye(table.classes)
    rows = verified.rows
    weights = verified.weights
    size = 1.0 / float((weights**2).sum())  # of a simple random sample that would tell as much
    total = len(table.answer)
    part = table.part(rows)
    true_part = part.by_patient(weights[:, None] * one_hot[verified.true]).sum(axis=0)
    guessed = np.stack([table.by_patient(guess).sum(axis=0) / total for guess in guesses])
    guessed_part = np.stack(
        [part.by_patient(weights[:, None] * guess[rows]).sum(axis=0) for guess in guesses]
    )
    patients = max(effective_patients(part.owner) * size / len(rows), 2.0)
    quantile = float(stdtrit(patients - 1, 0.975))
    intervals: Scores = {}
    for name, score in table.scores().items():
        # The score is linear in the table near the estimate: each sample counts with the slope of
        # its cell.
        slope = slopes(score, true_part)
        if not np.isfinite(slope).all():
            intervals[name] = Interval(np.nan, np.nan, np.nan)
            continue
        by = np.einsum("jnc,cn->nj", guesses, slope[:, table.answer])
        by -= (slope * guessed).sum(axis=(1, 2))
        true = slope[verified.true, table.answer[rows]] - float((slope * true_part).sum())
        factors = _factors(true, by[rows], weights) / (1.0 + size / total)
        estimate = true_part + np.tensordot(factors, guessed - guessed_part, axes=1)
        value = float(score(estimate))
        left = true - by[rows] @ factors
        influence = by @ factors / total
        influence[rows] += weights * (left - float(weights @ left))
        together = np.bincount(table.owner, influence)
        estimated = min(max(float(np.count_nonzero(factors)), 1.0), patients - 1.0)
        variance = float(together @ together) * patients / (patients - estimated)
        if name in ("mae", "qwk"):
            # Errors may be too rare for the sample: as Agresti and Coull do, two that are a grade
            # off are added.
            jumps = np.diff(slope, axis=0) ** 2
            mass = (true_part[:-1] + true_part[1:]) / 2.0
            variance += 2.0 * float((mass * jumps).sum() / mass.sum()) / (size * patients)
            half = quantile * np.sqrt(variance)
            intervals[name] = _inside(name, Interval(value, value - half, value + half))
        else:
            share = min(max(value, 0.0), 1.0)
            counted = float(true_part[np.abs(slope).max(axis=1) > 1e-9].sum()) * patients
            equal = max(share * (1.0 - share) / (variance + 2.0 / counted**2), counted)
            intervals[name] = Interval(share, *exact_interval(share, equal))
    return intervals


def _guesses(answers: Answers, verified: Verified, readings: Readings | None) -> Floats:
    """(2, N, C) the labels, and the probabilities of the true grades by the readings or, without
    them, by the labels and the network."""
    labels = answers.labels
    one_hot = np.eye(answers.classes)[labels]
    if readings is not None:
        return np.stack([one_hot, consensus(readings).posterior])
    # A wrong label is taken to be one grade off. That need not be so: what the verified grades do
    # not confirm gets a small factor.
    wrong = float(verified.weights @ (labels[verified.rows] != verified.true))
    wrong = min(max(wrong, 0.01), 0.5)
    one_off = wrong_by(1, answers.classes)
    transition = (1.0 - wrong) * np.eye(answers.classes) + wrong * one_off
    return np.stack([one_hot, bayes(labels, answers.probabilities, transition)])


def _factors(true: Floats, by: Floats, weights: Floats) -> Floats:
    """(J,) how far to trust each guess: the regression of the true values (n,) on the guessed ones
    (n, J); none below 0, and together at most 1."""
    off = weights[:, None] * (by - weights @ by)
    factors, _ = nnls(off, weights * (true - float(weights @ true)))
    return np.asarray(factors / max(float(factors.sum()), 1.0))


# Several readings, or a matrix: two extremes, and everything between them.


def _hull(cases: list[Scores]) -> Scores:
    """The smallest interval that holds those of all cases, around the mean of their values."""
    hull: Scores = {}
    for name in cases[0] if cases else ():
        values, lows, highs = zip(*(case[name] for case in cases), strict=True)
        hull[name] = Interval(float(np.mean(values)), float(np.min(lows)), float(np.max(highs)))
    return hull


def _by_readings(
    table: _Table, predicted: Ints, readings: Readings, variants: Variants
) -> TrueScores:
    items = np.arange(len(predicted))
    joined = replace(
        readings,
        readers=[*readings.readers, "the network"],
        item=np.concatenate([readings.item, items]),
        reader=np.concatenate([readings.reader, np.full(len(items), len(readings.readers))]),
        grade=np.concatenate([readings.grade, predicted]),
        times=None,
    )
    apart = _refitted(table, fit_variants(evidence_of(joined, repeats="one reading")))
    alike = _refitted(table, variants)
    mean = variants.mean(lambda fit: fit.counts.sum(axis=0))
    mean = mean / mean.sum(axis=1, keepdims=True)
    never = np.eye(table.classes)
    misled = true_given_seen(mean, 1.0)
    immune = np.linalg.pinv(mean)

    def scored(tables: Floats, shared: Floats) -> Scores:
        """shared: (C, C) weights of the true grades, given what all readers see."""
        true = np.einsum("sc,nsk->nck", shared, tables)
        patients = effective_patients(table.owner)
        return {
            name: _inside(name, _normal(score(true), patients))
            for name, score in table.scores().items()
        }

    ends = scored(apart, never), scored(alike, never)
    most = [scored(apart, misled), scored(apart, immune), scored(alike, misled)]
    return TrueScores(basis="readings", scores=_hull([*ends, *most]), apart=ends[0], alike=ends[1])


def _refitted(table: _Table, variants: Variants) -> Floats:
    """(1 + draws, C, K) the expected table, and those of fits to patients drawn with replacement.

    A draw has one variant of the model, as often as the variant is likely: their differences are
    part of the doubt.
    """
    rng = np.random.Generator(np.random.PCG64(0))
    tables = [table.by_patient(variants.mean(lambda fit: fit.posterior)).sum(axis=0)]
    samples = np.split(
        np.argsort(table.owner, kind="stable"), np.cumsum(np.bincount(table.owner))[:-1]
    )
    for _ in range(min(DRAWS, max(table.resamples, 2))):
        fit = variants.fits[int(rng.choice(len(variants.fits), p=variants.weights))]
        rows = np.concatenate(
            [samples[one] for one in rng.integers(len(samples), size=len(samples))]
        )
        tables.append(
            table.part(rows).by_patient(refit(variants.evidence, fit, rows).posterior).sum(axis=0)
        )
    return np.stack(tables)


def _normal(values: Floats, patients: float) -> Interval:
    """(1 + B,) a score as it is and of a few draws, whose percentiles would be rough. patients:
    effective ones."""
    drawn = values[1:][np.isfinite(values[1:])]
    if len(drawn) < 2:
        return Interval(float(values[0]), np.nan, np.nan)
    n = max(patients, 2.0)
    error = float(drawn.std(ddof=1)) * np.sqrt(n / (n - 1.0))
    half = float(stdtrit(min(len(drawn), n) - 1, 0.975)) * error
    return Interval(float(values[0]), float(values[0]) - half, float(values[0]) + half)


def _by_matrix(
    table: _Table, labels: Ints, noise: NoiseBounds, label_noise: LabelNoise
) -> TrueScores:
    joints = [noise.lowest(), noise.joint, noise.highest()]
    inverse = [inverse_weights(labels, joint) for joint in joints]
    apart = [table.resampled(weights) for weights in inverse if weights is not None]
    alike = []
    if label_noise != "class-conditional" or not apart:
        alike = [table.resampled(posterior_weights(labels, joint)) for joint in joints]
    scores = _hull([*apart, *alike])
    ends = (_hull(apart), _hull(alike))
    return TrueScores(
        basis="noise matrix", scores=scores, apart=ends[0], alike=ends[1], wrong=noise.rates
    )


def _bounds(table: _Table, labels: Ints, noise: NoiseBounds) -> Scores:
    """Whatever the errors depend on: the accuracy changes by at most their share, the MAE by their
    mean distance."""
    by_label = table.resampled(np.eye(table.classes)[labels])
    distance = sum(noise.wrong_by(grades) for grades in range(1, table.classes))
    most = {"accuracy": noise.rates[1], "mae": distance}
    intervals = {}
    for name, (value, low, high) in by_label.items():
        more = most.get(name, np.nan)
        intervals[name] = _inside(
            name, Interval(value if name in most else np.nan, low - more, high + more)
        )
    return intervals
