"""An optimizer for very many proxies: one number of memory for a row instead of two rows.

Adam keeps two more numbers for every number it learns. Of a million proxies nearly all get no more
than the tail of a softmax in a step, and what Adam remembers of them is three times what they are.
`RowwiseAdam` keeps, for each row g of the gradient, the running mean of g . g / d:

    v <- b v + (1 - b) g . g / d          p <- p - lr g / (sqrt(v / (1 - b^t)) + eps)

What it gives up: there is no first moment, so a step follows the last gradient alone; and all
numbers of a row share one rate, so that a row moves exactly along its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

PIECE = 2**22
"""Numbers updated at a time: what a step takes for itself does not grow with the proxies."""


class RowwiseAdam(torch.optim.Optimizer):
    """Adam with one second moment for each row (first index) of a parameter, and no first moment.

    Args:
        params: parameters or groups of them, as torch's optimizers take them.
        lr: learning rate.
        beta: b above, how slowly the second moments follow; 0.999 is Adam's.
        eps: added to their square roots.
        weight_decay: times the parameter, added to its gradient, as Adam does.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        beta: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if not 0 <= beta < 1:
            raise ValueError(f"RowwiseAdam: beta must lie in 0..1, 1 left out, got {beta!r}")
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not value >= 0:
                raise ValueError(f"RowwiseAdam: {name} must be 0 or more, got {value!r}")
        super().__init__(params, {"lr": lr, "beta": beta, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient."""
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)
        return value

    def _update(self, p: nn.Parameter, grad: Tensor, group: dict[str, Any]) -> None:
        if grad.is_sparse:
            raise ValueError("RowwiseAdam: expected a dense gradient, got a sparse one")
        state = self.state[p]
        if not state:
            kind = torch.float64 if p.dtype == torch.float64 else torch.float32
            state["step"] = torch.zeros(())
            state["square"] = torch.zeros(len(p), dtype=kind, device=p.device)
        state["step"] += 1
        square = state["square"] = state["square"].to(p.device)  # a checkpoint comes by the CPU
        beta, known = group["beta"], 1 - group["beta"] ** float(state["step"])
        p, grad = p.view(len(p), -1), grad.reshape(len(p), -1)  # type: ignore[assignment]
        rows = max(1, PIECE // max(1, p.shape[1]))
        for p_b, g_b, v in zip(p.split(rows), grad.split(rows), square.split(rows), strict=True):
            if group["weight_decay"]:
                g_b = g_b.add(p_b, alpha=group["weight_decay"])
            length = torch.linalg.vector_norm(g_b, dim=1, dtype=v.dtype)
            v.lerp_(length.square_().div_(p.shape[1]), 1 - beta)
            rate = (v / known).sqrt_().add_(group["eps"]).reciprocal_().mul_(-group["lr"])
            p_b.addcmul_(g_b, rate[:, None].to(p.dtype))


class SideBySide:
    """Two optimizers of different parameters, used as one.

    `param_groups` are those of both, the groups themselves: a rate that is set here is set there.
    `state` is one memory for both.
    """

    def __init__(self, first: torch.optim.Optimizer, second: torch.optim.Optimizer) -> None:
        self.optimizers = first, second
        self.param_groups = [*first.param_groups, *second.param_groups]
        first.state.update(second.state)
        self.state = second.state = first.state

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)
