"""The Runs of each study."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from variants import HarderPartners, KParents, MuRamp, ParentsApart, SoftPairs

import proxysynth as ps
from proxysynth.data import open_data
from proxysynth.losses import LOSSES, NormSoftmax, ProxyAnchor, Softmax
from proxysynth.losses.functional import unit
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


def glyph_losses(**_: Any) -> Plan:
    """All eight losses, with and without Proxy Synthesis, ten seeds."""
    for seed in range(10):
        for name in LOSSES:
            for kind, loss in _with_and_without(trained_loss(name)):
                run = replace(GLYPHS, loss=loss, seed=seed)
                yield Planned(run, {"loss": name, "regularizer": kind, "seed": seed})


def glyph_regularizers(**_: Any) -> Plan:
    """The four regularizers on Softmax and Norm-softmax, five seeds."""
    for seed in range(5):
        for name, loss in (("softmax", Softmax()), ("norm_softmax", NormSoftmax())):
            kinds = {
                "none": loss,
                "proxy_synthesis": ProxySynthesis(loss),
                "input_mixup": InputMixup(loss),
                "manifold_mixup": ManifoldMixup(loss),
            }
            if name == "softmax":
                kinds["virtual_softmax"] = VirtualSoftmax(loss)
            for kind, regularized in kinds.items():
                run = replace(GLYPHS, loss=regularized, seed=seed)
                yield Planned(run, {"loss": name, "regularizer": kind, "seed": seed})


def glyph_classes(**_: Any) -> Plan:
    """How the gain changes with the number of seen classes and of pictures per class."""
    for seed in range(3):
        for classes in CLASSES:
            for faces in FACES:
                split = Split(train_classes=classes, test_classes=100, faces_per_class=faces)
                for kind, loss in _with_and_without(NormSoftmax()):
                    run = replace(GLYPHS, loss=loss, seed=seed, split=split)
                    columns = {"classes": classes, "per_class": faces, "regularizer": kind}
                    yield Planned(run, columns | {"seed": seed})


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
        split = replace(GLYPHS.split, fold=seed % 4)
        for changed in variants:
            loss = ProxySynthesis(NormSoftmax(), **changed)
            columns = {"alpha": loss.alpha, "mu": loss.mu, "per_pair": loss.per_pair,
                       "duplicates": loss.duplicates, "seed": seed}  # fmt: skip
            yield Planned(replace(GLYPHS, loss=loss, seed=seed, split=split), columns)
        plain = replace(GLYPHS, loss=NormSoftmax(), seed=seed, split=split)
        yield Planned(plain, {"alpha": "", "mu": 0, "per_pair": "", "duplicates": "", "seed": seed})


def glyph_scales(**_: Any) -> Plan:
    """Norm-softmax at several scales: on a fold of the seen classes, four seeds and folds."""
    for seed in range(4):
        split = replace(GLYPHS.split, fold=seed % 4)
        for scale in (4.0, 6.0, 9.0, 14.0, 23.0, 40.0, 64.0):
            for kind, loss in _with_and_without(NormSoftmax(scale=scale)):
                run = replace(GLYPHS, loss=loss, seed=seed, split=split)
                yield Planned(run, {"scale": scale, "regularizer": kind, "seed": seed})


def glyph_variants(**_: Any) -> Plan:
    """Changes to the method (`variants.py`): on a fold of the seen classes, four seeds."""
    for seed in range(4):
        split = replace(GLYPHS.split, fold=seed % 4)
        for scale in (6.0, 23.0):
            loss = NormSoftmax(scale=scale)
            kinds = {
                **dict(_with_and_without(loss)),
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
            for kind, changed in kinds.items():
                run = replace(GLYPHS, loss=changed, seed=seed, split=split)
                yield Planned(run, {"scale": scale, "regularizer": kind, "seed": seed})


def glyph_anchor(**_: Any) -> Plan:
    """Proxy-anchor whose synthetics repel their parents less: on a fold of the seen classes."""
    for seed in range(4):
        split = replace(GLYPHS.split, fold=seed % 4)
        loss = ProxyAnchor()
        kinds = {
            **dict(_with_and_without(loss)),
            "soft_weight": SoftPairs(loss, how="weight"),
            "soft_margin": SoftPairs(loss, how="margin"),
            "soft_apart": SoftPairs(loss, how="apart"),
        }
        for kind, changed in kinds.items():
            run = replace(GLYPHS, loss=changed, seed=seed, split=split)
            yield Planned(run, {"regularizer": kind, "seed": seed})


def glyph_gradients(**_: Any) -> Plan:
    """Which proxies move a trained network's embeddings: Proxy-anchor and Norm-softmax."""
    for seed in range(3):
        for name in ("proxy_anchor", "norm_softmax"):
            for kind, loss in _with_and_without(trained_loss(name)):
                run = replace(GLYPHS, loss=loss, seed=seed)
                columns = {"loss": name, "regularizer": kind, "seed": seed}
                yield Planned(run, columns, partial(_toward_own_proxy, run))


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
    plain = run.loss if synthesis is None else synthesis.loss
    generator = torch.Generator().manual_seed(0)
    own = others = synthetic = 0.0
    for part in torch.randperm(len(x), generator=generator).repeat(5).split(160):
        x_b, y_b = x[part], labels[part]
        S, y, proxies = plain.similarity(x_b, p), y_b, unit(p)
        if synthesis is not None:
            draw = synthesis.draw(y_b, generator)
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
    for seed in range(4):
        for classes in (40, 200):
            split = Split(train_classes=classes, test_classes=100, faces_per_class=12)
            for mu in (1.0, 3.0):
                loss = ProxySynthesis(NormSoftmax(), mu=mu)
                run = replace(GLYPHS, loss=loss, seed=seed, split=replace(split, fold=seed % 4))
                yield Planned(run, {"classes": classes, "mu": mu, "seed": seed})


def glyph_preset(**_: Any) -> Plan:
    """The best setting of glyph_settings, measured once on unseen classes, ten seeds."""
    for seed in range(10):
        for kind, loss in _without_with_and_preset():
            yield Planned(
                replace(GLYPHS, loss=loss, seed=seed), {"regularizer": kind, "seed": seed}
            )


def cub200_preset(cub: str | None = None, **_: Any) -> Plan:
    """The same on CUB-200-2011, three seeds."""
    for seed in range(3):
        for kind, loss in _without_with_and_preset():
            run = replace(_cub(cub), loss=loss, seed=seed)
            yield Planned(run, {"regularizer": kind, "seed": seed})


def cub200(cub: str | None = None, **_: Any) -> Plan:
    """CUB-200-2011 at 96 pixels, EfficientNet-Lite0 from its ImageNet weights."""
    base = _cub(cub)
    for name in CUB_LOSSES:
        own = ANCHOR if name == "proxy_anchor" else {}
        for seed in range(3):
            for kind, loss in _with_and_without(trained_loss(name)):
                run = replace(base, loss=loss, seed=seed, **own)
                yield Planned(run, {"loss": name, "regularizer": kind, "seed": seed})


def cub200_scale(cub: str | None = None, **_: Any) -> Plan:
    """Norm-softmax on CUB-200-2011 at scale 11, three seeds; at 23 it is in `cub200`."""
    for seed in range(3):
        for kind, loss in _with_and_without(NormSoftmax(scale=11.0)):
            run = replace(_cub(cub), loss=loss, seed=seed)
            yield Planned(run, {"scale": 11.0, "regularizer": kind, "seed": seed})


def cub200_few(cub: str | None = None, **_: Any) -> Plan:
    """10, 25 and 50 seen classes of CUB-200-2011, 30 pictures each; other classes for each seed."""
    images = Path(_needed(cub, "CUB-200-2011", "--cub")).resolve() / "images"
    names = sorted(path.name for path in images.iterdir() if path.is_dir())
    seen, unseen = names[:100], tuple(names[100:])
    for classes in (10, 25, 50):
        for seed in range(4):
            chosen = tuple(sorted(random.Random(seed).sample(seen, classes)))
            split = Split(seen_classes=chosen, unseen_classes=unseen,
                          train_pictures=30 * classes, test_pictures=1500)  # fmt: skip
            base = default_run(
                str(images), image_size=160, epochs=12, evaluate_every=12, interpolate=None
            )
            for kind, loss in _with_and_without(NormSoftmax()):
                run = replace(base, split=split, loss=loss, seed=seed)
                yield Planned(run, {"classes": classes, "regularizer": kind, "seed": seed})


def cub200_interpolate(cub: str | None = None, **_: Any) -> Plan:
    """The fine-tuned backbone interpolated with the pretrained one: 5, 12, 25 and 50 seen classes
    of CUB-200-2011, 30 pictures each, three seeds."""
    images = Path(_needed(cub, "CUB-200-2011", "--cub")).resolve() / "images"
    return _few_to_interpolate(images, 160, (5, 12, 25, 50))


def grocery_interpolate(grocery: str | None = None, **_: Any) -> Plan:
    """The same with 12 and 40 seen products of GroceryStore."""
    photos = Path(_needed(grocery, "GroceryStore", "--grocery")).resolve() / "photos"
    return _few_to_interpolate(photos, 112, (12, 40))


def _few_to_interpolate(folder: Path, image_size: int, class_counts: tuple[int, ...]) -> Plan:
    """Each with all seen classes trained on, and with some of them held out."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    half = len(names) // 2
    for classes, seed in itertools.product(class_counts, range(3)):
        chosen = tuple(sorted(random.Random(seed).sample(names[:half], classes)))
        split = Split(seen_classes=chosen, unseen_classes=tuple(names[half:]),
                      train_pictures=30 * classes, test_pictures=1500)  # fmt: skip
        base = default_run(
            str(folder), image_size=image_size, epochs=12, evaluate_every=12, interpolate=None
        )
        run = replace(base, split=split, loss=ProxySynthesis(NormSoftmax(scale=11.0)), seed=seed)
        # report_epoch="best" holds classes out; of one evaluation, it is the last epoch
        for kind, planned in {"all": run, "held_out": replace(run, report_epoch="best")}.items():
            columns = {"classes": classes, "trained": kind, "seed": seed}
            yield Planned(planned, columns, partial(_interpolated, planned))


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
    for name, (loss, own) in losses.items():
        for seed in range(3):
            for kind, made in _with_and_without(loss):
                run = replace(base, loss=made, seed=seed, **own)
                columns = {"loss": name, "regularizer": kind, "seed": seed}
                yield Planned(run, columns, partial(_against_catalogue, root, run))


def _against_catalogue(root: Path, run: Run, model: Any) -> dict[str, float]:
    """Metrics with photographs of unseen products as queries and catalog images as the gallery."""
    unseen = open_data(run.data, **run.split.options()).query.classes
    query, gallery = (
        [(path, label) for label in unseen for path in sorted((root / part / label).iterdir())]
        for part in ("photos", "catalogue")
    )
    x, g = (model.embed([path for path, _ in part]) for part in (query, gallery))
    y, gy = ([unseen.index(label) for _, label in part] for part in (query, gallery))
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


def _without_with_and_preset() -> list[tuple[str, Any]]:
    preset = ProxySynthesis(NormSoftmax(), mu=3.0)
    return [*_with_and_without(NormSoftmax()), ("mu_3", preset)]


def _with_and_without(loss: Any) -> list[tuple[str, Any]]:
    return [("none", loss), ("proxy_synthesis", ProxySynthesis(loss))]


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
