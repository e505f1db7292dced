"""Stand-ins for the paper's benchmarks, for readers without the downloads or a GPU.

Two sets of glyphs with 100 characters stand in for the fine-grained CUB200 and CARS196, one with
many characters and few images each for Stanford Online Products, and one whose queries and gallery
come from different typefaces for In-Shop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from proxysynth.paper.settings import classification_settings
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


def _glyphs(number: int, train: int, faces: int, epochs: int, test: int, **split: Any) -> StandIn:
    apart = f", {split['query_faces']} faces of each the queries" if "query_faces" in split else ""
    return StandIn(
        {
            "data": "glyphs",
            "split": Split(
                seed=number - 1,
                train_classes=train,
                test_classes=test,
                faces_per_class=faces,
                **split,
            ),
            "epochs": epochs,
            "evaluate_every": epochs,
        },
        f"glyphs {number}",
        f"glyphs {number}: {train} characters x {faces} faces seen, {test} others x 16 unseen"
        f"{apart}; conv4 from scratch, {epochs} epoch{'s' if epochs > 1 else ''}",
    )


SMALL = {
    "cub200": _glyphs(1, 100, 16, 15, 100),
    "cars196": _glyphs(2, 100, 16, 15, 100),
    "sop": _glyphs(3, 800, 5, 10, 200),
    "inshop": _glyphs(4, 100, 16, 15, 100, query_faces=6),
}
SMOKE = {
    "cub200": _glyphs(1, 12, 16, 1, 12),
    "cars196": _glyphs(2, 12, 16, 1, 12),
    "sop": _glyphs(3, 32, 5, 1, 12),
    "inshop": _glyphs(4, 12, 16, 1, 12, query_faces=6),
}

CUB_96 = StandIn(
    {
        "image_size": 96,
        "backbone": "efficientnet_lite0",
        "pretrained": True,
        "dim": 512,
        "augment": True,
        "freeze_batch_norm": True,
        "epochs": 12,
        "schedule": "step",
        "decay_epochs": (8,),
        "batch_size": 128,
        "lr": 1e-4,
        "proxy_lr": 1e-2,
        "weight_decay": 1e-4,
        "evaluate_every": 12,
    },
    "CUB at 96 px",
    "CUB at 96 px: CUB-200-2011, the paper's split, at 96 pixels; EfficientNet-Lite0 from its "
    "ImageNet weights, 12 epochs",
)


def _preact(name: str) -> dict[str, Any]:
    """The paper's settings, with a schedule for few epochs."""
    made = {field: setting.value for field, setting in classification_settings(name).items()}
    return {**made, "schedule": "cosine", "decay_epochs": ()}


def small_classification(name: str) -> StandIn:
    """2,000 images of a classification benchmark to train on, 2,000 to test."""
    fields = {
        **_preact(name),
        "width": 0.25,
        # 2,000 images can be drawn from part of the download too.
        "split": Split(train_pictures=2000, test_pictures=2000, incomplete=True),
        "epochs": 15,
        "evaluate_every": 15,
    }
    heading = f"{NAMES[name]}, 2,000 images"
    about = "PreActResNet18 at a quarter of its width, 2,000 training and 2,000 test images"
    return StandIn(fields, heading, f"{heading}: {about}, 15 epochs")


def glyph_classification(classes: int, epochs: int, width: float, batch: int) -> StandIn:
    """The same characters in training and test; four typefaces of each are for testing."""
    fields = {
        **_preact("cifar10"),
        "data": "glyphs",
        "pixels": None,
        "augment": False,
        "batch_size": batch,
        "width": width,
        "split": Split(train_classes=classes, test_faces=4),
        "epochs": epochs,
        "evaluate_every": epochs,
    }
    about = (
        f"{classes} characters, 12 typefaces of each for training and 4 for testing; "
        f"PreActResNet18 at {width} of its width, {epochs} epoch{'s' if epochs > 1 else ''}"
    )
    return StandIn(fields, "glyph faces 12/4", f"glyph faces 12/4: {about}")
