"""Garg and Manwani (ACML 2020): ordinal regression whose loss is unbiased under known label noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from srjt.errors import SrjtError, warn
from srjt.methods.base import SingleNetwork
from srjt.noise.matrices import ILL_CONDITIONED
from srjt.ordinal import losses
from srjt.ordinal.decoding import median_grade

# The distance between neighbouring biases at the start. A middle grade is most likely halfway between its two
# thresholds, where its probability is σ(d/2) − σ(−d/2) = tanh(d/4): 0.76 for d = 4, so that every grade can be three
# times as likely as all others together. Biases are single numbers, which Adam moves by at most its learning rate in a
# step: what they cannot express at the start, they hardly learn.
SPACING = 4.0


class OrdinalHead(nn.Module):
    """One weight vector shared by all thresholds, and C − 1 biases: (B, F) → (B, C − 1).

    The biases start equally spaced around 0, descending: Pr(above a higher grade) is smaller, so differences are
    probabilities.
    """

    def __init__(self, features: int, classes: int, *, spacing: float) -> None:
        super().__init__()
        self.weight = nn.Linear(features, 1, bias=False)
        self.bias = nn.Parameter(spacing * ((classes - 2) / 2 - torch.arange(classes - 1)))

    def forward(self, features: Tensor) -> Tensor:
        projected: Tensor = self.weight(features)
        return projected + self.bias


@dataclass(frozen=True, kw_only=True)
class Garg(SingleNetwork):
    needs: ClassVar[tuple[str, ...]] = ("transition",)
    inverse: Tensor = field(init=False, repr=False)  # P⁻¹

    def __post_init__(self) -> None:
        super().__post_init__()
        matrix = self.transition.cpu().numpy()
        condition = float(np.linalg.cond(matrix))
        if condition > 1e12:
            raise SrjtError("garg inverts the transition matrix, and this one is singular: use less noise.")
        if condition > ILL_CONDITIONED:
            warn(
                f"garg inverts the transition matrix, which is nearly singular here (condition number "
                f"{condition:.0f}, inverse entries up to {np.abs(np.linalg.inv(matrix)).max():.0f}): its loss "
                "amplifies sampling noise that much, so expect unstable results."
            )
        object.__setattr__(self, "inverse", torch.from_numpy(np.linalg.inv(matrix)))

    @property
    def outputs(self) -> int:
        return self.num_classes - 1

    def head(self, features: int, classes: int) -> nn.Module:
        """The published code starts its biases at 1, …, −1: with five grades no middle one can exceed 0.165."""
        spacing = 2.0 / max(classes - 2, 1) if self.convention == "published-code" else SPACING
        return OrdinalHead(features, classes, spacing=spacing)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return losses.garg(logits, targets, inverse=self.inverse)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Differences of Pr(grade > k), clamped at 0 (thresholds can cross) and renormalised."""
        above = torch.sigmoid(logits if logits.dtype == torch.float64 else logits.float())
        ones, zeros = torch.ones_like(above[..., :1]), torch.zeros_like(above[..., :1])
        differences = (torch.cat([ones, above], dim=-1) - torch.cat([above, zeros], dim=-1)).clamp(min=0)
        return differences / differences.sum(dim=-1, keepdim=True)

    def grades(self, logits: Tensor) -> Tensor:
        """The number of sigmoids above ½."""
        return (logits > 0).sum(dim=-1)

    def grades_of(self, probabilities: Tensor) -> Tensor:
        """The number of thresholds k with Pr(grade > k) above ½, which is the lower median."""
        return median_grade(probabilities)
