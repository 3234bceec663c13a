"""Our recipe: two networks learn from every label through the matrix of label errors, and agree on every image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Loss, Method
from srjt.ordinal.losses import forward_corrected, hard_cross_entropy, jeffreys, soft_cross_entropy


@dataclass(frozen=True, kw_only=True)
class ForwardAgreement(Method):
    """Forward correction of both networks, plus their Jeffreys divergence on all samples; none is discarded.

    Two networks memorise different wrong labels. Agreement, which needs no label, undoes both. Its weight grows, so
    that networks that have learnt little yet are not held back.

    Parameters
    ----------
    co_lambda : float
        λ, the weight of the divergence.
    grows_with : {"training", "fit"}
        The weight is λ times the share of the epochs that are done, or λ times the mean probability of the given
        labels. Heads on features fit the labels within a few epochs, and memorise them as soon; networks that also
        learn their features need more time.
    """

    networks: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("transition",)

    co_lambda: float = 4.0
    grows_with: Literal["training", "fit"] = "training"

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
        return {"progress": torch.zeros(())} if self.grows_with == "training" else {}

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        keep: int | Tensor | None = None,
        memory: dict[str, Tensor] | None = None,
        rows: Tensor | None = None,
    ) -> Loss:
        """Without ``memory``, ``grows_with="training"`` is as at the end of the training."""
        self.check_shapes(logits, targets)
        if targets.ndim == 2:  # probabilities of the true grades, by several readers: nothing to correct
            own = soft_cross_entropy(logits, targets).mean(dim=-1)  # (2,)
        else:
            labels = targets.expand(len(logits), -1)
            own = forward_corrected(logits, labels, transition=self.transition).mean(dim=-1)
        disagreement = jeffreys(logits[0], logits[1], reduction="mean")
        if self.grows_with == "fit":
            disagreement = disagreement * _fit(logits, targets)
        elif memory is not None:
            disagreement = disagreement * memory["progress"].to(disagreement.dtype)
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Loss(own.sum() + self.co_lambda * disagreement, own.detach(), everything)


@torch.no_grad()
def _fit(logits: Tensor, targets: Tensor) -> Tensor:
    """() the mean probability of the labels (B,), or of labels with probabilities (B, C)."""
    if targets.ndim == 2:
        return (logits.softmax(dim=-1) * targets).sum(dim=-1).mean()
    return (-hard_cross_entropy(logits, targets.expand(len(logits), -1))).exp().mean()
