"""Expected absolute error: one network whose loss is smallest at the median of the noisy labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Loss, Method
from srjt.ordinal.losses import expected_absolute_error, hard_cross_entropy


@dataclass(frozen=True, kw_only=True)
class ExpectedAbsoluteError(Method):
    """Begins with cross-entropy, because the bounded loss alone can stall on the middle grade.

    Parameters
    ----------
    move_from, move_to : float
        Shares of the epochs: cross-entropy up to the first, the expected absolute error from the second, and a mixture
        that moves evenly from one to the other between.
    """

    move_from: float = 0.2
    move_to: float = 0.6

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.move_from < self.move_to <= 1.0:
            raise SrjtError(
                f"eae takes 0 ≤ move_from < move_to ≤ 1; got {self.move_from:g} and {self.move_to:g}."
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
        """Without ``memory``: the expected absolute error, as after the warm-up."""
        self.check_shapes(logits, targets)
        error = expected_absolute_error(logits[0], targets)
        if memory is not None:
            share = ((memory["progress"] - self.move_from) / (self.move_to - self.move_from)).clamp(0.0, 1.0)
            error = torch.lerp(hard_cross_entropy(logits[0], targets), error, share.to(error.dtype))
        total = error.mean()
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Loss(total, total.detach()[None], everything)
