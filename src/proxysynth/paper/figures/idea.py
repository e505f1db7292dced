"""Figure 1: the three concepts that the paper compares; and the picture of the README."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from numpy.typing import NDArray

from proxysynth.paper.artifact import PaperFigure
from proxysynth.paper.figures import style
from proxysynth.paper.figures.style import BLUE, DARK_GOLD, GOLD, GRAY, INK, RED, dots, mark
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store

LAM = 0.6
RED_AT, BLUE_AT, UNSEEN_AT = np.array((-2.2, -0.3)), np.array((2.2, -0.3)), np.array((0.0, 0.1))
X, OTHER = np.array((-2.1, 0.55)), np.array((1.95, 0.6))  # the two embeddings that are mixed
MADE_X, MADE_P = LAM * X + (1 - LAM) * OTHER, LAM * RED_AT + (1 - LAM) * BLUE_AT
# The other embeddings of a class, around its proxy: placed by hand, this is a drawing.
CLOUD = np.array(
    ((-0.62, 0.45), (0.68, 0.35), (-0.85, -0.1), (0.75, -0.35), (-0.6, -0.68), (0.5, -0.85))
)
WIDE, HIGH = 3.7, 2.35  # half the panel, in the drawing's units
DASHED = (0, (2, 1.5))
Points = NDArray[np.float64]


class Panel(NamedTuple):
    """What is drawn on a panel besides two classes."""

    title: str
    text: str = ""
    near: Points | None = None  # where X is drawn to
    far: Points | None = None  # where X is driven to or from
    steepness: float = 0  # of the decision boundary; 0: none is drawn
    proxies: bool = True
    synthetic: bool = False
    unseen: bool = False


def draw_idea() -> Figure:
    """Why it helps: a proxy-based loss, the same with Proxy Synthesis, and an unseen class."""
    return _draw(
        Panel(
            "a proxy-based loss", "red or blue, nothing between", RED_AT, X + 0.3 * (X - BLUE_AT),
            steepness=40,
        ),
        Panel("with Proxy Synthesis", steepness=1, synthetic=True),
        Panel("later: an unseen class", "room was kept for it", steepness=1, unseen=True),
    )  # fmt: skip


def draw_concepts() -> Figure:
    """The paper's three concepts: pair-based, proxy-based, and with Proxy Synthesis."""
    pair = RED_AT + CLOUD[4]
    return _draw(
        Panel("pair-based loss", "embedding and embedding", pair, OTHER, proxies=False),
        Panel("proxy-based loss", "embedding and proxies", RED_AT, BLUE_AT),
        Panel("with Proxy Synthesis", far=MADE_P, synthetic=True),
    )


@style.styled
def _draw(*drawn: Panel) -> Figure:
    unseen = any(panel.unseen for panel in drawn)
    titles = [panel.title for panel in drawn]
    figure, axes = style.panels(titles, 3, height=2.1 if unseen else 2.3)
    for panel, ax in zip(drawn, axes, strict=True):
        style.without_ticks(ax)
        ax.set(xlim=(-WIDE, WIDE), ylim=(-HIGH, HIGH), aspect="equal")
        if panel.steepness:  # the confidence of a classifier changes from red to blue
            blue = 1 / (1 + np.exp(-panel.steepness * np.linspace(-WIDE, WIDE, 512)))
            ax.imshow(
                blue[None], cmap=style.RED_TO_BLUE, vmin=-0.5, vmax=1.5,
                extent=(-WIDE, WIDE, -HIGH, HIGH), aspect="equal", zorder=0,
            )  # fmt: skip
        for middle, x, color, side in ((RED_AT, X, RED, 1), (BLUE_AT, OTHER, BLUE, -1)):
            dots(ax, np.vstack((middle + CLOUD * (side, 1), x)), 24, color, zorder=3)
            if panel.proxies:
                dots(ax, middle, 75, color, marker="D", edgecolor=INK, linewidth=1, zorder=4)
        if panel.synthetic:
            _draw_synthetic(ax)
        if panel.unseen:
            cloud = np.vstack((UNSEEN_AT + 0.85 * CLOUD, UNSEEN_AT + (0.05, 0.55), UNSEEN_AT))
            at = (UNSEEN_AT[0], UNSEEN_AT[1])
            ax.add_patch(Ellipse(at, 1.95, 1.95, fill=False, edgecolor=INK, linestyle=(0, (3, 2))))
            dots(ax, cloud, 24, GRAY, zorder=3)
        for end, line in ((panel.near, "-"), (panel.far, DASHED)):
            if end is not None:
                look = {
                    "arrowstyle": "-|>", "mutation_scale": 9, "shrinkA": 3, "shrinkB": 5,
                    "color": INK, "linewidth": 1.1, "linestyle": line,
                }  # fmt: skip
                ax.annotate("", (end[0], end[1]), (X[0], X[1]), arrowprops=look, zorder=6)
        if panel.text:
            ax.text(0, 1.8, panel.text, ha="center", va="center", fontsize=8.5)
    style.legend_below(figure, _legend(unseen), ncols=5 if unseen else 3)
    return figure


def _draw_synthetic(axes: Axes) -> None:
    """A synthetic embedding and proxy on the lines between their parents."""
    formula = "$\\tilde{%s} = \\lambda\\,%s + (1-\\lambda)\\,%s'$"
    for a, b in ((X, OTHER), (RED_AT, BLUE_AT)):
        axes.plot((a[0], b[0]), (a[1], b[1]), color=DARK_GOLD, linewidth=1.1, linestyle=(0, (2, 2)))
    dots(axes, MADE_X, 48, GOLD, edgecolor=DARK_GOLD, linewidth=0.9, zorder=5)
    dots(axes, MADE_P, 190, GOLD, marker="*", edgecolor=INK, linewidth=0.9, zorder=5)
    axes.text(MADE_X[0], 1.8, formula % ("x", "x", "x"), ha="center", va="center")
    axes.text(MADE_P[0], -1.8, formula % ("p", "p", "p"), ha="center", va="center")
    for end, text, color, up in (
        (X, "$x$", RED, 6),
        (OTHER, "$x'$", BLUE, 6),
        (RED_AT, "$p$", RED, -17),
        (BLUE_AT, "$p'$", BLUE, -17),
    ):
        axes.annotate(
            text, (end[0], end[1]), (0, up), textcoords="offset points", ha="center", color=color,
            fontsize=10,
        )  # fmt: skip


def _legend(unseen: bool) -> list[Line2D]:
    handles = [
        mark("o", BLUE, "embedding", 5, "white"),
        mark("D", BLUE, "proxy", 6.5, INK),
        mark("o", GOLD, "synthetic embedding", 6, DARK_GOLD),
        mark("*", GOLD, "synthetic proxy", 11, INK),
    ]
    if unseen:
        return [*handles, mark("o", GRAY, "unseen class", 5, "white")]
    near = Line2D([], [], color=INK, linewidth=1.1, label="more similar")
    far = Line2D([], [], color=INK, linewidth=1.1, linestyle=DASHED, label="less similar")
    return [*handles, near, far]


def _make(scale: Scale, store: Store) -> PaperFigure:
    return PaperFigure(
        title="Figure 1",
        caption="Three concepts. (a) A pair-based loss makes embeddings of one class more similar "
        "and those of different classes less. (b) A proxy-based loss compares an embedding with "
        "the proxy of its class and with all others. (c) Proxy Synthesis mixes embeddings and "
        "proxies of two classes into a class between them, a hard rival that takes part in the "
        "loss.",
        draw=draw_concepts,
        notes=("A drawing of our own, with no data in it.",),
    )


ARTIFACTS = {"figure1": _make}
