"""ResNet-50, and PreActResNet18, the paper's network for classification; without classifiers.

ResNet-50 (He et al., 2016) has the names of torchvision's state dict and its stride in the 3 x 3
convolution. PreActResNet18 (He et al., 2016, "Identity mappings") is for 32 x 32 and 64 x 64 images
as in the manifold-mixup experiments, without a norm after the last block.  [supplement, Table C]
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from proxysynth.models.weights import Published, init_weights

PUBLISHED = Published(
    files=("resnet50-19c8e357.pth", "resnet50-0676ba61.pth", "resnet50-11ad3fa6.pth"),
    where="published at https://download.pytorch.org/models",
    classifier=("fc.",),
)


class ResNet50(nn.Module):
    """Images (n, 3, h, w) to feature maps (n, 2048, h / 32, w / 32)."""

    stages = ("stage1", "layer2", "layer3", "layer4")

    def __init__(self) -> None:
        super().__init__()
        self.in_channels = 3
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _layer(Bottleneck, 64, 256, blocks=3, stride=1)
        self.layer2 = _layer(Bottleneck, 256, 512, blocks=4, stride=2)
        self.layer3 = _layer(Bottleneck, 512, 1024, blocks=6, stride=2)
        self.layer4 = _layer(Bottleneck, 1024, 2048, blocks=3, stride=2)
        self.channels = 2048
        init_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer4(self.layer3(self.layer2(self.stage1(images))))

    def stage1(self, images: Tensor) -> Tensor:
        """The stem and the first layer."""
        x = F.relu(self.bn1(self.conv1(images)), inplace=True)
        return self.layer1(F.max_pool2d(x, kernel_size=3, stride=2, padding=1))


class Bottleneck(nn.Module):
    """Narrow to a quarter (1 x 1), filter (3 x 3), widen (1 x 1), add the input, ReLU."""

    def __init__(self, channels: int, outer: int, stride: int) -> None:
        super().__init__()
        inner = outer // 4
        self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outer, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outer)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != outer:
            shortcut = nn.Conv2d(channels, outer, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + self.downsample(x), inplace=True)


def _layer(
    block: Callable[[int, int, int], nn.Module], channels: int, outer: int, blocks: int, stride: int
) -> nn.Sequential:
    others = (block(outer, outer, 1) for _ in range(blocks - 1))
    return nn.Sequential(block(channels, outer, stride), *others)


class PreActResNet18(nn.Module):
    """Images (n, 3, h, w) to feature maps (n, 512 width, h / 8 / stride, w / 8 / stride). `stride`
    is that of the first convolution: 1 for 32 x 32 images, 2 for 64 x 64."""

    # The places where manifold mixup mixes: 0 the images, 1 and 2 before layers 2 and 3.
    stages = ("stage1", "layer2", "layer3", "layer4")

    def __init__(self, width: float = 1.0, stride: int = 1) -> None:
        super().__init__()
        first = max(1, round(64 * width))
        self.in_channels = 3
        self.conv1 = nn.Conv2d(3, first, kernel_size=3, stride=stride, padding=1, bias=False)
        self.layer1 = _layer(PreActBlock, first, first, blocks=2, stride=1)
        self.layer2 = _layer(PreActBlock, first, 2 * first, blocks=2, stride=2)
        self.layer3 = _layer(PreActBlock, 2 * first, 4 * first, blocks=2, stride=2)
        self.layer4 = _layer(PreActBlock, 4 * first, 8 * first, blocks=2, stride=2)
        self.channels = 8 * first
        init_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer4(self.layer3(self.layer2(self.stage1(images))))

    def stage1(self, images: Tensor) -> Tensor:
        """The first convolution and the first layer."""
        return self.layer1(self.conv1(images))


class PreActBlock(nn.Module):
    """Two pre-activation 3 x 3 convolutions with a shortcut."""

    def __init__(self, channels: int, outer: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, outer, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.shortcut: nn.Sequential | None = None
        if stride != 1 or channels != outer:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, outer, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x), inplace=True)
        skip = x if self.shortcut is None else self.shortcut(active)
        return self.conv2(F.relu(self.bn2(self.conv1(active)), inplace=True)) + skip
