"""Proxy Synthesis over any loss module.

The module is called as `module(embeddings, labels)` and has one proxy weight. Each call goes to a
shallow copy whose weight is extended by the synthetic proxies, and its class counts with it. The
module itself is never modified.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from proxysynth.losses.functional import check_batch, check_embeddings
from proxysynth.losses.norm_softmax import NormSoftmax
from proxysynth.regularizers.mixing import synthesize
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis

COUNT = "num_classes"  # what modules usually call their number of classes
# Modules that hold other losses, which may not be proxy losses.
COLLECTIONS = ("MultipleLosses", "CrossBatchMemory", "SelfSupervisedLoss")
# Words in the names of lists of classes (`proxy_labels`). Other tensors may hold 0, 1, 2, ... too,
# such as SphereFace's powers (`n_range`), and must stay as they are.
LISTS = ("label", "class", "target", "ids")


def synthesize_over(
    module: nn.Module,
    *,
    alpha: float = 0.4,
    mu: float = 1.0,
    lam: float | None = None,
    per_pair: bool = False,
    duplicates: Literal["keep", "merge"] = "keep",
    weight: str | None = None,
    class_dim: int | None = None,
    class_count: str | None = None,
    normalize: bool = True,
) -> SynthesizedOver:
    """Add Proxy Synthesis to a loss module; in evaluation mode the module is unchanged.

    Args:
        module: called as module(embeddings, labels); holds one weight with a row or a column for
            each class, or k adjacent ones.
        alpha, mu, lam, per_pair, duplicates: as in `ProxySynthesis`.
        weight: name of the proxy weight ("head.W"), if the module has several matrices.
        class_dim: 0 if classes are rows, 1 if columns; needed if the shape is ambiguous.
        class_count: name of the attribute with the number of classes, if not "num_classes".
        normalize: whether vectors are normalized before mixing; False for dot-product modules.
    """
    _check_module(module)
    settings = ProxySynthesis(  # for its draw; the loss is the module's
        NormSoftmax(), alpha=alpha, mu=mu, lam=lam, per_pair=per_pair, duplicates=duplicates
    )
    if class_dim not in (None, 0, 1):
        raise ValueError(f"class_dim must be 0 (rows) or 1 (columns), got {class_dim!r}")
    name = _weight_name(module, weight)
    return SynthesizedOver(module, settings, name, class_dim, class_count, normalize)


class SynthesizedOver(nn.Module):
    """What `synthesize_over` returns: the same parameters and the same state dict as the module."""

    def __init__(
        self,
        module: nn.Module,
        settings: ProxySynthesis,
        weight: str,
        class_dim: int | None,
        class_count: str | None,
        normalize: bool,
    ) -> None:
        super().__init__()
        self.module = module
        self.settings = settings
        self.weight, self.class_dim = weight, class_dim
        self.class_count, self.normalize = class_count, normalize
        self.train(module.training)
        self.register_load_state_dict_pre_hook(_add_prefix)

    def forward(self, embeddings: Tensor, labels: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return self.module(embeddings, labels, *args, **kwargs)
        _check_arguments(self.module, args, kwargs)
        rows, class_dim, c = self._proxies(embeddings)
        k = rows.shape[0] // c
        proxies = rows.unflatten(0, (c, k)) if k > 1 else rows
        labels = check_batch(embeddings, labels, proxies, subproxies=k > 1)
        draw = self.settings.draw(labels)
        if draw is None:
            return self.module(embeddings, labels, *args, **kwargs)

        made = synthesize(embeddings, labels, proxies, draw, self.normalize)
        enlarged = torch.cat((rows, made.p.flatten(0, -2)))
        weights = {self.weight: enlarged.t() if class_dim == 1 else enlarged}
        batch = torch.cat((embeddings, made.x)), torch.cat((labels, made.y)), *args
        shallow_copy = _shallow_copy(self.module)
        _extend_counts(shallow_copy, self.class_count or COUNT, c, c + made.p.shape[0])
        try:
            return functional_call(shallow_copy, weights, batch, kwargs)
        except (RuntimeError, IndexError) as error:
            raise self._explained(error, c) from error

    def _proxies(self, embeddings: Tensor) -> tuple[Tensor, int, int]:
        """The weight with classes as rows, the dimension they have in it, and their number."""
        check_embeddings(embeddings)
        weight = self.module.get_parameter(self.weight)
        d, shape = embeddings.shape[-1], tuple(weight.shape)
        dims = [dim for dim in (0, 1) if shape[1 - dim] == d and self.class_dim in (None, dim)]
        if len(dims) != 1:
            do = "give class_dim=0 if classes are its rows, 1 if they are its columns"
            if d not in shape:
                do = f"one side must be {d}"
            raise ValueError(f"embeddings have {d} dimensions and {self.weight} is {shape}: {do}")
        class_dim = dims[0]
        rows = weight.t() if class_dim == 1 else weight
        c = self._count(len(rows))
        self._check_other_tensors(c, len(rows))
        return rows, class_dim, c

    def _count(self, rows: int) -> int:
        """The number of classes: of the attribute that counts them, else one for each row."""
        name = self.class_count or COUNT
        counts = {getattr(m, name) for m in self.module.modules() if _counts(m, name)}
        if not counts and self.class_count is None:
            counts = {rows}
        if len(counts) != 1 or rows % min(counts):
            raise ValueError(
                f"{self.weight} has {rows} proxies, which does not fit {name} = "
                f"{', '.join(map(str, sorted(counts))) or 'no integer'}: name the attribute that "
                "counts the classes with class_count="
            )
        return int(counts.pop())

    def _check_other_tensors(self, c: int, rows: int) -> None:
        """No tensor may have one number for each class, such as a bias or the weights of a reducer,
        or for each pair of classes or of sub-proxies."""
        for part in self.module.modules():
            held = {**part.__dict__, **part._buffers, **part._parameters}
            for key, value in held.items():
                shape = tuple(value.shape) if isinstance(value, Tensor) else ()
                numbers = isinstance(value, nn.Parameter) or "weight" in key
                pairs = shape in ((c, c), (rows, rows)) and not isinstance(value, nn.Parameter)
                if pairs or (shape == (c,) and numbers):
                    raise ValueError(
                        f"{type(part).__name__}.{key} of shape {shape} is for {c} classes, without "
                        f"the synthetic ones: use {type(self.module).__name__} without it"
                    )

    def _explained(self, error: Exception, c: int) -> Exception:
        """The error of the module, or one that names what else may depend on the classes."""
        found = [
            f"{name} {tuple(p.shape)} is not extended by them"
            for name, p in self.module.named_parameters()
            if name != self.weight and c in p.shape
        ]
        for part in self.module.modules():
            counts = [key for key, value in vars(part).items() if type(value) is int and value == c]
            found += [
                f"perhaps class_count={key!r}"
                for key in counts
                if key != (self.class_count or COUNT)
            ]
        if isinstance(error, torch.OutOfMemoryError):
            return error
        failed = f"{type(self.module).__name__} failed with synthetic classes beside its {c}"
        if not found:
            guess = "it may contain the number of classes, or need another class_dim="
            return RuntimeError(f"{failed} ({error}): {guess}")
        return ValueError(f"{failed} ({error}): {', '.join(found)}")

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        # A checkpoint of the module loads here and the other way round: adding the line
        # `criterion = synthesize_over(criterion)` to a script must not orphan its checkpoints.
        return self.module.state_dict(*args, **kwargs)


def _add_prefix(self: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[f"{prefix}module.{name.removeprefix(prefix)}"] = state.pop(name)


def _check_module(module: object) -> None:
    if isinstance(module, SynthesizedOver):
        raise ValueError("synthesize_over takes a loss module, got one that already synthesizes")
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"synthesize_over takes an nn.Module that holds its proxies, got {module!r}: "
            "instantiate the module, or for a function of (x, y, p) use ProxySynthesis"
        )
    for held in module.modules():
        name = type(held).__name__
        if name in COLLECTIONS:
            raise ValueError(
                f"{name} would hand synthetic labels to every loss it holds: put "
                "synthesize_over around the proxy loss inside it"
            )
        if isinstance(getattr(held, "loss", None), ProxySynthesis):
            raise ValueError(f"{name} already synthesizes, with ProxySynthesis: use it as it is")
        if name == "ProxyHead":
            raise ValueError(
                "synthesize_over does not take a ProxyHead: regularize the loss that it holds, as "
                "in ProxyHead(ProxySynthesis(loss), ...)"
            )


def _check_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Tensors and tuples describe the rows of the batch, to which synthetics are added."""
    for name, value in (*enumerate(args, start=3), *kwargs.items()):
        if isinstance(value, (Tensor, tuple, list, dict)):
            which = f"argument {name}" if isinstance(name, int) else name
            raise ValueError(
                f"synthesize_over adds synthetics to what {type(module).__name__} is called with, "
                f"but {which} is a {type(value).__name__} for the originals alone (such as a "
                "miner's pairs): leave it out in training"
            )


def _weight_name(module: nn.Module, weight: str | None) -> str:
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "no parameters"
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    if weight is not None and weight not in matrices:
        raise ValueError(f"weight={weight!r} is not a matrix of the module, which has {listed}")
    if not matrices:
        raise ValueError(f"{type(module).__name__} holds no matrix of proxies: use a proxy loss")
    if weight is None and len(matrices) > 1:
        raise ValueError(
            f"expected one proxy weight in {type(module).__name__}, found several matrices among "
            f"{listed}: name it with weight= (and class_dim=, if its shape is ambiguous)"
        )
    return weight or matrices[0]


def _shallow_copy(module: nn.Module) -> nn.Module:
    """A copy that shares every tensor with the module and no dictionary."""
    made = copy.copy(module)
    made.__dict__["_parameters"] = dict(module._parameters)
    made.__dict__["_buffers"] = dict(module._buffers)
    made.__dict__["_modules"] = {
        name: None if child is None else _shallow_copy(child)
        for name, child in module._modules.items()
    }
    return made


def _counts(module: nn.Module, name: str) -> bool:
    # Some modules keep a zero under this name for their statistics.
    value = getattr(module, name, None)
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _extend_counts(shallow_copy: nn.Module, name: str, old: int, new: int) -> None:
    """Extend every class count, and every list 0, 1, ... of class labels, from `old` to `new`."""
    for module in shallow_copy.modules():
        if _counts(module, name) and getattr(module, name) == old:
            object.__setattr__(module, name, new)
        for held in (module.__dict__, module._buffers):
            for key, value in list(held.items()):
                if not isinstance(value, Tensor) or not any(word in key.lower() for word in LISTS):
                    continue
                integers = not value.is_floating_point() and value.dtype != torch.bool
                if integers and torch.equal(value, torch.arange(old).to(value)):
                    held[key] = torch.arange(new).to(value)
