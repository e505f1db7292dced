"""The published layouts of the eight benchmarks: a reader finds the images and labels of a copy.

Of the folders of photographs, only the label files are read; CIFAR and SVHN are arrays, read whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxysynth.data.benchmarks.catalog import Benchmark, Contents, copy_folder, first_there
from proxysynth.data.benchmarks.files import (
    DamagedFile,
    read_mat,
    read_pickle,
    reading,
    relative_name,
    rows,
)
from proxysynth.data.folders import absolute, folder_entries, image_files
from proxysynth.data.images import PathLike
from proxysynth.data.listing import Listing, listing_of_files

CARS_LABELS = ("cars_annos.mat", "devkit/cars_annos.mat")
CARS_HALVES = {
    "cars_train": ("devkit/cars_train_annos.mat", "cars_train_annos.mat"),
    "cars_test": (
        "cars_test_annos_withlabels.mat",
        "devkit/cars_test_annos_withlabels.mat",
        "cars_test_annos_withlabels (1).mat",  # as some copies spell it
    ),
}
CARS_META = ("devkit/cars_meta.mat", "cars_meta.mat")
# In alphabetical order the 98th class is an Eagle and the 99th a FIAT, in the set's own order too.
CARS_FIRST_UNSEEN = "f"

SIDE = 32  # of the images that are arrays
BYTES = 3 * SIDE * SIDE
Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (n, 32, 32, 3) and labels (n,)


def read_cub200(entry: Benchmark, root: PathLike) -> Contents:
    """CUB-200-2011: 200 kinds of birds (Wah et al. 2011); the first 100 train, the others test.

    images.txt               1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
    image_class_labels.txt   1 1
    images/                  001.Black_footed_Albatross/...
    """
    base = copy_folder(entry, root, ("images.txt",))
    labels = base / "image_class_labels.txt"
    numbers = rows(labels, ("image number", "class number"))
    label_of = {row.integer(0): row.integer(1) for row in numbers}
    files: list[tuple[str, int]] = []
    folder_of: dict[int, str] = {}
    for row in rows(base / "images.txt", ("image number", "path")):
        label = label_of.get(row.integer(0))
        if label is None:
            raise ValueError(f"{labels} lacks image {row.integer(0)}: download it again")
        name = row.path(1)
        folder_of.setdefault(label, name.partition("/")[0])
        files.append((f"images/{name}", label))
    parts = _halves(entry, base, files, folder_of)
    return Contents(entry, base, parts, ("images.txt", labels.name, "classes.txt"), ("images",))


def _halves(
    entry: Benchmark, base: Path, files: list[tuple[str, int]], called: Mapping[int, str]
) -> dict[str, Listing]:
    """The images of the first classes to train on, those of the others to test on."""
    last_seen, parts = entry.classes["train"], {}
    for part in ("train", "test"):
        chosen = [(file, c) for file, c in files if (c <= last_seen) == (part == "train")]
        names = [called[c] for c in sorted({c for _, c in chosen})]
        parts[part] = listing_of_files(base, [(file, called[c]) for file, c in chosen], names)
    return parts


def read_cars196(entry: Benchmark, root: PathLike) -> Contents:
    """CARS196: 196 models of cars (Krause et al. 2013), in any of its three forms.

        cars_annos.mat, car_ims/             one file for all images
        devkit/, cars_train/, cars_test/     cars_train_annos.mat, cars_test_annos_withlabels.mat
        a folder per class                   Acura TL Sedan 2012/*.jpg, or under train/ and test/

    The first 98 classes train, the other 98 test. The set's own halves train and test share
    classes, so they are joined first.
    """
    try:
        base = copy_folder(entry, root, (*CARS_LABELS, "cars_train", "car_ims"))
    except ValueError:
        if (found := _cars_by_folder(entry, absolute(root))) is None:
            raise
        return found
    halves = (base / "cars_train").is_dir() and not (base / "car_ims").is_dir()
    wanted = CARS_HALVES if halves else {"car_ims": CARS_LABELS}
    files: list[tuple[str, int]] = []
    kept, folders = [], []
    for folder, places in wanted.items():
        file = first_there(base, places)
        if file is None:
            raise ValueError(f"{base} has no {places[0]}, which labels {folder}: add it")
        # Some copies were unpacked one folder too deep.
        if halves and (base / folder / folder).is_dir():
            folder = f"{folder}/{folder}"
        field, above = ("fname", f"{folder}/") if halves else ("relative_im_path", "")
        held = read_mat(base / file, ("annotations",), simplify=True)
        annotations = np.atleast_1d(held.get("annotations", ()))
        if not len(annotations) or not isinstance(annotations[0], dict):
            raise ValueError(f"{base / file} must hold annotations")
        for i, row in enumerate(annotations, start=1):
            name, c, where = row.get(field), row.get("class"), f"annotation {i} of {base / file}"
            if not isinstance(name, str) or not isinstance(c, (int, float)) or c != c // 1:
                raise ValueError(f"{where} must have {field} and class, got {', '.join(row)}")
            files.append((above + relative_name(name, where), int(c)))
        folders.append(folder)
        kept.append(file)
    names: list[str] = []
    if names_file := first_there(base, CARS_META if halves else kept):
        held = read_mat(base / names_file, ("class_names",), simplify=True)
        names = [str(name) for name in np.atleast_1d(held.get("class_names", ()))]
        kept += [names_file] if halves else []
    called = {c: names[c - 1] if 0 < c <= len(names) else str(c) for _, c in files}
    parts = _halves(entry, base, files, called)
    return Contents(entry, base, parts, tuple(kept), tuple(folders))


def _cars_by_folder(entry: Benchmark, root: Path) -> Contents | None:
    """A folder per class, in the root or in what its archive makes there; None for neither."""
    for base in filter(Path.is_dir, (root / folder for folder in ("", *entry.folders))):
        above = [half for half in ("train", "test") if (base / half).is_dir()] or [""]
        images: dict[str, list[str]] = {}
        for half in above:
            for folder in folder_entries(base / half)[0]:
                place = f"{half}/{folder.name}".lstrip("/")
                for name in image_files(folder.path):
                    images.setdefault(folder.name, []).append(f"{place}/{name}")
        if images:
            parts = {}
            for part, classes in _cars_split(entry, list(images)).items():
                files = [(name, c) for c in classes for name in images[c]]
                parts[part] = listing_of_files(base, files, classes)
            folders = sorted(images) if above == [""] else above
            return Contents(entry, base, parts, folders=tuple(folders))
    return None


def _cars_split(entry: Benchmark, classes: list[str]) -> dict[str, list[str]]:
    """The class folders to train and to test on: by number if they have one, else by name."""
    numbers = {name: int(m[1]) for name in classes if (m := re.match(r"(\d+)(?![^\W_])", name))}
    if len(numbers) == len(classes):
        first = 0 if 0 in numbers.values() else 1
        ordered = sorted(classes, key=lambda name: numbers[name])
        seen = [name for name in ordered if numbers[name] - first < entry.classes["train"]]
    else:
        ordered = sorted(classes)
        seen = [name for name in ordered if name.casefold() < CARS_FIRST_UNSEEN]
    return {"train": seen, "test": [name for name in ordered if name not in seen]}


def read_sop(entry: Benchmark, root: PathLike) -> Contents:
    """Stanford Online Products: 22,634 products (Oh Song et al. 2016), split by the label files.

    Ebay_train.txt   image_id class_id super_class_id path
                     1 1 1 bicycle_final/111085122871_0.JPG
    """
    labels = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}
    base = copy_folder(entry, root, tuple(labels.values()))
    parts, folders = {}, set()
    for part, file in labels.items():
        lines = rows(base / file, ("image_id", "class_id", "super_class_id", "path"), header=True)
        named = [(row.path(3), str(row.integer(1))) for row in lines]
        folders |= {name.partition("/")[0] for name, _ in named if "/" in name}
        parts[part] = listing_of_files(base, named, sorted({label for _, label in named}, key=int))
    return Contents(entry, base, parts, tuple(labels.values()), tuple(sorted(folders)))


def read_inshop(entry: Benchmark, root: PathLike) -> Contents:
    """In-Shop Clothes Retrieval: 7,982 garments (Liu et al. 2016). The last column is the split.

    list_eval_partition.txt   52712
                              image_name item_id evaluation_status
                              img/WOMEN/Dresses/id_00000002/02_1_front.jpg id_00000002 train
    """
    places = ("list_eval_partition.txt", "Eval/list_eval_partition.txt")
    base = copy_folder(entry, root, places)
    file = first_there(base, places) or places[0]
    above = "Img/" if first_there(base, ("img", "Img/img")) == "Img/img" else ""
    files: dict[str, list[tuple[str, str]]] = {"train": [], "query": [], "gallery": []}
    for row in rows(base / file, ("image_name", "item_id", "evaluation_status"), header=True):
        _, item, part = row.columns
        if part not in files:
            raise ValueError(f"{row.where} must end in {', '.join(files)}, got {part!r}")
        files[part].append((above + row.path(0), item))
    seen = sorted({item for _, item in files["train"]})
    unseen = sorted({item for part in ("query", "gallery") for _, item in files[part]})
    parts = {
        part: listing_of_files(base, named, seen if part == "train" else unseen)
        for part, named in files.items()
    }
    return Contents(entry, base, parts, (file,), (f"{above}img",))


def read_tiny_imagenet(entry: Benchmark, root: PathLike) -> Contents:
    """TinyImageNet: 200 classes of ImageNet at 64 x 64; its validation images are the test.

    wnids.txt                  n02124075
    train/                     n02124075/images/n02124075_0.JPEG
    val/val_annotations.txt    val_0.JPEG n03444034 0 32 44 62
    val/images/                val_0.JPEG
    """
    base = copy_folder(entry, root, ("wnids.txt",))
    listed = list(rows(base / "wnids.txt", ("class",)))
    classes = [row.columns[0] for row in listed]
    folder_of = {row.columns[0]: f"train/{row.path(0)}/images" for row in listed}
    found = {label: image_files(base / folder) for label, folder in folder_of.items()}
    train = [(f"{folder_of[c]}/{name}", c) for c, names in found.items() for name in names]
    missing = tuple(folder_of[c] for c, names in found.items() if not names)
    labels, test = "val/val_annotations.txt", []
    for row in rows(base / labels, ("image", "class", "box")):
        if row.columns[1] not in folder_of:
            raise ValueError(f"{row.where} has class {row.columns[1]!r}, not one of wnids.txt")
        test.append((f"val/images/{row.path(0)}", row.columns[1]))
    files = {"train": train, "test": test}
    parts = {part: listing_of_files(base, named, classes) for part, named in files.items()}
    kept, folders = ("wnids.txt", labels, "words.txt"), (*folder_of.values(), "val/images")
    return Contents(entry, base, parts, kept, folders, missing)


def read_cifar(entry: Benchmark, root: PathLike) -> Contents:
    """CIFAR-10 and CIFAR-100 (Krizhevsky 2009): 32 x 32; train and test share their classes.

    binary   data_batch_1.bin to _5, test_batch.bin, batches.meta.txt; an image is its label, a
             byte, and 1,024 bytes each of red, green and blue. CIFAR-100: train.bin, test.bin,
             fine_label_names.txt, and the coarse label before the fine one.
    python   the same without suffix, as pickles.
    """
    stems, prefix, before = {"train": ["train"], "test": ["test"]}, "fine_", 2
    names_files = ("fine_label_names.txt", "meta")
    if entry.name == "cifar10":
        stems = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
        prefix, before, names_files = "", 1, ("batches.meta.txt", "batches.meta")
    base = copy_folder(entry, root, names_files)
    binary = (base / names_files[0]).exists()
    names_file = base / names_files[0 if binary else 1]
    names: Any
    if binary:
        names = [row.columns[0] for row in rows(names_file, ("class",))]
    else:
        names = read_pickle(names_file).get(f"{prefix}label_names")
    with reading(names_file):
        if not _is_list_of(names, str) or not names:
            raise ValueError("it has no names of classes")

    def read(file: Path) -> Arrays:
        if not binary:
            batch, key = read_pickle(file), f"{prefix}labels"
            data, given = batch.get("data"), batch.get(key, ())
            if not isinstance(data, np.ndarray) or not _is_list_of(given, int):
                raise ValueError(f"it must hold data and {key}, got {', '.join(batch)}")
            if data.shape != (len(given), BYTES):
                raise ValueError(f"data has shape {data.shape} for {len(given):,} labels")
            labels = np.array(given, dtype=np.int64)
        else:
            table = np.fromfile(file, dtype=np.uint8).reshape(-1, before + BYTES)
            data, labels = table[:, before:], table[:, before - 1].astype(np.int64)
        return data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), labels

    return _contents(entry, base, stems, ".bin" if binary else "", names, read)


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def read_svhn(entry: Benchmark, root: PathLike) -> Contents:
    """SVHN (Netzer et al. 2011): house numbers, 32 x 32; train and test share their classes.

    train_32x32.mat, test_32x32.mat   X (32, 32, 3, n) and y (n, 1), where 10 is the digit 0
    """
    base = copy_folder(entry, root, ("train_32x32.mat", "test_32x32.mat"))

    def read(file: Path) -> Arrays:
        held = read_mat(file, ("X", "y"))
        if set(held) != {"X", "y"}:
            raise ValueError(f"it must hold X and y, got {', '.join(held) or 'neither'}")
        x, y = held["X"], held["y"]
        if x.dtype != np.uint8 or x.shape != (SIDE, SIDE, 3, y.size) or y.dtype.kind not in "iuf":
            raise ValueError(f"X must be uint8 (32, 32, 3, {y.size}), got {x.dtype} {x.shape}")
        labels = y.reshape(-1).astype(np.int64)
        return x.transpose(3, 0, 1, 2), np.where(labels == 10, 0, labels)

    stems = {"train": ["train"], "test": ["test"]}
    return _contents(entry, base, stems, "_32x32.mat", "0123456789", read)


def _contents(
    entry: Benchmark,
    base: Path,
    stems: dict[str, list[str]],
    suffix: str,
    classes: Sequence[str],
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
                with reading(base / file):
                    x, y = read(base / file)
                    if len(wrong := y[(y < 0) | (y >= len(classes))]):
                        raise ValueError(f"labels must be below {len(classes)}, got {wrong[0]}")
            except DamagedFile as error:
                damaged.append((file, str(error)))
                continue
            pixels.append(np.ascontiguousarray(x))
            labels.append(y)
            names += [f"{stem}:{i}" for i in range(len(y))]
        own_pixels, own_labels = np.concatenate(pixels), np.concatenate(labels)
        parts[part] = Listing(tuple(names), own_labels, tuple(classes), pixels=own_pixels)
    return Contents(entry, base, parts, missing=tuple(missing), damaged=tuple(damaged))


READERS: dict[str, Callable[[Benchmark, PathLike], Contents]] = {
    "cub200": read_cub200,
    "cars196": read_cars196,
    "sop": read_sop,
    "inshop": read_inshop,
    "cifar10": read_cifar,
    "cifar100": read_cifar,
    "svhn": read_svhn,
    "tiny_imagenet": read_tiny_imagenet,
}
