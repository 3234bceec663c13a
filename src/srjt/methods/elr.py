"""Early-learning regularisation (Liu et al., NeurIPS 2020): stay with what was learnt before labels are memorised."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Loss, Method
from srjt.ordinal.losses import early_learning, hard_cross_entropy


@dataclass(frozen=True, kw_only=True)
class EarlyLearning(Method):
    weight: float = 3.0  # λ of the regularisation, as the authors set it for ten classes
    momentum: float = 0.7  # β: share of the old value in a sample's running average

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight >= 0.0 or not 0.0 <= self.momentum < 1.0:
            raise SrjtError(
                f"elr takes a weight ≥ 0 and a momentum in [0, 1); got {self.weight:g} and {self.momentum:g}."
            )

    def memory(self, samples: int) -> dict[str, Tensor]:
        return {"averages": torch.zeros(samples, self.num_classes)}

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        keep: int | Tensor | None = None,
        memory: dict[str, Tensor] | None = None,
        rows: Tensor | None = None,
    ) -> Loss:
        """Without ``memory``: as at a sample's first step, when its running average is 0."""
        self.check_shapes(logits, targets)
        with torch.no_grad():
            averages = (1.0 - self.momentum) * self.probabilities(logits)[0]
            if memory is not None and rows is not None:
                averages += self.momentum * memory["averages"].index_select(0, rows)
                memory["averages"].index_copy_(0, rows, averages.float())
        per_sample = hard_cross_entropy(logits[0], targets) + self.weight * early_learning(
            logits[0], averages
        )
        total = per_sample.mean()
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Loss(total, total.detach()[None], everything)
