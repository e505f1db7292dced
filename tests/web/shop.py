"""A small shop of drawn pictures, a run trained on half of its classes, and its index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from proxysynth.report import write_report
from proxysynth.search.build import update_index
from proxysynth.search.model import open_model
from proxysynth.training import Run, train

CLASSES = ("apple", "boat", "cup", "drum", "egg & <spoon>", "flag", "gate", "hat")
EACH = 6


def draw_pictures(root: Path, classes=CLASSES, each: int = EACH) -> Path:
    """A folder with one sub-folder per class; a class has a colour and a number of corners."""
    for c, name in enumerate(classes):
        folder = root / name
        folder.mkdir(parents=True)
        for i in range(each):
            draw = np.random.default_rng([c, i])
            image = Image.new("RGB", (120, 96), (245, 243, 238))
            pen = ImageDraw.Draw(image)
            colour = tuple(int(v) for v in np.random.default_rng(c).integers(30, 220, 3))
            angle = np.linspace(0, 2 * np.pi, 3 + c, endpoint=False) + draw.uniform(0, 6)
            x, y, r = 60 + draw.normal(0, 6), 48 + draw.normal(0, 5), draw.uniform(26, 38)
            pen.polygon([(x + r * np.cos(a), y + r * np.sin(a)) for a in angle], fill=colour)
            image.save(folder / f"{i}.{'jpg' if i % 2 else 'png'}")
    return root


def make_shop(place: Path) -> Path:
    """A folder with `pictures/`, `run/` (with a report) and `shop.index`."""
    pictures = draw_pictures(place / "pictures")
    run = Run(
        data=str(pictures), epochs=2, dim=16, width=0.25, batch_size=8, image_size=32, cache_side=0
    )
    train(run, place / "run")
    write_report(place / "run")
    update_index(open_model(place / "run"), pictures, place / "shop.index")
    return place
