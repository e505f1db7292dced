"""In-Shop Clothes Retrieval: photographs of 7,982 garments (Liu et al. 2016).

    list_eval_partition.txt   52712
                              image_name item_id evaluation_status
                              img/WOMEN/Dresses/id_00000002/02_1_front.jpg id_00000002 train

The last column is the split: train, query or gallery.
"""

from __future__ import annotations

import os

from .catalogue import CATALOGUE
from .contents import Contents, copy_folder, first_there, labelled
from .label_file import picture_name, rows

FILES = ("list_eval_partition.txt", "Eval/list_eval_partition.txt")
COLUMNS = ("image_name", "item_id", "evaluation_status")


def read_inshop(root: str | os.PathLike[str]) -> Contents:
    """What the copy under `root` says it holds."""
    base = copy_folder(CATALOGUE["inshop"], root, FILES)
    file = first_there(base, FILES) or FILES[0]
    above = "Img/" if first_there(base, ("img", "Img/img")) == "Img/img" else ""
    files: dict[str, list[tuple[str, str]]] = {"train": [], "query": [], "gallery": []}
    for row in rows(base / file, COLUMNS, header=COLUMNS[0]):
        name, item, part = row.columns
        if part not in files:
            raise ValueError(f"{row.where} must end in {', '.join(files)}, got {part!r}")
        files[part].append((above + picture_name(name, row.where), item))
    seen = sorted({item for _, item in files["train"]})
    unseen = sorted({item for part in ("query", "gallery") for _, item in files[part]})
    parts = {
        part: labelled(base, named, seen if part == "train" else unseen)
        for part, named in files.items()
    }
    return Contents(base, parts, dict.fromkeys(parts, file), (file,), (f"{above}img",))
