"""Stand-ins for the paper's benchmarks, for readers without the downloads or a GPU.

Distorted glyphs, with about the benchmark's number of classes and of images per class where a CPU
allows it. The strength of the distortion was chosen by training the plain loss alone, one seed,
until it was between 60 and 90, where a method can show that it is better or worse; this was written
down before Proxy Synthesis was trained on any of them. What the plain loss reached:

    Norm-softmax, Recall@1 on unseen classes      Softmax, accuracy
    CUB200    strength 0.75   79.1                CIFAR-10      strength 1.5    77.5
    CARS196   strength 0.75   78.0                CIFAR-100     strength 1.0    67.2
    SOP       strength 0.2    64.4                SVHN          strength 1.5    81.2
    In-Shop   strength 0.2    64.0                TinyImageNet  strength 0.75   74.3
"""

from __future__ import annotations

from typing import Any, NamedTuple

from proxysynth.formatting import count
from proxysynth.paper.settings import paper_settings, values_of
from proxysynth.training.run import Split

RETRIEVAL = ("cub200", "cars196", "sop", "inshop")
CLASSIFICATION = ("cifar10", "cifar100", "svhn", "tiny_imagenet")
NAMES = {
    "cub200": "CUB200",
    "cars196": "CARS196",
    "sop": "SOP",
    "inshop": "In-Shop",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
    "tiny_imagenet": "TinyImageNet",
}
"""The column headings of the paper's tables."""
KS = {
    "cub200": (1, 2, 4, 8),
    "cars196": (1, 2, 4, 8),
    "sop": (1, 10, 100, 1000),
    "inshop": (1, 10, 20, 40),
}
"""The k of Recall@k that the paper prints for each benchmark."""


class StandIn(NamedTuple):
    """Fields of a Run, a column heading, and a description."""

    fields: dict[str, Any]
    heading: str
    about: str


NETWORK = {"backbone": "conv4", "width": 0.5, "batch_size": 64, "lr": 2e-3, "proxy_lr": 2e-2}


def _glyphs(
    benchmark: str, strength: float, train: int, test: int, pictures: int, epochs: int, **split: Any
) -> StandIn:
    """Characters seen in training, and others."""
    number = RETRIEVAL.index(benchmark)
    queries = f", queries in {split['query_faces']} faces" if "query_faces" in split else ""
    about = (
        f"{pictures} images of each of {train} characters seen and {test} others unseen{queries}; "
        "half of conv4's width from scratch"
    )
    split |= {"seed": number, "test_classes": test}
    heading = f"distorted glyphs {number + 1}"
    return _drawn(heading, about, strength, train, pictures, epochs, NETWORK, split)


def _faces(name: str, strength: float, classes: int, pictures: int, epochs: int) -> StandIn:
    """The same characters in training and test; four of the sixteen faces are for testing."""
    number = CLASSIFICATION.index(name) + 1
    about = (
        f"{classes} characters, {pictures} images of each, 12 faces for training and 4 for "
        "testing; half of conv4's width"
    )
    fields = {
        **_sgd("cifar10"), "pixels": None, "image_size": None, "augment": False,
        "backbone": "conv4", "width": 0.5, "batch_size": 64,
    }  # fmt: skip
    split = {"seed": 3 + number, "test_classes": 2, "test_faces": 4}
    heading = f"distorted faces {number}"
    return _drawn(heading, about, strength, classes, pictures, epochs, fields, split)


def _drawn(
    heading: str,
    about: str,
    strength: float,
    classes: int,
    pictures: int,
    epochs: int,
    fields: dict[str, Any],
    split: dict[str, Any],
) -> StandIn:
    drawn = Split(train_classes=classes, distortion=strength, pictures_per_class=pictures, **split)
    fields = {**fields, "data": "glyphs", "split": drawn}
    return StandIn(
        {**fields, "epochs": epochs, "evaluate_every": epochs},
        heading,
        f"{heading}: strength {strength:g}, {about}, {count(epochs, 'epoch')}",
    )


def _sgd(name: str) -> dict[str, Any]:
    """The paper's settings of classification, with a schedule for few epochs."""
    fields = values_of(paper_settings(name))
    return {**fields, "schedule": "cosine", "decay_epochs": ()}


SMALL = {
    "cub200": _glyphs("cub200", 0.75, 100, 100, 30, 6),
    "cars196": _glyphs("cars196", 0.75, 98, 98, 80, 3, test_pictures=1960),
    "sop": _glyphs("sop", 0.2, 800, 300, 5, 8, faces_per_class=5),
    "inshop": _glyphs("inshop", 0.2, 400, 200, 8, 8, faces_per_class=8, query_faces=8),
    "cifar10": _faces("cifar10", 1.5, 10, 160, 10),
    "cifar100": _faces("cifar100", 1.0, 100, 48, 6),
    "svhn": _faces("svhn", 1.5, 10, 320, 6),
    "tiny_imagenet": _faces("tiny_imagenet", 0.75, 200, 32, 6),
}
SMOKE = {
    "cub200": _glyphs("cub200", 0.75, 12, 12, 16, 1),
    "cars196": _glyphs("cars196", 0.75, 12, 12, 16, 1),
    "sop": _glyphs("sop", 0.2, 32, 12, 5, 1, faces_per_class=5),
    "inshop": _glyphs("inshop", 0.2, 12, 12, 8, 1, faces_per_class=8, query_faces=8),
    "cifar10": _faces("cifar10", 1.5, 8, 16, 1),
}
STUDIES: dict[str, tuple[int, dict[str, int]]] = {
    "cub200": (3, {"train_pictures": 2000}),
    "cars196": (2, {"train_pictures": 2000}),
    "sop": (2, {"train_classes": 400}),
}
"""The MLRC studies of these sets: trials of the search, and what is trained on."""
STUDY_EPOCHS = 8

CUB_96 = StandIn(
    {
        "image_size": 96, "augment": True, "batch_size": 128,
        "backbone": "efficientnet_lite0", "pretrained": True, "dim": 512, "freeze_batch_norm": True,
        "epochs": 12, "schedule": "step", "decay_epochs": (8,), "evaluate_every": 12,
        "lr": 1e-4, "proxy_lr": 1e-2, "weight_decay": 1e-4,
    },
    "CUB at 96 px",
    "CUB at 96 px: CUB-200-2011, the paper's split, at 96 pixels; EfficientNet-Lite0 from its "
    "ImageNet weights, 12 epochs",
)  # fmt: skip


def small_classification(name: str) -> StandIn | None:
    """2,000 images of a classification benchmark to train on, 2,000 to test."""
    if name not in CLASSIFICATION:
        return None
    # They can be drawn from part of the download too.
    split = Split(train_pictures=2000, test_pictures=2000, incomplete=True)
    heading = f"{NAMES[name]}, 2,000 images"
    about = "PreActResNet18 at a quarter of its width, 2,000 training and 2,000 test images"
    return StandIn(
        {**_sgd(name), "width": 0.25, "split": split, "epochs": 15, "evaluate_every": 15},
        heading,
        f"{heading}: {about}, 15 epochs",
    )
