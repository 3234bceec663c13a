"""ResNets of two-dimensional images, with the names of weights under which PyTorch publishes their ImageNet weights.

They are written here although MONAI has them too: importing MONAI takes seconds in every process, these take none. The
weights that a seed determines are the same in both.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

__all__ = ["DEPTHS", "resnet"]

# blocks in each of the four stages, and whether a block is a bottleneck
DEPTHS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
}


def resnet(name: str, *, channels: int = 3) -> nn.Module:
    """(B, channels, H, W) to (B, 512), or to (B, 2048) from 50 layers on."""
    blocks, bottleneck = DEPTHS[name]
    return ResNet(blocks, block=Bottleneck if bottleneck else BasicBlock, channels=channels)


def convolution(inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def projection(inputs: int, outputs: int, *, stride: int) -> nn.Module | None:
    """Brings a block's input to the shape of its output; None if it has this shape."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(convolution(inputs, outputs, kernel=1, stride=stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two convolutions, and the input added to their output."""

    widening = 1  # channels of the output, relative to the block's width

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, width, kernel=3, stride=stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, kernel=3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = projection(inputs, width, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return relu(y, inplace=True)


class Bottleneck(nn.Module):
    """A 3 × 3 convolution between two of 1 × 1 that change the number of channels, and the input added to the output.

    The 3 × 3 convolution has the stride, as in the published weights; in the first paper the one before it had.
    """

    widening = 4

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        outputs = self.widening * width
        self.conv1 = convolution(inputs, width, kernel=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, kernel=3, stride=stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outputs, kernel=1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = projection(inputs, outputs, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.bn1(self.conv1(x)), inplace=True)
        y = relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return relu(y, inplace=True)


def stage(
    block: type[BasicBlock | Bottleneck], inputs: int, width: int, *, count: int, stride: int
) -> nn.Sequential:
    """``count`` blocks, of which the first has the stride."""
    first = block(inputs, width, stride=stride)
    return nn.Sequential(first, *(block(block.widening * width, width, stride=1) for _ in range(count - 1)))


class ResNet(nn.Module):
    """A strided convolution and pooling, four stages of blocks, and the mean over all positions."""

    def __init__(
        self, blocks: tuple[int, int, int, int], *, block: type[BasicBlock | Bottleneck], channels: int
    ) -> None:
        super().__init__()
        self.conv1 = convolution(channels, 64, kernel=7, stride=2)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        widths = [64, *(block.widening * 64 * 2**index for index in range(4))]
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            stage(block, widths[index], 64 * 2**index, count=count, stride=1 if index == 0 else 2)
            for index, count in enumerate(blocks)
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(relu(self.bn1(self.conv1(x)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        pooled: Tensor = self.avgpool(x)
        return pooled.flatten(1)
