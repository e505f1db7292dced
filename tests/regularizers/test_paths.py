"""Three ways to one number: reference, mixed similarity, fused. Values and gradients, float64.

The fused one has two forms, for few logits and for many: what is said of it is asked of both.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

import proxysynth as ps
from batches import EVERY_LOSS, batch, gradients
from proxysynth.regularizers import fused as fused_module, fused_small
from proxysynth.regularizers.fused import fused
from proxysynth.regularizers.fused_families import family_of
from proxysynth.regularizers.proxy_synthesis import ABLATIONS

FUSED = [name for name, loss in EVERY_LOSS.items() if family_of(loss) is not None]
FORMS = {"small": fused_small.SMALL, "large": 0}
SETTINGS = list(itertools.product((0.2, 0.5, 1.0, 1.5, 2.0), (False, True), ("keep", "merge")))


def test_the_fused_path_serves_the_softmax_family_and_proxy_anchor() -> None:
    served = {"softmax", "norm_softmax", "sphereface", "cosface", "arcface", "proxy_anchor"}
    assert served <= set(FUSED)
    assert {"proxy_nca", "soft_triple"}.isdisjoint(FUSED)


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize(("mu", "per_pair", "duplicates"), SETTINGS)
def test_all_paths_agree(
    name: str, mu: float, per_pair: bool, duplicates: str, monkeypatch
) -> None:
    loss = ps.ProxySynthesis(
        EVERY_LOSS[name], mu=mu, per_pair=per_pair, duplicates=duplicates, alpha=0.8
    )
    x, y, p = batch(loss.loss, n=12, c=4, d=6)  # few classes, so that duplicates occur
    draw = loss.draw(y, torch.Generator().manual_seed(3))
    expected = gradients(loss.by_reference(draw, x, y, p), x, p)
    others = [loss.by_similarity(draw, x, y, p)]
    if name in FUSED:
        for limit in FORMS.values():
            monkeypatch.setattr(fused_small, "SMALL", limit)
            others.append(fused(family_of(loss.loss), x, y, p, draw, loss.by_similarity))
        small, large = (type(value.grad_fn).__name__ for value in others[1:])
        assert small != large  # the two are different ways
    for value in others:
        for a, b in zip(gradients(value, x, p), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", FUSED)
def test_the_fused_path_agrees_across_blocks_of_classes(name: str, monkeypatch) -> None:
    monkeypatch.setattr(fused_small, "SMALL", 0)
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


@pytest.fixture(params=FORMS)
def form(request, monkeypatch) -> str:
    """The form of the fused path that a test is to meet."""
    monkeypatch.setattr(fused_small, "SMALL", FORMS[request.param])
    return request.param


@pytest.mark.parametrize("name", FUSED)
def test_the_fused_gradient_is_the_slope_of_the_fused_value(name: str, form: str) -> None:
    loss = ps.ProxySynthesis(EVERY_LOSS[name])
    x, y, p = batch(loss.loss, n=4, c=3, d=3)
    draw = loss.draw(y, torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda x, p: loss.on(draw, x, y, p), (x, p), atol=1e-6)


def test_the_fused_path_scales_its_gradient_and_runs_backward_twice(form: str) -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = batch(loss.loss)
    value = loss.on(loss.draw(y), x, y, p)
    once = torch.autograd.grad(value, (x, p), retain_graph=True)
    again = torch.autograd.grad(-2.5 * value, (x, p))
    for a, b in zip(once, again, strict=True):
        torch.testing.assert_close(-2.5 * a, b)


def test_the_fused_path_is_taken_and_makes_no_copy_of_the_proxies(form: str) -> None:
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
                if 64 in (*a.shape, *b.shape):  # not those that mix similarities
                    self.products.append(a.shape[0] * a.shape[1] * b.shape[1])
            if isinstance(out, torch.Tensor) and out.numel() >= p.numel():
                storage = out.untyped_storage().data_ptr()
                if storage not in self.seen:
                    self.large.append(str(func))
                    self.seen.add(storage)
            return out

    with Births() as births:
        loss(x, y, p).backward()
    gradient_of_proxies = {"small": "aten.mul.Tensor", "large": "aten.empty_like.default"}
    assert births.large == [gradient_of_proxies[form]]
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


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("scale", [0.01, 30.0, 39.0, 41.0, 200.0, 2000.0])
def test_the_forms_agree_at_any_scale_in_float32(name: str, scale: float, monkeypatch) -> None:
    """Also where exponentials have to be held back from overflowing."""
    plain = EVERY_LOSS[name]
    if hasattr(plain, "scale"):
        plain = dataclasses.replace(plain, scale=scale)
    loss = ps.ProxySynthesis(plain)
    x, y, p = batch(plain, n=24, c=7, d=16, dtype=torch.float32)
    draw = loss.draw(y, torch.Generator().manual_seed(4))
    exact = [t.detach().double().requires_grad_() for t in (x, p)]
    expected = gradients(loss.by_reference(draw, exact[0], y, exact[1]), *exact)
    for limit in FORMS.values():
        monkeypatch.setattr(fused_small, "SMALL", limit)
        for a, b in zip(gradients(loss.on(draw, x, y, p), x, p), expected, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=2e-3, atol=2e-5 * max(1.0, scale))


def test_the_small_form_is_for_float32_and_float64_on_a_cpu_without_autocast() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())

    def way(dtype: torch.dtype) -> str:
        x, y, p = batch(loss.loss, dtype=dtype)
        return type(loss(x, y, p).grad_fn).__name__

    assert way(torch.float32) == way(torch.float64) == "FusedSmallBackward"
    assert way(torch.bfloat16) == "_FusedBackward"
    with torch.autocast("cpu", torch.bfloat16):
        assert way(torch.float32) == "_FusedBackward"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name, loss in EVERY_LOSS.items() if loss.normalized])
@pytest.mark.parametrize("cancel", ["embeddings", "proxies"])
def test_nothing_is_learnt_from_parents_that_cancel(
    cancel: str, name: str, dtype: torch.dtype, monkeypatch
) -> None:
    """Opposite parents with equal shares leave no direction, by whichever path."""
    loss = ps.ProxySynthesis(EVERY_LOSS[name], lam=0.5)
    x, _, p = batch(loss.loss, n=2, c=2, d=3, dtype=dtype)
    with torch.no_grad():
        opposite = {"embeddings": x, "proxies": p}[cancel]
        opposite[1] = -opposite[0]
    y = torch.tensor([0, 1])
    draw = loss.draw(y)
    ways = {"reference": loss.by_reference, "similarity": loss.by_similarity, "on": loss.on}
    if name in FUSED:
        ways["blocks"] = loss.by_blocks
    found = [gradients(way(draw, x, y, p), x, p) for way in ways.values()]
    monkeypatch.setattr(fused_small, "SMALL", 0)
    found.append(gradients(loss.on(draw, x, y, p), x, p))
    for other in found[1:]:
        for a, b in zip(other, found[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FUSED)
def test_the_small_form_is_the_same_without_the_newest_of_numpy(name: str, monkeypatch) -> None:
    loss = ps.ProxySynthesis(EVERY_LOSS[name])
    x, y, p = batch(loss.loss, n=12, c=4, d=6)
    draw = loss.draw(y, torch.Generator().manual_seed(3))
    expected = gradients(loss.by_reference(draw, x, y, p), x, p)
    monkeypatch.delattr(np, "vecdot", raising=False)
    for a, b in zip(gradients(loss.on(draw, x, y, p), x, p), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("frozen", ["neither", "embeddings", "proxies"])
def test_a_gradient_can_be_differentiated_again(name: str, frozen: str, form: str) -> None:
    """A gradient penalty, as the reference has it."""
    loss = ps.ProxySynthesis(EVERY_LOSS[name])
    x, y, p = batch(loss.loss, n=6, c=4, d=5)
    x.requires_grad_(frozen != "embeddings")
    p.requires_grad_(frozen != "proxies")
    free = [v for v in (x, p) if v.requires_grad]
    draw = loss.draw(y)
    found = []
    for way in (loss.on, loss.by_reference):
        first = torch.autograd.grad(way(draw, x, y, p), free, create_graph=True)
        penalty = sum(each.square().sum() for each in first)
        found.append((*first, *torch.autograd.grad(penalty, free)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_a_gradient_by_blocks_says_that_it_cannot() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = batch(loss.loss)
    value = loss.by_blocks(loss.draw(y), x, y, p)
    with pytest.raises(RuntimeError, match="leave out create_graph=True, or call by_reference"):
        torch.autograd.grad(value, (x, p), create_graph=True)
