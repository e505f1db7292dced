"""The Runs of each study."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from variants import HarderPartners, KParents, MuRamp, ParentsApart, SoftPairs

import proxysynth as ps
from proxysynth.data import open_data
from proxysynth.losses import LOSSES, NormSoftmax, ProxyAnchor, Softmax
from proxysynth.losses.functional import plain_loss, unit
from proxysynth.paper.scale import SCALES, trained_loss
from proxysynth.regularizers import (
    InputMixup,
    ManifoldMixup,
    ProxySynthesis,
    VirtualSoftmax,
)
from proxysynth.regularizers.mixing import mixed_similarity, synthesize
from proxysynth.training.callbacks import Silent
from proxysynth.training.defaults import default_run
from proxysynth.training.inference import embed
from proxysynth.training.prepare import make_network, open_splits, prepare
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run, Split

GLYPHS = default_run(
    "glyphs",
    loss=NormSoftmax(),
    split=Split(seed=0, train_classes=100, test_classes=100, faces_per_class=16),
    epochs=15,
    evaluate_every=15,
    ks=(1, 2, 4, 8),
)

# Proxy-anchor's own settings; the other losses share theirs.
ANCHOR: dict[str, Any] = {
    "batch_size": 180,
    "optimizer": "adamw",
    "pooling": "both",
    "warmup_epochs": 1,
    "clip_value": 10.0,
}
CUB_LOSSES = (
    "norm_softmax", "proxy_anchor", "softmax", "arcface",
    "sphereface", "cosface", "proxy_nca", "soft_triple",
)  # fmt: skip

CLASSES = (25, 50, 100, 200, 400, 800)
FACES = (5, 12)
"""Pictures per class; 800 characters have twelve faces, far fewer have sixteen."""


@dataclass(frozen=True)
class Planned:
    """A Run, and the columns that identify it in the study's table."""

    run: Run
    columns: dict[str, Any]
    measure: Callable[[Any], dict[str, float]] | None = None
    """Further metrics of the trained model."""


Plan = Iterator[Planned]


def _each(base: Run, losses: Mapping[str, Any], seed: int, **columns: Any) -> Plan:
    """The Run with each of some losses, which are named by their regularizers."""
    for kind, loss in losses.items():
        run = replace(base, loss=loss, seed=seed)
        yield Planned(run, {**columns, "regularizer": kind, "seed": seed})


def _with_and_without(loss: Any) -> dict[str, Any]:
    return {"none": loss, "proxy_synthesis": ProxySynthesis(loss)}


def _on_fold(seed: int) -> Run:
    """Glyphs, tested on a fold of the seen classes."""
    return replace(GLYPHS, split=replace(GLYPHS.split, fold=seed % 4))


def glyph_losses(**_: Any) -> Plan:
    """All eight losses, with and without Proxy Synthesis, ten seeds."""
    for seed, name in itertools.product(range(10), LOSSES):
        yield from _each(GLYPHS, _with_and_without(trained_loss(name)), seed, loss=name)


def glyph_regularizers(**_: Any) -> Plan:
    """The four regularizers on Softmax and Norm-softmax, five seeds."""
    for seed in range(5):
        for name, loss in (("softmax", Softmax()), ("norm_softmax", NormSoftmax())):
            kinds = {
                **_with_and_without(loss),
                "input_mixup": InputMixup(loss),
                "manifold_mixup": ManifoldMixup(loss),
            }
            if name == "softmax":
                kinds["virtual_softmax"] = VirtualSoftmax(loss)
            yield from _each(GLYPHS, kinds, seed, loss=name)


def glyph_classes(**_: Any) -> Plan:
    """How the gain changes with the number of seen classes and of images per class."""
    for seed, classes, faces in itertools.product(range(3), CLASSES, FACES):
        split = Split(train_classes=classes, test_classes=100, faces_per_class=faces)
        kinds, base = _with_and_without(NormSoftmax()), replace(GLYPHS, split=split)
        yield from _each(base, kinds, seed, classes=classes, per_class=faces)


def glyph_settings(**_: Any) -> Plan:
    """Alpha, mu, one coefficient per pair, merged duplicates: on a fold of the seen classes."""
    variants: list[dict[str, Any]] = [
        *({"alpha": alpha} for alpha in (0.2, 0.4, 0.8, 1.5)),
        *({"mu": mu} for mu in (0.5, 1.5, 2.0, 3.0)),
        {"per_pair": True},
        {"duplicates": "merge"},
        {"per_pair": True, "duplicates": "merge"},
        {"per_pair": True, "mu": 2.0},
    ]
    for seed in range(4):
        base = replace(_on_fold(seed), seed=seed)
        for changed in variants:
            loss = ProxySynthesis(NormSoftmax(), **changed)
            columns = {"alpha": loss.alpha, "mu": loss.mu, "per_pair": loss.per_pair,
                       "duplicates": loss.duplicates, "seed": seed}  # fmt: skip
            yield Planned(replace(base, loss=loss), columns)
        yield Planned(base, {"alpha": "", "mu": 0, "per_pair": "", "duplicates": "", "seed": seed})


def glyph_scales(**_: Any) -> Plan:
    """Norm-softmax at several scales: on a fold of the seen classes, four seeds and folds."""
    for seed, scale in itertools.product(range(4), (4.0, 6.0, 9.0, 14.0, 23.0, 40.0, 64.0)):
        yield from _each(_on_fold(seed), _with_and_without(NormSoftmax(scale)), seed, scale=scale)


def glyph_variants(**_: Any) -> Plan:
    """Changes to the method (`variants.py`): on a fold of the seen classes, four seeds."""
    for seed, scale in itertools.product(range(4), (6.0, 23.0)):
        loss = NormSoftmax(scale=scale)
        kinds = {
            **_with_and_without(loss),
            "harder_partners": HarderPartners(loss),
            "hardest_partners": HarderPartners(loss, nearest=2),
            "parents_apart": ParentsApart(loss),
            "per_pair": ProxySynthesis(loss, per_pair=True),
            "twice_as_many": ProxySynthesis(loss, mu=2.0),
        }
        if scale == 23.0:  # at 6, Proxy Synthesis itself changes nothing
            kinds["three_parents"] = KParents(loss, parents=3)
            kinds["four_parents"] = KParents(loss, parents=4)
            kinds["mu_ramp"] = MuRamp(loss)
        yield from _each(_on_fold(seed), kinds, seed, scale=scale)


def glyph_anchor(**_: Any) -> Plan:
    """Proxy-anchor whose synthetics repel their parents less: on a fold of the seen classes."""
    loss = ProxyAnchor()
    kinds = {
        **_with_and_without(loss),
        "soft_weight": SoftPairs(loss, how="weight"),
        "soft_margin": SoftPairs(loss, how="margin"),
        "soft_apart": SoftPairs(loss, how="apart"),
    }
    for seed in range(4):
        yield from _each(_on_fold(seed), kinds, seed)


def glyph_gradients(**_: Any) -> Plan:
    """Which proxies move a trained network's embeddings: Proxy-anchor and Norm-softmax."""
    for seed, name in itertools.product(range(3), ("proxy_anchor", "norm_softmax")):
        for item in _each(GLYPHS, _with_and_without(trained_loss(name)), seed, loss=name):
            yield replace(item, measure=partial(_toward_own_proxy, item.run))


def _toward_own_proxy(run: Run, model: Any) -> dict[str, float]:
    """The gradient of the seen classes' embeddings, along the direction to their own proxies.

    The gradient is a sum over proxies. Those of other classes and those of synthetic classes are
    measured relative to the pull of the own proxy; below -1, they push harder than it pulls.
    """
    ready = prepare(run, open_splits(run), model.embedder, Resources(threads=1), Silent())
    loader = ready.tester(ready.splits.train)
    x, labels = embed(model.embedder, loader), torch.tensor(loader.listing.labels)
    p, c = model.proxies, len(model.proxies)
    synthesis = run.loss if isinstance(run.loss, ProxySynthesis) else None
    plain = plain_loss(run.loss)
    generator = torch.Generator().manual_seed(0)
    own = others = synthetic = 0.0
    for part in torch.randperm(len(x), generator=generator).repeat(5).split(160):
        x_b, y_b = x[part], labels[part]
        S, y, proxies = plain.similarity(x_b, p), y_b, unit(p)
        draw = None if synthesis is None else synthesis.draw(y_b, generator)
        if draw is not None:
            S = mixed_similarity(plain, x_b, y_b, p, draw, normalized=True)
            y = torch.cat((y_b, c + draw.target))
            proxies = torch.cat((proxies, synthesize(x_b, y_b, p, draw, normalized=True).p))
        S = S.requires_grad_()
        (slopes,) = torch.autograd.grad(plain.from_similarity(S, y), S)
        at, target = unit(x_b), proxies[y_b]
        toward = unit(target - (at * target).sum(dim=1, keepdim=True) * at)  # along the sphere
        force = -slopes[: len(x_b)] * (toward @ proxies.t())
        pull = float(force.gather(1, y_b[:, None]).sum())
        push = float(force[:, c:].sum())
        own, synthetic, others = (
            own + pull,
            synthetic + push,
            others + float(force.sum()) - pull - push,
        )
    similarity = (unit(x) * unit(p)[labels]).sum(dim=1).mean()
    return {
        "own_similarity": float(similarity),
        "other_classes": others / own,
        "synthetic_classes": synthetic / own,
    }


def glyph_more(**_: Any) -> Plan:
    """More synthetics, of few and of many classes: on a fold of the seen classes, four seeds."""
    for seed, classes, mu in itertools.product(range(4), (40, 200), (1.0, 3.0)):
        split = Split(train_classes=classes, test_classes=100, faces_per_class=12, fold=seed % 4)
        loss = ProxySynthesis(NormSoftmax(), mu=mu)
        run = replace(GLYPHS, loss=loss, seed=seed, split=split)
        yield Planned(run, {"classes": classes, "mu": mu, "seed": seed})


PRESET = {**_with_and_without(NormSoftmax()), "mu_3": ProxySynthesis(NormSoftmax(), mu=3.0)}


def glyph_preset(**_: Any) -> Plan:
    """The best setting of glyph_settings, measured once on unseen classes, ten seeds."""
    for seed in range(10):
        yield from _each(GLYPHS, PRESET, seed)


def cub200_preset(cub: str | None = None, **_: Any) -> Plan:
    """The same on CUB-200-2011, three seeds."""
    for seed in range(3):
        yield from _each(_cub(cub), PRESET, seed)


def cub200(cub: str | None = None, **_: Any) -> Plan:
    """CUB-200-2011 at 96 pixels, EfficientNet-Lite0 from its ImageNet weights."""
    for name, seed in itertools.product(CUB_LOSSES, range(3)):
        base = replace(_cub(cub), **(ANCHOR if name == "proxy_anchor" else {}))
        yield from _each(base, _with_and_without(trained_loss(name)), seed, loss=name)


def cub200_scale(cub: str | None = None, **_: Any) -> Plan:
    """Norm-softmax on CUB-200-2011 at scale 11, three seeds; at 23 it is in `cub200`."""
    for seed in range(3):
        yield from _each(_cub(cub), _with_and_without(NormSoftmax(11.0)), seed, scale=11.0)


def cub200_few(cub: str | None = None, **_: Any) -> Plan:
    """10, 25 and 50 seen classes of CUB-200-2011, 30 images each; other classes for each seed."""
    images = Path(_needed(cub, "CUB-200-2011", "--cub")).resolve() / "images"
    for classes, seed in itertools.product((10, 25, 50), range(4)):
        base = _few(images, 160, classes, seed)
        yield from _each(base, _with_and_without(NormSoftmax()), seed, classes=classes)


def cub200_interpolate(cub: str | None = None, **_: Any) -> Plan:
    """The fine-tuned backbone interpolated with the pretrained one: 5, 12, 25 and 50 seen classes
    of CUB-200-2011, 30 images each, three seeds."""
    images = Path(_needed(cub, "CUB-200-2011", "--cub")).resolve() / "images"
    return _few_to_interpolate(images, 160, (5, 12, 25, 50))


def grocery_interpolate(grocery: str | None = None, **_: Any) -> Plan:
    """The same with 12 and 40 seen products of GroceryStore."""
    photos = Path(_needed(grocery, "GroceryStore", "--grocery")).resolve() / "photos"
    return _few_to_interpolate(photos, 112, (12, 40))


def _few_to_interpolate(folder: Path, image_size: int, class_counts: tuple[int, ...]) -> Plan:
    """Each with all seen classes trained on, and with some of them held out."""
    loss = ProxySynthesis(NormSoftmax(scale=11.0))
    for classes, seed in itertools.product(class_counts, range(3)):
        run = replace(_few(folder, image_size, classes, seed), loss=loss, seed=seed)
        # report_epoch="best" holds classes out; of one evaluation, it is the last epoch
        for kind, planned in {"all": run, "held_out": replace(run, report_epoch="best")}.items():
            columns = {"classes": classes, "trained": kind, "seed": seed}
            yield Planned(planned, columns, partial(_interpolated, planned))


def _few(folder: Path, image_size: int, classes: int, seed: int) -> Run:
    """Train on some classes of the first half of a folder's, test on the second half."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    half = len(names) // 2
    chosen = tuple(sorted(random.Random(seed).sample(names[:half], classes)))
    split = Split(seen_classes=chosen, unseen_classes=tuple(names[half:]),
                  train_pictures=30 * classes, test_pictures=1500)  # fmt: skip
    base = default_run(
        str(folder), image_size=image_size, epochs=12, evaluate_every=12, interpolate=None
    )
    return replace(base, split=split)


def _interpolated(run: Run, model: Any) -> dict[str, float]:
    """Metrics of the backbone's features (and of the embeddings) at several a, on unseen classes
    and, where there are any, on the held-out ones: w = (1 - a) pretrained + a trained."""
    net = model.embedder
    ready = prepare(run, open_splits(run), net, Resources(threads=1), Silent())
    pretrained = make_network(run, None).backbone.state_dict()
    trained = {key: value.clone() for key, value in net.backbone.state_dict().items()}
    found: dict[str, float] = {}
    for a in (0.0, 0.25, 0.5, 0.75, 1.0):
        net.backbone.load_state_dict(
            {
                key: torch.lerp(start, trained[key], a) if start.is_floating_point() else start
                for key, start in pretrained.items()
            }
        )
        for part, loader in (("unseen", ready.query), ("held_out", ready.validation)):
            if loader is None:
                continue
            x, y = embed(net, loader, features=True), loader.listing.labels
            with torch.no_grad():
                kinds = {"features": x, "embeddings": net.embedding(x)}
            for kind, made in kinds.items():
                metrics = ps.evaluate(made, y, ks=(1,))
                for key in ("recall@1", "map@r"):
                    found[f"{part}_{kind}_{a:g}_{key}"] = metrics[key]
    net.backbone.load_state_dict(trained)
    return found


def grocery(grocery: str | None = None, **_: Any) -> Plan:
    """GroceryStore at 96 pixels: 40 products seen, 41 unseen; Norm-softmax at two scales, and
    Proxy-anchor."""
    root = Path(_needed(grocery, "GroceryStore", "--grocery")).resolve()
    photos = str(root / "photos")
    base = replace(_cub("unused"), data=photos, split=Split(seed=0, unseen_fraction=41 / 81), ks=())
    losses = {
        "norm_softmax": (NormSoftmax(), {}),
        "norm_softmax, scale 11": (NormSoftmax(scale=11.0), {}),
        "proxy_anchor": (LOSSES["proxy_anchor"](), ANCHOR),
    }
    for (name, (loss, own)), seed in itertools.product(losses.items(), range(3)):
        for item in _each(replace(base, **own), _with_and_without(loss), seed, loss=name):
            yield replace(item, measure=partial(_against_catalog, root, item.run))


def _against_catalog(root: Path, run: Run, model: Any) -> dict[str, float]:
    """Metrics with photographs of unseen products as queries and catalog images as the gallery."""
    unseen = open_data(run.data, **run.split.options()).query.classes
    query, gallery = (
        [(path, label) for label in unseen for path in sorted((root / part / label).iterdir())]
        for part in ("photos", "catalogue")
    )
    x, g = (model.embed([path for path, _ in part]) for part in (query, gallery))
    y, gy = (torch.tensor([unseen.index(label) for _, label in part]) for part in (query, gallery))
    found = ps.evaluate(x, y, gallery=g, gallery_labels=gy, ks=(1, 2, 4, 8))
    return {f"catalogue_{key}": found[key] for key in ("recall@1", "recall@4", "map@r")}


def _needed(root: str | None, name: str, option: str) -> str:
    if root is None:
        raise ValueError(f"this study needs the folder of {name}: give it with {option}")
    return root


def _cub(root: str | None) -> Run:
    root = _needed(root, "CUB-200-2011", "--cub")
    base = SCALES["small"].with_roots({"cub200": root}).run("cub200", NormSoftmax())
    assert base is not None
    return replace(base, evaluate_every=2, ks=())


STUDIES: dict[str, Callable[..., Plan]] = {
    study.__name__: study
    for study in (
        cub200,
        cub200_preset,
        cub200_scale,
        cub200_few,
        cub200_interpolate,
        grocery_interpolate,
        grocery,
        glyph_losses,
        glyph_regularizers,
        glyph_classes,
        glyph_settings,
        glyph_scales,
        glyph_variants,
        glyph_anchor,
        glyph_gradients,
        glyph_more,
        glyph_preset,
    )
}
