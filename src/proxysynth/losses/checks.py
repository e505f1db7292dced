"""Bad input ends here, in one sentence: what was expected, what came, what to do."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def check_loss(owner: object, loss: object) -> None:
    """A loss is something to call with a batch: not its class, nor its name."""
    if isinstance(loss, type) or not callable(loss):
        came = f"the class {loss.__name__}" if isinstance(loss, type) else repr(loss)
        raise ValueError(f"{type(owner).__name__}: give a loss such as NormSoftmax(), got {came}")


def check_positive(owner: object, **fields: float) -> None:
    """Each named field of the owner must be a finite number above zero."""
    _check_numbers(owner, fields, "be a finite number above 0", lambda value: value > 0)


def check_not_negative(owner: object, **fields: float) -> None:
    """Each named field of the owner must be a finite number of at least zero."""
    _check_numbers(owner, fields, "be a finite number, 0 or more", lambda value: value >= 0)


def check_share(owner: object, **fields: float | None) -> None:
    """Each named field of the owner must be a number from zero to one, or None."""
    given = {name: value for name, value in fields.items() if value is not None}
    _check_numbers(owner, given, "lie in 0..1 (or be None)", lambda value: 0 <= value <= 1)


def _check_numbers(
    owner: object, fields: dict[str, float], wanted: str, holds: Callable[[float], bool]
) -> None:
    for name, value in fields.items():
        number = as_number(value)
        if number is None or not holds(number):
            raise ValueError(f"{type(owner).__name__}: {name} must {wanted}, got {value!r}")
        if number is not value:  # the owner is frozen, but only being made
            object.__setattr__(owner, name, number)


def as_number(value: object) -> int | float | None:
    """A finite number as Python's own, which JSON can hold, numpy's among them; others are None."""
    if type(value) is int or type(value) is float:  # torch.compile can follow this, not `numbers`
        number: int | float = value
    elif isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    else:
        number = int(value) if isinstance(value, numbers.Integral) else float(value)
    return number if math.isfinite(number) else None


def check_batch(
    x: Tensor, y: Tensor, p: Tensor, subproxies: bool = False, finite: bool = True
) -> Tensor:
    """Embeddings, labels and proxies that fit together; returns the labels as int64.

    The values themselves (finite, in range) are looked at too, except inside torch.compile, where a
    look would break the graph. With `finite=False` whoever calls this looks at the loss instead,
    with `check_outcome`.
    """
    expected = "(classes, sub-proxies, dimensions)" if subproxies else "(classes, dimensions)"
    check_embeddings(x)
    wrong = not isinstance(p, Tensor) or p.dim() != (3 if subproxies else 2)
    if wrong or not p.is_floating_point():
        raise ValueError(f"proxies must be floating point of shape {expected}, got {_show(p)}")
    check_labels(y, x.shape[0], p.shape[0])
    if x.shape[-1] != p.shape[-1]:
        raise ValueError(
            f"embeddings have {x.shape[-1]} dimensions and proxies {p.shape[-1]}: make them equal"
        )
    if not (x.device == y.device == p.device):
        raise ValueError(
            f"embeddings are on {x.device}, labels on {y.device}, proxies on {p.device}: "
            "move them to one device"
        )
    if x.dtype != p.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(
            f"embeddings are {_name(x)} and proxies {_name(p)}: cast one, or use torch.autocast"
        )
    if finite and not torch.compiler.is_compiling():
        check_outcome(x.detach().sum(), x)
    return y.long()


def check_outcome(value: Tensor, x: Tensor) -> None:
    """A number made of all the embeddings is not finite where one of them is not."""
    if not torch.compiler.is_compiling() and not math.isfinite(float(value.detach())):
        _check_finite(x)


def check_embeddings(x: Tensor) -> None:
    """A matrix of floats, one row for each embedding."""
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        raise ValueError(f"embeddings must be floating point of shape (n, d), got {_show(x)}")


def check_labels(y: Tensor, n: int, c: int) -> None:
    """One whole number in [0, c) for each of the n embeddings."""
    if not isinstance(y, Tensor):
        raise ValueError(f"labels must be whole numbers (torch.long), got {_show(y)}")
    if y.dtype == torch.bool or y.is_floating_point() or y.is_complex():
        raise ValueError(f"labels must be whole numbers (torch.long), got {_name(y)}")
    if y.shape != (n,):
        raise ValueError(f"labels must be one per embedding, of shape ({n},), got {_show(y)}")
    if n == 0:
        raise ValueError("the batch is empty: give at least one embedding")
    if not torch.compiler.is_compiling():
        low, high = _range(y)
        if low < 0 or high >= c:
            raise ValueError(
                f"labels must lie in 0..{c - 1} for {c} classes, got {low}..{high}: "
                "number the classes from 0, or give more proxies"
            )


def _range(y: Tensor) -> tuple[int, int]:
    if y.device.type == "cpu":  # numpy answers sooner
        labels = y.detach().numpy()
        return int(labels.min()), int(labels.max())
    low, high = y.aminmax()
    return int(low), int(high)


def _check_finite(x: Tensor) -> None:
    # The sum of large finite numbers may overflow: only a second, slower look is proof.
    bad = ~torch.isfinite(x.detach()).all(dim=1)
    if bad.any():
        rows = bad.nonzero().flatten().tolist()
        raise ValueError(
            f"embeddings must be finite, got NaN or infinity in {len(rows)} of {x.shape[0]} rows "
            f"(first: row {rows[0]}): lower the learning rate, or look at those inputs"
        )


def _show(t: Any) -> str:
    if not isinstance(t, Tensor):
        return f"{type(t).__name__}, which is no tensor: convert it with torch.as_tensor"
    return f"{_name(t)} of shape {tuple(t.shape)}"


def _name(t: Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")
