"""Our recipe: two networks learn from every label by a loss that noise misleads little, and agree on every image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Loss, Method
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
    ramp : float
        Share of the epochs in which that weight grows from 0 to λ: networks that have learnt nothing yet must not be
        held back.
    move_from, move_to : float
        Without a matrix: shares of the epochs between which the loss moves from cross-entropy to the expected absolute
        error.
    """

    networks: ClassVar[int] = 2
    uses: ClassVar[tuple[str, ...]] = ("transition",)

    co_lambda: float = 4.0
    ramp: float = 0.2
    move_from: float = 0.2
    move_to: float = 0.6

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.co_lambda < math.inf:
            raise SrjtError(
                f"co_lambda, the weight of the divergence, is not negative; got {self.co_lambda:g}."
            )
        if not (0.0 <= self.ramp <= 1.0 and 0.0 <= self.move_from < self.move_to <= 1.0):
            raise SrjtError(
                "ramp, move_from and move_to are shares of the epochs, and move_from is below move_to; got "
                f"{self.ramp:g}, {self.move_from:g} and {self.move_to:g}."
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
        """Without ``memory``: as after the ramp and the move."""
        self.check_shapes(logits, targets)
        progress = logits.new_ones(()) if memory is None else memory["progress"]
        labels = targets.expand(len(logits), -1)
        if self.transition is not None:
            own = forward_corrected(logits, labels, transition=self.transition)
        else:
            moved = ((progress - self.move_from) / (self.move_to - self.move_from)).clamp(0.0, 1.0)
            error = expected_absolute_error(logits, labels)
            own = torch.lerp(hard_cross_entropy(logits, labels), error, moved.to(error.dtype))
        weight = self.co_lambda * (progress / max(self.ramp, 1e-6)).clamp(max=1.0)
        per_network = own.mean(dim=-1)  # (2,)
        total = per_network.sum() + weight * jeffreys(logits[0], logits[1], reduction="mean")
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Loss(total, per_network.detach(), everything)
