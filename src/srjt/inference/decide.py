"""Refer or not: the decisions of a run on labelled samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt

from srjt.data.grade_names import find_grade
from srjt.errors import SrjtError, count_of, suggest
from srjt.inference.answers import Answers, describe_labels
from srjt.ordinal.decision_curves import (
    NetBenefit,
    PrecisionRecall,
    Roc,
    areas,
    net_benefit,
    precision_recall_curve,
    roc_curve,
    thin,
)
from srjt.ordinal.decisions import (
    operating_point,
    referral_probability,
    threshold_for_sensitivity,
)
from srjt.ordinal.intervals import Interval
from srjt.ordinal.pooling import Pooling
from srjt.training.trained import Trained

__all__ = [
    "Decision",
    "Rule",
    "Threshold",
    "Validation",
    "check_options",
    "decide",
    "plain_values",
    "refer_if",
    "referral_rule",
    "referred",
]

Bools = npt.NDArray[np.bool_]
Threshold = float | Literal["grade"]


class Validation(Protocol):
    """Makes the answers for the validation side; ``why`` says what needs them."""

    def __call__(self, *, why: str) -> Answers: ...


class Rule(NamedTuple):
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
        raise suggest("pooling", pool, get_args(Pooling))
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
) -> Rule:
    """The rule that the options describe; a threshold for a sensitivity is found on the validation side."""
    position = find_grade(refer_from, run.grades, run.grade_names)
    if position == 0:
        raise SrjtError(
            f"Every sample has at least the grade {run.grades[0]!r}: refer from a higher grade "
            f"({', '.join(run.grades[1:])})."
        )
    if sensitivity is None:
        if threshold is None:
            return Rule(position, 0.5, "The threshold is the default.")
        if threshold == "grade":
            return Rule(position, None, "The predicted grade decides.")
        if not isinstance(threshold, (int, float)) or not 0.0 <= threshold <= 1.0:  # nan is refused too
            raise SrjtError(f"A threshold is a probability from 0 to 1, or 'grade'; got {threshold!r}.")
        return Rule(position, float(threshold), "The threshold is given.")
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
    return Rule(position, chosen, f"{found} {describe_labels(run, per=per)}")


def decide(run: Trained, answers: Answers, rule: Rule, *, resamples: int = 1000) -> Decision:
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


def referred(answers: Answers, rule: Rule) -> Bools:
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
