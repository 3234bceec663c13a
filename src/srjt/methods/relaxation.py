"""Soft labels for the methods that learn from them: Eq. 3, or a matrix of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from srjt.ordinal.labels import soft_labels
from srjt.ordinal.noise import check_matrix


def as_label_matrix(matrix: Any, num_classes: int) -> Tensor | None:
    """A given (C, C) matrix of target rows as a float64 tensor; None stays None and means Eq. 3."""
    if matrix is None or isinstance(matrix, Tensor):
        return matrix
    return torch.from_numpy(np.array(check_matrix(matrix, num_classes=num_classes)))


def relax(labels: Tensor, num_classes: int, matrix: Tensor | None) -> Tensor:
    """(B,) grades → (B, C) soft labels."""
    return soft_labels(labels, num_classes) if matrix is None else matrix.to(labels.device)[labels]
