"""Co-teaching (Han et al., NeurIPS 2018): each network learns from what the other finds easy."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srjt.methods.joint import JointTraining
from srjt.methods.registry import register


@register("co-teaching", scores="ℓ_h", updates="hard label, peer's choice", paper="Han et al., NeurIPS 2018")
@dataclass(frozen=True, kw_only=True)
class CoTeaching(JointTraining):
    def score(self, losses: Tensor, logits: Tensor) -> Tensor:
        return losses
