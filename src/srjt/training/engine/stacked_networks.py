"""The one or two networks of a method as one module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

__all__ = ["StackedNetworks"]


class StackedNetworks(nn.Module):
    """K networks that process the same batch: (B, …) → (K, B, C).

    On a GPU each network may run on its own stream: at batch 64 one network does not use the whole GPU. Autograd
    runs each backward pass on the stream of its forward pass.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.streams: list[torch.cuda.Stream] = []
        # torch.compile of each member; they share its parameters
        self.compiled: list[Callable[[Tensor], Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        networks = self.compiled or list(self.members)
        if not self.streams:
            return torch.stack([network(x) for network in networks])
        current = torch.cuda.current_stream()
        outputs = []
        for network, stream in zip(networks, self.streams, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                x.record_stream(stream)
                outputs.append(network(x))
        for output, stream in zip(outputs, self.streams, strict=True):
            current.wait_stream(stream)
            output.record_stream(current)
        return torch.stack(outputs)
