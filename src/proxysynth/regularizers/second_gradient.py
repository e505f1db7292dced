"""What becomes of hand-written gradients when somebody wants to differentiate them again.

With `create_graph=True` a gradient needs a graph of its own, which hand-written code does not have:
its numbers would be right, and whatever is computed from them (a gradient penalty, a Hessian) would
silently have no gradient. torch calls `backward` with gradients enabled only then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from proxysynth.regularizers.synthesis import Draw

Backward = Callable[..., tuple[Tensor | None, ...]]
Again = Callable[[Draw, Tensor, Tensor, Tensor], Tensor]
"""The same loss of draw, x, y and p, by torch's own operations."""


def again_if_asked(backward: Backward) -> Backward:
    """If a graph is asked, differentiate the loss of `ctx.again`, which is (Again, draw, y).

    Of a function whose first two inputs and first two saved tensors are x and p.
    """

    @functools.wraps(backward)
    def made(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return backward(ctx, *grads)
        x, p = ctx.saved_tensors[:2]
        again, draw, y = ctx.again
        wanted = [v for v, needed in zip((x, p), ctx.needs_input_grad, strict=False) if needed]
        value = again(draw, x, y, p)
        found = iter(torch.autograd.grad(value, wanted, grads[0], create_graph=True))
        return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)

    return made


def refused_if_asked(backward: Backward) -> Backward:
    """An error, if a graph is asked."""

    @functools.wraps(backward)
    def made(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the gradient of a loss that visits its classes in blocks cannot be differentiated "
                "again: leave out create_graph=True, or call by_reference, which needs more memory"
            )
        return backward(ctx, *grads)

    return made
