"""From predicted probabilities of the grades to one grade."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from srjt.errors import suggest

__all__ = ["Decoding", "decode", "expected_grade", "median_grade", "most_likely_grade"]

Decoding = Literal["argmax", "median", "expected"]


def most_likely_grade(probabilities: Tensor) -> Tensor:
    """The most likely grade, which maximises expected accuracy. Ties go to the milder grade.

    Parameters
    ----------
    probabilities : Tensor, shape (..., C)

    Returns
    -------
    Tensor of int64, shape (...,)

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.decoding import most_likely_grade
    >>> most_likely_grade(torch.tensor([0.4, 0.3, 0.3]))
    tensor(0)
    """
    return probabilities.argmax(dim=-1)


def expected_grade(probabilities: Tensor) -> Tensor:
    """The expected grade Σ_c c · p^c: a continuous severity, which minimises the expected squared error.

    Parameters
    ----------
    probabilities : Tensor, shape (..., C)

    Returns
    -------
    Tensor, shape (...,)

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal import expected_grade
    >>> expected_grade(torch.tensor([0.5, 0.25, 0.25]))
    tensor(0.7500)
    """
    grade = torch.arange(probabilities.shape[-1], device=probabilities.device, dtype=probabilities.dtype)
    return (probabilities * grade).sum(dim=-1)


def median_grade(probabilities: Tensor) -> Tensor:
    """The lower median, which minimises the expected absolute error.

    It is the number of grades whose cumulative probability is below ½.

    Parameters
    ----------
    probabilities : Tensor, shape (..., C)

    Returns
    -------
    Tensor of int64, shape (...,)

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal import median_grade
    >>> median_grade(torch.tensor([0.4, 0.3, 0.3]))
    tensor(1)
    """
    reached = probabilities.cumsum(dim=-1)
    return (reached[..., :-1] < 0.5 * reached[..., -1:]).sum(dim=-1)


def decode(probabilities: Tensor, how: Decoding = "argmax") -> Tensor:
    """Grades by one of three rules.

    Parameters
    ----------
    probabilities : Tensor, shape (..., C)
    how : {"argmax", "median", "expected"}
        The most likely grade, the median, or the expected grade rounded to the nearest (halves are rounded down).

    Returns
    -------
    Tensor of int64, shape (...,)

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal import decode
    >>> decode(torch.tensor([0.4, 0.3, 0.3]), "median")
    tensor(1)
    """
    if how == "argmax":
        return most_likely_grade(probabilities)
    if how == "median":
        return median_grade(probabilities)
    if how == "expected":
        return torch.ceil(expected_grade(probabilities) - 0.5).clamp(min=0).long()
    raise suggest("decoding", how, get_args(Decoding))
