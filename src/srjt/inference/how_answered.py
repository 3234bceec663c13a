"""How answers came about, in words: what every option that was given, or not given, amounts to."""

from __future__ import annotations

from srjt.data.grade_names import display_grade
from srjt.errors import count_of
from srjt.inference.answer_table import AnswerRule
from srjt.inference.decide import refer_if
from srjt.inference.fitted import Fitted
from srjt.inference.grade_rule import WhichNetwork
from srjt.inference.range_rule import RangeRule
from srjt.training.engine.devices import amp_dtype
from srjt.training.trained import Trained

__all__ = ["how_answered"]


def how_answered(
    run: Trained,
    rule: AnswerRule,
    fitted: Fitted,
    *,
    grade_rule: str,
    network: WhichNetwork,
    views: int,
    abstain: float | None,
    precision: str,
) -> dict[str, str]:
    """What was done → how, for a person who reads the answers.

    grade_rule: the end of the sentence "A grade is …". precision: what another precision changed, if it was asked for.
    """
    how = {"networks": _networks(run, network)}
    if views > 1:
        how["views"] = f"the mean of {views} views of each image"
    how["precision"] = precision or _precision(run)
    how["recalibration"] = "none" if fitted.recalibration is None else str(fitted.recalibration)
    if fitted.recalibration is not None or fitted.ranges is not None:
        how["calibrated on"] = _calibrated_on(run, fitted)
    how["grade"] = grade_rule
    if rule.per:
        how["one answer per"] = f"{' and '.join(rule.per)}: {_pooling(rule)}"
    if fitted.ranges is not None:
        how["range"] = _range(fitted.ranges)
    if rule.refer is not None:
        grade = display_grade(run.grades[rule.refer.position], run.grade_names)
        how["refer"] = f"{refer_if(grade, rule.refer.threshold)}. {rule.refer.found}"
    if rule.cut is not None and abstain is not None:
        how["unsure"] = (
            f"{_unsure(rule)} {rule.cut:.3g}, as it is for at most {abstain:.3g} of the validation side"
        )
    return how


def _networks(run: Trained, network: WhichNetwork) -> str:
    if run.method.networks == 1:
        return "one"
    return "the mean of two networks' probabilities" if network == "ensemble" else f"network {network} of two"


def _precision(run: Trained) -> str:
    if amp_dtype(run.config, run.device) is not None:
        return "bf16"
    return "tf32" if run.config.precision == "tf32" else "fp32"


def _calibrated_on(run: Trained, fitted: Fitted) -> str:
    side = fitted.calibrate_on
    where = "other labelled samples"
    if side is None:
        side, where = run.held_out["validation"], "the validation side of the run"
    of = "" if side.patients is None else f" of {count_of(len(set(side.patients)), 'patient')}"
    return f"{where}: {count_of(len(side), 'sample')}{of}"


def _range(rule: RangeRule) -> str:
    each = {"": "", "grade": ", for each true grade"}.get(rule.by, f", for each value of {rule.by}")
    return f"contains the true grade with a probability of at least {rule.coverage:g}{each}"


def _pooling(rule: AnswerRule) -> str:
    if rule.learned is not None:
        exponent, weight = rule.learned
        return (
            f"a pooling that is fitted on the validation side, exponent {exponent:.2g}, weight {weight:.2g}"
        )
    return {
        "highest": "the highest grade of the images",
        "mean": "the mean of the images' probabilities",
    }[rule.pool]


def _unsure(rule: AnswerRule) -> str:
    if rule.refer is None:
        return "if the probability of the grade is below"
    return "if the distance from the threshold, from 0 to 1 on its side, is below"
