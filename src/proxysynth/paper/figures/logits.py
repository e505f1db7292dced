"""Figure 4: the logits of one batch, and the diagonals in them.

                 proxies   synthetic proxies
    embeddings     D1            D2           D1, D4: an embedding and its own proxy
    synthetics     D3            D4           D2, D3: an embedding and its hardest rival

The batch has one image of each class, in the order of the proxies; the synthetic in row i has the
larger share of embedding i, so that matching pairs stand on diagonals. Without Proxy
Synthesis there is one block, with the diagonal D0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from proxysynth.data.listing import shuffled_names
from proxysynth.losses.functional import unit
from proxysynth.paper.artifact import PaperFigure
from proxysynth.paper.figures import style
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import PAIR, method_name, ran_as, scale_notes, seeded
from proxysynth.protocols.conventional import embeddings_of
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.training.inference import Trained
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run

ON = "cars196"
CLASSES = 24
LAM = 0.7  # the share of the parent on the diagonal
DIAGONALS = ("D0", "D1", "D2", "D3", "D4")
METHODS = tuple(method_name("norm_softmax", regularizer) for regularizer in PAIR)
GAMMA = trained_loss("norm_softmax").scale
Matrix = NDArray[np.float64]


def batch_of(model: Trained) -> tuple[Tensor, Tensor]:
    """Unit embeddings (c, d) of one image of each of c seen classes, and their proxies (c, d)."""
    train = open_splits(model.run).train
    names = shuffled_names(train.classes, 0)[:CLASSES]
    shown = train.of_classes(names)
    x = unit(embeddings_of(model, shown))
    first = [int(np.flatnonzero(shown.labels == number)[0]) for number in range(len(names))]
    rows = [model.classes.index(name) for name in names]
    return x[first], unit(model.proxies.detach().float().cpu())[rows]


def logits(x: Tensor, p: Tensor, loss: Any) -> Matrix:
    """Cosines of embeddings and proxies, (c, c): D0 is the diagonal. With Proxy Synthesis, those of
    originals and synthetics, (2c, 2c), originals first in rows and columns."""
    if isinstance(loss, ProxySynthesis):
        fixed = replace(loss, lam=LAM, mu=1.0, per_pair=False, duplicates="keep")
        made = fixed.synthesize(x, torch.arange(len(x)), p, torch.Generator().manual_seed(0))
        order = torch.argsort(made.i)  # synthetic i beside its larger parent i
        x, p = torch.cat((x, made.x[order])), torch.cat((p, made.p[order]))
    return (x @ p.T).double().numpy()


def diagonals(S: Matrix, c: int) -> dict[str, float]:
    """The mean of D0 in a (c, c) matrix, of D1 to D4 in a (2c, 2c) one."""
    blocks = (S[:c, :c], S[:c, c:], S[c:, :c], S[c:, c:]) if len(S) > c else (S,)
    means = (float(np.diagonal(block).mean()) for block in blocks)
    return dict(zip(DIAGONALS[1:] if len(S) > c else DIAGONALS, means, strict=False))


def confidences(S: Matrix) -> Matrix:
    """The softmax of each row over the proxies shown, at the loss's scale."""
    return np.asarray(softmax(GAMMA * S, axis=1))


@style.styled
def draw_logits(plain: Matrix, mixed: Matrix) -> Figure:
    """Cosines above their softmax; the plain batch at the left, with synthetics at the right."""
    titles = [f"{method}: {what}" for what in ("cosine", "softmax") for method in METHODS]
    figure, axes = style.panels(titles, 2, height=7.0, pad=20)
    c = len(plain)
    shown = [plain, mixed, confidences(plain), confidences(mixed)]
    for S, ax in zip(shown, axes, strict=True):
        style.without_ticks(ax)
        image = ax.imshow(S, cmap=style.COLD_TO_HOT, vmin=0, vmax=1, interpolation="nearest")
        corners = product((0, c), repeat=2)
        for (name, mean), (row, column) in zip(diagonals(S, c).items(), corners, strict=False):
            above = row == 0  # above or below its block, so that it covers no cell
            ax.annotate(
                f"${name[0]}_{name[1]}$  {mean:.2f}",
                (column + c / 2 - 0.5, -0.5 if above else row + c - 0.5), (0, 3 if above else -3),
                textcoords="offset points", ha="center", va="bottom" if above else "top",
                annotation_clip=False,
            )  # fmt: skip
        blocks = len(S) // c
        if blocks > 1:
            ax.axhline(c - 0.5, color=style.INK, linewidth=1)
            ax.axvline(c - 0.5, color=style.INK, linewidth=1)
        middles = [(i + 0.5) * c - 0.5 for i in range(blocks)]
        ax.set_yticks(middles, ["embeddings", "synthetic"][:blocks], rotation=90, va="center")
        ax.set_xticks(middles, ["proxies", "synthetic"][:blocks])
        ax.tick_params(length=0)
        ax.tick_params(axis="x", pad=14 if blocks > 1 else 4)
    look: dict[str, Any] = {"shrink": 0.5, "aspect": 30, "pad": 0.02, "extend": "min"}
    bar = figure.colorbar(image, ax=axes, ticks=[0, 0.25, 0.5, 0.75, 1], **look)
    bar.outline.set_visible(False)
    bar.set_label("cosine similarity, softmax confidence")
    return figure


def logits_of(store: Store, runs: Sequence[Run]) -> list[Matrix]:
    """The logits of each Run; empty unless every Run is finished."""

    def measure(model: Trained) -> Any:
        return logits(*batch_of(model), model.run.loss).tolist()

    found = store.on_models("logits", runs, {"lam": LAM, "classes": CLASSES}, measure)
    return [np.array(S) for S in found]


def diagonals_of(plain: Sequence[Matrix], mixed: Sequence[Matrix]) -> style.Numbers:
    """The means of D0 to D4 for each seed: of the cosines, and of their softmax."""
    rows: style.Numbers = {name: {"mean": (), "softmax": ()} for name in DIAGONALS}
    for pair in zip(plain, mixed, strict=False):
        for S in pair:
            for key, shown in (("mean", S), ("softmax", confidences(S))):
                for name, mean in diagonals(shown, len(pair[0])).items():
                    rows[name][key] += (mean,)
    return rows


def _note(rows: style.Numbers) -> str:
    """The diagonals over the seeds, and what the paper finds in them."""
    cosines, softmax = (
        ", ".join(f"{name} {fmean(row[key]):.2f}" for name, row in rows.items())
        for key in ("mean", "softmax")
    )
    seeds = len(rows["D0"]["mean"])
    many = f"over {seeds} seeds" if seeds > 1 else "of the one seed"
    return (
        "The paper finds less confidence with Proxy Synthesis, D1 and D4 below D0, but more "
        f"than for the rivals, D2 and D3. Here the mean cosines {many} are {cosines}; the mean "
        f"confidences {softmax}. With Proxy Synthesis a row has twice as many proxies to share its "
        "confidence among."
    )


def _make(scale: Scale, store: Store) -> PaperFigure:
    # The learning rates of C.2 fall in steps, so this is the paper's longer Run up to epoch 100.
    at = {"epochs": 100, "report_epoch": "last"} if scale.name == "paper" else {}
    methods = [seeded(scale, ON, trained_loss("norm_softmax", reg), **at) for reg in PAIR]
    rows = diagonals_of(*(logits_of(store, runs) for runs in methods))
    made = [S for runs in methods for S in logits_of(store, runs[:1])]
    caption = (
        "Cosine similarities (logits without their scale) of one batch, an image of each of "
        f"{len(made[0]) if made else CLASSES} seen classes, at the end of training on "
        f"{ran_as(scale, ON)}, and below them the softmax of each row at the loss's scale. The "
        "means of the diagonals are above and below their blocks: D0, D1 and D4 are of an "
        "embedding with its own proxy, D2 and D3 with the rival made from it."
    )
    columns = {"mean": "cosine", "softmax": "softmax"}
    numbers = style.figure_table("Figure 4", "diagonal", columns, rows, "D0", digits=2)
    if len(made) < 2:
        missing = partial(style.not_run, "Norm-softmax and PS + Norm-softmax were not run")
        return PaperFigure("Figure 4", caption, missing, [], scale_notes(scale), numbers)
    data = [
        {"method": method, "row": i, "column": j, "cosine": round(float(S[i, j]), 5),
         "confidence": round(float(P[i, j]), 5)}
        for method, S, P in zip(METHODS, made, map(confidences, made), strict=True)
        for i, j in np.ndindex(S.shape)
    ]  # fmt: skip
    notes = (
        f"The paper shows CARS196 at epoch 100. Here, {scale.stand_in(ON).about}.",
        f"lam is fixed at {LAM:g}, so that the synthetic of a row is nearer to the embedding "
        f"of that row; training draws it. The figure shows seed {scale.seeds[0]}.",
        *([_note(rows)] if rows["D0"]["mean"] else []),
        *scale_notes(scale),
    )
    return PaperFigure("Figure 4", caption, partial(draw_logits, *made), data, notes, numbers)


ARTIFACTS = {"figure4": _make}
