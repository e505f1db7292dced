"""Figures 3, B, C and D: t-SNE of the embedding space of PS + Norm-softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from proxysynth.paper.tables.cells import measured, scale_notes, stands_for
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
    synthetics.  note: what could not be shown as requested, "" if nothing.
    """

    x: Tensor
    kind: NDArray[np.str_]
    label: NDArray[np.int64]
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
    p = unit(model.proxies.detach().float().cpu())[rows]
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
Cloud = list[dict[str, Any]]
"""A row for each point of each panel: {"panel", "kind", "label", "x", "y"}."""
Positions = NDArray[np.float32]


def project(points: Points, seed: int = 0) -> Cloud:
    """Both panels, a t-SNE each. The second starts from the positions of the first, a synthetic at
    its nearest seen embedding or proxy, so that the seen classes lie alike in both."""
    cloud: Cloud = []
    before: Positions | None = None
    for panel, kinds in PANELS.items():
        x = points.of(*kinds).numpy()
        chosen = np.isin(points.kind, kinds)
        seen = np.isin(points.kind[chosen], ("train", "proxy"))
        start = None if before is None else _start(x, seen, before, seed)
        at = _tsne(x, seed, start)
        before = at[seen]
        middle = (at.max(axis=0) + at.min(axis=0)) / 2
        at = (at - middle) / np.abs(at - middle).max()  # t-SNE has no unit
        cloud += [
            {"panel": panel, "kind": str(kind), "label": int(label), "x": float(u), "y": float(v)}
            for kind, label, (u, v) in zip(
                points.kind[chosen], points.label[chosen], at, strict=True
            )
        ]
    return cloud


def _tsne(x: Positions, seed: int, start: Positions | None) -> Positions:
    """Positions in the plane, (n, 2)."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise RuntimeError(
            "t-SNE needs scikit-learn, which is not installed: pip install 'proxysynth[paper]'"
        ) from error
    made: Positions = TSNE(
        perplexity=float(min(30, max(2, (len(x) - 1) // 4))),
        init="pca" if start is None else start,
        random_state=seed,
        n_jobs=1,
    ).fit_transform(x)
    return made


def _start(x: Positions, seen: NDArray[np.bool_], before: Positions, seed: int) -> Positions:
    """Initial positions, close together as t-SNE expects; `before` holds those of the seen."""
    nearest = (x @ x[seen].T).argmax(axis=1)
    nearest[seen] = np.arange(len(before))
    noise = np.random.default_rng(seed).normal(size=(len(x), 2))
    made: Positions = ((before[nearest] / before.std() + 0.01 * noise) * 1e-4).astype(np.float32)
    return made


def nearness(points: Points) -> dict[str, float]:
    """The mean cosine of each kind of embedding to the nearest proxy of a seen class."""
    p = points.of("proxy")
    return {
        kind: float((points.of(kind) @ p.T).max(dim=1).values.mean()) if len(p) else float("nan")
        for kind in ("train", "test", "synthetic")
        if len(points.of(kind))
    }


@styled
def draw_clouds(clouds: Sequence[Cloud], names: Sequence[str] = ("",)) -> Figure:
    """A row per cloud: seen and unseen on the left, seen and synthetic on the right."""
    rows = len(clouds)
    high = 3.1 if rows == 1 else 2.3  # four rows fit on a page
    figure, axes = panels(rows, 2, width=PAGE, height=0.4 + rows * high)
    letters = iter("abcdefgh")
    for row, (cloud, name) in enumerate(zip(clouds, names, strict=True)):
        after = f", {name}" if name else ""
        for one, panel in zip(axes[2 * row :], PANELS, strict=False):
            _panel(one, [point for point in cloud if point["panel"] == panel])
            lettered(one, next(letters), panel + after)
    panel = next(iter(PANELS))
    crowded = any(_crowded([p for p in cloud if p["panel"] == panel]) for cloud in clouds)
    legend_below(figure, _legend(crowded))
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


def rounded(cloud: Cloud, **about: Any) -> list[dict[str, Any]]:
    """The cloud as rows of a CSV file, with the same extra fields in each."""
    return [{**about, **row, "x": round(row["x"], 4), "y": round(row["y"], 4)} for row in cloud]


# Figures

FEW = Selection()
MANY = Selection(classes=100, pictures=12, above=10, mu=1.0)
SMOKE = Selection(classes=4, pictures=6)
EPOCHS = (2, 30, 60, 150)
"""Of Figure D, in a training of 150."""
MIXED_WITH = "PS + Norm-softmax"


def the_run(scale: Scale, benchmark: str) -> Run | None:
    """PS + Norm-softmax with the paper's alpha and mu, the first seed."""
    return scale.run(benchmark, ProxySynthesis(trained_loss("norm_softmax")), scale.seeds[0])


def runs_at_epochs(scale: Scale, benchmark: str = "cars196") -> tuple[Run, ...]:
    """The training of Figure D as it was after each of four epochs.

    A Run keeps only its last weights. But training up to an epoch does not depend on how many
    follow, unless the learning rates do: Runs of fewer epochs with the same seed are the same
    training, stopped earlier. So a schedule that depends on the end is replaced by a constant one.
    """
    last = the_run(scale, benchmark)
    if last is None:
        return ()
    if last.schedule in ("cosine", "one_cycle"):
        last = replace(last, schedule="constant")
    whole = EPOCHS[-1] if scale.name == "paper" else last.epochs
    epochs = [0]
    for epoch in EPOCHS:  # four different ones, even of a very short training
        epochs.append(max(epochs[-1] + 1, round(whole * epoch / EPOCHS[-1])))
    return tuple(replace(last, epochs=epoch, evaluate_every=epoch) for epoch in epochs[1:])


def embedding_space(store: Store, run: Run, selection: Selection) -> dict[str, Any] | None:
    """The positions of all points and their nearness to proxies; None if the Run is missing."""
    if store.result(run) is None:
        return None

    def compute() -> dict[str, Any]:
        model = store.model(run)
        assert model is not None
        points = points_of(model, selection)
        return {"cloud": project(points), "nearness": nearness(points), "note": points.note}

    found: dict[str, Any] | None = store.cached("t-sne", [run, encode(selection)], compute)
    return found


def selection_for(scale: Scale, selection: Selection) -> Selection:
    """What is shown at a scale: less at `smoke`."""
    return selection if scale.name != "smoke" else replace(SMOKE, above=selection.above)


def _figure(
    title: str, caption: str, names: Sequence[str], found: Sequence[Any], notes: Sequence[str]
) -> PaperFigure:
    """The drawing, or a dash if a Run is missing."""
    if not found or any(one is None for one in found):
        return PaperFigure(title, caption, not_run(f"{MIXED_WITH} was not run"), notes=tuple(notes))
    near = []
    for one, name in zip(found, names, strict=True):
        mean = one["nearness"]
        near.append(
            f"{name + ': ' if name else ''}seen {mean['train']:.2f}, unseen {mean['test']:.2f}, "
            f"synthetic {mean['synthetic']:.2f}"
        )
    return PaperFigure(
        title,
        caption,
        draw_clouds([one["cloud"] for one in found], names),
        [
            row
            for one, name in zip(found, names, strict=True)
            for row in (rounded(one["cloud"], epoch=name) if name else rounded(one["cloud"]))
        ],
        (
            *notes,
            f"Mean cosine to the nearest proxy of a seen class, before t-SNE: {'; '.join(near)}.",
            *dict.fromkeys(one["note"] for one in found if one["note"]),
        ),
    )


def _notes(scale: Scale, benchmark: str, selection: Selection) -> list[str]:
    notes = [
        *stands_for(scale, benchmark),
        f"{selection.classes} seen and {selection.classes} unseen classes drawn with a fixed seed, "
        f"up to {selection.pictures} images of each; {selection.mu:g} "
        f"synthetic{'s' * (selection.mu != 1)} per seen image with lam {selection.lam:g}, where "
        "training draws it. A t-SNE for each panel, the second started from the first.",
    ]
    if selection.classes > 40:
        notes.append(
            "With so many classes hardly any pair is mixed twice, so t-SNE places a synthetic "
            "beside its nearer parent."
        )
    return [*notes, *scale_notes(scale)]


def _final(
    title: str,
    benchmark: str,
    selection: Selection,
    numbers: Callable[[Scale, Store], Table] | None = None,
) -> Artifact:
    """Figure 3, B or C: two panels of a finished training."""

    def runs(scale: Scale) -> tuple[Run, ...]:
        run = the_run(scale, benchmark)
        return () if run is None else (run,)

    def make(scale: Scale, store: Store) -> PaperFigure:
        chosen = selection_for(scale, selection)
        return _figure(
            title,
            f"t-SNE of a network trained with PS + Norm-softmax on "
            f"{scale.heading(benchmark) or NAMES[benchmark]}. (a) Seen classes with their proxies, "
            "and unseen classes. (b) The same seen classes with synthetic embeddings and proxies.",
            ("",),
            [embedding_space(store, run, chosen) for run in runs(scale)],
            _notes(scale, benchmark, chosen),
        )

    return Artifact(runs, make, numbers=numbers)


def epoch_table(scale: Scale, store: Store) -> Table:
    """MAP@R on unseen classes after each of the four epochs of Figure D."""
    rows = {
        f"epoch {run.epochs}": {"map@r": measured(store, (run,), "map@r")}
        for run in runs_at_epochs(scale)
    }
    return figure_table("Figure D", "epoch", {"map@r": "MAP@R"}, rows)


def shown_table(scale: Scale, store: Store) -> Table:
    """The number of classes in Figure C, and the least and most images of one."""
    run = the_run(scale, "sop")
    selection = selection_for(scale, MANY)
    found = None if run is None else embedding_space(store, run, selection)
    columns = ("classes", "least", "most")
    rows = {}
    for part, kind in (("seen", "train"), ("unseen", "test")):
        cloud = found["cloud"] if found else []
        labels = [
            p["label"] for p in cloud if p["kind"] == kind and p["panel"] == "seen and unseen"
        ]
        sizes = [labels.count(label) for label in set(labels)]
        counts = (len(sizes), min(sizes), max(sizes)) if sizes else ()
        rows[part] = {name: (float(n),) for name, n in zip(columns, counts, strict=False)}
    return figure_table("Figure C", "classes", dict.fromkeys(columns, ""), rows)


def _over_epochs(scale: Scale, store: Store) -> PaperFigure:
    runs, selection = runs_at_epochs(scale), SMOKE if scale.name == "smoke" else FEW
    names = [f"epoch {run.epochs}" for run in runs]
    return _figure(
        "Figure D",
        "t-SNE of PS + Norm-softmax on "
        f"{scale.heading('cars196') or NAMES['cars196']} as training proceeds. Left: seen and "
        "unseen classes. Right: seen classes and synthetics.",
        names,
        [embedding_space(store, run, selection) for run in runs],
        [
            *_notes(scale, "cars196", selection),
            "Each epoch is a Run of its own with the same seed and rates that do not depend on the "
            "end, which is the same training stopped there. The paper shows epochs 2, 30, 60 and "
            "150; a shorter training shows the same fractions of it, no earlier than the first.",
        ],
    )


ARTIFACTS = {
    "figure3": _final("Figure 3", "cars196", FEW),
    "figureB": _final("Figure B", "cub200", FEW),
    "figureC": _final("Figure C", "sop", MANY, shown_table),
    "figureD": Artifact(runs_at_epochs, _over_epochs, numbers=epoch_table),
}
