"""Class distance weighted cross-entropy (Polat et al., MIUA 2022): a far grade costs more than a near one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import SingleNetwork
from srjt.ordinal.losses import log_probabilities


@dataclass(frozen=True, kw_only=True)
class ClassDistanceWeighted(SingleNetwork):
    """−Σ_c |c − ỹ|^α log(1 − p^c): it pushes other grades down, and does not ask for the label itself.

    It is no proper score: its probabilities order the grades, and are not those of the labels.
    """

    alpha: float = 5.0  # common for LIMUC's four grades; the authors choose it for each network

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.alpha < math.inf:
            raise SrjtError(f"alpha of cdw-ce, the power of the distance, is positive; got {self.alpha:g}.")

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_p = log_probabilities(logits)
        grade = torch.arange(self.num_classes, device=log_p.device)
        # 1 − p^c is the sum of the other probabilities: its logarithm is finite where p^c rounds to 1
        others = log_p[:, None, :].masked_fill(grade == grade[:, None], -math.inf)  # (B, C, C)
        weight = (grade - targets[:, None]).abs().to(log_p.dtype) ** self.alpha  # (B, C)
        return -(weight * others.logsumexp(dim=-1)).sum(dim=-1)
