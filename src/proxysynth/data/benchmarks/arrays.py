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

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxysynth.data.benchmarks.catalog import Benchmark, Contents, copy_folder
from proxysynth.data.benchmarks.files import read_mat, read_pickle, rows
from proxysynth.data.images import PathLike
from proxysynth.data.listing import Listing

SIDE = 32
BYTES = 3 * SIDE * SIDE

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (n, 32, 32, 3) and labels (n,)


def read_cifar10(entry: Benchmark, root: PathLike) -> Contents:
    train = [f"data_batch_{i}" for i in range(1, 6)]
    parts = {"train": train, "test": ["test_batch"]}
    return _read_cifar(entry, root, parts, ("batches.meta.txt", "batches.meta"), "", label_bytes=1)


def read_cifar100(entry: Benchmark, root: PathLike) -> Contents:
    parts = {"train": ["train"], "test": ["test"]}
    return _read_cifar(entry, root, parts, ("fine_label_names.txt", "meta"), "fine_", label_bytes=2)


def _read_cifar(
    entry: Benchmark,
    root: PathLike,
    stems: dict[str, list[str]],
    names_files: tuple[str, str],
    prefix: str,
    label_bytes: int,
) -> Contents:
    """What the copy under `root` holds.

    Args:
        stems: the files of each part, without suffix.
        names_files: the file of class names, binary and python.
        prefix: of the keys `label_names` and `labels` in the python files.
        label_bytes: before each image in the binary files; the last one is the label.
    """
    base = copy_folder(entry, root, names_files)
    binary = (base / names_files[0]).exists()
    names_file = base / names_files[0 if binary else 1]
    names: Any
    if binary:
        names = [row.columns[0] for row in rows(names_file, ("class",))]
    else:
        names = read_pickle(names_file).get(f"{prefix}label_names")
    if not _is_list_of(names, str) or not names:
        raise ValueError(f"{names_file} must hold the names of the classes: download it again")

    def arrays(file: Path) -> Arrays:
        if binary:
            data, labels = _binary(file, label_bytes)
        else:
            data, labels = _python(file, f"{prefix}labels")
        return data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), labels

    return _contents(entry, base, stems, ".bin" if binary else "", tuple(names), arrays)


def _binary(file: Path, label_bytes: int) -> Arrays:
    data, record = np.fromfile(file, dtype=np.uint8), label_bytes + BYTES
    if data.size % record:
        raise ValueError(
            f"{file} has {data.size:,} bytes, not a multiple of {record:,}: download it again"
        )
    table = data.reshape(-1, record)
    return table[:, label_bytes:], table[:, label_bytes - 1].astype(np.int64)


def _python(file: Path, key: str) -> Arrays:
    held = read_pickle(file)
    data, labels = held.get("data"), held.get(key, ())
    if not isinstance(data, np.ndarray) or not _is_list_of(labels, int):
        raise ValueError(f"{file} must hold data and {key}, got {', '.join(held)}")
    if data.shape != (len(labels), BYTES):
        raise ValueError(f"{file} has data of shape {data.shape} for {len(labels):,} labels")
    return data, np.array(labels, dtype=np.int64)


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def read_svhn(entry: Benchmark, root: PathLike) -> Contents:
    base = copy_folder(entry, root, ("train_32x32.mat", "test_32x32.mat"))
    stems = {"train": ["train"], "test": ["test"]}
    return _contents(entry, base, stems, "_32x32.mat", tuple("0123456789"), _svhn)


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
    return x.transpose(3, 0, 1, 2), np.where(labels == 10, 0, labels)


def _contents(
    entry: Benchmark,
    base: Path,
    stems: dict[str, list[str]],
    suffix: str,
    classes: tuple[str, ...],
    read: Callable[[Path], Arrays],
) -> Contents:
    """The images of the files `stem + suffix` of each part, named `stem:0`, `stem:1`, ..."""
    parts, missing, damaged = {}, [], []
    for part, own in stems.items():
        names: list[str] = []
        pixels = [np.empty((0, SIDE, SIDE, 3), dtype=np.uint8)]
        labels = [np.empty(0, dtype=np.int64)]
        for stem in own:
            file = stem + suffix
            if not (base / file).is_file():
                missing.append(file)
                continue
            try:
                x, y = read(base / file)
                wrong = y[(y < 0) | (y >= len(classes))]
                if len(wrong):
                    raise ValueError(
                        f"{base / file} must have labels below {len(classes)}, got {wrong[0]}: "
                        "download it again"
                    )
            except ValueError as error:
                damaged.append((file, str(error)))
                continue
            pixels.append(np.ascontiguousarray(x))
            labels.append(y)
            names += [f"{stem}:{i}" for i in range(len(y))]
        made = np.concatenate(labels), classes
        parts[part] = Listing(tuple(names), *made, pixels=np.concatenate(pixels))
    return Contents(entry, base, parts, missing=tuple(missing), damaged=tuple(damaged))
