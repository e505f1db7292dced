"""t-SNE of what a model knows: seen and unseen classes, their proxies, and synthetics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from proxysynth.paper.figures.points import Points
from proxysynth.paper.figures.style import (
    BLUE,
    DARK_BLUE,
    DARK_GOLD,
    GOLD,
    GREY,
    INK,
    PAGE,
    legend_below,
    lettered,
    panels,
    styled,
    without_ticks,
)

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
"""How each kind is drawn, what is drawn first coming first."""
PANELS = {
    "seen and unseen": ("train", "proxy", "test"),
    "seen and synthetic": ("train", "proxy", "synthetic", "synthetic proxy"),
}
Cloud = list[dict[str, Any]]
"""A row for each point of each panel: {"panel", "kind", "label", "x", "y"}."""
Places = NDArray[np.float32]


def project(points: Points, seed: int = 0) -> Cloud:
    """Both panels, a t-SNE each. The second starts from the places of the first, a synthetic where
    its nearest seen embedding or proxy is, so that the seen classes lie alike in both."""
    cloud: Cloud = []
    before: Places | None = None
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


def _tsne(x: Places, seed: int, start: Places | None) -> Places:
    """Places in the plane, (n, 2)."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise RuntimeError(
            "t-SNE needs scikit-learn, which is not installed: pip install 'proxysynth[paper]'"
        ) from error
    made: Places = TSNE(
        perplexity=float(min(30, max(2, (len(x) - 1) // 4))),
        init="pca" if start is None else start,
        random_state=seed,
        n_jobs=1,
    ).fit_transform(x)
    return made


def _start(x: Places, seen: NDArray[np.bool_], before: Places, seed: int) -> Places:
    """Where each point starts, close together as t-SNE likes it; `before` is of those seen."""
    nearest = (x @ x[seen].T).argmax(axis=1)
    nearest[seen] = np.arange(len(before))
    noise = np.random.default_rng(seed).normal(size=(len(x), 2))
    made: Places = ((before[nearest] / before.std() + 0.01 * noise) * 1e-4).astype(np.float32)
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
    """A row for each cloud: seen and unseen at the left, seen and synthetic at the right."""
    rows = len(clouds)
    high = 3.1 if rows == 1 else 2.3  # four rows fit on a page
    figure, axes = panels(rows, 2, width=PAGE, height=0.4 + rows * high)
    letters = iter("abcdefgh")
    for row, (cloud, name) in enumerate(zip(clouds, names, strict=True)):
        after = f", {name}" if name else ""
        for one, panel in zip(axes[2 * row :], PANELS, strict=False):
            _panel(one, [point for point in cloud if point["panel"] == panel])
            lettered(one, next(letters), panel + after)
    legend_below(figure, _legend())
    return figure


def _panel(axes: Axes, cloud: Cloud) -> None:
    without_ticks(axes)
    axes.set_xlim(-1.08, 1.08)
    axes.set_ylim(-1.08, 1.08)
    crowded = sum(point["kind"] == "proxy" for point in cloud) > 40
    for kind, mark in MARKS.items():
        at = np.array([(row["x"], row["y"]) for row in cloud if row["kind"] == kind])
        if len(at):
            axes.scatter(at[:, 0], at[:, 1], **(_small(mark) if crowded else mark))


def _small(mark: dict[str, Any]) -> dict[str, Any]:
    """A mark for a panel with many classes, where large ones would hide the small."""
    small = {**mark, "s": 0.3 * mark["s"] + 2, "linewidth": 0.6 * mark["linewidth"]}
    if mark["marker"] == "D":  # a proxy becomes an outline around the embeddings at it
        small |= {"color": "none", "edgecolor": mark["color"], "linewidth": 0.8, "s": 28}
    return small


def _legend() -> list[Line2D]:
    made = []
    for kind, label in LABELS.items():
        mark = MARKS[kind]
        made.append(
            Line2D(
                [], [], linestyle="none", marker=mark["marker"], color=mark["color"],
                markeredgecolor=DARK_GOLD if kind == "synthetic proxy" else INK,
                markeredgewidth=0.4, markersize=9 if "proxy" in kind else 5, label=label,
            )
        )  # fmt: skip
    return made


def rounded(cloud: Cloud, **about: Any) -> list[dict[str, Any]]:
    """The cloud as rows of a table, with the same facts in each."""
    return [{**about, **row, "x": round(row["x"], 4), "y": round(row["y"], 4)} for row in cloud]
