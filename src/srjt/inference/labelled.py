"""Labelled samples that a run is calibrated on or judged by: what is read from a file or table, the
validation side that the run keeps, and which of their labels count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from srjt.data.images.decode import OnBadImage
from srjt.data.manifest import Ints, LeakageWarning, Manifest
from srjt.data.sources import LabelledData, labelled_samples
from srjt.errors import Message, Option, SrjtError, count_of, warn
from srjt.inference.answers import NoValidationError, known_noise, units_of
from srjt.noise.quality import highest_grade_posterior
from srjt.ordinal.decoding import highest_per_unit
from srjt.training.held_out import HeldOut
from srjt.training.trained import Trained

JudgedBy = Literal["true grades", "given grades", "consensus grades"]


def read_labelled(
    run: Trained, source: LabelledData, *, on_bad_image: OnBadImage = "error", progress: bool = True
) -> Manifest:
    """Labelled samples with the grades of the run; an error if they have others.

    progress: show a bar while the headers of DICOM files are read.
    """
    samples = labelled_samples(
        source, grades=run.grades, on_bad_image=on_bad_image, progress=progress
    )
    if tuple(samples.grades) != tuple(run.grades):  # its labels are positions on another scale
        raise SrjtError(
            f"The samples have the grades {', '.join(samples.grades)}, the run has"
            f" {', '.join(run.grades)}: read them with srjt.data.read(path, grades=run.grades).",
            code="no_match",
        )
    return samples


def warn_of_training_patients(run: Trained, data: Manifest) -> list[str]:
    """The patients of the samples who have the name of a training patient; warn if there are
    some."""
    same = run.training_patients(data)
    if same:
        warn(
            f"{count_of(len(same), 'patient has', 'patients have')} the name of one that the run"
            f" was trained on, such as {same[0]}: if they are the same people, what is measured on"
            " them does not hold for others.",
            LeakageWarning,
        )
    return same


def judging_labels(samples: Manifest | HeldOut) -> tuple[Ints, JudgedBy]:
    """The true grades where they are known, else the labels, and what they are called."""
    if samples.true_labels is not None:
        return samples.true_labels, "true grades"
    return samples.labels, "given grades"


# The validation side of a run, on which thresholds and poolings are found.

OTHERS = Message(Option("calibrate_on"), ", with labelled samples that it was not trained on")


def validation_side(
    run: Trained,
    *,
    why: str,
    otherwise: str = Message("train it with ", Option("split"), " or a split column"),
) -> HeldOut:
    """The validation side. why, otherwise: for the error if there is none."""
    side = run.held_out.get("validation")
    if side is None or not len(side):
        raise NoValidationError(
            f"{why} needs a validation side, and this run has none: ",
            otherwise,
            ".",
            code="no_split",
        )
    return side


def best_labels(side: HeldOut) -> Ints:
    """True grades where they are known; else verified ones where there are some; else the given
    ones."""
    if side.true_labels is not None:
        return side.true_labels
    if side.verified_labels is None:
        return side.labels
    return np.where(side.verified_labels >= 0, side.verified_labels, side.labels)


def unit_labels(run: Trained, side: HeldOut, codes: Ints) -> npt.NDArray[np.float64]:
    """(M, C) probabilities of the highest true grade of each patient; certain if the noise is not
    known."""
    estimate = known_noise(run)
    if side.true_labels is not None or estimate is None:
        return np.eye(len(run.grades))[highest_per_unit(best_labels(side), codes)]
    certain = None if side.verified_labels is None else side.verified_labels >= 0
    return highest_grade_posterior(best_labels(side), codes, estimate.transition, certain=certain)


def keep_at_training(columns: Sequence[str]) -> Message:
    """What to do for a run that has not kept some columns of its validation side."""
    return Message("train again, to another folder, with ", Option("keep_columns", [*columns]))


def units_of_side(side: HeldOut, per: Sequence[str], *, why: str, option: Option) -> Ints:
    """The units of the validation side. why, option: for the error if it has no such column."""
    if missing := [name for name in per if name not in side.table]:
        raise NoValidationError(
            f"{why} per {' and '.join(per)} needs the column {' and the column '.join(missing)} of"
            " the validation side, which this run has not kept: leave out ",
            option,
            ", or ",
            keep_at_training(missing),
            ".",
            code="missing_column",
        )
    return units_of(side.table, per).codes
