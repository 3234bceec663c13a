"""Two networks that learn from every label through the matrix of label errors, and agree on every image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Loss, Method
from srjt.ordinal.losses import forward_corrected, jeffreys


@dataclass(frozen=True, kw_only=True)
class ForwardAgreement(Method):
    """Forward correction of both networks, plus λ times their Jeffreys divergence; no sample is discarded.

    Two networks memorise different wrong labels. Agreement on all images, which needs no label, undoes both.

    Parameters
    ----------
    co_lambda : float
        λ, the weight of the divergence.
    """

    networks: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("transition",)

    co_lambda: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.co_lambda < math.inf:
            raise SrjtError(
                f"co_lambda, the weight of the divergence, is not negative; got {self.co_lambda:g}."
            )

    def loss(self, logits: Tensor, targets: Tensor, *, keep: int | Tensor | None = None) -> Loss:
        self.check_shapes(logits, targets)
        labels = targets.expand(len(logits), -1)
        own = forward_corrected(logits, labels, transition=self.transition).mean(dim=-1)  # (2,)
        total = own.sum() + self.co_lambda * jeffreys(logits[0], logits[1], reduction="mean")
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Loss(total, own.detach(), everything)
