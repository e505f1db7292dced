"""The paper's section C.2 as code: the fields of its Runs.

Values that the paper leaves out come from the code and papers it refers to. Every value stands here
once, with its source. Those of the MLRC protocol are in `protocols/mlrc/settings.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from proxysynth.losses import LOSSES, Softmax, SoftTriple, SquaredProxyNCA
from proxysynth.regularizers import REGULARIZERS
from proxysynth.values import look_up

C2 = "section C.2"
CODE = "the authors' released code"
README = "the commands in the authors' README"
ANCHOR = "the released code of Proxy-anchor (Kim et al. 2020), which C.2 follows"
TRIPLE = "the released code of SoftTriple (Qian et al. 2019)"
MIXUP = "the released scripts of Manifold Mixup (Verma et al. 2019), which section D.4 follows"
OURS = "stated nowhere; chosen here"


class Sourced(NamedTuple):
    """A setting and where it comes from."""

    value: Any
    source: str


Settings = dict[str, Sourced]


def _from(source: str, **fields: Any) -> Settings:
    return {name: Sourced(value, source) for name, value in fields.items()}


EVERY_SET = _from(
    C2, backbone="bn_inception", pretrained=True, dim=512, pooling="average", image_size=224,
    augment=True, transforms="conventional", flip=0.5, optimizer="adam", batch_size=128,
    schedule="step", decay=0.1, warmup_epochs=0,
) | _from(
    CODE, crop_scale=(0.08, 1.0), cache_side=0, eps=0.01, weight_decay=1e-4, sampler="shuffled",
    evaluate_every=5, report_epoch="best_on_test", best_by="recall@1",
)  # fmt: skip


def _each_set(lr: float, frozen: bool, decay_at: int, epochs: int, source: str) -> Settings:
    # The paper gives the proxies no learning rate of their own; the code uses 100 times as much.
    stated = _from(C2, lr=lr, freeze_batch_norm=frozen, decay_epochs=(decay_at,))
    return stated | _from(CODE, proxy_lr=100 * lr) | _from(source, epochs=epochs)


EACH_SET = {
    "cub200": _each_set(1e-4, True, 20, 60, OURS),
    "cars196": _each_set(1e-4, True, 50, 130, README),
    "sop": _each_set(1e-3, False, 20, 60, OURS),
    "inshop": _each_set(1e-3, False, 60, 100, OURS),
}
PROXY_ANCHOR = _from(C2, batch_size=180, optimizer="adamw", pooling="both") | _from(
    ANCHOR, eps=1e-8, warmup_epochs=1, clip_value=10.0, epochs=60
)
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

CLASSIFIED = (
    _from("section D.4", task="classification")
    | _from("Table C", backbone="preact_resnet18")
    | _from(
        MIXUP, pretrained=False, dim=None, transforms="pad_crop", augment=True, flip=0.5,
        image_size=32, optimizer="sgd", lr=0.1, proxy_lr=0.1, momentum=0.9, weight_decay=1e-4,
        batch_size=100, epochs=2000, schedule="step", decay=0.1, decay_epochs=(500, 1000, 1500),
    )
    | _from(OURS, evaluate_every=10, report_epoch="last", best_by="accuracy")
)  # fmt: skip
EACH_CLASSIFIED = {
    "cifar10": _from(MIXUP, pixels="cifar10"),
    "cifar100": _from(MIXUP, pixels="cifar100"),
    "svhn": _from(MIXUP, pixels="centred", flip=0.0),
    "tiny_imagenet": _from(MIXUP, pixels="centred", image_size=64, decay_epochs=(1000, 1500)),
}
CLASSIFIED_ALPHA_MU = _from(
    "the best cell of Table C", cifar10=(1.0, 0.5), cifar100=(1.5, 0.75), svhn=(0.4, 1.0),
    tiny_imagenet=(2.0, 0.25),
)  # fmt: skip
INPUT_MIXUP_ALPHA = Sourced(1.0, MIXUP)
MANIFOLD_MIXUP_ALPHA = _from(MIXUP, cifar10=2.0, cifar100=2.0, svhn=2.0, tiny_imagenet=0.2)


def paper_settings(name: str, loss: str = "norm_softmax") -> Settings:
    """The fields of a Run on a benchmark, each with its source: for retrieval behind a cell of
    Tables 6, F, H, J and L, for classification of Table D. Proxy-anchor has settings of its own."""
    if name in EACH_CLASSIFIED:
        return CLASSIFIED | EACH_CLASSIFIED[name]
    settings = EVERY_SET | look_up(name, EACH_SET, "benchmark")
    if loss == "proxy_anchor":
        every, decay, lr = PROXY_ANCHOR_RATES[name]
        at = tuple(range(every, 60, every))
        own = _from(ANCHOR, lr=lr, proxy_lr=100 * lr, decay=decay, decay_epochs=at)
        settings |= PROXY_ANCHOR | own
    return settings


def classified_loss(name: str, regularizer: str) -> Any:
    """Softmax with a regularizer and the values that the paper found best, as in Table D."""
    alpha, mu = CLASSIFIED_ALPHA_MU[name].value
    values = {
        "proxy_synthesis": {"alpha": alpha, "mu": mu},
        "virtual_softmax": {"clip": None},  # section D.4 clips for retrieval only
        "input_mixup": {"alpha": INPUT_MIXUP_ALPHA.value},
        "manifold_mixup": {"alpha": MANIFOLD_MIXUP_ALPHA[name].value},
    }
    over: Any = REGULARIZERS[regularizer]
    return Softmax() if over is None else over(Softmax(), **values[regularizer])


def trained_loss(name: str, regularizer: str = "none") -> Any:
    """A loss by name, with the values it is trained with, and with a regularizer's defaults; the
    margins of C.2 are the losses' own defaults."""
    kind = look_up(name, LOSSES, "loss")
    loss = TRAINED_LOSSES[name].value if name in TRAINED_LOSSES else kind()
    over = look_up(regularizer, REGULARIZERS, "regularizer")
    return loss if over is None else over(loss)
