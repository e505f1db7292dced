"""Table A: what Proxy Synthesis costs in time and memory, over mu."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.formatting import count
from proxysynth.losses import NormSoftmax
from proxysynth.paper.artifact import Cell, Column, Table, grid
from proxysynth.paper.printed import number
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import paper_notes
from proxysynth.provenance import provenance
from proxysynth.regularizers import ProxySynthesis
from proxysynth.regularizers.mixing import synthesize

MUS = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0)
N, D, SCALE = 128, 512, 23.0
Step = Callable[[], Any]
COLUMNS = {
    "generation": ("generation", "generation_ms", "generation_ms", 3),
    "loss": ("loss", "loss_ms", "loss_ms", 3),
    "features": ("features / N, reference", "features_reference", "features_over_n", 2),
    "fused features": ("features / N, fast path", "features_fused", "", 2),
    "reference step": ("whole step, reference", "reference_step_ms", "", 3),
    "fused step": ("whole step, fast path", "fused_step_ms", "", 3),
    "ratio": ("fast step / plain", "fused_step_ms", "", 2),
}
"""By key: the heading, our field, the paper's field if there is one, and digits."""


def _tableA(scale: Scale, store: Store) -> Table:
    quick, threads = scale.name == "smoke", torch.get_num_threads()

    def compute() -> dict[str, Any]:
        return {"rows": table_a(threads, quick), **provenance(), "threads": threads}

    found = store.cached("table_a", ["quick" if quick else "full"], compute)
    by_mu, here, about = {}, "", "Nothing was measured."
    if found:
        by_mu = {row["mu"]: row for row in found["rows"]}
        here = f"CPU, {count(found['threads'], 'thread')}"
        about = (
            f"Ours was measured on {found['machine']}, medians; the paper's is a GPU, so compare "
            "only ratios within a column."
        )

    columns = {
        Column(name, here, "Tesla P40" if fields[1] else "", key): (key, *fields)
        for key, (name, *fields) in COLUMNS.items()
    }

    def cell(mu: float, key: str, field: str, paper: str, digits: int) -> Cell:
        value = by_mu.get(mu, {}).get(field)
        over = N if "features" in key else by_mu[0.0][field] if key == "ratio" and found else 1.0
        ours = () if value is None else (value / over,)
        printed = number("tableA", paper, mu=str(mu)) if paper else None
        return Cell(ours, printed, digits=digits, better=-1)

    return Table(
        "Table A",
        f"Time (ms) and memory over mu, with a batch of N = {N} embeddings of 512 dimensions and "
        "the 98 classes of CARS196.",
        ("mu",),
        *grid(columns, {(f"{mu:g}",): (mu,) for mu in MUS}, cell),
        (
            about,
            "The reference path concatenates synthetics and originals, then computes the loss, as "
            "in the paper. Training uses the fast path: forward and backward in one function, "
            "without a copy of the proxies.",
            *paper_notes("tableA"),
            "Section D.1 speaks of an N x N similarity matrix; the loss has one of N x C.",
        ),
    )


def table_a(threads: int, quick: bool) -> list[dict[str, Any]]:
    """Table A at the paper's size: time over mu, generation and loss measured separately."""
    x, y, p = batch(98)
    plain = NormSoftmax(SCALE)

    def measure(mu: float) -> dict[str, Any]:
        ours = ProxySynthesis(plain, mu=mu)
        unit_x, unit_p, labels = F.normalize(x), F.normalize(p), y
        steps: dict[str, Step] = {"fused_step": lambda: ours(x, y, p).backward()}
        if (first := ours.draw(y)) is None:
            steps["reference_step"] = lambda: plain(x, y, p).backward()
        else:
            draw: Callable[[], Any] = partial(ours.draw, y)
            made = synthesize(x, y, p, first, True)
            unit_x, unit_p = torch.cat((unit_x, made.x)), torch.cat((unit_p, made.p))
            labels = torch.cat((y, made.y))
            steps["generation"] = lambda: synthesize(x, y, p, draw(), True)
            steps["reference_step"] = lambda: ours.by_reference(draw(), x, y, p).backward()
        steps["loss"] = lambda: plain(unit_x, labels, unit_p)
        seconds = in_turn(steps, 5 if quick else 200, x, p)
        times = {
            f"{name}_ms": 1e3 * seconds[name] if name in seconds else None
            for name in ("generation", "loss", "reference_step", "fused_step")
        }
        about = {"table": "Table A", "threads": threads, "mu": mu}
        return {**about, **times, "features_reference": len(unit_x), "features_fused": N}

    return [measure(mu) for mu in MUS]


def batch(c: int) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings near their proxies, as in training; proxies of their initial length."""
    generator = torch.Generator().manual_seed(0)
    p = torch.empty(c, D).uniform_(-(D**-0.5), D**-0.5, generator=generator)
    y = torch.randint(c, (N,), generator=generator)
    x = torch.randn(N, D, generator=generator) * 0.5 + 20 * p[y]
    return x.requires_grad_(), y, p.requires_grad_()


def in_turn(steps: dict[str, Step], rounds: int, *parameters: Tensor) -> dict[str, float]:
    """The median seconds of each step, all taking turns; gradients are reset between them. Every
    round is shuffled, so that no step always follows the same one, which warms its caches."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    order, draw = list(steps), random.Random(0)
    for turn in range(rounds + 1):
        draw.shuffle(order)
        for name in order:
            for tensor in parameters:
                tensor.grad = None
            start = time.perf_counter()
            steps[name]()
            if turn:  # the first round warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


ARTIFACTS = {"tableA": _tableA}
