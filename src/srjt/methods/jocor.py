"""JoCoR (Wei et al., CVPR 2020): one common choice, and the networks are pulled together."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srjt.methods.base import Loss
from srjt.methods.joint import JointTraining, masked_mean
from srjt.methods.registry import register
from srjt.ordinal.losses import jeffreys


@register(
    "jocor",
    scores="ℓ_h1 + ℓ_h2 + λD",
    updates="hard label + λD, common choice",
    paper="Wei et al., CVPR 2020",
)
@dataclass(frozen=True, kw_only=True)
class JoCor(JointTraining):
    def score(self, losses: Tensor, logits: Tensor) -> Tensor:
        """ℓ(f₁) + ℓ(f₂) + λD (Eq. 6), the same for both networks. The published code takes D at τ = 1."""
        tau = self.tau if self.convention == "paper" else 1.0
        return self._joint(losses, logits, tau).expand_as(losses)

    def combine(self, losses: Tensor, logits: Tensor, selected: Tensor) -> Loss:
        """The common loss on the common choice, counted once; D at τ = 1."""
        total = masked_mean(self._joint(losses, logits, 1.0), selected[0])
        return Loss(total, masked_mean(losses, selected).detach(), selected)

    def _joint(self, losses: Tensor, logits: Tensor, tau: float) -> Tensor:
        """(2, B) losses → (B,) ℓ₁ + ℓ₂ + λD; the published code weighs the losses by 1 − λ."""
        weight = 1.0 if self.convention == "paper" else 1.0 - self.co_lambda
        divergence = jeffreys(logits[0], logits[1], temperature=tau)
        return weight * losses.sum(dim=0) + self.co_lambda * divergence
