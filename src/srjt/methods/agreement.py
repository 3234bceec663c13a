"""Our recipe: two networks learn from every label through the matrix of label errors, and agree on every image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Loss, Method
from srjt.ordinal.losses import forward_corrected, hard_cross_entropy, jeffreys, soft_cross_entropy


@dataclass(frozen=True, kw_only=True)
class ForwardAgreement(Method):
    """Forward correction of both networks, plus their Jeffreys divergence on all samples; none is discarded.

    Two networks memorise different wrong labels. Agreement, which needs no label, undoes both. Its weight is λ times
    the mean probability of the given labels: networks that have learnt little yet are not held back.

    Parameters
    ----------
    co_lambda : float
        λ, the weight of the divergence once the labels are fitted.
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

    @property
    def takes_probabilities(self) -> bool:
        return True

    def loss(self, logits: Tensor, targets: Tensor, *, keep: int | Tensor | None = None) -> Loss:
        self.check_shapes(logits, targets)
        if (
            targets.ndim == 2
        ):  # probabilities of the true grades, by several readers: there is nothing to correct
            own = soft_cross_entropy(logits, targets).mean(dim=-1)  # (2,)
            fitted = (logits.detach().softmax(dim=-1) * targets).sum(dim=-1).mean()
        else:
            labels = targets.expand(len(logits), -1)
            own = forward_corrected(logits, labels, transition=self.transition).mean(dim=-1)
            with torch.no_grad():
                fitted = (-hard_cross_entropy(logits, labels)).exp().mean()
        total = own.sum() + self.co_lambda * fitted * jeffreys(logits[0], logits[1], reduction="mean")
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Loss(total, own.detach(), everything)
