"""Backbones written here: small ones for CPUs, tests and cached features."""

from __future__ import annotations

from typing import Literal

from torch import nn

__all__ = ["mlp", "tiny"]


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


def mlp(*, inputs: int, hidden: int = 256, dropout: float = 0.1) -> nn.Module:
    """One hidden layer: (B, inputs) to (B, hidden).

    It does not normalise its input. LayerNorm would wipe out rows of one or two columns and mix columns
    of different units, batch statistics would tie samples together; standardise the columns beforehand.
    """
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout))
