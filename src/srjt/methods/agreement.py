"""Our recipe: two networks learn from every label by a loss that noise misleads little, and agree on every image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Loss, Method
from srjt.methods.eae import moving
from srjt.ordinal.losses import expected_absolute_error, forward_corrected, hard_cross_entropy, jeffreys


@dataclass(frozen=True, kw_only=True)
class Agreement(Method):
    """Two networks, and no selection: wrong labels that each memorises differ, and agreement on all images, which needs
    no label, undoes both.

    With a transition matrix the loss is forward correction. Without one it is the expected absolute error after
    cross-entropy, as in ``eae``, which needs no matrix.

    Parameters
    ----------
    co_lambda : float
        λ, the weight of the Jeffreys divergence between the networks.
    move_from, move_to : float
        Without a matrix: shares of the epochs between which the loss moves from cross-entropy to the expected absolute
        error.
    """

    networks: ClassVar[int] = 2
    uses: ClassVar[tuple[str, ...]] = ("transition",)

    co_lambda: float = 4.0
    move_from: float = 0.2
    move_to: float = 0.6

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.co_lambda < math.inf:
            raise SrjtError(
                f"co_lambda, the weight of the divergence, is not negative; got {self.co_lambda:g}."
            )
        if not 0.0 <= self.move_from < self.move_to <= 1.0:
            raise SrjtError(
                f"srjt takes 0 ≤ move_from < move_to ≤ 1; got {self.move_from:g} and {self.move_to:g}."
            )

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
        """Without ``memory``: as after the move."""
        self.check_shapes(logits, targets)
        labels = targets.expand(len(logits), -1)
        if self.transition is not None:
            own = forward_corrected(logits, labels, transition=self.transition)
        else:
            own = expected_absolute_error(logits, labels)
            if memory is not None:
                own = moving(
                    hard_cross_entropy(logits, labels), own, memory["progress"], self.move_from, self.move_to
                )
        per_network = own.mean(dim=-1)  # (2,)
        total = per_network.sum() + self.co_lambda * jeffreys(logits[0], logits[1], reduction="mean")
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Loss(total, per_network.detach(), everything)
