"""Refer or not, and which answers to leave to a person; and the table of predictions as a clinic uses it, with
names, referrals and doubts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.sources.assemble import GRADED
from srjt.errors import SrjtError, count_of, unknown_name
from srjt.inference.answers import (
    Answers,
    NoValidationError,
    PredictSide,
    answers_from,
    describe_labels,
    pool_answers,
    units_of,
    validation_answers,
)
from srjt.ordinal.decisions import (
    NetBenefit,
    PrecisionRecall,
    RiskCoverage,
    Roc,
    abstention_cut,
    areas,
    decision_confidence,
    net_benefit,
    operating_point,
    precision_recall_curve,
    proportion_interval,
    referral_probability,
    risk_coverage_curve,
    roc_curve,
    thin,
    threshold_for_sensitivity,
)
from srjt.ordinal.decoding import GradeRule, LearnedPooling, Pooling, expected_grade
from srjt.ordinal.intervals import Interval
from srjt.training.trained import Trained

# Refer or not: the decisions of a run on labelled samples.

Bools = npt.NDArray[np.bool_]
Threshold = float | Literal["grade"]


class Validation(Protocol):
    """Makes the answers for the validation side; ``why`` says what needs them."""

    def __call__(self, *, why: str) -> Answers: ...


class ReferralRule(NamedTuple):
    """When to refer: p(grade ≥ ``position``) ≥ ``threshold``, or the predicted grade if ``threshold`` is None."""

    position: int
    threshold: float | None
    found: str  # where the threshold comes from, as a sentence


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision to refer samples from a grade on.

    Attributes
    ----------
    refer_from : str
        The mildest grade that is referred.
    threshold : float or None
        A sample is referred if p(grade ≥ refer_from) is at least this; None: if its predicted grade is.
    found : str
        Where the threshold comes from.
    samples, positives, referred : int
        Numbers of samples; of those that should be referred; of those that are.
    operating_point : dict of str to Interval
        Sensitivity, specificity, positive and negative predictive value; nan where there is nothing to divide by.
    areas : dict of str to Interval
        ``roc_area`` and ``average_precision``; empty if all samples should be referred, or none.
    roc, precision_recall : curve or None
        None where ``areas`` is empty.
    net_benefit : NetBenefit
        The decision curve.
    """

    refer_from: str
    threshold: float | None
    found: str
    samples: int
    positives: int
    referred: int
    operating_point: dict[str, Interval]
    areas: dict[str, Interval]
    roc: Roc | None
    precision_recall: PrecisionRecall | None
    net_benefit: NetBenefit

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; long curves are thinned."""
        return plain_values(vars(self))


def check_options(
    refer_from: str | int | None,
    *,
    threshold: Threshold | None,
    sensitivity: float | None,
    abstain: float | None,
    pool: str,
) -> None:
    """Raise an error for options that cannot be meant, before anything is computed."""
    if pool not in get_args(Pooling):
        raise unknown_name("pooling", pool, get_args(Pooling))
    for name, value in (("threshold", threshold), ("sensitivity", sensitivity)):
        if refer_from is None and value is not None:
            raise SrjtError(f"A {name} needs the grade from which to refer: `refer_from`.")
    if abstain is not None and not 0.0 < abstain < 1.0:
        raise SrjtError(f"The share to abstain from lies between 0 and 1, without them; got {abstain:g}.")


def referral_rule(
    run: Trained,
    *,
    refer_from: str | int,
    threshold: Threshold | None,
    sensitivity: float | None,
    validation: Validation,
    per: tuple[str, ...] = (),
    views: int = 1,
) -> ReferralRule:
    """The rule that the options describe; a threshold for a sensitivity is found on the validation side."""
    position = run.grades.find(refer_from)
    if position == 0:
        raise SrjtError(
            f"Every sample has at least the grade {run.grades[0]!r}: refer from a higher grade "
            f"({', '.join(run.grades[1:])})."
        )
    if sensitivity is None:
        if threshold is None:
            return ReferralRule(position, 0.5, "The threshold is the default.")
        if threshold == "grade":
            return ReferralRule(position, None, "The predicted grade decides.")
        if not isinstance(threshold, (int, float)) or not 0.0 <= threshold <= 1.0:  # nan is refused too
            raise SrjtError(f"A threshold is a probability from 0 to 1, or 'grade'; got {threshold!r}.")
        return ReferralRule(position, float(threshold), "The threshold is given.")
    if threshold is not None:
        raise SrjtError("Give a threshold or a sensitivity to find it for, not both.")
    known = validation(why=f"A threshold for a sensitivity of {sensitivity:g}")
    positive = known.labels >= position
    if not positive.any():
        raise SrjtError(
            f"No sample of the validation side has grade {run.grades[position]} or higher, so no threshold for a "
            "sensitivity can be found there: give a threshold."
        )
    score = referral_probability(known.probabilities, refer_from=position)
    chosen, positives, reached = threshold_for_sensitivity(positive, score, sensitivity=sensitivity)
    side = count_of(len(known), "answer" if per else "sample")
    found = (
        f"The threshold is found on the validation side ({side}, {positives:,} to refer) for a sensitivity of at least "
        f"{sensitivity:g} on new samples."
    )
    if not reached:
        found += f" So few can promise {positives / (positives + 1):.2g} at most: the lowest of their scores is used."
    if views > 1:
        found += f" It was found on one view of each image and is applied to {views}."
    return ReferralRule(position, chosen, f"{found} {describe_labels(run, per=per)}")


def decide(run: Trained, answers: Answers, rule: ReferralRule, *, resamples: int = 1000) -> Decision:
    """How good the decision is on these answers."""
    positive = answers.labels >= rule.position
    score = referral_probability(answers.probabilities, refer_from=rule.position)
    sent = referred(answers, rule)
    both = bool(positive.any() and not positive.all())
    return Decision(
        refer_from=run.grades[rule.position],
        threshold=rule.threshold,
        found=rule.found,
        samples=len(answers),
        positives=int(positive.sum()),
        referred=int(sent.sum()),
        operating_point=operating_point(positive, sent, groups=answers.groups),
        areas=areas(positive, score, groups=answers.groups, resamples=resamples) if both else {},
        roc=roc_curve(positive, score) if both else None,
        precision_recall=precision_recall_curve(positive, score) if both else None,
        net_benefit=net_benefit(positive, score),
    )


def referred(answers: Answers, rule: ReferralRule) -> Bools:
    if rule.threshold is None:
        return np.greater_equal(answers.grades, rule.position)
    score = referral_probability(answers.probabilities, refer_from=rule.position)
    return np.greater_equal(score, rule.threshold)


def refer_if(grade: str, threshold: float | None) -> str:
    """A rule in words. grade: the mildest that is referred; threshold: None if the predicted grade decides."""
    return (
        f"if predicted grade ≥ {grade}" if threshold is None else f"if p(grade ≥ {grade}) ≥ {threshold:.3g}"
    )


def plain_values(values: dict[str, Any]) -> dict[str, Any]:
    """Values for JSON: nan is None, long curves are thinned."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            plain[name] = plain_values(value)
        elif isinstance(value, Interval):
            plain[name] = {key: None if np.isnan(x) else x for key, x in value._asdict().items()}
        elif isinstance(value, tuple):  # a curve
            fields = value._asdict().items()  # type: ignore[attr-defined]
            # the first threshold of a ROC curve is infinite, which JSON does not know
            plain[name] = {
                key: [x if np.isfinite(x) else None for x in thin(y).tolist()] for key, y in fields
            }
        else:
            plain[name] = None if isinstance(value, float) and np.isnan(value) else value
    return plain


# Leave the least confident answers of a run to a person: what is gained, and below which confidence.

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Abstention:
    """What is gained if the least confident answers are left to a person.

    Attributes
    ----------
    about : {"referral", "grade"}
        The answer: refer or not, or the predicted grade.
    wanted : float or None
        Share of samples to abstain from; None: only the curve was asked for.
    cut : float or None
        An answer with a confidence below this is left to a person.
    found : str
        Where the cut comes from.
    share : float
        Share of the evaluated samples that is left to a person.
    errors_left : float
        Share of all wrong answers among those; nan if no answer is wrong.
    kept : dict of str to Interval
        Scores of the other samples; empty if there are none.
    curve : RiskCoverage
        Share of wrong answers among the most confident samples.
    """

    about: str
    wanted: float | None
    cut: float | None
    found: str
    share: float
    errors_left: float
    kept: dict[str, Interval]
    curve: RiskCoverage

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; a long curve is thinned."""
        return plain_values(vars(self))


def abstain_from(
    answers: Answers, *, rule: ReferralRule | None, share: float | None, validation: Validation
) -> Abstention:
    """What is gained by abstaining from a share of the samples.

    The cut is found on the validation side, without its labels, so that it can be applied to one image at a time; if
    there is none, on the evaluated samples themselves.
    """
    confidence, wrong = confidence_of(answers, rule), _wrong(answers, rule)
    curve = risk_coverage_curve(confidence, wrong)
    about = "grade" if rule is None else "referral"
    if share is None:
        return Abstention(about=about, wanted=None, cut=None, found="", share=0.0, errors_left=float("nan"),
                          kept={}, curve=curve)  # fmt: skip
    try:
        cut, found = find_cut(rule, share, validation), "The confidence is found on the validation side."
    except NoValidationError as problem:
        cut = abstention_cut(confidence, share=share)
        found = f"The confidence is found on these samples: {problem.reason}."
    kept = confidence >= cut
    scores: dict[str, Interval] = {}
    if kept.any():
        groups = None
        if answers.groups is not None:
            groups = [answers.groups[i] for i in np.flatnonzero(kept).tolist()]
        scores = {"accuracy": proportion_interval(~wrong[kept], groups=groups)}
        if rule is not None:
            positive, sent = answers.labels >= rule.position, referred(answers, rule)
            scores |= operating_point(positive[kept], sent[kept], groups=groups)
    return Abstention(
        about=about,
        wanted=share,
        cut=cut,
        found=found,
        share=float((~kept).mean()),
        errors_left=float((wrong & ~kept).sum() / wrong.sum()) if wrong.any() else float("nan"),
        kept=scores,
        curve=curve,
    )


def find_cut(rule: ReferralRule | None, share: float, validation: Validation) -> float:
    """The confidence below which this share of the validation side lies."""
    return abstention_cut(confidence_of(validation(why="The cut of abstention"), rule), share=share)


def confidence_of(answers: Answers, rule: ReferralRule | None) -> Floats:
    """Of the referral: the distance from the threshold. Of the grade: its probability."""
    if rule is None:
        return answers.probabilities[np.arange(len(answers)), answers.grades]
    score = referral_probability(answers.probabilities, refer_from=rule.position)
    return decision_confidence(score, threshold=0.5 if rule.threshold is None else rule.threshold)


def _wrong(answers: Answers, rule: ReferralRule | None) -> Bools:
    if rule is None:
        return np.not_equal(answers.grades, answers.labels)
    return np.not_equal(referred(answers, rule), answers.labels >= rule.position)


# The table of predictions as a clinic uses it: per image or per patient, with names, referrals and doubts.

Ints = npt.NDArray[np.int64]


class UnitRanges(Protocol):
    """Makes the lowest and the highest grade of the ranges of units, from their predicted grades."""

    def __call__(self, grades: Ints, *, units: Ints) -> tuple[Ints, Ints]: ...


class AnswerRule(NamedTuple):
    """How predictions become answers: pooling, referral and abstention."""

    per: tuple[str, ...]
    pool: Pooling
    learned: LearnedPooling | None
    grade_rule: GradeRule
    refer: ReferralRule | None
    cut: float | None  # of the confidence, below which a person decides


def answer_rule(
    run: Trained,
    *,
    predict: PredictSide,
    grade_rule: GradeRule,
    learned: LearnedPooling | None,
    refer_from: str | int | None,
    threshold: Threshold | None,
    sensitivity: float | None,
    abstain: float | None,
    per: tuple[str, ...],
    pool: Pooling,
    views: int,
) -> AnswerRule:
    """Everything that is found on the validation side."""
    validation = partial(
        validation_answers, run, predict=predict, per=per, how=pool, learned=learned, grade_rule=grade_rule
    )
    rule = None
    if refer_from is not None:
        rule = referral_rule(
            run, refer_from=refer_from, threshold=threshold, sensitivity=sensitivity, validation=validation,
            per=per,
            views=views,
        )  # fmt: skip
    cut = None if abstain is None else find_cut(rule, abstain, validation)
    return AnswerRule(per, pool, learned, grade_rule, rule, cut)


def check_columns(samples: pd.DataFrame, *, per: Sequence[str], keep: Sequence[str]) -> None:
    """Raise an error for a column that the data do not have, or that cannot be pooled by."""
    if per and keep:
        raise SrjtError(
            "With `per` there is one row per patient: `keep` is for rows of images; leave it out."
        )
    for name in (*per, *keep):
        if name not in samples and f"{name}_source" not in samples:
            known = [str(column) for column in samples.columns if column not in ("id", "grade")]
            raise unknown_name("column (of the data to predict)", name, known)
    if per and samples.empty:
        raise SrjtError(
            f"There are no samples to predict, so there is nothing to pool per {' and '.join(per)}."
        )
    if per:
        units_of(samples, per)


def answer_table(
    run: Trained,
    table: pd.DataFrame,
    samples: pd.DataFrame,
    rule: AnswerRule,
    *,
    keep: Sequence[str],
    ranges: UnitRanges | None = None,
) -> pd.DataFrame:
    """The predictions with the columns that identify them; pooled, with referrals and doubts, as the rule says.

    table: from ``predictions``. samples: the data's own table, with the same rows. ranges: of pooled answers.
    """
    answers = answers_from(run, table, np.zeros(len(table), np.int64), groups=None)
    kept: list[tuple[str, npt.ArrayLike]] = [("image", samples["image"])]
    if not rule.per:
        names = dict.fromkeys([*(["patient"] if "patient" in samples else []), *keep])
        # a column of the data may have the name of one of ours
        later = {"grade_name": run.grades.names, "refer": rule.refer, "unsure": rule.cut is not None}
        ours = {*table.columns, "image", *(name for name, added in later.items() if added)}
        kept += [(f"{n}_source" if n in ours else n, _column(run, samples, n)) for n in names]
    else:
        units = units_of(samples, rule.per)
        how, learned = rule.pool, rule.learned
        severity = table["expected_grade"].to_numpy()
        highest = _highest_images(units.codes, answers.grades, severity, samples["image"].to_numpy())
        answers = pool_answers(answers, units.codes, how=how, learned=learned, grade_rule=rule.grade_rule)
        disagreement, facts = table.get("disagreement"), table.attrs
        table = pd.DataFrame({"grade": [run.grades[g] for g in answers.grades]})
        table.attrs = facts
        if ranges is not None:
            low, high = ranges(answers.grades, units=units.codes)
            table["grade_low"] = [run.grades[g] for g in low]
            table["grade_high"] = [run.grades[g] for g in high]
        p = torch.from_numpy(answers.probabilities)
        table[[f"p_{name}" for name in run.grades]] = answers.probabilities
        table["expected_grade"] = expected_grade(p).numpy()
        table["entropy"] = torch.special.entr(p).sum(dim=-1).clamp(min=0.0).numpy()
        images = np.bincount(units.codes)
        if disagreement is not None:
            table["disagreement"] = np.bincount(units.codes, weights=disagreement) / images
        table["highest_image"] = highest
        kept = [*((name, units.keys[name]) for name in rule.per), ("images", images)]
    if run.grades.names:
        table.insert(1, "grade_name", [run.grades.names[grade] for grade in table["grade"]])
    place = list(table.columns).index(f"p_{run.grades[0]}")
    if rule.cut is not None:
        unsure = confidence_of(answers, rule.refer) < rule.cut
        table.insert(place, "unsure", np.where(unsure, "yes", "no"))
    if rule.refer is not None:
        table.insert(place, "refer", np.where(referred(answers, rule.refer), "yes", "no"))
    for name, values in reversed(kept):
        table.insert(0, name, np.asarray(values, dtype=object if name != "images" else np.int64))
    return table


def _highest_images(
    units: Ints, grades: Ints, severity: npt.NDArray[np.float32], images: npt.NDArray[np.object_]
) -> list[str]:
    """The image of each unit with the highest grade; of several, that with the highest expected grade."""
    order = np.lexsort((severity, grades, units))  # the last of each unit
    last = np.flatnonzero(np.diff(units[order], append=-1))
    return [str(image) for image in images[order[last]]]


def _column(run: Trained, samples: pd.DataFrame, name: str) -> npt.ArrayLike:
    """A column of the data; grades as they are written."""
    if f"{name}_source" in samples:
        return samples[f"{name}_source"]
    if name in GRADED:
        return [run.grades[grade] if grade >= 0 else "" for grade in samples[name]]
    return samples[name]
