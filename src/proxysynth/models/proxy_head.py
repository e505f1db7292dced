"""The proxies and their loss as one module, for people with a training loop of their own."""

from __future__ import annotations

import inspect
import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from proxysynth.interfaces import Loss
from proxysynth.losses.functional import as_number, check_loss, has_subproxies, plain_loss
from proxysynth.values import encode


class ProxyHead(nn.Module):
    """`criterion(embeddings, labels)` with the proxies as its parameter.

        criterion = ProxyHead(ProxySynthesis(NormSoftmax()), num_classes=98, dim=512)
        optimizer = torch.optim.Adam([
            {"params": network.parameters(), "lr": 1e-4},
            {"params": criterion.parameters(), "lr": 1e-2},
        ])

    A regulariser works in training mode only; in evaluation mode the plain loss is computed.

    Args:
        loss: a loss, a regulariser that holds one, or any `(x, y, p) -> scalar`.
        num_classes: how many classes; or, as `classes`, their names.
        dim: dimensions of the embeddings.
        classes: the classes' names, kept in the state dict.
        generator: for the initialisation, uniform in +-1/sqrt(dim) as in the paper's code.
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
        check_loss(self, loss)
        if classes is not None:
            num_classes = len(classes) if num_classes is None else num_classes
        c, d = as_number(num_classes), as_number(dim)
        if not (isinstance(c, int) and isinstance(d, int) and c >= 1 and d >= 1):
            raise ValueError(
                "ProxyHead needs num_classes (or classes) and dim as whole numbers from 1 on, got "
                f"num_classes={num_classes!r}, dim={dim!r}"
            )
        if classes is not None and len(classes) != c:
            raise ValueError(f"ProxyHead: num_classes={c}, but {len(classes)} names in classes")
        self.loss: Any = loss
        plain: Any = plain_loss(loss)
        self.plain = plain
        self._takes_generator = {True: _takes_generator(loss), False: _takes_generator(plain)}
        self.classes = _distinct([str(name) for name in classes]) if classes is not None else None
        self.trained_with = _told(loss)
        self._k = plain.k if has_subproxies(plain) else None
        self.proxies = nn.Parameter(self._fresh(c, d, generator))

    def forward(
        self, embeddings: Tensor, labels: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        loss = self.loss if self.training else self.plain
        if generator is None or not self._takes_generator[self.training]:
            return loss(embeddings, labels, self.proxies)
        return loss(embeddings, labels, self.proxies, generator=generator)

    def logits(self, embeddings: Tensor) -> Tensor:
        """Scores (n, c) without a margin; their softmax is the classes' probability."""
        if not hasattr(self.plain, "logits"):
            raise TypeError(
                f"{self.plain!r} has no scores of classes: give ProxyHead a loss of ours"
            )
        return self.plain.logits(self.plain.similarity(embeddings, self.proxies))

    @torch.no_grad()
    def predict(self, embeddings: Tensor) -> Tensor:
        """The most likely class of each embedding, (n,)."""
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
        """New classes behind the old ones, whose proxies and optimizer state stay as they are.

        Args:
            names: the new classes' names, or how many there are if the head keeps no names.
            optimizer: the one that trains the proxies: its state is enlarged with zeros.
        """
        number = as_number(names)
        names = number if isinstance(number, int) else names
        if isinstance(names, int) != (self.classes is None) or isinstance(number, float):
            whole = "no names: give a whole number of classes"
            kept = "names" if self.classes is not None else whole
            raise ValueError(f"add_classes got {names!r}, but this head keeps {kept}")
        count = names if isinstance(names, int) else len(names)
        if count < 1:
            raise ValueError(f"add_classes needs at least one new class, got {names!r}")
        if self.classes is not None and not isinstance(names, int):
            self.classes = _distinct([*self.classes, *(str(name) for name in names)])
        old = self.proxies.shape
        fresh = self._fresh(count, old[-1], generator).to(self.proxies)
        # The parameter stays the same object, so the optimizer still holds it.
        self.proxies.data = torch.cat((self.proxies.data, fresh))
        self.proxies.grad = None
        state = optimizer.state.get(self.proxies, {}) if optimizer is not None else {}
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == old:
                state[key] = torch.cat((value, value.new_zeros(count, *old[1:])))

    def _fresh(self, count: int, dim: int, generator: torch.Generator | None) -> Tensor:
        shape = (count, dim) if self._k is None else (count, self._k, dim)
        bound = 1 / math.sqrt(dim)
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)

    # The state dict says what the proxies are proxies of. Text as a tensor of bytes survives every
    # format a state dict is kept in, safetensors among them.

    def get_extra_state(self) -> Tensor:
        text = json.dumps({"loss": _told(self.loss), "classes": self.classes})
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        told = json.loads(bytes(state.tolist()).decode())
        self.classes, self.trained_with = told["classes"], told["loss"]
        if self.trained_with != _told(self.loss):
            warnings.warn(
                f"these proxies were trained with {self.trained_with}, and are now used with "
                f"{_told(self.loss)}",
                stacklevel=2,
            )

    def extra_repr(self) -> str:
        return f"{self.loss}, num_classes={self.num_classes}, dim={self.proxies.shape[-1]}"


def _takes_generator(loss: Any) -> bool:
    """Whether it has a parameter for one, as ours have; a function of (x, y, p) has not."""
    try:
        return "generator" in inspect.signature(getattr(loss, "forward", loss)).parameters
    except ValueError:  # written in C, and tells nothing of its parameters
        return False


def _told(loss: Any) -> Any:
    """The loss as JSON; a loss that is not one of our values, or holds none, as it prints."""
    try:
        return encode(loss)
    except TypeError:
        # A function prints with its address, which is another in the process that loads it.
        return re.sub(r" at 0x[0-9a-f]+", "", repr(loss))


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"class names must be distinct, got {twice!r} twice")
    return names
