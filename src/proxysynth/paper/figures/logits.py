"""Figure 4: the logits of one batch, and the diagonals in them.

                 proxies   synthetic proxies
    embeddings     D1            D2           D1, D4: an embedding and its own proxy
    synthetics     D3            D4           D2, D3: an embedding and its hardest rival

The batch has one image of each class, in the order of the proxies; the synthetic in row i has the
larger share of embedding i, so that matching pairs stand on diagonals. Without Proxy
Synthesis there is one block, with the diagonal D0.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.data.listing import shuffled_names
from proxysynth.losses.functional import unit
from proxysynth.paper.artifact import Artifact, PaperFigure, Table
from proxysynth.paper.figures.style import (
    COLD_TO_HOT,
    INK,
    PAGE,
    figure_table,
    lettered,
    not_run,
    panels,
    styled,
    without_ticks,
)
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.stand_ins import NAMES
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import scale_notes
from proxysynth.protocols.conventional import Conventional
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.training.inference import Trained
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run

ON = "cars196"
CLASSES = 24
LAM = 0.7  # the share of the parent on the diagonal
DIAGONALS = ("D0", "D1", "D2", "D3", "D4")
Matrix = NDArray[np.float64]


def batch_of(model: Trained, classes: int = CLASSES, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit embeddings (c, d) of one image of each of c seen classes, and their proxies (c, d)."""
    train = open_splits(model.run).train
    names = shuffled_names(train.classes, seed)[:classes]
    x = unit(Conventional()(model, train.of_classes(names)).query)
    labels = train.of_classes(names).labels
    first = [int(np.flatnonzero(labels == number)[0]) for number in range(len(names))]
    rows = [model.classes.index(name) for name in names]
    return x[first], unit(model.proxies.detach().float().cpu())[rows]


def plain_logits(x: Tensor, p: Tensor) -> Matrix:
    """Cosines of embeddings and proxies, (c, c): D0 is the diagonal."""
    return (x @ p.T).double().numpy()


def synthesis_logits(
    x: Tensor, p: Tensor, synthesis: ProxySynthesis, lam: float = LAM, seed: int = 0
) -> Matrix:
    """Cosines of originals and synthetics, (2c, 2c), originals first in rows and columns."""
    fixed = replace(synthesis, lam=lam, mu=1.0, per_pair=False, duplicates="keep")
    generator = torch.Generator().manual_seed(seed)
    made = fixed.synthesize(x, torch.arange(len(x)), p, generator)
    order = torch.argsort(made.i)  # synthetic i beside its larger parent i
    all_x, all_p = torch.cat((x, made.x[order])), torch.cat((p, made.p[order]))
    return (all_x @ all_p.T).double().numpy()


def diagonals(S: Matrix) -> dict[str, float]:
    """The mean of D1 to D4 in a (2c, 2c) matrix."""
    c = len(S) // 2
    return {
        "D1": float(np.diagonal(S[:c, :c]).mean()),
        "D2": float(np.diagonal(S[:c, c:]).mean()),
        "D3": float(np.diagonal(S[c:, :c]).mean()),
        "D4": float(np.diagonal(S[c:, c:]).mean()),
    }


def confidences(S: Matrix, scale: float) -> Matrix:
    """The softmax of each row over the proxies shown, at the loss's scale."""
    powers = np.exp(scale * (S - S.max(axis=1, keepdims=True)))
    made: Matrix = powers / powers.sum(axis=1, keepdims=True)
    return made


@styled
def draw_logits(plain: Matrix, mixed: Matrix, scale: float) -> Figure:
    """Cosines above their softmax; the plain batch at the left, with synthetics at the right."""
    figure, axes = panels(2, 2, width=PAGE, height=7.0)
    c = len(plain)
    shown = [plain, mixed, confidences(plain, scale), confidences(mixed, scale)]
    names = ("Norm-softmax", "PS + Norm-softmax")
    for number, (S, one) in enumerate(zip(shown, axes, strict=True)):
        without_ticks(one)
        image = one.imshow(S, cmap=COLD_TO_HOT, vmin=0, vmax=1, interpolation="nearest")
        what = "cosine" if number < 2 else "softmax"
        lettered(one, "abcd"[number], f"{names[number % 2]}: {what}", pad=20)
        if len(S) == c:
            _name(one, "D_0", float(np.diagonal(S).mean()), c, 0, 0)
            _blocks(one, [(c / 2, "embeddings", "proxies")])
            continue
        for (name, mean), (row, column) in zip(
            diagonals(S).items(), ((0, 0), (0, c), (c, 0), (c, c)), strict=True
        ):
            _name(one, f"{name[0]}_{name[1]}", mean, c, row, column)
        for line in (one.axhline, one.axvline):
            line(c - 0.5, color=INK, linewidth=1)
        _blocks(one, [(c / 2, "embeddings", "proxies"), (3 * c / 2, "synthetic", "synthetic")])
    ticks = [0, 0.25, 0.5, 0.75, 1]
    bar = figure.colorbar(
        image, ax=axes, shrink=0.5, aspect=30, pad=0.02, extend="min", ticks=ticks
    )
    bar.outline.set_visible(False)
    bar.set_label("cosine similarity, softmax confidence")
    return figure


def _name(axes: Axes, name: str, mean: float, c: int, row: int, column: int) -> None:
    """The diagonal's name and mean, above or below its block so that it covers no cell."""
    above = row == 0
    axes.annotate(
        f"${name}$  {mean:.2f}", (column + c / 2 - 0.5, -0.5 if above else row + c - 0.5),
        (0, 3 if above else -3), textcoords="offset points", ha="center",
        va="bottom" if above else "top", annotation_clip=False,
    )  # fmt: skip


def _blocks(axes: Axes, blocks: list[tuple[float, str, str]]) -> None:
    """Labels of rows and columns."""
    middles = [middle - 0.5 for middle, _, _ in blocks]
    axes.set_yticks(middles, [rows for _, rows, _ in blocks], rotation=90, va="center")
    axes.set_xticks(middles, [columns for _, _, columns in blocks])
    axes.tick_params(length=0)
    axes.tick_params(axis="x", pad=14 if len(blocks) > 1 else 4)


def _pairs(scale: Scale) -> list[tuple[Run, Run]]:
    """Norm-softmax without and with Proxy Synthesis, a pair for each seed; the first is drawn."""
    plain, made = trained_loss("norm_softmax"), []
    for seed in scale.seeds:
        losses, at = (plain, ProxySynthesis(plain)), scale.at_epoch(100)
        a, b = (scale.run(ON, loss, seed, **at) for loss in losses)
        made += [(a, b)] if a is not None and b is not None else []
    return made


def _logits(store: Store, pair: tuple[Run, Run]) -> tuple[Matrix, Matrix] | None:
    """Both matrices of the figure; None if a Run of the pair is missing."""
    plain, mixed = (store.model(run) for run in pair)
    if plain is None or mixed is None:
        return None
    synthesis = mixed.run.loss
    assert isinstance(synthesis, ProxySynthesis)
    return plain_logits(*batch_of(plain)), synthesis_logits(*batch_of(mixed), synthesis)


def diagonals_of(scale: Scale, store: Store) -> list[dict[str, float]]:
    """The means of D0 to D4, of cosines ("D0") and of confidences ("D0 softmax"), for each seed;
    empty unless every Run is finished."""
    found, gamma = [], trained_loss("norm_softmax").scale
    for pair in _pairs(scale):
        if any(store.result(run) is None for run in pair):
            return []

        def compute(pair: tuple[Run, Run] = pair) -> dict[str, float]:
            made = _logits(store, pair)
            assert made is not None
            means: dict[str, float] = {}
            for after, (S, T) in {
                "": made,
                " softmax": (confidences(made[0], gamma), confidences(made[1], gamma)),
            }.items():
                both = {"D0": float(np.diagonal(S).mean()), **diagonals(T)}
                means |= {name + after: value for name, value in both.items()}
            return means

        found.append(store.cached("diagonals_both", [*pair, LAM, CLASSES], compute))
    return found if all(found) else []


def _note(found: list[dict[str, float]]) -> str:
    """The diagonals over the seeds, and what the paper sees in them."""
    cosines, softmax = (
        ", ".join(f"{name} {fmean(one[name + after] for one in found):.2f}" for name in DIAGONALS)
        for after in ("", " softmax")
    )
    many = f"over {len(found)} seeds" if len(found) > 1 else "of the one seed"
    return (
        "The paper sees less confidence with Proxy Synthesis, D1 and D4 below D0, and more of it "
        f"than in the rivals, D2 and D3. Here the mean cosines {many} are {cosines}; the mean "
        f"confidences {softmax}. With Proxy Synthesis a row has twice as many proxies to share its "
        "confidence among."
    )


def _make(scale: Scale, store: Store) -> PaperFigure:
    caption = (
        "Cosine similarities (logits without their scale) of one batch, an image of each of "
        f"{CLASSES} seen classes, at the end of training on {scale.heading(ON) or NAMES[ON]}, and "
        "below them the softmax of each row at the loss's scale. The means of the diagonals stand "
        "above and below their blocks: D0, D1 and D4 are of an embedding with its own proxy, D2 "
        "and D3 with the rival made from it."
    )
    pairs = _pairs(scale)
    made = _logits(store, pairs[0]) if pairs else None
    if made is None:
        missing = not_run("Norm-softmax and PS + Norm-softmax were not run")
        return PaperFigure("Figure 4", caption, missing, notes=scale_notes(scale))
    plain, mixed = made
    found, loss = diagonals_of(scale, store), trained_loss("norm_softmax")
    about = scale.about(ON)
    return PaperFigure(
        "Figure 4",
        caption.replace(str(CLASSES), str(len(plain))),
        draw_logits(plain, mixed, loss.scale),
        [
            *_rows("Norm-softmax", plain, loss.scale),
            *_rows("PS + Norm-softmax", mixed, loss.scale),
        ],
        (
            f"The paper shows CARS196 at epoch 100. Here, {about}.",
            f"lam is fixed at {LAM:g}, so that the synthetic of a row is nearer to the embedding "
            "of that row; training draws it. The figure shows seed "
            f"{scale.seeds[0]}.",
            *([_note(found)] if found else []),
            *scale_notes(scale),
        ),
        diagonal_table(scale, store),
    )


def _rows(method: str, S: Matrix, scale: float) -> list[dict[str, Any]]:
    P = confidences(S, scale)
    return [
        {"method": method, "row": row, "column": column, "cosine": round(float(value), 5),
         "confidence": round(float(P[row, column]), 5)}
        for (row, column), value in np.ndenumerate(S)
    ]  # fmt: skip


def _runs(scale: Scale) -> tuple[Run, ...]:
    return tuple(run for pair in _pairs(scale) for run in pair)


def diagonal_table(scale: Scale, store: Store) -> Table:
    """The mean cosine and confidence on each diagonal, one number per seed."""
    found = diagonals_of(scale, store)
    rows = {
        name: {
            "mean": tuple(one[name] for one in found),
            "softmax": tuple(one[f"{name} softmax"] for one in found),
        }
        for name in DIAGONALS
    }
    columns = {"mean": "cosine", "softmax": "softmax"}
    return figure_table("Figure 4", "diagonal", columns, rows, "D0", digits=2)


ARTIFACTS = {"figure4": Artifact(_make, lambda scale, pick: _runs(scale), diagonal_table)}
