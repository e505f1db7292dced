"""What all losses share: similarities, common methods, checks of fields and batches."""

from __future__ import annotations

import dataclasses
import inspect
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPS = 1e-12
"""Vectors shorter than this are divided by it instead of by their length, as in F.normalize."""

TINY, HUGE = 1e-30, 1e30
"""Positive settings outside this range would overflow float32 somewhere in a loss."""


# Similarities: dot products or cosines, (n, c) or (n, c, k)


def at_least_float32(t: Tensor) -> Tensor:
    """Half precision as float32: exponentials and norms overflow in half precision."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def unit(v: Tensor) -> Tensor:
    """Each vector along the last dimension divided by its length."""
    return F.normalize(at_least_float32(v), dim=-1, eps=EPS).to(v.dtype)


def dot(x: Tensor, p: Tensor) -> Tensor:
    """S = x . p for every embedding and every (sub-)proxy."""
    if p.dim() == 3:
        return (x @ p.flatten(0, 1).t()).unflatten(1, p.shape[:2])
    return x @ p.t()


def cosine(x: Tensor, p: Tensor) -> Tensor:
    """S = x . p / (|x| |p|) for every embedding and every (sub-)proxy."""
    return dot(unit(x), unit(p))


# Methods that most losses share


def plain(
    loss: Any, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """`from_similarity(similarity(x, p), y)`, plus the penalty on the proxies if there is one."""
    y = check_batch(x, y, p, subproxies=has_subproxies(loss))
    value: Tensor = loss.from_similarity(loss.similarity(x, p), y)
    return value + penalty(loss, p)


def scaled(loss: Any, S: Tensor) -> Tensor:
    """Logits: similarities times the scale."""
    return loss.scale * at_least_float32(S)


def cross_entropy(loss: Any, S: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of the loss's logits."""
    return F.cross_entropy(loss.logits(S), y)


# Properties of a loss


def plain_loss(loss: Any) -> Any:
    """The loss that a regularizer wraps, or the loss itself."""
    while dataclasses.is_dataclass(loss) and hasattr(loss, "loss"):
        loss = loss.loss
    return loss


def has_similarity(loss: object) -> bool:
    """Whether the loss is `from_similarity(similarity(x, p), y)`, not an arbitrary function."""
    return hasattr(loss, "similarity") and hasattr(loss, "from_similarity")


def has_subproxies(loss: object) -> bool:
    """Whether the loss keeps k proxies per class, of shape (c, k, d)."""
    return hasattr(loss, "k")


def penalty(loss: object, p: Tensor) -> Tensor | float:
    """The loss's term that depends on the proxies alone, or 0."""
    return loss.penalty(p) if hasattr(loss, "penalty") else 0.0


Margin = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ClassSums:
    """What the fused path (`regularizers.class_sums`) needs to know about a loss.

    A loss that returns one from its method `class_sums` is computed without ever holding more than
    one n x c matrix. With logits z = scale s(x, q), and every class but its own a negative of x,

        along rows:     sums_r = log sum_q exp(z_rq), over the negatives q of row r; (rows,)
        along columns:  sums = sum_q log(1 + sum_r exp(z_rq + offset)), over the negatives r; ()

    Args:
        along: which of the two the loss is a function of.
        scale: of the similarities.
        value: `value(own, sums, labels, classes)`: the loss and its derivatives by `own` and by
            `sums`, which must not be negative.
            own: (rows,) similarity of each embedding to its own proxy.  labels: (rows,) its class.
            classes: how many there are.
        offset: along columns, added to each logit.
    """

    along: Literal["rows", "columns"]
    scale: float
    value: Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor, Tensor]]
    offset: float = 0.0


def softmax_sums(
    scale: float, harder: Margin | None = None, slope: Margin | None = None
) -> ClassSums:
    """The `ClassSums` of a softmax: the mean of -log(e^z / (e^z + e^sums)), z = scale own; with a
    margin, z = scale harder(own), and `slope` is the derivative of `harder`."""

    def value(own: Tensor, sums: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
        gap = torch.sub(sums, own if harder is None else harder(own), alpha=scale)
        share = gap.sigmoid().div_(len(gap))  # not 1 - own share: that cancels in a small loss
        by_own = share * -scale
        by_own = by_own if slope is None else by_own * slope(own)
        return F.softplus(gap, threshold=40.0).mean(), by_own, share

    return ClassSums("rows", scale, value)


def class_sums_of(loss: object) -> ClassSums | None:
    """The loss's own declaration; None if there is none, or if a subclass changed the formula."""
    for kind in type(loss).__mro__:
        if "class_sums" in vars(kind):
            declared: ClassSums = loss.class_sums()  # type: ignore[attr-defined]
            return declared
        if not {"similarity", "from_similarity", "__call__"}.isdisjoint(vars(kind)):
            return None
    return None


# Checks: what was expected, what was given, what to do


def check_loss(owner: object, loss: object) -> None:
    """The loss must be a function of (x, y, p): not a class, a name, or a loss module of torch or
    of another library, which takes two arguments or has its own proxies."""
    function = loss.forward if isinstance(loss, nn.Module) else loss
    parameters = loss.parameters() if isinstance(loss, nn.Module) else ()
    has_proxies = any(p.dim() >= 2 for p in parameters)
    from_torch = str(getattr(loss, "__module__", "")).startswith("torch.nn.")  # input and target
    if not (isinstance(loss, type) or has_proxies or from_torch) and _takes_three(function):
        return
    name = getattr(loss, "__name__", type(loss).__name__)
    if isinstance(loss, type):
        got, do = f"the class {name}", f"give an instance, {name}()"
    elif not callable(loss):
        got, do = repr(loss), "see proxysynth.LOSSES"
    elif name == "ProxyHead":
        got, do = name, "regularize the loss it holds, as in ProxyHead(ProxySynthesis(loss), ...)"
    elif has_proxies:
        got, do = f"{name}, which has proxies of its own", "use proxysynth.synthesize_over(module)"
    elif from_torch:
        got, do = name, "use a proxy-based loss; Softmax() and NormSoftmax() are cross-entropies"
    else:
        got, do = name, "it must take three arguments (x, y, p)"
    raise ValueError(
        f"{type(owner).__name__}: expected a loss of embeddings, labels and proxies, such as "
        f"NormSoftmax(), got {got}: {do}"
    )


def _takes_three(function: Any) -> bool:
    """Whether it can be called with three arguments; True if that is unknown."""
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:  # also of what is no function
        return False
    except ValueError:  # built-in functions do not say what they take
        return True
    return True


def check_plain_loss(owner: object, loss: object) -> None:
    """The loss must not be a regularizer that wraps another."""
    check_loss(owner, loss)
    if plain_loss(loss) is not loss:
        raise ValueError(
            f"{type(owner).__name__} takes a plain loss, got {type(loss).__name__}: "
            "one regularizer at a time"
        )


def check_positive(owner: object, **fields: float) -> None:
    """Each named field of the owner must be a number above zero that float32 can hold."""
    check_range(owner, TINY, HUGE, **fields)


def check_not_negative(owner: object, **fields: float) -> None:
    """Each named field of the owner must be a number of at least zero that float32 can hold."""
    check_range(owner, 0, HUGE, **fields)


def check_range(owner: object, low: float, high: float, **fields: float) -> None:
    """Each named field of the owner must be a number from low to high."""
    for name, value in fields.items():
        number = as_number(value)
        if number is None or not low <= number <= high:
            least = "above 0" if low == TINY else f"of at least {low:g}"
            bounds = f"{least}, at most {high:g}" if high == HUGE else f"from {low:g} to {high:g}"
            raise ValueError(
                f"{type(owner).__name__}: {name} must be a number {bounds}, got {value!r}"
            )
        if number is not value:  # numpy's numbers become Python's; the owner is frozen
            object.__setattr__(owner, name, number)


def as_number(value: object) -> int | float | None:
    """A finite number as Python's own int or float, which JSON can hold; None for anything else."""
    if type(value) is int or type(value) is float:  # torch.compile can follow this, not `numbers`
        number: int | float = value
    elif isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    else:
        number = int(value) if isinstance(value, numbers.Integral) else float(value)
    return number if math.isfinite(number) else None


def check_batch(x: Tensor, y: Tensor, p: Tensor, subproxies: bool = False) -> Tensor:
    """Embeddings, labels and proxies that fit together; returns the labels as int64.

    Values (finite, in range) are checked too, except inside torch.compile and torch.func
    transforms, where reading one is not possible.
    """
    check_embeddings(x)
    shape = ("classes", "sub-proxies", "dimensions") if subproxies else ("classes", "dimensions")
    if not isinstance(p, Tensor) or p.dim() != len(shape) or not p.is_floating_point():
        raise ValueError(
            f"proxies must be floating point of shape ({', '.join(shape)}), got {_show(p)}"
        )
    check_labels(y, x.shape[0], p.shape[0])
    check_dimensions(x, p)
    if not (x.device == y.device == p.device):
        raise ValueError(
            f"embeddings are on {x.device}, labels on {y.device}, proxies on {p.device}: "
            "move them to one device"
        )
    if x.dtype != p.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(
            f"embeddings are {_name(x)} and proxies {_name(p)}: cast one, or use torch.autocast"
        )
    if values_can_be_read():
        _check_finite(at_least_float32(x.detach()))
    return y.long()


def inside_transform() -> bool:
    """Whether torch.func is at work: its tensors have no storage, and need torch's own autograd."""
    return torch._C._are_functorch_transforms_active()


def values_can_be_read() -> bool:
    """Not while torch.compile traces, nor inside torch.func transforms."""
    return not (torch.compiler.is_compiling() or inside_transform())


def check_embeddings(x: Tensor) -> None:
    """A matrix of floats, one row for each embedding."""
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        raise ValueError(f"embeddings must be floating point of shape (n, d), got {_show(x)}")


def check_dimensions(x: Tensor, p: Tensor) -> None:
    """Embeddings and proxies must have as many dimensions."""
    if x.shape[-1] != p.shape[-1]:
        raise ValueError(
            f"embeddings have {x.shape[-1]} dimensions and proxies {p.shape[-1]}: make them equal"
        )


def check_labels(y: Tensor, n: int, c: int) -> None:
    """One integer in [0, c) for each of the n embeddings."""
    integers = isinstance(y, Tensor) and y.dtype != torch.bool
    if not integers or y.is_floating_point() or y.is_complex():
        raise ValueError(f"labels must be integers (torch.long), got {_show(y)}")
    if y.shape != (n,):
        raise ValueError(f"labels must be one per embedding, of shape ({n},), got {_show(y)}")
    if n == 0:
        raise ValueError("the batch is empty: give at least one embedding")
    if values_can_be_read():
        low, high = (int(value) for value in y.aminmax())
        if low < 0 or high >= c:
            raise ValueError(
                f"labels must lie in 0..{c - 1} for {c} classes, got {low}..{high}: "
                "number the classes from 0, or give more proxies"
            )


def _check_finite(x: Tensor) -> None:
    """Each row and its length must be finite; the first look is at all of them together."""
    if math.isfinite(torch.linalg.vector_norm(x)):
        return
    bad = (~torch.linalg.vector_norm(x, dim=1).isfinite()).nonzero().flatten().tolist()
    if bad:
        raise ValueError(
            f"embeddings and their lengths must be finite, but in {_name(x)} {len(bad)} of "
            f"{len(x)} rows are not (first: row {bad[0]}): lower the learning rate, or inspect "
            "those inputs"
        )


def _show(t: Any) -> str:
    if not isinstance(t, Tensor):
        return f"{type(t).__name__}, which is not a tensor: convert it with torch.as_tensor"
    return f"{_name(t)} of shape {tuple(t.shape)}"


def _name(t: Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")
