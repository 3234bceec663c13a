"""Several processes, one batch: N processes with B/N samples each choose what one with B would.

Under ``torchrun`` every process computes the logits of its part of the batch; the parts are gathered, the
(pure) method sees the global batch, and gradients flow through each process's own part. Processes know the
plan of an epoch (it follows from the seed), so only logits and targets travel: a few hundred numbers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from srjt.errors import SrjtError
from srjt.training.engine.stacked_networks import StackedNetworks

__all__ = ["Process", "join"]


@dataclass(frozen=True, kw_only=True)
class Process:
    """This process among ``world``; alone by default."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Only one process writes."""
        return self.rank == 0

    def part(self, batch_size: int) -> slice:
        """The columns of each batch that this process works on."""
        if batch_size % self.world:
            raise SrjtError(f"A batch of {batch_size} cannot be shared evenly by {self.world} processes.")
        share = batch_size // self.world
        return slice(self.rank * share, (self.rank + 1) * share)

    def distribute(self, committee: StackedNetworks, *, sync_batchnorm: bool) -> nn.Module:
        """The committee with gradients averaged over processes (and batch statistics, if asked for)."""
        if self.world == 1:
            return committee
        wrapped: nn.Module = committee
        if sync_batchnorm and next(committee.parameters()).device.type != "cuda":
            raise SrjtError(
                "sync_batchnorm works on GPUs only: leave it out, or choose a network without batch norm."
            )
        if sync_batchnorm:
            wrapped = nn.SyncBatchNorm.convert_sync_batchnorm(committee)
        device = next(committee.parameters()).device
        ids = [device.index] if device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(wrapped, device_ids=ids)

    def gather(self, logits: Tensor) -> Tensor:
        """(K, B/N, C) → (K, B, C); the gradient goes through this process's own part."""
        parts = [torch.empty_like(logits) for _ in range(self.world)]
        dist.all_gather(parts, logits.detach().contiguous())
        parts[self.rank] = logits
        return torch.cat(parts, dim=1)

    def gather_targets(self, targets: Tensor) -> Tensor:
        """(B/N, …) → (B, …)."""
        parts = [torch.empty_like(targets) for _ in range(self.world)]
        dist.all_gather(parts, targets.contiguous())
        return torch.cat(parts)

    def total(self, counts: Tensor) -> Tensor:
        """The sum over processes."""
        if self.world > 1:
            dist.all_reduce(counts)
        return counts

    def agree(self, signal: int) -> int:
        """The largest signal number any process has received: all stop together or none does."""
        if self.world == 1:
            return signal
        number = torch.tensor(signal)
        if dist.get_backend() == "nccl":
            number = number.cuda()
        dist.all_reduce(number, op=dist.ReduceOp.MAX)
        return int(number)


def join(device: torch.device) -> Process:
    """This process's place as ``torchrun`` tells it; alone when it was not started so."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Process()
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Process(rank=dist.get_rank(), world=dist.get_world_size())
