"""The decisions that follow from answers: refer or not, and which answers to leave to a person.

A decision is an option and a rule that is settled beforehand: ``applies`` is a column of the
predictions, ``judge`` a field of the evaluation, ``problem`` why a rule can be judged, but not be
applied to new samples. A new one is a class here, a line in ``decision_rules`` and a field of
``Evaluation``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from srjt.errors import SrjtError, count_of
from srjt.inference.answers import Answers, NoValidationError, describe_labels
from srjt.inference.options import Answering
from srjt.ordinal import decisions
from srjt.ordinal.calibration import patient_weights
from srjt.ordinal.metrics import Floats, Interval
from srjt.progress import plain
from srjt.training.trained import Trained

Bools = npt.NDArray[np.bool_]
Validation = Callable[
    [str], Answers
]  # makes the answers for the validation side, given what needs them
DecisionRule: TypeAlias = "ReferralRule | DoubtRule"


def decision_rules(
    run: Trained, options: Answering, *, validation: Validation, views: int = 1
) -> tuple[DecisionRule, ...]:
    """The rules that the options describe."""
    refer = None
    if options.refer_from is not None:
        refer = referral_rule(run, options, validation=validation, views=views)
    doubt = doubt_rule(refer, options.abstain, validation)
    return (refer, doubt) if refer else (doubt,) if options.abstain is not None else ()


class Judged:
    """What is said of a decision."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: nan is None, long curves are thinned."""
        curves = {name: curve for name, curve in vars(self).items() if hasattr(curve, "_make")}
        thinned = {name: curve._make(map(decisions.thin, curve)) for name, curve in curves.items()}
        values: dict[str, Any] = plain({**vars(self), **thinned})
        return values


# Refer or not.


@dataclass(frozen=True, kw_only=True)
class ReferralRule:
    """When to refer: p(grade ≥ ``position``) ≥ ``threshold``, or the predicted grade if
    ``threshold`` is None."""

    column, field, number, problem = "refer", "decision", "threshold", None

    position: int
    threshold: float | None
    found: str  # where the threshold comes from, as a sentence
    wanted: float = 0.0  # sensitivity

    def scores(self, answers: Answers) -> Floats:
        return decisions.referral_probability(answers.probabilities, refer_from=self.position)

    def applies(self, answers: Answers) -> Bools:
        if self.threshold is None:
            return np.greater_equal(answers.grades, self.position)
        return np.greater_equal(self.scores(answers), self.threshold)

    def in_words(self, run: Trained) -> str:
        return f"{refer_if(run.grades.show(self.position), self.threshold)}. {self.found}"

    def sensitivity_of_patients(self, answers: Answers) -> Interval:
        """The sensitivity as it is promised: of a random positive answer of a patient, all patients
        alike."""
        rows = np.flatnonzero(answers.labels >= self.position)
        groups = answers.groups_of(rows)
        weights = patient_weights(groups, len(rows))
        return decisions.proportion_interval(
            self.applies(answers)[rows], groups=groups, weights=weights
        )

    def judge(self, run: Trained, answers: Answers, *, resamples: int) -> Decision:
        positive, score, sent = (
            answers.labels >= self.position,
            self.scores(answers),
            self.applies(answers),
        )
        both = bool(positive.any() and not positive.all())
        areas = (
            decisions.areas(positive, score, groups=answers.groups, resamples=resamples)
            if both
            else {}
        )
        point = decisions.operating_point(positive, sent, groups=answers.groups)
        missed = positive.any() and self.sensitivity_of_patients(answers).high < self.wanted
        return Decision(
            refer_from=run.grades[self.position],
            threshold=self.threshold,
            found=f"{self.found} The sensitivity is lower here." if missed else self.found,
            samples=len(answers),
            positives=int(positive.sum()),
            referred=int(sent.sum()),
            operating_point=point,
            areas=areas,
            roc=decisions.roc_curve(positive, score) if both else None,
            precision_recall=decisions.precision_recall_curve(positive, score) if both else None,
            net_benefit=decisions.net_benefit(positive, score),
        )


def refer_if(grade: str, threshold: float | None) -> str:
    """A rule in words. grade: the mildest that is referred; threshold: None if the predicted grade
    decides."""
    return (
        f"if predicted grade ≥ {grade}"
        if threshold is None
        else f"if p(grade ≥ {grade}) ≥ {threshold:.3g}"
    )


def referral_rule(
    run: Trained, options: Answering, *, validation: Validation, views: int
) -> ReferralRule:
    """The rule that the options describe; a threshold for a sensitivity is found on the validation
    side."""
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
            return ReferralRule(
                position=position, threshold=None, found="The predicted grade decides."
            )
        found = "The threshold is the default." if threshold is None else "The threshold is given."
        return ReferralRule(
            position=position, threshold=0.5 if threshold is None else threshold, found=found
        )
    side = validation(f"A threshold for a sensitivity of {sensitivity:g}")
    positive = side.labels >= position
    if not positive.any():
        raise SrjtError(
            f"No sample of the validation side has grade {run.grades[position]} or higher, so no"
            " threshold for a sensitivity can be found there: give a threshold."
        )
    score = decisions.referral_probability(side.probabilities, refer_from=position)
    chosen, positives, patients, reached = decisions.threshold_for_sensitivity(
        positive, score, sensitivity=sensitivity, groups=side.groups
    )
    of = "" if patients == positives else f" of {count_of(patients, 'patient')}"
    found = (
        "The threshold is found on the validation side"
        f" ({count_of(len(side), 'answer' if options.per else 'sample')}, {positives:,} to"
        f" refer{of}) for a sensitivity of at least {sensitivity:g} on new"
        f" {'samples' if side.groups is None else 'patients'}."
    )
    if not reached:
        found += (
            f" So few can promise {patients / (patients + 1):.2g} at most: the lowest of their"
            " scores is used."
        )
    if views > 1:
        found += f" It was found on one view of each image and is applied to {views}."
    found = f"{found} {describe_labels(run, per=options.per)}"
    return ReferralRule(position=position, threshold=chosen, found=found, wanted=sensitivity)


@dataclass(frozen=True, kw_only=True)
class Decision(Judged):
    """The decision to refer samples from a grade on.

    Attributes
    ----------
    refer_from : str
        The mildest grade that is referred.
    threshold : float or None
        A sample is referred if p(grade ≥ refer_from) is at least this; None: if its predicted grade
        is.
    found : str
        Where the threshold comes from.
    samples, positives, referred : int
        Numbers of samples; of those that should be referred; of those that are.
    operating_point : dict of str to Interval
        Sensitivity, specificity, positive and negative predictive value; nan where there is nothing
        to divide by.
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
    roc: decisions.Roc | None
    precision_recall: decisions.PrecisionRecall | None
    net_benefit: decisions.NetBenefit


# Leave the least confident answers of a run to a person: what is gained, and below which
# confidence.


@dataclass(frozen=True, kw_only=True)
class DoubtRule:
    """An answer with a confidence below ``cut`` is left to a person: of the referral, or else of
    the grade."""

    column, field, number = "unsure", "abstention", "cut"

    refer: ReferralRule | None
    share: float | None  # of the answers; None: only the curve is judged
    cut: float | None  # found on the validation side, without its labels
    problem: NoValidationError | None = None  # why it was not

    def confidence(self, answers: Answers) -> Floats:
        """Of the referral: the distance from the threshold. Of the grade: its probability."""
        if self.refer is None:
            return answers.probabilities[np.arange(len(answers)), answers.grades]
        threshold = 0.5 if self.refer.threshold is None else self.refer.threshold
        return decisions.decision_confidence(self.refer.scores(answers), threshold=threshold)

    def applies(self, answers: Answers) -> Bools | None:
        return None if self.cut is None else np.less(self.confidence(answers), self.cut)

    def in_words(self, run: Trained) -> str:
        if self.cut is None:
            return ""
        below = "the probability of the grade"
        if self.refer is not None:
            below = "the distance from the threshold, from 0 to 1 on its side,"
        return (
            f"if {below} is below {self.cut:.3g}, as it is for at most {self.share:.3g} of the"
            " validation side"
        )

    def judge(self, run: Trained, answers: Answers, *, resamples: int) -> Abstention:
        """What is gained; without a validation side the cut is found on these answers."""
        confidence, sent = self.confidence(answers), None
        wrong = np.not_equal(answers.grades, answers.labels)
        if self.refer is not None:
            sent, positive = self.refer.applies(answers), answers.labels >= self.refer.position
            wrong = np.not_equal(sent, positive)
        cut, found = self.cut, "The confidence is found on the validation side."
        if self.problem is not None and self.share is not None:
            cut = decisions.abstention_cut(confidence, share=self.share)
            found = f"The confidence is found on these samples. {self.problem}"
        kept = confidence >= (-np.inf if cut is None else cut)
        scores: dict[str, Interval] = {}
        if cut is not None and kept.any():
            groups = answers.groups_of(np.flatnonzero(kept))
            scores = {"accuracy": decisions.proportion_interval(~wrong[kept], groups=groups)}
            if sent is not None:
                scores |= decisions.operating_point(positive[kept], sent[kept], groups=groups)
        errors = wrong.sum() if cut is not None else 0
        return Abstention(
            about="grade" if self.refer is None else "referral",
            wanted=self.share,
            cut=cut,
            found=found if cut is not None else "",
            share=float((~kept).mean()),
            errors_left=float((wrong & ~kept).sum() / errors) if errors else float("nan"),
            kept=scores,
            curve=decisions.risk_coverage_curve(confidence, wrong),
        )


def doubt_rule(
    refer: ReferralRule | None, share: float | None, validation: Validation
) -> DoubtRule:
    """The rule whose cut leaves this share of the validation side to a person."""
    rule = DoubtRule(refer=refer, share=share, cut=None)
    if share is None:
        return rule
    try:
        side = validation("The cut of abstention")
    except NoValidationError as problem:
        return replace(rule, problem=problem)
    return replace(rule, cut=decisions.abstention_cut(rule.confidence(side), share=share))


@dataclass(frozen=True, kw_only=True)
class Abstention(Judged):
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
    curve: decisions.RiskCoverage


DECISION_COLUMNS = (ReferralRule.column, DoubtRule.column)
