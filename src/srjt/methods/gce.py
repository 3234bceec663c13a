"""Generalised cross-entropy (Zhang and Sabuncu, NeurIPS 2018): a confident mistake weighs less."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import SingleNetwork
from srjt.ordinal.losses import generalised_cross_entropy


@dataclass(frozen=True, kw_only=True)
class GeneralisedCrossEntropy(SingleNetwork):
    q: float = 0.7  # towards 0: cross-entropy; 1: 1 − p

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.q <= 1.0:
            raise SrjtError(f"q of the generalised cross-entropy lies in (0, 1]; got {self.q:g}.")

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return generalised_cross_entropy(logits, targets, q=self.q)
