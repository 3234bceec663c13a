"""What a method is: a small pure object that turns logits and labels into a loss and a selection.

It knows nothing of images, devices, files or epochs' bookkeeping. Logits carry the networks on their
first axis, (K, B, C) with K = 1 or 2, so that one training loop serves all methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from srjt import noise
from srjt.errors import SrjtError
from srjt.ordinal import decoding
from srjt.ordinal.losses import log_probabilities
from srjt.ordinal.selection import Convention, check_convention

__all__ = ["Loss", "Method", "SingleNetwork"]

Self = TypeVar("Self", bound="Method")


class Loss(NamedTuple):
    """What ``Method.loss`` gives back."""

    total: Tensor  # () the scalar that ``backward`` is called on
    per_network: Tensor  # (K,) each network's own loss, detached, for reporting
    selected: Tensor  # (K, B) bool; selected[k] is what network k chose (the paper's B_k)


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """The protocol, with the behaviour most methods share. Subclasses are frozen dataclasses too:
    their additional fields are the method's options."""

    networks: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ()  # of "noise_rate", "transition": what must be known beforehand

    num_classes: int
    noise_rate: float | None = None
    transition: Any = None  # (C, C), P[i, j] = Pr(label = j | true = i); array-like, kept as float64 tensor
    convention: Convention = "paper"

    def __post_init__(self) -> None:
        if self.num_classes < 2:
            raise SrjtError(f"A severity needs at least two grades; num_classes is {self.num_classes}.")
        check_convention(self.convention)
        if self.noise_rate is not None and not 0.0 <= self.noise_rate < 1.0:
            raise SrjtError(f"A noise rate lies in [0, 1); got {self.noise_rate:g}.")
        object.__setattr__(self, "transition", as_rows(self.transition, self.num_classes))

    @property
    def outputs(self) -> int:
        """How many logits a network gives per sample."""
        return self.num_classes

    # ------------------------------------------------------------------ training

    def head(self, features: int, classes: int) -> nn.Module:
        """The last layer, from (B, features) to this method's logits."""
        return nn.Linear(features, classes)

    def prepare(
        self, x: Tensor, y: Tensor, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Change a batch before the forward pass: x (B, …), y (B,) → x (B, …), targets (B,) or (B, C)."""
        return x, y

    def keep(self, epoch: int, batch_size: int) -> int:
        """How many of a batch are taken as clean at this epoch (from 1). All, unless the method selects."""
        return batch_size

    @abstractmethod
    def loss(self, logits: Tensor, targets: Tensor, *, keep: int | Tensor | None = None) -> Loss:
        """logits: (K, B, C), targets: (B,) grades (or (B, C) probabilities where the method takes them);
        keep: how many to select (None: all), an int or a 0-d tensor on the device."""

    def adjust(self, parameters: Iterable[nn.Parameter]) -> None:  # noqa: B027 (most methods do nothing)
        """Change gradients in place between ``backward`` and the optimiser's step, per network."""

    # ---------------------------------------------------------------- evaluation

    def probabilities(self, logits: Tensor) -> Tensor:
        """(K, B, C) logits → (K, B, C) probabilities of the grades."""
        return log_probabilities(logits).exp()

    def grades(self, logits: Tensor) -> Tensor:
        """(K, B, C) logits → (K, B) predicted grades."""
        return decoding.most_likely_grade(logits)

    def grades_of(self, probabilities: Tensor) -> Tensor:
        """(K, B, C) probabilities, averaged over views of a sample, → (K, B) grades, by the rule of ``grades``."""
        return decoding.most_likely_grade(probabilities)

    # -------------------------------------------------------------- housekeeping

    def to(self: Self, device: torch.device | str) -> Self:
        """The same method with its constant matrices on ``device``: no transfer inside the training step."""
        moved = copy(self)  # what was checked and derived stays so
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                object.__setattr__(moved, name, value.to(device))
        return moved

    def check_shapes(self, logits: Tensor, targets: Tensor) -> None:
        """An error unless there is one row of logits per network and sample."""
        expected = (self.networks, len(targets), self.outputs)
        if tuple(logits.shape) != expected:
            raise SrjtError(
                f"For {len(targets)} targets {type(self).__name__} takes logits of shape {expected} "
                f"(networks, samples, outputs), not {tuple(logits.shape)}."
            )


def as_rows(matrix: Any, num_classes: int, *, name: str = "transition matrix") -> Tensor | None:
    """A (C, C) array or tensor whose rows are distributions, checked, as a float64 tensor; None stays."""
    if matrix is None:
        return None
    values = matrix.detach().cpu() if isinstance(matrix, Tensor) else matrix
    checked = torch.from_numpy(np.array(noise.check_matrix(values, num_classes=num_classes, name=name)))
    return checked.to(matrix.device) if isinstance(matrix, Tensor) else checked


class SingleNetwork(Method):
    """One network that learns from every sample: only the loss per sample remains to be said."""

    @abstractmethod
    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(B, C) logits, targets → (B,) losses."""

    def loss(self, logits: Tensor, targets: Tensor, *, keep: int | Tensor | None = None) -> Loss:
        self.check_shapes(logits, targets)
        total = self.per_sample(logits[0], targets).mean()
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Loss(total, total.detach()[None], everything)
