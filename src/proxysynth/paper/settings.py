"""The paper's section C.2 as code: the fields of its Runs.

Every value is here once, and a comment beside or above it names the source. Values that the paper
leaves out come from the code and papers it refers to. Those of the MLRC protocol are in
`protocols/mlrc/settings.py`.

    C.2, D.4       sections of the paper
    code, README   the authors' released code, and the commands in its README
    Proxy-anchor   the released code of Kim et al. 2020, which C.2 follows
    SoftTriple     the released code of Qian et al. 2019
    Mixup          the released scripts of Manifold Mixup (Verma et al. 2019), which D.4 follows
    ours           stated nowhere; chosen here
"""

from __future__ import annotations

from typing import Any

from proxysynth.losses import LOSSES, SoftTriple, SquaredProxyNCA
from proxysynth.regularizers import REGULARIZERS
from proxysynth.values import look_up

Settings = dict[str, Any]  # fields of a Run

EVERY_SET: Settings = {
    # C.2
    "backbone": "bn_inception", "pretrained": True, "dim": 512, "pooling": "average",
    "image_size": 224, "augment": True, "transforms": "conventional", "flip": 0.5,
    "optimizer": "adam", "batch_size": 128, "schedule": "step", "decay": 0.1, "warmup_epochs": 0,
    # code
    "crop_scale": (0.08, 1.0), "cache_side": 0, "eps": 0.01, "weight_decay": 1e-4,
    "sampler": "shuffled", "evaluate_every": 5, "report_epoch": "best_on_test",
    "best_by": "recall@1",
}  # fmt: skip


# C.2: learning rate, frozen batch norm, epoch of the decay; then the number of epochs
EACH_SET = {
    "cub200": (1e-4, True, 20, 60),  # ours
    "cars196": (1e-4, True, 50, 130),  # README
    "sop": (1e-3, False, 20, 60),  # ours
    "inshop": (1e-3, False, 60, 100),  # ours
}
PROXY_ANCHOR: Settings = {
    "batch_size": 180, "optimizer": "adamw", "pooling": "both",  # C.2
    "eps": 1e-8, "warmup_epochs": 1, "clip_value": 10.0, "epochs": 60,  # Proxy-anchor
}  # fmt: skip
# Proxy-anchor: epochs between decays, decay factor, learning rate
PROXY_ANCHOR_RATES = {
    "cub200": (10, 0.5, 1e-4),
    "cars196": (20, 0.5, 1e-4),
    "sop": (20, 0.25, 6e-4),
    "inshop": (20, 0.25, 6e-4),
}
TRAINED_LOSSES: dict[str, Any] = {
    # Eq. i has no scale; the authors trained the squared form with the positive in the denominator.
    "proxy_nca": SquaredProxyNCA(scale=12.0),  # README
    "soft_triple": SoftTriple(  # SoftTriple
        20.0, temperature=0.1, margin=0.0, scaled_margin=0.01, k=10, regularizer=0.2
    ),
}

CLASSIFIED: Settings = {
    "task": "classification", "backbone": "preact_resnet18",  # D.4, Table C
    # Mixup
    "pretrained": False, "dim": None, "transforms": "pad_crop", "augment": True, "flip": 0.5,
    "image_size": 32, "optimizer": "sgd", "lr": 0.1, "proxy_lr": 0.1, "momentum": 0.9,
    "weight_decay": 1e-4, "batch_size": 100, "epochs": 2000, "schedule": "step", "decay": 0.1,
    "decay_epochs": (500, 1000, 1500),
    "evaluate_every": 10, "report_epoch": "last", "best_by": "accuracy",  # ours
}  # fmt: skip
EACH_CLASSIFIED: dict[str, Settings] = {  # Mixup
    "cifar10": {"pixels": "cifar10"},
    "cifar100": {"pixels": "cifar100"},
    "svhn": {"pixels": "centred", "flip": 0.0},
    "tiny_imagenet": {"pixels": "centred", "image_size": 64, "decay_epochs": (1000, 1500)},
}
CLASSIFIED_ALPHA_MU = {  # the best cell of Table C
    "cifar10": (1.0, 0.5), "cifar100": (1.5, 0.75), "svhn": (0.4, 1.0), "tiny_imagenet": (2.0, 0.25)
}  # fmt: skip
# Mixup
INPUT_MIXUP_ALPHA = 1.0
MANIFOLD_MIXUP_ALPHA = {"cifar10": 2.0, "cifar100": 2.0, "svhn": 2.0, "tiny_imagenet": 0.2}


def paper_settings(name: str, loss: str = "norm_softmax") -> Settings:
    """The fields of a Run on a benchmark: for retrieval behind a cell of Tables 6, F, H, J and L,
    for classification of Table D. Proxy-anchor has settings of its own."""
    if name in EACH_CLASSIFIED:
        return CLASSIFIED | EACH_CLASSIFIED[name]
    lr, frozen, at, epochs = look_up(name, EACH_SET, "benchmark")
    own: Settings = {"freeze_batch_norm": frozen, "decay_epochs": (at,), "epochs": epochs}
    if loss == "proxy_anchor":
        every, decay, lr = PROXY_ANCHOR_RATES[name]
        own |= PROXY_ANCHOR | {"decay": decay, "decay_epochs": tuple(range(every, 60, every))}
    # C.2 gives the proxies no learning rate of their own; the code uses 100 times as much.
    return EVERY_SET | own | {"lr": lr, "proxy_lr": 100 * lr}


def classified_loss(name: str, regularizer: str) -> Any:
    """Softmax with a regularizer and the values that the paper found best, as in Table D."""
    alpha, mu = CLASSIFIED_ALPHA_MU[name]
    values: dict[str, Settings] = {
        "none": {},
        "proxy_synthesis": {"alpha": alpha, "mu": mu},
        "virtual_softmax": {"clip": None},  # section D.4 clips for retrieval only
        "input_mixup": {"alpha": INPUT_MIXUP_ALPHA},
        "manifold_mixup": {"alpha": MANIFOLD_MIXUP_ALPHA[name]},
    }
    return trained_loss("softmax", regularizer, **values[regularizer])


def trained_loss(name: str, regularizer: str = "none", **values: Any) -> Any:
    """A loss by name, with the values it is trained with, and a regularizer with its defaults or
    these `values`; the margins of C.2 are the losses' own defaults."""
    kind = look_up(name, LOSSES, "loss")
    loss = TRAINED_LOSSES.get(name) or kind()
    over = look_up(regularizer, REGULARIZERS, "regularizer")
    return loss if over is None else over(loss, **values)
