"""Where a run starts, and how far its result moves from there.

A run starts from a pretrained backbone with a new embedding layer, or (`init`) from the whole
network of an earlier run. Interpolation goes part of the way from there to the trained weights:

    w = (1 - a) w_start + a w_trained

A new embedding layer is left out, so that a = 0 gives exactly the pretrained features.
                                                            [Wortsman et al., CVPR 2022, WiSE-FT]
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from proxysynth.data import Loader, Splits
from proxysynth.distributed.process_group import Ranks
from proxysynth.models.embedder import Embedder
from proxysynth.training.inference import BATCH, Trained, embed, label_tensor, load
from proxysynth.training.prepare import Prepared, make_network
from proxysynth.training.run import Run

POINTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The values of a that are tried, and drawn in the report."""
STATISTICS_BATCHES = 8  # to estimate the statistics of batch norm from
APART = 0.1  # how far the proxies of a new class are from their mean, where it has several


@dataclass(frozen=True, eq=False)
class Start:
    """The network before the first step."""

    net: Embedder
    # Its weights, if the run interpolates; of the backbone alone where the embedding layer is new.
    state: dict[str, Tensor]
    earlier: Trained | None = None  # the model it was taken from

    @property
    def seen(self) -> tuple[str, ...]:
        """The classes that its weights were trained on."""
        return () if self.earlier is None else self.earlier.recorded.all_seen

    def with_remark(self, splits: Splits) -> Splits:
        """The splits, with a note if test classes are not unseen to the network."""
        tested = set(splits.query.classes)
        known = tested & set(self.seen) - set(splits.train.classes)
        if not known:
            return splits
        share = f"{len(known)} of {len(tested)} test classes"
        note = f"{share} were seen by the run that this one starts from."
        return replace(splits, notes=(*splits.notes, note))

    def proxies(self, drawn: Tensor, ready: Prepared, rows: range | None, ranks: Ranks) -> Tensor:
        """The proxies of the earlier run by the names of their classes; for new classes, the mean
        embedding of their images, as long as the earlier proxies are on average.

        Args:
            drawn: the run's proxies as they were drawn, or its `rows` of them: (c, d) or (c, k, d).
        """
        assert self.earlier is not None
        earlier, classes = self.earlier, ready.splits.train.classes
        # Another loss may have another number of proxies per class.
        fits = earlier.proxies.shape[1:] == drawn.shape[1:]
        known = dict(zip(earlier.classes, earlier.proxies, strict=True)) if fits else {}
        means: dict[str, Tensor] = {}
        if new := [name for name in classes if name not in known]:
            images = ready.tester(ready.splits.train.of_classes(new))
            means = dict(zip(new, class_means(ready.net, images, ranks), strict=True))
        length = earlier.proxies.norm(dim=-1).mean()
        proxies = drawn.clone()
        for i, number in enumerate(range(len(classes)) if rows is None else rows):
            name = classes[number]
            if name in known:
                proxies[i] = known[name]
                continue
            mean = means[name].to(proxies)
            if proxies.ndim == 3:  # equal proxies would always get equal gradients
                mean = F.normalize(mean + APART * F.normalize(proxies[i], dim=-1), dim=-1)
            proxies[i] = length * mean
        return proxies

    def interpolated(self, trained: Embedder, a: float, images: Loader, seed: int) -> Embedder:
        """A new network between its start (a = 0) and the trained one (a = 1). Its batch norm has
        statistics of its own, estimated on images; frozen ones, the same at both ends, stay."""
        net = copy.deepcopy(trained)
        theirs = net.state_dict()
        own = {key: value.to(theirs[key]) for key, value in self.state.items()}
        moved = any("running_" in key and not torch.equal(own[key], theirs[key]) for key in own)
        mixed = {
            key: torch.lerp(value, theirs[key], a) if value.is_floating_point() else value
            for key, value in own.items()
        }
        net.load_state_dict({**theirs, **mixed})
        if not any(key.startswith("embedding.") for key in self.state):
            net.embedding, net.dim = nn.Identity(), net.channels
        if moved and 0 < a < 1:
            estimate_statistics(net, images, seed)
        return net


def make_start(run: Run, side: int | None) -> Start:
    """The run's network, with the weights of the earlier run, if any; `side` is that of images
    in memory."""
    if run.init is None:
        net, earlier = make_network(run, side), None
    else:
        # The run names its backbone itself; what the earlier one's file names is not called.
        earlier = load(run.init, "cpu", backbone=run.backbone)
        net = make_network(run, side, True, earlier.recorded.architecture)
        try:
            net.load_state_dict(earlier.embedder.state_dict())
        except RuntimeError as error:
            fault = f"init={run.init}: {str(error).splitlines()[1].strip()}"
            raise ValueError(f"{fault}: use the same backbone, width, dim and pooling") from error
    state = {
        key: value.detach().clone()
        for key, value in net.state_dict().items()
        if run.interpolate is not None and (earlier or key.startswith("backbone."))
    }
    return Start(net, state, earlier)


def class_means(net: Embedder, loader: Loader, ranks: Ranks) -> Tensor:
    """The mean embedding of each class at unit length, (c, d)."""
    x, y = embed(net, loader, ranks=ranks).double(), label_tensor(loader.listing)
    sums = torch.zeros(len(loader.listing.classes), x.shape[1], dtype=x.dtype)
    return F.normalize(sums.index_add_(0, y, x), dim=1).float()


def estimate_statistics(net: Embedder, images: Loader, seed: int) -> None:
    """Batch norm's mean and variance as the average over some batches, in random order, since a
    batch of one class has a smaller variance than all images."""
    order = np.random.default_rng(seed).permutation(len(images.listing))
    plan = [order[i : i + BATCH] for i in range(0, len(order), BATCH)][:STATISTICS_BATCHES]
    plan = [batch for batch in plan if len(batch) > 1]
    device = next(net.parameters()).device
    torch.manual_seed(seed)  # of dropout
    update_bn((batch.inputs(device) for batch in images.batches(plan)), net)
