"""Refer or not, and which answers to leave to a person; and the table of predictions as a clinic uses it, with
names, referrals and doubts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError, count_of
from srjt.inference.answers import (
    Answers,
    NoValidationError,
    describe_labels,
)
from srjt.inference.options import Answering
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
from srjt.ordinal.metrics import Interval
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


def referral_rule(
    run: Trained, options: Answering, *, validation: Validation, views: int = 1
) -> ReferralRule:
    """The rule that the options describe; a threshold for a sensitivity is found on the validation side."""
    threshold, sensitivity = options.threshold, options.sensitivity
    assert options.refer_from is not None
    position = run.grades.find(options.refer_from)
    if position == 0:
        raise SrjtError(
            f"Every sample has at least the grade {run.grades[0]!r}: refer from a higher grade "
            f"({', '.join(run.grades[1:])})."
        )
    if sensitivity is None:
        if threshold == "grade":
            return ReferralRule(position, None, "The predicted grade decides.")
        if threshold is None:
            return ReferralRule(position, 0.5, "The threshold is the default.")
        return ReferralRule(position, threshold, "The threshold is given.")
    known = validation(why=f"A threshold for a sensitivity of {sensitivity:g}")
    positive = known.labels >= position
    if not positive.any():
        raise SrjtError(
            f"No sample of the validation side has grade {run.grades[position]} or higher, so no threshold for a "
            "sensitivity can be found there: give a threshold."
        )
    score = referral_probability(known.probabilities, refer_from=position)
    chosen, positives, reached = threshold_for_sensitivity(positive, score, sensitivity=sensitivity)
    side = count_of(len(known), "answer" if options.per else "sample")
    found = (
        f"The threshold is found on the validation side ({side}, {positives:,} to refer) for a sensitivity of at least "
        f"{sensitivity:g} on new samples."
    )
    if not reached:
        found += f" So few can promise {positives / (positives + 1):.2g} at most: the lowest of their scores is used."
    if views > 1:
        found += f" It was found on one view of each image and is applied to {views}."
    return ReferralRule(position, chosen, f"{found} {describe_labels(run, per=options.per)}")


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
