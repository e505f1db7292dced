"""PreActResNet18, the paper's network for classification of 32 x 32 and 64 x 64 pictures.

Residual blocks that normalise before they filter (He et al., 2016, "Identity mappings"), in the
shape that the manifold-mixup experiments use: no norm after the last block. [supplement, Table C]
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from proxysynth.models.initialise import initialise
from proxysynth.models.weights import Published

PUBLISHED = Published(classifier=("linear.",))


class PreActResNet18(nn.Module):
    """Pictures (n, 3, h, w) to feature maps (n, 512 width, h / 8 / stride, w / 8 / stride).

    Args:
        width: a factor on all channels; 0.25 starts with 16 instead of 64.
        stride: of the first convolution: 1 for 32 x 32 pictures, 2 for 64 x 64.
    """

    # The places where manifold mixup mixes: 0 the pictures, 1 and 2 before layers 2 and 3.
    stages = ("stage1", "layer2", "layer3", "layer4")

    def __init__(self, width: float = 1.0, stride: int = 1) -> None:
        super().__init__()
        if not width > 0:
            raise ValueError(f"width must be above 0, got {width}: 1 is the network's own")
        first = max(1, round(64 * width))
        self.in_channels = 3
        self.conv1 = nn.Conv2d(3, first, kernel_size=3, stride=stride, padding=1, bias=False)
        self.layer1 = _layer(first, first, stride=1)
        self.layer2 = _layer(first, 2 * first, stride=2)
        self.layer3 = _layer(2 * first, 4 * first, stride=2)
        self.layer4 = _layer(4 * first, 8 * first, stride=2)
        self.channels = 8 * first
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer4(self.layer3(self.layer2(self.stage1(images))))

    def stage1(self, images: Tensor) -> Tensor:
        """The first convolution and the first layer."""
        return self.layer1(self.conv1(images))


class PreActBlock(nn.Module):
    """Twice norm, ReLU, convolution 3 x 3; the input is added to what comes out."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = _conv3x3(channels_in, channels_out, stride)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.conv2 = _conv3x3(channels_out, channels_out, stride=1)
        self.shortcut: nn.Sequential | None = None
        if stride != 1 or channels_in != channels_out:
            conv = nn.Conv2d(channels_in, channels_out, kernel_size=1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(conv)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x), inplace=True)
        skip = x if self.shortcut is None else self.shortcut(active)
        y = self.conv1(active)
        return self.conv2(F.relu(self.bn2(y), inplace=True)) + skip


def _conv3x3(channels_in: int, channels_out: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)


def _layer(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        PreActBlock(channels_in, channels_out, stride), PreActBlock(channels_out, channels_out, 1)
    )
