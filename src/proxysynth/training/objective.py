"""What training minimises: a function of the network, pictures, labels and proxies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from proxysynth.interfaces import Loss, Objective
from proxysynth.regularizers.mixup import InputMixup, ManifoldMixup, Mixing


@dataclass(frozen=True)
class Plain:
    """The loss of the pictures' embeddings; Proxy Synthesis is such a loss."""

    loss: Loss

    def __call__(
        self,
        net: nn.Module,
        images: Tensor,
        y: Tensor,
        p: Tensor,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        x = net(images)
        return _unless_broken(x, lambda: self.loss(x, y, p, generator=generator))


@dataclass(frozen=True)
class Mixup:
    """The loss of mixed pictures, or of what a stage of the network makes of them, for both of
    their labels: `InputMixup` and `ManifoldMixup` say what is drawn and how it is scored."""

    loss: InputMixup | ManifoldMixup

    def __call__(
        self,
        net: nn.Module,
        images: Tensor,
        y: Tensor,
        p: Tensor,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        drawn = self.loss.draw(len(y), _depth(net), generator)
        x = _embedded(net, images, drawn)
        return _unless_broken(x, lambda: drawn.score(self.loss.loss, x, y, p))


def make_objective(loss: Any) -> Objective:
    """What a run with this loss, or regulariser, minimises."""
    return Mixup(loss) if isinstance(loss, (InputMixup, ManifoldMixup)) else Plain(loss)


def _embedded(net: nn.Module, images: Tensor, drawn: Mixing) -> Tensor:
    if drawn.at == 0:
        x: Tensor = net(drawn(images))  # any network will do, and a compiled one stays so
        return x
    # A translated network would be translated anew for every share; the one it came from is not.
    x = getattr(net, "_orig_mod", net)(images, mix=drawn, at=drawn.at)
    return x


def _depth(net: nn.Module) -> int:
    """How many stages the network has; a wrapper for several processes hides them in `module`."""
    inside = net if hasattr(net, "stages") else getattr(net, "module", net)
    return len(getattr(inside, "stages", ()))


def _unless_broken(x: Tensor, value: Callable[[], Tensor]) -> Tensor:
    """The loss; where embeddings are not numbers, something that is not one either: the loop then
    names the pictures, which a loss cannot."""
    return value() if torch.isfinite(x.detach()).all() else x.sum()
