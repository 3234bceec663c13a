"""Joint training: two networks pick clean samples for each other. One framework, three switches.

    exchange   peer: each network learns from the other's choice; common: both from one choice
    select     the loss that ranks samples: hard (with temperature τ) or soft
    update     the loss that is learnt from: hard or soft

A host says how a sample is scored; ``select="hard", update="hard"`` is the original method,
``"hard", "soft"`` the paper's "+Ours" (Algorithms 1–3), and the other cells come free.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from srjt.errors import SrjtError, suggest
from srjt.methods.base import Loss, Method, as_rows
from srjt.methods.relaxation import relax
from srjt.ordinal.losses import hard_cross_entropy, soft_cross_entropy
from srjt.ordinal.selection import keep_count, keep_rate, select_smallest

LabelKind = Literal["hard", "soft"]
SHARPENED = 0.1  # the paper's τ for "+Ours"


@dataclass(frozen=True, kw_only=True)
class JointTraining(Method):
    """Two networks and a selection; hosts implement ``score`` and, if they exchange nothing, ``combine``."""

    networks: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("noise_rate",)

    select: LabelKind = "hard"
    update: LabelKind = "hard"
    temperature: float | None = None  # τ of a hard selection; None: 0.1 when the update is soft, else 1
    co_lambda: float = 0.1  # λ, the weight of the divergence D (hosts without D ignore it)
    per_class: bool = False  # keep the same share within each grade
    ramp_epochs: int | None = None  # T' of R(T); None: 5 (paper) or 10 (published code)
    label_matrix: Any = None  # (C, C) rows instead of Eq. 3's soft labels

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in (self.select, self.update):
            if kind not in ("hard", "soft"):
                raise suggest("kind of label", kind, ("hard", "soft"))
        if self.temperature is not None and self.select == "soft":
            raise SrjtError("temperature sharpens a hard selection only; with select='soft' it does nothing.")
        if self.temperature is not None and not self.temperature > 0:
            raise SrjtError(f"A temperature is positive, not {self.temperature:g}.")
        if not 0.0 <= self.co_lambda < math.inf:
            raise SrjtError(
                f"co_lambda, the weight of the divergence, is not negative; got {self.co_lambda:g}."
            )
        if self.label_matrix is not None and "soft" not in (self.select, self.update):
            raise SrjtError("label_matrix replaces soft labels, but here both select and update are 'hard'.")
        object.__setattr__(
            self, "label_matrix", as_rows(self.label_matrix, self.num_classes, name="label matrix")
        )

    @property
    def tau(self) -> float:
        """The temperature of everything inside the selection score."""
        if self.select == "soft":
            return 1.0
        if self.temperature is not None:
            return self.temperature
        return SHARPENED if self.update == "soft" else 1.0

    def keep(self, epoch: int, batch_size: int) -> int:
        if self.noise_rate is None:
            raise SrjtError("How many samples to keep follows from the noise rate, which is not known here.")
        rate = keep_rate(
            epoch, noise_rate=self.noise_rate, ramp_epochs=self.ramp_epochs, convention=self.convention
        )
        return keep_count(batch_size, rate, convention=self.convention)

    def loss(self, logits: Tensor, targets: Tensor, *, keep: int | Tensor | None = None) -> Loss:
        self.check_shapes(logits, targets)
        if targets.ndim != 1:
            raise SrjtError(f"Joint training takes grades (B,), not targets of shape {tuple(targets.shape)}.")
        if keep is None:
            keep = len(targets)
        keep = keep.clamp(min=1) if isinstance(keep, Tensor) else max(1, int(keep))  # never nothing
        with torch.no_grad():  # a rank has no gradient
            score = self.score(self._losses(logits, targets, self.select, self.tau), logits)
            selected = select_smallest(
                score,
                keep=keep,
                labels=targets if self.per_class else None,
            )
        return self.combine(self._losses(logits, targets, self.update, 1.0), logits, selected)

    def _losses(self, logits: Tensor, labels: Tensor, kind: LabelKind, tau: float) -> Tensor:
        """(2, B) each network's loss on each sample."""
        if kind == "hard":
            return hard_cross_entropy(logits, labels.expand(len(logits), -1), temperature=tau)
        return soft_cross_entropy(logits, relax(labels, self.num_classes, self.label_matrix))

    @abstractmethod
    def score(self, losses: Tensor, logits: Tensor) -> Tensor:
        """(2, B) losses at the selection's τ, (2, B, C) logits → (2, B) scores, small = clean."""

    def combine(self, losses: Tensor, logits: Tensor, selected: Tensor) -> Loss:
        """(2, B) update losses and selections → what is learnt. Here: from the *other's* choice (Eq. 5)."""
        per_network = masked_mean(losses, selected.flip(0))
        return Loss(per_network.sum(), per_network.detach(), selected)


def masked_mean(losses: Tensor, mask: Tensor) -> Tensor:
    """(..., B) → (...,) mean where the mask is true. ``where``, not 0·loss: 0·∞ would be nan."""
    return torch.where(mask, losses, 0.0).sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)
