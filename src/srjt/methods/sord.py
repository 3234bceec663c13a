"""SORD (Díaz and Marathe, CVPR 2019): one network that learns from soft labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from srjt.methods.base import SingleNetwork, as_rows
from srjt.ordinal.labels import soft_label_matrix, soft_labels
from srjt.ordinal.losses import soft_cross_entropy


@dataclass(frozen=True, kw_only=True)
class Sord(SingleNetwork):
    label_matrix: Any = None  # (C, C): rows to use instead of Eq. 3

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = as_rows(self.label_matrix, self.num_classes, name="label matrix")
        object.__setattr__(self, "label_matrix", rows)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return soft_cross_entropy(logits, soft_labels(targets, self.num_classes, matrix=self.label_matrix))

    def learnt_soft_labels(self) -> Tensor | None:
        return soft_label_matrix(self.num_classes) if self.label_matrix is None else None
