"""Conv4: four small blocks for 32 x 32 gray glyphs, fast on a CPU.

(n, 1, 32, 32) -> 32 -> 64 -> 128 -> 256 channels at 16, 8, 4, 2 pixels     (width 1)
"""

from __future__ import annotations

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

from proxysynth.models.weights import init_weights

CHANNELS = (32, 64, 128, 256)


class Conv4(nn.Sequential):
    """Images (n, 1, h, w) to feature maps (n, 256 width, h / 16, w / 16), by four times convolution
    3 x 3, average pooling 2 x 2, batch norm, ReLU."""

    stages = ("block1", "block2", "block3", "block4")

    def __init__(self, width: float = 1.0) -> None:
        widths = [1, *(max(1, round(width * channels)) for channels in CHANNELS)]
        blocks = map(_block, widths[:-1], widths[1:])
        super().__init__(OrderedDict(zip(self.stages, blocks, strict=True)))
        self.in_channels, self.channels = 1, widths[-1]
        init_weights(self)


class PooledConv(nn.Conv2d):
    """Convolution 3 x 3 and average pooling 2 x 2 in one step.

    Both are linear, so the mean of four neighboring outputs is one output of the mean of four
    shifted kernels: a 4 x 4 kernel applied at every second pixel. Same result, 16 products per
    pooled pixel instead of 36, and the large map between the two is never made.
    """

    def forward(self, x: Tensor) -> Tensor:
        kernel = F.avg_pool2d(self.weight, kernel_size=2, stride=1, padding=1)
        return F.conv2d(x, kernel, stride=2, padding=1)


def _block(channels_in: int, channels_out: int) -> nn.Sequential:
    # Pooling before the norm leaves norm and ReLU a quarter of the pixels.
    return nn.Sequential(
        PooledConv(channels_in, channels_out, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )
