"""The paper's section C.2 as code: functions that return complete Runs.

Values that the paper leaves out come from the code and papers it refers to. Every value stands here
once, with its source.

    conventional("cars196", "norm_softmax", "proxy_synthesis", root="data/CARS196")
    classification("cifar100", "manifold_mixup")

Those of the MLRC protocol are in `protocols/mlrc/settings.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from proxysynth.losses import LOSSES, Softmax, SoftTriple, SquaredProxyNCA
from proxysynth.regularizers import (
    REGULARIZERS,
    InputMixup,
    ManifoldMixup,
    ProxySynthesis,
    VirtualSoftmax,
)
from proxysynth.training.run import Run
from proxysynth.values import look_up

C2 = "section C.2"
CODE = "the authors' released code"
README = "the commands in the authors' README"
ANCHOR = "the released code of Proxy-anchor (Kim et al. 2020), which C.2 follows"
TRIPLE = "the released code of SoftTriple (Qian et al. 2019)"
MIXUP = "the released scripts of Manifold Mixup (Verma et al. 2019), which section D.4 follows"
TABLE_C = "the best cell of Table C"
OURS = "stated nowhere; chosen here"


class Sourced(NamedTuple):
    """A setting and where it comes from."""

    value: Any
    source: str


Settings = dict[str, Sourced]


EVERY_SET: Settings = {
    "backbone": Sourced("bn_inception", C2),
    "pretrained": Sourced(True, C2),
    "dim": Sourced(512, C2),
    "pooling": Sourced("average", C2),
    "image_size": Sourced(224, C2),
    "augment": Sourced(True, C2),
    "transforms": Sourced("conventional", C2),
    "flip": Sourced(0.5, C2),
    "crop_scale": Sourced((0.08, 1.0), CODE),
    "cache_side": Sourced(0, CODE),
    "optimizer": Sourced("adam", C2),
    "eps": Sourced(0.01, CODE),
    "weight_decay": Sourced(1e-4, CODE),
    "batch_size": Sourced(128, C2),
    "sampler": Sourced("shuffled", CODE),
    "schedule": Sourced("step", C2),
    "decay": Sourced(0.1, C2),
    "warmup_epochs": Sourced(0, C2),
    "evaluate_every": Sourced(5, CODE),
    "report_epoch": Sourced("best_on_test", CODE),
    "best_by": Sourced("recall@1", CODE),
}


# The paper gives the proxies no learning rate of their own; the code uses 100 times the network's.
def _each_set(lr: float, frozen: bool, decay_at: int, epochs: int, source: str) -> Settings:
    return {
        "lr": Sourced(lr, C2),
        "proxy_lr": Sourced(100 * lr, CODE),
        "freeze_batch_norm": Sourced(frozen, C2),
        "decay_epochs": Sourced((decay_at,), C2),
        "epochs": Sourced(epochs, source),
    }


EACH_SET: dict[str, Settings] = {
    "cub200": _each_set(1e-4, True, 20, 60, OURS),
    "cars196": _each_set(1e-4, True, 50, 130, README),
    "sop": _each_set(1e-3, False, 20, 60, OURS),
    "inshop": _each_set(1e-3, False, 60, 100, OURS),
}
PROXY_ANCHOR: Settings = {
    "batch_size": Sourced(180, C2),
    "optimizer": Sourced("adamw", C2),
    "eps": Sourced(1e-8, ANCHOR),
    "pooling": Sourced("both", C2),
    "warmup_epochs": Sourced(1, ANCHOR),
    "clip_value": Sourced(10.0, ANCHOR),
    "epochs": Sourced(60, ANCHOR),
}
# Epochs between decays, decay factor, learning rate: from the code of Proxy-anchor.
PROXY_ANCHOR_RATES = {
    "cub200": (10, 0.5, 1e-4),
    "cars196": (20, 0.5, 1e-4),
    "sop": (20, 0.25, 6e-4),
    "inshop": (20, 0.25, 6e-4),
}
TRAINED_LOSSES = {
    # Eq. i has no scale; the authors trained the squared form with the positive in the denominator.
    "proxy_nca": Sourced(SquaredProxyNCA(scale=12.0), README),
    "soft_triple": Sourced(
        SoftTriple(20.0, temperature=0.1, margin=0.0, scaled_margin=0.01, k=10, regularizer=0.2),
        TRIPLE,
    ),
}

CLASSIFIED: Settings = {
    "task": Sourced("classification", "section D.4"),
    "backbone": Sourced("preact_resnet18", "Table C"),
    "pretrained": Sourced(False, MIXUP),
    "dim": Sourced(None, MIXUP),
    "transforms": Sourced("pad_crop", MIXUP),
    "augment": Sourced(True, MIXUP),
    "flip": Sourced(0.5, MIXUP),
    "image_size": Sourced(32, MIXUP),
    "optimizer": Sourced("sgd", MIXUP),
    "lr": Sourced(0.1, MIXUP),
    "proxy_lr": Sourced(0.1, MIXUP),
    "momentum": Sourced(0.9, MIXUP),
    "weight_decay": Sourced(1e-4, MIXUP),
    "batch_size": Sourced(100, MIXUP),
    "epochs": Sourced(2000, MIXUP),
    "schedule": Sourced("step", MIXUP),
    "decay": Sourced(0.1, MIXUP),
    "decay_epochs": Sourced((500, 1000, 1500), MIXUP),
    "evaluate_every": Sourced(10, OURS),
    "report_epoch": Sourced("last", OURS),
    "best_by": Sourced("accuracy", OURS),
}
EACH_CLASSIFIED: dict[str, Settings] = {
    "cifar10": {"pixels": Sourced("cifar10", MIXUP)},
    "cifar100": {"pixels": Sourced("cifar100", MIXUP)},
    "svhn": {"pixels": Sourced("centred", MIXUP), "flip": Sourced(0.0, MIXUP)},
    "tiny_imagenet": {
        "pixels": Sourced("centred", MIXUP),
        "image_size": Sourced(64, MIXUP),
        "decay_epochs": Sourced((1000, 1500), MIXUP),
    },
}
CLASSIFIED_ALPHA_MU = {
    "cifar10": Sourced((1.0, 0.5), TABLE_C),
    "cifar100": Sourced((1.5, 0.75), TABLE_C),
    "svhn": Sourced((0.4, 1.0), TABLE_C),
    "tiny_imagenet": Sourced((2.0, 0.25), TABLE_C),
}
INPUT_MIXUP_ALPHA = Sourced(1.0, MIXUP)
MANIFOLD_MIXUP_ALPHA = {
    "cifar10": Sourced(2.0, MIXUP),
    "cifar100": Sourced(2.0, MIXUP),
    "svhn": Sourced(2.0, MIXUP),
    "tiny_imagenet": Sourced(0.2, MIXUP),
}


def conventional(
    name: str,
    loss: str = "norm_softmax",
    regularizer: str = "none",
    root: str | None = None,
    seed: int = 0,
    **changes: Any,
) -> Run:
    """The run behind a cell of Tables 6, F, H, J and L.

    Args:
        name: "cub200", "cars196", "sop" or "inshop".
        loss: a key of `LOSSES`.
        regularizer: a key of `REGULARIZERS`, with the paper's values (alpha 0.4, mu 1).
        root: the folder of the data set. Default: data/NAME.
        changes: fields of `Run`, such as `weights`, the file of the published weights.
    """
    fields = values_of(conventional_settings(name, loss)) | changes
    return Run(data=_data(name, root), loss=trained_loss(loss, regularizer), seed=seed, **fields)


def conventional_settings(name: str, loss: str = "norm_softmax") -> Settings:
    """The fields of such a run, each with its source."""
    settings = EVERY_SET | look_up(name, EACH_SET, "benchmark of the conventional protocol")
    if loss == "proxy_anchor":
        every, decay, lr = PROXY_ANCHOR_RATES[name]
        settings |= PROXY_ANCHOR | {
            "lr": Sourced(lr, ANCHOR),
            "proxy_lr": Sourced(100 * lr, ANCHOR),
            "decay": Sourced(decay, ANCHOR),
            "decay_epochs": Sourced(tuple(range(every, 60, every)), ANCHOR),
        }
    return settings


def classification(
    name: str, regularizer: str = "none", root: str | None = None, seed: int = 0, **changes: Any
) -> Run:
    """The run behind a cell of Table D.

    Args:
        name: "cifar10", "cifar100", "svhn" or "tiny_imagenet".
        regularizer: a key of `REGULARIZERS`, with the values that the paper found best.
        root, seed, changes: as for `conventional`.
    """
    fields = values_of(classification_settings(name)) | changes
    loss = classified_loss(name, regularizer)
    return Run(data=_data(name, root), loss=loss, seed=seed, **fields)


def classification_settings(name: str) -> Settings:
    """The fields of such a run, each with its source."""
    return CLASSIFIED | look_up(name, EACH_CLASSIFIED, "benchmark of classification")


def classified_loss(name: str, regularizer: str) -> Any:
    """Softmax with a regularizer, as in Table D."""
    loss = Softmax()
    if regularizer == "proxy_synthesis":
        alpha, mu = CLASSIFIED_ALPHA_MU[name].value
        return ProxySynthesis(loss, alpha=alpha, mu=mu)
    if regularizer == "virtual_softmax":
        return VirtualSoftmax(loss, clip=None)  # section D.4 clips for retrieval only
    if regularizer == "input_mixup":
        return InputMixup(loss, alpha=INPUT_MIXUP_ALPHA.value)
    if regularizer == "manifold_mixup":
        return ManifoldMixup(loss, alpha=MANIFOLD_MIXUP_ALPHA[name].value)
    return loss


def trained_loss(name: str, regularizer: str = "none") -> Any:
    """A loss by name, with the values it is trained with, and with a regularizer's defaults; the
    margins of C.2 are the losses' own defaults."""
    kind = look_up(name, LOSSES, "loss")
    loss = TRAINED_LOSSES[name].value if name in TRAINED_LOSSES else kind()
    over = look_up(regularizer, REGULARIZERS, "regularizer")
    return loss if over is None else over(loss)


def values_of(settings: Mapping[str, Sourced]) -> dict[str, Any]:
    return {name: setting.value for name, setting in settings.items()}


def _data(name: str, root: str | None) -> str:
    return f"{name}:{root or f'data/{name}'}"
