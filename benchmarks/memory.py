"""Peak memory of one step, without embeddings and proxies; each method runs in its own process.

Every step allocates the gradient of the proxies, c x d numbers; `beyond_gradient_mb` is the rest,
which must not grow with c on the blocked path.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from benchmarks import Row
from benchmarks.step import SCALE, D, authors, batch, plain
from benchmarks.timing import in_own_process, peak, reset_peak
from proxysynth.distributed import blocked_loss
from proxysynth.losses import NormSoftmax, ProxyAnchor
from proxysynth.regularizers import ProxySynthesis

CLASSES = (11_318, 100_000, 200_000)
TARGET = 0.40
"""Fraction of the plain loss's memory, for the fused path at the largest number of classes."""
FLAT = 50.0
"""Megabytes beyond the gradient, for the blocked path at every number of classes."""

METHODS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "plain": plain,
    "authors' formulation": authors,
    "reference": lambda x, y, p: _by(lambda s, d: s.by_reference(d, x, y, p), y),
    "mixed similarity": lambda x, y, p: _by(lambda s, d: s.by_similarity(d, x, y, p), y),
    "fused": ProxySynthesis(NormSoftmax(SCALE)),
    "fused Proxy-anchor": ProxySynthesis(ProxyAnchor()),
    "blocked": lambda x, y, p: _by(lambda s, d: s.by_class_sums(d, x, y, p, keep=False), y),
    "blocked Proxy-anchor": lambda x, y, p: blocked_loss(ProxySynthesis(ProxyAnchor()), x, y, p),
    "blocked, without synthesis": lambda x, y, p: blocked_loss(NormSoftmax(SCALE), x, y, p),
}

QUICK = ("plain", "reference", "fused", "blocked")


def run(quick: bool = False) -> list[Row]:
    """A row per method and size: peak extra megabytes of one step, gradients included."""
    rows: list[Row] = []
    sizes = (2_000,) if quick else CLASSES
    for c in sizes:
        taken = {name: _alone(name, c) for name in (QUICK if quick else METHODS)}
        for name, megabytes in taken.items():
            ratio, beyond = megabytes / taken["plain"], megabytes - 4 * c * D / 2**20
            target, reached = None, None
            if name == "fused" and c == sizes[-1]:
                target, reached = f"{TARGET} of plain", ratio <= TARGET
            elif name.startswith("blocked"):
                target, reached = f"{FLAT:.0f} MB flat", beyond <= FLAT
            rows.append(
                {"table": "memory", "classes": c, "method": name, "extra_mb": megabytes,
                 "beyond_gradient_mb": beyond, "of_plain": ratio, "target": target,
                 "reached": reached}
            )  # fmt: skip
    return rows


def _alone(name: str, c: int) -> float:
    return float(in_own_process("memory", name, str(c))["extra_mb"])


def measure(name: str, c: int) -> None:
    """Print, as JSON, the peak memory that one step of a method adds to the process."""
    METHODS[name](*batch(50)).backward()  # the first call loads libraries
    x, y, p = batch(c)
    before = reset_peak()
    METHODS[name](x, y, p).backward()
    print(json.dumps({"extra_mb": peak() - before}))


def _by(path: Callable[[ProxySynthesis, Any], Tensor], y: Tensor) -> Tensor:
    loss = ProxySynthesis(NormSoftmax(SCALE))
    return path(loss, loss.draw(y))


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2]))
