"""Proxy Synthesis: mix embeddings and proxies of a batch into new classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from proxysynth.losses.checks import (
    check_batch,
    check_loss,
    check_not_negative,
    check_outcome,
    check_positive,
    check_share,
)
from proxysynth.losses.plain import has_subproxies, penalty
from proxysynth.losses.similarity import unit
from proxysynth.regularizers.blocked import Taking, blocked
from proxysynth.regularizers.fused import fused, outside_graphs
from proxysynth.regularizers.fused_families import family_of
from proxysynth.regularizers.mixed_similarity import mixed_similarity
from proxysynth.regularizers.pairs import (
    counting,
    draw_pairs,
    merge_duplicates,
    numpy_generator,
    torch_counting,
)
from proxysynth.regularizers.synthesis import Draw, Synthetics, synthesize

Part = Literal["both", "original", "synthetic"]

ABLATIONS = {
    ("original", "original"): "M1, the plain loss",
    ("synthetic", "synthetic"): "M2",
    ("original", "both"): "M3",
    ("synthetic", "both"): "M4",
    ("both", "both"): "Proxy Synthesis",
}
"""What (embeddings, proxies) may be: each embedding must find its own proxy.          [Table 1]"""

LARGE = 2**28
"""Logits of originals and synthetics beyond which they are not held but computed twice: a gigabyte
of float32, which the fused path would keep together with their exponentials."""


@dataclass(frozen=True)
class ProxySynthesis:
    """A loss over original and synthetic classes together.                      [Eqs. 4 and 5]

        x~ = lam x + (1 - lam) x'     p~ = lam p + (1 - lam) p'     lam ~ Beta(alpha, alpha)
        L(X^, P^),   X^ = X and the x~,   P^ = P and the p~

    It is a loss like the one it holds: `ProxySynthesis(loss)(x, y, p)`. The parents of a synthetic
    are always of different classes; a batch of one class gives the plain loss.

    Args:
        loss: any loss of this package, or any `(x, y, p) -> scalar`.
        alpha: of the paper; smaller keeps synthetics nearer to one of their parents.
        mu: synthetics per embedding of the batch; round(mu n) are made, above 1 too.
        lam: a fixed coefficient in [0, 1] instead of a drawn one.
        per_pair: one coefficient for each pair instead of the paper's one for the batch.
        embeddings, proxies: which take part, "both", "original" or "synthetic".
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
        check_positive(self, alpha=self.alpha)
        check_not_negative(self, mu=self.mu)
        check_share(self, lam=self.lam)
        check_loss(self, self.loss)
        if isinstance(self.loss, ProxySynthesis):
            raise ValueError(f"ProxySynthesis holds a plain loss, got {self.loss!r}")
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
        y = check_batch(x, y, p, subproxies=has_subproxies(self.loss), finite=False)
        draw = self.draw(y, generator)
        if draw is None:
            # A plain loss draws nothing: it need not take a generator.
            return self.loss(x, y, p)
        value = self.on(draw, x, y, p)
        check_outcome(value, x)
        return value

    def on(self, draw: Draw, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """The loss for these pairs and coefficients, by the fastest path that serves it."""
        family = family_of(self.loss)
        if family is not None and (x.shape[0] + draw.i.shape[0]) * p.shape[0] > LARGE:
            return self.by_blocks(draw, x, y, p)
        if family is not None and (self.embeddings, self.proxies) == ("both", "both"):
            return fused(family, x, y, p, draw, again=self.by_similarity)
        if hasattr(self.loss, "similarity") and hasattr(self.loss, "from_similarity"):
            return self.by_similarity(draw, x, y, p)
        return self.by_reference(draw, x, y, p)

    def by_reference(self, draw: Draw, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """Lay synthetics beside originals and ask the loss: obviously right, for any loss."""
        made = synthesize(x, y, p, draw, self.normalized)
        before = unit if self.normalized else torch.clone
        rows, columns, labels = self._kept(y, made.y, p.shape[0])
        all_x = torch.cat((before(x), made.x))[rows]
        all_p = torch.cat((before(p), made.p))[columns]
        if hasattr(self.loss, "similarity") and hasattr(self.loss, "from_similarity"):
            value = self.loss.from_similarity(self.loss.similarity(all_x, all_p), labels)
            return value + penalty(self.loss, p)
        return self.loss(all_x, labels, all_p)

    def by_similarity(self, draw: Draw, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """Mix similarities instead of vectors: one product with the proxies."""
        S = mixed_similarity(self.loss, x, y, p, draw, self.normalized)
        rows, columns, labels = self._kept(y, p.shape[0] + draw.target, p.shape[0])
        return self.loss.from_similarity(S[rows][:, columns], labels) + penalty(self.loss, p)

    def by_blocks(
        self, draw: Draw, x: Tensor, y: Tensor, p: Tensor, block: int | None = None
    ) -> Tensor:
        """`block` classes at a time (None: as many as suit): memory that does not grow with c."""
        family = family_of(self.loss)
        if family is None:
            raise ValueError(
                f"{type(self.loss).__name__} cannot visit the classes in blocks: use a softmax "
                "(with or without a margin) or Proxy-anchor, or another path"
            )
        return blocked(family, x, y, p, Taking(draw, self.embeddings, self.proxies), block)

    def synthesize(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Synthetics:
        """The synthetics themselves; from the same state of the generator, those a call would use.

        A batch of one class, or mu = 0, has none: every field is empty.
        """
        y = check_batch(x, y, p, subproxies=has_subproxies(self.loss))
        draw = self.draw(y, generator)
        if draw is None:
            none = y[:0]
            draw = Draw(none, none, x.new_zeros(0), none, none)
        return synthesize(x, y, p, draw, self.normalized)

    @property
    def normalized(self) -> bool:
        """Whether vectors are normalised before mixing: so for all but dot-product losses."""
        return getattr(self.loss, "normalized", True)

    def draw(self, y: Tensor, generator: torch.Generator | None = None) -> Draw | None:
        """Pairs and coefficients for a batch with these labels; None if nothing can be mixed."""
        return outside_graphs(self._draw)(y, generator)

    def _draw(self, y: Tensor, generator: torch.Generator | None) -> Draw | None:
        m = round(self.mu * len(y))
        if m == 0 or (self.embeddings, self.proxies) == ("original", "original"):
            return None
        rng, labels = numpy_generator(generator), y.detach().cpu().numpy()
        i, j = draw_pairs(labels, m, rng)
        if len(i) == 0:
            return None
        size = m if self.per_pair else None
        if self.lam is None:
            lam = np.asarray(rng.beta(self.alpha, self.alpha, size))
        else:
            lam = np.full(() if size is None else size, self.lam)
        target = first = every = torch_counting(m)
        if self.duplicates == "merge":
            merged, made = merge_duplicates(labels, i, j)
            lam = lam[made][merged] if self.per_pair else lam
            target, first = torch.from_numpy(merged), torch.from_numpy(made)
        in_order = i is counting(len(labels))
        drawn = (every if in_order else torch.from_numpy(i), *map(torch.from_numpy, (j, lam)))
        i_, j_, lam_, target, first = (
            tensor if y.device.type == "cpu" else tensor.to(y.device, non_blocking=True)
            for tensor in (*drawn, target, first)
        )
        return Draw(i_, j_, lam_, target, first, in_order)

    def _kept(self, y: Tensor, made_y: Tensor, c: int) -> tuple[slice, slice, Tensor]:
        """Which rows and columns take part, and the labels of those rows among those columns."""
        ranges = {
            "both": lambda n: slice(None),
            "original": lambda n: slice(0, n),
            "synthetic": lambda n: slice(n, None),
        }
        rows, columns = ranges[self.embeddings](len(y)), ranges[self.proxies](c)
        labels = torch.cat((y, made_y))[rows]
        return rows, columns, labels - c if self.proxies == "synthetic" else labels
