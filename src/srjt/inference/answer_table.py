"""The table of predictions as a clinic uses it: per image or per patient, with names, referrals and doubts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.sources.assemble import GRADED
from srjt.errors import SrjtError, suggest
from srjt.inference.abstain import confidence_of, find_cut
from srjt.inference.answers import (
    PredictSide,
    answers_from,
    pool_answers,
    units_of,
    validation_answers,
)
from srjt.inference.decide import (
    Rule,
    Threshold,
    referral_rule,
    referred,
)
from srjt.ordinal.decoding import expected_grade
from srjt.ordinal.grade_rules import GradeRule
from srjt.ordinal.pooling import LearnedPooling, Pooling
from srjt.training.trained import Trained

__all__ = ["AnswerRule", "answer_rule", "answer_table", "check_columns"]


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
    refer: Rule | None
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
            raise suggest("column (of the data to predict)", name, known)
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
        later = {"grade_name": run.grade_names, "refer": rule.refer, "unsure": rule.cut is not None}
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
    if run.grade_names:
        table.insert(1, "grade_name", [run.grade_names[grade] for grade in table["grade"]])
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
