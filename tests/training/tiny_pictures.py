"""Folders of small pictures to train on."""

from __future__ import annotations

import numpy as np
from PIL import Image


def pictures(root, classes: int = 6, each: int = 5, size=(40, 32)):
    """A folder of pictures with one sub-folder per class; a class has a color of its own."""
    for c in range(classes):
        draw = np.random.default_rng(c)
        color = draw.integers(0, 256, 3)
        (root / f"class{c}").mkdir(parents=True)
        for i in range(each):
            noise = draw.normal(color, 40, (size[1], size[0], 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(noise).save(root / f"class{c}" / f"{i}.png")
    return root
