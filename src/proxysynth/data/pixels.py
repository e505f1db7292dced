"""From bytes to numbers: the pixel conventions that networks are trained with.

number = (byte / unit - mean) / std        per channel, in the convention's order of channels
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]


@dataclass(frozen=True)
class Pixels:
    """A pixel convention.

    Args:
        order: the channels: "RGB", "BGR", or "L" for one of grey.
        unit: what a byte is divided by: 255 for numbers in [0, 1], 1 to keep 0 to 255.
        mean, std: per channel, in that order, after the division.
    """

    order: Literal["RGB", "BGR", "L"]
    unit: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.order not in ("RGB", "BGR", "L"):
            raise ValueError(f"the order of channels must be RGB, BGR or L, got {self.order!r}")
        if not len(self.mean) == len(self.std) == self.channels:
            raise ValueError(
                f"mean and std must have {self.channels} numbers for {self.order}, "
                f"got {len(self.mean)} and {len(self.std)}"
            )
        if self.unit <= 0 or min(self.std) <= 0:
            raise ValueError(f"unit and std must be above 0, got {self.unit} and {self.std}")

    @property
    def channels(self) -> int:
        return len(self.order)

    @property
    def mode(self) -> str:
        """Pillow's name for the pictures that `numbers` takes."""
        return "L" if self.order == "L" else "RGB"

    def numbers(
        self, pictures: NDArray[np.uint8], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """uint8 (..., h, w, channels), RGB or grey, to float32 of the same shape."""
        if pictures.dtype != np.uint8 or pictures.ndim < 3 or pictures.shape[-1] != self.channels:
            raise ValueError(
                f"expected uint8 (..., h, w, {self.channels}), "
                f"got {pictures.dtype} {pictures.shape}"
            )
        if out is None:
            out = np.empty(pictures.shape, dtype=np.float32)
        if self.order == "BGR":
            pictures = pictures[..., ::-1]
        # Whole rows of pixels at once: a loop over three channels would be several times slower.
        scale, shift = _rows(self, pictures.shape[-2])
        rows = out.reshape(-1, len(scale))
        np.multiply(pictures.reshape(-1, len(scale)), scale, out=rows)
        np.subtract(rows, shift, out=rows)
        return out


@lru_cache(maxsize=64)
def _rows(pixels: Pixels, width: int) -> tuple[Row, Row]:
    """1 / (unit std) and mean / std, repeated for a row of pixels."""
    std = np.array(pixels.std, dtype=np.float64)
    scale, shift = 1 / (pixels.unit * std), np.array(pixels.mean, dtype=np.float64) / std
    return (
        np.tile(scale.astype(np.float32), width),
        np.tile(shift.astype(np.float32), width),
    )


PIXELS = {
    "imagenet": Pixels("RGB", 255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "efficientnet_lite": Pixels("RGB", 1.0, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)),
    "caffe_bgr": Pixels("BGR", 1.0, (104.0, 117.0, 128.0), (1.0, 1.0, 1.0)),
    # For training from nothing, as the paper's classification does: the sets' own mean and spread,
    # or bytes brought to [-1, 1].
    "cifar10": Pixels("RGB", 1.0, (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)),
    "cifar100": Pixels("RGB", 1.0, (129.3, 124.1, 112.4), (68.2, 65.4, 70.4)),
    "centred": Pixels("RGB", 1.0, (127.5, 127.5, 127.5), (127.5, 127.5, 127.5)),
    "grey": Pixels("L", 255.0, (0.88,), (0.3,)),  # the mean and spread of the glyphs
}
