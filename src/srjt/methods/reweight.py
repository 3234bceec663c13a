"""Reweight (Liu and Tao, TPAMI 2016): each label weighs as much as it is believed to be true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from srjt.methods.base import SingleNetwork
from srjt.methods.registry import register
from srjt.ordinal.losses import reweighted


@register(
    "reweight", scores="p / (Pᵀp), a weight", updates="weighted hard label", paper="Liu & Tao, TPAMI 2016"
)
@dataclass(frozen=True, kw_only=True)
class Reweight(SingleNetwork):
    needs: ClassVar[tuple[str, ...]] = ("transition",)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return reweighted(logits, targets, transition=self.transition)
