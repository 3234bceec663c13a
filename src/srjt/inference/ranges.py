"""Ranges of grades that contain the true grade with a given probability although the labels they
are fitted to are partly wrong; and what such ranges are worth on labelled samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import as_text
from srjt.errors import SrjtError
from srjt.inference.answers import Answers, pick_known, probabilities_of, units_of
from srjt.inference.options import Answering
from srjt.inference.range_evidence import Assumption, Basis, Evidence, unit_evidence
from srjt.json_values import json_values
from srjt.noise.quality import NoiseBounds
from srjt.ordinal import calibration, patient_codes, ranges as conformal
from srjt.ordinal.decisions import proportion_interval
from srjt.ordinal.decoding import LearnedPooling, pool_probabilities
from srjt.ordinal.intervals import Interval, patient_draws, percentile_interval
from srjt.ordinal.metrics import Floats, Ints
from srjt.ordinal.ranges import range_scores, range_threshold
from srjt.training.held_out import HeldOut

# How wide ranges of grades are, of images or of patients, and what they promise.


@dataclass(frozen=True, kw_only=True)
class RangePromise:
    """What ranges promise, to whom, and by which samples.

    Attributes
    ----------
    coverage : float
        The probability that a range contains the true grade.
    coverage_by : str or None
        The column, or "grade", for each of whose values it holds.
    per : tuple of str
        The columns that answers are pooled by.
    basis, by_patient, patients, answers, samples
        As in ``RangeRule``.
    assumptions : tuple of Assumption
        Several if they differ between the values of ``coverage_by``.
    trivial : bool
        Whether every range contains all grades.
    trivial_values : tuple of str
        The values of ``coverage_by`` for which it does.
    trivial_grades : tuple of int
        Positions of the grades that are in every range.
    verified_help : bool
        Whether verified grades may make them narrower: False if there are too few patients.
    """

    coverage: float
    coverage_by: str | None = None
    per: tuple[str, ...] = ()
    basis: Basis
    by_patient: bool
    patients: int
    answers: int
    samples: int
    assumptions: tuple[Assumption, ...]
    trivial: bool
    trivial_values: tuple[str, ...] = ()
    trivial_grades: tuple[int, ...] = ()
    verified_help: bool = True


@dataclass(frozen=True, kw_only=True)
class RangeRule:
    """How wide ranges are, and what they promise.

    Attributes
    ----------
    options : Answering
        The promised probability, for whom it holds, and how the images of a patient become one
        answer.
    thresholds : ndarray, shape (C,)
        Of each grade's score; infinite: the grade is in every range.
    patients, answers, samples : int
        That the ranges are calibrated on. There are fewer answers than samples if the answers are
        pooled.
    by_patient : bool
        Whether the patients are known; else each answer counts as one.
    basis : {"verified", "labels", "corrected", "conservative"}
        What stands for the true grades of the calibration samples.
    assumptions : tuple of Assumption
        What the promise rests on.
    parts : dict of str to RangeRule
        The rules of the values of a column, if each has its own.
    temperature : Recalibration or None
        Applied to images before the scores. It is fitted to the same samples: one number, which
        does not change the order in which grades enter the range of an image.
    learned : LearnedPooling or None
        Fitted to the same samples, too: two numbers.
    verified_help : bool
        Whether ranges might be narrower if all of these labels were right.
    """

    options: Answering
    thresholds: Floats
    patients: int
    answers: int
    samples: int
    by_patient: bool
    basis: Basis
    assumptions: tuple[Assumption, ...]
    parts: dict[str, RangeRule] = field(default_factory=dict)
    temperature: calibration.Recalibration | None = None
    learned: LearnedPooling | None = None
    verified_help: bool = True

    @property
    def coverage(self) -> float:
        """The promised probability."""
        return self.options.coverage or 0.0

    def ranges(self, probabilities: npt.ArrayLike, table: pd.DataFrame) -> tuple[Ints, Ints]:
        """Lowest and highest grade of each range.

        Parameters
        ----------
        probabilities : array-like, shape (N, C)
            Of images, as the networks give them.
        table : DataFrame
            Of the same images: the columns that ``options`` name. A value without a rule gets the
            range of all grades.

        Returns
        -------
        low, high : ndarray of int64, shape (N,) or (M,)
            Of the images, or of the M patients or other units.
        """
        p = np.asarray(probabilities)
        units = _units(table, self.options)
        if not self.parts:
            return conformal.grade_ranges(self.scores(p, units), self.thresholds)
        values = _values(table, units, self.options)
        low = np.zeros(len(values), dtype=np.int64)
        high = np.full(len(values), p.shape[1] - 1)
        for value, rule in self.parts.items():
            answers = values == value
            rows = answers[units]
            if rows.any():
                low[answers], high[answers] = rule.ranges(p[rows], table[rows])
        return low, high

    def scores(self, probabilities: npt.ArrayLike, units: Ints) -> Floats:
        """(N, C) or (M, C) scores of all grades, from the probabilities of images and their units
        (N,)."""
        p = np.asarray(probabilities)
        if self.temperature is not None:
            p = self.temperature(p)
        if self.options.per:
            p = pool_probabilities(p, units, pooling=self.options.pool, learned=self.learned)
        return range_scores(p)

    @property
    def trivial(self) -> bool:
        """Whether every range holds all grades."""
        if self.parts:
            return all(rule.trivial for rule in self.parts.values())
        return bool(np.isinf(self.thresholds).all())

    @property
    def promise(self) -> RangePromise:
        """What the ranges promise."""
        trivial_grades: list[int] = []
        if not self.parts:
            trivial_grades = np.flatnonzero(np.isinf(self.thresholds)).tolist()
        return RangePromise(
            coverage=self.coverage,
            coverage_by=self.options.coverage_by,
            per=self.options.per,
            basis=self.basis,
            by_patient=self.by_patient,
            patients=self.patients,
            answers=self.answers,
            samples=self.samples,
            assumptions=self.assumptions,
            trivial=self.trivial,
            trivial_values=tuple(name for name, rule in self.parts.items() if rule.trivial),
            trivial_grades=tuple(trivial_grades),
            verified_help=self.verified_help,
        )


def _units(table: pd.DataFrame, options: Answering) -> Ints:
    """(N,) the unit of each image, 0 … M − 1, in the order of their first image; without ``per``
    each is its own."""
    if not options.per:
        return np.arange(len(table))
    return units_of(table, options.per).codes


def _values(table: pd.DataFrame, units: Ints, options: Answering) -> npt.NDArray[np.str_]:
    """(M,) the value of each unit that its rule depends on; an error if its images have different
    ones."""
    by = options.coverage_by
    texts = np.array(list(map(as_text, table[by])), dtype=str)
    first = texts[np.unique(units, return_index=True)[1]]
    if len(different := np.flatnonzero(texts != first[units])):
        one = int(different[0])
        raise SrjtError(
            f"Ranges for each value of {by} need one value per {' and '.join(options.per)}; one of"
            f" them has {str(first[units[one]])!r} and {str(texts[one])!r}.",
            code="ambiguous",
            option="coverage_by",
        )
    return first


# Ranges of grades for new samples, calibrated on labels that may be wrong; see ``ordinal.ranges``.

FEW = 100  # labels below which an estimate of their noise is not used


def calibrate_ranges(
    side: HeldOut,
    options: Answering,
    *,
    noise: NoiseBounds | None,
    table: pd.DataFrame | None = None,
    learned: LearnedPooling | None = None,
) -> RangeRule:
    """Calibrate ranges on samples that the networks have not seen.

    Parameters
    ----------
    side : HeldOut
        The samples, with predictions and labels.
    options : Answering
        The coverage, for whom it holds, what wrong labels depend on, and for whom there is one
        answer.
    noise : NoiseBounds or None
        Of the labels; None only if they are right.
    table : DataFrame, optional
        The columns of the samples that ``options`` name. Default: those that the side has kept.
    learned : LearnedPooling, optional
        How the images of a patient become one answer, if that is fitted.

    Returns
    -------
    RangeRule
    """
    if table is None:
        table = side.table
    units = _units(table, options)
    by = options.coverage_by
    p = probabilities_of(side.probabilities, options.network)
    if by not in (None, "grade"):
        values = _values(table, units, options)[units]
        rules = {}
        every: Any = options
        for value in np.unique(values).tolist():
            rows = np.flatnonzero(values == value)
            part = replace(every, coverage_by=None)
            rules[value] = calibrate_ranges(
                rows_of(side, rows), part, noise=noise, table=table.iloc[rows], learned=learned
            )
        answers = int(units.max()) + 1
        assumptions = chain.from_iterable(rule.assumptions for rule in rules.values())
        return replace(
            next(iter(rules.values())),
            assumptions=tuple(dict.fromkeys(assumptions)),
            options=options,
            parts=rules,
            verified_help=any(rule.verified_help for rule in rules.values()),
            temperature=None,
            thresholds=np.full(p.shape[1], np.inf),
            patients=answers if side.groups is None else len(set(side.groups)),
            answers=answers,
            samples=len(side),
        )
    # of an over-confident network almost all scores are 1, and ranges would be needlessly wide
    temperature = calibration.choose_recalibration(p, side.labels, groups=side.groups, vector=False)
    calibrated = np.asarray(p if temperature is None else temperature(p), dtype=np.float64)
    evidence = unit_evidence(side, units, calibrated, noise, options.label_noise)
    answers = len(evidence.labels)
    rule = RangeRule(
        options=options,
        thresholds=np.full(p.shape[1], np.inf),
        patients=round(float(conformal.patient_weights(evidence.groups, answers).sum())),
        answers=answers,
        samples=len(side),
        by_patient=side.patients is not None,
        basis=evidence.basis,
        assumptions=(evidence.assumption,),
        temperature=temperature,
        learned=learned,
    )
    scores = rule.scores(p, units)
    return _verified(rule, scores, evidence, units) or _corrected(rule, scores, evidence, noise)


def _verified(rule: RangeRule, scores: Floats, known: Evidence, units: Ints) -> RangeRule | None:
    """The rule by verified grades alone, if they suffice."""
    if not len(rows := np.flatnonzero(known.verified >= 0)):
        return None
    groups = pick_known(known.groups, rows)
    thresholds = _thresholds(
        rule, scores[rows], [np.eye(scores.shape[1])[known.verified[rows]]], groups
    )
    if not np.isfinite(thresholds).any():
        return None
    return replace(
        rule,
        thresholds=thresholds,
        basis="verified",
        assumptions=(Assumption(kind="random"),),
        patients=round(float(conformal.patient_weights(groups, len(rows)).sum())),
        answers=len(rows),
        samples=int(np.isin(units, rows).sum()),
    )


def _corrected(
    rule: RangeRule, scores: Floats, known: Evidence, noise: NoiseBounds | None
) -> RangeRule:
    """The rule by labels that may be wrong."""
    basis = known.basis
    assumption = known.assumption
    thresholds = rule.thresholds
    if known.known:
        by_noise = []
        for weights in known.plausible or [known.right]:
            pair = [known.right, weights]
            by_noise.append(_thresholds(rule, scores, pair, known.groups, parts=known.labels))
        thresholds = np.max(by_noise, axis=0)
    if known.inverse:
        by_inverse = [
            _thresholds(rule, scores, [weights], known.groups) for weights in known.inverse
        ]
        thresholds = np.minimum(thresholds, np.max(by_inverse, axis=0))
    if basis in ("corrected", "conservative"):
        assert noise is not None
        safe = rule.thresholds  # all infinite: nothing of the kind holds for each grade
        if rule.options.coverage_by != "grade":
            safe = conservative_thresholds(scores, known, noise, coverage=rule.coverage)
        if 0 < noise.samples < FEW:
            basis = "conservative"
            thresholds = safe
            assumption = Assumption(kind="near", labels=noise.samples)
        thresholds = np.minimum(
            thresholds, safe
        )  # never wider than what holds without an assumption
    helps = True
    if np.isinf(thresholds).all():  # of too few patients right labels would tell no more
        if_right = _thresholds(rule, scores, [known.right], known.groups)
        helps = bool(np.isfinite(if_right).any())
    return replace(
        rule,
        basis=basis,
        assumptions=(assumption,),
        thresholds=thresholds,
        verified_help=helps,
    )


def conservative_thresholds(
    scores: Floats, known: Evidence, noise: NoiseBounds, *, coverage: float
) -> Floats:
    """Thresholds (C,) that hold whatever wrong labels depend on.

    The worst of the grades up to ``far`` away from the label must enter. A label may be wrong by
    more than that with a probability that is added to the promise.
    """
    classes = scores.shape[1]
    spare = (1.0 - coverage) / 2.0
    wrong_by = [known.labels_each * noise.wrong_by(d) for d in range(1, classes)]
    far = next((d for d, share in enumerate(wrong_by) if share <= spare), classes - 1)
    beyond = wrong_by[far] if far < classes - 1 else 0.0
    near = np.abs(np.arange(classes) - known.labels[:, None]) <= far
    worst = np.where(near, scores, -np.inf).max(axis=1)
    return np.full(classes, range_threshold(worst, coverage=coverage + beyond, groups=known.groups))


def _thresholds(
    rule: RangeRule,
    scores: Floats,
    candidates: Sequence[Floats],
    groups: Sequence[str] | None,
    *,
    parts: Ints | None = None,
) -> Floats:
    """(C,) one threshold for all grades, or one for each.

    candidates: (M, C) weights. parts: (M,) as in ``widest_range_threshold``; None: there is one
    candidate.
    """
    if rule.options.coverage_by != "grade":
        return np.full(scores.shape[1], _threshold(rule, scores, candidates, groups, parts))
    thresholds = []
    for grade in range(scores.shape[1]):
        of_grade = [weights[:, [grade]] for weights in candidates]
        thresholds.append(_threshold(rule, scores[:, [grade]], of_grade, groups, parts))
    return np.array(thresholds)


def _threshold(
    rule: RangeRule,
    scores: Floats,
    candidates: Sequence[Floats],
    groups: Sequence[str] | None,
    parts: Ints | None,
) -> float:
    coverage = rule.coverage
    if parts is None:  # weights may be negative
        return range_threshold(scores, candidates[0], coverage=coverage, groups=groups)
    return conformal.widest_range_threshold(
        scores, candidates, parts=parts, coverage=coverage, groups=groups
    )


def rows_of(side: HeldOut, rows: Ints) -> HeldOut:
    """Some samples of a side."""
    known: dict[str, Any] = {}
    if side.verified_labels is not None:
        known["verified_labels"] = side.verified_labels[rows]
    if side.verified_probability is not None:
        known["verified_probability"] = side.verified_probability[rows]
    return HeldOut(
        ids=[side.ids[row] for row in rows],
        patients=pick_known(side.patients, rows),
        groups=pick_known(side.groups, rows),
        probabilities=side.probabilities[:, rows],
        labels=side.labels[rows],
        **known,
    )


# How often ranges of grades contain the true grade, and how wide they are.


@dataclass(frozen=True, kw_only=True)
class RangeEvaluation:
    """The ranges of evaluated samples; all patients count equally, as in the promise.

    Attributes
    ----------
    promised : float
        The coverage that was promised.
    coverage, width : Interval
        The share of samples whose label is in the range, with Wilson's 95 % interval by patient,
        and the mean number of grades in it, with a bootstrap interval.
    grades : list of (int, Interval)
        Samples of each grade, and their coverage.
    promise : RangePromise
        What the ranges promise, and what that rests on.
    """

    promised: float
    coverage: Interval
    width: Interval
    grades: list[tuple[int, Interval]]
    promise: RangePromise

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        grades = [{"samples": count, **interval._asdict()} for count, interval in self.grades]
        return {**json_values(self, whole=True), "grades": grades}


def evaluate_ranges(
    answers: Answers, rule: RangeRule | None, *, resamples: int
) -> RangeEvaluation | None:
    """Compare the ranges of answers with their labels; None without ranges."""
    if rule is None or answers.ranges is None:
        return None
    low, high = answers.ranges
    labels = answers.labels
    groups = answers.groups
    weights = conformal.patient_weights(groups, len(labels))
    inside = (low <= labels) & (labels <= high)

    def covered(of: npt.NDArray[np.bool_]) -> Interval:
        rows = np.flatnonzero(of)
        return proportion_interval(
            inside[rows], groups=answers.groups_of(rows), weights=weights[rows]
        )

    owner = patient_codes(groups, len(labels))
    patients = int(owner.max()) + 1
    widths = high - low + 1
    times = np.concatenate([*patient_draws(patients, resamples, seed=0)])
    sums, sizes = (
        times @ np.bincount(owner, w, minlength=patients) for w in (weights * widths, weights)
    )
    means = sums / sizes
    return RangeEvaluation(
        promised=rule.coverage,
        coverage=covered(np.ones(len(labels), dtype=bool)),
        # of one patient there is no interval
        width=percentile_interval(means if patients > 1 else means[:1], patients=patients),
        grades=[(int((labels == c).sum()), covered(labels == c)) for c in range(answers.classes)],
        promise=rule.promise,
    )
