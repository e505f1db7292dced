"""Proxy Synthesis as a user meets it: settings, draws, precision, compile, bad input."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

import proxysynth as ps
from batches import EVERY_LOSS, batch, gradients
from proxysynth.regularizers.pairs import Draw


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_is_a_value() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    assert loss == ps.ProxySynthesis(ps.NormSoftmax(23.0), alpha=0.4, mu=1.0)
    assert hash(loss) == hash(ps.ProxySynthesis(ps.NormSoftmax()))
    assert (loss.lam, loss.per_pair, loss.embeddings, loss.proxies, loss.duplicates) == (
        None, False, "both", "both", "keep",
    )  # fmt: skip
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.mu = 2.0  # type: ignore[misc]


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_one_class_or_no_synthetics_give_the_plain_loss(name: str) -> None:
    loss = EVERY_LOSS[name]
    x, y, p = batch(loss)
    one = torch.full_like(y, 2)
    assert ps.ProxySynthesis(loss)(x, one, p) == loss(x, one, p)
    assert ps.ProxySynthesis(loss, mu=0.0)(x, y, p) == loss(x, y, p)


def test_another_regularizer_inside_is_rejected() -> None:
    for loss in (ps.InputMixup(ps.NormSoftmax()), ps.ProxySynthesis(ps.NormSoftmax())):
        with pytest.raises(ValueError, match=type(loss).__name__):
            ps.ProxySynthesis(loss)


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_synthesize_returns_what_the_loss_sees(name: str) -> None:
    plain = EVERY_LOSS[name]
    loss = ps.ProxySynthesis(plain, mu=1.5)
    x, y, p = batch(plain)
    made = loss.synthesize(x, y, p, generator=seeded(1))
    assert made.x.shape == (10, 4)  # round(1.5 * 7)
    assert made.lam.shape == ()
    assert (y[made.i] != y[made.j]).all()
    assert made.y.tolist() == list(range(5, 15))
    value = plain(torch.cat((x, made.x)), torch.cat((y, made.y)), torch.cat((p, made.p)))
    if name == "soft_triple_as_its_paper":  # the penalty is over the original proxies, once
        value = value - plain.penalty(torch.cat((p, made.p))) + plain.penalty(p)
    torch.testing.assert_close(loss(x, y, p, generator=seeded(1)), value)


def test_cosine_losses_mix_unit_vectors_softmax_raw_ones() -> None:
    x, y, p = batch(ps.Softmax())
    made = ps.ProxySynthesis(ps.Softmax(), lam=0.3).synthesize(x, y, p)
    torch.testing.assert_close(made.x, 0.3 * x[made.i] + 0.7 * x[made.j])
    torch.testing.assert_close(made.p, 0.3 * p[y[made.i]] + 0.7 * p[y[made.j]])
    made = ps.ProxySynthesis(ps.NormSoftmax(), lam=0.3).synthesize(x, y, p)
    unit = torch.nn.functional.normalize
    torch.testing.assert_close(made.x, unit(0.3 * unit(x)[made.i] + 0.7 * unit(x)[made.j]))
    torch.testing.assert_close(made.p, unit(0.3 * unit(p)[y[made.i]] + 0.7 * unit(p)[y[made.j]]))


def test_sub_proxies_are_mixed_k_to_k() -> None:
    x, y, p = batch(ps.SoftTriple(k=3))
    made = ps.ProxySynthesis(ps.SoftTriple(k=3), lam=0.4).synthesize(x, y, p)
    unit = lambda v: torch.nn.functional.normalize(v, dim=-1)  # noqa: E731
    expected = unit(0.4 * unit(p)[y[made.i]] + 0.6 * unit(p)[y[made.j]])
    torch.testing.assert_close(made.p, expected)


def test_coefficients_per_batch_per_pair_and_fixed() -> None:
    x, y, p = batch(ps.NormSoftmax(), n=40)
    per_pair = ps.ProxySynthesis(ps.NormSoftmax(), per_pair=True).synthesize(x, y, p)
    assert len(set(per_pair.lam.tolist())) == 40
    assert ((per_pair.lam >= 0) & (per_pair.lam <= 1)).all()
    assert ps.ProxySynthesis(ps.NormSoftmax(), lam=0.25).synthesize(x, y, p).lam == 0.25


@pytest.mark.parametrize("alpha", [0.2, 0.4, 1.0, 1.5])
def test_coefficients_follow_the_beta_distribution(alpha: float) -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax(), alpha=alpha, mu=500.0, per_pair=True)
    lam = loss.draw(torch.arange(20), seeded(0)).lam  # 10,000 of them
    assert float(lam.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(lam.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


def test_merging_makes_one_class_of_duplicate_pairs() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax(), mu=2.0, duplicates="merge", per_pair=True)
    x, _, p = batch(loss.loss, n=12, c=3)
    y = torch.arange(12) % 3
    made = loss.synthesize(x, y, p)
    assert made.x.shape[0] == 24
    assert made.p.shape[0] <= 6  # ordered pairs of three classes
    for pair in {(int(y[i]), int(y[j])) for i, j in zip(made.i, made.j, strict=True)}:
        same = [r for r in range(24) if (int(y[made.i[r]]), int(y[made.j[r]])) == pair]
        assert len(set(made.y[same].tolist())) == 1
        assert len(set(made.lam[same].tolist())) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 12), st.integers(2, 6), st.sampled_from([0.2, 1.0, 1.7]), st.integers(0, 10**6),
    st.sampled_from(["norm_softmax", "softmax", "arcface", "proxy_anchor", "soft_triple"]),
)  # fmt: skip
def test_relabeling_and_permuting_change_nothing_but_the_draw(n, c, mu, seed, name) -> None:
    loss = ps.ProxySynthesis(EVERY_LOSS[name], mu=mu, duplicates="merge")
    x, y, p = (t.detach() for t in batch(loss.loss, n=n, c=c, seed=seed))
    draw = loss.draw(y, seeded(seed))
    if draw is None:
        return
    value = loss.on(draw, x, y, p)

    classes = torch.randperm(c, generator=seeded(seed))
    renamed = torch.empty_like(p).index_copy_(0, classes, p)
    torch.testing.assert_close(loss.on(draw, x, classes[y], renamed), value)

    order = torch.randperm(n, generator=seeded(seed + 1))
    place = torch.argsort(order)  # where each old row now stands
    moved = dataclasses.replace(draw, i=place[draw.i], j=place[draw.j])
    torch.testing.assert_close(loss.on(moved, x[order], y[order], p), value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_finite_in_every_precision_even_at_the_edges(name: str, dtype: torch.dtype) -> None:
    """Embeddings on their proxies or opposite to them; parents that cancel each other."""
    loss = EVERY_LOSS[name]
    _, y, p = batch(loss, n=6, c=5, d=16)
    p = p.detach().clone()
    p[4] = -p[0]
    y = torch.tensor([0, 4, 1, 2, 3, 0])
    own = (p[:, 0] if p.dim() == 3 else p)[y]
    x = own * torch.tensor([1, 1, -1, 1, -1, 1])[:, None]
    x, p = (t.to(dtype).requires_grad_() for t in (x, p))
    zero, one = torch.tensor([0, 2, 3]), torch.tensor([1, 3, 4])
    for lam in (0.0, 0.5, 1.0):
        pairs = torch.arange(3)
        draw = Draw(zero, one, torch.tensor(lam, dtype=torch.float64), pairs, pairs)
        value = ps.ProxySynthesis(loss)
        for path in (value.on, value.by_similarity, value.by_reference):
            for made in gradients(path(draw, x, y, p), x, p):
                assert made.isfinite().all(), (path.__name__, lam)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_autocast_is_close_to_full_precision(name: str, dtype: torch.dtype) -> None:
    loss = ps.ProxySynthesis(EVERY_LOSS[name])
    x, y, p = batch(loss.loss, n=16, c=8, d=32, dtype=torch.float32)
    x = (x / 4).detach().requires_grad_()
    draw = loss.draw(y, seeded(0))
    exact = gradients(loss.on(draw, x, y, p), x, p)
    for path in (loss.on, loss.by_similarity, loss.by_reference):
        with torch.autocast("cpu", dtype=dtype):
            half = (x * 1.0).to(dtype)  # as a network under autocast hands it over
            made = gradients(path(draw, half, y, p), x, p)
        assert made[0].dtype == torch.float32
        torch.testing.assert_close(made[0], exact[0], rtol=0.05, atol=0.05)
        cosine = torch.nn.functional.cosine_similarity
        for a, b in zip(made[1:], exact[1:], strict=True):
            assert cosine(a.flatten(), b.flatten(), dim=0) > 0.98


def test_a_gradient_scaler_changes_nothing() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = batch(loss.loss, n=16, c=8, d=32, dtype=torch.float32)
    draw = loss.draw(y, seeded(0))
    expected = gradients(loss.on(draw, x, y, p), p)[1]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD([p], lr=1.0)
    before = p.detach().clone()
    scaler.scale(loss.on(draw, x, y, p)).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(before - p.detach(), expected, rtol=1e-4, atol=1e-6)


def test_gradients_accumulate() -> None:
    loss = ps.ProxySynthesis(ps.ArcFace())
    x, y, p = batch(loss.loss, n=8)
    draw = loss.draw(y, seeded(0))
    once = gradients(loss.on(draw, x, y, p), p)[1]
    for _ in range(3):
        (loss.on(draw, x, y, p) / 3).backward()
    torch.testing.assert_close(p.grad, once)


@pytest.mark.parametrize(
    "name",
    ["arcface", *(pytest.param(name, marks=pytest.mark.slow)
                  for name in ("softmax", "proxy_nca", "soft_triple", "proxy_anchor"))],
)  # fmt: skip
def test_torch_compile_matches_eager(name: str) -> None:
    loss = ps.ProxySynthesis(EVERY_LOSS[name])
    x, y, p = batch(loss.loss, n=8)

    def step(x, p):
        return loss(2 * x, y, p) * 3

    torch.manual_seed(1)
    expected = gradients(step(x, p), x, p)
    torch.manual_seed(1)
    made = gradients(torch.compile(step, backend="aot_eager")(x, p), x, p)
    for a, b in zip(made, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
def test_compiled_paths_of_similarity_and_reference() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = batch(loss.loss, n=8)
    draw = loss.draw(y, seeded(0))
    for path in (loss.by_similarity, loss.by_reference, loss.on):
        compiled = torch.compile(lambda x, p, path=path: path(draw, x, y, p), backend="aot_eager")
        expected = gradients(path(draw, x, y, p), x, p)
        for a, b in zip(gradients(compiled(x, p), x, p), expected, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"alpha": 0.0}, "alpha .* 0.0"),
        ({"alpha": math.inf}, "alpha"),
        ({"mu": -1.0}, "mu .* -1.0"),
        ({"lam": 1.5}, "lam .* 1.5"),
        ({"lam": math.nan}, "lam"),
        ({"lam": "a"}, "lam .* 'a'"),
        ({"duplicates": "drop"}, "duplicates .* 'drop'"),
        ({"embeddings": "both", "proxies": "original"}, "without its own proxy"),
        ({"embeddings": "all"}, "embeddings must be .*'all'"),
    ],
)
def test_invalid_settings_name_the_field(fields: dict, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        ps.ProxySynthesis(ps.NormSoftmax(), **fields)


def test_any_function_can_be_wrapped_even_if_nothing_is_mixed() -> None:
    def dots(x, y, p):
        return torch.nn.functional.cross_entropy(x @ p.t(), y)

    x, y, p = batch(ps.Softmax())
    assert ps.ProxySynthesis(dots)(x, y * 0, p, generator=seeded(0)) == dots(x, y * 0, p)
    assert ps.ProxySynthesis(dots, mu=0)(x, y, p) == dots(x, y, p)


@pytest.mark.parametrize(
    ("loss", "came"), [(ps.NormSoftmax, "the class NormSoftmax"), ("softmax", "'softmax'")]
)
@pytest.mark.parametrize("regularizer", [name for name in ps.REGULARIZERS if name != "none"])
def test_loss_class_or_name_is_rejected(regularizer: str, loss: object, came: str) -> None:
    with pytest.raises(ValueError, match=f"got {came}"):
        ps.REGULARIZERS[regularizer](loss)


def test_it_cannot_wrap_itself() -> None:
    with pytest.raises(ValueError, match="plain loss"):
        ps.ProxySynthesis(ps.ProxySynthesis(ps.NormSoftmax()))
