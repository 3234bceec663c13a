"""SORD (Díaz and Marathe, CVPR 2019): one network, the label relaxed along the order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from srjt.methods.base import SingleNetwork, as_rows
from srjt.methods.registry import register
from srjt.methods.relaxation import relax
from srjt.ordinal.losses import soft_cross_entropy


@register("sord", scores="–", updates="soft label", paper="Díaz & Marathe, CVPR 2019")
@dataclass(frozen=True, kw_only=True)
class Sord(SingleNetwork):
    label_matrix: Any = None  # (C, C) rows instead of Eq. 3

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = as_rows(self.label_matrix, self.num_classes, name="label matrix")
        object.__setattr__(self, "label_matrix", rows)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return soft_cross_entropy(logits, relax(targets, self.num_classes, self.label_matrix))
