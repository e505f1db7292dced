"""Mixup's draws and its loss against explicit soft labels."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

import proxysynth as ps
from batches import EVERY_LOSS, batch, gradients
from losses.oracle import s, value as oracle
from proxysynth.regularizers import InputMixup, ManifoldMixup, VirtualSoftmax
from proxysynth.regularizers.mixup import Mixing

BOTH = [InputMixup, ManifoldMixup]
ADMITTED = {name: loss for name, loss in EVERY_LOSS.items() if "proxy_anchor" not in name}


def soft_cross_entropy(logits, y, partner, lam):
    """-1/n sum_i sum_c t_ic log softmax(logits_i)_c with the target t laid out in full."""
    total = 0.0
    for i, row in enumerate(logits):
        target = torch.zeros(len(row), dtype=row.dtype)
        target[y[i]] += lam
        target[y[partner[i]]] += 1 - lam
        share = row.exp() / row.exp().sum()
        total = total - (target * share.log()).sum()
    return total / len(logits)


@pytest.mark.parametrize(
    ("loss", "logit"),
    [
        (ps.Softmax(), lambda a, q: a @ q),
        (ps.NormSoftmax(scale=7.0), lambda a, q: 7.0 * s(a, q)),
        (ps.SquaredProxyNCA(scale=2.0), lambda a, q: -2.0 * (2 - 2 * s(a, q))),
    ],
)
@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
def test_softmax_losses_see_soft_labels(loss, logit, lam) -> None:
    x, y, p = batch(loss)
    partner = torch.randperm(len(y))
    made = Mixing(lam, partner).score(loss, x, y, p)
    logits = [torch.stack([logit(row, q) for q in p]) for row in x]
    expected = soft_cross_entropy(logits, y, partner, lam)
    for ours, theirs in zip(gradients(made, x, p), gradients(expected, x, p), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ADMITTED)
def test_every_accepted_loss_mixes_labels(name) -> None:
    loss = ADMITTED[name]
    x, y, p = batch(loss)
    partner, lam = torch.randperm(len(y)), 0.35
    made = Mixing(lam, partner).score(InputMixup(loss).loss, x, y, p)
    expected = lam * oracle(loss, x, y, p) + (1 - lam) * oracle(loss, x, y[partner], p)
    for ours, theirs in zip(gradients(made, x, p), gradients(expected, x, p), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ADMITTED)
def test_accepted_losses_are_means_over_embeddings(name) -> None:
    """Which is why each may have labels of its own: the mean of the single losses is the loss."""
    loss = ADMITTED[name]
    x, y, p = batch(loss)
    alone = [loss(x[i : i + 1], y[i : i + 1], p) for i in range(len(y))]
    torch.testing.assert_close(torch.stack(alone).mean(), loss(x, y, p))


def test_a_loss_that_is_only_a_function() -> None:
    x, y, p = batch(ps.NormSoftmax())
    drawn = Mixing(0.2, torch.randperm(len(y)))
    made = drawn.score(lambda x, y, p, generator=None: ps.NormSoftmax()(x, y, p), x, y, p)
    torch.testing.assert_close(made, drawn.score(ps.NormSoftmax(), x, y, p))


def test_mixing_is_linear() -> None:
    h, partner = torch.randn(4, 3, 5, 5), torch.tensor([2, 0, 1, 3])
    made = Mixing(0.25, partner)(h)
    for i, j in enumerate(partner.tolist()):
        torch.testing.assert_close(made[i], 0.25 * h[i] + 0.75 * h[j])


@pytest.mark.parametrize("kind", BOTH)
def test_draws_depend_on_torchs_generator_only(kind) -> None:
    loss = kind(ps.NormSoftmax())

    def drawn(generator=None):
        made = loss.draw(16, 4, generator)
        return made.lam, made.at, made.partner.tolist()

    torch.manual_seed(5)
    first = drawn()
    torch.manual_seed(5)
    assert drawn() == first
    assert drawn() != first
    assert drawn(torch.Generator().manual_seed(5)) == first
    assert sorted(first[2]) == list(range(16))


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_coefficients_follow_the_beta_distribution(alpha) -> None:
    torch.manual_seed(0)
    loss = InputMixup(ps.NormSoftmax(), alpha)
    shares = [loss.draw(2).lam for _ in range(800)]
    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).pvalue > 0.01


def test_stages_are_drawn_uniformly() -> None:
    torch.manual_seed(0)
    loss = ManifoldMixup(ps.NormSoftmax())
    counts = torch.bincount(torch.tensor([loss.draw(2, 4).at for _ in range(900)]))
    assert len(counts) == 3
    assert stats.chisquare(counts.numpy()).pvalue > 0.01
    assert {loss.draw(2, 1).at for _ in range(50)} == {0, 1}
    chosen = ManifoldMixup(ps.NormSoftmax(), stages=(1, 3))
    assert {chosen.draw(2, 4).at for _ in range(50)} == {1, 3}
    assert {InputMixup(ps.NormSoftmax()).draw(2, 4).at for _ in range(50)} == {0}


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"loss": ps.ProxyAnchor()}, "mean over proxies"),
        ({"loss": ps.ProxySynthesis(ps.Softmax())}, "one regularizer at a time"),
        ({"loss": VirtualSoftmax(ps.Softmax())}, "one regularizer at a time"),
        ({"loss": InputMixup(ps.Softmax())}, "one regularizer at a time"),
        ({"loss": None}, "loss .*got None"),
        ({"loss": ps.Softmax(), "alpha": 0.0}, "alpha"),
    ],
)
def test_invalid_settings_are_rejected(kind, fields, words) -> None:
    with pytest.raises(ValueError, match=words):
        kind(**fields)


@pytest.mark.parametrize("stages", [(-1,), (0, 0), (1.0,), (True,)])
def test_invalid_stages_are_rejected(stages) -> None:
    with pytest.raises(ValueError, match="stages"):
        ManifoldMixup(ps.NormSoftmax(), stages=stages)


def test_a_stage_beyond_the_network_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"stages must lie in 0\.\.4"):
        ManifoldMixup(ps.NormSoftmax(), stages=(0, 5)).draw(8, 4)


@pytest.mark.parametrize("kind", BOTH)
def test_embeddings_cannot_be_mixed(kind) -> None:
    head = ps.ProxyHead(kind(ps.NormSoftmax()), num_classes=6, dim=8)
    x, y = torch.randn(12, 8), torch.arange(12) % 6
    assert head.eval()(x, y) == ps.NormSoftmax()(x, y, head.proxies)
    assert head.logits(x).shape == (12, 6)
    with pytest.raises(ValueError, match="embeddings"):
        head.train()(x, y)


@pytest.mark.parametrize("kind", BOTH)
def test_normalized_is_that_of_the_loss(kind) -> None:
    assert kind(ps.NormSoftmax()).normalized
    assert not kind(ps.Softmax()).normalized
