"""Optimizers, learning-rate schedules and mixed precision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from proxysynth.losses.functional import check_not_negative
from proxysynth.models.embedder import Embedder
from proxysynth.training.checkpoint import part
from proxysynth.training.run import Run

RISE = 0.3  # share of the training in which one_cycle rises
START, END = 1 / 25, 1e-4  # where one_cycle starts and ends


def rate_factor(run: Run, step: int, steps_per_epoch: int) -> float:
    """The factor of every learning rate in a step, counted from 0.

    constant   1
    step       decay^(how many of decay_epochs are over)
    cosine     (1 + cos(pi t)) / 2                       t = share of all steps that are done
    one_cycle  rises to 1 over the first 30%, then falls as a cosine     [Smith and Topin, 2019]

    An extended run keeps the schedule of its first epochs.
    """
    epochs = next((end for end in run.extended if step < end * steps_per_epoch), run.epochs)
    t = step / (epochs * steps_per_epoch)
    start, end = 1.0, 1.0
    if run.schedule == "step":
        return run.decay ** sum(step >= epoch * steps_per_epoch for epoch in run.decay_epochs)
    if run.schedule == "cosine":
        start, end = 1.0, 0.0
    elif run.schedule == "one_cycle" and t < RISE:
        start, end, t = START, 1.0, t / RISE
    elif run.schedule == "one_cycle":
        start, end, t = 1.0, END, (t - RISE) / (1 - RISE)
    return end + (start - end) * (1 + math.cos(math.pi * t)) / 2


def mixed_type(run: Run, device: torch.device) -> torch.dtype | None:
    """The type of matrix products in training; None for plain float32. "auto" is bfloat16 on a GPU
    that supports it, float16 on an older one, and float32 elsewhere."""
    if run.precision == "bfloat16":
        return torch.bfloat16
    if run.precision == "auto" and device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return None


class RowwiseAdam(Optimizer):
    """Adam with one second moment for each row (first index) of a parameter, and no first moment.

        v <- b v + (1 - b) g . g / d          p <- p - lr g / (sqrt(v / (1 - b^t)) + eps)

    For very many proxies: it keeps one number per row, where Adam keeps two per entry. In exchange,
    a step follows the last gradient alone, and all entries of a row share one rate.

    Args:
        beta: b above, the decay of the second moments.
        eps: added to their square roots.
        weight_decay: times the parameter, added to its gradient, as in Adam.
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
            raise ValueError(f"RowwiseAdam: beta must be in [0, 1), got {beta!r}")
        check_not_negative(self, lr=lr, eps=eps, weight_decay=weight_decay)
        super().__init__(params, {"lr": lr, "beta": beta, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            beta = group["beta"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.is_sparse:
                    raise ValueError("RowwiseAdam: expected a dense gradient, got a sparse one")
                state, x, grad = self.state[p], p.view(len(p), -1), p.grad.reshape(len(p), -1)
                if not state:
                    kind = torch.float64 if p.dtype == torch.float64 else torch.float32
                    state["step"] = torch.zeros(())
                    state["square"] = torch.zeros(len(p), dtype=kind, device=p.device)
                state["step"] += 1
                square, correction = state["square"], 1 - beta ** float(state["step"])
                if group["weight_decay"]:
                    grad = grad.add(x, alpha=group["weight_decay"])
                length = torch.linalg.vector_norm(grad, dim=1, dtype=square.dtype)
                square.lerp_(length.square_().div_(x.shape[1]), 1 - beta)
                rate = (square / correction).sqrt_().add_(group["eps"]).reciprocal_()
                x.addcmul_(grad, rate.mul_(-group["lr"])[:, None].to(p.dtype))


def make_optimizers(run: Run, net: Embedder, proxies: nn.Parameter) -> list[Optimizer]:
    """One group each for the backbone (with `layer_decay`, for each of its layers), the embedding
    layer and the proxies, which "rowwise" gives an optimizer of their own. A group keeps its
    learning rate as "base_lr", which the schedule multiplies."""
    groups: list[dict[str, Any]] = []

    def add(name: str, params: Iterable[nn.Parameter], lr: float) -> None:
        groups.append({"params": list(params), "lr": lr, "base_lr": lr, "name": name})

    if run.layer_decay < 1:
        layers = backbone_layers(net.backbone)
        for i, layer in enumerate(layers):
            add(f"backbone_{i}", layer, run.lr * run.layer_decay ** (len(layers) - 1 - i))
    else:
        add("backbone", net.backbone.parameters(), run.lr)
    add("embedding", net.embedding.parameters(), run.embedding_lr or run.lr)
    add("proxies", [proxies], run.proxy_lr)
    own = [groups.pop()] if run.proxy_optimizer == "rowwise" else []
    eps, momentum = {"eps": run.eps}, {"momentum": run.momentum}
    # One kernel for all tensors of a group: small networks spend most of a step here otherwise.
    fused = {"fused": proxies.device.type in ("cpu", "cuda")}
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "adam": (torch.optim.Adam, eps | fused),
        "adamw": (torch.optim.AdamW, eps | fused),
        "rmsprop": (torch.optim.RMSprop, eps | momentum),
        "sgd": (torch.optim.SGD, momentum | fused),
    }
    kind, options = kinds[run.optimizer]
    rowwise = [RowwiseAdam([group], weight_decay=run.weight_decay, **eps) for group in own]
    return [kind(groups, weight_decay=run.weight_decay, **options), *rowwise]


def backbone_layers(backbone: nn.Module) -> list[list[nn.Parameter]]:
    """The backbone's parameters by layer, from input to output. Layers are its `stages`, or the
    items of its longest list of modules, such as the blocks of a transformer; what is defined
    before these is the first layer, what is defined after them the last one."""
    stages = getattr(backbone, "stages", None)
    if isinstance(stages, tuple) and stages:
        starts = [f"{name}." for name in stages]
    else:
        kinds = (nn.ModuleList, nn.Sequential)
        lists = {name: len(m) for name, m in backbone.named_modules() if isinstance(m, kinds)}
        name = max(lists, key=lists.__getitem__, default="")
        starts = [f"{name}.{i}.".lstrip(".") for i in range(lists.get(name, 0))]
    layers: list[list[nn.Parameter]] = [[] for _ in range(len(starts) + 2)]
    for name, parameter in backbone.named_parameters():
        after = len(starts) + 1 if any(layers[1:-1]) else 0
        held = (i for i, start in enumerate(starts, 1) if name.startswith(start))
        layers[next(held, after)].append(parameter)
    return [layer for layer in layers if layer]


def set_rates(optimizers: Iterable[Optimizer], factor: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group["base_lr"]


def named_parameters(optimizers: Iterable[Optimizer]) -> Iterator[tuple[str, Tensor, Optimizer]]:
    """The name of each parameter in a checkpoint, "group.number", and its optimizer."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for i, parameter in enumerate(group["params"]):
                yield f"{group['name']}.{i}", parameter, optimizer


def optimizer_tensors(optimizers: Iterable[Optimizer]) -> dict[str, Tensor]:
    """The state of the optimizers: "group.number.name" -> tensor."""
    return {
        f"{name}.{key}": value
        for name, parameter, optimizer in named_parameters(optimizers)
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)  # SGD has None before its first step
    }


def load_optimizers(optimizers: Iterable[Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Load the state that `optimizer_tensors` returned."""
    for name, parameter, optimizer in named_parameters(optimizers):
        for key, value in part(tensors, f"{name}.").items():
            if value.shape == parameter.shape:
                # Another order in memory is summed in another order, and rounds differently.
                state = torch.empty_like(parameter, requires_grad=False).copy_(value)
            else:
                # The count of steps stays on the CPU, unless a kernel on the device reads it.
                on_cpu = key == "step" and not optimizer.defaults.get("fused")
                state = value.to("cpu" if on_cpu else parameter.device, copy=True)
            optimizer.state[parameter][key] = state
