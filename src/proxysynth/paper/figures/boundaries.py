"""Figure 2: how sure the two-Gaussian toy is, everywhere in its input and embedding space."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from proxysynth.paper.artifact import Artifact, Picture
from proxysynth.paper.figures.style import (
    BLUE,
    GREY,
    INK,
    PAGE,
    RED,
    RED_TO_BLUE,
    legend_below,
    lettered,
    panels,
    styled,
    without_ticks,
)
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.toy import Between, LearntToy, Toy, between, learn
from proxysynth.training.run import Run
from proxysynth.values import encode

METHODS = ("Norm-softmax", "PS + Norm-softmax")
HALF = {"input": 3.2, "embedding": 1.35}  # of the side that is shown of each space
SHOWN = 90  # points of each class; all 200 would hide what is behind them
CLASSES = (("red, seen", RED), ("blue, seen", BLUE), ("grey, unseen", GREY))
Space = dict[str, Any]


def learnt_toys(toy: Toy, seed: int) -> tuple[LearntToy, LearntToy]:
    """The toy trained with Norm-softmax and with PS + Norm-softmax, from the same start."""
    return learn(toy, toy.loss, seed), learn(toy, toy.synthesis, seed)


def spaces(learnt: LearntToy, side: int = 121) -> dict[str, Space]:
    """What Figure 2 shows of one toy, as plain lists: {"input": ..., "embedding": ...}.

    blue: (side, side), the confidence in blue over the square, row by row from below.
    points: the three classes. proxies: their directions, of length one; the input space has none.

    The loss sees only the direction of an embedding, so that the map is the same all along a ray.
    Points keep their length, divided by the mean over the seen ones.
    """
    with torch.no_grad():
        points = learnt.points[:, :SHOWN]
        x = learnt.embed(points.reshape(-1, 2)).view_as(points)
        x = x / x[:2].norm(dim=-1).mean()
        proxies = learnt.proxies / learnt.proxies.norm(dim=1, keepdim=True)
        inputs = learnt.of_inputs(_square(HALF["input"], side))[:, 1]
        embeddings = learnt.of_embeddings(_square(HALF["embedding"], side))[:, 1]
    return {
        "input": {
            "blue": inputs.view(side, side).tolist(),
            "points": points.tolist(),
            "proxies": [],
        },
        "embedding": {
            "blue": embeddings.view(side, side).tolist(),
            "points": x.tolist(),
            "proxies": proxies.tolist(),
        },
    }


def _square(half: float, side: int) -> torch.Tensor:
    """The points of a grid, (side^2, 2), row by row from below."""
    steps = torch.linspace(-half, half, side)
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack((x, y), dim=-1).view(-1, 2)


@styled
def draw_boundaries(shown: dict[str, dict[str, Space]]) -> Figure:
    """Four panels, input space above embedding space, without Proxy Synthesis and with it.

    Args:
        shown: for each of `METHODS`, what `spaces` gave.
    """
    figure, axes = panels(2, 2, width=0.86 * PAGE, height=0.87 * PAGE)
    order = [(space, method) for space in HALF for method in METHODS]
    images = []
    for letter, (space, method), one in zip("abcd", order, axes, strict=True):
        images.append(_panel(one, shown[method][space], HALF[space]))
        lettered(one, letter, f"{method}: {space}s")
    bar = figure.colorbar(images[0], ax=axes, shrink=0.6, aspect=28, pad=0.02, ticks=[0, 0.5, 1])
    bar.ax.set_yticklabels(["red", "unsure", "blue"])
    bar.outline.set_visible(False)
    bar.ax.set_title("sure of", fontsize=8.5, loc="left")
    legend_below(figure, _legend())
    return figure


def _panel(axes: Axes, space: Space, half: float) -> AxesImage:
    without_ticks(axes)
    blue, extent = np.asarray(space["blue"]), (-half, half, -half, half)
    image = axes.imshow(
        blue, cmap=RED_TO_BLUE, vmin=0, vmax=1, extent=extent, origin="lower",
        interpolation="bilinear",
    )  # fmt: skip
    steps = np.linspace(-half, half, len(blue))
    axes.contour(steps, steps, blue, levels=[0.1, 0.9], colors=INK, linewidths=0.6, linestyles="--")
    axes.contour(steps, steps, blue, levels=[0.5], colors=INK, linewidths=1.2)
    for cloud, (_, color) in zip(space["points"], CLASSES, strict=True):
        at: NDArray[np.float64] = np.asarray(cloud)
        axes.scatter(at[:, 0], at[:, 1], s=13, color=color, edgecolor="white", linewidth=0.45)
    for proxy, color in zip(space["proxies"], (RED, BLUE), strict=False):
        axes.plot((0, proxy[0]), (0, proxy[1]), color=INK, linewidth=0.9)
        axes.scatter(
            proxy[0], proxy[1], s=62, marker="D", color=color, edgecolor=INK, linewidth=1, zorder=4
        )
    axes.set_xlim(-half, half)
    axes.set_ylim(-half, half)
    return image


def _legend() -> list[Line2D]:
    dots = [
        Line2D([], [], linestyle="none", marker="o", color=c, markeredgecolor="white", label=label)
        for label, c in CLASSES
    ]
    proxy = Line2D([], [], linestyle="none", marker="D", color="white", markeredgecolor=INK)
    half = Line2D([], [], color=INK, linewidth=1.2)
    sure = Line2D([], [], color=INK, linewidth=0.7, linestyle="--")
    for line, label in ((proxy, "proxy"), (half, "50 %"), (sure, "90 % sure")):
        line.set_label(label)
    return [*dots, proxy, half, sure]


def _measured(toy: Toy, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Everything Figure 2 needs, as JSON holds it: the maps of the first seed, numbers of all."""
    shown: dict[str, Any] = {}
    numbers: list[dict[str, Any]] = []
    for seed in seeds:
        for method, learnt in zip(METHODS, learnt_toys(toy, seed), strict=True):
            if seed == seeds[0]:
                shown[method] = spaces(learnt)
            numbers.append({"method": method, "seed": seed, **vars(between(learnt))})
    return {"shown": shown, "numbers": numbers}


def _runs(scale: Scale) -> list[Run]:
    return []  # the toy is no Run: it is trained in seconds, when the figure is made


def toys_of(scale: Scale, store: Store) -> dict[str, Any] | None:
    """What was measured of the toy at each seed; None where nothing was and nothing may be."""
    toy, seeds = Toy(), scale.seeds
    found: dict[str, Any] | None = store.kept(
        "toy", [encode(toy), seeds], lambda: _measured(toy, seeds)
    )
    return found


def _make(scale: Scale, store: Store) -> Picture:
    toy, seeds, kept = Toy(), scale.seeds, toys_of(scale, store)
    assert kept is not None
    means = {
        method: Between(
            *(fmean(row[name] for row in kept["numbers"] if row["method"] == method)
              for name in ("inputs", "embeddings", "unseen"))
        )
        for method in METHODS
    }  # fmt: skip
    plain, mixed = (means[method] for method in METHODS)
    return Picture(
        title="Figure 2",
        caption="Two Gaussian classes are seen, red and blue; a third between them, grey, is not. "
        "The darker the background, the surer the network is of red or blue. Between the "
        "dashed lines it is less than 90 % sure.",
        figure=draw_boundaries(kept["shown"]),
        data=_rows(kept),
        notes=(
            f"Mean confidence between the classes, {len(seeds)} seed{'s' * (len(seeds) > 1)}: on "
            f"the line between their middles {plain.inputs:.3f} with Norm-softmax and "
            f"{mixed.inputs:.3f} with Proxy Synthesis; on the arc between their embeddings "
            f"{plain.embeddings:.3f} and {mixed.embeddings:.3f}; on the unseen class "
            f"{plain.unseen:.3f} and {mixed.unseen:.3f}. The picture is of seed {seeds[0]}.",
            "The paper gives no settings. Here: middles 4 apart, standard deviation "
            f"{toy.spread:g}, {toy.points} points a class, two hidden layers of {toy.width} with "
            f"tanh, {toy.epochs} epochs of Adam at {toy.lr:g} (proxies {toy.proxy_lr:g}), batches "
            f"of {toy.batch_size}, scale {toy.scale:g}, alpha {toy.alpha:g}, mu {toy.mu:g}, equal "
            "pairs merged, proxies starting at the mean of their class. At the scale 23 used "
            "elsewhere both losses are certain nearly everywhere, and neither is reliably less so.",
        ),
    )


def _rows(kept: dict[str, Any]) -> list[dict[str, Any]]:
    """The points and the measured means; the maps at every fifth step of their grid."""
    rows: list[dict[str, Any]] = []
    for row in kept["numbers"]:
        for space in ("inputs", "embeddings", "unseen"):
            about = {"what": "mean confidence", "method": row["method"], "space": space}
            rows.append({**about, "seed": row["seed"], "value": row[space]})
    for method, of_method in kept["shown"].items():
        for space, half in HALF.items():
            about = {"method": method, "space": space}
            for cloud, (name, _) in zip(of_method[space]["points"], CLASSES, strict=True):
                rows += [{"what": name, **about, "x": x, "y": y} for x, y in cloud]
            blue = np.asarray(of_method[space]["blue"])
            steps = np.linspace(-half, half, len(blue))
            for i, j in np.ndindex(len(blue) // 5 + 1, len(blue) // 5 + 1):
                at = {"x": float(steps[5 * j]), "y": float(steps[5 * i])}
                rows.append(
                    {"what": "confidence in blue", **about, **at, "value": blue[5 * i, 5 * j]}
                )
    return rows


FIGURE_2 = Artifact("figure2", "decision boundaries of the two-Gaussian toy", _runs, _make)
