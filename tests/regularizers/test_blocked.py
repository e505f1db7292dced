"""Visiting the classes in blocks gives the same numbers in memory that does not grow with them."""

from __future__ import annotations

import itertools

import pytest
import torch

import proxysynth as ps
from batches import EVERY_LOSS, batch, gradients
from proxysynth.distributed import blocked_loss
from proxysynth.regularizers import proxy_synthesis
from proxysynth.regularizers.fused_families import family_of
from proxysynth.regularizers.proxy_synthesis import ABLATIONS

SERVED = [name for name, loss in EVERY_LOSS.items() if family_of(loss) is not None]
BLOCKS = (1, 3, 5, None)


def assert_same(value, expected, x, p, close: float = 1e-10) -> None:
    for a, b in zip(gradients(value, x, p), gradients(expected, x, p), strict=True):
        torch.testing.assert_close(a, b, rtol=close, atol=close)


@pytest.mark.parametrize("name", SERVED)
def test_a_plain_loss_is_itself(name: str) -> None:
    loss = EVERY_LOSS[name]
    x, y, p = batch(loss, n=12, c=7, d=6)
    for block in BLOCKS:
        assert_same(blocked_loss(loss, x, y, p, block=block), loss(x, y, p), x, p)


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize(
    ("mu", "per_pair", "duplicates"),
    list(itertools.product((0.2, 1.0, 1.5), (False, True), ("keep", "merge"))),
)
def test_proxy_synthesis_is_the_reference(name, mu, per_pair, duplicates) -> None:
    loss = ps.ProxySynthesis(
        EVERY_LOSS[name], mu=mu, per_pair=per_pair, duplicates=duplicates, alpha=0.8
    )
    x, y, p = batch(loss.loss, n=12, c=7, d=6)
    draw = loss.draw(y, torch.Generator().manual_seed(3))
    for block in BLOCKS:
        made = -3 * loss.by_blocks(draw, x, y, p, block)
        assert_same(made, -3 * loss.by_reference(draw, x, y, p), x, p)


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("kinds", ABLATIONS)
def test_ablations_are_the_reference(name: str, kinds: tuple[str, str]) -> None:
    loss = ps.ProxySynthesis(EVERY_LOSS[name], embeddings=kinds[0], proxies=kinds[1])
    x, y, p = batch(loss.loss, n=9, c=7, d=6)
    for block in BLOCKS:
        made, expected = (torch.Generator().manual_seed(3) for _ in range(2))
        made = blocked_loss(loss, x, y, p, made, block=block)
        assert_same(made, loss(x, y, p, expected), x, p)


@pytest.mark.parametrize("kinds", ABLATIONS)
def test_a_batch_of_one_class_and_no_synthetics_at_all_give_the_plain_loss(kinds) -> None:
    for plain in (ps.Softmax(), ps.ArcFace(), ps.ProxyAnchor()):
        x, y, p = batch(plain)
        for labels, mu in ((torch.full_like(y, 3), 1.0), (y, 0.0)):
            loss = ps.ProxySynthesis(plain, mu=mu, embeddings=kinds[0], proxies=kinds[1])
            assert_same(blocked_loss(loss, x, labels, p, block=2), plain(x, labels, p), x, p)


@pytest.mark.parametrize("name", ["softmax", "arcface", "proxy_anchor", "norm_softmax_steep"])
def test_finite_differences_agree(name: str) -> None:
    loss = ps.ProxySynthesis(EVERY_LOSS[name], lam=0.3)
    x, y, p = batch(loss.loss, n=4, c=3, d=3)
    draw = loss.draw(y, torch.Generator().manual_seed(1))
    function = lambda x, p: loss.by_blocks(draw, x, y, p, 2)  # noqa: E731
    assert torch.autograd.gradcheck(function, (x, p), atol=1e-6)


def test_far_apart_logits_and_lone_classes_stay_numbers() -> None:
    """Raw dot products of hundreds; blocks that hold nothing but an own class; one class in all."""
    x, y, p = batch(ps.Softmax(), n=6, c=4, d=8, dtype=torch.float32)
    x, p = (40 * x.detach()).requires_grad_(), p.detach().requires_grad_()
    for loss in (ps.Softmax(), ps.ProxySynthesis(ps.Softmax(), lam=0.4)):
        for block in (1, None):
            made, expected = (torch.Generator().manual_seed(4) for _ in range(2))
            made = gradients(blocked_loss(loss, x, y, p, made, block=block), x, p)
            expected = gradients(loss(x, y, p, expected), x, p)
            assert all(bool(torch.isfinite(t).all()) for t in made)
            for a, b in zip(made, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    for loss in (ps.Softmax(), ps.NormSoftmax(), ps.ProxyAnchor()):
        x, p = torch.randn(3, 4, requires_grad=True), torch.randn(1, 4, requires_grad=True)
        y = torch.zeros(3, dtype=torch.long)
        assert_same(blocked_loss(loss, x, y, p), loss(x, y, p), x, p, 1e-5)


def test_half_precision_is_near_and_autocast_is_heeded() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax(), lam=0.3)
    x, y, p = batch(loss.loss, n=8, c=40, d=16, dtype=torch.float32)
    draw = loss.draw(y, torch.Generator().manual_seed(0))
    exact = gradients(loss.by_reference(draw, x, y, p), x, p)
    low_x, low_p = (t.detach().bfloat16().requires_grad_() for t in (x, p))
    made = gradients(loss.by_blocks(draw, low_x, y, low_p, 16), low_x, low_p)
    assert [t.dtype for t in made] == [torch.float32, torch.bfloat16, torch.bfloat16]
    with torch.autocast("cpu", torch.bfloat16):
        mixed = gradients(loss.by_blocks(draw, x, y, p, 16), x, p)
    assert not torch.equal(mixed[1], exact[1])
    for found in (made, mixed):
        for a, b in zip(found, exact, strict=True):
            torch.testing.assert_close(a.float(), b, rtol=0.05, atol=0.02 * float(b.abs().max()))


def test_no_tensor_grows_with_the_classes_but_the_gradient_of_the_proxies() -> None:
    x, y, p = batch(ps.NormSoftmax(), n=8, c=4000, d=64, dtype=torch.float32)

    class Births(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.products, self.large = 0, []
            self.seen = {p.untyped_storage().data_ptr()}

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func.overloadpacket is torch.ops.aten.mm:
                self.products += args[0].shape[0] * args[0].shape[1] * args[1].shape[1]
            if isinstance(out, torch.Tensor) and out.numel() >= 4000:
                storage = out.untyped_storage().data_ptr()
                if storage not in self.seen and out.untyped_storage().nbytes() > 16 * 100 * 4 * 4:
                    self.large.append(str(func))
                self.seen.add(storage)
            return out

    for loss in (ps.ProxySynthesis(ps.NormSoftmax()), ps.ProxySynthesis(ps.ProxyAnchor())):
        with Births() as births:
            blocked_loss(loss, x, y, p, block=100).backward()
        p.grad = None
        assert births.large == ["aten.empty_like.default"]
        small = 4 * 8 * 8 * 64  # the synthetic classes, likewise
        assert births.products == 4 * 8 * 4000 * 64 + small  # one product is taken twice


def test_very_many_logits_are_visited_in_blocks_by_themselves(monkeypatch) -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = batch(loss.loss, n=6, c=20)
    draw = loss.draw(y, torch.Generator().manual_seed(0))
    expected = gradients(loss.on(draw, x, y, p), x, p)
    monkeypatch.setattr(proxy_synthesis, "LARGE", 12 * 20 - 1)
    taken = []
    by_blocks = ps.ProxySynthesis.by_blocks
    monkeypatch.setattr(
        ps.ProxySynthesis, "by_blocks", lambda *args: taken.append(1) or by_blocks(*args)
    )
    for a, b in zip(gradients(loss.on(draw, x, y, p), x, p), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    assert taken == [1]


def test_bad_input_is_one_sentence() -> None:
    x, y, p = batch(ps.SoftTriple())
    loss = ps.ProxySynthesis(ps.SoftTriple())
    with pytest.raises(ValueError, match="SoftTriple cannot visit the classes in blocks"):
        loss.by_blocks(loss.draw(y), x, y, p)
    x, y, p = batch(ps.NormSoftmax())
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    for block in (0, -3, 2.5, True):
        with pytest.raises(ValueError, match="block must be a number of classes from 1 on"):
            loss.by_blocks(loss.draw(y), x, y, p, block)
