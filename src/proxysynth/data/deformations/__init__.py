"""The eight deformations of test pictures.                              [supplement C.3, Table 3]

Each is a frozen value and a function `(picture, rng) -> picture` on bytes, (h, w) or (h, w, 3).
"""

from collections.abc import Mapping

from .covering import Cutout, Dropout
from .deformed import Deform, Deformed
from .filtering import GaussianBlur, GaussianNoise
from .warping import Rotation, Shearing, Zoom

DEFORMATIONS: Mapping[str, Deform] = {
    "cutout": Cutout(),
    "dropout": Dropout(),
    "zoom_in": Zoom(0.5),
    "zoom_out": Zoom(1.5),
    "rotation": Rotation(),
    "shearing": Shearing(),
    "gaussian_noise": GaussianNoise(),
    "gaussian_blur": GaussianBlur(),
}
"""Those of Table 3, in its order and at its settings."""

__all__ = [
    "DEFORMATIONS",
    "Cutout",
    "Deform",
    "Deformed",
    "Dropout",
    "GaussianBlur",
    "GaussianNoise",
    "Rotation",
    "Shearing",
    "Zoom",
]
