"""The answers of a run: probabilities become grades by the run's rule, per image or per patient, beside the
labels that they are judged by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.grades import MISSING, as_text
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError, unknown_name
from srjt.inference.options import WhichNetwork
from srjt.methods.base import Method
from srjt.noise.estimate import NoiseEstimate
from srjt.noise.quality import highest_grade_posterior
from srjt.ordinal import Purpose
from srjt.ordinal.calibration import Recalibration
from srjt.ordinal.decoding import (
    Decoding,
    GradeRule,
    LearnedPooling,
    Pooling,
    fit_pooling,
    grade_rule_for,
    highest_per_unit,
    pool_probabilities,
)
from srjt.training.folder import HeldOut
from srjt.training.trained import Trained

# The rule by which a run's probabilities become grades, fitted to its validation side where that helps.


def grade_rule(
    run: Trained,
    *,
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
    network: WhichNetwork = "ensemble",
    recalibration: Recalibration | None = None,
) -> GradeRule:
    """The rule for this run and purpose.

    Parameters
    ----------
    run : Trained
    optimise : {"mae", "accuracy", "qwk", "macro_f1"}, optional
        The metric that the grades are for. Default: that of the run.
    decoding : {"argmax", "median", "expected"}, optional
        The rule itself, whatever the metric.
    network : {"ensemble", "1", "2"}
        The network whose predictions for the validation side thresholds are fitted to.
    recalibration : Recalibration, optional
        How the probabilities are recalibrated before the rule is applied. Soft labels need no undoing then.

    Returns
    -------
    GradeRule
    """
    if decoding is not None:
        return GradeRule(how=decoding)
    side = run.held_out.get("validation")
    known = None if side is None else probabilities_of(side.probabilities, network)
    if known is not None and recalibration is not None:
        known = recalibration(known).astype(np.float32)
    return grade_rule_for(
        optimise or run.config.optimise,
        validation=None if known is None else torch.from_numpy(known),
        labels=None if side is None else torch.from_numpy(side.labels),
        soft_labels=run.method.learnt_soft_labels() if recalibration is None else None,
    )


def probabilities_of(
    probabilities: npt.NDArray[np.float32], network: WhichNetwork
) -> npt.NDArray[np.float32]:
    """(K, N, C) → (N, C): the mean of the networks, or one of them."""
    if network == "ensemble":
        return np.ascontiguousarray(probabilities.mean(axis=0))
    if int(network) <= len(probabilities):
        return np.ascontiguousarray(probabilities[int(network) - 1])
    raise SrjtError(f"This run has {len(probabilities)} network(s): there is no network {network}.")


def decoded_grades(
    rule: GradeRule,
    probabilities: npt.NDArray[np.float32],
    grades: npt.NDArray[np.int64],
    *,
    network: WhichNetwork = "ensemble",
    recalibration: Recalibration | None = None,
) -> npt.NDArray[np.int64]:
    """(K, N, C) probabilities and (K, N) grades by the method's own rule → (N,) grades.

    The most likely grade of a single network is the method's own grade, which differs for Garg and CORN, unless its
    probabilities are recalibrated.
    """
    single = network != "ensemble" or len(probabilities) == 1
    if rule.how == "argmax" and single and recalibration is None:
        return np.asarray(grades[0 if network == "ensemble" else int(network) - 1])
    chosen = probabilities_of(probabilities, network)
    if recalibration is not None:
        chosen = recalibration(chosen).astype(np.float32)
    return np.asarray(rule.grades(torch.from_numpy(chosen)).numpy())


def uses_own_rule(
    run: Trained, rule: GradeRule, *, network: WhichNetwork = "ensemble", recalibrated: bool = False
) -> bool:
    """Whether grades are those of a method with a rule of its own, instead of the most likely ones."""
    single = network != "ensemble" or run.method.networks == 1
    own = type(run.method).grades is not Method.grades
    return rule.how == "argmax" and single and own and not recalibrated


def describe_rule(
    run: Trained, rule: GradeRule, *, network: WhichNetwork = "ensemble", recalibrated: bool = False
) -> str:
    """What a grade is: the end of the sentence "A grade is …"."""
    if uses_own_rule(run, rule, network=network, recalibrated=recalibrated):
        return str(rule).replace("the most likely grade", f"what {run.config.method} itself decides on", 1)
    return str(rule)


# The answers of a run, per image or per patient, beside the labels that they are judged by.

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# columns of the answers of srjt predict and srjt evaluate, beside p_<grade>
OURS = frozenset(
    {
        *("images", "label", "grade", "grade_name", "grade_low", "grade_high", "refer", "unsure"),
        *("expected_grade", "entropy", "disagreement", "highest_image"),
    }
)
MOST_LIKELY = GradeRule(how="argmax")


class NoValidationError(SrjtError):
    """The validation side is missing, or lacks a column. ``reason``: the end of a sentence."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Answers:
    """N answers of one run.

    Attributes
    ----------
    probabilities : array, shape (N, C)
    grades, labels : array of int64, shape (N,)
        Predicted grades, and the labels that judge them.
    groups : list of str or None
        (N,) the unit of every resampling.
    """

    probabilities: Floats
    grades: Ints
    labels: Ints
    groups: list[str] | None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class Units:
    """What N images belong to: M patients, eyes or series.

    Attributes
    ----------
    codes : array of int64, shape (N,)
        0 … M − 1, in the order of their first image.
    keys : DataFrame
        (M, K) the value of each column.
    unknown : int
        Images without a value, each of which is a unit of its own.
    """

    codes: Ints
    keys: pd.DataFrame
    unknown: int


def check_units(per: Sequence[str], grades: Sequence[str]) -> None:
    """Raise an error for a column to pool by that has the name of a column of the answers."""
    for name in per:
        if name in OURS or name in {f"p_{grade}" for grade in grades}:
            raise SrjtError(
                f"The answers have a column named {name} themselves: pool by a column with another name (`per`), or "
                "rename it in the data."
            )


def units_of(table: pd.DataFrame, per: Sequence[str], *, source: str = "the data") -> Units:
    """The units of the samples by one or several columns. A unit that several patients share is an error."""
    for name in per:
        if name not in table:
            raise unknown_name(f"column (for `per`, in {source})", name, [str(c) for c in table.columns])
    # the data's own id and image, where srjt needs a column of that name itself
    own = {name: f"{name}_source" for name in ("id", "image") if f"{name}_source" in table}
    cells = [[as_text(cell) for cell in table[own.get(name, name)]] for name in per]
    rows = [tuple(cell) for cell in zip(*cells, strict=True)]
    # a value that is missing says nothing: such images are not known to belong together
    missing = [any(cell.casefold() in MISSING for cell in row) for row in rows]
    marked = [
        (row, place if lacks else -1) for place, (row, lacks) in enumerate(zip(rows, missing, strict=True))
    ]
    number = {key: place for place, key in enumerate(dict.fromkeys(marked))}
    codes = np.array([number[key] for key in marked], dtype=np.int64)
    if "patient" in table and "patient" not in per:
        pairs = pd.DataFrame({"unit": codes, "patient": table["patient"].astype(str).to_numpy()})
        owners = pairs.groupby("unit", sort=False)["patient"].nunique()
        if (owners > 1).any():
            shared = marked[int(np.flatnonzero(codes == owners.idxmax())[0])][0]
            raise SrjtError(
                f"{' and '.join(per)} {', '.join(map(repr, shared))} occurs in {owners.max():,} patients: pool within "
                f"a patient, `per={['patient', *per]}`."
            )
    named = [
        tuple(f"unknown: {table['id'].iloc[place]}" if cell.casefold() in MISSING else cell for cell in key)
        if place >= 0 and "id" in table
        else key
        for key, place in number
    ]
    keys = pd.DataFrame(named, columns=list(per), dtype=object)
    return Units(codes=codes, keys=keys, unknown=sum(missing))


def answers_from(run: Trained, table: pd.DataFrame, labels: Ints, *, groups: Sequence[str] | None) -> Answers:
    """Answers per image, from the table of ``predictions``."""
    position = {name: c for c, name in enumerate(run.grades)}
    return Answers(
        probabilities=table[[f"p_{name}" for name in run.grades]].to_numpy(np.float64),
        grades=np.array([position[name] for name in table["grade"]], dtype=np.int64),
        labels=labels,
        groups=None if groups is None else list(groups),
    )


def pool_answers(
    answers: Answers,
    codes: Ints,
    *,
    how: Pooling,
    learned: LearnedPooling | None = None,
    grade_rule: GradeRule = MOST_LIKELY,
) -> Answers:
    """One answer per unit, judged by the highest label of its images.

    The highest grade is that of the images' own grades, whichever way they were decoded; the other poolings decode
    the pooled probabilities.
    """
    pooled = pool_probabilities(answers.probabilities, codes, how=how, learned=learned)
    if how == "highest":
        grades = highest_per_unit(answers.grades, codes)
    else:
        grades = grade_rule.grades(torch.from_numpy(pooled)).numpy()
    first = np.unique(codes, return_index=True)[1]
    return replace(
        answers,
        probabilities=pooled,
        grades=grades,
        labels=highest_per_unit(answers.labels, codes),
        groups=None if answers.groups is None else [answers.groups[i] for i in first.tolist()],
    )


def learn_pooling(
    run: Trained, *, per: Sequence[str], network: WhichNetwork, recalibration: Recalibration | None = None
) -> LearnedPooling:
    """The pooling under which the highest grades of the validation side's patients are most likely."""
    why = "The learned pooling"
    side = validation_side(run, why=why)
    codes = units_of_side(side, per, why=why)
    p = probabilities_of(side.probabilities, network)
    if recalibration is not None:
        p = recalibration(p).astype(np.float32)
    return fit_pooling(p, codes, unit_labels(run, side, codes))


def describe_labels(run: Trained, *, per: Sequence[str] = ()) -> str:
    """A sentence about the labels of the validation side, by which something was found."""
    side = run.held_out["validation"]
    if side.true_labels is not None:
        return "Its true grades are known and were used."
    if per and (known := _known_noise(run)) is not None:
        return (
            "The highest grades of its patients are inferred from their labels and the estimated noise "
            f"({known.rate:.0%} wrong)."
        )
    estimate = run.noise_estimate
    wrong = ""
    if estimate is not None and estimate.informed:
        wrong = f", and an estimated {estimate.rate:.0%} of such labels are wrong"
    checked = 0 if side.verified_labels is None else int((side.verified_labels >= 0).sum())
    if checked == len(side):
        return "All its labels are verified."
    if checked:
        verb = "is" if checked == 1 else "are"
        return f"{checked:,} of its {len(side):,} labels {verb} verified; the others are as given{wrong}."
    return f"Its labels are as given{wrong}: wrong ones shift what is found on them."


def validation_side(run: Trained, *, why: str) -> HeldOut:
    side = run.held_out.get("validation")
    if side is None or not len(side):
        raise NoValidationError(
            f"{why} is found on the validation side, and this run keeps no predictions for one: train it with `split` "
            "or a split column, by this version of srjt.",
            reason="this run keeps no predictions for a validation side",
        )
    return side


def best_labels(side: HeldOut) -> Ints:
    """True grades where they are known; else verified ones where there are some; else the given ones."""
    if side.true_labels is not None:
        return side.true_labels
    if side.verified_labels is None:
        return side.labels
    return np.where(side.verified_labels >= 0, side.verified_labels, side.labels)


def _known_noise(run: Trained) -> NoiseEstimate | None:
    """The noise estimate of a run, if the labels determine it."""
    estimate = run.noise_estimate
    return None if estimate is None or estimate.identifiable is False else estimate


def unit_labels(run: Trained, side: HeldOut, codes: Ints) -> Floats:
    """(M, C) probabilities of the highest true grade of each patient; certain if the noise is not known."""
    estimate = _known_noise(run)
    if side.true_labels is not None or estimate is None:
        return np.eye(len(run.grades))[highest_per_unit(best_labels(side), codes)]
    certain = None if side.verified_labels is None else side.verified_labels >= 0
    return highest_grade_posterior(best_labels(side), codes, estimate.transition, certain=certain)


def keep_at_training(columns: Sequence[str]) -> str:
    """What to do for a run that has not kept some columns of its validation side."""
    return f"train again, to another folder, with `keep_columns=[{', '.join(columns)}]`"


def units_of_side(
    side: HeldOut,
    per: Sequence[str],
    *,
    why: str,
    otherwise: str = "leave out `pool='learned'`, `sensitivity` and `abstain`",
) -> Ints:
    """The units of the validation side. why, otherwise: for the error if it has no such column."""
    table = side.table
    if missing := [name for name in per if name not in table]:
        raise NoValidationError(
            f"{why} per {' and '.join(per)} is found on the validation side, of which this run knows no "
            f"{' and no '.join(missing)}: {otherwise}, or {keep_at_training(missing)}.",
            reason=f"of the validation side this run knows no {' and no '.join(missing)}",
        )
    return units_of(table, per, source="the validation side").codes


# The answers of an evaluation as a table, one row per answer.


def answer_rows(run: Trained, answers: Answers, data: Manifest, units: Units | None) -> pd.DataFrame:
    """Who was answered, the label, the predicted grade and ``p_<grade>`` of every answer.

    Who: the columns ``image`` and ``patient``, or those of the units and the number of their ``images``.
    """
    if units is None:
        rows = data.table[["image", *(["patient"] if "patient" in data.table else [])]].reset_index(drop=True)
    else:
        counts = pd.Series(units.codes).value_counts(sort=False).sort_index()
        rows = units.keys.assign(images=counts.to_numpy())
    p = {f"p_{grade}": answers.probabilities[:, c] for c, grade in enumerate(run.grades)}
    names = {"label": answers.labels, "grade": answers.grades}
    return rows.assign(**{name: [run.grades[g] for g in found] for name, found in names.items()}, **p)
