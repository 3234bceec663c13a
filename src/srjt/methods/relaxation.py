"""Soft labels for the methods that learn from them: Eq. 3, or a matrix of one's own."""

from __future__ import annotations

from torch import Tensor

from srjt.ordinal.labels import soft_labels


def relax(labels: Tensor, num_classes: int, matrix: Tensor | None) -> Tensor:
    """(B,) grades → (B, C) soft labels."""
    return soft_labels(labels, num_classes) if matrix is None else matrix.to(labels.device)[labels]
