"""Every test of data keeps its cache in a folder of its own session."""

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def make_folder(tmp_path):
    """make_folder({"cats": 3, "dogs": 2}, size=(40, 30)) -> a folder of seeded noise images."""

    def make(classes, size=(40, 30), suffix=".png", root=tmp_path / "pictures"):
        seed = 0
        for name, count in classes.items():
            (root / name).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                seed += 1
                noise = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), np.uint8)
                Image.fromarray(noise).save(root / name / f"{i}{suffix}")
        return root

    return make
