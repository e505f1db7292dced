"""From an image of any size to the normalized square that a network takes.

Each transform is a value and a pure function of the image and of `draws` numbers in [0, 1), which
`uniforms` derives from seed, epoch and index alone: an image looks the same in any worker or
process and in a resumed run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxysynth.values import look_up

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Bytes = NDArray[np.uint8]  # (h, w) for a gray image, (h, w, 3) for RGB

TRIES = 10  # random crops that are tried before the center is taken
MAX_ASPECT = 16  # a more elongated image is cropped before it is resized


class Transform(Protocol):
    """What the loader applies to each image."""

    @property
    def size(self) -> int | None: ...  # side of the result in pixels; None if images keep theirs

    @property
    def draws(self) -> int: ...  # how many random numbers an image needs; 0 for evaluation

    def __call__(self, image: Image.Image, u: Sequence[float]) -> Bytes: ...


@dataclass(frozen=True)
class AsIs:
    """No change, for images that already have one size, such as glyphs."""

    size: ClassVar[None] = None
    draws: ClassVar[int] = 0

    def __call__(self, image: Image.Image, u: Sequence[float] = ()) -> Bytes:
        return np.asarray(image)


@dataclass(frozen=True)
class RandomResizedCrop:
    """Training: a random box of the image, resized to a square, perhaps mirrored.

    The area of the box is uniform in `scale` times the image's, its ratio of width to height
    log-uniform in `ratio`, its position uniform. After ten boxes that do not fit, the largest
    central one with an allowed ratio.
    """

    size: int = 224  # side of the result in pixels
    scale: tuple[float, float] = (0.08, 1.0)  # smallest and largest fraction of the area
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # smallest and largest ratio of width to height
    flip: float = 0.5  # the probability of a horizontal flip
    resize: int | None = None  # resize the short side to this first; None does not
    draws: ClassVar[int] = 2 * TRIES + 3

    def box(self, width: int, height: int, u: Sequence[float]) -> tuple[int, int, int, int]:
        """left, top, right, bottom in pixels."""
        (small, large), (narrow, wide) = self.scale, self.ratio
        for i in range(TRIES):
            area = width * height * (small + (large - small) * u[2 * i])
            ratio = narrow * (wide / narrow) ** u[2 * i + 1]
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left = int(u[2 * TRIES] * (width - w + 1))
                top = int(u[2 * TRIES + 1] * (height - h + 1))
                return left, top, left + w, top + h
        return middle(width, height, max(1, round(height * wide)), max(1, round(width / narrow)))

    def __call__(self, image: Image.Image, u: Sequence[float]) -> Bytes:
        if self.resize is not None:
            image = _resized_middle(image, self.resize)
        # Not resize(box=...), which blends pixels from outside the box into its border.
        part = image.crop(self.box(image.width, image.height, u))
        made = np.asarray(part.resize((self.size, self.size), Image.Resampling.BILINEAR))
        return made[:, ::-1] if u[2 * TRIES + 2] < self.flip else made


@dataclass(frozen=True)
class PadCrop:
    """Training on small images: a border of zeros, a random square of `size`, perhaps mirrored."""

    size: int = 32  # side of the result in pixels, at most that of the image with its border
    pad: int = 4  # width of the border in pixels
    flip: float = 0.5  # the probability of a horizontal flip
    draws: ClassVar[int] = 3

    def __call__(self, image: Image.Image, u: Sequence[float]) -> Bytes:
        room = [side + 2 * self.pad - self.size for side in image.size]
        if min(room) < 0:
            what = f"an image of {image.width} x {image.height} with a border of {self.pad}"
            raise ValueError(f"{what} is smaller than the crop of {self.size}: use a smaller crop")
        left, top = (int(u[i] * (room[i] + 1)) - self.pad for i in range(2))
        # Outside of the image there are zeros.
        made = np.asarray(image.crop((left, top, left + self.size, top + self.size)))
        return made[:, ::-1] if u[2] < self.flip else made


@dataclass(frozen=True)
class CenterCrop:
    """Evaluation: the short side resized to `resize`, then the square of `size` in the middle."""

    resize: int = 256
    size: int = 224
    draws: ClassVar[int] = 0

    def __call__(self, image: Image.Image, u: Sequence[float] = ()) -> Bytes:
        image = _resized_middle(image, self.resize)
        left, top = (round((side - self.size) / 2) for side in image.size)
        return np.asarray(image.crop((left, top, left + self.size, top + self.size)))


def resized(image: Image.Image, short: int) -> Image.Image:
    """The short side at `short` pixels, the long side in proportion, rounded down; bilinear with
    antialiasing."""
    width, height = image.size
    least = min(width, height)
    size = (short * width // least, short * height // least)
    return image if size == image.size else image.resize(size, Image.Resampling.BILINEAR)


def uniforms(seed: int, epoch: int, index: int, count: int) -> list[float]:
    """`count` numbers in [0, 1) that depend only on seed, epoch and image."""
    return random_stream(seed, epoch, 0, index).random(count).tolist()


def random_stream(seed: int, epoch: int, part: int, index: int = 0) -> np.random.Generator:
    """Random numbers of an epoch. Part 0 augments images, part 1 draws batches."""
    key = np.array([seed % (1 << 64), epoch], dtype=np.uint64)
    counter = np.array([0, 0, part, index], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _resized_middle(image: Image.Image, short: int) -> Image.Image:
    """Of a very elongated image only the middle: resizing all of it could fill the memory."""
    most = MAX_ASPECT * min(image.size)
    if max(image.size) > most:
        image = image.crop(middle(*image.size, most, most))
    return resized(image, short)


def middle(width: int, height: int, w: int, h: int) -> tuple[int, int, int, int]:
    """The box of at most w x h pixels in the middle of an image."""
    w, h = min(w, width), min(h, height)
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


@dataclass(frozen=True)
class Pixels:
    """A pixel convention: (byte / unit - mean) / std per channel, in the convention's order."""

    order: Literal["RGB", "BGR", "L"]  # of the channels: "RGB", "BGR", or "L" for gray
    unit: float  # 255 for numbers in [0, 1], 1 to keep 0 to 255
    mean: tuple[float, ...]  # per channel, after the division by `unit`; so is std
    std: tuple[float, ...]

    @property
    def channels(self) -> int:
        return len(self.order)

    @property
    def mode(self) -> str:
        """Pillow's mode of the images that `normalize` takes."""
        return "L" if self.order == "L" else "RGB"

    def normalize(self, images: Tensor) -> Tensor:
        """uint8 (..., h, w, channels), RGB or gray, to float32 of the same shape, on its device."""
        if self.order == "BGR":
            images = images.flip(-1)
        # By rows of pixels: broadcasting over three channels would be several times slower.
        scale, shift = _rows(self, images.shape[-2], images.device)
        return (images.reshape(-1, len(scale)) * scale).sub_(shift).view(images.shape)


@lru_cache(maxsize=64)
def _rows(pixels: Pixels, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """1 / (unit std) and mean / std, repeated for a row of pixels."""
    import torch

    std = torch.tensor(pixels.std, dtype=torch.float64)
    scale, shift = 1 / (pixels.unit * std), torch.tensor(pixels.mean, dtype=torch.float64) / std
    return scale.float().repeat(width).to(device), shift.float().repeat(width).to(device)


PIXELS = {
    "imagenet": Pixels("RGB", 255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "efficientnet_lite": Pixels("RGB", 1.0, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)),
    "caffe_bgr": Pixels("BGR", 1.0, (104.0, 117.0, 128.0), (1.0, 1.0, 1.0)),
    # For training from scratch, as the paper's classification does: the sets' own mean and
    # deviation, or bytes scaled to [-1, 1].
    "cifar10": Pixels("RGB", 1.0, (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)),
    "cifar100": Pixels("RGB", 1.0, (129.3, 124.1, 112.4), (68.2, 65.4, 70.4)),
    "centred": Pixels("RGB", 1.0, (127.5, 127.5, 127.5), (127.5, 127.5, 127.5)),
    "grey": Pixels("L", 255.0, (0.88,), (0.3,)),  # the glyphs' own
}


def pixels_named(name: str) -> Pixels:
    """A key of `PIXELS`, or "mean 0.5 0.5 0.5 std 0.5 0.5 0.5" for RGB in [0, 1]."""
    if name in PIXELS:
        return PIXELS[name]
    words = name.split() if isinstance(name, str) else []
    if words[::4] != ["mean", "std"]:
        look_up(name, PIXELS, "kind of pixels")  # raises an error that suggests the nearest
    with suppress(ValueError):
        mean, std = (tuple(map(float, part)) for part in (words[1:4], words[5:]))
        if len(std) == 3 and min(std) > 0:
            return Pixels("RGB", 255.0, mean, std)
    raise ValueError(f"pixels: expected 'mean R G B std R G B' and std above 0, got {name!r}")
