"""Stanford Online Products: photographs of 22,634 things once for sale (Oh Song et al. 2016).

    Ebay_train.txt   image_id class_id super_class_id path
                     1 1 1 bicycle_final/111085122871_0.JPG

The two label files are the split.
"""

from __future__ import annotations

import os

from .catalogue import CATALOGUE
from .contents import Contents, copy_folder, labelled
from .label_file import picture_name, rows, whole_number

FILES = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}
COLUMNS = ("image_id", "class_id", "super_class_id", "path")


def read_sop(root: str | os.PathLike[str]) -> Contents:
    """What the copy under `root` says it holds."""
    base = copy_folder(CATALOGUE["sop"], root, tuple(FILES.values()))
    parts, folders = {}, set()
    for part, file in FILES.items():
        named = []
        for row in rows(base / file, COLUMNS, header=COLUMNS[0]):
            label = str(whole_number(row.columns[1], row.where))
            named.append((picture_name(row.columns[3], row.where), label))
        folders |= {name.partition("/")[0] for name, _ in named if "/" in name}
        parts[part] = labelled(base, named, sorted({label for _, label in named}, key=int))
    return Contents(base, parts, FILES, tuple(FILES.values()), tuple(sorted(folders)))
