"""Mixup (Zhang et al., ICLR 2018): learn from blends of two samples and of their labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.standard import Standard
from srjt.ordinal.labels import one_hot


@dataclass(frozen=True, kw_only=True)
class Mixup(Standard):
    alpha: float = 0.5  # of Beta(α, α)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha > 0:
            raise SrjtError(f"Mixup's alpha is positive, not {self.alpha:g}.")

    def prepare(
        self, x: Tensor, y: Tensor, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """One Beta(α, α) draw and one permutation per batch. The generator is on the CPU: the draw is
        then the same on every device, and the GPU is not waited for."""
        seed = int(torch.randint(2**62, (), generator=generator))
        share = float(np.random.default_rng(seed).beta(self.alpha, self.alpha))
        partner = torch.randperm(len(y), generator=generator).to(x.device, non_blocking=True)
        targets = y if y.ndim == 2 else one_hot(y, self.num_classes)
        return torch.lerp(x[partner], x, share), torch.lerp(targets[partner], targets, share)
