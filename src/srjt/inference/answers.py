"""The answers of a run: probabilities become grades by the run's rule, per image or per patient, beside the
labels that they are judged by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.data.grades import MISSING, as_text
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
    fit_pooling,
    grade_rule_for,
    highest_per_unit,
)
from srjt.training.folder import HeldOut
from srjt.training.trained import Trained

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# The rule by which a run's probabilities become grades, fitted to its validation side where that helps.


def grade_rule(
    run: Trained,
    *,
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
    network: WhichNetwork = "ensemble",
    recalibration: Recalibration | None = None,
) -> GradeRule:
    """The rule for this run and the metric ``optimise`` (default: the run's), or ``decoding`` whatever the metric.

    network: whose predictions for the validation side thresholds are fitted to. recalibration: of the probabilities
    before the rule is applied; soft labels need no undoing then.
    """
    if decoding is not None:
        return GradeRule(how=decoding)
    side = run.held_out.get("validation")
    p = None if side is None else recalibrated(side.probabilities, network, recalibration)
    return grade_rule_for(
        optimise or run.config.optimise,
        validation=None if p is None else torch.from_numpy(p),
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


def recalibrated(
    probabilities: npt.NDArray[np.float32], network: WhichNetwork, recalibration: Recalibration | None
) -> npt.NDArray[np.float32]:
    """(K, N, C) → (N, C), recalibrated if that is given."""
    chosen = probabilities_of(probabilities, network)
    return chosen if recalibration is None else recalibration(chosen).astype(np.float32)


def decoded_grades(
    rule: GradeRule,
    probabilities: npt.NDArray[np.float32],
    grades: Ints,
    *,
    network: WhichNetwork = "ensemble",
    recalibration: Recalibration | None = None,
) -> Ints:
    """(K, N, C) probabilities and (K, N) grades by the method's own rule → (N,) grades.

    The most likely grade of a single network is the method's own grade, which differs for Garg and CORN, unless its
    probabilities are recalibrated.
    """
    single = network != "ensemble" or len(probabilities) == 1
    if rule.how == "argmax" and single and recalibration is None:
        return np.asarray(grades[0 if network == "ensemble" else int(network) - 1])
    chosen = recalibrated(probabilities, network, recalibration)
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


@dataclass(frozen=True, kw_only=True)
class Answers:
    """N answers of one run.

    Attributes
    ----------
    probabilities : array, shape (N, C)
    grades, labels : array of int64, shape (N,)
        Predicted grades, and the labels that judge them; 0 where there are none.
    groups : list of str or None
        (N,) the unit of every resampling.
    outputs : pair of arrays, shape (K, N, C) and (K, N), or None
        The networks' probabilities of images, and grades by the method's own rule.
    ranges : pair of arrays of int64, shape (N,), or None
        The lowest and the highest grade of each answer's range.
    disagreement : array, shape (N,), or None
        The total variation distance of two networks, from 0 (equal probabilities) to 1.
    """

    probabilities: Floats
    grades: Ints
    labels: Ints
    groups: list[str] | None
    outputs: tuple[npt.NDArray[np.float32], Ints] | None = None
    ranges: tuple[Ints, Ints] | None = None
    disagreement: npt.NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        return int(self.probabilities.shape[1])

    @property
    def confusion(self) -> Ints:
        """(C, C) counts; rows are the labels."""
        counts = np.zeros((self.classes, self.classes), dtype=np.int64)
        np.add.at(counts, (self.labels, self.grades), 1)
        return counts

    def groups_of(self, rows: Ints) -> list[str] | None:
        """The groups of some answers."""
        return None if self.groups is None else [self.groups[row] for row in rows.tolist()]


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


def units_of(table: pd.DataFrame, per: Sequence[str], *, source: str = "the data") -> Units:
    """The units of the samples by one or several columns. A unit that several patients share is an error."""
    for name in per:
        if name not in table:
            raise unknown_name(f"column (for `per`, in {source})", name, [str(c) for c in table.columns])
    # the data's own id and image, where srjt needs a column of that name itself
    own = {name: f"{name}_source" for name in ("id", "image") if f"{name}_source" in table}
    cells = pd.DataFrame({name: [as_text(cell) for cell in table[own.get(name, name)]] for name in per})
    # a value that is missing says nothing: such images are not known to belong together
    lacking = cells.apply(lambda column: column.str.casefold().isin(MISSING))
    missing = lacking.any(axis=1).to_numpy(bool)
    alone = np.where(missing, np.arange(len(cells)), -1)
    codes = cells.assign(alone=alone).groupby([*per, "alone"], sort=False, dropna=False).ngroup().to_numpy()
    first = np.unique(codes, return_index=True)[1]
    if "patient" in table and "patient" not in per:
        owners = table["patient"].astype(str).groupby(codes).nunique().to_numpy()
        if (owners > 1).any():
            shared = cells.iloc[first[owners.argmax()]].tolist()
            raise SrjtError(
                f"{' and '.join(per)} {', '.join(map(repr, shared))} occurs in {owners.max():,} patients: pool within "
                f"a patient, `per={['patient', *per]}`."
            )
    if "id" in table:
        cells = cells.mask(lacking, "unknown: " + table["id"].reset_index(drop=True).astype(str), axis=0)
    keys = cells.iloc[first].reset_index(drop=True).astype(object)
    return Units(codes=codes.astype(np.int64), keys=keys, unknown=int(missing.sum()))


# The validation side of a run, on which thresholds and poolings are found.


class NoValidationError(SrjtError):
    """The validation side is missing, or lacks a column. ``reason``: the end of a sentence."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def learn_pooling(
    run: Trained, *, per: Sequence[str], network: WhichNetwork, recalibration: Recalibration | None = None
) -> LearnedPooling:
    """The pooling under which the highest grades of the validation side's patients are most likely."""
    why = "The learned pooling"
    side = validation_side(run, why=why)
    codes = units_of_side(side, per, why=why)
    p = recalibrated(side.probabilities, network, recalibration)
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
    if checked:
        others = "" if checked == len(side) else f"; the others are as given{wrong}"
        return f"{checked:,} of its {len(side):,} labels are verified{others}."
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
    if missing := [name for name in per if name not in side.table]:
        raise NoValidationError(
            f"{why} per {' and '.join(per)} is found on the validation side, of which this run knows no "
            f"{' and no '.join(missing)}: {otherwise}, or {keep_at_training(missing)}.",
            reason=f"of the validation side this run knows no {' and no '.join(missing)}",
        )
    return units_of(side.table, per, source="the validation side").codes
