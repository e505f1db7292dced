"""Proxy Synthesis: mix embeddings and proxies of a batch into new classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from proxysynth.losses import functional
from proxysynth.regularizers.class_sums import LossFromSums, outside_graphs
from proxysynth.regularizers.mixing import Synthetics, mixed_similarity, synthesize
from proxysynth.regularizers.mixup import InputMixup
from proxysynth.regularizers.pairs import Draw, draw_pairs, merge_duplicates, numpy_generator

Part = Literal["both", "original", "synthetic"]

ABLATIONS = {
    ("original", "original"): "M1, the plain loss",
    ("synthetic", "synthetic"): "M2",
    ("original", "both"): "M3",
    ("synthetic", "both"): "M4",
    ("both", "both"): "Proxy Synthesis",
}
"""What (embeddings, proxies) may be: each embedding must find its own proxy.          [Table 1]"""


@dataclass(frozen=True)
class ProxySynthesis:
    """A loss over original and synthetic classes together.                      [Eqs. 4 and 5]

        x~ = lam x + (1 - lam) x'     p~ = lam p + (1 - lam) p'     lam ~ Beta(alpha, alpha)
        L(X^, P^),   X^ = X and the x~,   P^ = P and the p~

    It is called like the loss it wraps: `ProxySynthesis(loss)(x, y, p)`. The parents of a synthetic
    are always of different classes; a batch of one class gives the plain loss.

    Args:
        loss: any loss of this package, or any `(x, y, p) -> scalar`.
        alpha: parameter of Beta(alpha, alpha); a smaller one keeps synthetics closer to a parent.
        mu: synthetics per embedding of the batch; round(mu n) are made. May exceed 1.
        lam: a fixed coefficient in [0, 1] instead of a random one.
        per_pair: one coefficient for each pair instead of the paper's one for the batch.
        embeddings: which embeddings are used: "both", "original" or "synthetic".
        proxies: which proxies are used: "both", "original" or "synthetic".
        duplicates: "keep" makes a class of every pair, as the paper does; "merge" makes one class
            of all pairs of the same two classes in the same order, with the first's coefficient.
    """

    loss: Any
    alpha: float = 0.4
    mu: float = 1.0
    lam: float | None = None
    per_pair: bool = False
    embeddings: Part = "both"
    proxies: Part = "both"
    duplicates: Literal["keep", "merge"] = "keep"

    def __post_init__(self) -> None:
        functional.check_positive(self, alpha=self.alpha)
        functional.check_not_negative(self, mu=self.mu)
        if self.lam is not None:
            functional.check_range(self, 0, 1, lam=self.lam)
        functional.check_loss(self, self.loss)
        if isinstance(self.loss, (ProxySynthesis, InputMixup)):
            raise ValueError(
                f"ProxySynthesis takes a plain loss, got {type(self.loss).__name__}: "
                "one regularizer at a time"
            )
        for name, value in (("embeddings", self.embeddings), ("proxies", self.proxies)):
            if value not in get_args(Part):
                known = ", ".join(map(repr, get_args(Part)))
                raise ValueError(f"ProxySynthesis: {name} must be one of {known}, got {value!r}")
        if (self.embeddings, self.proxies) not in ABLATIONS:
            valid = "; ".join(f"{e!r} with {p!r}" for e, p in ABLATIONS)
            raise ValueError(
                f"ProxySynthesis: embeddings={self.embeddings!r} with proxies={self.proxies!r} "
                f"leaves an embedding without its own proxy: choose {valid}"
            )
        if self.duplicates not in ("keep", "merge"):
            raise ValueError(
                f"ProxySynthesis: duplicates must be 'keep' or 'merge', got {self.duplicates!r}"
            )

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """The loss of embeddings (n, d), labels (n,) and proxies (c, d) or (c, k, d).

        generator: for pairs and coefficients; default: torch's own.
        """
        y = functional.check_batch(x, y, p, subproxies=functional.has_subproxies(self.loss))
        draw = self.draw(y, generator)
        # A plain loss draws nothing, so it need not accept a generator.
        return self.loss(x, y, p) if draw is None else self.on(draw, x, y, p)

    def on(self, draw: Draw, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """The loss for these pairs and coefficients, by the fastest path that serves it."""
        if functional.class_sums_of(self.loss) is not None and not functional.inside_transform():
            return self.by_class_sums(draw, x, y, p)
        if functional.has_similarity(self.loss):
            return self.by_similarity(draw, x, y, p)
        return self.by_reference(draw, x, y, p)

    def by_class_sums(
        self, draw: Draw, x: Tensor, y: Tensor, p: Tensor,
        block: int | None = None, keep: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """The fused path: sums over blocks of classes, for losses that declare `class_sums`.

        block: classes per block; None chooses.    keep: whether the logits are kept for the
        backward pass; None keeps up to half a gigabyte. Without them, memory does not grow with c.
        """
        return LossFromSums(
            self, y, draw, block=block, keep=keep,
            differentiable=lambda x, p: self.by_similarity(draw, x, y, p),
        )(x, p)  # fmt: skip

    def by_reference(self, draw: Draw, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """The reference: concatenate originals and synthetics and call the loss. For any loss."""
        made = synthesize(x, y, p, draw, self.normalized)
        before = functional.unit if self.normalized else torch.clone
        rows, columns, labels = self._kept(y, made.y, p.shape[0])
        all_x = torch.cat((before(x), made.x))[rows]
        all_p = torch.cat((before(p), made.p))[columns]
        if functional.has_similarity(self.loss):
            value = self.loss.from_similarity(self.loss.similarity(all_x, all_p), labels)
            return value + functional.penalty(self.loss, p)
        return self.loss(all_x, labels, all_p)

    def by_similarity(self, draw: Draw, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """Mix similarities instead of vectors: one product with the proxies."""
        S = mixed_similarity(self.loss, x, y, p, draw, self.normalized)
        rows, columns, labels = self._kept(y, p.shape[0] + draw.target, p.shape[0])
        value = self.loss.from_similarity(S[rows][:, columns], labels)
        return value + functional.penalty(self.loss, p)

    def synthesize(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Synthetics:
        """The synthetics that a call with the same state of the generator would use.

        A batch of one class, or mu = 0, has none: every field is empty.
        """
        y = functional.check_batch(x, y, p, subproxies=functional.has_subproxies(self.loss))
        draw = self.draw(y, generator)
        if draw is None:
            none = y[:0]
            draw = Draw(none, none, x.new_zeros(0), none, none)
        return synthesize(x, y, p, draw, self.normalized)

    @property
    def normalized(self) -> bool:
        """Whether vectors are normalized before mixing: True except for dot-product losses."""
        return getattr(self.loss, "normalized", True)

    def draw(self, y: Tensor, generator: torch.Generator | None = None) -> Draw | None:
        """Pairs and coefficients for a batch with these labels; None if nothing can be mixed."""
        return outside_graphs(self._draw)(y, generator)

    def _draw(self, y: Tensor, generator: torch.Generator | None) -> Draw | None:
        m = round(self.mu * len(y))
        if m == 0 or self.proxies == "original":
            return None
        if functional.inside_transform():  # its tensors can be read one by one only
            labels = np.array([int(label) for label in y])
        else:
            labels = y.long().cpu().numpy()
        rng = numpy_generator(generator)
        i, j = draw_pairs(labels, m, rng)
        if len(i) == 0:
            return None
        size = m if self.per_pair else ()
        drawn = rng.beta(self.alpha, self.alpha, size) if self.lam is None else self.lam
        lam = np.full(size, drawn)
        target = first = np.arange(m)
        if self.duplicates == "merge":
            target, first = merge_duplicates(labels, i, j)
            lam = lam[first][target] if self.per_pair else lam
        made = (torch.from_numpy(array) for array in (i, j, lam, target, first))
        return Draw(*(made if y.is_cpu else (t.to(y.device, non_blocking=True) for t in made)))

    def _kept(self, y: Tensor, made_y: Tensor, c: int) -> tuple[slice, slice, Tensor]:
        """Which rows and columns take part, and the labels of those rows among those columns."""
        rows, columns = (
            slice(n if part == "synthetic" else 0, n if part == "original" else None)
            for part, n in ((self.embeddings, len(y)), (self.proxies, c))
        )
        return rows, columns, torch.cat((y, made_y))[rows] - columns.start
