"""CoDis (Xia et al., ICCV 2023): prefer samples on which the two networks disagree."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srjt.methods.base import Loss
from srjt.methods.joint import JointTraining
from srjt.ordinal.losses import jeffreys, reverse_jensen_shannon


@dataclass(frozen=True, kw_only=True)
class CoDis(JointTraining):
    def score(self, losses: Tensor, logits: Tensor) -> Tensor:
        """ℓ(f_n) − λD(p₁, p₂) (Eq. 8), with D at the selection's temperature in all conventions."""
        return losses - self.co_lambda * self._divergence(logits[0], logits[1], self.tau)

    def combine(self, losses: Tensor, logits: Tensor, selected: Tensor) -> Loss:
        """Each network learns from the other's selection: from ℓ, and in the original from ℓ − λD at τ = 1.

        Each network of the original minimises its own loss, in which the other's prediction is a constant.
        """
        if self.convention == "original":
            divergence = self._divergence(logits, logits.flip(0).detach(), 1.0)  # (2, B)
            losses = losses - self.co_lambda * divergence
        return super().combine(losses, logits, selected)

    def _divergence(self, p: Tensor, q: Tensor, tau: float) -> Tensor:
        """(..., C) logits of the two networks → (...,) D."""
        divergence = jeffreys if self.convention == "paper" else reverse_jensen_shannon
        return divergence(p, q, temperature=tau)
