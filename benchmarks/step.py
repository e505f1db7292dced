"""One step of the loss, forward and backward: what Proxy Synthesis costs.

All methods run alternately on the same data, each in its own process. For every number of classes
and threads, the processes are started three times. Medians are reported; only their ratios carry
over to other machines. Peers, slower paths and `torch.compile` (which needs a C++ compiler, and is
measured without the time of compilation) run with one thread only.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import Row, timing
from benchmarks.turns import Step, Turns, seconds_over_lives
from proxysynth.losses import ArcFace, CosFace, NormSoftmax, ProxyAnchor, Softmax, SphereFace
from proxysynth.paper.tables.cost import SCALE, D, batch, table_a
from proxysynth.regularizers import ProxySynthesis
from proxysynth.regularizers.pairs import Draw

CLASSES = (98, 3_997, 11_318, 100_000)
"""Seen classes of CARS196, In-Shop and Stanford Online Products, and a typical face dataset."""
OTHERS = {
    "Softmax": Softmax(),
    "SphereFace": SphereFace(),
    "CosFace": CosFace(),
    "ArcFace": ArcFace(),
    "Proxy-anchor": ProxyAnchor(),
}
PEER = "pytorch-metric-learning"
COMPILED = ("plain, compiled", "mixed similarity, compiled")
IN_SHORT = ("plain", "authors' formulation", "fused")
LIVES = 3
"""How often the processes of the methods are restarted."""


def run(quick: bool = False) -> list[Row]:
    """Rows of three tables: the step, the other fused losses, Table A."""
    counts = sorted({1, torch.get_num_threads()})
    cases = [(threads, c) for threads in counts for c in ((98,) if quick else CLASSES)]
    rows: list[Row] = []
    for threads, c in cases:
        _announce(f"{c:,} classes, threads: {threads}")
        rows += step_rows(c, threads, quick)
    for threads, c in cases:
        _announce(f"other losses, {c:,} classes, threads: {threads}")
        with Turns(make_step, ("fused", *OTHERS)) as turns:
            rows += other_rows(turns, c, threads, quick)
    for threads in counts:
        _announce(f"Table A, threads: {threads}")
        with timing.threads(threads):
            rows += table_a(threads, quick)
    return rows


def step_rows(c: int, threads: int, quick: bool) -> list[Row]:
    """Rows of every method at one number of classes."""
    lives = 1 if quick else LIVES
    rounds, steps = _rounds(c, quick)
    names: tuple[str, ...] = IN_SHORT
    if threads == 1:
        names = methods() + (COMPILED if not quick and shutil.which("g++") else ())
    seconds = seconds_over_lives(
        lambda: Turns(make_step, names), lives, c, threads, -(-rounds // lives), steps
    )
    base, theirs = seconds["plain"], seconds["authors' formulation"]
    limit = 2.0 if c < 3_997 else 0.70 if c < 11_318 else 0.60
    rows: list[Row] = []
    for name, taken in seconds.items():
        row = {"table": "step", "threads": threads, "classes": c, "method": name}
        row |= {"ms": 1e3 * taken, "of_plain": taken / base, "of_authors": taken / theirs}
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


def plain(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
    """Norm-softmax as usually written: normalize, multiply, cross_entropy."""
    return F.cross_entropy(SCALE * F.normalize(x) @ F.normalize(p).t(), y)


def authors(x: Tensor, y: Tensor, p: Tensor, lam: float | None = None) -> Tensor:
    """Proxy Synthesis in the authors' formulation: normalize, concatenate, normalize, multiply.
    Each row is mixed with the previous; `lam` is drawn by default."""
    if lam is None:
        lam = float(torch.distributions.Beta(0.4, 0.4).sample())
    unit_x, unit_p = F.normalize(x), F.normalize(p)
    own = unit_p[y]
    made_x = lam * unit_x + (1 - lam) * unit_x.roll(1, 0)
    made_p = lam * own + (1 - lam) * own.roll(1, 0)
    all_x = F.normalize(torch.cat((unit_x, made_x)))
    all_p = F.normalize(torch.cat((unit_p, made_p)))
    labels = torch.cat((y, torch.arange(len(p), len(p) + len(x))))
    return F.cross_entropy(SCALE * all_x @ all_p.t(), labels)


def make_step(name: str, c: int) -> Step:
    """A method's step at c classes: forward, backward, gradients dropped before it."""
    x, y, p = batch(c)
    ours = ProxySynthesis(NormSoftmax(SCALE))
    by_similarity, plain_ = ours.by_similarity, plain

    def draw() -> Draw:
        drawn = ours.draw(y)
        assert drawn is not None
        return drawn

    if name in COMPILED:
        torch._inductor.config.compile_threads = 1  # no worker processes during measurements
        name = name.removesuffix(", compiled")
        by_similarity, plain_ = torch.compile(by_similarity), torch.compile(plain)
    if name == PEER:
        from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

        module = NormalizedSoftmaxLoss(num_classes=c, embedding_size=D, temperature=1 / SCALE)
        learned, value = (x, *module.parameters()), lambda: module(x, y)
    else:
        ways: dict[str, Callable[[], Tensor]] = {
            "plain": lambda: plain_(x, y, p),
            "authors' formulation": lambda: authors(x, y, p),
            "reference": lambda: ours.by_reference(draw(), x, y, p),
            "mixed similarity": lambda: by_similarity(draw(), x, y, p),
            "fused": lambda: ours(x, y, p),
            **{name: _loss(ProxySynthesis(loss), x, y, p) for name, loss in OTHERS.items()},
        }
        learned, value = (x, p), ways[name]

    def step() -> None:
        for tensor in learned:
            tensor.grad = None
        value().backward()

    return step


def methods() -> tuple[str, ...]:
    """The names of the methods, with the peer if it is installed."""
    peer = (PEER,) if importlib.util.find_spec("pytorch_metric_learning") else ()
    return ("plain", *peer, "authors' formulation", "reference", "mixed similarity", "fused")


def _loss(loss: ProxySynthesis, x: Tensor, y: Tensor, p: Tensor) -> Callable[[], Tensor]:
    return lambda: loss(x, y, p)


def _announce(what: str) -> None:
    print(f"measuring {what}", file=sys.stderr, flush=True)


def _rounds(c: int, quick: bool) -> tuple[int, int]:
    """Rounds, and steps of each method in a round."""
    if quick:
        return 2, 2
    return (30 if c < 1_000 else 9 if c < 50_000 else 3), max(1, min(10, 20_000 // c))
