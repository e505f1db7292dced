"""One step of the loss, forward and backward: what Proxy Synthesis costs.

All methods take turns in one run, on the same numbers, each in a process of its own, new for every
number of classes and of threads and three times for each; medians count, and only their ratios mean
anything elsewhere.
"""

from __future__ import annotations

import importlib.util
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.bench.turns import Step, Turns, seconds_over_lives
from proxysynth.losses import ArcFace, CosFace, NormSoftmax, ProxyAnchor, Softmax, SphereFace
from proxysynth.regularizers import ProxySynthesis
from proxysynth.regularizers.synthesis import synthesize

N, D, SCALE = 128, 512, 23.0
CLASSES = (98, 3_997, 11_318, 100_000)
"""The seen classes of CARS196, In-Shop and Stanford Online Products, and a face data set's size."""
OTHERS = {
    "Softmax": Softmax(),
    "SphereFace": SphereFace(),
    "CosFace": CosFace(),
    "ArcFace": ArcFace(),
    "Proxy-anchor": ProxyAnchor(),
}
PEER = "pytorch-metric-learning"
IN_SHORT = ("plain", "authors' formulation", "fused")
LIVES = 3
"""How often the processes of the methods are begun anew."""
MUS = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0)

Row = dict[str, Any]


def run(quick: bool = False) -> list[Row]:
    """Rows of four tables: the step, with memory kept, the other fused losses, Table A."""
    counts = sorted({1, torch.get_num_threads()})
    cases = [(threads, c) for threads in counts for c in ((98,) if quick else CLASSES)]
    rows: list[Row] = []
    for threads, c in cases:
        rows += step_rows("step", c, threads, quick)
    for threads, c in cases:
        rows += step_rows("memory kept", c, threads, quick)
    for threads, c in cases:
        with Turns(make_step, ("fused", *OTHERS)) as turns:
            rows += other_rows(turns, c, threads, quick)
    for threads in counts:
        with _threads(threads):
            rows += table_a(threads, quick)
    return rows


def step_rows(table: str, c: int, threads: int, quick: bool) -> list[Row]:
    """Every method at one number of classes; where memory is kept, one life is like another."""
    kept = table == "memory kept"
    lives = 1 if kept or quick else LIVES
    rounds, steps = _rounds(c, quick)
    seconds = seconds_over_lives(
        lambda: Turns(make_step, IN_SHORT if kept else methods(), IN_SHORT if kept else ()),
        lives, c, threads, -(-rounds // lives), steps,
    )  # fmt: skip
    base, theirs = seconds["plain"], seconds["authors' formulation"]
    limit = 1.5 if c < 3_997 else 0.70
    rows: list[Row] = []
    for name, taken in seconds.items():
        row = {"table": table, "threads": threads, "classes": c, "method": name}
        row |= {"ms": 1e3 * taken, "of_plain": taken / base, "of_authors": taken / theirs}
        if table == "step":
            row |= {"target": None, "reached": None}
            if name == "fused":
                reached = taken / base <= limit and (c < 11_318 or taken / theirs <= 0.35)
                also = ", 0.35 of authors'" if c >= 11_318 else ""
                row |= {"target": f"{limit} of plain{also}", "reached": reached}
        rows.append(row)
    return rows


def other_rows(turns: Turns, c: int, threads: int, quick: bool) -> list[Row]:
    """The other losses that the fused path serves, beside Norm-softmax."""
    seconds = turns.seconds(c, threads, *_rounds(c, quick))
    own = seconds.pop("fused")
    return [
        {"table": "other fused losses", "threads": threads, "classes": c, "method": name,
         "ms": 1e3 * taken, "of_fused_norm_softmax": taken / own,
         "target": "1.2 of Norm-softmax", "reached": taken / own <= 1.2}
        for name, taken in seconds.items()
    ]  # fmt: skip


def table_a(threads: int, quick: bool) -> list[Row]:
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
                _draw(ours, y), x, y, p
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


def plain(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
    """Norm-softmax as usually written: normalise, multiply, cross_entropy."""
    return F.cross_entropy(SCALE * F.normalize(x) @ F.normalize(p).t(), y)


def authors(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
    """Proxy Synthesis in the authors' formulation: normalise, concatenate, normalise, multiply."""
    lam = float(torch.distributions.Beta(0.4, 0.4).sample())
    unit_x, unit_p = F.normalize(x), F.normalize(p)
    own = unit_p[y]
    made_x = lam * unit_x + (1 - lam) * unit_x.roll(1, 0)
    made_p = lam * own + (1 - lam) * own.roll(1, 0)
    all_x = F.normalize(torch.cat((unit_x, made_x)))
    all_p = F.normalize(torch.cat((unit_p, made_p)))
    labels = torch.cat((y, torch.arange(len(p), len(p) + len(x))))
    return F.cross_entropy(SCALE * all_x @ all_p.t(), labels)


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


def make_step(name: str, c: int) -> Step:
    """A method's step at so many classes: forward, backward, gradients dropped before it."""
    x, y, p = batch(c)
    ours = ProxySynthesis(NormSoftmax(SCALE))
    if name == PEER:
        from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

        module = NormalizedSoftmaxLoss(num_classes=c, embedding_size=D, temperature=1 / SCALE)
        learnt, value = (x, *module.parameters()), lambda: module(x, y)
    else:
        ways: dict[str, Callable[[], Tensor]] = {
            "plain": lambda: plain(x, y, p),
            "authors' formulation": lambda: authors(x, y, p),
            "reference": lambda: ours.by_reference(_draw(ours, y), x, y, p),
            "mixed similarity": lambda: ours.by_similarity(_draw(ours, y), x, y, p),
            "fused": lambda: ours(x, y, p),
            **{name: _loss(ProxySynthesis(loss), x, y, p) for name, loss in OTHERS.items()},
        }
        learnt, value = (x, p), ways[name]

    def step() -> None:
        for tensor in learnt:
            tensor.grad = None
        value().backward()

    return step


def methods() -> tuple[str, ...]:
    """The names of the methods; the peer's where it is installed."""
    peer = (PEER,) if importlib.util.find_spec("pytorch_metric_learning") else ()
    return ("plain", *peer, "authors' formulation", "reference", "mixed similarity", "fused")


def _loss(loss: ProxySynthesis, x: Tensor, y: Tensor, p: Tensor) -> Callable[[], Tensor]:
    return lambda: loss(x, y, p)


def _draw(loss: ProxySynthesis, y: Tensor) -> Any:
    return loss.draw(y)


def _rounds(c: int, quick: bool) -> tuple[int, int]:
    """Rounds, and steps of each method in a round."""
    if quick:
        return 2, 2
    rounds = 60 if c < 1_000 else max(5, min(15, 150_000 // c))
    return rounds, max(1, min(10, 20_000 // c))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
