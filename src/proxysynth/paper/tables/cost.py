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
from proxysynth.paper.artifact import Artifact, Cell, Column, Row, Table
from proxysynth.paper.printed import notes_of, number
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import paper_notes
from proxysynth.provenance import provenance
from proxysynth.regularizers import ProxySynthesis
from proxysynth.regularizers.mixing import synthesize

MUS = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0)
N, D, SCALE = 128, 512, 23.0
Step = Callable[[], Any]


def _measured(scale: Scale, store: Store) -> dict[str, Any] | None:
    """The benchmark's rows, measured once per store, and the machine they are from."""
    quick, threads = scale.name == "smoke", torch.get_num_threads()

    def compute() -> dict[str, Any]:
        return {"rows": table_a(threads, quick), **provenance(), "threads": threads}

    found: dict[str, Any] | None = store.cached("table_a", ["quick" if quick else "full"], compute)
    return found


def _tableA(scale: Scale, store: Store) -> Table:
    found = _measured(scale, store)
    by_mu = {row["mu"]: row for row in found["rows"]} if found else {}
    here, about = "", "Nothing was measured."
    if found:
        here = f"CPU, {found['threads']} thread{'s' if found['threads'] > 1 else ''}"
        about = (
            f"Ours was measured on {found['machine']}, medians; the paper's is a GPU, so compare "
            "only ratios within a column."
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
            Column("features / N, reference", here, theirs, "features"),
            Column("features / N, fast path", here, "", "fused features"),
            Column("whole step, reference", here, "", "reference step"),
            Column("whole step, fast path", here, "", "fused step"),
            Column("fast step / plain", here, "", "ratio"),
        ),
        tuple(Row((f"{mu:g}",), _cells(mu, by_mu)) for mu in MUS),
        (
            about,
            "The reference path concatenates synthetics and originals, then computes the loss, as "
            "in the paper. Training uses the fast path: forward and backward in one function, "
            "without a copy of the proxies.",
            *paper_notes(notes_of("tableA")),
            "Section D.1 speaks of an N x N similarity matrix; the loss has one of N x C.",
        ),
    )


def _cells(mu: float, by_mu: dict[float, dict[str, Any]]) -> tuple[Cell, ...]:
    """One row, in the order of the columns."""
    row = by_mu.get(mu, {})

    def cell(field: str, over: float | None = 1.0, paper: str = "", digits: int = 3) -> Cell:
        value = row.get(field)
        ours = () if value is None or not over else (value / over,)
        printed = number("tableA", paper, mu=str(mu)) if paper else None
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
    """Table A at the paper's size: time over mu, generation and loss measured separately."""
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
    """Embeddings near their proxies, as in training; proxies of their initial length."""
    generator = torch.Generator().manual_seed(0)
    p = torch.empty(c, D).uniform_(-(D**-0.5), D**-0.5, generator=generator)
    y = torch.randint(c, (N,), generator=generator)
    x = torch.randn(N, D, generator=generator) * 0.5 + 20 * p[y]
    return x.requires_grad_(), y, p.requires_grad_()


def in_turn(steps: dict[str, Step], rounds: int, *parameters: Tensor) -> dict[str, float]:
    """The median seconds of each step, all taking turns; gradients are reset between them.

    Every round is shuffled: a step's caches are warmed by the one before it, and none should always
    follow the same one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    order, draw = list(steps), random.Random(0)
    for turn in range(rounds + 1):
        draw.shuffle(order)
        for name in order:
            step = steps[name]
            for tensor in parameters:
                tensor.grad = None
            start = time.perf_counter()
            step()
            if turn:  # the first round warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


ARTIFACTS = {"tableA": Artifact(lambda scale: (), _tableA)}
