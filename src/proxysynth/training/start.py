"""Where a run starts, and how far its result moves from there.

A run starts from a pretrained backbone with a new embedding layer, or (`init`) from the whole
network of an earlier run. Interpolation goes part of the way from there to the trained weights:

    w = (1 - a) w_start + a w_trained

It covers what the start has. A new embedding layer is left out: the embeddings are then the
backbone's features, so that a = 0 gives exactly the pretrained features.
                                                            [Wortsman et al., CVPR 2022, WiSE-FT]
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from proxysynth.data import Loader, Splits
from proxysynth.distributed.process_group import Ranks
from proxysynth.models.embedder import Embedder
from proxysynth.training.inference import BATCH, Tested, Trained, embed, label_tensor, load
from proxysynth.training.prepare import Prepared
from proxysynth.training.run import Run
from proxysynth.training.run_folder import Metrics

POINTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The values of a that are tried, and drawn in the report."""
STATISTICS_BATCHES = 8  # of pictures, to estimate the statistics of batch norm
APART = 0.1  # how far the proxies of a new class are from their mean, where it has several


@dataclass(frozen=True, eq=False)
class Start:
    """The network before the first step."""

    # Its weights, if the run interpolates; of the backbone alone where the embedding layer is new.
    state: dict[str, Tensor]
    earlier: Trained | None = None  # the model it was taken from

    @property
    def seen(self) -> tuple[str, ...]:
        """The classes that its weights were trained on."""
        return () if self.earlier is None else self.earlier.recorded.all_seen

    def with_remark(self, splits: Splits) -> Splits:
        """The splits, with a note if test classes are not unseen to the network."""
        known = set(splits.query.classes) & set(self.seen) - set(splits.train.classes)
        if not known:
            return splits
        note = (
            f"{len(known)} of {len(splits.query.classes)} test classes were seen by the run that "
            "this one starts from."
        )
        return replace(splits, notes=(*splits.notes, note))


def make_start(run: Run, net: Embedder) -> Start:
    """Put the weights of the earlier run, if any, into a new network, and remember the start."""
    earlier = None
    if run.init is not None:
        # The run names its backbone itself; what the earlier one's file names is not called.
        earlier = load(run.init, "cpu", backbone=run.backbone)
        try:
            net.load_state_dict(earlier.embedder.state_dict())
        except RuntimeError as error:
            difference = str(error).splitlines()[1].strip()
            raise ValueError(
                f"init={run.init} has another network ({difference}): use the same backbone, "
                "width, dim and pooling"
            ) from error
    state = {
        key: value.detach().clone()
        for key, value in net.state_dict().items()
        if run.interpolate is not None and (earlier or key.startswith("backbone."))
    }
    return Start(state, earlier)


def class_means(net: Embedder, loader: Loader, ranks: Ranks) -> Tensor:
    """The mean embedding of each class at unit length, (c, d)."""
    x, y = embed(net, loader, ranks=ranks).double(), label_tensor(loader.listing)
    sums = torch.zeros(len(loader.listing.classes), x.shape[1], dtype=x.dtype)
    return F.normalize(sums.index_add_(0, y, x), dim=1).float()


def start_proxies(
    start: Start, drawn: Tensor, ready: Prepared, rows: range | None, ranks: Ranks
) -> Tensor:
    """The proxies of the earlier run by the names of their classes; for new classes, the mean
    embedding of their pictures, as long as the earlier proxies are on average.

    Args:
        drawn: the run's proxies as they were drawn, or its `rows` of them: (c, d) or (c, k, d).
    """
    assert start.earlier is not None
    earlier, classes = start.earlier, ready.splits.train.classes
    theirs = earlier.proxies
    # Another loss may have another number of proxies per class.
    fits = theirs.shape[1:] == drawn.shape[1:]
    known = dict(zip(earlier.classes, theirs, strict=True)) if fits else {}
    new = [name for name in classes if name not in known]
    means: dict[str, Tensor] = {}
    if new:
        pictures = ready.tester(ready.splits.train.of_classes(new))
        means = dict(zip(new, class_means(ready.net, pictures, ranks), strict=True))
    length = theirs.norm(dim=-1).mean()
    made = drawn.detach().clone()
    for i, number in enumerate(range(len(classes)) if rows is None else rows):
        name = classes[number]
        if name in known:
            made[i] = known[name]
        else:
            mean = means[name].to(made)
            if made.ndim == 3:  # equal proxies would get equal gradients for ever
                mean = F.normalize(mean + APART * F.normalize(made[i], dim=-1), dim=-1)
            made[i] = length * mean
    return made


@dataclass(frozen=True, eq=False)
class Delivered:
    """What a run delivers."""

    net: Embedder
    proxies: Tensor | None  # of the seen classes; None for those that were trained
    tested: Tested | None  # on the test pictures, if there are any
    interpolation: dict[str, Any] = field(default_factory=dict)
    """Empty, or "a" of the network, the metric "by" which that was chosen, and the metrics and the
    held-out classes' "validation" at all "points" and of the "trained" network, with its layer."""


def interpolate(
    run: Run,
    a: float | Literal["auto"],
    start: Start,
    trained: Delivered,
    validation: Metrics,
    ready: Prepared,
    measure: Callable[[Loader | None, Embedder], Tested | None],
    ranks: Ranks,
) -> Delivered:
    """The network at an a, without a new embedding layer, and the metrics over a; at 1, where
    nothing is interpolated, without those. "auto" is the best a on the held-out classes. The layer
    is no candidate: its MAP@R on the few held-out classes says little about unseen ones.

    Args:
        trained: the trained network; it is not changed.
        validation: its metrics on the held-out classes.
        measure: the metrics of the images of a loader with a network; None without a loader.
    """
    auto, by, pictures = a == "auto", run.measured_best_by, ready.tester(ready.splits.train)
    best, delivered, points = (-1.0, -1.0), trained, []
    for point in [1.0] if a == 1 else sorted({*POINTS, *([] if auto else [float(a)])}):
        net = interpolated(start, trained.net, point, pictures, run.seed)
        tested, held = measure(ready.query, net), measure(ready.validation if auto else None, net)
        points.append({"a": point, **_measured(tested, {} if held is None else held.metrics)})
        score = float(point == a) if held is None else held.metrics[by]
        if (score, point) > best:
            best, delivered = (score, point), Delivered(net, None, tested)
    about: dict[str, Any] = {"a": best[1], "by": by if auto else None, "points": points}
    about["trained"] = _measured(trained.tested, dict(validation) if auto else {})
    means = class_means(delivered.net, pictures, ranks)
    return replace(delivered, proxies=means, interpolation=about)


def _measured(tested: Tested | None, validation: dict[str, float]) -> dict[str, Any]:
    return {"metrics": {} if tested is None else tested.metrics, "validation": validation}


def interpolated(
    start: Start, trained: Embedder, a: float, pictures: Loader, seed: int
) -> Embedder:
    """A new network between its start (a = 0) and the trained one (a = 1). Its batch norm has
    statistics of its own, estimated on pictures; frozen ones, the same at both ends, stay."""
    net = copy.deepcopy(trained)
    theirs = net.state_dict()
    own = {key: value.to(theirs[key]) for key, value in start.state.items()}
    moved = any("running_" in key and not torch.equal(own[key], theirs[key]) for key in own)
    mixed = {
        key: torch.lerp(value, theirs[key], a) if value.is_floating_point() else value
        for key, value in own.items()
    }
    net.load_state_dict({**theirs, **mixed})
    if not any(key.startswith("embedding.") for key in start.state):
        net.embedding, net.dim = nn.Identity(), net.channels
    if moved and 0 < a < 1:
        estimate_statistics(net, pictures, seed)
    return net


def estimate_statistics(net: Embedder, pictures: Loader, seed: int) -> None:
    """Batch norm's mean and variance as the average over some batches, in random order, since a
    batch of one class has a smaller variance than all pictures."""
    layers = [module for module in net.modules() if isinstance(module, _BatchNorm)]
    order = np.random.default_rng(seed).permutation(len(pictures.listing))
    plan = [order[i : i + BATCH] for i in range(0, len(order), BATCH)][:STATISTICS_BATCHES]
    plan = [batch for batch in plan if len(batch) > 1]
    momenta, device = [layer.momentum for layer in layers], next(net.parameters()).device
    net.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the plain average of all batches
        layer.train()
    with torch.no_grad():
        for batch in pictures.batches(plan):
            net.features(batch.inputs(device))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    net.eval()
