"""What claims read of the figures, as tables. The paper's figures print no numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proxysynth.paper.artifact import Cell, Column, Line, Table
from proxysynth.paper.figures.boundaries import METHODS, toys_of
from proxysynth.paper.figures.embedding_space import (
    MANY,
    runs_at_epochs,
    seen_space,
    selection_at,
    the_run,
)
from proxysynth.paper.figures.logits import ON, diagonals_of
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import measured
from proxysynth.paper.tables.grid import grid_table

DIAGONALS = ("D0", "D1", "D2", "D3", "D4")
BETWEEN = {"inputs": "input space", "embeddings": "embedding space", "unseen": "unseen class"}
SHOWN = ("classes", "least", "most")


def figure_tables(scale: Scale, store: Callable[[str], Store]) -> dict[str, Table]:
    """Figures 2, 4, A, C and D by name; `store` says where the numbers of each are."""
    makers = {
        "figure2": toy_table,
        "figure4": diagonal_table,
        "figureA": grid_table,
        "figureC": shown_table,
        "figureD": epoch_table,
    }
    return {name: make(scale, store(name)) for name, make in makers.items()}


def toy_table(scale: Scale, store: Store) -> Table:
    """Figure 2: how sure each toy is between the classes, one number per seed."""
    kept = toys_of(scale, store)
    numbers = kept["numbers"] if kept else []
    rows = {
        method: {
            space: tuple(row[space] for row in numbers if row["method"] == method)
            for space in BETWEEN
        }
        for method in METHODS
    }
    return _table("Figure 2", "method", BETWEEN, rows, METHODS[0], digits=3)


def diagonal_table(scale: Scale, store: Store) -> Table:
    """Figure 4: the mean cosine on each diagonal, one number per seed."""
    found = diagonals_of(scale, store)
    rows = {name: {"mean": tuple(one[name] for one in found)} for name in DIAGONALS}
    return _table("Figure 4", "diagonal", {"mean": scale.heading(ON)}, rows, "D0", digits=2)


def epoch_table(scale: Scale, store: Store) -> Table:
    """Figure D: what the network knows of unseen classes after each of its four epochs."""
    rows = {
        f"epoch {run.epochs}": {"map@r": measured(store, (run,), "map@r")}
        for run in runs_at_epochs(scale)
    }
    return _table("Figure D", "epoch", {"map@r": "MAP@R"}, rows)


def shown_table(scale: Scale, store: Store) -> Table:
    """Figure C: how many classes are shown, and the least and most pictures of one."""
    run = the_run(scale, "sop")
    found = None if run is None else seen_space(store, run, selection_at(scale, MANY))
    rows = {}
    for part, kind in (("seen", "train"), ("unseen", "test")):
        labels = [p["label"] for p in found["cloud"] if p["kind"] == kind and
                  p["panel"] == "seen and unseen"] if found else []  # fmt: skip
        sizes = [labels.count(label) for label in set(labels)]
        told = (len(sizes), min(sizes), max(sizes)) if sizes else ()
        rows[part] = {name: (float(n),) for name, n in zip(SHOWN, told, strict=False)}
    return _table("Figure C", "classes", dict.fromkeys(SHOWN, ""), rows)


def _table(
    title: str,
    stub: str,
    columns: Mapping[str, str],
    rows: Mapping[str, Mapping[str, tuple[float, ...]]],
    base: str = "",
    digits: int = 1,
) -> Table:
    """Ours only; differences are against the row `base`."""
    lines = []
    for name, values in rows.items():
        cells = [
            Cell(
                values.get(key, ()),
                baseline=rows[base].get(key, ()) if base and base != name else (),
                digits=digits,
                better=0,
            )
            for key in columns
        ]
        lines.append(Line((name,), tuple(cells)))
    heads = tuple(Column(words or key, "here", "", key) for key, words in columns.items())
    return Table(title, "", (stub,), heads, tuple(lines))
