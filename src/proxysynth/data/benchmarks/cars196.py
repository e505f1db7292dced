"""CARS196: photographs of 196 models of cars (Krause et al. 2013), in any of its three forms.

    cars_annos.mat, car_ims/             one file for all pictures
    devkit/, cars_train/, cars_test/     cars_train_annos.mat and cars_test_annos_withlabels.mat
    a folder per class                   Acura TL Sedan 2012/*.jpg, under train/ and test/ or not

The first 98 classes train, the other 98 test; boxes are not used. The halves train and test of the
set itself share classes, so they are joined first.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from ..listing import Listing
from ..matfile import read_mat
from .catalogue import CATALOGUE
from .contents import Contents, class_folders, copy_folder, first_there, labelled
from .label_file import picture_name

ALL = ("cars_annos.mat", "devkit/cars_annos.mat")
TRAIN = ("devkit/cars_train_annos.mat", "cars_train_annos.mat")
TEST = (
    "cars_test_annos_withlabels.mat",
    "devkit/cars_test_annos_withlabels.mat",
    "cars_test_annos_withlabels (1).mat",  # as the copies that go around spell it
)
META = ("devkit/cars_meta.mat", "cars_meta.mat")
# In alphabetical order the 98th class is an Eagle and the 99th a FIAT, in the set's own order too.
FIRST_UNSEEN = "f"

File = tuple[str, int]  # name under the base, number of the class from 1


def read_cars196(root: str | os.PathLike[str]) -> Contents:
    """What the copy under `root` says it holds."""
    entry = CATALOGUE["cars196"]
    try:
        base = copy_folder(entry, root, (*ALL, "cars_train", "car_ims"))
    except ValueError:
        found = _by_folders(Path(os.path.abspath(os.path.expanduser(root))))
        if not os.fspath(root) or found is None:
            raise
        return found
    if (base / "cars_train").is_dir() and not (base / "car_ims").is_dir():
        return _by_halves(base)
    return _annotated(base)


def _annotated(base: Path) -> Contents:
    file = first_there(base, ALL)
    if file is None:
        raise ValueError(f"{base} has car_ims but no {ALL[0]}, which says what its cars are")
    held = read_mat(base / file)
    files = _files(base / file, held, "relative_im_path", "")
    parts = _parts(base, files, _names(held))
    return Contents(base, parts, dict.fromkeys(parts, file), (file,), folders=("car_ims",))


def _by_halves(base: Path) -> Contents:
    train, test, meta = (first_there(base, names) for names in (TRAIN, TEST, META))
    if train is None or test is None:
        raise ValueError(
            f"{base} has cars_train but no {TRAIN[0] if train is None else TEST[0]}, which says "
            "what its cars are: add it"
        )
    files, folders = [], []
    for file, half in ((train, "cars_train"), (test, "cars_test")):
        # Some copies were unpacked one folder too deep.
        folder = f"{half}/{half}" if (base / half / half).is_dir() else half
        files += _files(base / file, read_mat(base / file), "fname", f"{folder}/")
        folders.append(folder)
    parts = _parts(base, files, _names(read_mat(base / meta)) if meta is not None else [])
    labels = dict.fromkeys(parts, f"{Path(train).name} or {Path(test).name}")
    kept = tuple(file for file in (train, test, meta) if file is not None)
    return Contents(base, parts, labels, kept, tuple(folders))


def _files(file: Path, held: dict[str, Any], field: str, above: str) -> list[File]:
    """The pictures of a label file."""
    rows = held.get("annotations")
    if not isinstance(rows, list) or not rows or not isinstance(rows[0], dict):
        raise ValueError(f"{file} must hold annotations, got {', '.join(held) or 'nothing'}")
    files = []
    for i, row in enumerate(rows, start=1):
        name, label, where = row.get(field), row.get("class"), f"annotation {i} of {file}"
        one = isinstance(label, np.ndarray) and label.size == 1 and bool(np.isfinite(label).all())
        if not isinstance(name, str) or not one:
            raise ValueError(f"{where} must have {field} and class, got {', '.join(row)}")
        files.append((above + picture_name(name, where), int(label.reshape(-1)[0])))
    return files


def _names(held: dict[str, Any]) -> list[str]:
    names = held.get("class_names")
    good = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return list(names) if good and names is not None else []


def _parts(base: Path, files: list[File], names: list[str]) -> dict[str, Listing]:
    last_seen = CATALOGUE["cars196"].classes["train"]
    parts = {}
    for part in ("train", "test"):
        chosen = [(name, c) for name, c in files if (c <= last_seen) == (part == "train")]
        numbers = sorted({c for _, c in chosen})
        called = {c: names[c - 1] if 0 < c <= len(names) else str(c) for c in numbers}
        named = [(name, called[c]) for name, c in chosen]
        parts[part] = labelled(base, named, [called[c] for c in numbers])
    return parts


def _by_folders(root: Path) -> Contents | None:
    """A folder per class, in the root or in what its archive makes there; None for neither."""
    for folder in ("", *CATALOGUE["cars196"].folders):
        base = root / folder
        above = [half for half in ("train", "test") if (base / half).is_dir()] or [""]
        pictures: dict[str, list[str]] = {}
        for half in above:
            for label, names in class_folders(base / half):
                named = ((Path(half) / label / name).as_posix() for name in names)
                pictures.setdefault(label, []).extend(named)
        if pictures:
            seen, unseen = _halves(list(pictures))
            parts = {}
            for part, classes in (("train", seen), ("test", unseen)):
                named_so = [(name, label) for label in classes for name in pictures[label]]
                parts[part] = labelled(base, named_so, classes)
            folders = sorted(pictures) if above == [""] else above
            return Contents(base, parts, folders=tuple(folders))
    return None


def _halves(classes: list[str]) -> tuple[list[str], list[str]]:
    """The seen and the unseen of the class folders: by number if they have one, else by name."""
    last_seen = CATALOGUE["cars196"].classes["train"]
    found = {name: re.match(r"(\d+)(?![^\W_])", name) for name in classes}
    numbers = {name: int(match[1]) for name, match in found.items() if match}
    if len(numbers) == len(classes):
        first = 0 if 0 in numbers.values() else 1
        ordered = sorted(classes, key=lambda name: numbers[name])
        seen = [name for name in ordered if numbers[name] - first < last_seen]
    else:
        ordered = sorted(classes)
        seen = [name for name in ordered if name.casefold() < FIRST_UNSEEN]
    return seen, [name for name in ordered if name not in set(seen)]
