"""The benchmarks of the paper: what was published, and what a copy holds of it.

Splits and counts are those of the paper's section C.1; for classification (section D.4), the sets'
own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxysynth.data.images import SUFFIXES
from proxysynth.data.listing import Listing


@dataclass(frozen=True)
class Benchmark:
    """A published data set."""

    name: str  # the part of `name:ROOT` before the colon
    title: str  # the name its authors gave it
    task: Literal["retrieval", "classification"]  # tested on other classes, or on those trained on
    needs: tuple[str, ...]  # files and folders that ROOT must hold
    published: str  # the page of its authors
    license: str  # a summary of its license
    size: str  # of the download
    # Of each part: train and test, or train, query and gallery.
    pictures: dict[str, int]
    classes: dict[str, int]
    folders: tuple[str, ...] = ()  # where its archives unpack to; ROOT may be one or its parent
    archives: tuple[str, ...] = ()  # names of its downloads, to recognize one not unpacked
    offered: bool = True  # whether that page still has them
    side: int | None = None  # of its images in pixels, where all have the same
    note: str = ""  # a remark for users


_ENTRIES = (
    Benchmark(
        name="cub200",
        title="CUB-200-2011",
        task="retrieval",
        needs=("images.txt", "image_class_labels.txt", "images/"),
        published="https://www.vision.caltech.edu/datasets/cub_200_2011/",
        license="non-commercial research; the photographers keep their rights",
        size="1.1 GB",
        pictures={"train": 5_864, "test": 5_924},
        classes={"train": 100, "test": 100},
        folders=("CUB_200_2011",),
        archives=("CUB_200_2011.tgz", "CUB_200_2011.tar"),
        note="Boxes and parts are not used. Some photographs are also in ImageNet.",
    ),
    Benchmark(
        name="cars196",
        title="CARS196",
        task="retrieval",
        needs=(
            "cars_annos.mat and car_ims/",
            "or cars_train/, cars_test/, devkit/ and cars_test_annos_withlabels.mat",
            "or a folder per class, under train/ and test/ or not",
        ),
        published="https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
        license="non-commercial research",
        size="2.0 GB",
        pictures={"train": 8_054, "test": 8_131},
        classes={"train": 98, "test": 98},
        folders=("cars196", "CARS196", "stanford_cars", "car_data", "car_data/car_data"),
        archives=("car_ims.tgz", "cars_train.tgz", "cars_test.tgz", "car_devkit.tgz"),
        offered=False,
        note="Its page no longer offers the files; copies with a folder per class exist. The "
        "set's own halves train and test share classes and are joined before the split.",
    ),
    Benchmark(
        name="sop",
        title="Stanford Online Products",
        task="retrieval",
        needs=("Ebay_train.txt", "Ebay_test.txt", "bicycle_final/ and the other eleven folders"),
        published="https://cvgl.stanford.edu/projects/lifted_struct/",
        license="none stated; published for research",
        size="3.1 GB",
        pictures={"train": 59_551, "test": 60_502},
        classes={"train": 11_318, "test": 11_316},
        folders=("Stanford_Online_Products",),
        archives=("Stanford_Online_Products.zip",),
    ),
    Benchmark(
        name="inshop",
        title="In-Shop Clothes Retrieval",
        task="retrieval",
        needs=("list_eval_partition.txt or Eval/list_eval_partition.txt", "img/ or Img/img/"),
        published="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html",
        license="non-commercial research, by agreement with its authors",
        size="about 1 GB",
        pictures={"train": 25_882, "query": 14_218, "gallery": 12_612},
        classes={"train": 3_997, "query": 3_985, "gallery": 3_985},
        folders=("In-shop Clothes Retrieval Benchmark", "In_shop_Clothes_Retrieval_Benchmark"),
        archives=("img.zip", "Img/img.zip"),
        note="The paper prints 28,760 test images, but its own 14,218 queries and 12,612 gallery "
        "images add up to 26,830, which is the published number.",
    ),
    Benchmark(
        name="cifar10",
        title="CIFAR-10",
        task="classification",
        needs=("data_batch_1.bin to _5, test_batch.bin, batches.meta.txt", "or the python files"),
        published="https://www.cs.toronto.edu/~kriz/cifar.html",
        license="none stated; its page asks for a citation",
        size="0.2 GB",
        pictures={"train": 50_000, "test": 10_000},
        classes={"train": 10, "test": 10},
        folders=("cifar-10-batches-bin", "cifar-10-batches-py"),
        archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
        side=32,
    ),
    Benchmark(
        name="cifar100",
        title="CIFAR-100",
        task="classification",
        needs=("train.bin, test.bin, fine_label_names.txt", "or the python files"),
        published="https://www.cs.toronto.edu/~kriz/cifar.html",
        license="none stated; its page asks for a citation",
        size="0.2 GB",
        pictures={"train": 50_000, "test": 10_000},
        classes={"train": 100, "test": 100},
        folders=("cifar-100-binary", "cifar-100-python"),
        archives=("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
        side=32,
        note="The hundred fine labels are used.",
    ),
    Benchmark(
        name="svhn",
        title="SVHN",
        task="classification",
        needs=("train_32x32.mat", "test_32x32.mat"),
        published="http://ufldl.stanford.edu/housenumbers/",
        license="non-commercial use",
        size="0.2 GB",
        pictures={"train": 73_257, "test": 26_032},
        classes={"train": 10, "test": 10},
        folders=("svhn", "SVHN"),
        side=32,
        note="The extra images are not used. Label 10 in the files is the digit 0.",
    ),
    Benchmark(
        name="tiny_imagenet",
        title="TinyImageNet",
        task="classification",
        needs=("wnids.txt", "train/", "val/images/", "val/val_annotations.txt"),
        published="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        license="non-commercial research, as ImageNet",
        size="0.2 GB",
        pictures={"train": 100_000, "test": 10_000},
        classes={"train": 200, "test": 200},
        folders=("tiny-imagenet-200",),
        archives=("tiny-imagenet-200.zip",),
        side=64,
        note="Tested on its validation images, since its test images have no labels.",
    ),
)

CATALOG: dict[str, Benchmark] = {entry.name: entry for entry in _ENTRIES}


def catalog_rows() -> list[dict[str, Any]]:
    """A row per benchmark, as plain values: what `proxysynth data list` prints."""
    hidden = {"folders", "archives", "offered", "side"}
    rows = [{k: v for k, v in asdict(entry).items() if k not in hidden} for entry in _ENTRIES]
    return [row | {"needs": list(row["needs"])} for row in rows]


@dataclass(frozen=True, eq=False)
class Contents:
    """A copy as its label files describe it, whether or not every image exists."""

    entry: Benchmark
    base: Path  # the folder of the copy; all names below are under it
    parts: dict[str, Listing]  # the images of train and test, or of train, query and gallery
    # for each part the file that names its images; "" where folders do
    labels: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()  # label files, which a downscaled copy needs too if they exist
    folders: tuple[str, ...] = ()  # where its images lie, and nothing else should
    missing: tuple[str, ...] = ()  # folders, or files of many images each, that are not there
    # files of many images each that cannot be read, with the reason
    damaged: tuple[tuple[str, str], ...] = ()

    @cached_property
    def present(self) -> dict[str, Listing]:
        """The listings without the missing images."""
        return {
            part: listing if (there := _exist(listing)).all() else listing.take(there.nonzero()[0])
            for part, listing in self.parts.items()
        }

    def counts(self) -> Counts:
        """What there is of the benchmark; a class without an image does not count."""
        found = {part: (len(x), len(np.unique(x.labels))) for part, x in self.present.items()}
        return Counts(
            {part: (found[part][0], n) for part, n in self.entry.pictures.items()},
            {part: (found[part][1], n) for part, n in self.entry.classes.items()},
        )

    def missing_images(self) -> list[tuple[str, str]]:
        """Each missing image, and the file that names it."""
        return [
            (listing.names[i], self.labels.get(part, ""))
            for part, listing in self.parts.items()
            for i in np.flatnonzero(~_exist(listing))
        ]

    def extra_files(self) -> list[str]:
        """Files in the image folders that no label file names; hidden ones are ignored."""
        named = {name for part in self.parts.values() for name in part.names}
        extra = []
        for folder in self.folders:
            for place, inner, files in os.walk(self.base / folder):
                inner[:] = sorted(name for name in inner if not name.startswith("."))
                under = Path(place).relative_to(self.base)
                names = ((under / file).as_posix() for file in files if not file.startswith("."))
                extra += sorted(name for name in names if name not in named)
        return extra


class Counts(NamedTuple):
    """Images and classes of each part, as pairs: found, published."""

    pictures: dict[str, tuple[int, int]]
    classes: dict[str, tuple[int, int]]

    @property
    def complete(self) -> bool:
        return all(found == n for pairs in self for found, n in pairs.values())

    @property
    def too_many(self) -> bool:
        """Whether there are more images than were published: then it is another dataset."""
        return any(found > n for pairs in self for found, n in pairs.values())

    def __str__(self) -> str:
        counted = []
        for part, (found, published) in self.pictures.items():
            of, classes = self.classes[part]
            few = f" of {of:,} instead of {classes:,} classes" if of != classes else ""
            counted.append(f"{found:,} of {published:,} {part} images{few}")
        return ", ".join(counted)


def copy_folder(entry: Benchmark, root: str | os.PathLike[str], wanted: Sequence[str]) -> Path:
    """The folder of the copy: `root` or one that its archive makes inside, with a wanted file."""
    if not os.fspath(root):
        raise ValueError(
            f"{entry.title} needs the folder of its files: write {entry.name}:ROOT with its folder"
        )
    base = Path(os.path.abspath(os.path.expanduser(root)))
    if not base.is_dir():
        what = "is a file" if base.exists() else "does not exist"
        raise ValueError(f"{base} {what}: give the folder of {entry.title}, with {wanted[0]} in it")
    for folder in ("", *entry.folders):
        if first_there(base / folder, wanted) is not None:
            return base / folder
    raise ValueError(
        f"{base} holds no copy of {entry.title}, there is no {' or '.join(wanted)}: "
        f"{how_to_get(entry, base)}"
    )


def how_to_get(entry: Benchmark, base: Path) -> str:
    """The end of a message: what to do about missing files."""
    for archive in entry.archives:
        for folder in (base, base.parent):
            if (folder / archive).is_file():
                return f"unpack {folder / archive} first"
    if not entry.offered:
        return f"find a copy of it, its page {entry.published} no longer has one"
    return f"download it from {entry.published} and unpack it there"


def first_there(base: Path, names: Iterable[str]) -> str | None:
    """The first of these files or folders that the copy has."""
    return next((name for name in names if (base / name).exists()), None)


def image_files(folder: Path) -> list[str]:
    """The names of the images in a folder, without hidden ones; none if it does not exist."""
    names = (name for name in _entries(folder) if not name.startswith("."))
    return sorted(name for name in names if os.path.splitext(name)[1].lower() in SUFFIXES)


def class_folders(base: Path) -> dict[str, list[str]]:
    """The names of the images in each sub-folder that has any."""
    names = sorted(name for name in _entries(base, folders=True) if not name.startswith("."))
    return {name: images for name in names if (images := image_files(base / name))}


def _exist(listing: Listing) -> NDArray[np.bool_]:
    """Which images are there, (n,). Listing each folder once is many times faster than a stat of
    each file."""
    if listing.root is None:
        return np.ones(len(listing), dtype=np.bool_)
    places = [name.rpartition("/")[::2] for name in listing.names]
    found = {folder: _entries(listing.root / folder) for folder in {place[0] for place in places}}
    return np.array([file in found[folder] for folder, file in places], dtype=np.bool_)


def _entries(place: Path, folders: bool = False) -> frozenset[str]:
    """The names of the files, or of the folders, in a folder; none if it does not exist."""
    try:
        with os.scandir(place) as entries:
            return frozenset(entry.name for entry in entries if entry.is_dir() == folders)
    except OSError:
        return frozenset()
