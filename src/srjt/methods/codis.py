"""CoDis (Xia et al., ICCV 2023): prefer samples on which the two networks disagree."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srjt.methods.joint import JointTraining
from srjt.ordinal.losses import jeffreys, reverse_jensen_shannon


@dataclass(frozen=True, kw_only=True)
class CoDis(JointTraining):
    def score(self, losses: Tensor, logits: Tensor) -> Tensor:
        """ℓ(f_n) − λD(p₁, p₂) (Eq. 8), with D at the selection's temperature in both conventions."""
        divergence = jeffreys if self.convention == "paper" else reverse_jensen_shannon
        return losses - self.co_lambda * divergence(logits[0], logits[1], temperature=self.tau)
