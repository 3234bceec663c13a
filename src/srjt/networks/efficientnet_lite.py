"""EfficientNet-Lite0: a network for phones, which makes features of an image on a CPU in about 20
milliseconds.

The names of its weights are those under which its ImageNet weights are published. It has no
attention over channels, and its activation is cut off at 6. Convolutions are padded as by
TensorFlow, where it was trained: the size of the output is that of the input divided by the stride,
rounded up, and an odd row of zeros is at the bottom or the right.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, relu6

# expansion of the channels, outputs, blocks, stride of the first block, kernel; one row for each
# stage
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
STAGE_ENDS = tuple(accumulate(stage[2] for stage in STAGES))  # blocks up to the end of each stage
FEATURES = 1280
TINY = 1e-6  # the square root of a variance of 0 has no derivative


class PaddedConv2d(nn.Conv2d):
    """A convolution without bias, padded as by TensorFlow."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.kernel_size[0]
        stride = self.stride[0]
        rows, columns = (
            max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in x.shape[2:]
        )
        padding = (rows // 2, columns // 2)
        if rows % 2 or columns % 2:  # the row or column that both sides cannot share
            x = pad(x, (0, columns % 2, 0, rows % 2))
        return conv2d(x, self.weight, stride=self.stride, padding=padding, groups=self.groups)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class LiteBlock(nn.Module):
    """Expand the channels, filter each one by itself, and project them; with the input added if the
    shape is kept."""

    def __init__(
        self, inputs: int, outputs: int, *, expansion: int, kernel: int, stride: int
    ) -> None:
        super().__init__()
        width = inputs * expansion
        self.expands = expansion > 1
        if self.expands:
            self._expand_conv = PaddedConv2d(inputs, width, 1)
            self._bn0 = _norm(width)
        self._depthwise_conv = PaddedConv2d(width, width, kernel, stride=stride, groups=width)
        self._bn1 = _norm(width)
        self._project_conv = PaddedConv2d(width, outputs, 1)
        self._bn2 = _norm(outputs)
        self.keeps_shape = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x
        if self.expands:
            y = relu6(self._bn0(self._expand_conv(y)), inplace=True)
        y = relu6(self._bn1(self._depthwise_conv(y)), inplace=True)
        y = self._bn2(self._project_conv(y))
        return x + y if self.keeps_shape else y


class EfficientNetLite0(nn.Module):
    """(B, channels, H, W) to (B, 1280)."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self._conv_stem = PaddedConv2d(channels, 32, 3, stride=2)
        self._bn0 = _norm(32)
        blocks = []
        inputs = 32
        for expansion, outputs, count, first_stride, kernel in STAGES:
            for place in range(count):
                stride = first_stride if place == 0 else 1
                blocks.append(
                    LiteBlock(inputs, outputs, expansion=expansion, kernel=kernel, stride=stride)
                )
                inputs = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = PaddedConv2d(inputs, FEATURES, 1)
        self._bn1 = _norm(FEATURES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def stages(self, x: Tensor) -> Iterator[Tensor]:
        """The output of each stage, (B, channels, h, w)."""
        x = relu6(self._bn0(self._conv_stem(x)), inplace=True)
        for number, block in enumerate(self._blocks, start=1):
            x = block(x)
            if number in STAGE_ENDS:
                yield x

    def forward(self, x: Tensor) -> Tensor:
        *_, last = self.stages(x)
        y = relu6(self._bn1(self._conv_head(last)), inplace=True)
        return torch.flatten(y.mean(dim=(2, 3)), 1)


class EfficientNetLite0Stages(EfficientNetLite0):
    """(B, channels, H, W) to (B, 1568): the mean and the standard deviation over the places of the
    output of each stage.

    Without fine-tuning, the earlier stages say more about a medical image than the 1,280 features
    of the last map, which were trained to tell objects apart. benchmarks/first_model.py compares
    both.
    """

    def forward(self, x: Tensor) -> Tensor:
        rows = []
        for each in self.stages(x):
            variance, mean = torch.var_mean(each, dim=(2, 3), correction=0)
            rows += [mean, torch.sqrt(variance + TINY)]
        return torch.cat(rows, dim=1)
