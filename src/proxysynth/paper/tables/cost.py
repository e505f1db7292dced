"""Table A: what Proxy Synthesis costs in time and memory, over mu."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.losses import NormSoftmax
from proxysynth.paper.artifact import Artifact, Cell, Column, Line, Table
from proxysynth.paper.printed import notes_of, number
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.provenance import provenance
from proxysynth.regularizers import ProxySynthesis
from proxysynth.regularizers.mixing import synthesize

MUS = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0)
N, D, SCALE = 128, 512, 23.0
Step = Callable[[], Any]


def _measured(scale: Scale, store: Store) -> dict[str, Any] | None:
    """The benchmark's rows, measured once per store, with the machine they are from."""
    quick, threads = scale.name == "smoke", torch.get_num_threads()

    def compute() -> dict[str, Any]:
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


def table_a(threads: int, quick: bool) -> list[dict[str, Any]]:
    """The paper's Table A at its size: time over mu, the reference's two halves apart."""
    x, y, p = batch(98)
    rows = []
    for mu in MUS:
        ours = ProxySynthesis(NormSoftmax(SCALE), mu=mu)
        draw = ours.draw(y)
        steps: dict[str, Step] = {"fused_step": lambda ours=ours: ours(x, y, p).backward()}  # type: ignore[misc]
        if draw is None:
            unit_x, unit_p, labels = F.normalize(x), F.normalize(p), y
            steps["reference_step"] = lambda: NormSoftmax(SCALE)(x, y, p).backward()
        else:
            made = synthesize(x, y, p, draw, True)
            unit_x, unit_p = (
                torch.cat((F.normalize(x), made.x)),
                torch.cat((F.normalize(p), made.p)),
            )
            labels = torch.cat((y, made.y))
            steps["generation"] = lambda ours=ours: synthesize(x, y, p, ours.draw(y), True)  # type: ignore[misc]
            steps["reference_step"] = lambda ours=ours: ours.by_reference(  # type: ignore[misc]
                ours.draw(y), x, y, p
            ).backward()
        steps["loss"] = lambda a=unit_x, b=labels, c=unit_p: NormSoftmax(SCALE)(a, b, c)  # type: ignore[misc]
        seconds = in_turn(steps, 5 if quick else 200, x, p)
        rows.append(
            {"table": "Table A", "threads": threads, "mu": mu,
             "generation_ms": 1e3 * seconds["generation"] if "generation" in seconds else None,
             "loss_ms": 1e3 * seconds["loss"], "reference_step_ms": 1e3 * seconds["reference_step"],
             "fused_step_ms": 1e3 * seconds["fused_step"],
             "features_reference": len(unit_x), "features_fused": N}
        )  # fmt: skip
    return rows


def batch(c: int) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings near their proxies, as in training; proxies of the length they start with."""
    generator = torch.Generator().manual_seed(0)
    p = torch.empty(c, D).uniform_(-(D**-0.5), D**-0.5, generator=generator)
    y = torch.randint(c, (N,), generator=generator)
    x = torch.randn(N, D, generator=generator) * 0.5 + 20 * p[y]
    return x.requires_grad_(), y, p.requires_grad_()


def in_turn(steps: dict[str, Step], rounds: int, *learnt: Tensor) -> dict[str, float]:
    """The median seconds of each step, all taking turns; gradients are dropped between them.

    Every round has an order of its own: what a step finds in the caches is the work of the one
    before it, and none should always come after the same.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    order, draw = list(steps), random.Random(0)
    for turn in range(rounds + 1):
        draw.shuffle(order)
        for name in order:
            step = steps[name]
            for tensor in learnt:
                tensor.grad = None
            start = time.perf_counter()
            step()
            if turn:  # the first round warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


TABLES = (Artifact("tableA", "time and memory over mu", lambda scale: (), _tableA),)
