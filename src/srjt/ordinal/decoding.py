"""From a predictive distribution over grades to one answer."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from srjt.errors import suggest

__all__ = ["Decoding", "decode", "expected_grade", "median_grade", "most_likely_grade"]

Decoding = Literal["argmax", "median", "expected"]


def most_likely_grade(probabilities: Tensor) -> Tensor:
    """(..., C) → (...,) int64: the mode, which maximises expected accuracy; ties go to the milder grade."""
    return probabilities.argmax(dim=-1)


def expected_grade(probabilities: Tensor) -> Tensor:
    """(..., C) → (...,) float: Σ_c c · p^c, a continuous severity; minimises expected squared error."""
    grade = torch.arange(probabilities.shape[-1], device=probabilities.device, dtype=probabilities.dtype)
    return (probabilities * grade).sum(dim=-1)


def median_grade(probabilities: Tensor) -> Tensor:
    """(..., C) → (...,) int64: the lower median, which minimises expected absolute error.

    It is the number of grades at which less than half of the mass has been reached.
    """
    reached = probabilities.cumsum(dim=-1)
    return (reached[..., :-1] < 0.5 * reached[..., -1:]).sum(dim=-1)


def decode(probabilities: Tensor, how: Decoding = "argmax") -> Tensor:
    """(..., C) → (...,) int64 grades. ``expected`` is the expected grade rounded to the nearest (half down)."""
    if how == "argmax":
        return most_likely_grade(probabilities)
    if how == "median":
        return median_grade(probabilities)
    if how == "expected":
        return torch.ceil(expected_grade(probabilities) - 0.5).clamp(min=0).long()
    raise suggest("decoding", how, get_args(Decoding))
