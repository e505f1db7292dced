"""CIFAR-10 and CIFAR-100: 32 x 32 photographs of ten and of a hundred classes (Krizhevsky 2009).

    binary   data_batch_1.bin to _5, test_batch.bin, batches.meta.txt; a picture is its label, a
             byte, and 1,024 bytes each of red, green and blue. CIFAR-100: train.bin, test.bin,
             fine_label_names.txt, and the coarse label before the fine one.
    python   the same without suffix, as pickles, which are read without running them.

Train and test have the same classes; the pictures are held in memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..inert_pickle import read_pickle
from ..listing import Listing
from .catalogue import CATALOGUE
from .contents import Contents, copy_folder, first_there
from .label_file import rows

SIDE = 32
BYTES = 3 * SIDE * SIDE

Pictures = tuple[NDArray[np.uint8], NDArray[np.int64]]  # (n, 32, 32, 3) and (n,)


@dataclass(frozen=True)
class Layout:
    """How one of the two sets is laid out.

    Args:
        name: of the benchmark.
        parts: the files of each part, without suffix.
        names: the file of class names, binary and python.
        key: of the class names in the python file, and of the labels in the others.
        label_bytes: before each picture in the binary files; the last one is the label.
    """

    name: str
    parts: dict[str, tuple[str, ...]]
    names: tuple[str, str]
    key: tuple[str, str]
    label_bytes: int


TEN = Layout(
    name="cifar10",
    parts={"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    names=("batches.meta.txt", "batches.meta"),
    key=("label_names", "labels"),
    label_bytes=1,
)
HUNDRED = Layout(
    name="cifar100",
    parts={"train": ("train",), "test": ("test",)},
    names=("fine_label_names.txt", "meta"),
    key=("fine_label_names", "fine_labels"),
    label_bytes=2,
)


def read_cifar10(root: str | os.PathLike[str]) -> Contents:
    """What the copy of CIFAR-10 under `root` holds."""
    return _read(TEN, root)


def read_cifar100(root: str | os.PathLike[str]) -> Contents:
    """What the copy of CIFAR-100 under `root` holds."""
    return _read(HUNDRED, root)


def _read(layout: Layout, root: str | os.PathLike[str]) -> Contents:
    base = copy_folder(CATALOGUE[layout.name], root, layout.names)
    binary = first_there(base, layout.names) == layout.names[0]
    suffix, reader = (".bin", _binary) if binary else ("", _python)
    classes = _class_names(base, layout, binary)
    parts, missing, damaged = {}, [], []
    for part, stems in layout.parts.items():
        names: list[str] = []
        pictures: list[Pictures] = [_none()]
        for stem in stems:
            if not (base / f"{stem}{suffix}").is_file():
                missing.append(f"{stem}{suffix}")
                continue
            try:
                made = reader(base / f"{stem}{suffix}", layout, len(classes))
            except ValueError as error:
                damaged.append((f"{stem}{suffix}", str(error)))
                continue
            pictures.append(made)
            names += [f"{stem}:{i}" for i in range(len(made[1]))]
        parts[part] = Listing(
            names=tuple(names),
            labels=np.concatenate([labels for _, labels in pictures]),
            classes=classes,
            pixels=np.concatenate([pixels for pixels, _ in pictures]),
        )
    return Contents(base, parts, missing=tuple(missing), damaged=tuple(damaged))


def _class_names(base: Path, layout: Layout, binary: bool) -> tuple[str, ...]:
    file = base / layout.names[0 if binary else 1]
    if binary:
        names: Any = [row.columns[0] for row in rows(file, ("class",))]
    else:
        names = read_pickle(file).get(layout.key[0])
    if not _are(names, str) or len(set(names)) != len(names) or not names:
        raise ValueError(f"{file} must hold the names of the classes: download it again")
    return tuple(names)


def _binary(file: Path, layout: Layout, c: int) -> Pictures:
    data, record = np.fromfile(file, dtype=np.uint8), layout.label_bytes + BYTES
    if data.size % record:
        raise ValueError(
            f"{file} has {data.size:,} bytes, not a multiple of {record:,}: download it again"
        )
    table = data.reshape(-1, record)
    labels = table[:, layout.label_bytes - 1].astype(np.int64)
    return _pictures(file, table[:, layout.label_bytes :], labels, c)


def _python(file: Path, layout: Layout, c: int) -> Pictures:
    held = read_pickle(file)
    data, labels = held.get("data"), held.get(layout.key[1], ())
    if not isinstance(data, np.ndarray) or not _are(labels, int):
        raise ValueError(f"{file} must hold data and {layout.key[1]}, got {', '.join(held)}")
    if data.shape != (len(labels), BYTES):
        raise ValueError(f"{file} has data of shape {data.shape} for {len(labels):,} labels")
    return _pictures(file, data, np.array(labels, dtype=np.int64), c)


def _pictures(file: Path, table: NDArray[np.uint8], labels: NDArray[np.int64], c: int) -> Pictures:
    if len(labels) and not 0 <= labels.min() <= labels.max() < c:
        wrong = int(np.flatnonzero((labels < 0) | (labels >= c))[0])
        raise ValueError(
            f"{file} must have labels below {c}, picture {wrong} has {labels[wrong]}: "
            "download it again"
        )
    planes = table.reshape(-1, 3, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


def _none() -> Pictures:
    return np.empty((0, SIDE, SIDE, 3), dtype=np.uint8), np.empty(0, dtype=np.int64)


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)
