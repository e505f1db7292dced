"""ResNet-50 with the names of torchvision's state dict.

Deep residual learning (He et al., 2016), with the stride in the 3 x 3 convolution as torchvision
has it. Input: RGB, ImageNet's mean and deviation. The classifier is left out.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from proxysynth.models.initialise import initialise
from proxysynth.models.weights import Published

PUBLISHED = Published(
    files=("resnet50-19c8e357.pth", "resnet50-0676ba61.pth", "resnet50-11ad3fa6.pth"),
    where="https://download.pytorch.org/models",
    classifier=("fc.",),
)
BLOCKS = (3, 4, 6, 3)
EXPANSION = 4


class ResNet50(nn.Module):
    """Pictures (n, 3, h, w) to feature maps (n, 2048, h / 32, w / 32)."""

    stages = ("stage1", "layer2", "layer3", "layer4")

    def __init__(self) -> None:
        super().__init__()
        self.in_channels = 3
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _layer(64, inner=64, blocks=BLOCKS[0], stride=1)
        self.layer2 = _layer(256, inner=128, blocks=BLOCKS[1], stride=2)
        self.layer3 = _layer(512, inner=256, blocks=BLOCKS[2], stride=2)
        self.layer4 = _layer(1024, inner=512, blocks=BLOCKS[3], stride=2)
        self.channels = 512 * EXPANSION
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer4(self.layer3(self.layer2(self.stage1(images))))

    def stage1(self, images: Tensor) -> Tensor:
        """The stem and the first layer."""
        x = F.relu(self.bn1(self.conv1(images)), inplace=True)
        return self.layer1(F.max_pool2d(x, kernel_size=3, stride=2, padding=1))


class Bottleneck(nn.Module):
    """Narrow (1 x 1), filter (3 x 3), widen (1 x 1), add the input, ReLU."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        outer = inner * EXPANSION
        self.conv1 = nn.Conv2d(channels, inner, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outer, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(outer)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != outer:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, outer, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(outer),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + self.downsample(x), inplace=True)


def _layer(channels: int, inner: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels, inner, stride)
    others = [Bottleneck(inner * EXPANSION, inner, stride=1) for _ in range(blocks - 1)]
    return nn.Sequential(first, *others)
