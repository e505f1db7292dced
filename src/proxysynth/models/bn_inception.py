"""BN-Inception, the paper's backbone, with the names of the published port from Caffe.

Inception with batch norm (Ioffe and Szegedy, 2015). Input: BGR, 0 to 255 minus 104/117/128. The
classifier is not used.
"""

from __future__ import annotations

from functools import partialmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proxysynth.models.weights import Published, init_weights

PUBLISHED = Published(
    files=("bn_inception-52deb4733.pth", "bn_inception-239d2248.pth"),
    # The port's own server, data.lip6.fr, has been down time and again since 2018.
    where="of github.com/Cadene/pretrained-models.pytorch (its issues 95 and 152 say where it is), "
    "or the copy net/bn_inception_weights_pt04.pt in github.com/dichotomies/proxy-nca",
    classifier=("last_linear.", "fc."),
)


class Inception(NamedTuple):
    """Channels of the branches of one module; (a, b) narrows to a, then filters to b.

    Without `single` and `project` the module halves the resolution: its filters have stride 2, and
    its pooled input is passed on.
    """

    three: tuple[int, int]
    double: tuple[int, int]
    single: int = 0
    project: int = 0
    pool: str = "average"

    @property
    def reduces(self) -> bool:
        return self.single == 0


MODULES = {
    "3a": Inception(single=64, three=(64, 64), double=(64, 96), project=32),
    "3b": Inception(single=64, three=(64, 96), double=(64, 96), project=64),
    "3c": Inception(three=(128, 160), double=(64, 96), pool="max"),
    "4a": Inception(single=224, three=(64, 96), double=(96, 128), project=128),
    "4b": Inception(single=192, three=(96, 128), double=(96, 128), project=128),
    "4c": Inception(single=160, three=(128, 160), double=(128, 160), project=128),
    "4d": Inception(single=96, three=(128, 192), double=(160, 192), project=128),
    "4e": Inception(three=(128, 192), double=(192, 256), pool="max"),
    "5a": Inception(single=352, three=(192, 320), double=(160, 224), project=128),
    "5b": Inception(single=352, three=(192, 320), double=(192, 224), project=128, pool="max"),
}


class BNInception(nn.Module):
    """Images (n, 3, h, w) to feature maps (n, 1024, h / 32, w / 32).

    The layers are direct children, such as `inception_3a_1x1` and `inception_3a_1x1_bn`: these are
    the keys of the published state dict. The port gives its norms a momentum of 0.9, which in
    torch forgets all but the last batch; ours keep torch's 0.1.
    """

    stages = ("stem", "inception_3", "inception_4", "inception_5")

    def __init__(self) -> None:
        super().__init__()
        self.in_channels = 3
        self._add("conv1_7x7_s2", 3, 64, kernel=7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64, kernel=1)
        self._add("conv2_3x3", 64, 192, kernel=3)
        channels = 192
        for name, module in MODULES.items():
            channels = self._add_inception(f"inception_{name}_", module, channels)
        self.channels = channels
        init_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.inception_5(self.inception_4(self.inception_3(self.stem(images))))

    def stem(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self._layers(x, "", "conv1_7x7_s2"), 3, 2, ceil_mode=True)
        x = self._layers(x, "", "conv2_3x3_reduce", "conv2_3x3")
        return F.max_pool2d(x, 3, 2, ceil_mode=True)

    def _run(self, group: str, x: Tensor) -> Tensor:
        for name, module in MODULES.items():
            if name.startswith(group):
                x = self._inception(f"inception_{name}_", module, x)
        return x

    inception_3 = partialmethod(_run, "3")
    inception_4 = partialmethod(_run, "4")
    inception_5 = partialmethod(_run, "5")

    def _add(self, name: str, channels: int, outer: int, kernel: int, stride: int = 1) -> None:
        conv = nn.Conv2d(channels, outer, kernel, stride, padding=kernel // 2)
        self.add_module(name, conv)
        self.add_module(f"{name}_bn", nn.BatchNorm2d(outer))

    def _add_inception(self, prefix: str, module: Inception, channels: int) -> int:
        """Add the layers of a module; returns how many channels come out of it."""
        stride = 2 if module.reduces else 1
        (three, three_out), (double, double_out) = module.three, module.double
        if not module.reduces:
            self._add(f"{prefix}1x1", channels, module.single, kernel=1)
        self._add(f"{prefix}3x3_reduce", channels, three, kernel=1)
        self._add(f"{prefix}3x3", three, three_out, kernel=3, stride=stride)
        self._add(f"{prefix}double_3x3_reduce", channels, double, kernel=1)
        self._add(f"{prefix}double_3x3_1", double, double_out, kernel=3)
        self._add(f"{prefix}double_3x3_2", double_out, double_out, kernel=3, stride=stride)
        if module.reduces:
            return three_out + double_out + channels
        self._add(f"{prefix}pool_proj", channels, module.project, kernel=1)
        return module.single + three_out + double_out + module.project

    def _layers(self, x: Tensor, prefix: str, *layers: str) -> Tensor:
        """Each layer's convolution, norm and ReLU, one after the other."""
        for layer in layers:
            norm = getattr(self, f"{prefix}{layer}_bn")
            x = F.relu(norm(getattr(self, f"{prefix}{layer}")(x)), inplace=True)
        return x

    def _inception(self, prefix: str, module: Inception, x: Tensor) -> Tensor:
        three = self._layers(x, prefix, "3x3_reduce", "3x3")
        double = self._layers(x, prefix, "double_3x3_reduce", "double_3x3_1", "double_3x3_2")
        if module.reduces:
            # To the size that the strided filters give. An odd side is padded, where the published
            # network would fail; even sides, as from 224 pixels, are not.
            odd = (x.shape[2] % 2, x.shape[3] % 2)
            pooled = F.max_pool2d(x, 3, stride=2, padding=odd, ceil_mode=True)
            return torch.cat([three, double, pooled], dim=1)
        single = self._layers(x, prefix, "1x1")
        pool = F.max_pool2d if module.pool == "max" else F.avg_pool2d
        pooled = self._layers(pool(x, 3, stride=1, padding=1), prefix, "pool_proj")
        return torch.cat([single, three, double, pooled], dim=1)
