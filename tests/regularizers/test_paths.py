"""Three paths to one number: reference, mixed similarity, class sums. Values and gradients."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import proxysynth as ps
from batches import EVERY_LOSS, batch, gradients
from proxysynth.distributed import blocked_loss
from proxysynth.losses.functional import class_sums_of
from proxysynth.regularizers import class_sums
from proxysynth.regularizers.proxy_synthesis import ABLATIONS

FAST = [name for name, loss in EVERY_LOSS.items() if class_sums_of(loss) is not None]
SETTINGS = [  # mu, per_pair, duplicates, (embeddings, proxies), block, keep: pairwise
    (1.0, False, "keep", ("both", "both"), None, None),
    (0.2, True, "merge", ("both", "both"), 1, None),
    (2.0, False, "merge", ("synthetic", "synthetic"), 3, False),
    (1.5, True, "keep", ("original", "both"), None, False),
    (0.5, False, "keep", ("synthetic", "both"), 1, False),
    (1.5, False, "merge", ("original", "both"), 3, None),
    (0.2, True, "keep", ("synthetic", "both"), 3, None),
    (1.0, True, "merge", ("synthetic", "synthetic"), None, None),
    (2.0, True, "keep", ("both", "both"), 3, False),
]


def assert_same(found, expected, rtol: float = 1e-10, atol: float = 1e-10) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_softmax_family_and_proxy_anchor_declare_class_sums() -> None:
    served = {"softmax", "norm_softmax", "sphereface", "cosface", "arcface", "proxy_anchor"}
    assert served <= set(FAST)
    assert {"proxy_nca", "soft_triple"}.isdisjoint(FAST)


def test_a_subclass_that_changes_the_formula_does_not_inherit_the_fast_path() -> None:
    class Doubled(ps.NormSoftmax):
        def from_similarity(self, S, y):
            return 2 * super().from_similarity(S, y)

    assert class_sums_of(Doubled()) is None
    x, y, p = batch(ps.NormSoftmax())
    value = ps.ProxySynthesis(Doubled())(x, y, p, generator())
    torch.testing.assert_close(value, 2 * ps.ProxySynthesis(ps.NormSoftmax())(x, y, p, generator()))


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize(("mu", "per_pair", "duplicates", "kinds", "block", "keep"), SETTINGS)
def test_all_paths_agree(name, mu, per_pair, duplicates, kinds, block, keep) -> None:
    loss = ps.ProxySynthesis(
        EVERY_LOSS[name], mu=mu, per_pair=per_pair, duplicates=duplicates, alpha=0.8,
        embeddings=kinds[0], proxies=kinds[1],
    )  # fmt: skip
    x, y, p = batch(loss.loss, n=12, c=4, d=6)  # few classes, so that duplicates occur
    draw = loss.draw(y, generator())
    expected = gradients(-3 * loss.by_reference(draw, x, y, p), x, p)
    assert_same(gradients(-3 * loss.by_similarity(draw, x, y, p), x, p), expected)
    assert_same(gradients(-3 * loss.on(draw, x, y, p), x, p), expected)
    if name in FAST:
        made = loss.by_class_sums(draw, x, y, p, block, keep)
        assert_same(gradients(-3 * made, x, p), expected)


@pytest.mark.parametrize("name", FAST)
def test_plain_loss_by_blocks_matches(name: str) -> None:
    loss = EVERY_LOSS[name]
    x, y, p = batch(loss, n=12, c=7, d=6)
    expected = gradients(loss(x, y, p), x, p)
    for block in (1, 3, None):
        assert_same(gradients(blocked_loss(loss, x, y, p, block=block), x, p), expected)


@pytest.mark.parametrize("name", FAST)
def test_paths_agree_across_many_blocks(name: str, monkeypatch) -> None:
    monkeypatch.setattr(class_sums, "CACHE", 1)  # the smallest blocks, 256 classes
    loss = ps.ProxySynthesis(EVERY_LOSS[name], mu=1.5, per_pair=True, duplicates="merge")
    x, y, p = batch(loss.loss, n=20, c=1000, d=5)
    y = torch.tensor([0, 249, 250, 499, 500, 749, 750, 999, 300, 301, *range(0, 1000, 100)])
    draw = loss.draw(y, generator())
    expected = gradients(loss.by_reference(draw, x, y, p), x, p)
    assert_same(gradients(loss.on(draw, x, y, p), x, p), expected)


@pytest.mark.parametrize("kinds", ABLATIONS)
def test_ablations_match_table_1(kinds: tuple[str, str]) -> None:
    embeddings, proxies = kinds
    for name in ("norm_softmax", "soft_triple", "proxy_anchor"):
        loss = ps.ProxySynthesis(EVERY_LOSS[name], embeddings=embeddings, proxies=proxies)
        x, y, p = batch(loss.loss, n=6)
        value = loss(x, y, p, generator=generator(2))
        if kinds == ("original", "original"):
            torch.testing.assert_close(value, loss.loss(x, y, p))
            continue
        made = loss.synthesize(x, y, p, generator(2))
        c = len(p)
        all_x = {"both": torch.cat((x, made.x)), "original": x, "synthetic": made.x}[embeddings]
        all_p = {"both": torch.cat((p, made.p)), "synthetic": made.p}[proxies]
        labels = {"both": torch.cat((y, made.y)), "original": y, "synthetic": made.y}[embeddings]
        by_hand = loss.loss(all_x, labels - c if proxies == "synthetic" else labels, all_p)
        torch.testing.assert_close(value, by_hand)


@pytest.mark.parametrize("kinds", ABLATIONS)
def test_one_class_or_no_synthetics_give_the_plain_loss_by_blocks_too(kinds) -> None:
    for plain in (ps.Softmax(), ps.ArcFace(), ps.ProxyAnchor()):
        x, y, p = batch(plain)
        for labels, mu in ((torch.full_like(y, 3), 1.0), (y, 0.0)):
            loss = ps.ProxySynthesis(plain, mu=mu, embeddings=kinds[0], proxies=kinds[1])
            found = gradients(blocked_loss(loss, x, labels, p, block=2), x, p)
            assert_same(found, gradients(plain(x, labels, p), x, p))


@pytest.mark.parametrize("name", FAST)
def test_gradient_matches_finite_differences(name: str) -> None:
    loss = ps.ProxySynthesis(EVERY_LOSS[name], lam=0.3)
    x, y, p = batch(loss.loss, n=4, c=3, d=3)
    draw = loss.draw(y, generator(1))
    for block, keep in ((None, None), (2, False)):
        path = lambda x, p: loss.by_class_sums(draw, x, y, p, block, keep)  # noqa: B023, E731
        assert torch.autograd.gradcheck(path, (x, p), atol=1e-6)


def test_backward_twice_with_different_factors() -> None:
    for plain in (ps.NormSoftmax(), ps.Softmax(), ps.ProxyAnchor()):
        loss = ps.ProxySynthesis(plain)
        x, y, p = batch(loss.loss)
        value = loss.on(loss.draw(y), x, y, p)
        once = torch.autograd.grad(value, (x, p), retain_graph=True)
        again = torch.autograd.grad(-2.5 * value, (x, p))
        assert_same([-2.5 * t for t in once], again)


class Births(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts products with the proxies, and new tensors of more than so many numbers."""

    def __init__(self, p: torch.Tensor, limit: int) -> None:
        super().__init__()
        self.limit, self.products = limit, 0
        self.seen = {p.untyped_storage().data_ptr(): p}  # kept, so that no address comes again

    @property
    def large(self) -> int:
        return len(self.seen) - 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            a, b = args[-2:]
            self.products += a.shape[0] * a.shape[1] * b.shape[1]
        if isinstance(out, torch.Tensor):
            storage = out.untyped_storage()
            if storage.nbytes() > 4 * self.limit:
                self.seen.setdefault(storage.data_ptr(), out)
        return out


@pytest.mark.parametrize("plain", [ps.NormSoftmax(), ps.ProxyAnchor(), ps.Softmax()])
def test_one_product_forward_two_backward_and_no_copy_of_the_proxies(plain) -> None:
    loss = ps.ProxySynthesis(plain)
    x, y, p = batch(plain, n=8, c=4000, d=64, dtype=torch.float32)
    draw, product = loss.draw(y), 8 * 4000 * 64
    with Births(p, limit=p.numel() - 1) as births:
        loss.on(draw, x, y, p).backward()
    assert (births.products, births.large) == (3 * product, 1)  # 1: the gradient of the proxies
    p.grad = None
    with Births(p, limit=10 * 16 * 100) as births:  # a few blocks
        loss.by_class_sums(draw, x, y, p, block=100, keep=False).backward()
    assert (births.products, births.large) == (4 * product, 1)


def test_large_logits_are_recomputed(monkeypatch) -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = batch(loss.loss, n=6, c=2000, d=64)
    draw = loss.draw(y, generator())
    expected = gradients(loss.on(draw, x, y, p), x, p)
    monkeypatch.setattr(class_sums, "LARGE", 6 * 2000 - 1)
    with Births(p, limit=0) as births:
        found = gradients(loss.on(draw, x, y, p), x, p)
    assert births.products == 4 * 6 * 2000 * 64
    assert_same(found, expected)


def test_a_loss_that_is_only_a_function_uses_the_reference_path() -> None:
    def own_loss(x, y, p, generator=None):
        return torch.nn.functional.cross_entropy(7 * ps.NormSoftmax().similarity(x, p), y)

    x, y, p = batch(ps.NormSoftmax())
    a = ps.ProxySynthesis(own_loss)(x, y, p, generator=generator())
    b = ps.ProxySynthesis(ps.NormSoftmax(7.0))(x, y, p, generator=generator())
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("scale", [0.01, 39.0, 41.0, 2000.0])
def test_any_scale_in_float32(name: str, scale: float) -> None:
    """Also where exponentials have to be held back from overflowing."""
    plain = EVERY_LOSS[name]
    if hasattr(plain, "scale"):
        plain = dataclasses.replace(plain, scale=scale)
    loss = ps.ProxySynthesis(plain)
    x, y, p = batch(plain, n=24, c=7, d=16, dtype=torch.float32)
    draw = loss.draw(y, generator(4))
    exact = [t.detach().double().requires_grad_() for t in (x, p)]
    expected = gradients(loss.by_reference(draw, exact[0], y, exact[1]), *exact)
    found = [t.double() for t in gradients(loss.on(draw, x, y, p), x, p)]
    assert_same(found, expected, rtol=2e-3, atol=2e-5 * max(1.0, scale))


def test_far_apart_logits_and_lone_classes_stay_finite() -> None:
    """Dot products of hundreds; blocks of nothing but an own class; one class in all."""
    x, y, p = batch(ps.Softmax(), n=6, c=4, d=8, dtype=torch.float32)
    x, p = (40 * x.detach()).requires_grad_(), p.detach().requires_grad_()
    for loss in (ps.Softmax(), ps.ProxySynthesis(ps.Softmax(), lam=0.4)):
        expected = gradients(loss(x, y, p, generator()), x, p)
        for block in (1, None):
            found = gradients(blocked_loss(loss, x, y, p, generator(), block=block), x, p)
            assert_same(found, expected, 1e-4, 1e-4)
    for loss in (ps.Softmax(), ps.NormSoftmax(), ps.ProxyAnchor()):
        x, p = torch.randn(3, 4, requires_grad=True), torch.randn(1, 4, requires_grad=True)
        y = torch.zeros(3, dtype=torch.long)
        found = gradients(blocked_loss(loss, x, y, p), x, p)
        assert_same(found, gradients(loss(x, y, p), x, p), 1e-5, 1e-5)


def test_small_losses_have_exact_gradients_in_float32() -> None:
    """Where nearly all of the softmax is the own class, nothing may cancel."""
    p = 3 * torch.eye(6)
    y = torch.arange(6)
    for plain in (ps.NormSoftmax(40.0), ps.ArcFace(scale=40.0)):
        loss = ps.ProxySynthesis(plain, lam=0.3)
        x, q = (p[y] + 0.2).requires_grad_(), p.clone().requires_grad_()
        draw = loss.draw(y, generator())
        exact = [t.detach().double().requires_grad_() for t in (x, q)]
        expected = gradients(loss.by_reference(draw, exact[0], y, exact[1]), *exact)
        found, plain = (
            gradients(path(draw, x, y, q), x, q) for path in (loss.on, loss.by_reference)
        )
        for a, b, c in zip(found, expected, plain, strict=True):
            off, off_plain = (float((t.double() - b).norm() / b.norm()) for t in (a, c))
            assert off < max(2e-4, off_plain)


@pytest.mark.parametrize("cancel", ["embeddings", "proxies"])
@pytest.mark.parametrize("name", [name for name, loss in EVERY_LOSS.items() if loss.normalized])
def test_opposite_parents_have_zero_gradient(cancel: str, name: str) -> None:
    """Opposite parents with equal shares leave no direction, by whichever path."""
    for dtype in (torch.float32, torch.float64):
        loss = ps.ProxySynthesis(EVERY_LOSS[name], lam=0.5)
        x, _, p = batch(loss.loss, n=2, c=2, d=3, dtype=dtype)
        with torch.no_grad():
            opposite = {"embeddings": x, "proxies": p}[cancel]
            opposite[1] = -opposite[0]
        y = torch.tensor([0, 1])
        draw = loss.draw(y)
        expected = gradients(loss.by_reference(draw, x, y, p), x, p)
        for path in (loss.by_similarity, loss.on):
            assert_same(gradients(path(draw, x, y, p), x, p), expected, 1e-4, 1e-4)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("frozen", ["neither", "embeddings", "proxies"])
def test_double_backward(name: str, frozen: str) -> None:
    """A gradient penalty, as the reference has it."""
    loss = ps.ProxySynthesis(EVERY_LOSS[name])
    x, y, p = batch(loss.loss, n=6, c=4, d=5)
    x.requires_grad_(frozen != "embeddings")
    p.requires_grad_(frozen != "proxies")
    free = [v for v in (x, p) if v.requires_grad]
    draw = loss.draw(y)
    found = []
    for path in (loss.on, loss.by_reference):
        first = torch.autograd.grad(path(draw, x, y, p), free, create_graph=True)
        penalty = sum(each.square().sum() for each in first)
        found.append((*first, *torch.autograd.grad(penalty, free)))
    assert_same(*found, 1e-8, 1e-8)


def test_double_backward_by_blocks_is_rejected() -> None:
    x, y, p = batch(ps.NormSoftmax())
    value = blocked_loss(ps.NormSoftmax(), x, y, p)
    with pytest.raises(RuntimeError, match="create_graph"):
        torch.autograd.grad(value, (x, p), create_graph=True)


def test_torch_func_uses_torchs_own_operations() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = (t.detach() for t in batch(loss.loss))
    draw = loss.draw(y)
    found = torch.func.grad(lambda x, p: loss.on(draw, x, y, p), argnums=(0, 1))(x, p)
    x, p = x.requires_grad_(), p.requires_grad_()
    assert_same(found, gradients(loss.on(draw, x, y, p), x, p)[1:])


def test_half_precision_is_close_and_autocast_is_respected() -> None:
    for plain in (ps.NormSoftmax(), ps.ProxyAnchor(), ps.Softmax()):
        loss = ps.ProxySynthesis(plain, lam=0.3)
        x, y, p = batch(loss.loss, n=8, c=40, d=16, dtype=torch.float32)
        draw = loss.draw(y, generator(0))
        exact = gradients(loss.by_reference(draw, x, y, p), x, p)
        low_x, low_p = (t.detach().bfloat16().requires_grad_() for t in (x, p))
        for block, keep in ((None, None), (16, False)):
            made = gradients(loss.by_class_sums(draw, low_x, y, low_p, block, keep), low_x, low_p)
            assert [t.dtype for t in made] == [torch.float32, torch.bfloat16, torch.bfloat16]
            with torch.autocast("cpu", torch.bfloat16):
                mixed = gradients(loss.by_class_sums(draw, x, y, p, block, keep), x, p)
            assert not torch.equal(mixed[1], exact[1])
            for found in (made, mixed):
                for a, b in zip(found, exact, strict=True):
                    limit = 0.02 * float(b.abs().max())
                    torch.testing.assert_close(a.float(), b, rtol=0.05, atol=limit)


def test_bad_input() -> None:
    x, y, p = batch(ps.SoftTriple())
    loss = ps.ProxySynthesis(ps.SoftTriple())
    with pytest.raises(ValueError, match="SoftTriple"):
        loss.by_class_sums(loss.draw(y), x, y, p)
    x, y, p = batch(ps.NormSoftmax())
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    for block in (0, -3, 2.5, True):
        with pytest.raises(ValueError, match="block"):
            loss.by_class_sums(loss.draw(y), x, y, p, block)
