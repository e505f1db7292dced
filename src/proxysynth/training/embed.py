"""Pictures through a network, and how well their embeddings retrieve their class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proxysynth.data import Loader, in_order
from proxysynth.distributed.process_group import ALONE, Ranks
from proxysynth.losses.functional import plain_loss
from proxysynth.models.embedder import Embedder
from proxysynth.retrieval import evaluate
from proxysynth.training.allocator import kept_memory

AT_ONCE = 128  # pictures per batch; memory and speed depend on it

KS = {"sop": (1, 10, 100, 1000), "inshop": (1, 10, 20, 40)}
"""The ks that the literature prints for a data set; (1, 2, 4, 8) for the others."""


def usual_ks(data: str) -> tuple[int, ...]:
    """The ks of Recall@k for a data set by its name or specification."""
    return KS.get(data.partition(":")[0], (1, 2, 4, 8))


def embed(
    net: Embedder,
    loader: Loader,
    *,
    features: bool = False,
    tick: Callable[[int, str], None] | None = None,
    ranks: Ranks = ALONE,
) -> Tensor:
    """The embeddings (n, d) of a loader's pictures, float32 on the CPU, in the listing's order.

    The network is asked in evaluation mode and left in the mode it was in.

    Args:
        features: the backbone's pooled features instead, before the embedding layer.
        tick: called with the pictures of each batch.
        ranks: who divide the batches among them, the same ones as if one embedded all.
    """
    first = next(net.parameters(), torch.zeros(()))  # a user's network may have none
    function = net.features if features else net
    plan = in_order(len(loader.listing), AT_ONCE)
    counts = [sum(map(len, plan[part])) for part in ranks.parts(len(plan))]
    made, done = torch.empty(0, net.channels if features else net.dim), 0
    mode = net.training
    net.eval()
    try:
        with torch.inference_mode(), kept_memory(first.device) as look:
            for batch in loader.batches(plan[ranks.part(len(plan))]):
                x = function(batch.images.to(first.device, first.dtype, non_blocking=True)).float()
                if not len(made):
                    made = torch.empty(counts[ranks.rank], x.shape[1])
                made[done : done + len(x)] = x.cpu()
                done += len(x)
                look()
                if tick is not None:
                    tick(len(x), "")
    finally:
        net.train(mode)
    if tick is not None:
        tick(sum(counts) - done, "")  # what the other ranks did meanwhile
    return ranks.stack(made.clone(), counts)  # clone: an ordinary tensor, not of inference mode


def nearest_class(loss: Any, proxies: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from embeddings (n, d) to the most likely of the seen classes, (n,)."""
    plain, p = plain_loss(loss), proxies.detach().float().cpu()

    def predict(x: Tensor) -> Tensor:
        at_once = max(1, 2**24 // len(p))
        parts = [plain.logits(plain.similarity(part, p)).argmax(1) for part in x.split(at_once)]
        return torch.cat(parts)

    return predict


class EmbeddingsNotFinite(ValueError):
    """A network whose weights are numbers made of pictures what is none."""


@dataclass(frozen=True)
class Tested:
    """Embeddings of a test and its metrics; `gallery` is None where queries are their own."""

    query: Tensor
    gallery: Tensor | None
    metrics: dict[str, float]


def measure(
    net: Embedder,
    query: Loader,
    gallery: Loader | None = None,
    *,
    ks: tuple[int, ...] = (1, 2, 4, 8),
    features: bool = False,
    nmi: bool = False,
    predict: Callable[[Tensor], Tensor] | None = None,
    tick: Callable[[int, str], None] | None = None,
    ranks: Ranks = ALONE,
) -> Tested:
    """Embed the queries (and the gallery) and measure: Recall@k, R-precision, MAP@R.

    Args:
        predict: classes of embeddings, to measure accuracy too; see `nearest_class`.
        ranks: who embed together; the first one ranks, and all get the same metrics.
    """
    x = embed(net, query, features=features, tick=tick, ranks=ranks)
    g = gy = None
    if gallery is not None:
        g, gy = embed(net, gallery, features=features, tick=tick, ranks=ranks), _labels(gallery)
    if not all(bool(torch.isfinite(made).all()) for made in (x, g) if made is not None):
        raise EmbeddingsNotFinite(
            "embeddings must be finite, got NaN or infinity: look at the weights"
        )
    metrics: dict[str, float] = {}
    if ranks.first:
        metrics = evaluate(x, _labels(query), gallery=g, gallery_labels=gy, ks=ks, nmi=nmi)
        if predict is not None:
            right = predict(x) == _labels(query)
            metrics = {"accuracy": right.double().mean().item(), **metrics}
    return Tested(x, g, ranks.tell(metrics))


def _labels(loader: Loader) -> Tensor:
    return torch.from_numpy(loader.listing.labels.copy())
