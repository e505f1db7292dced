"""The loss on shards is the loss: values and gradients, at one to four real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import proxysynth as ps
from batches import batch, gradients
from distributed import cases
from proxysynth.distributed import Shards, blocked_loss, sampled_classes, sharded_loss
from proxysynth.distributed.sharded_loss import draw_seed

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict[str, Tensor]]:
    """The results of four processes, started once for all cases."""
    folder = tmp_path_factory.mktemp("distributed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "process.py"), str(rank), str(folder / "store"), folder],
            env=environment, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(max(cases.WORLDS))
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=300)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), errors
    return [load_file(folder / f"{rank}.safetensors") for rank in range(len(processes))]


def expected(case) -> list[Tensor]:
    """The reference: all proxies in one process, synthetics concatenated to originals."""
    x, y, p = (t.detach().double() if t.is_floating_point() else t for t in case.tensors())
    x, p = x.requires_grad_(), p.requires_grad_()
    loss, state = case.loss, cases.generator()
    draw = loss.draw(y, state) if isinstance(loss, ps.ProxySynthesis) else None
    q, labels = p, y
    if case.negatives < 1:
        picked = sampled_classes(range(len(p)), y, case.negatives, draw_seed(state))
        q, labels = p[picked], torch.searchsorted(picked, y)
    if draw is None:
        value = getattr(loss, "loss", loss)(x, labels, q)
    else:
        value = loss.by_reference(draw, x, labels, q)
    return gradients(-2.5 * value, x, p)


@pytest.mark.parametrize("world", cases.WORLDS)
def test_every_rank_gets_full_loss_and_its_gradient_shard(world, found) -> None:
    count = 0
    for number, case in enumerate(cases.CASES):
        if case.world != world:
            continue
        value, x_grad, p_grad = expected(case)
        close = 1e-10 if case.dtype == torch.float64 else 4e-6
        parts = [{key: rank[f"{number}.{key}"] for key in ("value", "x", "p")}
                 for rank in found[:world]]  # fmt: skip
        for part in parts:
            assert_close(-2.5 * part["value"], value, close, case)
            assert_close(part["x"], x_grad, close, case)
        assert_close(torch.cat([part["p"] for part in parts]), p_grad, close, case)
        count += 1
    assert count > 15


def assert_close(made: Tensor, wanted: Tensor, close: float, case) -> None:
    scale = max(1.0, float(wanted.abs().max()))
    torch.testing.assert_close(
        made.double(), wanted, rtol=0, atol=close * scale, msg=lambda text: f"{case}: {text}"
    )


def test_only_sampled_classes_receive_gradient() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = batch(loss.loss, n=8, c=2000)
    state = cases.generator()
    blocked_loss(loss, x, y, p, generator=state, negatives=0.1).backward()
    moved = (p.grad != 0).any(dim=1)
    assert moved[y].all()
    assert 150 <= int(moved.sum()) <= 260
    again, rest = blocked_loss(loss, x, y, p, cases.generator(), 0.1), cases.generator()
    assert again == blocked_loss(loss, x, y, p, cases.generator(), 0.1)
    assert again != blocked_loss(loss, x, y, p, cases.generator().manual_seed(8), 0.1)
    blocked_loss(loss, x, y, p, generator=rest)  # without sampling nothing more is drawn
    other = cases.generator()
    loss.draw(y, other)
    assert rest.get_state().equal(other.get_state())


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (ps.SoftTriple(), "SoftTriple"),
        (ps.ProxyNCA(), "ProxyNCA"),
        (ps.ProxySynthesis(ps.SoftTriple()), "SoftTriple"),
        (lambda x, y, p, generator=None: x.sum(), "function"),
    ],
)
def test_unshardable_loss_is_rejected(loss, name) -> None:
    x, y, p = batch(ps.NormSoftmax())
    with pytest.raises(ValueError, match=name):
        sharded_loss(loss, x, y, p, Shards(5))


def test_invalid_input_is_rejected() -> None:
    x, y, p = batch(ps.NormSoftmax())
    loss = ps.NormSoftmax()
    with pytest.raises(ValueError, match="process 1 of 2.*5 rows"):
        sharded_loss(loss, x, y, p, Shards(5, 2, 1))
    with pytest.raises(ValueError, match="labels"):
        sharded_loss(loss, x, y, p[:3], Shards(3))
    with pytest.raises(ValueError, match="dimensions"):
        sharded_loss(loss, x[:, :3], y, p, Shards(5))
    for negatives in (0.0, 1.5, True):
        with pytest.raises(ValueError, match="negatives"):
            sharded_loss(loss, x, y, p, Shards(5), negatives=negatives)
    with pytest.raises(ValueError, match="block"):
        sharded_loss(loss, x, y, p, Shards(5), block=0)
