"""Data-parallel training: how a batch is divided over the ranks and put together again.

    images of a batch   rank 0: 0..n/2     rank 1: n/2..n          each embeds its own
    embeddings          gathered, with gradients: every rank holds all n of them
    loss                every rank computes the same one, of the whole batch
    gradient            of the network: each rank has its images' share, the mean is taken

A loss that looks at the whole batch (Proxy-anchor, Proxy Synthesis) thus sees what it would see in
one process. Every rank differentiates the same loss L, and the gather's backward pass sums over the
ranks, which gives world times the gradient; the mean over the ranks makes it the gradient.

Why not DistributedDataParallel: it rearranges its buckets after its first step, and with three or
more processes the order of a sum depends on the bucket. A resumed run then differs from one that
never stopped: with conv4, gloo and torch 2.13, in 15,559 weights after three steps of 3 processes.
On two CPU cores, overlapping communication and backward pass gained nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from proxysynth.distributed.process_group import Ranks
from proxysynth.models.embedder import Embedder


@dataclass(frozen=True)
class WholeBatch:
    """A network that embeds this rank's images and returns the embeddings of the whole batch."""

    module: nn.Module  # the embedder, perhaps compiled
    n: int  # images of all ranks together
    ranks: Ranks

    def __call__(
        self, images: Tensor, mix: Callable[[Tensor], Tensor] | None = None, at: int = 0
    ) -> Tensor:
        """Embeddings (n, d) of this rank's images or those of the whole batch, which is mixed."""
        own, counts = self.ranks.part(self.n), self.ranks.counts(self.n)
        if len(images) == self.n:
            images = images[own]
        with _few_images(self.module, len(images)):
            if mix is None:
                x = self.module(images)
            else:  # not the compiled network, see `Mixup`
                net = getattr(self.module, "_orig_mod", self.module)
                x = net(images, mix=lambda h: mix(self.ranks.gather(h, counts))[own], at=at)
        return self.ranks.gather(x.float() if x.dtype != torch.float64 else x, counts)


def broadcast_weights(tensors: Iterable[Tensor], ranks: Ranks) -> None:
    """Start all ranks from the first one's weights; from then on all take the same steps."""
    for tensor in tensors if ranks.world > 1 else ():
        tensor.detach().copy_(ranks.broadcast(tensor.detach().cpu()))


def average_gradients(parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
    """Replace every gradient by its mean over the ranks, all of one type in one exchange. The same
    parameters have one on all ranks; on a rank without an image they are zero. Gradients of proxies
    that all ranks hold agree up to rounding before, and in every bit afterwards."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    for kind in dict.fromkeys(gradient.dtype for gradient in gradients):
        group = [gradient for gradient in gradients if gradient.dtype == kind]
        flat = torch.cat([gradient.reshape(-1) for gradient in group])
        dist.all_reduce(flat)
        flat /= ranks.world
        sizes = [gradient.numel() for gradient in group]
        for gradient, mean in zip(group, flat.split(sizes), strict=True):
            gradient.copy_(mean.view_as(gradient))


def _own_batch_norm(net: nn.Module) -> list[nn.Module]:
    """The layers that normalize by the statistics of this rank's images alone."""
    norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
    return [norm for norm in norms if not isinstance(norm, nn.SyncBatchNorm)]


@contextmanager
def _few_images(net: nn.Module, count: int) -> Iterator[None]:
    """Use the running statistics of batch norm if this rank has fewer than the two images that it
    needs in training mode."""
    frozen = [norm for norm in _own_batch_norm(net) if norm.training] if count < 2 else []
    for norm in frozen:
        norm.eval()
    try:
        yield
    finally:
        for norm in frozen:
            norm.train()


def merge_statistics(net: nn.Module, ranks: Ranks) -> None:
    """Average the running statistics of batch norm over the ranks. They are moving averages, which
    are linear: it does not matter when, or how often. Integer counts become the first rank's."""
    for buffer in net.buffers() if ranks.world > 1 else ():
        if buffer.is_floating_point():
            buffer.copy_(ranks.sum(buffer) / ranks.world)
        else:
            dist.broadcast(buffer, 0)


def note_on_processes(net: Embedder, ranks: Ranks) -> tuple[str, ...]:
    """A sentence for the result on what several processes change."""
    if ranks.world == 1:
        return ()
    if net.batch_norm_frozen or not _own_batch_norm(net):
        return (f"Trained by {ranks.world} processes; one gives the same result up to rounding.",)
    return (
        f"Trained by {ranks.world} processes, in each of which batch norm used the statistics of "
        "its own share of a batch: one process alone gives other numbers, as another seed does.",
    )
