"""Figure 1: the three concepts that the paper compares; and the picture of the README."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from numpy.typing import NDArray

from proxysynth.paper.artifact import Artifact, PaperFigure
from proxysynth.paper.figures import style
from proxysynth.paper.figures.style import BLUE, DARK_GOLD, GOLD, GREY, INK, RED, dots, mark
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
Panel = tuple[str, float, Callable[[Axes], None]]
"""Its title, how steep its decision boundary is (0: none is drawn), and what is drawn on it."""


def draw_idea() -> Figure:
    """Why it helps: a proxy-based loss, the same with Proxy Synthesis, and an unseen class."""
    return _draw(
        (
            ("a proxy-based loss", 40, _pull),
            ("with Proxy Synthesis", 1, _synthetic),
            ("later: an unseen class", 1, _unseen),
        ),
        unseen=True,
    )


def draw_concepts() -> Figure:
    """The paper's three concepts: pair-based, proxy-based, and with Proxy Synthesis."""
    return _draw(
        (
            ("pair-based loss", 0, _pairs),
            ("proxy-based loss", 0, _proxies),
            ("with Proxy Synthesis", 0, _competitors),
        )
    )


@style.styled
def _draw(drawn: Sequence[Panel], unseen: bool = False) -> Figure:
    figure, axes = style.panels(1, 3, height=2.1 if unseen else 2.3)
    for letter, (title, steepness, paint), one in zip("abc", drawn, axes, strict=True):
        style.without_ticks(one)
        one.set(xlim=(-WIDE, WIDE), ylim=(-HIGH, HIGH), aspect="equal")
        style.lettered(one, letter, title)
        if steepness:  # the confidence of a classifier changes from red to blue along the panel
            blue = 1 / (1 + np.exp(-steepness * np.linspace(-WIDE, WIDE, 512)))
            one.imshow(
                blue[None], cmap=style.RED_TO_BLUE, vmin=-0.5, vmax=1.5,
                extent=(-WIDE, WIDE, -HIGH, HIGH), aspect="equal", zorder=0,
            )  # fmt: skip
        for middle, x, color, side in ((RED_AT, X, RED, 1), (BLUE_AT, OTHER, BLUE, -1)):
            dots(one, np.vstack((middle + CLOUD * (side, 1), x)), 24, color, zorder=3)
            if paint is not _pairs:
                dots(one, middle, 75, color, marker="D", edgecolor=INK, linewidth=1, zorder=4)
        paint(one)
    style.legend_below(figure, _legend(unseen), ncols=5 if unseen else 3)
    return figure


def _pull(axes: Axes) -> None:
    """Towards the own proxy, away from the other."""
    _arrow(axes, X, RED_AT)
    _arrow(axes, X, X + 0.3 * (X - BLUE_AT), dashed=True)
    _say(axes, "red or blue, nothing between")


def _pairs(axes: Axes) -> None:
    """An anchor with a positive and with a negative embedding."""
    _arrow(axes, X, RED_AT + CLOUD[4])
    _arrow(axes, X, OTHER, dashed=True)
    _say(axes, "embedding and embedding")


def _proxies(axes: Axes) -> None:
    """An anchor with its own proxy and with all others."""
    _arrow(axes, X, RED_AT)
    _arrow(axes, X, BLUE_AT, dashed=True)
    _say(axes, "embedding and proxies")


def _competitors(axes: Axes) -> None:
    """A synthetic class, with which the anchor competes too."""
    _synthetic(axes)
    _arrow(axes, X, MADE_P, dashed=True)


def _synthetic(axes: Axes) -> None:
    for a, b in ((X, OTHER), (RED_AT, BLUE_AT)):
        axes.plot((a[0], b[0]), (a[1], b[1]), color=DARK_GOLD, linewidth=1.1, linestyle=(0, (2, 2)))
    dots(axes, MADE_X, 48, GOLD, edgecolor=DARK_GOLD, linewidth=0.9, zorder=5)
    dots(axes, MADE_P, 190, GOLD, marker="*", edgecolor=INK, linewidth=0.9, zorder=5)
    formula = "$\\tilde{%s} = \\lambda\\,%s + (1-\\lambda)\\,%s'$"
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


def _unseen(axes: Axes) -> None:
    cloud = np.vstack((UNSEEN_AT + 0.85 * CLOUD, UNSEEN_AT + (0.05, 0.55), UNSEEN_AT))
    at = (UNSEEN_AT[0], UNSEEN_AT[1])
    axes.add_patch(Ellipse(at, 1.95, 1.95, fill=False, edgecolor=INK, linestyle=(0, (3, 2))))
    dots(axes, cloud, 24, GREY, zorder=3)
    _say(axes, "room was kept for it")


def _say(axes: Axes, text: str) -> None:
    axes.text(0, 1.8, text, ha="center", va="center", fontsize=8.5)


def _arrow(axes: Axes, start: Points, end: Points, dashed: bool = False) -> None:
    look = {
        "arrowstyle": "-|>", "mutation_scale": 9, "shrinkA": 3, "shrinkB": 5, "color": INK,
        "linewidth": 1.1, "linestyle": DASHED if dashed else "-",
    }  # fmt: skip
    axes.annotate("", (end[0], end[1]), (start[0], start[1]), arrowprops=look, zorder=6)


def _legend(unseen: bool) -> list[Line2D]:
    handles = [
        mark("o", BLUE, "embedding", 5, "white"),
        mark("D", BLUE, "proxy", 6.5, INK),
        mark("o", GOLD, "synthetic embedding", 6, DARK_GOLD),
        mark("*", GOLD, "synthetic proxy", 11, INK),
    ]
    if unseen:
        return [*handles, mark("o", GREY, "unseen class", 5, "white")]
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
        figure=draw_concepts(),
        notes=("A drawing of our own, with no data in it.",),
    )


ARTIFACTS = {"figure1": Artifact(_make)}
