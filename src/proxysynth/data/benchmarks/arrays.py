"""Benchmarks that are arrays in memory: CIFAR-10, CIFAR-100, SVHN. Train and test share classes.

CIFAR (Krizhevsky 2009), 32 x 32 photographs:
    binary   data_batch_1.bin to _5, test_batch.bin, batches.meta.txt; an image is its label, a
             byte, and 1,024 bytes each of red, green and blue. CIFAR-100: train.bin, test.bin,
             fine_label_names.txt, and the coarse label before the fine one.
    python   the same without suffix, as pickles, which are read without running them.

SVHN (Netzer et al. 2011), 32 x 32 photographs of digits on house fronts:
    train_32x32.mat, test_32x32.mat   X (32, 32, 3, n) and y (n, 1), where 10 is the digit 0
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxysynth.data.benchmarks.catalog import CATALOG, Benchmark, Contents, copy_folder
from proxysynth.data.benchmarks.files import read_mat, read_pickle, rows
from proxysynth.data.listing import Listing

SIDE = 32
BYTES = 3 * SIDE * SIDE
SVHN_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (n, 32, 32, 3) and labels (n,)


class CifarLayout(NamedTuple):
    """How one of the two sets is laid out."""

    name: str
    parts: dict[str, tuple[str, ...]]  # the files of each part, without suffix
    names: tuple[str, str]  # the file of class names, binary and python
    keys: tuple[str, str]  # of the class names in the python file, and of the labels in the others
    label_bytes: int  # before each image in the binary files; the last one is the label


CIFAR10 = CifarLayout(
    name="cifar10",
    parts={"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    names=("batches.meta.txt", "batches.meta"),
    keys=("label_names", "labels"),
    label_bytes=1,
)
CIFAR100 = CifarLayout(
    name="cifar100",
    parts={"train": ("train",), "test": ("test",)},
    names=("fine_label_names.txt", "meta"),
    keys=("fine_label_names", "fine_labels"),
    label_bytes=2,
)


def read_cifar(layout: CifarLayout, root: str | os.PathLike[str]) -> Contents:
    """What the copy under `root` holds."""
    entry = CATALOG[layout.name]
    base = copy_folder(entry, root, layout.names)
    file, suffix, read = base / layout.names[0], ".bin", _binary
    if file.exists():
        names: Any = [row.columns[0] for row in rows(file, ("class",))]
    else:
        file, suffix, read = base / layout.names[1], "", _python
        names = read_pickle(file).get(layout.keys[0])
    if not _is_list_of(names, str) or len(set(names)) != len(names) or not names:
        raise ValueError(f"{file} must hold the names of the classes: download it again")

    def arrays(file: Path) -> Arrays:
        table, labels = read(file, layout)
        wrong = np.flatnonzero((labels < 0) | (labels >= len(names)))
        if len(wrong):
            raise ValueError(
                f"{file} must have labels below {len(names)}, image {wrong[0]} has "
                f"{labels[wrong[0]]}: download it again"
            )
        planes = table.reshape(-1, 3, SIDE, SIDE)
        return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels

    parts = {part: {s: f"{s}{suffix}" for s in stems} for part, stems in layout.parts.items()}
    return _contents(entry, base, parts, tuple(names), arrays)


def read_svhn(root: str | os.PathLike[str]) -> Contents:
    """What the copy under `root` holds."""
    entry = CATALOG["svhn"]
    base = copy_folder(entry, root, tuple(SVHN_FILES.values()))
    parts = {part: {part: file} for part, file in SVHN_FILES.items()}
    return _contents(entry, base, parts, tuple("0123456789"), _svhn)


def _contents(
    entry: Benchmark,
    base: Path,
    files: dict[str, dict[str, str]],
    classes: tuple[str, ...],
    read: Callable[[Path], Arrays],
) -> Contents:
    """`files`: of each part, its files by the prefix of the names of their images."""
    parts, missing, damaged = {}, [], []
    for part, own in files.items():
        names: list[str] = []
        pixels = [np.empty((0, SIDE, SIDE, 3), dtype=np.uint8)]
        labels = [np.empty(0, dtype=np.int64)]
        for prefix, file in own.items():
            if not (base / file).is_file():
                missing.append(file)
                continue
            try:
                x, y = read(base / file)
            except ValueError as error:
                damaged.append((file, str(error)))
                continue
            pixels.append(x)
            labels.append(y)
            names += [f"{prefix}:{i}" for i in range(len(y))]
        made = np.concatenate(labels), classes
        parts[part] = Listing(tuple(names), *made, pixels=np.concatenate(pixels))
    return Contents(entry, base, parts, missing=tuple(missing), damaged=tuple(damaged))


def _binary(file: Path, layout: CifarLayout) -> Arrays:
    data, record = np.fromfile(file, dtype=np.uint8), layout.label_bytes + BYTES
    if data.size % record:
        raise ValueError(
            f"{file} has {data.size:,} bytes, not a multiple of {record:,}: download it again"
        )
    table = data.reshape(-1, record)
    return table[:, layout.label_bytes :], table[:, layout.label_bytes - 1].astype(np.int64)


def _python(file: Path, layout: CifarLayout) -> Arrays:
    held = read_pickle(file)
    data, labels = held.get("data"), held.get(layout.keys[1], ())
    if not isinstance(data, np.ndarray) or not _is_list_of(labels, int):
        raise ValueError(f"{file} must hold data and {layout.keys[1]}, got {', '.join(held)}")
    if data.shape != (len(labels), BYTES):
        raise ValueError(f"{file} has data of shape {data.shape} for {len(labels):,} labels")
    return data, np.array(labels, dtype=np.int64)


def _svhn(file: Path) -> Arrays:
    held = read_mat(file, ("X", "y"))
    if set(held) != {"X", "y"}:
        raise ValueError(f"{file} must hold X and y, got {', '.join(held) or 'neither'}")
    x, y = held["X"], held["y"]
    if x.dtype != np.uint8 or x.shape != (SIDE, SIDE, 3, y.size) or y.dtype.kind not in "iuf":
        raise ValueError(
            f"X of {file} must be uint8 (32, 32, 3, {y.size}), got {x.dtype} {x.shape}"
        )
    labels = y.reshape(-1).astype(np.int64)
    if y.size and not 1 <= labels.min() <= labels.max() <= 10:
        raise ValueError(f"y of {file} must lie in 1..10, got {labels.min()} to {labels.max()}")
    return np.ascontiguousarray(x.transpose(3, 0, 1, 2)), labels % 10


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)
