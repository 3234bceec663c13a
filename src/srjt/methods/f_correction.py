"""F-correction (Patrini et al., CVPR 2017): the loss of Pᵀp, the label that the predicted grade would get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from srjt.methods.base import SingleNetwork
from srjt.ordinal.losses import forward_corrected


@dataclass(frozen=True, kw_only=True)
class ForwardCorrection(SingleNetwork):
    needs: ClassVar[tuple[str, ...]] = ("transition",)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return forward_corrected(logits, targets, transition=self.transition)
