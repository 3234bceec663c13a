"""What a method is: a small pure object that turns logits and labels into a loss and a selection.

It knows nothing of images, devices, files or the bookkeeping of epochs. Logits carry the networks
on their first axis, (K, B, C) with K = 1 or 2, so that one training loop serves all methods.
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
from srjt.ordinal.losses import log_probabilities
from srjt.ordinal.selection import Convention
from srjt.settings import check_types, setting, show

Self = TypeVar("Self", bound="Method")
Keep = int | Tensor | None  # the number of samples to select, a 0-d tensor on the device; None: all
Memory = dict[str, Tensor] | None  # what a method remembers, see ``Method.memory``


class Loss(NamedTuple):
    """The result of ``Method.loss``."""

    total: Tensor  # () on which ``backward`` is called
    per_network: Tensor  # (K,) each network's own loss, detached, for reporting
    selected: Tensor  # (K, B) of bool: the samples that network k selected (the paper's B_k)


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """What a method must do, with the behaviour that most methods share.

    Subclasses that add fields are frozen dataclasses too: the fields are the method's options.
    Values of the wrong type are errors that name the option. The class variable ``networks`` is the
    number of networks, 1 or 2; ``needs`` names what must be known before training:
    ``"noise_rate"``, ``"transition"``; ``takes`` the targets besides grades: ``"probabilities"``,
    ``"likelihoods"``.

    Parameters
    ----------
    num_classes : int
        Number of grades.
    noise_rate : float, optional
        ε, the share of wrong labels, for methods that select samples or prune weights by it.
    transition : array-like, optional
        P[i, j] = Pr(label = j | true grade = i), shape (C, C), for methods that correct the loss by
        it.
    convention : {"paper", "published-code", "original"}
        Which to follow where descriptions differ: the paper's text, its authors' code, or the
        publications of the hosts themselves (JoCoR, CoDis, Co-teaching). For other methods
        ``"original"`` is the same as ``"paper"``.
    """

    networks: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()

    num_classes: int
    noise_rate: float | None = setting(None, ge=0, lt=1)
    transition: Any = None
    convention: Convention = "paper"

    def __post_init__(self) -> None:
        check_types(self)
        if self.num_classes < 2:
            raise SrjtError(
                f"A severity needs at least two grades; num_classes is {self.num_classes}.",
                code="too_few",
                option="num_classes",
            )
        for option, name in (("transition", "transition matrix"), ("label_matrix", "label matrix")):
            if hasattr(self, option):
                rows = as_rows(getattr(self, option), self.num_classes, name=name)
                object.__setattr__(self, option, rows)

    @property
    def outputs(self) -> int:
        """Number of logits per network and sample."""
        return self.num_classes

    @property
    def takes_probabilities(self) -> bool:
        """Whether targets may be probabilities (B, C), such as those of several readers."""
        return "probabilities" in self.takes

    @property
    def takes_likelihoods(self) -> bool:
        """Whether targets may be likelihoods (B, R, C) of R readings given each true grade."""
        return "likelihoods" in self.takes

    @classmethod
    def unused_options(cls) -> frozenset[str]:
        """Inherited fields that do nothing in this method, and so are none of its options."""
        return frozenset()

    def check_options(self) -> None:  # noqa: B027 (most methods have nothing to check)
        """An error if an option that was given does nothing. ``create`` calls it."""

    # ------------------------------------------------------------------ training

    def head(self, features: int, classes: int) -> nn.Module:
        """The last layer, from (B, features) to this method's logits."""
        return nn.Linear(features, classes)

    def prepare(
        self, x: Tensor, y: Tensor, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Change a batch before the forward pass: x (B, …), y → x (B, …), targets (B,) or (B, C).

        y: grades (B,), or probabilities (B, C) if the method takes them.
        """
        return x, y

    def keep(self, epoch: int, batch_size: int) -> int:
        """Number of samples of a batch to keep at this epoch (counted from 1). All, unless the
        method selects."""
        return batch_size

    def memory(self, samples: int) -> dict[str, Tensor]:
        """What the method remembers of ``samples`` training samples from step to step, by name.
        Most remember nothing.

        A method that remembers gets ``memory`` and ``rows`` (B,), the positions of the batch among
        the samples, in ``loss``, and changes the tensors in place; a ``SingleNetwork`` gets them in
        ``per_sample``, too, and a host of ``JointTraining`` in ``selection``. Two networks that
        remember different things have a tensor of shape (2, samples, …). The loop moves, saves and
        restores them, and sets one that is named ``progress`` to the share of the epochs that are
        done.
        """
        return {}

    @abstractmethod
    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        keep: Keep = None,
        memory: Memory = None,
        rows: Tensor | None = None,
    ) -> Loss:
        """The loss of a batch.

        Parameters
        ----------
        logits : Tensor, shape (K, B, C)
        targets : Tensor, shape (B,), (B, C) or (B, R, C)
            Grades; or probabilities, or likelihoods of readings, if the method takes them.
        keep : int or 0-d Tensor on the device, optional
            Number of samples to select. Default: all.
        memory : dict of Tensor, optional
            What the method remembers (see ``memory``). A method that remembers nothing need not
            take it.
        rows : Tensor, shape (B,), optional
            Positions of the batch among the training samples; given with ``memory``.
        """

    def adjust(self, parameters: Iterable[nn.Parameter]) -> None:  # noqa: B027 (most methods do nothing)
        """Change gradients in place between ``backward`` and the optimiser's step, per network."""

    # ---------------------------------------------------------------- evaluation

    def probabilities(self, logits: Tensor) -> Tensor:
        """(K, B, C) logits → (K, B, C) probabilities of the grades."""
        return log_probabilities(logits).exp()

    def grades(self, logits: Tensor) -> Tensor:
        """(K, B, C) logits → (K, B) predicted grades."""
        return logits.argmax(dim=-1)

    def grades_of(self, probabilities: Tensor) -> Tensor:
        """(K, B, C) probabilities, averaged over views of a sample, → (K, B) grades, by the rule of
        ``grades``."""
        return probabilities.argmax(dim=-1)

    def learnt_soft_labels(self) -> Tensor | None:
        """(C, C) the soft labels that the networks learn to predict instead of the labels; decoding
        undoes them.

        None for networks that predict the labels, or the true grades: p(true grade | label) is not
        undone.
        """
        return None

    # -------------------------------------------------------------- housekeeping

    def to(self: Self, device: torch.device | str) -> Self:
        """The same method with its constant matrices on ``device``: no transfer inside the training
        step."""
        moved = copy(self)  # not a new object: its fields are already checked
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                object.__setattr__(moved, name, value.to(device))
        return moved

    def check_shapes(self, logits: Tensor, targets: Tensor) -> None:
        """An error unless there is one row of logits per network and sample."""
        expected = (self.networks, len(targets), self.outputs)
        if tuple(logits.shape) != expected:
            raise SrjtError(
                f"For {len(targets)} targets {type(self).__name__} takes logits of shape {expected}"
                f" (networks, samples, outputs), not {tuple(logits.shape)}.",
                code="wrong_shape",
                option="logits",
            )


def as_rows(matrix: Any, num_classes: int, *, name: str) -> Tensor | None:
    """A (C, C) array or tensor whose rows are distributions, checked, as a float64 tensor; None
    stays."""
    if matrix is None:
        return None
    values = matrix.detach().cpu() if isinstance(matrix, Tensor) else matrix
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise SrjtError(
            f"A {name} takes {num_classes} rows of {num_classes} numbers each; got {show(values)}.",
            code="wrong_shape",
        ) from None
    checked = torch.from_numpy(
        np.array(noise.check_matrix(array, num_classes=num_classes, name=name))
    )
    if isinstance(matrix, Tensor):
        return checked.to(matrix.device)
    return checked


def remembered(memory: Memory, rows: Tensor | None) -> dict[str, Any]:
    """``memory`` and ``rows`` as further arguments, which only a method that remembers takes."""
    if not memory:
        return {}
    return {"memory": memory, "rows": rows}


class SingleNetwork(Method):
    """One network that learns from every sample. A subclass defines the loss of each sample,
    ``per_sample``."""

    @abstractmethod
    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(B, C) logits, targets → (B,) losses. A method that remembers gets ``memory`` and
        ``rows``, too."""

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        keep: Keep = None,
        memory: Memory = None,
        rows: Tensor | None = None,
    ) -> Loss:
        self.check_shapes(logits, targets)
        total = self.per_sample(logits[0], targets, **remembered(memory, rows)).mean()
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return Loss(total, total.detach()[None], everything)
