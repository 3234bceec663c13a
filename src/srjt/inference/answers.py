"""The answers of a run, per image or per patient, beside the labels that they are judged by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.grades import MISSING, as_text
from srjt.errors import SrjtError, suggest
from srjt.inference.grade_rule import WhichNetwork, probabilities_of
from srjt.noise.estimate import NoiseEstimate
from srjt.noise.highest_grade import highest_grade_posterior
from srjt.ordinal.grade_rules import GradeRule
from srjt.ordinal.pooling import LearnedPooling, Pooling, fit_pooling, highest_per_unit, pool_probabilities
from srjt.ordinal.recalibration import Recalibration
from srjt.training.record.held_out import HeldOut
from srjt.training.trained import Trained

__all__ = [
    "Answers",
    "NoValidationError",
    "PredictSide",
    "Units",
    "answers_from",
    "as_columns",
    "check_units",
    "describe_labels",
    "keep_at_training",
    "learn_pooling",
    "pool_answers",
    "units_of",
    "units_of_side",
    "validation_answers",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
PredictSide = Callable[[HeldOut], pd.DataFrame]

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


def as_columns(per: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of columns as a tuple: ``"patient,eye"`` and ["patient", "eye"] are the same."""
    parts = [per] if isinstance(per, str) else [] if per is None else list(per)
    names = [name.strip() for part in parts for name in str(part).split(",")]
    if not all(names):
        raise SrjtError(f"per needs the names of columns, such as patient; got {per!r}.")
    return tuple(dict.fromkeys(names))


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
            raise suggest(f"column (for `per`, in {source})", name, [str(c) for c in table.columns])
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
        key
        if place < 0 or "id" not in table
        else tuple(_unknown(cell, table["id"].iloc[place]) for cell in key)
        for key, place in number
    ]
    keys = pd.DataFrame(named, columns=list(per), dtype=object)
    return Units(codes=codes, keys=keys, unknown=sum(missing))


def _unknown(cell: str, sample: object) -> str:
    return f"unknown: {sample}" if cell.casefold() in MISSING else cell


def answers_from(run: Trained, table: pd.DataFrame, labels: Ints, *, groups: Sequence[str] | None) -> Answers:
    """Answers per image, from the table of ``predictions``."""
    position = {name: c for c, name in enumerate(run.grades)}
    return Answers(
        probabilities=_probabilities(run, table),
        grades=np.array([position[name] for name in table["grade"]], dtype=np.int64),
        labels=labels,
        groups=None if groups is None else list(groups),
    )


def _probabilities(run: Trained, table: pd.DataFrame) -> Floats:
    return table[[f"p_{name}" for name in run.grades]].to_numpy(np.float64)


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


def validation_answers(
    run: Trained,
    *,
    predict: PredictSide,
    why: str,
    per: Sequence[str] = (),
    how: Pooling = "highest",
    learned: LearnedPooling | None = None,
    grade_rule: GradeRule = MOST_LIKELY,
) -> Answers:
    """Answers for the validation side, per image or pooled, judged by the best labels that the side has.

    predict: makes the table of predictions of a side. why: what needs the answers, for the error if there are none.
    """
    side = _validation_side(run, why=why)
    images = answers_from(run, predict(side), _best_labels(side), groups=side.groups)
    if not per:
        return images
    codes = units_of_side(side, per, why=why)
    pooled = pool_answers(images, codes, how=how, learned=learned, grade_rule=grade_rule)
    return replace(pooled, labels=_unit_labels(run, side, codes).argmax(axis=1))


def learn_pooling(
    run: Trained, *, per: Sequence[str], network: WhichNetwork, recalibration: Recalibration | None = None
) -> LearnedPooling:
    """The pooling under which the highest grades of the validation side's patients are most likely."""
    why = "The learned pooling"
    side = _validation_side(run, why=why)
    codes = units_of_side(side, per, why=why)
    p = probabilities_of(side.probabilities, network)
    if recalibration is not None:
        p = recalibration(p).astype(np.float32)
    return fit_pooling(p, codes, _unit_labels(run, side, codes))


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


def _validation_side(run: Trained, *, why: str) -> HeldOut:
    side = run.held_out.get("validation")
    if side is None or not len(side):
        raise NoValidationError(
            f"{why} is found on the validation side, and this run keeps no predictions for one: train it with `split` "
            "or a split column, by this version of srjt.",
            reason="this run keeps no predictions for a validation side",
        )
    return side


def _best_labels(side: HeldOut) -> Ints:
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


def _unit_labels(run: Trained, side: HeldOut, codes: Ints) -> Floats:
    """(M, C) probabilities of the highest true grade of each patient; certain if the noise is not known."""
    estimate = _known_noise(run)
    if side.true_labels is not None or estimate is None:
        return np.eye(len(run.grades))[highest_per_unit(_best_labels(side), codes)]
    certain = None if side.verified_labels is None else side.verified_labels >= 0
    return highest_grade_posterior(_best_labels(side), codes, estimate.transition, certain=certain)


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
