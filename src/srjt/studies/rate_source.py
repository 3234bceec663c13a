"""Where the runs of a study take the noise rate from, as far as the plan decides it."""

from __future__ import annotations

from typing import Literal

from srjt import methods
from srjt.errors import SrjtError
from srjt.studies.config import ESTIMATED, parse_method

__all__ = ["RateSource", "rate_source"]

# readers: what was to be estimated follows from the grades of several readers
RateSource = Literal["none", "given", "own", "estimate", "readers"]


def rate_source(method: str, variant: str, *, study_rate: float | str | None) -> RateSource:
    """study_rate: ``noise_rate`` of the study, a number, "auto" or None."""
    try:
        spec = parse_method(f"{method}:{variant}")
    except SrjtError:
        return "given"  # a plug-in that is not installed may need it
    if not methods.lookup(method).method.needs and spec.options.get("label_matrix") != ESTIMATED:
        return "none"
    if spec.own_rate is not None:
        return "estimate" if spec.own_rate == "auto" else "own"
    return "estimate" if study_rate == "auto" else "given"
