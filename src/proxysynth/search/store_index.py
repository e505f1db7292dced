"""An index written from its rows, whichever way these came about."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxysynth.search.describe_model import ModelIdentity
from proxysynth.search.index_file import write_index
from proxysynth.search.texts import encoded, pack


def store_index(
    file: Path,
    model: ModelIdentity,
    root: str | os.PathLike[str],
    paths: Sequence[str],
    labels: Sequence[str | None],
    stamps: NDArray[np.int64],
    blocks: Iterable[NDArray[np.float32]],
) -> None:
    """Write the file of an index, whole or not at all.

    Args:
        model: what made the rows.
        root: the folder of the pictures.
        paths: under the root, sorted by their bytes, no two the same.
        labels: of each item, or None.
        stamps: (n, 2) size and time of each file.
        blocks: the rows (n, d) of unit length, a block at a time.
    """
    raw = [encoded(path) for path in paths]
    if any(one >= other for one, other in itertools.pairwise(raw)):
        raise ValueError("the paths of an index must be sorted by their bytes and differ")
    names = sorted({label for label in labels if label is not None})
    place: dict[str | None, int] = {name: code for code, name in enumerate(names)}
    codes = np.array([place.get(label, -1) for label in labels], dtype=np.int32)
    path_text, path_ends = pack(paths)
    label_text, label_ends = pack(names)
    write_index(
        file,
        {
            "generation": uuid.uuid4().hex,
            "root": os.path.abspath(root),
            "model": model.to_json(),
        },
        (len(paths), model.dim),
        blocks,
        {
            "stamps": stamps,
            "path_text": path_text,
            "path_ends": path_ends,
            "label_text": label_text,
            "label_ends": label_ends,
            "label_codes": codes,
        },
    )
