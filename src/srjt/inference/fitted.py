"""What is fitted after training and applied to new samples: recalibration and ranges of grades."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from srjt.data.images.store import OnBadImage
from srjt.errors import SrjtError
from srjt.inference.calibrate import (
    Labelled,
    calibration_side,
    check_label_noise,
    label_noise_of,
    predict_side,
    recalibration_of,
)
from srjt.inference.grade_rule import WhichNetwork
from srjt.inference.ranges import RangeRule, calibrate_ranges
from srjt.noise.true_grades import LabelNoise
from srjt.ordinal.recalibration import SMALLEST, Recalibration
from srjt.training.trained import Trained

__all__ = ["Fitted", "fit_after_training"]


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What ``predictions`` applies to the networks' probabilities; nothing by default."""

    recalibration: Recalibration | None = None
    ranges: RangeRule | None = None

    def parts(self, samples: pd.DataFrame | None) -> list[object] | None:
        """The values that ranges by a column need."""
        if self.ranges is None or not self.ranges.parts:
            return None
        by = self.ranges.by
        if samples is None or by not in samples:
            raise SrjtError(f"Ranges for each value of {by} need the column {by} in the samples to predict.")
        return list(samples[by])


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
) -> Fitted:
    """Fit to the validation side of a run, or to ``calibrate_on``; the arguments are those of ``srjt.predict``."""
    check_label_noise(label_noise)
    if coverage is None and coverage_by is not None:
        raise SrjtError("coverage_by says for whom ranges keep their promise: give a coverage, too.")
    if coverage is not None and not 0.0 < coverage < 1.0:
        raise SrjtError(f"A coverage lies between 0 and 1, for example 0.9; got {coverage:g}.")
    by = coverage_by or ""
    if calibrate_on is not None:
        side, manifest = predict_side(run, calibrate_on, views=views, on_bad_image=on_bad_image)
        estimate, columns = None, manifest.table  # the run's estimate is of other labels
    elif coverage is None and (not recalibrate or views > 1 or "validation" not in run.held_out):
        return Fitted()
    else:
        side, estimate, columns = calibration_side(run, views=views), run.noise_estimate, pd.DataFrame()
    config = run.config if calibrate_on is None else run.config.replace(noise_rate=None, transition=None)
    noise = None
    if label_noise != "none" and (coverage is not None or len(side) >= SMALLEST[0]):
        noise = label_noise_of(side, config=config, estimate=estimate, network=network)
    recalibration = ranges = None
    if recalibrate:
        recalibration = recalibration_of(side, noise=noise, network=network, label_noise=label_noise)
    if coverage is not None:
        if by not in ("", "grade") and by not in columns:
            where = "the validation side, which keeps no columns: give --calibrate-on TABLE (calibrate_on) with it"
            raise SrjtError(
                f"Ranges for each value of {by} need this column in the calibration samples; it is not in "
                f"{where if calibrate_on is None else 'them'}."
            )
        ranges = calibrate_ranges(
            side, coverage=coverage, noise=noise, by=by, network=network, label_noise=label_noise,
            parts=list(columns[by]) if by in columns else None,
        )  # fmt: skip
    return Fitted(recalibration=recalibration, ranges=ranges)
