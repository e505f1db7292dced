"""Virtual Softmax against loops over single numbers and against the gradient worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

import proxysynth as ps
from batches import EVERY_LOSS, batch, gradients
from proxysynth.regularizers import VirtualSoftmax


def by_hand(x, y, p, clip):
    """The loss and its gradients, number by number."""
    n, c = len(x), len(p)
    total, dx, dp = 0.0, torch.zeros_like(x), torch.zeros_like(p)
    for i, own in enumerate(y.tolist()):
        lx = math.sqrt(sum(float(v) ** 2 for v in x[i]))
        lp = math.sqrt(sum(float(v) ** 2 for v in p[own]))
        free = clip is None or lp * lx < clip
        logits = [float(x[i] @ q) for q in p] + [lp * lx if free else clip]
        top = max(logits)
        z = sum(math.exp(v - top) for v in logits)
        share = [math.exp(v - top) / z for v in logits]
        total -= (logits[own] - top - math.log(z)) / n
        for q in range(c):
            slope = (share[q] - (q == own)) / n
            dx[i] += slope * p[q]
            dp[q] += slope * x[i]
        if free:
            dx[i] += share[c] / n * lp * x[i] / lx
            dp[own] += share[c] / n * lx * p[own] / lp
    return [torch.tensor(total, dtype=x.dtype), dx, dp]


@pytest.mark.parametrize("clip", [None, 10.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_value_and_gradients_match_the_equation(clip, seed) -> None:
    x, y, p = batch(ps.Softmax(), n=9, c=6, d=5, seed=seed)
    made = gradients(VirtualSoftmax(ps.Softmax(), clip)(x, y, p), x, p)
    for ours, theirs in zip(made, by_hand(x.detach(), y, p.detach(), clip), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_clip_is_active_in_the_test_batches() -> None:
    x, y, p = batch(ps.Softmax(), n=9, c=6, d=5)
    lengths = VirtualSoftmax(ps.Softmax(), None).virtual(x, y, p)
    assert (lengths > 3).any()
    assert (lengths < 3).any()
    assert VirtualSoftmax(ps.Softmax(), 3.0).virtual(x, y, p).max() == 3


def test_virtual_logit_is_at_least_the_own_logit() -> None:
    x, y, p = batch(ps.Softmax(), n=50, c=6, d=5)
    own = (x * p[y]).sum(1)
    assert (VirtualSoftmax(ps.Softmax(), None).virtual(x, y, p) >= own - 1e-12).all()
    assert VirtualSoftmax(ps.Softmax())(x, y, p) > ps.Softmax()(x, y, p)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("clip", [None, 10.0])
def test_half_precision_stays_finite(dtype, clip) -> None:
    """The product of these lengths is far above what float16 holds."""
    x = (torch.randn(8, 16) * 40).to(dtype).requires_grad_()
    p = (torch.randn(5, 16) * 300).to(dtype).requires_grad_()
    y = torch.arange(8) % 5
    x.data[:, 8:], p.data[:, :8] = 0, 0  # dot products are small, lengths are not
    assert not (p[y].norm(dim=1) * x.norm(dim=1)).isfinite().all() or dtype is torch.bfloat16
    value = VirtualSoftmax(ps.Softmax(), clip)(x, y, p)
    assert all(part.isfinite().all() for part in gradients(value, x, p))
    assert value.dtype == torch.float32


def test_autocast() -> None:
    x, y, p = batch(ps.Softmax(), dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        value = VirtualSoftmax(ps.Softmax())(x.bfloat16(), y, p)
    assert value.item() == pytest.approx(VirtualSoftmax(ps.Softmax())(x, y, p).item(), rel=0.02)


def test_zero_embedding_has_a_gradient() -> None:
    x, y, p = batch(ps.Softmax())
    x.data[0] = 0
    assert all(t.isfinite().all() for t in gradients(VirtualSoftmax(ps.Softmax())(x, y, p), x, p))


@pytest.mark.parametrize("name", [name for name, loss in EVERY_LOSS.items() if loss.normalized])
def test_normalized_losses_are_rejected(name) -> None:
    with pytest.raises(ValueError, match=r"constant 1$") as told:
        VirtualSoftmax(EVERY_LOSS[name])
    assert str(told.value).count(". ") == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: VirtualSoftmax(ps.ProxySynthesis(ps.Softmax())), "one regularizer at a time"),
        (lambda: VirtualSoftmax(VirtualSoftmax(ps.Softmax())), "one regularizer at a time"),
        (lambda: VirtualSoftmax(ps.Softmax(), clip=0.0), "clip"),
        (lambda: VirtualSoftmax(None), "loss .*got None"),
        (lambda: VirtualSoftmax(lambda x, y, p: x.sum()), "got function"),
    ],
)
def test_invalid_settings_are_rejected(make, words) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_the_head_uses_it_in_training_only() -> None:
    head = ps.ProxyHead(VirtualSoftmax(ps.Softmax()), num_classes=6, dim=8)
    x, y = torch.randn(12, 8), torch.arange(12) % 6
    assert head.train()(x, y) == VirtualSoftmax(ps.Softmax())(x, y, head.proxies)
    assert head.eval()(x, y) == ps.Softmax()(x, y, head.proxies)
    assert head.logits(x).shape == (12, 6)


def test_proxy_synthesis_can_wrap_it() -> None:
    x, y, p = batch(ps.Softmax())
    loss = ps.ProxySynthesis(VirtualSoftmax(ps.Softmax()))
    assert all(part.isfinite().all() for part in gradients(loss(x, y, p), x, p))
    with pytest.raises(ValueError, match="VirtualSoftmax declares no class_sums"):
        loss.by_class_sums(loss.draw(y), x, y, p)
