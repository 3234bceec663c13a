"""The one or two networks of a method as one module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["StackedNetworks"]


class StackedNetworks(nn.Module):
    """K networks that see the same batch: (B, …) → (K, B, C).

    On a GPU each network may run on a stream of its own: at batch 64 one alone does not fill the chip.
    Autograd runs each backward pass on the stream of its forward pass.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.streams: list[torch.cuda.Stream] = []
        self.runners: list[nn.Module] = []  # compiled twins of the members; they share their parameters

    def forward(self, x: Tensor) -> Tensor:
        runners = self.runners or list(self.members)
        if not self.streams:
            return torch.stack([run(x) for run in runners])
        here = torch.cuda.current_stream()
        outputs = []
        for run, stream in zip(runners, self.streams, strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                x.record_stream(stream)
                outputs.append(run(x))
        for output, stream in zip(outputs, self.streams, strict=True):
            here.wait_stream(stream)
            output.record_stream(here)
        return torch.stack(outputs)
