"""What is fitted after training and applied to new samples: recalibration, pooling and ranges of grades."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import as_text
from srjt.data.images.store import OnBadImage
from srjt.errors import SrjtError
from srjt.inference.answers import keep_at_training, learn_pooling, units_of, units_of_side
from srjt.inference.calibrate import (
    Labelled,
    calibration_side,
    check_label_noise,
    doubted_noise_of,
    label_noise_of,
    predict_side,
    recalibration_of,
)
from srjt.inference.grade_rule import WhichNetwork
from srjt.inference.range_rule import Pooled, RangeRule
from srjt.inference.ranges import calibrate_ranges
from srjt.noise.true_grades import LabelNoise
from srjt.ordinal.pooling import LearnedPooling, Pooling
from srjt.ordinal.recalibration import SMALLEST, Recalibration
from srjt.training.record.held_out import HeldOut
from srjt.training.trained import Trained

__all__ = ["Fitted", "fit_after_training"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What ``predictions`` applies to the networks' probabilities; nothing by default.

    calibrate_on: the samples that recalibration and ranges are fitted to, if it is not the validation side.
    """

    recalibration: Recalibration | None = None
    ranges: RangeRule | None = None
    learned: LearnedPooling | None = None
    calibrate_on: HeldOut | None = None

    def grade_ranges(
        self,
        probabilities: npt.NDArray[np.float32],
        grades: Ints,
        *,
        samples: pd.DataFrame | None,
        units: Ints | None = None,
    ) -> tuple[Ints, Ints]:
        """The lowest and the highest grade of each range, which holds the predicted grade.

        probabilities: (N, C) of images, not recalibrated. grades: predicted, (N,) of images or (M,) of their units.
        """
        assert self.ranges is not None
        low, high = self.ranges.ranges(probabilities, parts=self.parts(samples), units=units)
        # another decoding may leave the range; a wider range still keeps its promise
        return np.minimum(low, grades), np.maximum(high, grades)

    def parts(self, samples: pd.DataFrame | None) -> list[object] | None:
        """The values that ranges by a column need."""
        if self.ranges is None or not self.ranges.parts:
            return None
        by = self.ranges.by
        if samples is None or by not in samples:
            raise SrjtError(f"Ranges for each value of {by} need the column {by} in the samples to predict.")
        return [as_text(value) for value in samples[by]]


def fit_after_training(
    run: Trained,
    *,
    coverage: float | None = None,
    coverage_by: str | None = None,
    calibrate_on: Labelled | None = None,
    label_noise: LabelNoise = "unknown",
    recalibrate: bool = True,
    network: WhichNetwork = "ensemble",
    views: int = 1,
    on_bad_image: OnBadImage = "error",
    per: tuple[str, ...] = (),
    pool: Pooling = "highest",
) -> Fitted:
    """Fit to the validation side of a run, or to ``calibrate_on``; the arguments are those of ``srjt.predict``."""
    check_label_noise(label_noise)
    if coverage is None and coverage_by is not None:
        raise SrjtError("coverage_by says for whom ranges keep their promise: give a coverage, too.")
    if coverage is not None and not 0.0 < coverage < 1.0:
        raise SrjtError(f"A coverage lies between 0 and 1, for example 0.9; got {coverage:g}.")
    if calibrate_on is not None:
        side, manifest = predict_side(run, calibrate_on, views=views, on_bad_image=on_bad_image)
        columns = manifest.table
        # the run's estimate, and the noise that it was trained with, are those of other labels
        estimate, config = None, run.config.replace(noise_rate=None, transition=None)
    elif coverage is None and (not recalibrate or views > 1 or "validation" not in run.held_out):
        learned = learn_pooling(run, per=per, network=network) if per and pool == "learned" else None
        return Fitted(learned=learned)
    else:
        side = calibration_side(run, views=views)
        columns = side.table
        estimate, config = run.noise_estimate, run.config
    noise = None
    if label_noise != "none" and (coverage is not None or len(side) >= SMALLEST[0]):
        noise = label_noise_of(side, config=config, estimate=estimate, network=network)
    recalibration = learned = ranges = None
    if recalibrate:
        recalibration = recalibration_of(side, noise=noise, network=network, label_noise=label_noise)
    if per and pool == "learned":
        learned = learn_pooling(run, per=per, network=network, recalibration=recalibration)
    if coverage is not None:
        if noise is not None and estimate is None:
            noise = doubted_noise_of(noise, side, config=config, network=network)
        ranges = calibrate_ranges(
            side, coverage=coverage, noise=noise, by=coverage_by or "", network=network, label_noise=label_noise,
            parts=_calibration_parts(columns, coverage_by, given=calibrate_on is not None),
            units=_calibration_units(side, columns, per, given=calibrate_on is not None) if per else None,
            pooled=Pooled(per, pool, learned) if per else None,
        )  # fmt: skip
    return Fitted(
        recalibration=recalibration,
        ranges=ranges,
        learned=learned,
        calibrate_on=None if calibrate_on is None else side,
    )


def _calibration_parts(columns: pd.DataFrame, by: str | None, *, given: bool) -> list[object] | None:
    """The values of the column ``by``. given: whether these are not samples of the validation side."""
    if by in (None, "", "grade"):
        return None
    if by not in columns:
        where = f"the validation side: give `calibrate_on` with it, or {keep_at_training([str(by)])}"
        raise SrjtError(
            f"Ranges for each value of {by} need this column in the calibration samples; it is not in "
            f"{'them' if given else where}."
        )
    return [as_text(value) for value in columns[by]]


def _calibration_units(side: HeldOut, columns: pd.DataFrame, per: tuple[str, ...], *, given: bool) -> Ints:
    if given:
        return units_of(columns, per, source="the calibration samples").codes
    return units_of_side(side, per, why="A range", otherwise="give `calibrate_on` with these columns")
