"""The paper's statements about its equations, asked of the code in float64.

Each check takes what it examines as an argument; `WRONG` shows that it fails for anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from proxysynth.losses import NormSoftmax, Softmax
from proxysynth.losses.margin_softmax import MarginSoftmax
from proxysynth.regularizers import ProxySynthesis, VirtualSoftmax
from proxysynth.regularizers.pairs import Draw

TINY = 1e-10  # what rounding leaves of an exact equation
N, C = 128, 98  # batch and classes of Table A
DRAWN = 4000


def batch(n: int = 64, c: int = 20, d: int = 16, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random embeddings (n, d), labels (n,) and proxies (c, d)."""
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=drawn, dtype=torch.float64)
    p = torch.randn(c, d, generator=drawn, dtype=torch.float64)
    return x, torch.arange(n) % c, p


# Losses


def no_bias(softmax: Any) -> None:
    """ "we set the bias b = 0" (Eq. 2)."""
    x, _, p = batch()
    assert float(softmax.similarity(torch.zeros_like(x), p).abs().max()) == 0


def lengths_do_not_matter(norm_softmax: Any) -> None:
    """ "fix the individual proxy (weight) |W_j| = 1 and feature |x_i| = 1" (Eq. 3)."""
    x, y, p = batch()
    assert abs(norm_softmax(3 * x, y, 5 * p) - norm_softmax(x, y, p)) < TINY
    assert abs(Softmax()(3 * x, y, 5 * p) - Softmax()(x, y, p)) > TINY


def no_margin(margin_softmax: Any) -> None:
    """ "this includes the Norm-softmax loss when m1 = 1.0, m2 = 0.0, and m3 = 0.0" (Eq. viii)."""
    x, y, p = batch()
    plain = NormSoftmax()(x, y, p)
    assert abs(margin_softmax(m1=1.0, m2=0.0, m3=0.0)(x, y, p) - plain) < TINY
    assert abs(MarginSoftmax(m1=1.05, m2=0.1, m3=0.1)(x, y, p) - plain) > TINY


def pulls_and_pushes(softmax: Any) -> None:
    """ "tau_i < 0 and tau_k > 0 [...] the gradient descent forces x to be closer to p_i and to be
    distant from other proxies p_k" (Eqs. 11 and 12)."""
    x, y, p = batch(n=20)
    x.requires_grad_()
    (grad,) = torch.autograd.grad(softmax(x, y, p) * len(x), x)
    tau = torch.softmax(x.detach() @ p.T, dim=1)
    tau[torch.arange(len(x)), y] -= 1
    assert float((grad - tau @ p).abs().max()) < TINY
    assert (tau.gather(1, y[:, None]) < 0).all()
    assert (tau.scatter(1, y[:, None], float("inf")) > 0).all()


# Proxy Synthesis

Gradient = Callable[[Tensor, Tensor, float, Any], Tensor]


def gradient(
    x: Tensor, p: Tensor, lam: float, embeddings: Literal["original", "synthetic"]
) -> Tensor:
    """Of the loss of the first embedding, or of the synthetic, with respect to the first embedding,
    where the classes 0 and 1 are mixed."""
    x = x.clone().requires_grad_()
    zero, one = torch.tensor([0]), torch.tensor([1])
    draw = Draw(zero, one, torch.tensor(lam, dtype=torch.float64), zero, zero)
    loss = ProxySynthesis(Softmax(), embeddings=embeddings)
    rows = len(x) if embeddings == "original" else 1  # the loss is a mean over them
    (grad,) = torch.autograd.grad(loss.on(draw, x, torch.tensor([0, 1]), p) * rows, x)
    first: Tensor = grad[0]
    return first


def considers_class_relation(gradient: Gradient) -> None:
    """ "the gradient over S(x, p_i) and S(x, p_j) [considers] class relation between p_i and p_j"
    (Eqs. 8, 9 and xiv, times the proxies by the chain rule)."""
    lam = 0.7
    for seed in range(5):
        x, _, p = batch(2, 5, 3, seed)
        mixed = lam * p[0] + (1 - lam) * p[1]
        e, e_mixed = (p @ x[0]).exp(), (mixed @ x[0]).exp()
        over_s = e.clone()
        over_s[0], over_s[1] = lam * e_mixed + e[0], (1 - lam) * e_mixed + e[1]
        over_s = over_s / (e_mixed + e.sum())
        over_s[0] -= 1
        assert float((gradient(x, p, lam, "original") - over_s @ p).abs().max()) < TINY


def not_too_distant_from_the_rival(gradient: Gradient) -> None:
    """ "tau'_i > 0 [...] tau'_j < 0, implying that softmax loss for synthesized pair provides
    gradient which makes embedding vector not too distant from the competing proxy" (Eqs. 15, 16):
    along p_i - p_j a positive gradient is a step away from p_i."""
    p = 6 * torch.eye(5, 8, dtype=torch.float64)  # far apart, as the proof assumes
    for lam in (0.7, 0.9, 0.97):
        assert float(gradient(p[:2], p, lam, "synthetic") @ (p[0] - p[1])) > 0


def lams(alpha: float) -> Tensor:
    """The coefficients that Proxy Synthesis draws."""
    loss = ProxySynthesis(NormSoftmax(), alpha=alpha, per_pair=True)
    draw = loss.draw(torch.arange(DRAWN), torch.Generator().manual_seed(0))
    return draw.lam.double()


def lam_is_a_share(lams: Callable[[float], Tensor]) -> None:
    """ "lambda ~ Beta(alpha, alpha) for alpha in (0, inf), and lambda in [0, 1]" (Eq. 4)."""
    drawn = torch.cat([lams(alpha) for alpha in (0.2, 0.4, 1.0, 2.0)])
    assert 0 <= float(drawn.min()) < float(drawn.max()) <= 1


def small_alpha_stays_near_a_parent(lams: Callable[[float], Tensor]) -> None:
    """ "with small alpha [...], p~ has high chance to be generated either close to p_i with lambda
    >> 0.5 or close to p_j with lambda << 0.5" (section 3.3)."""
    assert float((lams(0.4) - 0.5).abs().gt(0.3).double().mean()) > 0.5


def alpha_one_is_uniform(lams: Callable[[float], Tensor]) -> None:
    """ "alpha = 1.0 is the same with uniform distribution, and alpha = 1.5 has a high chance of
    generating synthetics in the middle of two classes" (section 4.3)."""
    middle = {a: float((lams(a) - 0.5).abs().lt(0.25).double().mean()) for a in (1.0, 1.5)}
    assert abs(middle[1.0] - 0.5) < 0.03
    assert middle[1.5] > 0.53


def mu_times_batch_size(synthesis: Any) -> None:
    """ "We perform mu x batch size generations" (section 3.2)."""
    x, y, p = batch(N, C)
    for mu in (0.2, 0.5, 1.0, 1.5, 2.0):
        assert abs(len(synthesis(NormSoftmax(), mu=mu).synthesize(x, y, p).x) - mu * N) <= 0.5


def several_synthetic_classes(synthesis: Any) -> None:
    """ "Virtual Softmax is limited by generating one synthetic negative class, while Proxy
    Synthesis generates multiple synthetic classes, including synthetic embeddings" (D.4)."""
    x, y, p = batch(N, C)
    assert VirtualSoftmax(Softmax()).virtual(x, y, p).numel() == len(x)  # one for each embedding
    made = synthesis(Softmax()).synthesize(x, y, p)
    assert min(len(made.p), len(made.x)) > 1


def similarity_matrices(n: int, c: int) -> None:
    """Section D.1 says N x N and (N + mu N) x (N + mu N); it is C columns, not N."""
    x, y, p = batch(n, c)
    made = ProxySynthesis(NormSoftmax()).synthesize(x, y, p)
    both = NormSoftmax().similarity(torch.cat((x, made.x)), torch.cat((p, made.p)))
    assert tuple(NormSoftmax().similarity(x, p).shape) == (n, n)
    assert tuple(both.shape) == (2 * n, 2 * n)


# Virtual Softmax


def constant_on_unit_vectors(virtual_softmax: Any) -> None:
    """ "Virtual Softmax is not applicable to Norm-softmax loss because W_virt will always be
    constant 1" (sections 4.5 and D.4)."""
    x, y, p = batch()
    x, p = x / x.norm(dim=1, keepdim=True), p / p.norm(dim=1, keepdim=True)
    logit = virtual_softmax(Softmax(), clip=None).virtual(x, y, p)
    assert float((logit - 1).abs().max()) < 1e-5
    with pytest.raises(ValueError, match="Softmax"):
        virtual_softmax(NormSoftmax())


def above_the_positive(virtual_softmax: Any) -> None:
    """ "we observe that W_virt x is much bigger than that of positive class" (D.4)."""
    x, y, p = batch()
    virtual = virtual_softmax(Softmax(), clip=None).virtual(x, y, p)
    assert (virtual > (x * p[y]).sum(dim=1)).all()


def clipped_at_ten(virtual_softmax: Any) -> None:
    """ "we clip the similarity with a virtual negative class to be under 10 for softmax" (D.4)."""
    x, y, p = batch()
    assert float(virtual_softmax(Softmax()).virtual(x, y, p).max()) <= 10
    assert float(VirtualSoftmax(Softmax(), clip=None).virtual(x, y, p).max()) > 10


class _Biased:
    """Softmax with a bias."""

    def similarity(self, x: Tensor, p: Tensor) -> Tensor:
        return x @ p.T + 0.1

    def __call__(self, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return Softmax().from_similarity(self.similarity(x, p) * (1 + x[:, :1] ** 2), y)


RIGHT: dict[Callable[..., None], Any] = {
    no_bias: Softmax(),
    lengths_do_not_matter: NormSoftmax(),
    no_margin: MarginSoftmax,
    pulls_and_pushes: Softmax(),
    considers_class_relation: gradient,
    not_too_distant_from_the_rival: gradient,
    lam_is_a_share: lams,
    small_alpha_stays_near_a_parent: lams,
    alpha_one_is_uniform: lams,
    mu_times_batch_size: ProxySynthesis,
    several_synthetic_classes: ProxySynthesis,
    constant_on_unit_vectors: VirtualSoftmax,
    above_the_positive: VirtualSoftmax,
    clipped_at_ten: VirtualSoftmax,
}
WRONG: dict[Callable[..., None], Any] = {
    no_bias: _Biased(),
    lengths_do_not_matter: Softmax(),
    no_margin: lambda **margins: MarginSoftmax(m3=0.1),
    pulls_and_pushes: _Biased(),
    considers_class_relation: lambda x, p, lam, embeddings: x[0],
    not_too_distant_from_the_rival: lambda x, p, lam, embeddings: p[1] - p[0],
    lam_is_a_share: lambda alpha: torch.linspace(0, 1.1, 9),
    small_alpha_stays_near_a_parent: lambda alpha: torch.full((100,), 0.5),
    alpha_one_is_uniform: lambda alpha: torch.full((100,), 0.1),
    mu_times_batch_size: lambda loss, mu: ProxySynthesis(loss, mu=mu / 2),
    several_synthetic_classes: lambda loss: ProxySynthesis(loss, mu=0.0),
    constant_on_unit_vectors: lambda loss, clip=None: VirtualSoftmax(Softmax(), clip=0.5),
    above_the_positive: lambda loss, clip: VirtualSoftmax(Softmax(), clip=2.0),
    clipped_at_ten: partial(VirtualSoftmax, clip=20.0),
}


@pytest.mark.parametrize("statement", RIGHT, ids=lambda f: f.__name__)
def test_code_matches_the_equations_of_the_paper(statement: Callable[..., None]) -> None:
    statement(RIGHT[statement])


@pytest.mark.parametrize("statement", WRONG, ids=lambda f: f.__name__)
def test_wrong_implementation_is_detected(statement: Callable[..., None]) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        statement(WRONG[statement])


def test_similarity_matrix_is_square_only_for_equal_counts() -> None:
    similarity_matrices(64, 64)
    with pytest.raises(AssertionError):
        similarity_matrices(N, C)
