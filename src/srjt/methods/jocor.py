"""JoCoR (Wei et al., CVPR 2020): one common choice, and the networks are pulled together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from srjt.errors import SrjtError, suggest
from srjt.methods.base import Loss
from srjt.methods.joint import JointTraining, masked_mean
from srjt.methods.registry import register
from srjt.ordinal.losses import jeffreys

Agreement = Literal["selected", "all"]


@register(
    "jocor",
    scores="ℓ_h1 + ℓ_h2 + λD",
    updates="hard label + λD, common choice",
    paper="Wei et al., CVPR 2020",
)
@dataclass(frozen=True, kw_only=True)
class JoCor(JointTraining):
    # on what the networks are pulled together; all: on the discarded samples as well
    agree: Agreement = "selected"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.agree not in get_args(Agreement):
            raise suggest("agree", self.agree, get_args(Agreement))
        if self._weighed_as_published and self.co_lambda >= 1.0:
            raise SrjtError(
                f"The published code weighs the labels by 1 − co_lambda, so it must be below 1; got {self.co_lambda:g}."
            )

    @property
    def _weighed_as_published(self) -> bool:
        return self.convention == "published-code" and self.agree == "selected"  # it knows no other

    def score(self, losses: Tensor, logits: Tensor) -> Tensor:
        """ℓ(f₁) + ℓ(f₂) + λD (Eq. 6), the same for both networks. The published code takes D at τ = 1."""
        tau = self.tau if self.convention == "paper" else 1.0
        return (self._losses_of_both(losses) + self._disagreement(logits, tau)).expand_as(losses)

    def combine(self, losses: Tensor, logits: Tensor, selected: Tensor) -> Loss:
        """The common loss on the common choice, counted once; D at τ = 1.

        D asks for no label. With ``agree="all"`` the images whose labels are not believed still teach the networks
        to see the same in them.
        """
        both, divergence = self._losses_of_both(losses), self._disagreement(logits, 1.0)
        if self.agree == "all":
            total = masked_mean(both, selected[0]) + divergence.mean()
        else:
            total = masked_mean(both + divergence, selected[0])
        return Loss(total, masked_mean(losses, selected).detach(), selected)

    def _losses_of_both(self, losses: Tensor) -> Tensor:
        """(2, B) → (B,) ℓ₁ + ℓ₂; the published code weighs them by 1 − λ."""
        return (1.0 - self.co_lambda if self._weighed_as_published else 1.0) * losses.sum(dim=0)

    def _disagreement(self, logits: Tensor, tau: float) -> Tensor:
        """(2, B, C) logits → (B,) λD."""
        return self.co_lambda * jeffreys(logits[0], logits[1], temperature=tau)
