"""Figures 3, B, C and D: t-SNE of the embedding space of PS + Norm-softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.data import Listing
from proxysynth.data.listing import shuffled_names
from proxysynth.losses.functional import unit
from proxysynth.paper.artifact import Artifact, PaperFigure, Table
from proxysynth.paper.figures.style import (
    BLUE,
    DARK_BLUE,
    DARK_GOLD,
    GOLD,
    GREY,
    PAGE,
    figure_table,
    legend_below,
    lettered,
    not_run,
    panels,
    styled,
    without_ticks,
)
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.stand_ins import NAMES
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import measured, scale_notes, seeded, stands_for
from proxysynth.protocols.conventional import Conventional
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.training.inference import Trained
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run
from proxysynth.values import encode

KINDS = ("train", "proxy", "test", "synthetic", "synthetic proxy")


@dataclass(frozen=True)
class Selection:
    """Which classes and images are shown.

    Args:
        classes: number of seen classes, and of unseen classes.
        pictures: at most so many images per class.
        above: only classes with more images than this, if there are any.
        mu: synthetics per embedding shown.
        lam: of all synthetics. Training draws it for each batch, mostly near 0 or 1, where a
            synthetic would be indistinguishable from its nearer parent.
        seed: of the classes and of the synthetics.
    """

    classes: int = 10
    pictures: int = 16
    above: int = 0
    mu: float = 2.0
    lam: float = 0.6
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Points:
    """Unit vectors of several kinds.

    x: (n, d).  kind: (n,), one of `KINDS`.  label: (n,), the class among those shown, or -1 for
    synthetics.  proxies: (c, d), of all seen classes, shown or not.  note: what could not be shown
    as requested, "" if nothing.
    """

    x: Tensor
    kind: NDArray[np.str_]
    label: NDArray[np.int64]
    proxies: Tensor
    note: str = ""

    def of(self, *kinds: str) -> Tensor:
        """The vectors of these kinds, in their order in `x`."""
        return self.x[torch.from_numpy(np.isin(self.kind, kinds))]


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
    place = np.zeros(len(listing), np.int64)  # index of an image within its class
    for number in range(len(listing.classes)):
        of_class = np.flatnonzero(listing.labels == number)
        place[of_class] = np.arange(len(of_class))
    return listing.take(np.flatnonzero(place < selection.pictures)), note


def points_of(model: Trained, selection: Selection) -> Points:
    """Embeddings of seen and unseen classes, the proxies of the seen ones, and synthetics.

    Synthetics are made from the shown images as one batch, by the Run's own Proxy Synthesis with
    the selection's mu and lam.
    """
    splits = open_splits(model.run)
    train, missing_train = select(splits.train, selection)
    test, missing_test = select(splits.query, selection)
    x, unseen = (unit(Conventional()(model, part).query) for part in (train, test))
    rows = [model.classes.index(name) for name in train.classes]
    every = unit(model.proxies.detach().float().cpu())
    p = every[rows]
    made_x, made_p = _synthetics(model, x, torch.from_numpy(train.labels.copy()), p, selection)
    none = np.full(len(made_x), -1)
    parts = (x, p, unseen, made_x, made_p)
    labels = (train.labels, np.arange(len(p)), test.labels, none, np.full(len(made_p), -1))
    notes = [
        f"Among the {which} classes, {text}."
        for which, text in (("seen", missing_train), ("unseen", missing_test))
        if text
    ]
    return Points(
        torch.cat(parts),
        np.repeat(np.array(KINDS), [len(part) for part in parts]),
        np.concatenate(labels),
        every,
        " ".join(notes),
    )


def _synthetics(
    model: Trained, x: Tensor, y: Tensor, p: Tensor, selection: Selection
) -> tuple[Tensor, Tensor]:
    """Synthetic embeddings (m, d) and distinct synthetic proxies (u, d)."""
    loss = model.run.loss
    if not isinstance(loss, ProxySynthesis):
        raise ValueError(f"synthetics need a Run with Proxy Synthesis, got the loss {loss!r}")
    shown = replace(loss, mu=selection.mu, lam=selection.lam)
    made = shown.synthesize(x, y, p, torch.Generator().manual_seed(selection.seed))
    return made.x, torch.unique(made.p, dim=0)


# t-SNE and drawing

LABELS = {
    "train": "seen embedding",
    "proxy": "proxy",
    "test": "unseen embedding",
    "synthetic": "synthetic embedding",
    "synthetic proxy": "synthetic proxy",
}
MARKS: dict[str, dict[str, Any]] = {
    "train": {"s": 9, "marker": "o", "color": BLUE, "edgecolor": "white", "linewidth": 0.25},
    "test": {"s": 9, "marker": "s", "color": GREY, "edgecolor": "white", "linewidth": 0.25},
    "synthetic": {"s": 9, "marker": "o", "color": GOLD, "edgecolor": "white", "linewidth": 0.25},
    "proxy": {"s": 46, "marker": "D", "color": DARK_BLUE, "edgecolor": "white", "linewidth": 0.7},
    "synthetic proxy": {
        "s": 34,
        "marker": "*",
        "color": GOLD,
        "edgecolor": DARK_GOLD,
        "linewidth": 0.5,
    },
}
"""How each kind is drawn, in drawing order."""
PANELS = {
    "seen and unseen": ("train", "proxy", "test"),
    "seen and synthetic": ("train", "proxy", "synthetic", "synthetic proxy"),
}
PARTS = {"seen": "train", "unseen": "test", "synthetic": "synthetic"}
Cloud = list[dict[str, Any]]
"""A row for each point: {"kind", "label", "x", "y"}."""


def project(points: Points, seed: int = 0) -> Cloud:
    """One t-SNE of all points together, so that the seen classes lie in the same places in both
    panels."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise RuntimeError(
            "t-SNE needs scikit-learn, which is not installed: pip install 'proxysynth[paper]'"
        ) from error
    x = points.x.numpy()
    at = TSNE(
        perplexity=float(min(30, max(2, (len(x) - 1) // 4))), random_state=seed, n_jobs=1
    ).fit_transform(x)
    middle = (at.max(axis=0) + at.min(axis=0)) / 2
    at = (at - middle) / np.abs(at - middle).max(axis=0)  # t-SNE has no unit
    return [
        {"kind": str(kind), "label": int(label), "x": round(float(u), 4), "y": round(float(v), 4)}
        for kind, label, (u, v) in zip(points.kind, points.label, at, strict=True)
    ]


def nearness(points: Points) -> dict[str, float]:
    """Where embeddings lie among the clusters of the seen classes, before t-SNE.

    "seen nearest", "seen second" and so on: the mean cosine to the nearest and to the second
    nearest proxy of all seen classes. Within a cluster they are far apart, halfway between two
    clusters they are equal. "unseen at synthetic": the share of unseen embeddings that are nearer
    to a synthetic one than to any seen one.
    """
    found: dict[str, float] = {}
    p = points.proxies
    for name, kind in PARTS.items():
        top = (points.of(kind) @ p.T).topk(2, dim=1).values.mean(dim=0)
        found |= {f"{name} nearest": float(top[0]), f"{name} second": float(top[1])}
    seen, made = ((points.of("test") @ points.of(k).T).amax(1) for k in ("train", "synthetic"))
    return {**found, "unseen at synthetic": float((made > seen).double().mean())}


@styled
def draw_clouds(clouds: Sequence[Cloud], names: Sequence[str] = ("",)) -> Figure:
    """A row per cloud: seen and unseen on the left, seen and synthetic on the right."""
    rows = len(clouds)
    high = 3.1 if rows == 1 else 2.3  # four rows fit on a page
    figure, axes = panels(rows, 2, width=PAGE, height=0.4 + rows * high)
    letters = iter("abcdefgh")
    for row, (cloud, name) in enumerate(zip(clouds, names, strict=True)):
        after = f", {name}" if name else ""
        for one, (panel, kinds) in zip(axes[2 * row :], PANELS.items(), strict=False):
            _panel(one, [point for point in cloud if point["kind"] in kinds])
            lettered(one, next(letters), panel + after)
    legend_below(figure, _legend(any(map(_crowded, clouds))))
    return figure


def _crowded(cloud: Cloud) -> bool:
    """Whether a panel has so many classes that large marks would hide small ones."""
    return sum(point["kind"] == "proxy" for point in cloud) > 40


def _panel(axes: Axes, cloud: Cloud) -> None:
    without_ticks(axes)
    axes.set_xlim(-1.08, 1.08)
    axes.set_ylim(-1.08, 1.08)
    crowded = _crowded(cloud)
    for kind, mark in MARKS.items():
        at = np.array([(row["x"], row["y"]) for row in cloud if row["kind"] == kind])
        if len(at):
            axes.scatter(at[:, 0], at[:, 1], **(_small(mark) if crowded else mark))


def _small(mark: dict[str, Any]) -> dict[str, Any]:
    """A mark for a panel with many classes, where large marks would hide small ones."""
    small = {**mark, "s": 0.3 * mark["s"] + 2, "linewidth": 0.6 * mark["linewidth"]}
    if mark["marker"] == "D":  # a proxy becomes an outline around its embeddings
        small |= {"color": "none", "edgecolor": mark["color"], "linewidth": 0.8, "s": 28}
    return small


def _legend(crowded: bool) -> list[Line2D]:
    """The marks as they are drawn."""
    handles = []
    for kind, label in LABELS.items():
        mark = _small(MARKS[kind]) if crowded else MARKS[kind]
        handles.append(
            Line2D(
                [], [], linestyle="none", marker=mark["marker"], markerfacecolor=mark["color"],
                markeredgecolor=mark["edgecolor"], markeredgewidth=mark["linewidth"],
                markersize=max(4.0, mark["s"] ** 0.5), label=label,
            )
        )  # fmt: skip
    return handles


# Figures

FEW = Selection()
MANY = Selection(classes=100, pictures=12, above=10, mu=1.0)
SMOKE = Selection(classes=4, pictures=6)
EPOCHS = (2, 30, 60, 150)
"""Of Figure D, in a training of 150."""
MIXED_WITH = "PS + Norm-softmax"


def runs_of(scale: Scale, benchmark: str) -> tuple[Run, ...]:
    """PS + Norm-softmax with the paper's alpha and mu, one per seed; the first is drawn."""
    return seeded(scale, benchmark, ProxySynthesis(trained_loss("norm_softmax")))


def runs_over_time(scale: Scale) -> dict[str, tuple[Run, ...]]:
    """The training of Figure D as it was after each of four periods, by their names; a Run for each
    seed, of which the first is drawn.

    A Run keeps only its last weights. But training up to an epoch does not depend on how many
    follow, unless the learning rates do: Runs of fewer epochs with the same seed are the same
    training, stopped earlier. So a schedule that depends on the end is replaced by a constant one.
    A short training has clusters after its first epoch, so it starts with a Run of a few steps.
    """
    runs = runs_of(scale, "cars196")
    if not runs:
        return {}
    last = runs[0]
    if last.schedule in ("cosine", "one_cycle"):
        last = replace(last, schedule="constant")
    made, epochs = {}, list(EPOCHS)
    if scale.name != "paper":
        images = 4 * (last.split.train_classes or 100)
        few = replace(last, epochs=1, split=replace(last.split, train_pictures=images))
        made[f"step {math.ceil(images / last.batch_size)}"] = replace(few, evaluate_every=1)
        epochs = [0]
        for epoch in EPOCHS[1:]:  # three different ones, even of a very short training
            epochs.append(max(epochs[-1] + 1, round(last.epochs * epoch / EPOCHS[-1])))
        del epochs[0]
    for epoch in epochs:
        made[f"epoch {epoch}"] = replace(last, epochs=epoch, evaluate_every=epoch)
    return {
        name: tuple(replace(run, seed=seed) for seed in scale.seeds) for name, run in made.items()
    }


def shown_of(store: Store, run: Run, selection: Selection) -> dict[str, Any] | None:
    """The positions of all points, and what could not be shown; None if the Run is missing."""

    def measure(points: Points) -> dict[str, Any]:
        return {"cloud": project(points), "note": points.note}

    return _measured(store, run, selection, "t-sne_together", measure)


def nearness_of(store: Store, runs: Sequence[Run], selection: Selection) -> list[dict[str, float]]:
    """`nearness` of each Run; empty unless every Run is finished."""
    found = [_measured(store, run, selection, "nearness_to_all", nearness) for run in runs]
    return [one for one in found if one] if all(found) else []


def _measured(
    store: Store, run: Run, selection: Selection, name: str, measure: Callable[[Points], Any]
) -> Any:
    if store.result(run) is None:
        return None

    def compute() -> Any:
        model = store.model(run)
        assert model is not None
        return measure(points_of(model, selection))

    return store.cached(name, [run, encode(selection)], compute)


def selection_for(scale: Scale, selection: Selection) -> Selection:
    """What is shown at a scale: less at `smoke`."""
    return selection if scale.name != "smoke" else replace(SMOKE, above=selection.above)


def _figure(
    title: str,
    caption: str,
    shown: dict[str, Any],
    near: Sequence[str],
    notes: Sequence[str],
    numbers: Table,
) -> PaperFigure:
    """The drawing, a row for each named cloud, or a dash if a Run is missing."""
    if not shown or not all(shown.values()):
        return PaperFigure(title, caption, not_run(f"{MIXED_WITH} was not run"), notes=tuple(notes))
    return PaperFigure(
        title,
        caption,
        draw_clouds([one["cloud"] for one in shown.values()], list(shown)),
        [
            {"epoch": name, **row} if name else row
            for name, one in shown.items()
            for row in one["cloud"]
        ],
        (*notes, *near, *dict.fromkeys(one["note"] for one in shown.values() if one["note"])),
        numbers,
    )


def _near(found: Sequence[dict[str, float]]) -> str:
    """ "seen 0.83 and 0.20, unseen 0.35 and 0.30, ..." """
    mean = {name: fmean(one[name] for one in found) for name in found[0]}
    return ", ".join(f"{p} {mean[f'{p} nearest']:.2f} and {mean[f'{p} second']:.2f}" for p in PARTS)


def _notes(scale: Scale, benchmark: str, selection: Selection) -> list[str]:
    notes = [
        *stands_for(scale, benchmark),
        f"{selection.classes} seen and {selection.classes} unseen classes drawn with a fixed seed, "
        f"up to {selection.pictures} images of each; {selection.mu:g} "
        f"synthetic{'s' * (selection.mu != 1)} per seen image with lam {selection.lam:g}, where "
        "training draws it. One t-SNE of everything, shown in two panels.",
    ]
    return [*notes, *scale_notes(scale)]


def _final(title: str, benchmark: str, selection: Selection) -> Artifact:
    """Figure 3, B or C: two panels of a finished training."""

    def make(scale: Scale, store: Store) -> PaperFigure:
        chosen, runs = selection_for(scale, selection), runs_of(scale, benchmark)
        found = nearness_of(store, runs, chosen)
        near = []
        if found:
            share = fmean(one["unseen at synthetic"] for one in found)
            near = [
                "Mean cosine to the nearest and to the second nearest proxy of all seen classes, "
                f"over {len(found)} seed{'s' * (len(found) > 1)}, before t-SNE: "
                f"{_near(found)}. {100 * share:.0f} % of the unseen embeddings are nearer to a "
                "synthetic embedding than to any seen one."
            ]
        return _figure(
            title,
            f"t-SNE of a network trained with PS + Norm-softmax on "
            f"{scale.heading(benchmark) or NAMES[benchmark]}. (a) Seen classes with their proxies, "
            "and unseen classes. (b) The same seen classes with synthetic embeddings and proxies.",
            {"": shown_of(store, runs[0], chosen)} if runs else {},
            near,
            _notes(scale, benchmark, chosen),
            numbers(scale, store),
        )

    def numbers(scale: Scale, store: Store) -> Table:
        """How far embeddings lie between clusters; how many classes and images are shown."""
        chosen, runs = selection_for(scale, selection), runs_of(scale, benchmark)
        found = nearness_of(store, runs, chosen)
        shown = shown_of(store, runs[0], chosen) if runs else None
        columns = ("between", "classes", "least", "most")
        rows = {}
        for part, kind in PARTS.items():
            labels = (
                [row["label"] for row in shown["cloud"] if row["kind"] == kind] if shown else []
            )
            sizes = [labels.count(label) for label in set(labels)]
            between = tuple(one[f"{part} second"] / one[f"{part} nearest"] for one in found)
            counts = (len(sizes), min(sizes), max(sizes)) if sizes else ()
            rows[part] = {"between": between}
            rows[part] |= {name: (float(n),) for name, n in zip(columns[1:], counts, strict=False)}
        return figure_table(title, "classes", dict.fromkeys(columns, ""), rows)

    return Artifact(make, lambda scale, pick: runs_of(scale, benchmark), numbers)


def epoch_table(scale: Scale, store: Store) -> Table:
    """MAP@R on unseen classes after each of the four periods of Figure D."""
    rows = {
        name: {"map@r": measured(store, runs, "map@r")}
        for name, runs in runs_over_time(scale).items()
    }
    return figure_table("Figure D", "epoch", {"map@r": "MAP@R"}, rows)


def _over_time(scale: Scale, store: Store) -> PaperFigure:
    runs, selection = runs_over_time(scale), selection_for(scale, FEW)
    near = [
        f"{name}: {_near(found)}"
        for name, (run, *_) in runs.items()
        if (found := nearness_of(store, [run], selection))
    ]
    return _figure(
        "Figure D",
        "t-SNE of PS + Norm-softmax on "
        f"{scale.heading('cars196') or NAMES['cars196']} as training proceeds. Left: seen and "
        "unseen classes. Right: seen classes and synthetics.",
        {name: shown_of(store, run, selection) for name, (run, *_) in runs.items()},
        [f"Mean cosine to the nearest and the second nearest proxy: {'; '.join(near)}."],
        [
            *_notes(scale, "cars196", selection),
            "Each epoch is a Run of its own with the same seed and rates that do not depend on the "
            "end, which is the same training stopped there. The paper shows epochs 2, 30, 60 and "
            "150; a shorter training starts with a few steps, on four images of each class.",
        ],
        epoch_table(scale, store),
    )


ARTIFACTS = {
    "figure3": _final("Figure 3", "cars196", FEW),
    "figureB": _final("Figure B", "cub200", FEW),
    "figureC": _final("Figure C", "sop", MANY),
    "figureD": Artifact(
        _over_time,
        lambda scale, pick: (run for runs in runs_over_time(scale).values() for run in runs),
        epoch_table,
    ),
}
