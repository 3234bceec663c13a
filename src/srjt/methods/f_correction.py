"""F-correction (Patrini et al., CVPR 2017): predict the truth, pass it through the matrix, compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from srjt.methods.base import SingleNetwork
from srjt.methods.registry import register
from srjt.ordinal.losses import forward_corrected


@register("f-correction", scores="–", updates="−log (Pᵀp) at the label", paper="Patrini et al., CVPR 2017")
@dataclass(frozen=True, kw_only=True)
class ForwardCorrection(SingleNetwork):
    needs: ClassVar[tuple[str, ...]] = ("transition",)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return forward_corrected(logits, targets, transition=self.transition)
