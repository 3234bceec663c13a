"""Our recipe: two networks learn from every label through the matrix of label errors, and agree on every image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Loss, Method
from srjt.ordinal.losses import forward_corrected, jeffreys, soft_cross_entropy


@dataclass(frozen=True, kw_only=True)
class ForwardAgreement(Method):
    """Forward correction of both networks, plus their Jeffreys divergence on all samples; none is discarded.

    Two networks memorise different wrong labels, and they do so late. Agreement, which needs no label, undoes both. Its
    weight grows evenly from 0 to λ over the training: networks that have learnt little yet are not held back.

    Parameters
    ----------
    co_lambda : float
        λ, the weight of the divergence at the end of the training.
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

    def memory(self, samples: int) -> dict[str, Tensor]:
        return {"progress": torch.zeros(())}

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        keep: int | Tensor | None = None,
        memory: dict[str, Tensor] | None = None,
        rows: Tensor | None = None,
    ) -> Loss:
        """Without ``memory``: as at the end of the training."""
        self.check_shapes(logits, targets)
        if (
            targets.ndim == 2
        ):  # several readers' probabilities of the true grades: there is nothing to correct
            own = soft_cross_entropy(logits, targets).mean(dim=-1)  # (2,)
        else:
            labels = targets.expand(len(logits), -1)
            own = forward_corrected(logits, labels, transition=self.transition).mean(dim=-1)
        disagreement = jeffreys(logits[0], logits[1], reduction="mean")
        if memory is not None:
            disagreement = disagreement * memory["progress"].to(disagreement.dtype)
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Loss(own.sum() + self.co_lambda * disagreement, own.detach(), everything)
