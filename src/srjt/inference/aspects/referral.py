"""Refer or not: samples from a grade on, by a probability or by the predicted grade."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from srjt.errors import Message, Option, SrjtError
from srjt.inference.aspects import (
    DECISIONS,
    Aspect,
    Calibration,
    FittedTo,
    Judging,
    Rule,
    register_aspect,
)
from srjt.inference.labels import ValidationLabels
from srjt.json_values import json_values
from srjt.settings import setting

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from srjt.inference.answers import Answers
    from srjt.ordinal.decisions import NetBenefit, PrecisionRecall, Roc
    from srjt.ordinal.intervals import Interval
    from srjt.ordinal.metrics import Floats
    from srjt.training.trained import Trained


@register_aspect("decision", order=20, columns=("refer",), absent={"threshold": None})
@dataclass(frozen=True, kw_only=True)
class Referral(Aspect):
    """When to refer."""

    refer_from: str | int | None = setting(
        None,
        "The lowest grade to refer.",
        more="Give the grade or its name. Adds the column refer to predictions: yes or no.",
        metavar="GRADE",
        panel=DECISIONS,
    )
    threshold: float | Literal["grade"] | None = setting(
        None,
        Message(
            "Refer a sample if the probability of ",
            Option("refer_from"),
            " or a higher grade is at least P. With grade, the predicted grade decides.",
        ),
        shown="0.5",
        metavar="P|grade",
        takes="a probability from 0 to 1, or 'grade'",
        ge=0,
        le=1,
    )
    sensitivity: float | None = setting(
        None, "Choose the threshold that has this sensitivity on the validation side.", metavar="S"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("threshold", "sensitivity"):
            if self.refer_from is None and getattr(self, name) is not None:
                raise SrjtError(
                    Option(name),
                    " needs ",
                    Option("refer_from"),
                    ", the lowest grade to refer.",
                    code="missing_option",
                )
        if self.threshold is not None and self.sensitivity is not None:
            raise SrjtError(
                Option("threshold"),
                " and ",
                Option("sensitivity"),
                " cannot be combined.",
                code="conflict",
            )

    def prepare(self, calibration: Calibration) -> ReferralRule | None:
        if self.refer_from is None:
            return None
        grades = calibration.run.grades
        position = grades.find(self.refer_from)
        if position == 0:
            raise SrjtError(
                f"Every sample has at least the grade {grades[0]!r}: refer from a higher grade "
                f"({', '.join(grades[1:])}).",
                code="out_of_bounds",
                option="refer_from",
            )
        if self.sensitivity is not None:
            return _rule_for_sensitivity(calibration, position, self.sensitivity)
        if self.threshold is None:
            default = ThresholdOrigin(kind="default")
            return ReferralRule(position=position, threshold=0.5, origin=default)
        if self.threshold == "grade":
            by_grade = ThresholdOrigin(kind="grade")
            return ReferralRule(position=position, threshold=None, origin=by_grade)
        given = ThresholdOrigin(kind="given")
        return ReferralRule(position=position, threshold=self.threshold, origin=given)


@dataclass(frozen=True, kw_only=True)
class ThresholdOrigin:
    """Where a threshold comes from.

    Attributes
    ----------
    kind : {"default", "given", "grade", "validation"}
        The default; given as an option; there is none, because the predicted grade decides; or
        chosen on the validation side for a sensitivity.
    sensitivity : float or None
        That was asked for.
    answers, positives, patients : int
        Of the validation side: all answers, those to refer, and the patients of these.
    by_patient, pooled : bool
        Whether the patients are known; whether there is one answer for several images.
    reached : bool
        Whether so many patients can guarantee the sensitivity; else the lowest score is used.
    views : int
        That the threshold is applied to; it was chosen on one.
    labels : ValidationLabels or None
        Of the validation side.
    """

    kind: Literal["default", "given", "grade", "validation"]
    sensitivity: float | None = None
    answers: int = 0
    positives: int = 0
    patients: int = 0
    by_patient: bool = False
    pooled: bool = False
    reached: bool = True
    views: int = 1
    labels: ValidationLabels | None = None


@dataclass(frozen=True, kw_only=True)
class ReferralRule(Rule):
    """When to refer: p(grade ≥ ``position``) ≥ ``threshold``, or the predicted grade if
    ``threshold`` is None."""

    position: int
    threshold: float | None
    origin: ThresholdOrigin

    def scores(self, answers: Answers) -> Floats:
        from srjt.ordinal.decisions import referral_probability

        return referral_probability(answers.probabilities, refer_from=self.position)

    def applies(self, answers: Answers) -> npt.NDArray[np.bool_]:
        import numpy as np

        if self.threshold is None:
            return np.greater_equal(answers.grades, self.position)
        return np.greater_equal(self.scores(answers), self.threshold)

    def columns(self, answers: Answers, run: Trained) -> dict[str, Any]:
        import numpy as np

        return {"refer": np.where(self.applies(answers), "yes", "no")}

    def attributes(self) -> dict[str, Any]:
        return {"threshold": self.threshold}

    def settled(self, run: Trained) -> dict[str, Any]:
        rule = {
            "grade": run.grades.show(self.position),
            "threshold": self.threshold,
            "origin": json_values(self.origin),
        }
        return {"refer": rule}

    def fitted(self) -> dict[str, FittedTo]:
        return {} if self.origin.sensitivity is None else {"threshold": "validation"}

    def sensitivity_of_patients(self, answers: Answers) -> Interval:
        """The sensitivity as it is promised: of a random positive answer of a patient, all patients
        alike."""
        import numpy as np

        from srjt.ordinal import decisions
        from srjt.ordinal.ranges import patient_weights

        rows = np.flatnonzero(answers.labels >= self.position)
        groups = answers.groups_of(rows)
        weights = patient_weights(groups, len(rows))
        return decisions.proportion_interval(
            self.applies(answers)[rows], groups=groups, weights=weights
        )

    def judge(self, judging: Judging) -> Decision:
        from srjt.ordinal import decisions

        answers = judging.answers
        positive = answers.labels >= self.position
        score = self.scores(answers)
        referred = self.applies(answers)
        wanted = self.origin.sensitivity or 0.0
        missed = positive.any() and self.sensitivity_of_patients(answers).high < wanted
        areas: dict[str, Interval] = {}
        roc = precision_recall = None
        if positive.any() and not positive.all():
            areas = decisions.areas(
                positive, score, groups=answers.groups, resamples=judging.resamples
            )
            roc = decisions.roc_curve(positive, score)
            precision_recall = decisions.precision_recall_curve(positive, score)
        return Decision(
            refer_from=judging.run.grades[self.position],
            threshold=self.threshold,
            origin=self.origin,
            sensitivity_missed=bool(missed),
            samples=len(answers),
            positives=int(positive.sum()),
            referred=int(referred.sum()),
            operating_point=decisions.operating_point(positive, referred, groups=answers.groups),
            areas=areas,
            roc=roc,
            precision_recall=precision_recall,
            net_benefit=decisions.net_benefit(positive, score),
        )


def _rule_for_sensitivity(
    calibration: Calibration, position: int, sensitivity: float
) -> ReferralRule:
    """The rule whose threshold is found on the validation side."""
    from srjt.inference.answers import validation_labels
    from srjt.ordinal import decisions

    run = calibration.run
    per = calibration.options.per
    side = calibration.validation(
        f"A threshold for a sensitivity of {sensitivity:g}", option=Option("sensitivity")
    )
    positive = side.labels >= position
    if not positive.any():
        raise SrjtError(
            f"No sample of the validation side has grade {run.grades[position]} or higher, so no"
            " threshold for a sensitivity can be found there: give a threshold.",
            code="too_few",
            option="sensitivity",
        )
    score = decisions.referral_probability(side.probabilities, refer_from=position)
    chosen = decisions.threshold_for_sensitivity(
        positive, score, sensitivity=sensitivity, groups=side.groups
    )
    origin = ThresholdOrigin(
        kind="validation",
        sensitivity=sensitivity,
        answers=len(side),
        positives=chosen.positives,
        patients=chosen.patients,
        by_patient=side.groups is not None,
        pooled=bool(per),
        reached=chosen.reached,
        views=calibration.views,
        labels=validation_labels(run, per=per),
    )
    return ReferralRule(position=position, threshold=chosen.threshold, origin=origin)


class Curved:
    """A result with curves."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: nan is None, long curves are thinned."""
        from srjt.ordinal.decisions import thin

        values = dict(vars(self))
        for name, curve in vars(self).items():
            if hasattr(curve, "_make"):
                values[name] = curve._make(map(thin, curve))
        return dict(json_values(values))


@dataclass(frozen=True, kw_only=True)
class Decision(Curved):
    """The decision to refer samples from a grade on.

    Attributes
    ----------
    refer_from : str
        The mildest grade that is referred.
    threshold : float or None
        A sample is referred if p(grade ≥ refer_from) is at least this; None: if its predicted grade
        is.
    origin : ThresholdOrigin
        Where the threshold comes from.
    sensitivity_missed : bool
        Whether the sensitivity is lower here than the one that the threshold was chosen for.
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
    origin: ThresholdOrigin
    sensitivity_missed: bool
    samples: int
    positives: int
    referred: int
    operating_point: dict[str, Interval]
    areas: dict[str, Interval]
    roc: Roc | None
    precision_recall: PrecisionRecall | None
    net_benefit: NetBenefit
