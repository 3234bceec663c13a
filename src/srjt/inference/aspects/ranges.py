"""Ranges of grades that contain the true grade with a given probability; ``inference/ranges.py``
has the statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srjt.errors import Message, Option, SrjtError
from srjt.inference.aspects import (
    CALIBRATION,
    Aspect,
    Calibration,
    FittedTo,
    Judging,
    Rule,
    register_aspect,
)
from srjt.json_values import json_values
from srjt.settings import setting

if TYPE_CHECKING:
    from srjt.inference.answers import Answers
    from srjt.inference.ranges import RangeEvaluation, RangeRule
    from srjt.training.trained import Trained


@register_aspect("ranges", order=10, columns=("grade_low", "grade_high"))
@dataclass(frozen=True, kw_only=True)
class Ranges(Aspect):
    """Which ranges are promised, and for whom."""

    coverage: float | None = setting(
        None,
        "Give each sample a range of grades that contains the true grade with at least this"
        " probability, such as 0.9.",
        more="With `per` the true grade of a patient is the highest of the images.",
        metavar="SHARE",
        panel=CALIBRATION,
        takes="a probability such as 0.9",
        gt=0,
        lt=1,
    )
    coverage_by: str | None = setting(
        None,
        "Guarantee the coverage of ranges for each true grade, or for each value of a column.",
        more="The calibration samples must have that column, too.",
        metavar="grade|COLUMN",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coverage is None and self.coverage_by is not None:
            raise SrjtError(
                Option("coverage_by"),
                " needs ",
                Option("coverage"),
                ", such as 0.9.",
                code="missing_option",
            )

    @property
    def data_columns(self) -> tuple[str, ...]:
        if self.coverage_by is None or self.coverage_by == "grade":
            return ()
        return (self.coverage_by,)

    def prepare(self, calibration: Calibration) -> CalibratedRanges | None:
        from srjt.inference.labelled import OTHERS, keep_at_training, validation_side
        from srjt.inference.ranges import calibrate_ranges

        if self.coverage is None:
            return None
        options = calibration.options
        side = calibration.side
        if calibration.calibrate_on is None:
            side = validation_side(
                calibration.run, why="A range of grades", otherwise=Message("give ", OTHERS)
            )
            if options.views > 1:
                raise SrjtError(
                    "The validation side was predicted with one view. Use one view, or ",
                    OTHERS,
                    ".",
                    code="unsupported",
                    option="views",
                )
        assert side is not None
        table = side.table if calibration.calibrate_on is None else calibration.calibrate_on.table
        missing = [name for name in (*options.per, *self.data_columns) if name not in table]
        if missing:
            raise SrjtError(
                f"Ranges need the column {' and the column '.join(missing)} of the calibration"
                " samples: give ",
                Option("calibrate_on"),
                " with it, or ",
                keep_at_training(missing),
                ".",
                code="missing_column",
            )
        noise = calibration.noise_of(side, promise=True)
        rule = calibrate_ranges(
            side, options, noise=noise, table=table, learned=calibration.learned
        )
        return CalibratedRanges(rule=rule)


@dataclass(frozen=True, kw_only=True)
class CalibratedRanges(Rule):
    """How wide the ranges of answers are."""

    rule: RangeRule

    def extend(self, answers: Answers, images: Answers) -> Answers:
        """With the lowest and the highest grade of each range, which holds the predicted grade."""
        from dataclasses import replace

        import numpy as np

        from srjt.inference.answers import probabilities_of

        if images.samples is None or images.outputs is None:
            return answers
        by = self.rule.options.coverage_by
        if self.rule.parts and by not in images.samples:
            raise SrjtError(
                f"Ranges for each value of {by} need the column {by} in the samples to predict.",
                code="missing_column",
                option="coverage_by",
            )
        probabilities = probabilities_of(images.outputs[0], self.rule.options.network)
        low, high = self.rule.ranges(probabilities, images.samples)
        # another decoding may leave the range; a wider range still keeps its promise
        return replace(
            answers, ranges=(np.minimum(low, answers.grades), np.maximum(high, answers.grades))
        )

    def columns(self, answers: Answers, run: Trained) -> dict[str, Any]:
        if answers.ranges is None:
            return {}
        low, high = answers.ranges
        return {
            "grade_low": [run.grades[grade] for grade in low],
            "grade_high": [run.grades[grade] for grade in high],
        }

    def settled(self, run: Trained) -> dict[str, Any]:
        return {"range": json_values(self.rule.promise)}

    def fitted(self) -> dict[str, FittedTo]:
        return {"ranges": "calibration"}

    def judge(self, judging: Judging) -> RangeEvaluation | None:
        from srjt.inference.ranges import evaluate_ranges

        return evaluate_ranges(judging.answers, self.rule, resamples=judging.resamples)
