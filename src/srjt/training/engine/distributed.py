"""Several processes share one batch: N processes with B/N samples each select what one process with B would.

Under ``torchrun`` every process computes the logits of its part of the batch. The parts are gathered, the (pure) method
sees the global batch, and gradients flow through each process's own part. Every process draws the same plan of an
epoch (it follows from the seed), so that only logits and targets are sent: a few hundred numbers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from srjt.errors import SrjtError
from srjt.training.engine.stacked_networks import StackedNetworks

__all__ = ["Process", "join_process_group"]


@dataclass(frozen=True, kw_only=True)
class Process:
    """This process among ``world_size``; by default the only one."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that writes files."""
        return self.rank == 0

    def part(self, batch_size: int) -> slice:
        """The columns of each batch that this process works on."""
        if batch_size % self.world_size:
            raise SrjtError(
                f"A batch of {batch_size} cannot be shared evenly by {self.world_size} processes: change `batch_size`."
            )
        share = batch_size // self.world_size
        return slice(self.rank * share, (self.rank + 1) * share)

    def distribute(self, networks: StackedNetworks, *, sync_batchnorm: bool) -> nn.Module:
        """The networks with gradients averaged over processes, and with common batch statistics if requested."""
        if self.world_size == 1:
            return networks
        wrapped: nn.Module = networks
        device = next(networks.parameters()).device
        if sync_batchnorm and device.type != "cuda":
            raise SrjtError(
                "sync_batchnorm works on GPUs only: turn it off, or choose a network without batch norm."
            )
        if sync_batchnorm:
            wrapped = nn.SyncBatchNorm.convert_sync_batchnorm(networks)
        ids = [device.index] if device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(wrapped, device_ids=ids)

    def gather(self, logits: Tensor) -> Tensor:
        """(K, B/N, C) → (K, B, C); the gradient flows through this process's own part."""
        parts = [torch.empty_like(logits) for _ in range(self.world_size)]
        dist.all_gather(parts, logits.detach().contiguous())
        parts[self.rank] = logits
        return torch.cat(parts, dim=1)

    def gather_targets(self, targets: Tensor) -> Tensor:
        """(B/N, …) → (B, …)."""
        parts = [torch.empty_like(targets) for _ in range(self.world_size)]
        dist.all_gather(parts, targets.contiguous())
        return torch.cat(parts)

    def sum(self, counts: Tensor) -> Tensor:
        """The sum over processes."""
        if self.world_size > 1:
            dist.all_reduce(counts)
        return counts

    def agree_on_signal(self, signal: int) -> int:
        """The largest signal number that any process has received: all processes stop together."""
        if self.world_size == 1:
            return signal
        number = torch.tensor(signal)
        if dist.get_backend() == "nccl":
            number = number.cuda()
        dist.all_reduce(number, op=dist.ReduceOp.MAX)
        return int(number)


def join_process_group(device: torch.device) -> Process:
    """This process's rank as set by ``torchrun``; without ``torchrun`` the only process."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Process()
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Process(rank=dist.get_rank(), world_size=dist.get_world_size())
