"""Claims about what Proxy Synthesis and Virtual Softmax draw and lay out, asked of their code."""

from __future__ import annotations

import torch
from torch import Tensor

from proxysynth.losses import NormSoftmax, Softmax
from proxysynth.paper.claims.claim import Evidence, Verdict, held, listed, of_code
from proxysynth.paper.claims.gradient_claims import batch
from proxysynth.regularizers import ProxySynthesis, VirtualSoftmax

N, C = 128, 98  # the batch and classes of Table A
DRAWN = 4000


def _lams(alpha: float) -> Tensor:
    """The coefficients that Proxy Synthesis draws for so many pairs."""
    loss = ProxySynthesis(NormSoftmax(), alpha=alpha, per_pair=True)
    draw = loss.draw(torch.arange(DRAWN), torch.Generator().manual_seed(0))
    assert draw is not None
    return draw.lam.double()


def _between(e: Evidence) -> Verdict:
    drawn = torch.cat([_lams(alpha) for alpha in (0.2, 0.4, 1.0, 2.0)])
    low, high = float(drawn.min()), float(drawn.max())
    return held(0 <= low < high <= 1, f"lam from {low:.3f} to {high:.3f}, alpha from 0.2 to 2")


def _near_a_parent(e: Evidence) -> Verdict:
    share = float((_lams(0.4) - 0.5).abs().gt(0.3).double().mean())
    return held(share > 0.5, f"{share:.0%} of {DRAWN} lam drawn with alpha 0.4")


def _shapes(e: Evidence) -> Verdict:
    middle = {a: float((_lams(a) - 0.5).abs().lt(0.25).double().mean()) for a in (0.4, 1.0, 1.5)}
    right = abs(middle[1.0] - 0.5) < 0.03 and middle[1.5] > 0.53
    told = ", ".join(f"{share:.0%} with alpha {alpha:g}" for alpha, share in middle.items())
    return held(right, f"of {DRAWN} lam {told}")


def _synthetics(e: Evidence) -> Verdict:
    x, y, p = batch(N, C)
    made = {mu: len(ProxySynthesis(NormSoftmax(), mu=mu).synthesize(x, y, p).x)
            for mu in (0.2, 0.5, 1.0, 1.5, 2.0)}  # fmt: skip
    told = ", ".join(f"{count} with mu {mu:g}" for mu, count in made.items())
    right = all(abs(count - mu * N) <= 0.5 for mu, count in made.items())
    return held(right, f"of {N} embeddings {told}")


def _matrix(e: Evidence) -> Verdict:
    x, y, p = batch(N, C)
    made = ProxySynthesis(NormSoftmax()).synthesize(x, y, p)
    plain = tuple(NormSoftmax().similarity(x, p).shape)
    both = tuple(NormSoftmax().similarity(torch.cat((x, made.x)), torch.cat((p, made.p))).shape)
    told = (
        f"with N = {N} and {C} classes {plain[0]} x {plain[1]}, with Proxy Synthesis at mu 1 "
        f"{both[0]} x {both[1]}: N x C and (N + mu N) x (C + mu N)"
    )
    return held(plain == (N, N) and both == (2 * N, 2 * N), told)


def _constant(e: Evidence) -> Verdict:
    x, y, p = batch()
    x, p = x / x.norm(dim=1, keepdim=True), p / p.norm(dim=1, keepdim=True)
    logit = VirtualSoftmax(Softmax(), clip=None).virtual(x, y, p)
    spread = float((logit - 1).abs().max())
    refused = _refused()
    told = "refused with Norm-softmax" if refused else "not refused with Norm-softmax"
    return held(spread < 1e-5 and refused, f"on unit vectors it is 1 up to {spread:.0e}; {told}")


def _refused() -> bool:
    try:
        VirtualSoftmax(NormSoftmax())
    except ValueError:
        return True
    return False


def _single(e: Evidence) -> Verdict:
    x, y, p = batch(N, C)
    virtual = VirtualSoftmax(Softmax()).virtual(x, y, p)
    made = ProxySynthesis(Softmax()).synthesize(x, y, p)
    each = virtual.numel() / len(x)
    told = (
        f"{each:g} virtual logit for each of {len(x)} embeddings; {len(made.p)} synthetic proxies "
        f"and {len(made.x)} synthetic embeddings for all of them"
    )
    return held(each == 1 and min(len(made.p), len(made.x)) > 1, told)


def _bigger(e: Evidence) -> Verdict:
    x, y, p = batch()
    virtual = VirtualSoftmax(Softmax(), clip=None).virtual(x, y, p)
    own = (x * p[y]).sum(dim=1)
    above = int((virtual > own).sum())
    mean = f"{float(virtual.mean()):.1f} to {float(own.mean()):.1f} on average"
    told = f"in {above} of {len(x)} random rows, {mean}"
    return held(above == len(x), told)


def _clipped(e: Evidence) -> Verdict:
    x, y, p = batch()
    most = {
        "clipped": float(VirtualSoftmax(Softmax()).virtual(x, y, p).max()),
        "not clipped": float(VirtualSoftmax(Softmax(), clip=None).virtual(x, y, p).max()),
    }
    told = f"largest virtual logit of {len(x)} random rows: {listed(most)}"
    return held(most["clipped"] <= 10 < most["not clipped"], told)


METHOD = (
    of_code(
        "We perform mu x batch size generations",
        "section 3.2",
        "so many synthetics are made, to the nearest whole number",
        _synthetics,
    ),
    of_code(
        "the coefficient of lambda ~ Beta(alpha, alpha) for alpha in (0, inf), and lambda in "
        "[0, 1]",
        "section 3.2, Eq. 4",
        f"all of {DRAWN} lam drawn for each of four alpha lie there",
        _between,
    ),
    of_code(
        "Virtual Softmax is limited by generating one synthetic negative class, while Proxy "
        "Synthesis generates multiple synthetic classes, including synthetic embeddings",
        "section D.4",
        "so many are made for a batch",
        _single,
    ),
    of_code(
        "Since we suggest to sample lambda from Beta(alpha, alpha) with small alpha [...], p~ has "
        "high chance to be generated either close to p_i with lambda >> 0.5 or close to p_j with "
        "lambda << 0.5",
        "section 3.3",
        "with alpha 0.4 more than half of the lam drawn lie below 0.2 or above 0.8",
        _near_a_parent,
    ),
    of_code(
        "alpha = 1.0 is the same with uniform distribution, and alpha = 1.5 has a high chance of "
        "generating synthetics in the middle of two classes",
        "section 4.3",
        "half of the lam drawn with alpha 1 lie in 0.25..0.75, to 3 %, and more with alpha 1.5",
        _shapes,
    ),
    of_code(
        "Norm-softmax loss creates [...] a N x N similarity matrix for the computation of loss. On "
        "the other hand, PS + Norm-softmax loss creates [...] a (N + mu x N) x (N + mu x N) "
        "similarity matrix",
        "section D.1",
        "the matrices are of this size for the batch and the classes of Table A",
        _matrix,
    ),
    of_code(
        "Virtual Softmax is not applicable to Norm-softmax loss because W_virt will always be "
        "constant 1",
        "sections 4.5 and D.4",
        "the virtual logit of unit vectors is 1, and the combination is refused",
        _constant,
    ),
    of_code(
        "In Virtual Softmax, we observe that W_virt x is much bigger than that of positive class",
        "section D.4",
        "the virtual logit is above the own one in every random row",
        _bigger,
    ),
    of_code(
        "we clip the similarity with a virtual negative class to be under 10 for softmax",
        "section D.4",
        "none is above 10 unless told otherwise, where some would be",
        _clipped,
    ),
)
