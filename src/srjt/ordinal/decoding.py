"""From predicted probabilities of the grades to one grade."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from srjt.errors import suggest

__all__ = [
    "Decoding",
    "decode",
    "expected_grade",
    "grade_by_thresholds",
    "median_grade",
    "most_likely_grade",
    "undo_soft_labels",
]

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


def grade_by_thresholds(probabilities: Tensor, thresholds: Tensor) -> Tensor:
    """The number of thresholds that lie below the expected grade.

    Parameters
    ----------
    probabilities : Tensor, shape (..., C)
    thresholds : Tensor, shape (C − 1,)
        In ascending order. ½, 1½, 2½, … round the expected grade to the nearest.

    Returns
    -------
    Tensor of int64, shape (...,)

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.decoding import grade_by_thresholds
    >>> grade_by_thresholds(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.6, 0.7]))
    tensor(2)
    """
    return (expected_grade(probabilities)[..., None] > thresholds).sum(dim=-1)


def undo_soft_labels(probabilities: Tensor, matrix: Tensor, *, steps: int = 30) -> Tensor:
    """The probabilities of the labels, from those of a network that has learnt soft labels.

    A network that learns the soft labels S learns p = q S, where q are the probabilities of the labels. Steps of
    Richardson and Lucy, q ← q · ((p / (q S)) Sᵀ), find q: it stays positive, and each step makes p likelier.

    Parameters
    ----------
    probabilities : Tensor, shape (..., C)
        p, of a network that was trained with soft labels.
    matrix : Tensor, shape (C, C)
        S, the soft label of each grade in a row.
    steps : int
        Number of steps; q = p before the first.

    Returns
    -------
    Tensor, shape (..., C)

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal import soft_label_matrix
    >>> from srjt.ordinal.decoding import undo_soft_labels
    >>> soft = soft_label_matrix(3)
    >>> undo_soft_labels(soft[0], soft).round(decimals=2)
    tensor([0.9700, 0.0300, 0.0000])
    """
    soft = matrix.to(probabilities)
    tiny = torch.finfo(probabilities.dtype).tiny
    found = probabilities
    for _ in range(steps):
        found = found * ((probabilities / (found @ soft).clamp(min=tiny)) @ soft.T)
    return found / found.sum(dim=-1, keepdim=True).clamp(min=tiny)
