"""Table A: what Proxy Synthesis costs in time and memory, over mu."""

from __future__ import annotations

from typing import Any

import torch

from proxysynth.paper.artifact import Artifact, Cell, Column, Line, Table
from proxysynth.paper.printed import notes_of, number
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.provenance import provenance

MUS = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0)
N = 128


def _measured(scale: Scale, store: Store) -> dict[str, Any] | None:
    """The benchmark's rows, measured once per store, with the machine they are from."""
    quick, threads = scale.name == "smoke", torch.get_num_threads()

    def compute() -> dict[str, Any]:
        from proxysynth.bench.step import table_a

        return {"rows": table_a(threads, quick), **provenance(), "threads": threads}

    found: dict[str, Any] | None = store.kept("table_a", ["quick" if quick else "full"], compute)
    return found


def _tableA(scale: Scale, store: Store) -> Table:
    told = _measured(scale, store)
    by_mu = {row["mu"]: row for row in told["rows"]} if told else {}
    rows = [Line((f"{mu:g}",), _cells(mu, by_mu)) for mu in MUS]
    here, about = "", "Nothing was measured."
    if told:
        here = f"CPU, {told['threads']} thread{'s' if told['threads'] > 1 else ''}"
        about = (
            f"Ours was measured on {told['machine']}, medians; the paper's is a GPU, so only "
            "ratios within a column can be compared."
        )
    theirs = "Tesla P40"
    return Table(
        "Table A",
        f"Time (ms) and memory over mu, with a batch of N = {N} embeddings of 512 dimensions and "
        "the 98 classes of CARS196.",
        ("mu",),
        (
            Column("generation", here, theirs, "generation"),
            Column("loss", here, theirs, "loss"),
            Column("features / N, laid out", here, theirs, "features"),
            Column("features / N, fused", here, "", "fused features"),
            Column("whole step, laid out", here, "", "reference step"),
            Column("whole step, fused", here, "", "fused step"),
            Column("fused step / plain", here, "", "ratio"),
        ),
        tuple(rows),
        (
            about,
            "Laid out is the paper's way: synthetics beside originals, then the loss. Fused is "
            "what training uses: forward and backward in one function, no copy of the proxies.",
            *(f"The paper: {note}." for note in notes_of("tableA")),
            "Section D.1 speaks of an N x N matrix of similarities; the loss makes one of N x C.",
        ),
    )


def _cells(mu: float, by_mu: dict[float, dict[str, Any]]) -> tuple[Cell, ...]:
    """A row of numbers, in the order of the columns."""
    row, key = by_mu.get(mu, {}), {"mu": str(mu)}

    def cell(field: str, over: float | None = 1.0, paper: str = "", digits: int = 3) -> Cell:
        value = row.get(field)
        ours = () if value is None or not over else (value / over,)
        printed = number("tableA", paper, **key) if paper else None
        return Cell(ours, printed, digits=digits, better=-1)

    plain = by_mu.get(0.0, {}).get("fused_step_ms")
    return (
        cell("generation_ms", paper="generation_ms"),
        cell("loss_ms", paper="loss_ms"),
        cell("features_reference", N, "features_over_n", 2),
        cell("features_fused", N, digits=2),
        cell("reference_step_ms"),
        cell("fused_step_ms"),
        cell("fused_step_ms", plain, digits=2),
    )


TABLES = (Artifact("tableA", "time and memory over mu", lambda scale: (), _tableA),)
