"""Abstention: leave the least confident answers to a person, and say what is gained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from srjt.errors import Option
from srjt.inference.aspects import DECISIONS, Aspect, Calibration, Judging, Rule, register_aspect
from srjt.inference.aspects.referral import Curved, ReferralRule
from srjt.settings import setting

if TYPE_CHECKING:
    from srjt.inference.answers import Answers, NoValidationError
    from srjt.ordinal.decisions import RiskCoverage
    from srjt.ordinal.intervals import Interval
    from srjt.ordinal.metrics import Floats
    from srjt.training.trained import Trained


@register_aspect("abstention", order=30, columns=("unsure",), absent={"cut": None})
@dataclass(frozen=True, kw_only=True)
class Abstaining(Aspect):
    """Which answers to leave to a person: about the referral, or else about the grade."""

    abstain: float | None = setting(
        None,
        "Mark about this share of the answers, the least confident ones, for a person to decide.",
        more="Adds the column unsure to predictions: yes or no.",
        metavar="SHARE",
        gt=0,
        lt=1,
        panel=DECISIONS,
    )

    def prepare(self, calibration: Calibration) -> DoubtRule | None:
        """The cut leaves this share of the validation side to a person. Its labels are not used."""
        from srjt.inference.answers import NoValidationError
        from srjt.ordinal.decisions import abstention_cut

        refer = calibration.rule(ReferralRule)
        if self.abstain is None:
            # what abstention would gain is part of every decision to refer
            return None if refer is None else DoubtRule(refer=refer)
        rule = DoubtRule(refer=refer, share=self.abstain)
        try:
            side = calibration.validation("The cut of abstention", option=Option("abstain"))
        except NoValidationError as problem:
            return DoubtRule(refer=refer, share=self.abstain, problem=problem)
        cut = abstention_cut(rule.confidence(side), share=self.abstain)
        return DoubtRule(refer=refer, share=self.abstain, cut=cut)


@dataclass(frozen=True, kw_only=True)
class DoubtRule(Rule):
    """An answer with a confidence below ``cut`` is left to a person: of the referral, or else of
    the grade."""

    refer: ReferralRule | None
    share: float | None = None  # of the answers; None: only the curve is judged
    cut: float | None = None  # found on the validation side, without its labels
    problem: NoValidationError | None = None  # why it was not

    def confidence(self, answers: Answers) -> Floats:
        """Of the referral: the distance from the threshold. Of the grade: its probability."""
        import numpy as np

        from srjt.ordinal.decisions import decision_confidence

        if self.refer is None:
            return answers.probabilities[np.arange(len(answers)), answers.grades]
        threshold = 0.5 if self.refer.threshold is None else self.refer.threshold
        return decision_confidence(self.refer.scores(answers), threshold=threshold)

    def columns(self, answers: Answers, run: Trained) -> dict[str, Any]:
        import numpy as np

        if self.cut is None:
            return {}
        return {"unsure": np.where(self.confidence(answers) < self.cut, "yes", "no")}

    def attributes(self) -> dict[str, Any]:
        return {"cut": self.cut}

    def settled(self, run: Trained) -> dict[str, Any]:
        if self.cut is None:
            return {}
        return {"unsure": {"about": self.about, "cut": self.cut, "share": self.share}}

    @property
    def about(self) -> Literal["referral", "grade"]:
        """Which answers are left to a person."""
        return "grade" if self.refer is None else "referral"

    def judge(self, judging: Judging) -> Abstention:
        """What is gained; without a validation side the cut is found on these answers."""
        import numpy as np

        from srjt.ordinal import decisions

        answers = judging.answers
        confidence = self.confidence(answers)
        if self.refer is None:
            wrong = np.not_equal(answers.grades, answers.labels)
        else:
            referred = self.refer.applies(answers)
            positive = answers.labels >= self.refer.position
            wrong = np.not_equal(referred, positive)
        cut = self.cut
        problem = ""
        if self.problem is not None and self.share is not None:
            cut = decisions.abstention_cut(confidence, share=self.share)
            problem = self.problem.message
        kept = confidence >= (-np.inf if cut is None else cut)
        scores: dict[str, Interval] = {}
        errors_left = float("nan")
        if cut is not None and kept.any():
            groups = answers.groups_of(np.flatnonzero(kept))
            scores["accuracy"] = decisions.proportion_interval(~wrong[kept], groups=groups)
            if self.refer is not None:
                scores |= decisions.operating_point(positive[kept], referred[kept], groups=groups)
        if cut is not None and wrong.any():
            errors_left = float((wrong & ~kept).sum() / wrong.sum())
        return Abstention(
            about=self.about,
            wanted=self.share,
            cut=cut,
            problem=problem,
            share=float((~kept).mean()),
            errors_left=errors_left,
            kept=scores,
            curve=decisions.risk_coverage_curve(confidence, wrong),
        )


@dataclass(frozen=True, kw_only=True)
class Abstention(Curved):
    """What is gained if the least confident answers are left to a person.

    Attributes
    ----------
    about : {"referral", "grade"}
        The answer: refer or not, or the predicted grade.
    wanted : float or None
        Share of samples to abstain from; None: only the curve was asked for.
    cut : float or None
        An answer with a confidence below this is left to a person.
    problem : str
        Why the cut was chosen on the evaluated samples, not on the validation side; "" if it was
        not.
    share : float
        Share of the evaluated samples that is left to a person.
    errors_left : float
        Share of all wrong answers among those; nan if no answer is wrong.
    kept : dict of str to Interval
        Scores of the other samples; empty if there are none.
    curve : RiskCoverage
        Share of wrong answers among the most confident samples.
    """

    about: Literal["referral", "grade"]
    wanted: float | None
    cut: float | None
    problem: str
    share: float
    errors_left: float
    kept: dict[str, Interval]
    curve: RiskCoverage
