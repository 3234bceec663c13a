"""The result of ``srjt.evaluate``."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pandas as pd

from srjt.errors import count_of
from srjt.inference.abstain import Abstention
from srjt.inference.decide import Decision
from srjt.inference.overlap import Overlap
from srjt.inference.range_evaluation import RangeEvaluation
from srjt.notebook_html import html_block, html_table, html_text
from srjt.ordinal.calibration import CalibrationBin
from srjt.ordinal.intervals import Interval
from srjt.ordinal.metrics import METRICS
from srjt.ordinal.pooling import LearnedPooling
from srjt.ordinal.purpose import Purpose
from srjt.readers import NetworkComparison

__all__ = ["Evaluation"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of ``srjt.evaluate``.

    Attributes
    ----------
    samples : int
        Number of evaluated samples: images, or patients where the answers are per patient.
    judged_by : str
        ``"true grades"``, ``"given grades"`` or ``"consensus grades"`` (of several readers): the labels that the
        predictions are compared with.
    by_patient : bool
        Whether the intervals resample patients; else they resample samples and are probably too narrow.
    views : int
        Views of each sample over which the probabilities are averaged.
    purpose : {"mae", "accuracy", "qwk", "macro_f1"}
        The metric that the grades are for.
    grade_rule : str
        What a predicted grade is, in words.
    intervals : dict of str to Interval
        Every metric with its 95 % interval: (value, low, high).
    confusion : list of list of int
        Counts; rows are the labels, columns the predicted grades.
    calibration_error : float
        Expected calibration error.
    ranked_probability_score : float
        Mean ranked probability score; 0 is best.
    calibration : list of CalibrationBin
        Confidence and accuracy per bin.
    recalibration : str
        How the probabilities were recalibrated; empty if they were not.
    ranges : RangeEvaluation or None
        How often ranges of grades contain the label, with ``coverage``.
    images : int
        Number of images; ``samples`` unless the answers are pooled.
    per : tuple of str
        Columns whose values have one answer each, such as ("patient",); empty: each image has one.
    pool : str
        How the images of a patient are pooled; empty if they are not.
    learned_pooling : LearnedPooling or None
        Parameters of a learned pooling.
    pooling_labels : str
        Which labels it was fitted by, as a sentence; empty if it is not learned.
    unknown_units : int
        Images without a value in a column of ``per``; each of them is judged alone.
    decision : Decision or None
        Whether to refer, with ``refer_from``.
    abstention : Abstention or None
        What is gained by abstaining, with ``refer_from`` or ``abstain``.
    overlaps : tuple of Overlap
        Evaluated samples that ranges, recalibration, threshold or pooling were fitted to; empty if there are none.
    readers : NetworkComparison or None
        The network as one more reader, if several readers graded the samples.
    not_compared : str
        Why it could not be compared with them; "" otherwise.
    answers : DataFrame
        One row per answer: whose it is, ``label``, ``grade`` and ``p_<grade>``. Not in ``to_dict``.
    """

    samples: int
    judged_by: str
    by_patient: bool
    views: int
    purpose: Purpose
    grade_rule: str
    intervals: dict[str, Interval]
    confusion: list[list[int]]
    calibration_error: float
    ranked_probability_score: float
    calibration: list[CalibrationBin]
    recalibration: str = ""
    ranges: RangeEvaluation | None = None
    images: int = 0
    per: tuple[str, ...] = ()
    pool: str = ""
    learned_pooling: LearnedPooling | None = None
    pooling_labels: str = ""
    unknown_units: int = 0
    decision: Decision | None = None
    abstention: Abstention | None = None
    overlaps: tuple[Overlap, ...] = ()
    readers: NetworkComparison | None = None
    not_compared: str = ""
    answers: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False, compare=False)

    @property
    def score(self) -> float:
        """The value of the metric that the grades are for."""
        return self.intervals[self.purpose].value

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {self.intervals[name].value:.3f}" for name in ("accuracy", "mae"))
        return f"<Evaluation: {count_of(self.samples, 'sample')}, {values}, by {self.judged_by}>"

    def _repr_html_(self) -> str:
        rows = [
            (
                METRICS[name].long_name,
                f"{value:.3f}",
                f"{low:.3f} – {high:.3f}" if math.isfinite(low) else "–",
            )
            for name, (value, low, high) in self.intervals.items()
        ]
        per = f" (one answer per {', '.join(self.per)})" if self.per else ""
        units = "patients" if self.by_patient else "samples, and are too narrow if a patient has several"
        return html_block(
            f"{count_of(self.samples, 'sample')}{per}, compared with their {self.judged_by}",
            html_table(("metric", "value", "95 % interval"), rows),
            html_text(f"The intervals resample {units}. A grade is {self.grade_rule}."),
            html_text("" if self.ranges is None else self._describe(self.ranges)),
            *(html_text(str(overlap)) for overlap in self.overlaps),
        )

    @staticmethod
    def _describe(ranges: RangeEvaluation) -> str:
        return (
            f"Ranges of grades contain the label of {ranges.coverage.value:.0%} ({ranges.promised:.0%} promised); they "
            f"have {ranges.width.value:.1f} grades on average."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; what several readers say only if there are some."""
        plain = asdict(replace(self, readers=None, answers=pd.DataFrame()))
        del plain["readers"], plain["not_compared"], plain["answers"]
        if self.readers is not None:
            plain["readers"] = self.readers.to_dict()
        plain["intervals"] = {name: interval._asdict() for name, interval in self.intervals.items()}
        plain["calibration"] = [b._asdict() for b in self.calibration]
        plain["ranges"] = None if self.ranges is None else self.ranges.to_dict()
        plain["learned_pooling"] = self.learned_pooling and self.learned_pooling._asdict()
        plain["decision"] = self.decision and self.decision.to_dict()
        plain["abstention"] = self.abstention and self.abstention.to_dict()
        return plain
