"""Small backbones for CPUs, tests and features."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

__all__ = ["Standardise", "linear", "mlp", "standardise", "tiny"]


def tiny(*, channels: int = 3, norm: Literal["batch", "group"] = "batch") -> nn.Module:
    """Three strided convolutions and pooling to 4 × 4: (B, channels, H ≥ 16, W ≥ 16) to (B, 1536).

    The first convolution has stride 4, because a small network spends most of its time on its largest maps. With
    pooling to 4 × 4 instead of one value it can memorise wrong labels as large networks do, so that results on it
    are meaningful for them. Batch norm learns faster here; ``norm="group"`` uses no statistics of the batch, so that a
    batch that is split over processes gives the same gradients as the whole.
    """

    def block(inputs: int, outputs: int, *, kernel: int, stride: int) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        scale = nn.BatchNorm2d(outputs) if norm == "batch" else nn.GroupNorm(8, outputs)
        return nn.Sequential(convolution, scale, nn.ReLU(inplace=True))

    return nn.Sequential(
        block(channels, 24, kernel=5, stride=4),
        block(24, 48, kernel=3, stride=2),
        block(48, 96, kernel=3, stride=2),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
    )


def linear(*, inputs: int) -> nn.Module:
    """Standardised columns, (B, inputs) to (B, inputs): only the method's last layer is trained."""
    return Standardise(inputs)


def mlp(*, inputs: int, hidden: int = 128, dropout: float = 0.1) -> nn.Module:
    """One hidden layer on standardised columns: (B, inputs) to (B, hidden).

    The width is 128 because, on embeddings with noisy labels, wider layers memorised more and took longer. LayerNorm
    would remove the information in rows of one or two columns and mix columns of different units; batch norm would
    make the output of a sample depend on the others.
    """
    return nn.Sequential(Standardise(inputs), nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout))


class Standardise(nn.Module):
    """(x − mean) / scale, for each column of (B, F) or channel of (B, channels, H, W); at first the identity.

    Mean and scale are buffers, so that a run's weights contain them.
    """

    mean: Tensor  # (F,) or (channels, 1, 1)
    scale: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


def standardise(network: nn.Module, rows: npt.NDArray[np.floating]) -> None:
    """Set every ``Standardise`` in ``network`` from ``rows`` (N, F): mean 0 and variance 1 in each column.

    Constant columns get the scale 1: they become 0 in ``rows``, and stay moderate in other data.
    """
    layers = [module for module in network.modules() if isinstance(module, Standardise)]
    if not layers:
        return
    mean = rows.mean(axis=0, dtype=np.float64)
    scale = rows.std(axis=0, dtype=np.float64)
    scale[np.ptp(rows, axis=0) == 0] = 1.0  # rounding can make their deviation differ from 0
    for layer in layers:
        layer.mean.copy_(torch.from_numpy(mean))
        layer.scale.copy_(torch.from_numpy(scale))
