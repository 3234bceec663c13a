"""From grades to target distributions: hard, smoothed and soft labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from srjt.errors import SrjtError

__all__ = ["one_hot", "smooth_labels", "soft_label_matrix", "soft_labels"]


def soft_label_matrix(
    num_classes: int, *, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
) -> Tensor:
    """The soft labels of all grades: row ỹ is exp(−|c − ỹ|) / Σ_c' exp(−|c' − ỹ|) (Eq. 3).

    It is computed on the device, without a transfer, so that it can be called inside a captured CUDA graph.

    Parameters
    ----------
    num_classes : int
        C, the number of grades.
    dtype : torch.dtype
        Of the result.
    device : torch.device or str, optional
        Of the result.

    Returns
    -------
    Tensor, shape (C, C)
        Each row sums to 1.

    Examples
    --------
    >>> from srjt.ordinal import soft_label_matrix
    >>> soft_label_matrix(2).round(decimals=3)
    tensor([[0.7310, 0.2690],
            [0.2690, 0.7310]])
    """
    if num_classes < 2:
        raise SrjtError(f"Ordinal labels need at least two grades, not {num_classes}.")
    grade = torch.arange(num_classes, dtype=dtype, device=device)
    return torch.softmax(-(grade[:, None] - grade[None, :]).abs(), dim=1)


def soft_labels(
    labels: Any, num_classes: int, *, matrix: Tensor | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Soft labels of grades: exp(−|c − ỹ|) / Σ_c' exp(−|c' − ỹ|) for each grade c (Eq. 3).

    Parameters
    ----------
    labels : Tensor or array-like of int, any shape
        Grades 0 … C − 1.
    num_classes : int
        C, the number of grades.
    matrix : Tensor, shape (C, C), optional
        Soft labels of your own instead of Eq. 3: row ỹ is the soft label of grade ỹ.
    dtype : torch.dtype
        Of the result, where ``matrix`` is not given.

    Returns
    -------
    Tensor, shape (..., C)
        Each row sums to 1.

    Examples
    --------
    >>> import srjt
    >>> srjt.soft_labels([0], 3).round(decimals=3)
    tensor([[0.6650, 0.2450, 0.0900]])
    """
    grades = _grades(labels, num_classes)
    if matrix is not None:
        return matrix.to(grades.device)[grades]
    return soft_label_matrix(num_classes, dtype=dtype, device=grades.device)[grades]


def one_hot(labels: Any, num_classes: int, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Hard labels of grades (Eq. 1).

    Parameters
    ----------
    labels : Tensor or array-like of int, any shape
        Grades 0 … C − 1.
    num_classes : int
        C, the number of grades.
    dtype : torch.dtype
        Of the result.

    Returns
    -------
    Tensor, shape (..., C)
        1 at the label, else 0.

    Examples
    --------
    >>> from srjt.ordinal import one_hot
    >>> one_hot([1], 3)
    tensor([[0., 1., 0.]])
    """
    grades = _grades(labels, num_classes)
    return (grades[..., None] == torch.arange(num_classes, device=grades.device)).to(dtype)


def smooth_labels(
    labels: Any, num_classes: int, *, smoothing: float = 0.1, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Labels smoothed uniformly: ``smoothing`` is spread over *all* C grades, including the label.

    Parameters
    ----------
    labels : Tensor or array-like of int, any shape
        Grades 0 … C − 1.
    num_classes : int
        C, the number of grades.
    smoothing : float
        Share that is spread, between 0 and 1.
    dtype : torch.dtype
        Of the result.

    Returns
    -------
    Tensor, shape (..., C)
        Each row sums to 1.

    Examples
    --------
    >>> from srjt.ordinal import smooth_labels
    >>> smooth_labels([0], 4, smoothing=0.4)
    tensor([[0.7000, 0.1000, 0.1000, 0.1000]])
    """
    if not 0.0 <= smoothing <= 1.0:
        raise SrjtError(f"Label smoothing lies between 0 and 1, not {smoothing:g}.")
    return (1.0 - smoothing) * one_hot(labels, num_classes, dtype=dtype) + smoothing / num_classes


def _grades(labels: Any, num_classes: int) -> Tensor:
    """Labels as an int64 tensor. The range is checked on the CPU only: a check on a GPU would wait for it."""
    grades = torch.as_tensor(labels)
    if grades.dtype.is_floating_point or grades.dtype.is_complex or grades.dtype == torch.bool:
        raise SrjtError(f"Labels are whole grades 0 … {num_classes - 1}, not {grades.dtype}.")
    grades = grades.long()
    if grades.device.type == "cpu" and grades.numel():
        lowest, highest = int(grades.min()), int(grades.max())
        if lowest < 0 or highest >= num_classes:
            raise SrjtError(
                f"Labels must lie in 0 … {num_classes - 1}; they reach from {lowest} to {highest}."
            )
    return grades
