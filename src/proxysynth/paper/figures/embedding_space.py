"""Figures 3, B, C and D: t-SNE of the embedding space of PS + Norm-softmax."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.data import Listing
from proxysynth.data.listing import shuffled_names
from proxysynth.errors import import_optional
from proxysynth.formatting import count
from proxysynth.losses.functional import unit
from proxysynth.paper.artifact import PaperFigure, Table
from proxysynth.paper.figures import style
from proxysynth.paper.figures.style import BLUE, DARK_BLUE, DARK_GOLD, GOLD, GRAY
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import measured, ran_as, scale_notes, seeded, stands_for
from proxysynth.protocols.conventional import embeddings_of
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.training.inference import Trained
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run

LABELS = {
    "train": "seen embedding",
    "proxy": "proxy",
    "test": "unseen embedding",
    "synthetic": "synthetic embedding",
    "synthetic proxy": "synthetic proxy",
}
"""The kinds of points, and what the legend calls them."""


@dataclass(frozen=True)
class Selection:
    """Which classes and images are shown.

    Training draws lam for each batch, mostly near 0 or 1, where a synthetic would be
    indistinguishable from its nearer parent; here it is fixed.
    """

    classes: int = 10  # seen ones, and as many unseen
    pictures: int = 16  # images per class, at most
    above: int = 0  # only classes with more images than this, if there are any
    mu: float = 2.0
    lam: float = 0.6
    seed: int = 0  # of the classes and of the synthetics


@dataclass(frozen=True, eq=False)
class Points:
    """Unit vectors by kind, of `LABELS`."""

    x: dict[str, Tensor]  # (n, d) for each kind
    label: dict[str, NDArray[np.int64]]  # (n,), the class among those shown; synthetics have none
    proxies: Tensor  # (c, d), of all seen classes, shown or not
    note: str = ""  # what could not be shown as requested


def select(listing: Listing, selection: Selection) -> tuple[Listing, str]:
    """The images to show, and a note if there are too few large classes."""
    size = dict(zip(listing.classes, listing.counts().tolist(), strict=True))
    names = [name for name in shuffled_names(listing.classes, selection.seed) if size[name] >= 2]
    large = [name for name in names if size[name] > selection.above]
    note = ""
    if selection.above and len(large) < selection.classes:
        note = f"{len(large)} of {len(names)} classes have more than {selection.above} images"
        if not large:  # take the largest there are
            large = sorted(names, key=lambda name: -size[name])[: selection.classes]
            most = max(size[name] for name in large)
            note += f", so {len(large)} with up to {most} are shown"
    listing = listing.of_classes(large[: selection.classes])
    classes = [np.flatnonzero(listing.labels == n) for n in range(len(listing.classes))]
    return listing.take(np.sort(np.concatenate([c[: selection.pictures] for c in classes]))), note


def points_of(model: Trained, selection: Selection) -> Points:
    """Embeddings of seen and unseen classes, the proxies of the seen ones, and synthetics of the
    shown images as one batch, by the Run's own Proxy Synthesis with the selection's mu and lam."""
    splits = open_splits(model.run)
    train, few_seen = select(splits.train, selection)
    test, few_unseen = select(splits.query, selection)
    x, unseen = (unit(embeddings_of(model, part)) for part in (train, test))
    every = unit(model.proxies.detach().float().cpu())
    p = every[[model.classes.index(name) for name in train.classes]]
    loss = model.run.loss
    assert isinstance(loss, ProxySynthesis)
    shown = replace(loss, mu=selection.mu, lam=selection.lam)
    draws = torch.Generator().manual_seed(selection.seed)
    made = shown.synthesize(x, torch.from_numpy(train.labels.copy()), p, draws)
    parts = (x, p, unseen, made.x, torch.unique(made.p, dim=0))
    labels = {"train": train.labels, "proxy": np.arange(len(p)), "test": test.labels}
    notes = (("seen", few_seen), ("unseen", few_unseen))
    note = " ".join(f"Among the {which} classes, {text}." for which, text in notes if text)
    return Points(dict(zip(LABELS, parts, strict=True)), labels, every, note)


# t-SNE and drawing

SMALL_MARK = {"s": 9, "edgecolor": "white", "linewidth": 0.25}
MARKS: dict[str, dict[str, Any]] = {
    "train": {**SMALL_MARK, "marker": "o", "color": BLUE},
    "test": {**SMALL_MARK, "marker": "s", "color": GRAY},
    "synthetic": {**SMALL_MARK, "marker": "o", "color": GOLD},
    "proxy": {"s": 46, "marker": "D", "color": DARK_BLUE, "edgecolor": "white", "linewidth": 0.7},
    "synthetic proxy": {
        "s": 34, "marker": "*", "color": GOLD, "edgecolor": DARK_GOLD, "linewidth": 0.5,
    },
}  # fmt: skip
"""How each kind is drawn, in drawing order."""
PANELS = {
    "seen and unseen": ("train", "proxy", "test"),
    "seen and synthetic": ("train", "proxy", "synthetic", "synthetic proxy"),
}
PARTS = {"seen": "train", "unseen": "test", "synthetic": "synthetic"}
Cloud = list[dict[str, Any]]
"""A row for each point: {"kind", "label", "x", "y"}; the label is -1 for synthetics."""


def project(points: Points) -> Cloud:
    """One t-SNE of all points, so that the seen classes are in the same places in both panels."""
    manifold = import_optional("sklearn.manifold", "paper", "t-SNE")
    x = torch.cat([*points.x.values()]).numpy()
    perplexity = float(min(30, max(2, (len(x) - 1) // 4)))
    at = manifold.TSNE(perplexity=perplexity, random_state=0, n_jobs=1).fit_transform(x)
    middle = (at.max(axis=0) + at.min(axis=0)) / 2
    at = (at - middle) / np.abs(at - middle).max(axis=0)  # t-SNE has no unit
    rows = [
        {"kind": kind, "label": int(label)}
        for kind, part in points.x.items()
        for label in points.label.get(kind, np.full(len(part), -1))
    ]
    placed = zip(rows, at.tolist(), strict=True)
    return [{**row, "x": round(u, 4), "y": round(v, 4)} for row, (u, v) in placed]


def nearness(points: Points) -> dict[str, float]:
    """Where embeddings lie among the clusters of the seen classes, before t-SNE.

    "seen nearest", "seen second" and so on: the mean cosine to the nearest and to the second
    nearest proxy of all seen classes. Within a cluster they are far apart, halfway between two
    clusters they are equal. "unseen at synthetic": the share of unseen embeddings that are nearer
    to a synthetic one than to any seen one.
    """
    seen, made = ((points.x["test"] @ points.x[k].T).amax(1) for k in ("train", "synthetic"))
    found = {"unseen at synthetic": float((made > seen).double().mean())}
    for name, kind in PARTS.items():
        top = (points.x[kind] @ points.proxies.T).topk(2, dim=1).values.mean(dim=0)
        found |= {f"{name} nearest": float(top[0]), f"{name} second": float(top[1])}
    return found


@style.styled
def draw_clouds(clouds: dict[str, Cloud]) -> Figure:
    """A row per cloud: seen and unseen on the left, seen and synthetic on the right."""
    high = 3.1 if len(clouds) == 1 else 2.3  # four rows fit on a page
    titles = [f"{panel}, {name}" if name else panel for name, panel in product(clouds, PANELS)]
    figure, axes = style.panels(titles, 2, height=0.4 + len(clouds) * high)
    marks = MARKS
    if max(sum(point["kind"] == "proxy" for point in cloud) for cloud in clouds.values()) > 40:
        # Large marks would hide small ones, so a proxy becomes an outline around its embeddings.
        marks = {
            kind: {**mark, "s": 0.3 * mark["s"] + 2, "linewidth": 0.6 * mark["linewidth"]}
            for kind, mark in MARKS.items()
        }
        marks["proxy"] |= {"color": "none", "edgecolor": DARK_BLUE, "linewidth": 0.8, "s": 28}
    for ax, (cloud, kinds) in zip(axes, product(clouds.values(), PANELS.values()), strict=True):
        style.without_ticks(ax)
        ax.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08))
        for kind, mark in marks.items():
            at = [(row["x"], row["y"]) for row in cloud if row["kind"] == kind]
            if at and kind in kinds:
                ax.scatter(*zip(*at, strict=True), **mark)
    legend = []
    for kind, label in LABELS.items():
        m, size = marks[kind], max(4.0, marks[kind]["s"] ** 0.5)
        edge = {"edge": m["edgecolor"], "markeredgewidth": m["linewidth"]}
        legend.append(style.mark(m["marker"], m["color"], label, size, **edge))
    style.legend_below(figure, legend)
    return figure


# Figures

FEW = Selection()
MANY = Selection(classes=100, pictures=12, above=10, mu=1.0)
SMOKE = Selection(classes=4, pictures=6)
EPOCHS = (2, 30, 60, 150)
"""Of Figure D, in a training of 150."""


def runs_of(scale: Scale, benchmark: str) -> tuple[Run, ...]:
    """PS + Norm-softmax, a Run per seed; the first is drawn."""
    return seeded(scale, benchmark, trained_loss("norm_softmax", "proxy_synthesis"))


def runs_over_time(scale: Scale) -> dict[str, tuple[Run, ...]]:
    """The training of Figure D after each of four periods, by their names; a Run per seed.

    A Run keeps only its last weights. But training up to an epoch does not depend on how many
    follow, unless the learning rates do: Runs of fewer epochs with the same seed are the same
    training, stopped earlier. So a schedule that depends on the end is replaced by a constant one.
    A short training has clusters after its first epoch, so it starts with a Run of a few steps.
    """
    if not (runs := runs_of(scale, "cars196")):
        return {}
    last = runs[0]
    if last.schedule in ("cosine", "one_cycle"):
        last = replace(last, schedule="constant")
    made, epochs = {}, list(EPOCHS)
    if scale.name != "paper":
        images = 4 * (last.split.train_classes or 100)
        few = replace(last.split, train_pictures=images)
        steps = math.ceil(images / last.batch_size)
        made[f"step {steps}"] = replace(last, epochs=1, evaluate_every=1, split=few)
        epochs = []
        for epoch in EPOCHS[1:]:  # three different ones, even of a very short training
            after = max(epochs, default=0) + 1
            epochs.append(max(after, round(last.epochs * epoch / EPOCHS[-1])))
    for epoch in epochs:
        made[f"epoch {epoch}"] = replace(last, epochs=epoch, evaluate_every=epoch)
    return {
        name: tuple(replace(run, seed=seed) for seed in scale.seeds) for name, run in made.items()
    }


def shown_of(store: Store, runs: Sequence[Run], selection: Selection) -> dict[str, Any]:
    """The "cloud" of the first Run, and a "note" on what could not be shown; empty if the Run is
    missing."""

    def measure(model: Trained) -> dict[str, Any]:
        points = points_of(model, selection)
        return {"cloud": project(points), "note": points.note}

    found = store.on_models("t-sne_together", runs[:1], selection, measure)
    return found[0] if found else {}


def nearness_of(store: Store, runs: Sequence[Run], selection: Selection) -> list[dict[str, float]]:
    """`nearness` of each Run; empty unless every Run is finished."""
    return store.on_models(
        "nearness_to_all", runs, selection, lambda model: nearness(points_of(model, selection))
    )


def selection_for(scale: Scale, selection: Selection) -> Selection:
    """What is shown at a scale: less at `smoke`."""
    return selection if scale.name != "smoke" else replace(SMOKE, above=selection.above)


def _figure(
    caption: str, shown: dict[str, dict[str, Any]], notes: Sequence[str], numbers: Table
) -> PaperFigure:
    """A row of panels for each named cloud, or a dash if a Run is missing."""
    if not shown or not all(shown.values()):
        draw, rows = partial(style.not_run, "PS + Norm-softmax was not run"), []
    else:
        clouds = {name: one["cloud"] for name, one in shown.items()}
        draw = partial(draw_clouds, clouds)
        rows = [{"epoch": name, **row} if name else row for name in clouds for row in clouds[name]]
        notes = (*notes, *dict.fromkeys(one["note"] for one in shown.values() if one["note"]))
    return PaperFigure(numbers.title, caption, draw, rows, tuple(notes), numbers)


def _near(found: Sequence[dict[str, float]]) -> str:
    """ "seen 0.83 and 0.20, unseen 0.35 and 0.30, ..." """
    mean = {name: fmean(one[name] for one in found) for name in found[0]}
    return ", ".join(f"{p} {mean[f'{p} nearest']:.2f} and {mean[f'{p} second']:.2f}" for p in PARTS)


def _notes(scale: Scale, benchmark: str, selection: Selection) -> list[str]:
    synthetics = "synthetic" if selection.mu == 1 else "synthetics"
    return [
        *stands_for(scale, benchmark),
        f"{selection.classes} seen and {selection.classes} unseen classes drawn with a fixed seed, "
        f"up to {selection.pictures} images of each; {selection.mu:g} {synthetics} per seen image "
        f"with lam {selection.lam:g}, where training draws it. One t-SNE of everything, shown in "
        "two panels.",
        *scale_notes(scale),
    ]


def _final(
    title: str, benchmark: str, selection: Selection, scale: Scale, store: Store
) -> PaperFigure:
    """Figure 3, B or C: two panels of a finished training. The numbers: how far embeddings lie
    between clusters; how many classes and images are shown."""
    chosen, runs = selection_for(scale, selection), runs_of(scale, benchmark)
    found, shown = nearness_of(store, runs, chosen), shown_of(store, runs, chosen)
    rows: style.Numbers = {}
    for part, kind in PARTS.items():
        between = tuple(one[f"{part} second"] / one[f"{part} nearest"] for one in found)
        labels = (row["label"] for row in shown.get("cloud", ()) if row["kind"] == kind)
        sizes = Counter(labels).values()
        sized = {"classes": len(sizes), "least": min(sizes), "most": max(sizes)} if sizes else {}
        rows[part] = {"between": between} | {name: (float(n),) for name, n in sized.items()}
    columns = dict.fromkeys(("between", "classes", "least", "most"), "")
    notes = _notes(scale, benchmark, chosen)
    if found:
        share = fmean(one["unseen at synthetic"] for one in found)
        notes.append(
            "Mean cosine to the nearest and to the second nearest proxy of all seen classes, "
            f"over {count(len(found), 'seed')}, before t-SNE: {_near(found)}. "
            f"{100 * share:.0f} % of the unseen embeddings are nearer to a synthetic embedding "
            "than to any seen one."
        )
    caption = (
        f"t-SNE of a network trained with PS + Norm-softmax on {ran_as(scale, benchmark)}. (a) "
        "Seen classes with their proxies, and unseen classes. (b) The same seen classes with "
        "synthetic embeddings and proxies."
    )
    numbers = style.figure_table(title, "classes", columns, rows)
    return _figure(caption, {"": shown}, notes, numbers)


def _over_time(scale: Scale, store: Store) -> PaperFigure:
    """Figure D. The numbers: MAP@R on unseen classes after each of the four periods."""
    every, selection = runs_over_time(scale), selection_for(scale, FEW)
    rows = {name: {"map@r": measured(store, runs, "map@r")} for name, runs in every.items()}
    found = {name: nearness_of(store, runs[:1], selection) for name, runs in every.items()}
    notes = [
        *_notes(scale, "cars196", selection),
        "Each epoch is a Run of its own with the same seed and rates that do not depend on the "
        "end, which is the same training stopped there. The paper shows epochs 2, 30, 60 and "
        "150; a shorter training starts with a few steps, on four images of each class.",
    ]
    if near := "; ".join(f"{name}: {_near(one)}" for name, one in found.items() if one):
        notes.append(f"Mean cosine to the nearest and the second nearest proxy: {near}.")
    return _figure(
        f"t-SNE of PS + Norm-softmax on {ran_as(scale, 'cars196')} as training proceeds. Left: "
        "seen and unseen classes. Right: seen classes and synthetics.",
        {name: shown_of(store, runs, selection) for name, runs in every.items()},
        notes,
        style.figure_table("Figure D", "epoch", {"map@r": "MAP@R"}, rows),
    )


ARTIFACTS = {
    "figure3": partial(_final, "Figure 3", "cars196", FEW),
    "figureB": partial(_final, "Figure B", "cub200", FEW),
    "figureC": partial(_final, "Figure C", "sop", MANY),
    "figureD": _over_time,
}
