"""Standard: one network that learns from the label as given: the baseline."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srjt.methods.base import SingleNetwork
from srjt.ordinal.losses import hard_cross_entropy, soft_cross_entropy


@dataclass(frozen=True, kw_only=True)
class Standard(SingleNetwork):
    @property
    def takes_probabilities(self) -> bool:
        return True

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        if targets.ndim == 2:  # probabilities, as Mixup makes them
            return soft_cross_entropy(logits, targets)
        return hard_cross_entropy(logits, targets)
