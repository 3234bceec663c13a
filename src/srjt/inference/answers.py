"""The answers of a run: probabilities become grades by the run's rule, per image or per patient,
beside the labels that they are judged by.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import MISSING, UNKNOWN_PATIENT, as_text
from srjt.errors import Option, SrjtError, count_of, unknown_name
from srjt.inference.labels import ValidationLabels
from srjt.noise.estimate import NoiseEstimate
from srjt.ordinal.calibration import Recalibration
from srjt.ordinal.intervals import Interval, bootstrap_metrics
from srjt.ordinal.metrics import Floats, Ints
from srjt.training.trained import Trained


def probabilities_of(
    probabilities: npt.NDArray[np.float32],
    network: str,
    recalibration: Recalibration | None = None,
) -> npt.NDArray[np.float32]:
    """(K, N, C) → (N, C): the mean of the networks, or one of them; recalibrated if that is given.

    network: "ensemble", "1" or "2".
    """
    if network != "ensemble" and int(network) > len(probabilities):
        raise SrjtError(
            f"There is no network {network}: this run has"
            f" {count_of(len(probabilities), 'network')}.",
            code="out_of_bounds",
            option="network",
        )
    if network == "ensemble":
        chosen = np.ascontiguousarray(probabilities.mean(axis=0))
    else:
        chosen = np.ascontiguousarray(probabilities[int(network) - 1])
    if recalibration is None:
        return chosen
    return recalibration(chosen).astype(np.float32)


def pick_known(values: Sequence[str] | None, rows: Ints) -> list[str] | None:
    """The values of these rows; None if there are no values."""
    if values is None:
        return None
    return [values[row] for row in rows.tolist()]


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
    samples : DataFrame or None
        The table of the images; without it there are no ranges.
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
    samples: pd.DataFrame | None = None
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

    def intervals(self, *, resamples: int) -> dict[str, Interval]:
        """Every metric, with its interval over the groups; without ends where one group, or no
        draw, says nothing."""
        return bootstrap_metrics(
            self.labels,
            self.grades,
            num_classes=self.classes,
            groups=self.groups,
            resamples=resamples,
        )

    def groups_of(self, rows: Ints) -> list[str] | None:
        """The groups of some answers."""
        return pick_known(self.groups, rows)


def number_of_patients(patients: Collection[str] | None) -> int | None:
    """How many different ones there are; None if they are not known."""
    if patients is None:
        return None
    return len(set(patients))


def run_name(run: Trained) -> str:
    """The name of the folder of a run; "" if it has none."""
    if run.folder is None:
        return ""
    return run.folder.resolve().name


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


def units_of(table: pd.DataFrame, per: Sequence[str]) -> Units:
    """The units of the samples by one or several columns. A unit that several patients share is an
    error."""
    for name in per:
        if name not in table:
            raise unknown_name("column", name, map(str, table.columns), option="per")
    # the data's own id and image, where srjt needs a column of that name itself
    cells = pd.DataFrame()
    for name in per:
        column = name
        if name in ("id", "image") and f"{name}_source" in table:
            column = f"{name}_source"
        cells[name] = list(map(as_text, table[column]))
    # a value that is missing says nothing: such images are not known to belong together
    lacking = cells.apply(lambda column: column.str.casefold().isin(MISSING))
    if "patient" in per:
        lacking["patient"] |= cells["patient"].str.startswith(
            UNKNOWN_PATIENT
        )  # named so where the data were read
    missing = lacking.any(axis=1).to_numpy(bool)
    alone = np.where(missing, np.arange(len(cells)), -1)
    codes = (
        cells.assign(alone=alone)
        .groupby([*per, "alone"], sort=False, dropna=False)
        .ngroup()
        .to_numpy()
    )
    first = np.unique(codes, return_index=True)[1]
    if "patient" in table and "patient" not in per:
        owners = table["patient"].astype(str).groupby(codes).nunique().to_numpy()
        if (owners > 1).any():
            shared = cells.iloc[first[owners.argmax()]].tolist()
            raise SrjtError(
                f"{' and '.join(per)} {', '.join(map(repr, shared))} occurs in {owners.max():,}"
                " patients: pool within a patient, ",
                Option("per", ["patient", *per]),
                ".",
                code="ambiguous",
            )
    if "id" in table:
        cells = cells.mask(
            lacking, UNKNOWN_PATIENT + table["id"].reset_index(drop=True).astype(str), axis=0
        )
    keys = cells.iloc[first].reset_index(drop=True).astype(object)
    return Units(codes=codes.astype(np.int64), keys=keys, unknown=int(missing.sum()))


# The validation side of a run, on which thresholds and poolings are found.


class NoValidationError(SrjtError):
    """The validation side is missing, or lacks a column."""


def validation_labels(run: Trained, *, per: Sequence[str] = ()) -> ValidationLabels:
    """The labels of the validation side. per: the columns that answers are pooled by."""
    side = run.held_out["validation"]
    known = ValidationLabels(samples=len(side))
    if side.true_labels is not None:
        return replace(known, basis="true grades")
    if per and (noise := known_noise(run)) is not None:
        return replace(known, basis="inferred", noise_rate=noise.rate)
    if side.verified_labels is not None:
        known = replace(known, verified=int((side.verified_labels >= 0).sum()))
    estimate = run.noise_estimate
    if estimate is None or not estimate.informed:
        return known
    rate = None if estimate.known_rate is None else estimate.rate
    return replace(known, noise_rate=rate, noise_interval=estimate.rate_interval)


def known_noise(run: Trained) -> NoiseEstimate | None:
    """The noise estimate of a run, if the labels determine it."""
    estimate = run.noise_estimate
    if estimate is None or estimate.identifiable is False:
        return None
    return estimate
