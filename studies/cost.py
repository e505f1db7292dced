"""What a step of each variant costs: `studies/cost.py` writes results/study_variant_cost.csv.

Forward and backward of one step, batch 128, 512 dimensions, 98 classes, one thread. All methods
take turns; the median of each is divided by that of Proxy Synthesis over mixed similarities, which
the variants are built on, and by that of the plain loss. The machine should be idle.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from run import RESULTS
from torch import Tensor
from variants import HarderPartners, KParents, MuRamp, ParentsApart, SoftPairs

from proxysynth.files import write_bytes
from proxysynth.losses import NormSoftmax, ProxyAnchor
from proxysynth.paper.render import rows_csv
from proxysynth.provenance import provenance
from proxysynth.regularizers import ProxySynthesis

N, D, C = 128, 512, 98
ROUNDS, STEPS = 60, 5
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def methods(loss: Any) -> dict[str, Loss]:
    """The plain loss, Proxy Synthesis by two paths, and the variants of this loss."""
    synthesis = ProxySynthesis(loss)

    def mixed(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        draw = synthesis.draw(y)
        assert draw is not None
        return synthesis.by_similarity(draw, x, y, p)

    found: dict[str, Loss] = {"none": loss, "proxy_synthesis": mixed, "fused": synthesis}
    if isinstance(loss, ProxyAnchor):
        return found | {
            f"soft_{how}": SoftPairs(loss, how=how) for how in ("weight", "margin", "apart")
        }
    return found | {
        "harder_partners": HarderPartners(loss),
        "parents_apart": ParentsApart(loss),
        "three_parents": KParents(loss, parents=3),
        "four_parents": KParents(loss, parents=4),
        "mu_ramp": MuRamp(loss, steps=1),  # after the ramp, when it costs most
    }


def seconds(kinds: dict[str, Loss]) -> dict[str, float]:
    """The median time of a step of each method."""
    torch.manual_seed(0)
    x = torch.randn(N, D, requires_grad=True)
    y, p = torch.randint(C, (N,)), torch.randn(C, D, requires_grad=True)
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, loss in kinds.items():
            start = time.perf_counter()
            for _ in range(STEPS):
                loss(x, y, p).backward()
            taken[name].append((time.perf_counter() - start) / STEPS)
    return {name: statistics.median(each[2:]) for name, each in taken.items()}


def main() -> None:
    torch.set_num_threads(1)
    facts, rows = provenance(), []
    for name, loss in (("norm_softmax", NormSoftmax()), ("proxy_anchor", ProxyAnchor())):
        found = seconds(methods(loss))
        for kind, taken in found.items():
            of = {"plain": found["none"], "proxy_synthesis": found["proxy_synthesis"]}
            ratios = {f"of_{base}": f"{taken / of[base]:.3f}" for base in of}
            rows.append(
                {"loss": name, "regularizer": kind, "ms": f"{1e3 * taken:.3f}", **ratios, **facts}
            )
    write_bytes(RESULTS / "study_variant_cost.csv", rows_csv(rows).encode())


if __name__ == "__main__":
    main()
