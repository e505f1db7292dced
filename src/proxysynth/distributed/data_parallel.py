"""Several processes, one training: how a batch is divided over the ranks and put together again.

    pictures of a batch   rank 0: 0..n/2     rank 1: n/2..n          each embeds its own
    embeddings            gathered, with gradients: every rank holds all n of them
    loss                  every rank computes the same one, of the whole batch
    gradient              of the network: each rank has its pictures' share, the mean is taken

A loss that looks at the whole batch (Proxy-anchor, Proxy Synthesis) so sees what it would see in
one process. Every rank differentiates the same L, and gathering gives back the sum over the ranks,
which is world times the gradient; the mean over the ranks makes it the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from proxysynth.data import Batch, Loader
from proxysynth.distributed.collectives import gather
from proxysynth.distributed.process_group import Indices, Ranks
from proxysynth.models.embedder import Embedder

LEAST = 2  # pictures that live batch norm needs of its own
AT_ONCE = 1 << 23  # numbers exchanged in one go


def shared_batches(
    loader: Loader, plan: Sequence[Indices], seed: int, epoch: int, ranks: Ranks
) -> Iterator[Batch]:
    """The batches of a plan: this rank's share of the images; labels and indices of all of them."""
    if ranks.world == 1:
        yield from loader.batches(plan, seed, epoch)
        return
    plan = [np.asarray(indices, dtype=np.int64) for indices in plan]
    shares = [indices[ranks.part(len(indices))] for indices in plan]
    labels = loader.listing.labels
    for indices, batch in zip(plan, loader.batches(shares, seed, epoch), strict=True):
        whole = torch.from_numpy(labels[indices]), torch.from_numpy(indices.copy())
        yield Batch(batch.images, *whole)


@dataclass(frozen=True)
class WholeBatch:
    """A network that embeds this rank's pictures and gives the embeddings of the whole batch.

    Args:
        net: embeds pictures.
        stages: of that embedder.
        n: pictures of all ranks together.
    """

    net: nn.Module
    stages: tuple[str, ...]
    n: int
    ranks: Ranks

    def __call__(
        self, images: Tensor, mix: Callable[[Tensor], Tensor] | None = None, at: int = 0
    ) -> Tensor:
        """Embeddings (n, d).

        Args:
            images: this rank's, or those of the whole batch.
            mix, at: as the embedder takes them; what is mixed is the whole batch.
        """
        own = self.ranks.part(self.n)
        if len(images) == self.n:
            images = images[own]
        if mix is None:
            x = self.net(images)
        else:
            # A compiled network would be compiled anew for each draw; the one it came from is not.
            net = getattr(self.net, "_orig_mod", self.net)
            x = net(images, mix=lambda h: mix(gather(h, self.n, self.ranks))[own], at=at)
        return gather(x.float() if x.dtype != torch.float64 else x, self.n, self.ranks)


def begin_alike(tensors: Iterable[Tensor], ranks: Ranks) -> None:
    """Weights become the first rank's, in every bit; from then on all make the same steps."""
    for tensor in tensors if ranks.world > 1 else ():
        held = tensor.detach().contiguous()
        dist.broadcast(held, 0)
        tensor.detach().copy_(held)


def average_gradients(parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
    """Every gradient becomes its mean over the ranks; many small ones travel together.

    Which parameters have one is the same on all ranks, also on one without a picture: its are zero.
    """
    if ranks.world == 1:
        return
    waiting = []
    for gradients in _together([p.grad for p in parameters if p.grad is not None]):
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        waiting.append((gradients, flat, dist.all_reduce(flat, async_op=True)))
    for gradients, flat, work in waiting:
        work.wait()
        flat /= ranks.world
        for gradient, part in zip(
            gradients, flat.split([g.numel() for g in gradients]), strict=True
        ):
            gradient.copy_(part.view_as(gradient))


def _together(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Gradients in groups that are exchanged in one go: of one type, and not too large."""
    group: list[Tensor] = []
    for gradient in gradients:
        size = sum(held.numel() for held in group) + gradient.numel()
        if group and (size > AT_ONCE or gradient.dtype != group[0].dtype):
            yield group
            group = []
        group.append(gradient)
    if group:
        yield group


def with_shared_statistics(net: Embedder, ranks: Ranks, device: torch.device) -> Embedder:
    """On GPUs, batch norm over the pictures of all ranks; on the CPU torch has none."""
    if ranks.world == 1 or device.type != "cuda" or net.batch_norm_frozen:
        return net
    return cast(Embedder, nn.SyncBatchNorm.convert_sync_batchnorm(net))


def live_batch_norm(net: nn.Module) -> list[_BatchNorm]:
    """The layers that would normalise by the statistics of this rank's pictures alone."""
    return [
        module
        for module in net.modules()
        if isinstance(module, _BatchNorm)
        and not isinstance(module, nn.SyncBatchNorm)
        and module.training
    ]


@contextmanager
def few_pictures(net: nn.Module, count: int, ranks: Ranks) -> Iterator[None]:
    """A share of less than two pictures has no statistics of its own: it uses the running ones."""
    resting = live_batch_norm(net) if ranks.world > 1 and count < LEAST else []
    for module in resting:
        module.eval()
    try:
        yield
    finally:
        for module in resting:
            module.train()


def merge_statistics(net: nn.Module, ranks: Ranks) -> None:
    """The running statistics of batch norm become their mean over the ranks.

    They are moving averages, which are linear: it does not matter when, or how often, this is done.
    Counts, which are whole numbers, become the first rank's.
    """
    if ranks.world == 1:
        return
    for buffer in net.buffers():
        if buffer.is_floating_point():
            ranks.mean_(buffer)
        else:
            dist.broadcast(buffer, 0)


def about_ranks(net: Embedder, ranks: Ranks) -> tuple[str, ...]:
    """What a result says of several processes, where they make a difference."""
    if ranks.world == 1:
        return ()
    own = any(
        isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm)
        for module in net.modules()
    )
    if net.batch_norm_frozen or not own:
        return (f"Trained by {ranks.world} processes; one alone learns the same up to rounding.",)
    return (
        f"Trained by {ranks.world} processes, in each of which batch norm used the statistics of "
        "its own share of a batch: one process alone gives other numbers, as another seed does.",
    )
