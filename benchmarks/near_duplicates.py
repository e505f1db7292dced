"""How similar altered copies and merely similar photographs are: what a threshold finds.

    python -m benchmarks.near_duplicates grocery.index --save results

A row per threshold: pairs of images of the index that reach it, with one label and with two, and
the share of altered copies of some of the images that reach it with their original.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from benchmarks import Row, save_rows_of_indexes
from proxysynth.search.index import Index

THRESHOLDS = (0.85, 0.9, 0.93, 0.95, 0.97, 0.99)
COPIES = 60  # images that are altered

ALTERED: dict[str, Callable[[Image.Image], Image.Image]] = {
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.25),
    "mirrored": ImageOps.mirror,
    "jpeg_40": lambda image: _jpeg(image, 40),
    "cropped": lambda image: ImageOps.crop(image, min(image.size) // 20),
    "half_size": lambda image: image.resize((image.width // 2, image.height // 2)),
}


def run(file: Path) -> list[Row]:
    """The rows of an index."""
    index = Index.open(file)
    x = torch.nn.functional.normalize(index.vectors().double())
    above = np.triu_indices(len(x), 1)
    s, labels = (x @ x.T).numpy()[above], np.asarray(index.labels.codes)
    same = labels[above[0]] == labels[above[1]]
    chosen = np.sort(np.random.default_rng(0).choice(len(x), COPIES, replace=False))
    images = [Image.open(index.path(int(i))).convert("RGB") for i in chosen]
    embedder = index.embedder()
    copies = {
        kind: (embedder.embed(map(alter, images)).double() * x[chosen]).sum(1)
        for kind, alter in ALTERED.items()
    }
    return [
        {
            "bench": "near_duplicates",
            "data": file.stem,
            "model": index.model.backbone,
            "images": len(x),
            "threshold": threshold,
            "pairs_of_one_label": int((same & (s >= threshold)).sum()),
            "pairs_of_two_labels": int((~same & (s >= threshold)).sum()),
            "copies": COPIES,
            **{kind: float((found >= threshold).double().mean()) for kind, found in copies.items()},
        }
        for threshold in THRESHOLDS
    ]


def _jpeg(image: Image.Image, quality: int) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream)


if __name__ == "__main__":
    save_rows_of_indexes(run)
