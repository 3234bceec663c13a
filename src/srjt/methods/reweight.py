"""Reweight (Liu and Tao, TPAMI 2016): each sample is weighted by how likely its label is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from srjt.methods.base import SingleNetwork
from srjt.ordinal.losses import reweighted


@dataclass(frozen=True, kw_only=True)
class Reweight(SingleNetwork):
    needs: ClassVar[tuple[str, ...]] = ("transition",)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return reweighted(logits, targets, transition=self.transition)
