"""The head that people put into their own loop."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import proxysynth as ps
from batches import EVERY_LOSS


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_every_loss_trains_through_the_head(name: str) -> None:
    loss = ps.ProxySynthesis(EVERY_LOSS[name])
    head = ps.ProxyHead(loss, num_classes=6, dim=8, generator=torch.Generator().manual_seed(0))
    x, y = torch.randn(12, 8), torch.arange(12) % 6
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    before = head.eval()(x, y).detach()
    for _ in range(20):
        optimizer.zero_grad()
        head.train()(x, y).backward()
        optimizer.step()
    assert head.eval()(x, y) < before
    assert head.logits(x).shape == (12, 6)
    assert head.predict(x).tolist() == head.logits(x).argmax(1).tolist()


def test_a_loss_that_is_no_scalar_is_rejected() -> None:
    head = ps.ProxyHead(lambda x, y, p: (x @ p.t())[:, 0], num_classes=3, dim=4)
    with pytest.raises(ValueError, match="scalar"):
        head(torch.randn(5, 4), torch.zeros(5, dtype=torch.long))


def test_proxy_initialization_matches_paper_code() -> None:
    """kaiming_uniform with a = sqrt(5): uniform within 1 / sqrt(dim)."""
    head = ps.ProxyHead(ps.NormSoftmax(), num_classes=500, dim=64)
    bound = 1 / 8
    assert head.proxies.abs().max() <= bound
    assert float(head.proxies.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.02)
    assert ps.ProxyHead(ps.SoftTriple(k=3), num_classes=5, dim=4).proxies.shape == (5, 3, 4)


def test_synthesis_only_in_training_mode() -> None:
    head = ps.ProxyHead(ps.ProxySynthesis(ps.CosFace()), num_classes=6, dim=8)
    x, y = torch.randn(12, 8), torch.arange(12) % 6
    assert head.eval()(x, y) == ps.CosFace()(x, y, head.proxies)
    assert head.train()(x, y) != ps.CosFace()(x, y, head.proxies)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_add_classes_keeps_proxies_and_optimizer_state(kind) -> None:
    head = ps.ProxyHead(ps.NormSoftmax(), dim=8, classes=["ant", "bee", "cat"])
    momentum = {} if kind is torch.optim.Adam else {"momentum": 0.9}
    optimizer = kind(head.parameters(), lr=0.1, **momentum)
    x, y = torch.randn(6, 8), torch.arange(6) % 3
    for _ in range(3):
        optimizer.zero_grad()
        head(x, y).backward()
        optimizer.step()
    parameter, old = head.proxies, head.proxies.detach().clone()
    state = {k: v.clone() for k, v in optimizer.state[parameter].items() if torch.is_tensor(v)}
    head.add_classes(["dog", "eel"], optimizer=optimizer)

    assert head.proxies is parameter
    assert head.classes == ["ant", "bee", "cat", "dog", "eel"]
    assert torch.equal(head.proxies[:3], old)
    assert head.proxies[3:].abs().sum() > 0
    for key, value in state.items():
        now = optimizer.state[parameter][key]
        if value.dim() == 0:
            assert now == value
        else:
            assert torch.equal(now[:3], value)
            assert not now[3:].any()
    optimizer.zero_grad()
    head(torch.randn(5, 8), torch.arange(5)).backward()
    optimizer.step()
    assert head.num_classes == 5


def test_add_classes_while_earlier_graph_is_alive() -> None:
    for dtype in (torch.float32, torch.float64):
        head = ps.ProxyHead(ps.NormSoftmax(), 5, 8).to(dtype)
        x = torch.randn(6, 8, dtype=dtype)
        earlier = head(x, torch.arange(6) % 5)
        earlier.backward(retain_graph=True)
        head.add_classes(2)
        assert head.proxies.dtype == dtype
        head(x, torch.arange(6)).backward()
        assert head.proxies.grad.shape == (7, 8)
        assert earlier.isfinite()


def test_add_classes_updates_unnamed_optimizers() -> None:
    head = ps.ProxyHead(ps.NormSoftmax(), 3, 8)
    optimizers = [torch.optim.Adam(head.parameters()), torch.optim.SGD(head.parameters(), 0.1, 0.9)]
    for classes in (3, 5):
        head(torch.randn(6, 8), torch.arange(6) % classes).backward()
        for optimizer in optimizers:
            optimizer.step()
        if classes == 3:
            head.add_classes(2)
    assert optimizers[0].state[head.proxies]["exp_avg"].shape == (5, 8)


def test_add_classes_rejects_optimizer_with_unsupported_state() -> None:
    head = ps.ProxyHead(ps.NormSoftmax(), dim=8, classes=["a", "b", "c"])
    optimizer = torch.optim.Adafactor(head.parameters())
    x, y = torch.randn(6, 8), torch.arange(6) % 3
    head(x, y).backward()
    optimizer.step()
    with pytest.raises(ValueError, match="row_var of Adafactor"):
        head.add_classes(["d"])
    assert head.classes == ["a", "b", "c"]
    head(x, y).backward()
    optimizer.step()
    optimizer.state.pop(head.proxies)
    head.add_classes(["d"])
    optimizer.zero_grad()
    head(x, torch.arange(6) % 4).backward()
    optimizer.step()


def test_add_classes_with_sub_proxies() -> None:
    head = ps.ProxyHead(ps.SoftTriple(k=2), num_classes=3, dim=4)
    head.add_classes(2)
    assert head.proxies.shape == (5, 2, 4)


def test_state_dict_records_classes_and_loss(tmp_path) -> None:
    head = ps.ProxyHead(ps.ProxySynthesis(ps.ArcFace(m2=0.2)), dim=4, classes=["ant", "bee"])
    save_file(head.state_dict(), tmp_path / "head.safetensors")
    other = ps.ProxyHead(ps.ProxySynthesis(ps.ArcFace(m2=0.2)), num_classes=2, dim=4)
    other.load_state_dict(load_file(tmp_path / "head.safetensors"))
    assert other.classes == ["ant", "bee"]
    assert other.trained_with["loss"]["m2"] == 0.2
    assert torch.equal(other.proxies, head.proxies)

    torch.save(head.state_dict(), tmp_path / "head.pt")
    wrong = ps.ProxyHead(ps.NormSoftmax(), num_classes=2, dim=4)
    with pytest.warns(UserWarning, match="ArcFace.*NormSoftmax"):
        wrong.load_state_dict(torch.load(tmp_path / "head.pt", weights_only=True))


def test_a_state_dict_of_other_settings_names_those_that_differ() -> None:
    state = ps.ProxyHead(ps.CosFace(11.0), 2, 4).state_dict()
    head = ps.ProxyHead(ps.ProxySynthesis(ps.CosFace(23.0)), 2, 4)
    with pytest.warns(UserWarning, match="scale 11.0 in the state dict, 23.0") as warned:
        head.load_state_dict(state)
    assert "m3" not in str(warned[0].message)


def test_state_dict_of_different_classes_is_rejected() -> None:
    state = ps.ProxyHead(ps.NormSoftmax(), dim=4, classes=["ant", "bee"]).state_dict()
    for classes in (["bee", "ant"], ["ant", "cat"]):
        head = ps.ProxyHead(ps.NormSoftmax(), dim=4, classes=classes)
        with pytest.raises(ValueError, match="class . is"):
            head.load_state_dict(state)
        assert head.classes == classes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head = ps.ProxyHead(ps.ProxySynthesis(ps.NormSoftmax()), dim=4, classes=["ant", "bee"])
        head.load_state_dict(state)


@pytest.mark.parametrize("garbage", [b"{", b"\xff\xfe", b"[]", b"{}"])
def test_invalid_extra_state_is_reported(garbage: bytes) -> None:
    head = ps.ProxyHead(ps.NormSoftmax(), 2, 4)
    extra = torch.tensor(list(garbage), dtype=torch.uint8)
    with pytest.raises(ValueError, match="_extra_state"):
        head.load_state_dict({**head.state_dict(), "_extra_state": extra})


def test_torch_func_grad_matches_autograd() -> None:
    head = ps.ProxyHead(ps.ProxySynthesis(ps.NormSoftmax()), 5, 4)
    x, y = torch.randn(7, 4), torch.arange(7) % 5
    parameters = dict(head.named_parameters())

    def loss(parameters, x):
        torch.manual_seed(0)
        return torch.func.functional_call(head, parameters, (x, y))

    found = torch.func.grad(loss)({k: v.detach() for k, v in parameters.items()}, x)
    expected = torch.autograd.grad(loss(parameters, x), head.proxies)[0]
    torch.testing.assert_close(found["proxies"], expected, rtol=1e-4, atol=1e-6)


def test_process_group_without_ddp_warns(monkeypatch) -> None:
    x, y = torch.randn(6, 4), torch.arange(6) % 3
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    head = ps.ProxyHead(ps.NormSoftmax(), 3, 4)
    with pytest.warns(UserWarning, match="DistributedDataParallel"):
        head(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head(x, y)  # once is enough
        ps.ProxyHead(ps.NormSoftmax(), 3, 4).eval()(x, y)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
        ps.ProxyHead(ps.NormSoftmax(), 3, 4)(x, y)  # the first process warns for all
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)

        class DistributedDataParallel(torch.nn.Module):
            def __init__(self, module) -> None:
                super().__init__()
                self.module = module

            def forward(self, *args):
                return self.module(*args)

        DistributedDataParallel(ps.ProxyHead(ps.NormSoftmax(), 3, 4))(x, y)


def dots(x, y, p):
    return torch.nn.functional.cross_entropy(x @ p.t(), y)


@pytest.mark.parametrize("loss", [dots, ps.ProxySynthesis(dots)])
def test_function_as_loss(loss) -> None:
    head = ps.ProxyHead(loss, 3, 4)
    x, y = torch.randn(6, 4), torch.arange(6) % 3
    seeded = torch.Generator().manual_seed
    assert head(x, y).isfinite()
    assert head(x, y, generator=seeded(0)) == head(x, y, generator=seeded(0))
    assert head.eval()(x, y, generator=seeded(0)) == dots(x, y, head.proxies)
    with pytest.raises(TypeError, match="class scores"):
        head.predict(x)
    assert "dots" in head.trained_with
    assert "0x" not in head.trained_with  # an address, another one in the process that loads it
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ps.ProxyHead(loss, 3, 4).load_state_dict(head.state_dict())


def test_generator_is_passed_to_loss() -> None:
    def noise(x, y, p, generator=None):
        return torch.rand((), generator=generator)

    head, x, y = ps.ProxyHead(noise, 3, 4), torch.randn(6, 4), torch.arange(6) % 3
    seeded = torch.Generator().manual_seed
    assert head(x, y, generator=seeded(1)) == head(x, y, generator=seeded(1))


def test_numpy_integers_are_accepted() -> None:
    head = ps.ProxyHead(ps.SoftTriple(k=np.int64(2)), np.int64(3), np.int32(4))
    head.add_classes(np.int64(2))
    assert head.proxies.shape == (5, 2, 4)


@pytest.mark.parametrize(
    ("loss", "came"),
    [(ps.NormSoftmax, "the class NormSoftmax"), (None, "None"), ("softmax", "'softmax'")],
)
def test_loss_class_or_name_is_rejected(loss: object, came: str) -> None:
    with pytest.raises(ValueError, match=f"got {came}"):
        ps.ProxyHead(loss, 3, 4)


def test_invalid_head_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="num_classes=None"):
        ps.ProxyHead(ps.NormSoftmax())
    with pytest.raises(ValueError, match="num_classes=3, dim=4.0"):
        ps.ProxyHead(ps.NormSoftmax(), 3, 4.0)
    with pytest.raises(ValueError, match="2 names"):
        ps.ProxyHead(ps.NormSoftmax(), 3, 4, classes=["a", "b"])
    with pytest.raises(ValueError, match="'a' twice"):
        ps.ProxyHead(ps.NormSoftmax(), dim=4, classes=["a", "b", "a"])
    named = ps.ProxyHead(ps.NormSoftmax(), dim=4, classes=["a", "b"])
    with pytest.raises(ValueError, match="keeps names"):
        named.add_classes(2)
    with pytest.raises(ValueError, match="keeps names"):
        named.add_classes(2.5)
    with pytest.raises(ValueError, match="'shoe'"):
        named.add_classes("shoe")
    assert named.classes == ["a", "b"]
    with pytest.raises(ValueError, match="'b' twice"):
        named.add_classes(["b"])
    with pytest.raises(ValueError, match="no names"):
        ps.ProxyHead(ps.NormSoftmax(), 2, 4).add_classes(["c"])
    with pytest.raises(ValueError, match="at least one new class"):
        ps.ProxyHead(ps.NormSoftmax(), 2, 4).add_classes(0)


def test_module_with_own_proxies_is_rejected() -> None:
    with pytest.raises(ValueError, match="synthesize_over"):
        ps.ProxyHead(torch.nn.Linear(4, 3), num_classes=3, dim=4)


@pytest.mark.parametrize("loss", [ps.ProxySynthesis(ps.NormSoftmax()), ps.SoftTriple()])
def test_nonfinite_proxies_are_reported(loss: object) -> None:
    head = ps.ProxyHead(loss, 5, 4)
    with torch.no_grad():
        head.proxies[3] = float("nan")
    with pytest.raises(ValueError, match="proxies must be finite.* 1 of 5 .*3"):
        head(torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))
