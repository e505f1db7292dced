"""Run: everything about a training run, as one frozen value; Split: how its images are split."""

from __future__ import annotations

import os
import typing
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal

from proxysynth import losses
from proxysynth.distributed import check_shardable
from proxysynth.distributed.sharded_loss import check_fraction
from proxysynth.interfaces import ProxyLoss
from proxysynth.losses.functional import (
    check_loss,
    check_not_negative,
    check_positive,
    plain_loss,
)
from proxysynth.losses.norm_softmax import NormSoftmax
from proxysynth.regularizers import REGULARIZERS, ProxySynthesis, Regularizer
from proxysynth.values import LARGEST, check_integers, digest, hints

# What is done to the splits after they were opened, whatever the data.
APPLIED_AFTER_OPENING = {"validation_fraction", "validation_seed", "fold", "folds"}
APPLIED_AFTER_OPENING |= {"train_pictures", "test_pictures"}


def _require(value: object, name: str, holds: bool, expected: str) -> None:
    """Raise unless a field holds what it must."""
    if not holds:
        got = repr(getattr(value, name))
        if "\n" in got:  # the repr of a module spans lines
            got = type(getattr(value, name)).__name__
        raise ValueError(f"{type(value).__name__}: {name} must be {expected}, got {got}")


@dataclass(frozen=True)
class Split:
    """Which classes are seen and which are unseen. None stands for the dataset's default.

    Args:
        unseen_fraction: fraction of the classes of a folder or a table that are unseen; None: half.
            With any data, 0 trains on all classes, so that nothing is tested.
        seed: seed of the choice of unseen classes, or of the glyphs; None: 0.
        order: "shuffled" draws the unseen classes; "sorted" takes the last ones by name; None:
            "shuffled".
        unseen_classes: names of the unseen classes, instead of a fraction.
        seen_classes: names of the seen classes; those in neither list are ignored.
        train: sub-folder of the data with the images to train on, instead of a fraction; None: a
            sub-folder of this name, if there are also test images.
        test: sub-folder with the images to test on, each searching among all others; None: as for
            `train`.
        query: sub-folder with the queries, instead of `test`; None: as for `train`.
        gallery: sub-folder with the images that the queries search in; None: as for `train`.
        validation: sub-folder with the validation images, used for example to choose the epoch;
            None: classes held out of the seen ones, see `validation_fraction`.
        root: folder that the paths of a table are relative to; None: the table's own.
        incomplete: accept a benchmark with missing images; None: no.
        train_classes: glyphs: number of characters to train on; None: 100.
        test_classes: glyphs: number of characters to test on; None: 100.
        faces_per_class: glyphs: number of typefaces, and so of images, per seen character; None:
            16.
        query_faces: glyphs: number of typefaces whose images are queries, others are the gallery;
            None: every image is a query that searches among all others.
        test_faces: glyphs, classification: number of typefaces to test on, others are trained on;
            None: 0.
        distortion: glyphs: strength of random rotation, shear, blur and noise; None: 0.
        pictures_per_class: glyphs: number of distorted images per class; None: one per typeface.
        train_pictures: train on at most this many images, balanced over the classes; None: on all.
        test_pictures: test on at most this many images, balanced over the classes; None: on all.
        fold: cross-validation: test on this fold of the seen classes, train on the others, and do
            not use the unseen classes; None: no cross-validation.
        folds: number of folds of the cross-validation.
        validation_fraction: fraction of the seen classes that are held out of training where
            something is chosen on them, such as the epoch; unused otherwise.
        validation_seed: seed for choosing these classes.
    """

    unseen_fraction: float | None = None
    seed: int | None = None
    order: Literal["shuffled", "sorted"] | None = None
    unseen_classes: tuple[str, ...] = ()
    seen_classes: tuple[str, ...] = ()
    train: str | None = None
    test: str | None = None
    query: str | None = None
    gallery: str | None = None
    validation: str | None = None
    root: str | None = None
    train_classes: int | None = None
    test_classes: int | None = None
    faces_per_class: int | None = None
    query_faces: int | None = None
    test_faces: int | None = None
    distortion: float | None = None
    pictures_per_class: int | None = None
    incomplete: bool | None = None
    train_pictures: int | None = None
    test_pictures: int | None = None
    fold: int | None = None
    folds: int = 4
    validation_fraction: float = 0.2
    validation_seed: int = 0

    def __post_init__(self) -> None:
        must, unseen, fold = partial(_require, self), self.unseen_fraction, self.fold
        must("unseen_fraction", unseen is None or 0 <= unseen < 1, "in [0, 1)")
        must("validation_fraction", 0 < self.validation_fraction < 1, "in (0, 1)")
        least = {"train_pictures": 1, "test_pictures": 1, "folds": 2, "fold": 0}
        least |= dict.fromkeys(("train_classes", "test_classes", "faces_per_class"), 0)
        least |= dict.fromkeys(("query_faces", "test_faces", "pictures_per_class"), 0)
        least |= dict.fromkeys(("seed", "validation_seed"), 0)
        check_integers(self, **{k: v for k, v in least.items() if getattr(self, k) is not None})
        must("fold", fold is None or fold < self.folds, f"0 to {self.folds - 1}")
        must("fold", fold is None or unseen != 0, "None if unseen_fraction=0 tests nothing")
        check_not_negative(self, distortion=self.distortion or 0)

    def options(self) -> dict[str, Any]:
        """The fields that are set, as keyword arguments of `data.open_data`."""
        other = APPLIED_AFTER_OPENING
        if self.unseen_fraction == 0:
            other = other | {"unseen_fraction"}
        names = [field.name for field in fields(self) if field.name not in other]
        options = {name: getattr(self, name) for name in names}
        return {name: value for name, value in options.items() if value not in (None, ())}


POSITIVE = ("width", "lr", "proxy_lr", "eps", "embedding_lr", "clip_norm", "clip_value")
# The minimum of integer fields.
LEAST = dict.fromkeys(("epochs", "m", "evaluate_every", "dim", "image_size"), 1)
LEAST |= dict.fromkeys(("warmup_epochs", "patience", "seed", "cache_side"), 0) | {"batch_size": 2}
FEW_CLASSES, FEW_CLASSES_A = 40, 0.75  # see "Is training better than none?" in docs/results.md


@dataclass(frozen=True)
class Run:
    """A training run. Equal runs give equal weights; `identity` is its hash.

    What differs between machines without changing the result (device, workers, folders) is in
    `Resources`. The defaults are those for the built-in glyphs; `proxysynth.training.default_run`
    has those for photographs. `proxysynth train --show-config` prints this list.

    Args:
        data: "glyphs", a folder with one sub-folder per class, a CSV file, or "name:ROOT".
        split: which classes are seen in training, see `Split`.
        skip_bad: skip unreadable images instead of stopping.
        loss: a loss, or a regularizer that holds one.
        task: "retrieval" of unseen classes, or "classification" of the seen ones, which also
            reports accuracy.

        backbone: a name such as "efficientnet_lite0", "timm:name", "hf:name_or_folder" (of
            transformers), or "package.module:function".
        width: multiplier for the number of channels, for backbones that support it.
        dim: dimension of the embeddings; None: no embedding layer; the backbone's features are
            the embeddings. A new layer is saved only with interpolate=None, the default if `dim`
            is given.
        pooling: "average", "max" or "both"; of "timm:" and "hf:" backbones also "class", the class
            token, and "own", the network's own pooling.
        pretrained: start from published weights; None: decided by the backbone.
        weights: a file of weights of the backbone to start from instead; also the
            `model.safetensors` of a run; None: decided by `pretrained`.
        init: the folder of an earlier run to start from, with the same network: its weights, and
            its proxies of the classes that have the same name; None: no earlier run.
        pixels: how pixels are normalized, a key of `data.PIXELS` or "mean R G B std R G B"; None:
            decided by the backbone.
        image_size: side of the input images in pixels; None: that of images in memory (glyphs),
            otherwise decided by the backbone.
        freeze_batch_norm: keep the statistics of batch norm fixed.
        freeze: name prefixes of the backbone's parameters that are not trained.

        transforms: "conventional" crops a random area and tests on the center of the resized
            image; "mlrc" does the same after resizing; "pad_crop" crops a padded image.
        augment: random crops and flips in training; otherwise images are processed as in testing.
        crop_scale: smallest and largest fraction of the area that a random crop keeps.
        flip: probability of a horizontal flip.
        cache_side: short side of the cached photographs in pixels; None: the size used in testing;
            0 decodes the original every time.

        sampler: "shuffled", or "m_per_class" for batches with `m` images of each class.
        m: images per class in a batch, for the sampler "m_per_class".
        epochs: passes over the training images.
        batch_size: images per step, over all processes.
        shard_proxies: split the proxies between the processes.
        negatives: with sharded proxies, the fraction of classes that take part in a step besides
            those of the batch.

        optimizer: "adam", "adamw", "rmsprop" or "sgd".
        proxy_optimizer: "same" as the network's, or "rowwise", which stores one number per proxy.
        lr: learning rate of the backbone.
        layer_decay: multiplier for the learning rate from each layer of the backbone to the one
            before it; 1 trains all layers at `lr`.
        embedding_lr: learning rate of the embedding layer; None: that of the backbone, `lr`.
        proxy_lr: learning rate of the proxies.
        weight_decay: weight decay of the optimizer.
        momentum: momentum of "sgd" and "rmsprop".
        eps: epsilon of the optimizer, where it has one.
        schedule: learning rate schedule: "constant", "step", "cosine" or "one_cycle".
        decay_epochs: epochs after which the schedule "step" multiplies the rates by `decay`.
        decay: factor of the schedule "step".
        warmup_epochs: number of initial epochs that train only the embedding layer and the proxies.
        clip_norm: maximum gradient norm; None: not clipped.
        clip_value: maximum absolute value of each entry of the gradient; None: not clipped.

        precision: "float32", mixed "bfloat16", or "auto": mixed where the device supports it well.
        channels_last: use the channels-last memory format.
        compile: compile the network with torch.compile.

        extended: numbers of epochs that the run had when it was extended.
        interpolate: the factor a in the saved weights, w = (1 - a) w_start + a w_trained; "auto"
            chooses the best a on classes held out of the seen ones; "by_classes" is 0.75 with fewer
            than 40 seen classes, 1 otherwise. A new embedding layer is omitted, so that a = 0 gives
            the pretrained features. None: the trained network is saved, with its layer.

        seed: seed of all randomness.
        report_epoch: the epoch whose metrics are reported: "last"; "best" on classes held out of
            the seen ones; "best_on_test", common in the literature but optimistic.
        best_by: what chooses the best epoch: "recall@1", "r_precision", "map@r" or "accuracy".
        patience: stop after this many evaluations without improvement; 0 never stops early.
        evaluate_every: epochs between evaluations; the last epoch is always evaluated.
        ks: values of k for Recall@k, besides 1; empty: decided by the dataset, (1, 2, 4, 8) for
            most.
    """

    data: str = "glyphs"
    split: Split = Split()
    skip_bad: bool = False
    loss: ProxyLoss | Regularizer = ProxySynthesis(NormSoftmax())

    task: Literal["retrieval", "classification"] = "retrieval"

    backbone: str = "conv4"
    width: float = 1.0
    dim: int | None = 128
    pooling: Literal["average", "max", "both", "class", "own"] = "average"
    pretrained: bool | None = False
    weights: str | None = None
    init: str | None = None
    pixels: str | None = None
    image_size: int | None = None
    freeze_batch_norm: bool = False
    freeze: tuple[str, ...] = ()

    transforms: Literal["conventional", "mlrc", "pad_crop"] = "conventional"
    augment: bool = False
    crop_scale: tuple[float, float] = (0.08, 1.0)
    flip: float = 0.5
    cache_side: int | None = None

    sampler: Literal["shuffled", "m_per_class"] = "shuffled"
    m: int = 4
    epochs: int = 30
    batch_size: int = 32
    shard_proxies: bool = False
    negatives: float = 1.0

    optimizer: Literal["adam", "adamw", "rmsprop", "sgd"] = "adam"
    proxy_optimizer: Literal["same", "rowwise"] = "same"
    lr: float = 1e-3
    layer_decay: float = 1.0
    embedding_lr: float | None = None
    proxy_lr: float = 1e-2
    weight_decay: float = 0.0
    momentum: float = 0.9
    eps: float = 1e-8
    schedule: Literal["constant", "step", "cosine", "one_cycle"] = "cosine"
    decay_epochs: tuple[int, ...] = ()
    decay: float = 0.1
    warmup_epochs: int = 0
    clip_norm: float | None = None
    clip_value: float | None = None

    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    channels_last: bool = True
    compile: bool = False

    extended: tuple[int, ...] = ()
    interpolate: float | Literal["auto", "by_classes"] | None = None

    seed: int = 0
    report_epoch: Literal["last", "best", "best_on_test"] = "last"
    best_by: Literal["recall@1", "r_precision", "map@r", "accuracy"] = "map@r"
    patience: int = 0
    evaluate_every: int = 1
    ks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        must = partial(_require, self)
        for name in ("data", "weights", "init"):
            if isinstance(given := getattr(self, name), os.PathLike):
                object.__setattr__(self, name, os.fspath(given))  # as JSON has it
        must("data", isinstance(self.data, str), "a path or the name of a dataset")
        if isinstance(self.loss, type | str):
            check_loss(self, self.loss)
        for held in (self.loss, plain_loss(self.loss)):
            known = KINDS.get(type(held).__name__) is type(held)
            must("loss", known, "a loss of proxysynth (train others in a loop of your own)")
        must("split", isinstance(self.split, Split), "a ps.Split")
        for name in ("decay_epochs", "ks", "extended", "freeze", "crop_scale"):
            must(name, isinstance(getattr(self, name), tuple | list), "a tuple")
        named = "a name; for your own network 'package.module:function', which returns it"
        must("backbone", isinstance(self.backbone, str), named)
        for name, hint in hints(Run).items():
            value, choices = getattr(self, name), typing.get_args(hint)
            if typing.get_origin(hint) is Literal:
                must(name, value in choices, f"one of {', '.join(map(repr, choices))}")
            elif value is None:
                must(name, type(None) in choices, "given")
            elif name in LEAST:
                check_integers(self, **{name: LEAST[name]})
            elif name in POSITIVE:
                check_positive(self, **{name: value})
        check_not_negative(self, weight_decay=self.weight_decay, flip=self.flip, decay=self.decay)
        check_fraction(self.negatives)
        if self.shard_proxies:
            check_shardable(self.loss)
        must("seed", self.seed < LARGEST, "an integer < 2**63")  # as JSON is read
        for name in ("decay_epochs", "ks", "extended"):
            fits = all(type(value) is int and value >= 1 for value in getattr(self, name))
            must(name, fits, "integers >= 1")
        must("layer_decay", 0 < self.layer_decay <= 1, "in (0, 1]")
        must("flip", self.flip <= 1, "in [0, 1]")
        must("momentum", 0 <= self.momentum < 1, "in [0, 1)")
        area, classifies, a = self.crop_scale, self.task == "classification", self.interpolate
        fits = len(area) == 2 and 0 < area[0] <= area[1] <= 1
        must("crop_scale", fits, "two increasing fractions of the area, such as (0.08, 1.0)")
        fits = self.schedule != "step" or bool(self.decay_epochs)
        must("decay_epochs", fits, "given for the schedule 'step', such as decay_epochs=20")
        fits = self.best_by != "accuracy" or classifies
        must("best_by", fits, "a metric of retrieval, or task='classification'")
        fits = not self.patience or self.report_epoch != "last"
        must("report_epoch", fits, "'best' for patience (early stopping)")
        number = type(a) in (int, float) and 0 <= a <= 1  # type: ignore[operator]
        fits = number or a in (None, "auto", "by_classes")
        must("interpolate", fits, "'auto', 'by_classes' or a number in [0, 1]")
        must("interpolate", a is None or not classifies, "None for task='classification'")
        must("weights", self.init is None or self.weights is None, "None if init is given")
        ends = [*self.extended, self.epochs]
        must("extended", ends == sorted(set(ends)), f"increasing and below {self.epochs} epochs")
        fits = self.sampler != "m_per_class" or self.batch_size % self.m == 0
        must("batch_size", fits, f"a multiple of m={self.m} for the sampler 'm_per_class'")
        must("shard_proxies", self.negatives == 1 or self.shard_proxies, "true for negatives < 1")
        fits = not (self.shard_proxies and classifies)
        must("shard_proxies", fits, "false for task='classification', which tests in one place")

    @property
    def identity(self) -> str:
        """Twelve hexadecimal digits that depend on every field."""
        return digest(self)

    @property
    def normalized(self) -> bool:
        """Whether embeddings have unit length: True except for losses of raw dot products."""
        return bool(getattr(self.loss, "normalized", True))

    @property
    def holds_out(self) -> bool:
        """Whether something is chosen on classes held out of the seen ones."""
        return self.report_epoch == "best" or self.interpolate == "auto"

    @property
    def drops_layer(self) -> bool:
        """Whether the saved network lacks the embedding layer that it is trained with."""
        return self.interpolate is not None and self.dim is not None and self.init is None

    def interpolation(self, classes: int) -> float | Literal["auto"] | None:
        """`interpolate` with this many seen classes."""
        if self.interpolate == "by_classes":
            return FEW_CLASSES_A if classes < FEW_CLASSES else 1.0
        return self.interpolate

    def extend(self, epochs: int) -> Run:
        """The run with more epochs.

        The learning rates of the first ones stay as they were; the rest follow the schedule of the
        longer run. So cosine, which ends at zero, rises to its value there and falls again.
        """
        if epochs <= self.epochs:
            raise ValueError(f"a run of {self.epochs} epochs cannot be extended to {epochs}")
        return replace(self, epochs=epochs, extended=(*self.extended, self.epochs))


_LOSSES = [kind for kind in vars(losses).values() if isinstance(kind, type)]
KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (*_LOSSES, *filter(None, REGULARIZERS.values()), Split, Run)
}
"""The classes that a `run.json` may contain: `values.decode` constructs no others."""
