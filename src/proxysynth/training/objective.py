"""What training minimises: a function of the network, pictures, labels and proxies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proxysynth.interfaces import ProxyLoss
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis


@dataclass(frozen=True)
class Plain:
    """The loss of the pictures' embeddings; Proxy Synthesis is such a loss."""

    loss: ProxyLoss | ProxySynthesis

    def __call__(
        self,
        net: nn.Module,
        images: Tensor,
        y: Tensor,
        p: Tensor,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        x = net(images)
        if not torch.isfinite(x.detach()).all():
            return x.sum()  # NaN or infinite too: the loop names the pictures, a loss cannot
        return self.loss(x, y, p, generator=generator)
