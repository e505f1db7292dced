"""Every loss against its equation, against pytorch-metric-learning, and at the edges."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import proxysynth as ps
from batches import EVERY_LOSS, batch, gradients
from losses.oracle import value as oracle
from proxysynth.values import encode


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_value_and_gradient_match_the_equation(name: str) -> None:
    loss = EVERY_LOSS[name]
    for seed in range(3):
        x, y, p = batch(loss, seed=seed)
        ours = gradients(loss(x, y, p), x, p)
        theirs = gradients(oracle(loss, x, y, p), x, p)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_defaults_match_the_paper() -> None:
    made = {name: kind() for name, kind in ps.LOSSES.items()}
    assert list(made)[:8] == [
        "softmax", "norm_softmax", "sphereface", "cosface",
        "arcface", "proxy_nca", "soft_triple", "proxy_anchor",
    ]  # fmt: skip
    assert made["norm_softmax"] == ps.NormSoftmax(scale=23.0)
    assert made["sphereface"] == ps.SphereFace(scale=30.0, m1=1.05, m2=0.0, m3=0.0)
    assert made["cosface"] == ps.CosFace(scale=23.0, m1=1.0, m2=0.0, m3=0.1)
    assert made["arcface"] == ps.ArcFace(scale=23.0, m1=1.0, m2=0.1, m3=0.0)
    assert made["proxy_nca"] == ps.ProxyNCA(scale=1.0)
    assert made["soft_triple"] == ps.SoftTriple(scale=20.0, temperature=0.1, margin=0.01, k=10)
    assert made["soft_triple"].regularizer == made["soft_triple"].scaled_margin == 0.0
    assert made["proxy_anchor"] == ps.ProxyAnchor(scale=32.0, margin=0.1)


def test_squared_proxy_nca_is_norm_softmax_at_twice_the_scale() -> None:
    x, y, p = batch(ps.NormSoftmax())
    ours = gradients(ps.SquaredProxyNCA(scale=12.0)(x, y, p), x, p)
    theirs = gradients(ps.NormSoftmax(scale=24.0)(x, y, p), x, p)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def peers() -> dict:
    """Pairs of ours and pytorch-metric-learning's that define the same thing."""
    from pytorch_metric_learning import losses as theirs

    size = {"num_classes": 5, "embedding_size": 4}
    return {
        "norm_softmax": (
            ps.NormSoftmax(20.0),
            theirs.NormalizedSoftmaxLoss(temperature=0.05, **size),
        ),
        "cosface": (ps.CosFace(30.0, m3=0.2), theirs.CosFaceLoss(**size, margin=0.2, scale=30)),
        "arcface": (
            ps.ArcFace(30.0, m2=math.radians(10)),
            theirs.ArcFaceLoss(**size, margin=10, scale=30),
        ),
        "soft_triple": (
            ps.SoftTriple(margin=0.0, scaled_margin=0.01, k=3),
            theirs.SoftTripleLoss(**size, centers_per_class=3),
        ),
        "proxy_anchor": (ps.ProxyAnchor(), theirs.ProxyAnchorLoss(**size)),
        "squared_proxy_nca": (
            ps.SquaredProxyNCA(3.0),
            theirs.ProxyNCALoss(**size, softmax_scale=3),
        ),
    }


@pytest.mark.parametrize(
    "name",
    ["norm_softmax", "cosface", "arcface", "soft_triple", "proxy_anchor", "squared_proxy_nca"],
)
def test_equal_to_pytorch_metric_learning(name: str) -> None:
    ours, theirs = peers()[name]
    theirs = theirs.double()
    (weight,) = theirs.parameters()
    x, y, p = batch(ours)
    if name == "arcface":  # past pi - margin theirs bends the curve, which Eq. viii does not
        x = (x + 3 * p[y]).detach().requires_grad_()
    with torch.no_grad():
        rows = p.flatten(0, -2)
        weight.copy_(rows if name in ("proxy_anchor", "squared_proxy_nca") else rows.t())
    a, b = ours(x, y, p), theirs(x, y)
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    (ga,), (gb,) = torch.autograd.grad(a, x), torch.autograd.grad(b, x)
    torch.testing.assert_close(ga, gb, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_finite_if_embedding_equals_its_proxy_or_its_negative(
    name: str, dtype: torch.dtype
) -> None:
    loss = EVERY_LOSS[name]
    _, y, p = batch(loss, n=6, d=16)
    own = (p[:, 0] if p.dim() == 3 else p)[y]
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], dtype=own.dtype)
    x = (signs[:, None] * own).detach().to(dtype).requires_grad_()
    p = p.detach().to(dtype).requires_grad_()
    for made in gradients(loss(x, y, p), x, p):
        assert made.isfinite().all()


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_logits_have_no_margin(name: str) -> None:
    loss = EVERY_LOSS[name]
    x, _, p = batch(loss)
    logits = loss.logits(loss.similarity(x, p))
    assert logits.shape == (7, 5)
    if name in ("cosface", "arcface", "sphereface", "norm_softmax"):
        cos = torch.nn.functional.cosine_similarity(x[:, None], p[None], dim=2)
        torch.testing.assert_close(logits, loss.scale * cos)


def test_soft_triple_penalty_is_separate_and_off_by_default() -> None:
    x, y, p = (t.detach() for t in batch(EVERY_LOSS["soft_triple_as_its_paper"]))
    off = ps.SoftTriple(k=3)
    on = ps.SoftTriple(k=3, regularizer=0.2)
    assert float(off.penalty(p)) == 0.0
    assert float(on.penalty(p)) > 0.0
    torch.testing.assert_close(on(x, y, p), off(x, y, p) + on.penalty(p))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ps.NormSoftmax(scale=0.0), "NormSoftmax: scale .* 0.0"),
        (lambda: ps.NormSoftmax(scale=math.nan), "scale"),
        (lambda: ps.NormSoftmax(scale=1e300), "scale .* 1e\\+300"),
        (lambda: ps.NormSoftmax(scale="23"), "scale .* '23'"),
        (lambda: ps.CosFace(m3=-0.1), "m3"),
        (lambda: ps.ArcFace(m2=28.6), "m2 .* degrees, give 0.4992"),
        (lambda: ps.SphereFace(m1=-1.0), "m1"),
        (lambda: ps.ProxyAnchor(margin=math.inf), "margin"),
        (lambda: ps.SoftTriple(temperature=0.0), "temperature"),
        (
            lambda: ps.SoftTriple(k=3)(
                torch.ones(1, 2), torch.zeros(1, dtype=int), torch.ones(4, 5, 2)
            ),
            "k=3",
        ),
        (lambda: ps.SoftTriple(k=2.5), "k .* 2.5"),
        (lambda: ps.ProxyNCA(scale=-1.0), "scale"),
    ],
)
def test_invalid_settings_name_the_field(make, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        make()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ps.NormSoftmax, {"scale": np.float32(23)}),
        (ps.ArcFace, {"scale": np.int64(23), "m2": np.float64(0.5)}),
        (ps.SoftTriple, {"k": np.int32(3)}),
        (ps.ProxySynthesis, {"loss": ps.Softmax(), "mu": np.float32(2), "lam": np.float32(0.5)}),
    ],
)
def test_numpy_numbers_become_python_numbers(kind: type, fields: dict) -> None:
    own = {name: v.item() if isinstance(v, np.generic) else v for name, v in fields.items()}
    assert repr(kind(**fields)) == repr(kind(**own))
    assert json.dumps(encode(kind(**fields))) == json.dumps(encode(kind(**own)))


def test_invalid_batches_are_rejected() -> None:
    loss = ps.NormSoftmax()
    x, y, p = (t.detach() for t in batch(loss))
    nan = x.index_fill(0, torch.tensor([2]), math.nan)
    bad = [
        (x, y + 1, p, "labels .* 0..4 .* 1..5"),
        (x, y - 1, p, "labels .* 0..4 .* -1..3"),
        (x, y.double(), p, "labels .* float64"),
        (x, y > 1, p, "labels .* bool"),
        (x, y[:-1], p, r"labels .* \(7,\)"),
        (x, y, p[:, :3], "4 dimensions and proxies 3"),
        (x.float(), y, p, "embeddings are float32 and proxies float64"),
        (x[0], y, p, "embeddings .* shape"),
        (x, y, p[:, None], "proxies .* shape"),
        (x, y.tolist(), p, "labels .* list"),
        (x, y.numpy(), p, "labels .* ndarray"),
        (x.numpy(), y, p, "embeddings .* ndarray"),
        (x, y, p.tolist(), "proxies .* list"),
        (x[:0], y[:0], p, "empty"),
        (nan, y, p, "1 of 7 rows .*row 2"),
        (x.index_fill(0, torch.tensor([3, 4]), math.inf), y, p, "2 of 7 rows"),
        (x.to("meta"), y, p, "embeddings are on meta"),
    ]
    for *given, expected in bad:
        for callee in (loss, ps.ProxySynthesis(loss)):
            with pytest.raises(ValueError, match=expected) as caught:
                callee(*given)
            assert "\n" not in str(caught.value)


def test_embeddings_whose_lengths_overflow_are_reported() -> None:
    y, p = torch.tensor([0, 1]), torch.eye(4)
    for loss in (ps.NormSoftmax(), ps.ProxySynthesis(ps.NormSoftmax())):
        assert loss(torch.full((2, 4), 1e18), y, p).isfinite()
        with pytest.raises(ValueError, match="lengths .* float32 .* row 1"):
            loss(torch.tensor([[1.0] * 4, [1e19] * 4]), y, p)
        assert loss(torch.full((2, 4), 1e19).double(), y, p.double()).isfinite()


def test_proxy_nca_needs_two_classes() -> None:
    with pytest.raises(ValueError, match="at least 2 classes, got 1"):
        ps.ProxyNCA()(torch.randn(2, 3), torch.tensor([0, 0]), torch.randn(1, 3))


def test_unknown_loss_suggests_the_nearest_name() -> None:
    from proxysynth.values import look_up

    with pytest.raises(ValueError, match="'norm_sofmax'.*'norm_softmax'"):
        look_up("norm_sofmax", ps.LOSSES, "loss")
