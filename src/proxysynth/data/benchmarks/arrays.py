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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxysynth.data.benchmarks.catalog import CATALOG
from proxysynth.data.benchmarks.contents import Contents, copy_folder, first_there
from proxysynth.data.benchmarks.files import read_mat, read_pickle, rows
from proxysynth.data.listing import Listing

SIDE = 32
BYTES = 3 * SIDE * SIDE
DIGITS = tuple("0123456789")
SVHN_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (n, 32, 32, 3) and labels (n,)


@dataclass(frozen=True)
class CifarLayout:
    """How one of the two sets is laid out.

    Args:
        name: of the benchmark.
        parts: the files of each part, without suffix.
        names: the file of class names, binary and python.
        keys: of the class names in the python file, and of the labels in the others.
        label_bytes: before each image in the binary files; the last one is the label.
    """

    name: str
    parts: dict[str, tuple[str, ...]]
    names: tuple[str, str]
    keys: tuple[str, str]
    label_bytes: int


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
    base = copy_folder(CATALOG[layout.name], root, layout.names)
    binary = first_there(base, layout.names) == layout.names[0]
    suffix, reader = (".bin", _binary) if binary else ("", _python)
    classes = _class_names(base, layout, binary)
    files = {
        part: [(stem, f"{stem}{suffix}") for stem in stems] for part, stems in layout.parts.items()
    }
    return _contents(base, files, classes, partial(reader, layout=layout, c=len(classes)))


def read_svhn(root: str | os.PathLike[str]) -> Contents:
    """What the copy under `root` holds."""
    base = copy_folder(CATALOG["svhn"], root, tuple(SVHN_FILES.values()))
    files = {part: [(part, file)] for part, file in SVHN_FILES.items()}
    return _contents(base, files, DIGITS, _svhn)


def _contents(
    base: Path,
    files: dict[str, list[tuple[str, str]]],
    classes: tuple[str, ...],
    reader: Callable[[Path], Arrays],
) -> Contents:
    """`files`: of each part, pairs of a prefix for the names of its images and a file."""
    parts, missing, damaged = {}, [], []
    for part, pairs in files.items():
        names: list[str] = []
        pixels = [np.empty((0, SIDE, SIDE, 3), dtype=np.uint8)]
        labels = [np.empty(0, dtype=np.int64)]
        for prefix, file in pairs:
            if not (base / file).is_file():
                missing.append(file)
                continue
            try:
                found = reader(base / file)
            except ValueError as error:
                damaged.append((file, str(error)))
                continue
            pixels.append(found[0])
            labels.append(found[1])
            names += [f"{prefix}:{i}" for i in range(len(found[1]))]
        parts[part] = Listing(
            tuple(names), np.concatenate(labels), classes, pixels=np.concatenate(pixels)
        )
    return Contents(base, parts, missing=tuple(missing), damaged=tuple(damaged))


def _class_names(base: Path, layout: CifarLayout, binary: bool) -> tuple[str, ...]:
    file = base / layout.names[0 if binary else 1]
    names: Any = (
        [row.columns[0] for row in rows(file, ("class",))]
        if binary
        else read_pickle(file).get(layout.keys[0])
    )
    if not _is_list_of(names, str) or len(set(names)) != len(names) or not names:
        raise ValueError(f"{file} must hold the names of the classes: download it again")
    return tuple(names)


def _binary(file: Path, layout: CifarLayout, c: int) -> Arrays:
    data, record = np.fromfile(file, dtype=np.uint8), layout.label_bytes + BYTES
    if data.size % record:
        raise ValueError(
            f"{file} has {data.size:,} bytes, not a multiple of {record:,}: download it again"
        )
    table = data.reshape(-1, record)
    return _from_planes(
        file, table[:, layout.label_bytes :], table[:, layout.label_bytes - 1].tolist(), c
    )


def _python(file: Path, layout: CifarLayout, c: int) -> Arrays:
    held = read_pickle(file)
    data, labels = held.get("data"), held.get(layout.keys[1], ())
    if not isinstance(data, np.ndarray) or not _is_list_of(labels, int):
        raise ValueError(f"{file} must hold data and {layout.keys[1]}, got {', '.join(held)}")
    if data.shape != (len(labels), BYTES):
        raise ValueError(f"{file} has data of shape {data.shape} for {len(labels):,} labels")
    return _from_planes(file, data, labels, c)


def _from_planes(file: Path, table: NDArray[np.uint8], labels: Iterable[int], c: int) -> Arrays:
    y = np.array(labels, dtype=np.int64)
    wrong = np.flatnonzero((y < 0) | (y >= c))
    if len(wrong):
        raise ValueError(
            f"{file} must have labels below {c}, image {wrong[0]} has {y[wrong[0]]}: "
            "download it again"
        )
    planes = table.reshape(-1, 3, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), y


def _svhn(file: Path) -> Arrays:
    held = read_mat(file, ("X", "y"))
    x, y = held.get("X"), held.get("y")
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):
        raise ValueError(f"{file} must hold X and y, got {', '.join(held) or 'neither'}")
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
