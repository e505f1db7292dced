"""TinyImageNet: 200 classes of ImageNet at 64 x 64.

    wnids.txt                  n02124075
    train/                     n02124075/images/n02124075_0.JPEG
    val/val_annotations.txt    val_0.JPEG n03444034 0 32 44 62
    val/images/                val_0.JPEG

Train and test have the same classes; the validation pictures are the test.
"""

from __future__ import annotations

import os

from .catalogue import CATALOGUE
from .contents import Contents, copy_folder, first_there, labelled, picture_files
from .label_file import picture_name, rows

LABELS = "val/val_annotations.txt"


def read_tiny_imagenet(root: str | os.PathLike[str]) -> Contents:
    """What the copy under `root` says it holds; the training folders speak for themselves."""
    base = copy_folder(CATALOGUE["tiny_imagenet"], root, ("wnids.txt",))
    classes = [row.columns[0] for row in rows(base / "wnids.txt", ("class",))]
    train, missing = [], []
    for label in classes:
        folder = f"train/{picture_name(label, f'{base}/wnids.txt')}/images"
        found = picture_files(base / folder)
        train += [(f"{folder}/{name}", label) for name in found]
        if not found:
            missing.append(folder)
    test = []
    for row in rows(base / LABELS, ("picture", "class", "box")):
        if row.columns[1] not in classes:
            raise ValueError(f"{row.where} has class {row.columns[1]!r}, not one of wnids.txt")
        name = picture_name(row.columns[0], row.where)
        test.append((f"val/images/{name}", row.columns[1]))
    parts = {"train": labelled(base, train, classes), "test": labelled(base, test, classes)}
    kept = ["wnids.txt", LABELS]
    if first_there(base, ("words.txt",)):
        kept.append("words.txt")
    folders = (*(f"train/{label}/images" for label in classes), "val/images")
    return Contents(
        base, parts, {"train": "", "test": LABELS}, tuple(kept), folders, tuple(missing)
    )
