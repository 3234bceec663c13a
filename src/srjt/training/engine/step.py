"""One update of all networks, written once: run eagerly, compiled, or captured in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from srjt.methods import Method
from srjt.training.config import TrainConfig
from srjt.training.engine.recorder import Recorder

__all__ = ["Step", "make_optimizer", "set_learning_rate"]


def make_optimizer(parameters: Any, *, config: TrainConfig, device: torch.device) -> torch.optim.Adam:
    """Adam with L2 regularisation, or AdamW. On a GPU its step count and learning rate are tensors on the device."""
    assert config.weight_decay is not None, "for_data chooses it"
    on_gpu = device.type == "cuda"
    rate = config.learning_rate_at(1)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(
        parameters,
        lr=torch.tensor(rate, device=device) if on_gpu else rate,
        weight_decay=config.weight_decay,
        fused=True,
        capturable=on_gpu,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@dataclass(frozen=True, kw_only=True)
class Step:
    """Forward, select, backward, update, record. No host synchronisation."""

    networks: nn.Module  # (B, …) → (K, B, C); a StackedNetworks, or one wrapped by DistributedDataParallel
    method: Method
    optimizer: torch.optim.Optimizer
    recorder: Recorder
    keep: Tensor  # () int64 on the device: R(T)·|B|, which changes while a captured graph stays
    memory: dict[str, Tensor] = field(default_factory=dict)  # the method's, on the device
    amp: torch.dtype | None = None
    gather: Callable[[Tensor], Tensor] | None = None  # this process's batch → the global batch, on axis −2
    gather_targets: Callable[[Tensor], Tensor] | None = None
    loss_scale: float = 1.0

    def __call__(self, x: Tensor, targets: Tensor, rows: Tensor) -> None:
        """x: (B, …) images; targets: (B,) or (B, C); rows: (B,) positions of the *global* batch."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, self.amp or torch.bfloat16, enabled=self.amp is not None):
            logits = self.networks(x)
        if logits.dtype != torch.float64:
            logits = logits.float()  # losses are computed in full precision
        if self.gather is not None and self.gather_targets is not None:
            logits, targets = self.gather(logits), self.gather_targets(targets)
        remembered: dict[str, Any] = {"memory": self.memory, "rows": rows} if self.memory else {}
        loss = self.method.loss(logits, targets, keep=self.keep, **remembered)
        (loss.total * self.loss_scale if self.loss_scale != 1.0 else loss.total).backward()
        self.method.adjust(self.networks.parameters())
        self.optimizer.step()
        self.recorder.add(
            rows, loss.total.detach(), loss.per_network, loss.selected, self._label_loss(logits, rows)
        )

    @torch.no_grad()
    def _label_loss(self, logits: Tensor, rows: Tensor) -> Tensor:
        """(K, B) −log p of the given label, the same measure for every method."""
        probabilities = self.method.probabilities(logits)
        labels = self.recorder.labels[rows].expand(len(probabilities), -1)
        return -probabilities.gather(-1, labels[..., None]).squeeze(-1).clamp(min=1e-30).log()
