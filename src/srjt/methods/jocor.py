"""JoCoR (Wei et al., CVPR 2020): one common selection, and a loss that makes the networks agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Loss
from srjt.methods.joint import JointTraining, masked_mean
from srjt.ordinal.losses import jeffreys

Agreement = Literal["selected", "all"]


@dataclass(frozen=True, kw_only=True)
class JoCor(JointTraining):
    agree: Agreement = "selected"  # samples on which the networks shall agree; all: the discarded ones too

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._weighted and self.co_lambda >= 1.0:
            source = "The published code" if self.convention == "published-code" else "The original JoCoR"
            raise SrjtError(
                f"{source} weights the labels by 1 − co_lambda, so it is below 1; got {self.co_lambda:g}."
            )

    @property
    def _weighted(self) -> bool:
        """Whether labels count 1 − λ. Only with the agreement of the selected: no publication has another."""
        return self.convention != "paper" and self.agree == "selected"

    def score(self, losses: Tensor, logits: Tensor) -> Tensor:
        """ℓ(f₁) + ℓ(f₂) + λD (Eq. 6), the same for both networks. The published code computes D at τ = 1."""
        tau = 1.0 if self.convention == "published-code" else self.tau
        return (self._losses_of_both(losses) + self._disagreement(logits, tau)).expand_as(losses)

    def combine(self, losses: Tensor, logits: Tensor, selected: Tensor) -> Loss:
        """The common loss on the common selection, counted once; D at τ = 1.

        D needs no label: with ``agree="all"`` the discarded samples contribute to it too.
        """
        both, divergence = self._losses_of_both(losses), self._disagreement(logits, 1.0)
        if self.agree == "all":
            total = masked_mean(both, selected[0]) + divergence.mean()
        else:
            total = masked_mean(both + divergence, selected[0])
        return Loss(total, masked_mean(losses, selected).detach(), selected)

    def _losses_of_both(self, losses: Tensor) -> Tensor:
        """(2, B) → (B,) ℓ₁ + ℓ₂, weighted by 1 − λ in the published code and in the original."""
        return (1.0 - self.co_lambda if self._weighted else 1.0) * losses.sum(dim=0)

    def _disagreement(self, logits: Tensor, tau: float) -> Tensor:
        """(2, B, C) logits → (B,) λD."""
        return self.co_lambda * jeffreys(logits[0], logits[1], temperature=tau)
