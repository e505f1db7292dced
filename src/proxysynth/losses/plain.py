"""A loss as it stands: check what came, take the similarities, ask the loss."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from proxysynth.interfaces import ProxyLoss
from proxysynth.losses.checks import check_batch


def plain(loss: ProxyLoss, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
    """`from_similarity(similarity(x, p), y)`, and the penalty on the proxies if there is one."""
    y = check_batch(x, y, p, subproxies=has_subproxies(loss))
    value = loss.from_similarity(loss.similarity(x, p), y)
    return value + penalty(loss, p)


def plain_loss(loss: Any) -> Any:
    """The loss that a regulariser holds, or the loss itself."""
    while dataclasses.is_dataclass(loss) and hasattr(loss, "loss"):
        loss = loss.loss
    return loss


def has_subproxies(loss: object) -> bool:
    """Whether the loss keeps k proxies per class, of shape (c, k, d)."""
    return hasattr(loss, "k")


def penalty(loss: object, p: Tensor) -> Tensor | float:
    """The loss's term of the proxies alone, where it has one."""
    return loss.penalty(p) if hasattr(loss, "penalty") else 0.0
