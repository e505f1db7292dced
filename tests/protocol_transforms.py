"""The transforms of the paper's protocols (section C.2), each for training and for testing.

| protocol       | training                                            | testing                |
|----------------|-----------------------------------------------------|------------------------|
| conventional   | random crop of 224, flip                            | 256, center crop 224   |
| MLRC           | 256, random crop of 227, flip                       | 256, center crop 227   |
| classification | a border, random crop, flip                         | as they are            |

The text leaves the area of the conventional crop open; the authors' code takes the usual 0.08 to 1.
For MLRC it speaks of crops "between 40 and 256". The harness of that protocol takes 0.16 to 1 of
the area, and 0.16 is 40 / 256: the sentence read a share of the area as one of the side. `MLRC` is
what was run, `MLRC_AS_PRINTED` what the sentence says. The classification scripts are those of
Manifold Mixup, which do not mirror digits.
"""

from __future__ import annotations

from typing import NamedTuple

from proxysynth.data.transforms import AsIs, CenterCrop, PadCrop, RandomResizedCrop, Transform


class Pair(NamedTuple):
    """What pictures go through in training and in testing.

    `pixels` is the key of PIXELS that the protocol's own network takes.
    """

    train: Transform
    test: Transform
    pixels: str


CONVENTIONAL = Pair(RandomResizedCrop(224), CenterCrop(256, 224), "caffe_bgr")

MLRC = Pair(
    RandomResizedCrop(227, scale=(0.16, 1.0), resize=256), CenterCrop(256, 227), "caffe_bgr"
)
MLRC_AS_PRINTED = Pair(
    RandomResizedCrop(227, scale=((40 / 256) ** 2, 1.0), resize=256),
    CenterCrop(256, 227),
    "caffe_bgr",
)

CLASSIFICATION = {
    "cifar10": Pair(PadCrop(32, pad=2), AsIs(), "cifar10"),
    "cifar100": Pair(PadCrop(32, pad=2), AsIs(), "cifar100"),
    "svhn": Pair(PadCrop(32, pad=2, flip=0.0), AsIs(), "centred"),
    "tiny_imagenet": Pair(PadCrop(64, pad=4), CenterCrop(64, 64), "centred"),
}
