"""CUB-200-2011: photographs of 200 kinds of birds (Wah et al. 2011).

    images.txt               1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
    image_class_labels.txt   1 1
    images/                  001.Black_footed_Albatross/...

The first 100 classes train, the other 100 test; boxes are not used.
"""

from __future__ import annotations

import os

from .catalogue import CATALOGUE
from .contents import Contents, copy_folder, first_there, labelled
from .label_file import picture_name, rows, whole_number


def read_cub200(root: str | os.PathLike[str]) -> Contents:
    """What the copy under `root` says it holds."""
    entry = CATALOGUE["cub200"]
    base = copy_folder(entry, root, ("images.txt",))
    label_of = {
        whole_number(row.columns[0], row.where): whole_number(row.columns[1], row.where)
        for row in rows(base / "image_class_labels.txt", ("image number", "class number"))
    }
    last_seen = entry.classes["train"]
    files: dict[str, list[tuple[int, str]]] = {"train": [], "test": []}
    folder_of: dict[int, str] = {}
    for row in rows(base / "images.txt", ("image number", "path")):
        number = whole_number(row.columns[0], row.where)
        if number not in label_of:
            raise ValueError(
                f"{base / 'image_class_labels.txt'} has no line for image {number}, which "
                f"{row.where} names: download it again"
            )
        label = label_of[number]
        name = picture_name(row.columns[1], row.where)
        folder_of.setdefault(label, name.partition("/")[0])
        files["train" if label <= last_seen else "test"].append((label, f"images/{name}"))
    parts = {}
    for part, pairs in files.items():
        classes = [folder_of[label] for label in sorted({label for label, _ in pairs})]
        named = [(name, folder_of[label]) for label, name in pairs]
        parts[part] = labelled(base, named, classes)
    kept = ["images.txt", "image_class_labels.txt"]
    if first_there(base, ("classes.txt",)):
        kept.append("classes.txt")
    return Contents(
        base, parts, dict.fromkeys(parts, "images.txt"), tuple(kept), folders=("images",)
    )
