"""What ``srjt.plan`` is asked, as options. Without NumPy, so that a help page is shown at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

from srjt.settings import check_types, documented, setting

PlannedMetric = Literal["mae", "accuracy", "qwk", "sensitivity", "specificity", "noise-rate"]


@documented
@dataclass(frozen=True, kw_only=True)
class Planning:
    """What is wanted, and what is known beforehand.

    ``srjt.plan`` takes these fields as keyword arguments; unknown names are errors.
    """

    metric: PlannedMetric = setting(
        "mae", "Metric to plan for; noise-rate is the share of wrong labels."
    )
    half_width: float = setting(0.05, "Wanted half-width of its 95 % interval.", ge=1e-4, lt=1)
    value: float | None = setting(
        None, "Expected value of the metric. It is required without a pilot.", le=10
    )
    spread: float | None = setting(
        None,
        "For mae: standard deviation of the absolute error of one image.",
        gt=0,
        le=100,
        shown="that of errors by one grade",
    )
    images_per_patient: float = setting(
        1.0, "Number of images per patient.", shown="1, or the pilot's", gt=0, le=1e6
    )
    correlation: float = setting(
        0.0, "Correlation between the errors of a patient's images, from 0 to 1.", ge=0, le=1
    )
    prevalence: float = setting(
        0.5, "For sensitivity and specificity: share of images to refer.", gt=0, lt=1
    )
    refer_from: str | None = setting(
        None, "For sensitivity and specificity of a pilot: the lowest grade to refer."
    )
    grade_shares: str | None = setting(
        None,
        "For qwk: shares of the grades, from the lowest, such as 0.8,0.15,0.05.",
        shown="0.6,0.25,0.1,0.05",
    )
    reader_error: float | None = setting(
        None, "Error rate of one reader, to plan the number of readings too.", gt=0, lt=1
    )

    def __post_init__(self) -> None:
        check_types(self)


class PlanOptions(TypedDict, total=False):
    """The fields of ``Planning`` as keyword arguments, for editors and type checkers."""

    metric: PlannedMetric
    half_width: float
    value: float | None
    spread: float | None
    images_per_patient: float
    correlation: float
    prevalence: float
    refer_from: str | None
    grade_shares: str | None
    reader_error: float | None
