"""Leave the least confident answers of a run to a person: what is gained, and below which confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.inference.answers import Answers, NoValidationError
from srjt.inference.decide import Rule, Validation, plain_values, referred
from srjt.ordinal.decision_curves import RiskCoverage, risk_coverage_curve
from srjt.ordinal.decisions import (
    abstention_cut,
    decision_confidence,
    operating_point,
    proportion_interval,
    referral_probability,
)
from srjt.ordinal.intervals import Interval

__all__ = ["Abstention", "abstain_from", "confidence_of", "find_cut"]

Bools = npt.NDArray[np.bool_]
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
    answers: Answers, *, rule: Rule | None, share: float | None, validation: Validation
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


def find_cut(rule: Rule | None, share: float, validation: Validation) -> float:
    """The confidence below which this share of the validation side lies."""
    return abstention_cut(confidence_of(validation(why="The cut of abstention"), rule), share=share)


def confidence_of(answers: Answers, rule: Rule | None) -> Floats:
    """Of the referral: the distance from the threshold. Of the grade: its probability."""
    if rule is None:
        return answers.probabilities[np.arange(len(answers)), answers.grades]
    score = referral_probability(answers.probabilities, refer_from=rule.position)
    return decision_confidence(score, threshold=0.5 if rule.threshold is None else rule.threshold)


def _wrong(answers: Answers, rule: Rule | None) -> Bools:
    if rule is None:
        return np.not_equal(answers.grades, answers.labels)
    return np.not_equal(referred(answers, rule), answers.labels >= rule.position)
