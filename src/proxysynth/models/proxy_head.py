"""The proxies and their loss as one module, for your own training loop."""

from __future__ import annotations

import gc
import inspect
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from proxysynth.interfaces import Loss
from proxysynth.losses import functional
from proxysynth.values import describe_differences, encode

DATA_PARALLEL = ("DistributedDataParallel", "FullyShardedDataParallel")


class ProxyHead(nn.Module):
    """`criterion(embeddings, labels)` with the proxies as its parameter.

        criterion = ProxyHead(ProxySynthesis(NormSoftmax()), num_classes=98, dim=512)
        optimizer = torch.optim.Adam([
            {"params": network.parameters(), "lr": 1e-4},
            {"params": criterion.parameters(), "lr": 1e-2},
        ])

    A regularizer works in training mode only; in evaluation mode the plain loss is computed.

    With several processes, wrap the head in DistributedDataParallel, or average `proxies.grad` by
    yourself. For a loss over the batch of all processes, see `distributed.gather_with_gradient`.

    Args:
        loss: a loss, a regularizer that holds one, or any `(x, y, p) -> scalar`.
        num_classes: number of classes; or give their names as `classes`.
        dim: dimension of the embeddings.
        classes: names of the classes, saved in the state dict.
        generator: for the initialization, uniform in +-1/sqrt(dim) as in the paper's code.
    """

    def __init__(
        self,
        loss: Loss | Callable[[Tensor, Tensor, Tensor], Tensor],
        num_classes: int | None = None,
        dim: int = 512,
        classes: Sequence[str] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        functional.check_loss(self, loss)
        if isinstance(classes, str):
            raise ValueError(f"classes must be a list of names, got the string {classes!r}")
        self.classes = None if classes is None else _distinct([str(name) for name in classes])
        if num_classes is None and self.classes is not None:
            num_classes = len(self.classes)
        c, d = functional.as_number(num_classes), functional.as_number(dim)
        if not (isinstance(c, int) and isinstance(d, int) and c >= 1 and d >= 1):
            got = f"got num_classes={num_classes!r}, dim={dim!r}"
            raise ValueError(f"num_classes (or classes) and dim must be integers >= 1, {got}")
        if self.classes is not None and len(self.classes) != c:
            raise ValueError(f"num_classes={c}, but {len(self.classes)} names in classes")
        self.loss: Any = loss
        self.plain: Any = functional.plain_loss(loss)
        self._takes_generator = {True: _takes_generator(loss), False: _takes_generator(self.plain)}
        self.trained_with = _describe(loss)
        self._processes_checked = False
        self._k = self.plain.k if functional.has_subproxies(self.plain) else None
        self.proxies = nn.Parameter(self._fresh(c, d, generator))

    def forward(
        self, embeddings: Tensor, labels: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """The loss of embeddings (n, d) with labels (n,); a regularizer draws from `generator`."""
        if self.training:
            self._warn_if_processes_drift_apart()
        loss = self.loss if self.training else self.plain
        drawn = generator is not None and self._takes_generator[self.training]
        more = {"generator": generator} if drawn else {}
        value: Tensor = loss(embeddings, labels, self.proxies, **more)
        if value.dim() > 0:
            shape = tuple(value.shape)
            raise ValueError(f"the loss must return a scalar, got shape {shape}: take its mean")
        # Many proxies take long to check, so they are checked only if something is wrong.
        if functional.values_can_be_read() and not torch.isfinite(value.detach()).all():
            finite = torch.isfinite(self.proxies.detach()).flatten(1).all(dim=1)
            bad = (~finite).nonzero().flatten().tolist()
            if bad:
                where = f"{len(bad)} of {len(finite)} classes, the first is {bad[0]}"
                advice = "use an earlier checkpoint and a lower learning rate"
                raise ValueError(f"proxies must be finite, got NaN or inf in {where}: {advice}")
        return value

    def logits(self, embeddings: Tensor) -> Tensor:
        """Scores (n, c) without a margin; their softmax gives the class probabilities."""
        if not hasattr(self.plain, "logits"):
            raise TypeError(f"{self.plain!r} has no class scores: use a loss of this package")
        functional.check_embeddings(embeddings)
        functional.check_dimensions(embeddings, self.proxies)
        return self.plain.logits(self.plain.similarity(embeddings, self.proxies))

    @torch.no_grad()
    def predict(self, embeddings: Tensor) -> Tensor:
        """The most likely class of each embedding, (n,), as an index into `classes`."""
        return self.logits(embeddings).argmax(dim=1)

    @property
    def num_classes(self) -> int:
        return self.proxies.shape[0]

    @torch.no_grad()
    def add_classes(
        self,
        names: int | Sequence[str],
        optimizer: torch.optim.Optimizer | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Append new classes; the proxies and optimizer state of the old ones stay as they are.

        Every optimizer that trains the proxies has its state enlarged with zeros. One whose state
        cannot be enlarged is refused before anything changes. Call this between steps: a loss that
        was computed before can no longer be differentiated.

        Args:
            names: the new classes' names, or how many there are if the head keeps no names.
            optimizer: one to update; those alive in this process are found automatically.
        """
        number, classes = functional.as_number(names), None
        if self.classes is None and isinstance(number, int):
            count = number
        elif (
            self.classes is not None and isinstance(names, Iterable) and not isinstance(names, str)
        ):
            classes = _distinct([*self.classes, *(str(name) for name in names)])
            count = len(classes) - len(self.classes)
        else:
            kept = "names: give a list of them"
            if self.classes is None:
                kept = "no names: give a number of classes"
            raise ValueError(f"add_classes got {names!r}, but this head keeps {kept}")
        if count < 1:
            raise ValueError(f"add_classes needs at least one new class, got {names!r}")
        training = [] if optimizer is None else [optimizer]
        for held in gc.get_objects():
            if issubclass(type(held), torch.optim.Optimizer) and held is not optimizer:
                parameters = [p for group in held.param_groups for p in group["params"]]
                if any(p is self.proxies for p in parameters):
                    training.append(held)
        grown = [(held, _grown_state(held, self.proxies, count)) for held in training]

        fresh = self._fresh(count, self.proxies.shape[-1], generator).to(self.proxies)
        data = torch.cat((self.proxies.data, fresh))
        # The parameter stays the same object, so optimizers still hold it. Its node in the graph of
        # a loss that is still alive knows the old shape; a change of type makes torch drop it.
        self.proxies.grad = None
        other = torch.float32 if data.dtype == torch.float64 else torch.float64
        self.proxies.data = data[:0].to(other)
        self.proxies.data = data
        self.classes = classes
        for held, state in grown:
            if state:
                held.state[self.proxies] = state

    def _fresh(self, count: int, dim: int, generator: torch.Generator | None) -> Tensor:
        shape = (count, dim) if self._k is None else (count, self._k, dim)
        bound = 1 / math.sqrt(dim)
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)

    # The state dict says what the proxies are proxies of. Text as a tensor of bytes survives every
    # format a state dict is kept in, safetensors among them.

    def get_extra_state(self) -> Tensor:
        text = json.dumps({"loss": _describe(self.loss), "classes": self.classes})
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        try:
            saved = json.loads(bytes(state.tolist()).decode())
            classes, trained_with = saved["classes"], saved["loss"]
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            raise ValueError(f"_extra_state must be JSON of loss and classes: {error!r}") from error
        if self.classes and classes and self.classes != classes:
            pairs = enumerate(zip_longest(self.classes, classes))
            at, (here, there) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
            raise ValueError(
                f"the state dict has {len(classes)} classes and this head {len(self.classes)}, and "
                f"class {at} is {there!r} there and {here!r} here: give "
                "the head the same classes in the same order, or none"
            )
        self.classes, self.trained_with = classes, trained_with
        there, here = _plain_description(trained_with), _plain_description(_describe(self.loss))
        where = ("in the state dict", "in this head")
        if differences := describe_differences({"loss": there}, {"loss": here}, where):
            warnings.warn(f"the state dict is of another loss: {differences}", stacklevel=2)

    def _warn_if_processes_drift_apart(self) -> None:
        """Once, if other processes exist and nothing sums the gradient of the proxies over them."""
        if self._processes_checked or not torch.is_grad_enabled():
            return
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return
        self._processes_checked = True
        callers = {type(call.frame.f_locals.get("self")).__name__ for call in inspect.stack(0)}
        # One of DATA_PARALLEL sums gradients over processes. The first process warns for all.
        if callers.isdisjoint(DATA_PARALLEL) and dist.get_rank() == 0:
            warnings.warn(
                "this ProxyHead is not wrapped in DistributedDataParallel: unless you average "
                "proxies.grad over the processes, each process trains proxies of its own",
                stacklevel=3,
            )

    def extra_repr(self) -> str:
        return f"{self.loss}, num_classes={self.num_classes}, dim={self.proxies.shape[-1]}"


def _takes_generator(loss: Any) -> bool:
    """Whether it takes one, as the losses of this package do; a function of (x, y, p) need not."""
    try:
        return "generator" in inspect.signature(getattr(loss, "forward", loss)).parameters
    except ValueError:  # written in C, without a signature
        return False


def _describe(loss: Any) -> Any:
    """The loss as JSON; as it prints, if it is not a value of this package."""
    try:
        return encode(loss)
    except TypeError:
        # A function prints with its address, which is another in the process that loads it.
        return re.sub(r" at 0x[0-9a-f]+", "", repr(loss))


def _plain_description(loss: Any) -> Any:
    """Without regularizers: the same proxies serve a loss with and without Proxy Synthesis."""
    while isinstance(loss, dict) and isinstance(loss.get("loss"), dict):
        loss = loss["loss"]
    return loss


def _grown_state(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, count: int
) -> dict[str, Any]:
    """An optimizer's state of the proxies with rows of zeros for new classes."""
    state, old = dict(optimizer.state.get(parameter, {})), parameter.shape
    for key, value in state.items():
        if not isinstance(value, Tensor) or value.dim() == 0:
            continue
        if value.shape not in (old, old[:1]):  # a number for each entry, or for each row
            raise ValueError(
                f"add_classes cannot enlarge {key} of {type(optimizer).__name__}: reset it with "
                "optimizer.state.pop(head.proxies), or use Adam or SGD"
            )
        state[key] = torch.cat((value, value.new_zeros(count, *value.shape[1:])))
    return state


def _distinct(names: list[str]) -> list[str]:
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"class names must be distinct, got {name!r} twice")
    return names
