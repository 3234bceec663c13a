"""The losses and methods as modules of PyTorch, for a training loop of your own.

``OrdinalLoss`` is any method with one network, used like ``nn.CrossEntropyLoss``. ``JointLoss`` is
any method with two networks. Both move with ``.to(device)``, are saved with ``state_dict``, and
carry what a method needs besides the loss: how many samples to keep (``set_epoch``), what it
remembers of each sample (``rows``), and what it does with gradients (``adjust``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from srjt import methods
from srjt.errors import SrjtError, unknown_name
from srjt.methods.base import Method, SingleNetwork

__all__ = ["JointLoss", "OrdinalLoss"]

Reduction = Literal["mean", "sum", "none"]


class MethodModule(nn.Module):
    """What both kinds of losses have in common.

    Parameters
    ----------
    method : str
        Name of a method, see ``srjt.methods.names()``.
    num_classes : int
        C, the number of grades.
    samples : int, optional
        N, the number of training samples, for methods that remember something of each of them.
    **options
        ``noise_rate``, ``transition`` and the options of the method.
    """

    def __init__(
        self, method: str, *, num_classes: int, samples: int | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.method: Method = methods.create(method, num_classes=num_classes, **options)
        self.name = method
        self.epoch: int | None = None
        for name, tensor in self.method.memory(samples or 0).items():
            self.register_buffer(name, tensor)
        self._remembered = tuple(self.method.memory(0))
        self._samples = samples

    @property
    def outputs(self) -> int:
        """Number of logits that a network must have for each sample."""
        return self.method.outputs

    def head(self, features: int) -> nn.Module:
        """The last layer that the method wants, from (B, features) to (B, outputs)."""
        return self.method.head(features, self.method.num_classes)

    def prepare(
        self, x: Tensor, y: Tensor, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Change a batch before the forward pass, as Mixup does: x (B, …), y (B,) → x (B, …),
        targets."""
        return self.method.prepare(x, y, generator=generator)

    def set_epoch(self, epoch: int, *, epochs: int | None = None) -> None:
        """Call it at the start of each epoch, counted from 1.

        Methods that select samples keep fewer of them from epoch to epoch. ``epochs``, the length
        of the training, is needed by methods whose loss changes with its progress.
        """
        if epoch < 1:
            raise SrjtError(
                f"Epochs are counted from 1; got {epoch}.", code="out_of_bounds", option="epoch"
            )
        self.epoch = epoch
        if "progress" in self._remembered:
            if epochs is None:
                raise SrjtError(
                    f"The loss of {self.name} changes with the progress of the training: pass"
                    " epochs.",
                    code="missing_option",
                    option="epochs",
                )
            self.get_buffer("progress").fill_((epoch - 1) / epochs)

    def adjust(self, parameters: Iterable[nn.Parameter]) -> None:
        """Call it between ``backward`` and the optimizer's step, once for each network: CDR changes
        gradients."""
        self.method.adjust(parameters)

    def probabilities(self, logits: Tensor) -> Tensor:
        """(B, outputs) logits of a network → (B, C) probabilities of the grades."""
        return self._on(logits.device).probabilities(logits[None])[0]

    def grades(self, logits: Tensor) -> Tensor:
        """(B, outputs) logits of a network → (B,) predicted grades."""
        return self._on(logits.device).grades(logits[None])[0]

    def extra_repr(self) -> str:
        return f"{self.name!r}, num_classes={self.method.num_classes}"

    def _on(self, device: torch.device) -> Method:
        """The method with its constant matrices on this device."""
        self.method = self.method.to(device)
        return self.method

    def _memory(self, rows: Tensor | None) -> dict[str, Any]:
        """Further arguments of the loss."""
        if not self._remembered:
            return {}
        of_samples = set(self._remembered) - {"progress"}
        if of_samples and (rows is None or self._samples is None):
            raise SrjtError(
                f"{self.name} remembers each training sample: create it with samples, their number,"
                " and pass rows, the positions of the batch among them.",
                code="missing_option",
                option="samples",
            )
        if "progress" in self._remembered and self.epoch is None:
            raise SrjtError(
                f"The loss of {self.name} changes with the progress of the training: call"
                " set_epoch.",
                code="missing_option",
                option="epoch",
            )
        return {"memory": {name: self.get_buffer(name) for name in self._remembered}, "rows": rows}


class OrdinalLoss(MethodModule):
    """The loss of a method with one network.

    Parameters
    ----------
    method : str
        Such as ``"sord"`` (soft labels, Eq. 3 and 5), ``"eae"``, ``"corn"``, ``"f-correction"``,
        ``"gce"``.
    num_classes : int
        C, the number of grades.
    reduction : {"mean", "sum", "none"}
        As in PyTorch's own losses.
    class_weights : array_like, shape (C,), optional
        Weight of each grade. The mean divides by the weights of the batch, as
        ``nn.CrossEntropyLoss`` does.
    samples : int, optional
        N, the number of training samples, for methods that remember something of each of them.
    **options
        ``noise_rate``, ``transition`` and the options of the method.

    Examples
    --------
    >>> import torch
    >>> from srjt.torch import OrdinalLoss
    >>> loss = OrdinalLoss("sord", num_classes=4)
    >>> float(loss(torch.zeros(8, 4), torch.zeros(8, dtype=torch.long)).round(decimals=4))
    1.3863
    """

    def __init__(
        self,
        method: str = "sord",
        *,
        num_classes: int,
        reduction: Reduction = "mean",
        class_weights: Any = None,
        samples: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(method, num_classes=num_classes, samples=samples, **options)
        if not isinstance(self.method, SingleNetwork):
            raise SrjtError(
                f"{method} trains two networks: use srjt.torch.JointLoss.",
                code="unsupported",
                option="method",
            )
        if reduction not in get_args(Reduction):
            raise unknown_name("reduction", reduction, get_args(Reduction))
        self.reduction = reduction
        weights = (
            None if class_weights is None else torch.as_tensor(class_weights, dtype=torch.float32)
        )
        if weights is not None and weights.shape != (num_classes,):
            raise SrjtError(
                f"There are {num_classes} grades, but class_weights has shape"
                f" {tuple(weights.shape)}.",
                code="wrong_shape",
                option="class_weights",
            )
        self.class_weights: Tensor | None
        self.register_buffer("class_weights", weights)

    def forward(self, logits: Tensor, targets: Tensor, *, rows: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Parameters
        ----------
        logits : Tensor, shape (B, outputs)
        targets : Tensor, shape (B,) or (B, C)
            Grades, or probabilities if the method takes them.
        rows : Tensor of int64, shape (B,), optional
            Positions of the batch among the training samples, for methods that remember.

        Returns
        -------
        Tensor, shape () or (B,)
        """
        method = self._on(logits.device)
        assert isinstance(method, SingleNetwork)
        method.check_shapes(logits[None], targets)
        losses = method.per_sample(logits, targets, **self._memory(rows))
        weights = torch.ones_like(losses)
        if self.class_weights is not None:
            weights = self._weights_of(targets).to(losses.dtype)
        if self.reduction == "none":
            return weights * losses
        total = (weights * losses).sum()
        if self.reduction == "mean":
            return total / weights.sum()
        return total

    def _weights_of(self, targets: Tensor) -> Tensor:
        """(B,) weights of samples: that of the grade, or its mean over the probabilities of the
        grades."""
        assert self.class_weights is not None
        if targets.is_floating_point():
            return targets.to(self.class_weights.dtype) @ self.class_weights
        return self.class_weights[targets]


class JointLoss(MethodModule):
    """The loss of a method with two networks, which select samples for each other.

    After each call ``selected`` (2, B) tells which samples each network selected, and
    ``per_network`` (2,) is the loss of each network.

    Parameters
    ----------
    method : str
        Such as ``"co-teaching+ours"``, ``"jocor+ours"``, ``"codis+ours"`` or ``"srjt"``.
    num_classes : int
        C, the number of grades.
    samples : int, optional
        N, the number of training samples, for methods that remember something of each of them.
    **options
        ``noise_rate``, ``transition`` and the options of the method.

    Examples
    --------
    >>> import torch
    >>> from srjt.torch import JointLoss
    >>> loss = JointLoss("co-teaching+ours", num_classes=4, noise_rate=0.4)
    >>> loss.set_epoch(5)
    >>> labels = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
    >>> total = loss(torch.randn(10, 4), torch.randn(10, 4), labels)
    >>> loss.selected.sum(dim=1).tolist()
    [6, 6]
    """

    def __init__(
        self, method: str, *, num_classes: int, samples: int | None = None, **options: Any
    ) -> None:
        super().__init__(method, num_classes=num_classes, samples=samples, **options)
        if self.method.networks != 2:
            raise SrjtError(
                f"{method} trains one network: use srjt.torch.OrdinalLoss.",
                code="unsupported",
                option="method",
            )
        self.selected: Tensor | None = None
        self.per_network: Tensor | None = None

    def forward(
        self, first: Tensor, second: Tensor, targets: Tensor, *, rows: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch, to call ``backward`` on: each network gets the gradient of its own
        loss.

        Parameters
        ----------
        first, second : Tensor, shape (B, outputs)
            Logits of the two networks.
        targets : Tensor, shape (B,) or (B, C)
            Grades, or probabilities if the method takes them.
        rows : Tensor of int64, shape (B,), optional
            Positions of the batch among the training samples, for methods that remember.

        Returns
        -------
        Tensor, shape ()
        """
        method = self._on(first.device)
        if self.epoch is None and "noise_rate" in method.needs:
            raise SrjtError(
                f"How many samples {self.name} keeps depends on the epoch: call set_epoch first.",
                code="missing_option",
                option="epoch",
            )
        keep = None if self.epoch is None else method.keep(self.epoch, len(targets))
        loss = method.loss(torch.stack([first, second]), targets, keep=keep, **self._memory(rows))
        self.selected = loss.selected
        self.per_network = loss.per_network
        return loss.total
