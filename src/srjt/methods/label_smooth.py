"""Label smoothing (Szegedy et al., CVPR 2016): a little probability for every grade, whatever its distance."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srjt.methods.base import SingleNetwork
from srjt.ordinal.labels import smooth_labels
from srjt.ordinal.losses import soft_cross_entropy


@dataclass(frozen=True, kw_only=True)
class LabelSmooth(SingleNetwork):
    smoothing: float = 0.1  # spread uniformly over all C grades

    def __post_init__(self) -> None:
        super().__post_init__()
        smooth_labels([0], self.num_classes, smoothing=self.smoothing)  # an impossible share fails here

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return soft_cross_entropy(logits, smooth_labels(targets, self.num_classes, smoothing=self.smoothing))
