"""Claims about gradients and equal losses: the paper's equations against autograd, in float64."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from proxysynth.losses import NormSoftmax, Softmax
from proxysynth.losses.margin_softmax import MarginSoftmax
from proxysynth.paper.claims.claim import Evidence, Verdict, held, listed, of_code
from proxysynth.regularizers import ProxySynthesis
from proxysynth.regularizers.pairs import Draw

TINY = 1e-10  # what rounding leaves of an exact equation


def batch(n: int = 64, c: int = 20, d: int = 16, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random embeddings (n, d), labels (n,) and proxies (c, d)."""
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=drawn, dtype=torch.float64)
    p = torch.randn(c, d, generator=drawn, dtype=torch.float64)
    return x, torch.arange(n) % c, p


def _no_margin(e: Evidence) -> Verdict:
    x, y, p = batch()
    plain, none = NormSoftmax()(x, y, p), MarginSoftmax(m1=1.0, m2=0.0, m3=0.0)(x, y, p)
    some = MarginSoftmax(m1=1.05, m2=0.1, m3=0.1)(x, y, p)
    error, change = float((none - plain).abs()), float((some - plain).abs())
    told = f"on {len(x)} embeddings they differ by {error:.0e}, with all three margins {change:.2f}"
    return held(error < TINY < change, told)


def _no_bias(e: Evidence) -> Verdict:
    x, _, p = batch()
    most = float(Softmax().similarity(torch.zeros_like(x), p).abs().max())
    return held(most == 0.0, f"the largest logit of an embedding of zeros is {most:g}")


def _lengths(e: Evidence) -> Verdict:
    """Of no matter for Norm-softmax, but for Softmax they are."""
    x, y, p = batch()
    normed, plain = (
        float((loss(3 * x, y, 5 * p) - loss(x, y, p)).abs()) for loss in (NormSoftmax(), Softmax())
    )
    told = f"Norm-softmax by {normed:.0e}, Softmax by {plain:.0e}"
    right = normed < TINY < plain
    return held(right, f"embeddings 3 and proxies 5 times as long change {told}")


def _softmax_pulls(e: Evidence) -> Verdict:
    x, y, p = batch(n=20)
    x.requires_grad_()
    (grad,) = torch.autograd.grad(Softmax()(x, y, p) * len(x), x)
    tau = torch.softmax(x.detach() @ p.T, dim=1)
    tau[torch.arange(len(x)), y] -= 1
    own, others = tau.gather(1, y[:, None]), tau.scatter(1, y[:, None], float("inf"))
    error = float((grad - tau @ p).abs().max())
    right = error < TINY and bool((own < 0).all()) and bool((others > 0).all())
    told = (
        f"autograd is Eqs. 11 and 12 up to {error:.0e}; the largest tau_i is {float(own.max()):.0e}"
        f", the least tau_k {float(others.min()):.0e}"
    )
    return held(right, told)


def _gradient(
    x: Tensor, p: Tensor, lam: float, embeddings: Literal["original", "synthetic"]
) -> Tensor:
    """Of the loss of the first embedding, or of the one synthetic, over the first embedding, where
    the classes 0 and 1 are mixed."""
    x = x.clone().requires_grad_()
    zero, one = torch.tensor([0]), torch.tensor([1])
    draw = Draw(zero, one, torch.tensor(lam, dtype=torch.float64), zero, zero)
    loss = ProxySynthesis(Softmax(), embeddings=embeddings)
    rows = len(x) if embeddings == "original" else 1  # the loss is a mean over them
    (grad,) = torch.autograd.grad(loss.on(draw, x, torch.tensor([0, 1]), p) * rows, x)
    first: Tensor = grad[0]
    return first


def _class_relation(e: Evidence) -> Verdict:
    """Eqs. 8, 9 and xiv by the chain rule: over x, each times its proxy."""
    lam, worst = 0.7, 0.0
    for seed in range(5):
        x, _, p = batch(2, 5, 3, seed)
        grad, made = _gradient(x, p, lam, "original"), lam * p[0] + (1 - lam) * p[1]
        E, E_made = (p @ x[0]).exp(), (made @ x[0]).exp()
        over_S = E.clone()
        over_S[0], over_S[1] = lam * E_made + E[0], (1 - lam) * E_made + E[1]
        over_S = over_S / (E_made + E.sum())
        over_S[0] -= 1
        worst = max(worst, float((grad - over_S @ p).abs().max()))
    return held(worst < TINY, f"autograd is Eqs. 8, 9 and xiv up to {worst:.0e}, five batches")


def _not_too_close(e: Evidence) -> Verdict:
    """Eqs. 15 and 16: along p_i - p_j a positive gradient is a step away from p_i."""
    p = 6 * torch.eye(5, 8, dtype=torch.float64)  # far apart, as the proof asks
    along = {
        f"lam {lam:g}": float(_gradient(p[:2], p, lam, "synthetic") @ (p[0] - p[1]))
        for lam in (0.7, 0.9, 0.97)
    }
    return held(min(along.values()) > 0, f"gradient along p_i - p_j: {listed(along, 2, sign=True)}")


GRADIENTS = (
    of_code(
        "we set the bias b = 0",
        "section 3.1, Eq. 2",
        "Softmax gives an embedding of zeros the logit 0 for every class",
        _no_bias,
    ),
    of_code(
        "fix the individual proxy (weight) |W_j| = 1 and feature |x_i| = 1 by l2-normalization",
        "section 3.1, Eq. 3",
        "Norm-softmax does not change with the lengths of its vectors, and Softmax does",
        _lengths,
    ),
    of_code(
        "this includes the Norm-softmax loss when m1 = 1.0, m2 = 0.0, and m3 = 0.0",
        "section A, Eq. viii",
        "both losses of a random batch are equal up to rounding",
        _no_margin,
    ),
    of_code(
        "It is obvious that tau_i < 0 and tau_k > 0 [...] the gradient descent forces x to be "
        "closer to p_i and to be distant from other proxies p_k",
        "section 3.3, Eqs. 11 and 12",
        "autograd's gradient of Softmax is theirs up to rounding, and all signs are so",
        _softmax_pulls,
    ),
    of_code(
        "Proxy Synthesis enables the gradient over S(x, p_i) and S(x, p_j) to consider class "
        "relation between p_i and p_j",
        "section 3.3, Eqs. 8 and 9",
        "autograd's gradient of PS + Softmax is theirs up to rounding",
        _class_relation,
    ),
    of_code(
        "It is obvious that tau'_i > 0 [...]; it is also obvious that tau'_j < 0, implying that "
        "softmax loss for synthesized pair provides gradient which makes embedding vector not too "
        "distant from the competing proxy",
        "section 3.3, Eqs. 15 and 16",
        "the exact gradient of a synthetic pair points along p_i - p_j for three lam above 0.5",
        _not_too_close,
    ),
)
