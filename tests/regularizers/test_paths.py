"""Three ways to one number: reference, mixed similarity, fused. Values and gradients, float64."""

from __future__ import annotations

import itertools

import pytest
import torch

import proxysynth as ps
from batches import EVERY_LOSS, batch, gradients
from proxysynth.regularizers import fused as fused_module
from proxysynth.regularizers.fused import fused
from proxysynth.regularizers.fused_families import family_of
from proxysynth.regularizers.proxy_synthesis import ABLATIONS

FUSED = [name for name, loss in EVERY_LOSS.items() if family_of(loss) is not None]
SETTINGS = list(itertools.product((0.2, 0.5, 1.0, 1.5, 2.0), (False, True), ("keep", "merge")))


def test_the_fused_path_serves_the_softmax_family_and_proxy_anchor() -> None:
    served = {"softmax", "norm_softmax", "sphereface", "cosface", "arcface", "proxy_anchor"}
    assert served <= set(FUSED)
    assert {"proxy_nca", "soft_triple"}.isdisjoint(FUSED)


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize(("mu", "per_pair", "duplicates"), SETTINGS)
def test_all_paths_agree(name: str, mu: float, per_pair: bool, duplicates: str) -> None:
    loss = ps.ProxySynthesis(
        EVERY_LOSS[name], mu=mu, per_pair=per_pair, duplicates=duplicates, alpha=0.8
    )
    x, y, p = batch(loss.loss, n=12, c=4, d=6)  # few classes, so that duplicates occur
    draw = loss.draw(y, torch.Generator().manual_seed(3))
    expected = gradients(loss.by_reference(draw, x, y, p), x, p)
    others = [loss.by_similarity(draw, x, y, p)]
    if name in FUSED:
        others.append(fused(family_of(loss.loss), x, y, p, draw))
    for value in others:
        for a, b in zip(gradients(value, x, p), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", FUSED)
def test_the_fused_path_agrees_across_blocks_of_classes(name: str, monkeypatch) -> None:
    monkeypatch.setattr(fused_module, "CACHE", 1)  # the least block, 256 classes
    monkeypatch.setattr(fused_module, "STRIP", 100)
    loss = ps.ProxySynthesis(EVERY_LOSS[name], mu=1.5, per_pair=True, duplicates="merge")
    x, y, p = batch(loss.loss, n=20, c=1000, d=5)
    y = torch.tensor([0, 255, 256, 511, 512, 767, 768, 999, 300, 301, *range(0, 1000, 100)])
    draw = loss.draw(y, torch.Generator().manual_seed(3))
    assert len(fused_module._blocks(y, y, 20, 1000)) == 4
    expected = gradients(loss.by_reference(draw, x, y, p), x, p)
    for a, b in zip(gradients(loss.on(draw, x, y, p), x, p), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", FUSED)
def test_the_fused_gradient_is_the_slope_of_the_fused_value(name: str) -> None:
    loss = ps.ProxySynthesis(EVERY_LOSS[name])
    x, y, p = batch(loss.loss, n=4, c=3, d=3)
    draw = loss.draw(y, torch.Generator().manual_seed(1))
    family = family_of(loss.loss)
    assert torch.autograd.gradcheck(lambda x, p: fused(family, x, y, p, draw), (x, p), atol=1e-6)


def test_the_fused_path_scales_its_gradient_and_runs_backward_twice() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = batch(loss.loss)
    value = loss.on(loss.draw(y), x, y, p)
    once = torch.autograd.grad(value, (x, p), retain_graph=True)
    again = torch.autograd.grad(-2.5 * value, (x, p))
    for a, b in zip(once, again, strict=True):
        torch.testing.assert_close(-2.5 * a, b)


def test_the_fused_path_is_taken_and_makes_no_copy_of_the_proxies() -> None:
    """Every tensor born during a step is smaller than the proxies, but for their gradient."""
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = batch(loss.loss, n=8, c=3000, d=64, dtype=torch.float32)

    class Births(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.products, self.large = [], []
            self.seen = {p.untyped_storage().data_ptr()}

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm_):
                a, b = args[-2:]
                self.products.append(a.shape[0] * a.shape[1] * b.shape[1])
            if isinstance(out, torch.Tensor) and out.numel() >= p.numel():
                storage = out.untyped_storage().data_ptr()
                if storage not in self.seen:
                    self.large.append(str(func))
                    self.seen.add(storage)
            return out

    with Births() as births:
        loss(x, y, p).backward()
    assert births.large == ["aten.empty_like.default"]  # the gradient of the proxies
    assert sum(births.products) == 3 * 8 * 3000 * 64  # one product forward, two backward


@pytest.mark.parametrize("kinds", ABLATIONS)
def test_ablations_agree_and_are_what_the_table_says(kinds: tuple[str, str]) -> None:
    embeddings, proxies = kinds
    for name in ("norm_softmax", "soft_triple", "proxy_anchor"):
        loss = ps.ProxySynthesis(EVERY_LOSS[name], embeddings=embeddings, proxies=proxies)
        x, y, p = batch(loss.loss, n=6)
        state = torch.Generator().manual_seed(2)
        value = loss(x, y, p, generator=state)
        if kinds == ("original", "original"):
            torch.testing.assert_close(value, loss.loss(x, y, p))
            continue
        draw = loss.draw(y, torch.Generator().manual_seed(2))
        torch.testing.assert_close(value, loss.by_reference(draw, x, y, p))
        torch.testing.assert_close(value, loss.by_similarity(draw, x, y, p))
        made = loss.synthesize(x, y, p, torch.Generator().manual_seed(2))
        c = len(p)
        all_x = {"both": torch.cat((x, made.x)), "original": x, "synthetic": made.x}[embeddings]
        all_p = {"both": torch.cat((p, made.p)), "synthetic": made.p}[proxies]
        labels = {"both": torch.cat((y, made.y)), "original": y, "synthetic": made.y}[embeddings]
        by_hand = loss.loss(all_x, labels - c if proxies == "synthetic" else labels, all_p)
        torch.testing.assert_close(value, by_hand)


def test_a_loss_that_is_only_a_function_goes_by_the_reference() -> None:
    def own_loss(x, y, p, generator=None):
        return torch.nn.functional.cross_entropy(7 * ps.NormSoftmax().similarity(x, p), y)

    x, y, p = batch(ps.NormSoftmax())
    a = ps.ProxySynthesis(own_loss)(x, y, p, generator=torch.Generator().manual_seed(5))
    b = ps.ProxySynthesis(ps.NormSoftmax(7.0))(x, y, p, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(a, b)
