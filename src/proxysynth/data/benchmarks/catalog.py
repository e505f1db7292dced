"""The benchmarks of the paper: what a copy must hold, where it is published, how large it is.

Splits and counts are those of the paper's section C.1; for classification (section D.4), the sets'
own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


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
