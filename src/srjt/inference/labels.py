"""What is known about the labels that something is fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ValidationLabels:
    """The labels of the validation side, to which something is fitted.

    Attributes
    ----------
    samples, verified : int
        Numbers of samples, and of those whose labels are verified.
    basis : {"true grades", "inferred", "given grades"}
        What stands for the true grades: they are known; they are inferred, as the highest of each
        patient, from the labels and the estimated noise; or the labels, verified or not.
    noise_rate : float or None
        Estimated share of wrong labels, if the labels determine it.
    noise_interval : (float, float) or None
        Its interval; None if nothing is known about it.
    """

    samples: int
    verified: int = 0
    basis: Literal["true grades", "inferred", "given grades"] = "given grades"
    noise_rate: float | None = None
    noise_interval: tuple[float, float] | None = None
