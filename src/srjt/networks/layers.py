"""The layers of srjt's own backbones: small ones for CPUs, tests and features, and ResNets."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

# Small backbones for CPUs, tests and features.


def tiny(*, channels: int = 3, norm: Literal["batch", "group"] = "batch") -> nn.Module:
    """Three strided convolutions and pooling to 4 × 4: (B, channels, H ≥ 16, W ≥ 16) to (B, 1536).

    The first convolution has stride 4, because a small network spends most of its time on its
    largest maps. With pooling to 4 × 4 instead of one value it can memorise wrong labels as large
    networks do, so that results on it are meaningful for them. Batch norm learns faster here;
    ``norm="group"`` uses no statistics of the batch, so that a batch that is split over processes
    gives the same gradients as the whole.
    """

    def block(inputs: int, outputs: int, *, kernel: int, stride: int) -> nn.Sequential:
        scale = nn.BatchNorm2d(outputs) if norm == "batch" else nn.GroupNorm(8, outputs)
        layer = convolution(inputs, outputs, kernel=kernel, stride=stride)
        return nn.Sequential(layer, scale, nn.ReLU(inplace=True))

    return nn.Sequential(
        block(channels, 24, kernel=5, stride=4),
        block(24, 48, kernel=3, stride=2),
        block(48, 96, kernel=3, stride=2),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
    )


def mlp(*, inputs: int, hidden: int = 128, dropout: float = 0.1) -> nn.Module:
    """One hidden layer on standardised columns: (B, inputs) to (B, hidden).

    The width is 128 because, on embeddings with noisy labels, wider layers memorised more and took
    longer. LayerNorm would remove the information in rows of one or two columns and mix columns of
    different units; batch norm would make the output of a sample depend on the others.
    """
    return nn.Sequential(
        Standardise(inputs), nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout)
    )


class Standardise(nn.Module):
    """(x − mean) / scale, for each column of (B, F) or channel of (B, channels, H, W); at first the
    identity.

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
    """Set every ``Standardise`` in ``network`` from ``rows`` (N, F): mean 0 and variance 1 in each
    column.

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


# ResNets of two-dimensional images, with the names of weights under which PyTorch publishes their
# ImageNet weights.
#
# MONAI, an extra, has them too, but takes seconds to import. The weights that a seed determines are
# the same in both.

# blocks in each of the four stages, and whether a block is a bottleneck
DEPTHS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
}


def convolution(inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    """Two convolutions, and the input added to their output; in a bottleneck three, of which the
    first and the last change the number of channels.

    A bottleneck's 3 × 3 convolution has the stride, as in the published weights; in the first paper
    the one before it had.
    """

    def __init__(self, inputs: int, width: int, *, stride: int, bottleneck: bool) -> None:
        super().__init__()
        if bottleneck:
            outputs = 4 * width
            self.conv1 = convolution(inputs, width, kernel=1, stride=1)
        else:
            outputs = width
            self.conv1 = convolution(inputs, width, kernel=3, stride=stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, kernel=3, stride=stride if bottleneck else 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.bottleneck = bottleneck
        if bottleneck:
            self.conv3 = convolution(width, outputs, kernel=1)
            self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None  # brings the input to the shape of the output
        if stride != 1 or inputs != outputs:
            projection = convolution(inputs, outputs, kernel=1, stride=stride)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        if self.bottleneck:
            y = self.bn3(self.conv3(relu(y, inplace=True)))
        y += x if self.downsample is None else self.downsample(x)
        return relu(y, inplace=True)


class ResNet(nn.Module):
    """A strided convolution and pooling, four stages of blocks, and the mean over all positions.

    (B, channels, H, W) to (B, 512), or to (B, 2048) from 50 layers on.
    """

    def __init__(self, name: str, *, channels: int = 3) -> None:
        super().__init__()
        blocks, bottleneck = DEPTHS[name]
        self.conv1 = convolution(channels, 64, kernel=7, stride=2)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = 64
        stages = []
        for index, count in enumerate(blocks):
            width = 64 * 2**index
            layers = []
            for place in range(count):  # the first block of a stage has its stride
                stride = 2 if index > 0 and place == 0 else 1
                layers.append(Block(inputs, width, stride=stride, bottleneck=bottleneck))
                inputs = 4 * width if bottleneck else width
            stages.append(nn.Sequential(*layers))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(relu(self.bn1(self.conv1(x)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        pooled: Tensor = self.avgpool(x)
        return pooled.flatten(1)


# How the registry makes them: the number of channels, or of columns, first.


def tiny_of(channels: int, *, norm: Literal["batch", "group"] = "batch") -> nn.Module:
    return tiny(channels=channels, norm=norm)


def mlp_of(inputs: int) -> nn.Module:
    return mlp(inputs=inputs)


def resnet(channels: int, *, name: str) -> nn.Module:
    return ResNet(name, channels=channels)
