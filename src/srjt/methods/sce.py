"""Symmetric cross-entropy (Wang et al., ICCV 2019): cross-entropy, plus that of the label under the prediction."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import SingleNetwork
from srjt.ordinal.losses import hard_cross_entropy


@dataclass(frozen=True, kw_only=True)
class SymmetricCrossEntropy(SingleNetwork):
    """α · cross-entropy + β · reverse cross-entropy. The defaults are the authors' for ten classes (CIFAR-10)."""

    alpha: float = 0.1
    beta: float = 1.0
    log_zero: float = -4.0  # A: what log 0 of the grades that are not the label counts as

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.alpha >= 0.0 and self.beta >= 0.0 and self.log_zero < 0.0):
            raise SrjtError(
                "sce takes alpha ≥ 0, beta ≥ 0 and log_zero < 0; "
                f"got {self.alpha:g}, {self.beta:g} and {self.log_zero:g}."
            )

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        loss = hard_cross_entropy(logits, targets)
        reverse = self.log_zero * (-loss).expm1()  # −Σ_c p^c log l^c = −A (1 − p^ỹ) for a hard label l
        return self.alpha * loss + self.beta * reverse
