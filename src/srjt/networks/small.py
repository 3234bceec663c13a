"""Backbones written here: small ones for CPUs, tests and cached features."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

__all__ = ["Standardise", "linear", "mlp", "standardise", "tiny"]


def tiny(*, channels: int = 3, norm: Literal["batch", "group"] = "batch") -> nn.Module:
    """Three strided convolutions and pooling to 4 × 4: (B, channels, H ≥ 16, W ≥ 16) to (B, 1536).

    The first convolution shrinks by four at once: most of a small network's time goes into its largest
    maps. Pooling to 4 × 4 and not to one value leaves it able to memorise wrong labels, as large networks
    are: what works on it has a chance to work on them. Batch norm learns faster here; ``norm="group"`` uses
    no statistics of the batch, so that a batch split over processes gives the same gradients as the whole.
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
    """Nothing but standardised columns: (B, inputs) to the same; the method's last layer is all that learns."""
    return Standardise(inputs)


def mlp(*, inputs: int, hidden: int = 128, dropout: float = 0.1) -> nn.Module:
    """One hidden layer on standardised columns: (B, inputs) to (B, hidden).

    128 wide because, on embeddings with noisy labels, wider ones memorised more and took longer.
    LayerNorm instead would wipe out rows of one or two columns and mix columns of different units; batch
    statistics would tie samples together.
    """
    return nn.Sequential(Standardise(inputs), nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout))


class Standardise(nn.Module):
    """(B, F) → (x − mean) / scale, column by column; the identity until ``standardise``.

    Buffers, so that a run's weights alone say how its features were scaled: applying or exporting a trained
    network needs nothing else.
    """

    mean: Tensor  # (F,)
    scale: Tensor  # (F,)

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("scale", torch.ones(columns))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


def standardise(network: nn.Module, rows: npt.NDArray[np.floating]) -> None:
    """Set every ``Standardise`` in ``network`` from ``rows`` (N, F): mean 0 and variance 1 in each column.

    Columns that never change keep the scale 1: there they become 0, and elsewhere nothing explodes.
    """
    layers = [module for module in network.modules() if isinstance(module, Standardise)]
    if not layers:
        return
    mean = rows.mean(axis=0, dtype=np.float64)
    scale = rows.std(axis=0, dtype=np.float64)
    scale[np.ptp(rows, axis=0) == 0] = 1.0  # their computed deviation is not always exactly 0
    for layer in layers:
        layer.mean.copy_(torch.from_numpy(mean))
        layer.scale.copy_(torch.from_numpy(scale))
