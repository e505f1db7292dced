"""Benchmarks that are folders of photographs: CUB-200, CARS196, SOP, In-Shop, TinyImageNet."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from proxysynth.data.benchmarks.catalog import (
    Benchmark,
    Contents,
    copy_folder,
    first_there,
)
from proxysynth.data.benchmarks.files import read_mat, relative_name, rows
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
            raise ValueError(
                f"{labels} has no line for image {row.integer(0)} of {row.where}: download it again"
            )
        name = row.path(1)
        folder_of.setdefault(label, name.partition("/")[0])
        files.append((f"images/{name}", label))
    parts = _halves(entry, base, files, folder_of)
    kept = ("images.txt", labels.name, "classes.txt")
    return Contents(entry, base, parts, kept, ("images",))


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
        found = _cars_by_folder(entry, absolute(root)) if os.fspath(root) else None
        if found is None:
            raise
        return found
    halves = (base / "cars_train").is_dir() and not (base / "car_ims").is_dir()
    wanted = CARS_HALVES if halves else {"car_ims": CARS_LABELS}
    files, kept, folders = [], [], []
    for folder, places in wanted.items():
        file = first_there(base, places)
        if file is None:
            has = next(iter(wanted))
            raise ValueError(f"{base} has {has} but no {places[0]}, which labels its cars: add it")
        # Some copies were unpacked one folder too deep.
        if halves and (base / folder / folder).is_dir():
            folder = f"{folder}/{folder}"
        field, above = ("fname", f"{folder}/") if halves else ("relative_im_path", "")
        files += _cars_labels(base / file, field, above)
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


def _cars_labels(file: Path, field: str, above: str) -> list[tuple[str, int]]:
    """Names under the base with the numbers of their classes, from 1."""
    held = read_mat(file, ("annotations",), simplify=True)
    annotations = np.atleast_1d(held.get("annotations", ()))
    if not len(annotations) or not isinstance(annotations[0], dict):
        raise ValueError(f"{file} must hold annotations")
    files = []
    for i, row in enumerate(annotations, start=1):
        name, label, where = row.get(field), row.get("class"), f"annotation {i} of {file}"
        if not isinstance(name, str) or not isinstance(label, (int, float)) or label != label // 1:
            raise ValueError(f"{where} must have {field} and class, got {', '.join(row)}")
        files.append((above + relative_name(name, where), int(label)))
    return files


def _cars_by_folder(entry: Benchmark, root: Path) -> Contents | None:
    """A folder per class, in the root or in what its archive makes there; None for neither."""
    for folder in ("", *entry.folders):
        base = root / folder
        above = [half for half in ("train", "test") if (base / half).is_dir()] or [""]
        images: dict[str, list[str]] = {}
        for place in (base / half for half in above if base.is_dir()):
            for label in (found.name for found in folder_entries(place)[0]):
                for name in image_files(place / label):
                    file = (place / label / name).relative_to(base).as_posix()
                    images.setdefault(label, []).append(file)
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
    matches = {name: re.match(r"(\d+)(?![^\W_])", name) for name in classes}
    numbers = {name: int(match[1]) for name, match in matches.items() if match}
    if len(numbers) == len(classes):
        first = 0 if 0 in numbers.values() else 1
        ordered = sorted(classes, key=lambda name: numbers[name])
        seen = [name for name in ordered if numbers[name] - first < entry.classes["train"]]
    else:
        ordered = sorted(classes)
        seen = [name for name in ordered if name.casefold() < CARS_FIRST_UNSEEN]
    return {"train": seen, "test": [name for name in ordered if name not in set(seen)]}


def read_sop(entry: Benchmark, root: PathLike) -> Contents:
    """Stanford Online Products: 22,634 things once for sale (Oh Song et al. 2016).

        Ebay_train.txt   image_id class_id super_class_id path
                         1 1 1 bicycle_final/111085122871_0.JPG

    The two label files are the split.
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
    """In-Shop Clothes Retrieval: 7,982 garments (Liu et al. 2016).

        list_eval_partition.txt   52712
                                  image_name item_id evaluation_status
                                  img/WOMEN/Dresses/id_00000002/02_1_front.jpg id_00000002 train

    The last column is the split: train, query or gallery.
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
    """TinyImageNet: 200 classes of ImageNet at 64 x 64.

        wnids.txt                  n02124075
        train/                     n02124075/images/n02124075_0.JPEG
        val/val_annotations.txt    val_0.JPEG n03444034 0 32 44 62
        val/images/                val_0.JPEG

    Train and test have the same classes; the validation images are the test.
    """
    base = copy_folder(entry, root, ("wnids.txt",))
    classes = [row.columns[0] for row in rows(base / "wnids.txt", ("class",))]
    folder_of = {
        label: f"train/{relative_name(label, f'{base}/wnids.txt')}/images" for label in classes
    }
    found = {label: image_files(base / folder) for label, folder in folder_of.items()}
    train = [(f"{folder_of[c]}/{name}", c) for c in classes for name in found[c]]
    missing = tuple(folder_of[c] for c in classes if not found[c])
    labels, test = "val/val_annotations.txt", []
    for row in rows(base / labels, ("image", "class", "box")):
        if row.columns[1] not in classes:
            raise ValueError(f"{row.where} has class {row.columns[1]!r}, not one of wnids.txt")
        test.append((f"val/images/{row.path(0)}", row.columns[1]))
    files = {"train": train, "test": test}
    parts = {part: listing_of_files(base, named, classes) for part, named in files.items()}
    kept, folders = ("wnids.txt", labels, "words.txt"), (*folder_of.values(), "val/images")
    return Contents(entry, base, parts, kept, folders, missing)
