"""One step of the loss, forward and backward: what Proxy Synthesis costs.

All methods take turns in one run, on the same tensors; medians count, and only their ratios mean
anything on another machine.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.losses import ArcFace, CosFace, NormSoftmax, ProxyAnchor, Softmax, SphereFace
from proxysynth.regularizers import ProxySynthesis
from proxysynth.regularizers.synthesis import synthesize

N, D, SCALE = 128, 512, 23.0
CLASSES = (98, 3_997, 11_318, 100_000)
"""The seen classes of CARS196, In-Shop and Stanford Online Products, and a face data set's size."""
MUS = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0)

Step = Callable[[], Any]
Row = dict[str, Any]


def run(quick: bool = False) -> list[Row]:
    """Rows of three tables: the step, the other fused losses, the paper's Table A."""
    rows = []
    for threads in sorted({1, torch.get_num_threads()}):
        with _threads(threads):
            for c in (98, 500) if quick else CLASSES:
                rows += step_rows(c, threads, quick)
            rows += table_a(threads, quick)
    return rows


def step_rows(c: int, threads: int, quick: bool) -> list[Row]:
    """Every method at one number of classes."""
    x, y, p = batch(c)
    ours = ProxySynthesis(NormSoftmax(SCALE))
    methods: dict[str, Step] = {
        "plain": lambda: plain(x, y, p).backward(),
        **_peer(c, x, y),
        "authors' formulation": lambda: authors(x, y, p).backward(),
        "reference": lambda: ours.by_reference(_draw(ours, y), x, y, p).backward(),
        "mixed similarity": lambda: ours.by_similarity(_draw(ours, y), x, y, p).backward(),
        "fused": lambda: ours(x, y, p).backward(),
    }
    others = {
        "Softmax": Softmax(),
        "SphereFace": SphereFace(),
        "CosFace": CosFace(),
        "ArcFace": ArcFace(),
        "Proxy-anchor": ProxyAnchor(),
    }
    fused = {name: _fused_step(ProxySynthesis(loss), x, y, p) for name, loss in others.items()}
    seconds = in_turn({**methods, **fused}, _rounds(c, quick), x, p)

    base, theirs, own = (seconds[k] for k in ("plain", "authors' formulation", "fused"))
    limit = 1.5 if c < 3_997 else 0.70
    rows: list[Row] = []
    for name in methods:
        row = {"table": "step", "threads": threads, "classes": c, "method": name}
        row |= {"ms": 1e3 * seconds[name], "of_plain": seconds[name] / base}
        row |= {"of_authors": seconds[name] / theirs, "target": None, "reached": None}
        if name == "fused":
            reached = own / base <= limit and (c < 11_318 or own / theirs <= 0.35)
            also = ", 0.35 of authors'" if c >= 11_318 else ""
            row |= {"target": f"{limit} of plain{also}", "reached": reached}
        rows.append(row)
    for name in others:
        ratio = seconds[name] / own
        rows.append(
            {"table": "other fused losses", "threads": threads, "classes": c, "method": name,
             "ms": 1e3 * seconds[name], "of_fused_norm_softmax": ratio,
             "target": "1.2 of Norm-softmax", "reached": ratio <= 1.2}
        )  # fmt: skip
    return rows


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


def _fused_step(loss: ProxySynthesis, x: Tensor, y: Tensor, p: Tensor) -> Step:
    return lambda: loss(x, y, p).backward()


def _draw(loss: ProxySynthesis, y: Tensor) -> Any:
    return loss.draw(y)


def _rounds(c: int, quick: bool) -> int:
    return 3 if quick else max(5, min(200, 400_000 // c))


def _peer(c: int, x: Tensor, y: Tensor) -> dict[str, Step]:
    """pytorch-metric-learning's Norm-softmax, where it is installed."""
    try:
        from pytorch_metric_learning.losses import NormalizedSoftmaxLoss
    except ImportError:
        return {}
    module = NormalizedSoftmaxLoss(num_classes=c, embedding_size=D, temperature=1 / SCALE)

    def step() -> None:
        module.zero_grad(set_to_none=True)
        module(x, y).backward()

    return {"pytorch-metric-learning": step}


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
