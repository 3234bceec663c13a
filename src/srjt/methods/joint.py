"""Joint training: two networks select clean samples for each other. One framework, three switches.

    exchange   peer: each network learns from the other's selection; common: both from one selection
    select     the loss that ranks samples: hard (with temperature τ) or soft
    update     the loss to learn from: hard or soft

A host (Co-teaching, JoCoR, CoDis) defines how a sample is scored. ``select="hard", update="hard"`` is the host as the
paper describes it, ``"hard", "soft"`` is the paper's "+Ours" (Algorithms 1–3); the other combinations complete its
ablation. With ``convention="original"`` a host follows its own publication, which differs from the paper's description.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Loss, Method, as_rows
from srjt.ordinal.labels import soft_label_matrix, soft_labels
from srjt.ordinal.losses import hard_cross_entropy, soft_cross_entropy
from srjt.ordinal.selection import keep_count, keep_rate, select_smallest

LabelKind = Literal["hard", "soft"]
SHARPENED = 0.1  # the paper's τ for "+Ours"


@dataclass(frozen=True, kw_only=True)
class JointTraining(Method):
    """Two networks and a selection. A subclass, called a host, defines ``score`` and, if the networks do not exchange
    their selections, ``combine``.

    Parameters
    ----------
    select, update : {"hard", "soft"}
        The label whose loss ranks the samples, and the label to learn from.
    temperature : float, optional
        τ of a hard selection. Default: 0.1 if the update is soft, else 1.
    co_lambda : float
        λ, the weight of the divergence D between the networks; hosts without D ignore it.
    per_class : bool
        Keep the same share within each grade.
    ramp_epochs : int, optional
        T' of the keep rate R(T): epochs until only 1 − ε is kept. Default: 5 (paper) or 10 (published code, original).
    label_matrix : array-like, optional
        Soft labels by given grade, shape (C, C), instead of those of Eq. 3.
    """

    networks: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("noise_rate",)

    select: LabelKind = "hard"
    update: LabelKind = "hard"
    temperature: float | None = None
    co_lambda: float = 0.1
    per_class: bool = False
    ramp_epochs: int | None = None
    label_matrix: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature is not None and self.select == "soft":
            raise SrjtError("temperature sharpens a hard selection only; with select='soft' it does nothing.")
        if self.temperature is not None and not self.temperature > 0:
            raise SrjtError(f"A temperature is positive, not {self.temperature:g}.")
        keep_rate(
            1, noise_rate=0.0, ramp_epochs=self.ramp_epochs
        )  # an impossible ramp is an error now, not at epoch 1
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
            raise SrjtError(
                "The number of samples to keep follows from the noise rate, which is not given here."
            )
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
        keep = (
            keep.clamp(min=1) if isinstance(keep, Tensor) else max(1, int(keep))
        )  # never an empty selection
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
        return soft_cross_entropy(logits, soft_labels(labels, self.num_classes, matrix=self.label_matrix))

    def learnt_soft_labels(self) -> Tensor | None:
        from_eq_3 = self.update == "soft" and self.label_matrix is None
        return soft_label_matrix(self.num_classes) if from_eq_3 else None

    @abstractmethod
    def score(self, losses: Tensor, logits: Tensor) -> Tensor:
        """(2, B) losses at the selection's τ, (2, B, C) logits → (2, B) scores, small = clean."""

    def combine(self, losses: Tensor, logits: Tensor, selected: Tensor) -> Loss:
        """(2, B) update losses and selections → the loss. Here each network learns from the *other's* selection
        (Eq. 5)."""
        per_network = masked_mean(losses, selected.flip(0))
        return Loss(per_network.sum(), per_network.detach(), selected)


def masked_mean(losses: Tensor, mask: Tensor) -> Tensor:
    """(..., B) → (...,) mean where the mask is true. ``where``, not 0·loss: 0·∞ would be nan."""
    return torch.where(mask, losses, 0.0).sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)
