"""Co-teaching (Han et al., NeurIPS 2018): each network learns from the samples that the other selects."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srjt.methods.joint import JointTraining


@dataclass(frozen=True, kw_only=True)
class CoTeaching(JointTraining):
    def score(self, losses: Tensor, logits: Tensor) -> Tensor:
        return losses
