"""What a step minimizes: mixed images and mixed features against a network taken apart by hand,
and real training with every regularizer."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

import proxysynth as ps
from proxysynth.models.backbones import make_embedder
from proxysynth.regularizers import InputMixup, ManifoldMixup, VirtualSoftmax
from proxysynth.training import load, read_run, train
from proxysynth.training.defaults import run_from_options
from proxysynth.training.learner import Mixup, Plain, make_objective
from proxysynth.training.resources import Resources
from training.sameness import assert_same_outcome
from training.stopping import stopped_and_resumed


@pytest.fixture(scope="module")
def net():
    return make_embedder("conv4", 8, width=0.25, seed=0, image_size=32).double().eval()


def pieces(net, n=6, c=4):
    images = torch.randn(n, 1, 32, 32, dtype=torch.float64)
    p = torch.randn(c, 8, dtype=torch.float64, requires_grad=True)
    return images, torch.arange(n) % c, p


def soft(logits, y, partner, lam):
    target = (
        lam * torch.eye(logits.shape[1])[y] + (1 - lam) * torch.eye(logits.shape[1])[y[partner]]
    )
    return -(target * logits.log_softmax(1)).sum(1).mean()


@pytest.mark.parametrize("at", range(5))
def test_manifold_mixup_matches_manual_computation(net, at) -> None:
    images, y, p = pieces(net)
    loss = ManifoldMixup(ps.NormSoftmax(scale=5.0), stages=(at,))
    drawn = loss.draw(len(y), 4, torch.Generator().manual_seed(3))
    backbone, h = net.backbone, images
    for number, block in enumerate([backbone.block1, backbone.block2, backbone.block3,
                                    backbone.block4]):  # fmt: skip
        if number == at:
            h = drawn.lam * h + (1 - drawn.lam) * h[drawn.partner]
        h = block(h)
    if at == 4:
        h = drawn.lam * h + (1 - drawn.lam) * h[drawn.partner]
    x = torch.nn.functional.normalize(net.embedding(h.mean((2, 3))))
    expected = soft(5 * x @ torch.nn.functional.normalize(p).T, y, drawn.partner, drawn.lam)
    made = Mixup(loss)(net, images, y, p, torch.Generator().manual_seed(3))
    parameters = [p, *net.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(made, parameters), torch.autograd.grad(expected, parameters),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(made, expected)


def test_input_mixup_matches_manual_computation(net) -> None:
    images, y, p = pieces(net)
    loss = InputMixup(ps.Softmax(), alpha=1.0)
    torch.manual_seed(8)
    drawn = loss.draw(len(y))
    x = net(drawn.lam * images + (1 - drawn.lam) * images[drawn.partner])
    torch.manual_seed(8)
    made = make_objective(loss)(net, images, y, p)
    torch.testing.assert_close(made, soft(x @ p.T, y, drawn.partner, drawn.lam))


def test_objective_is_selected_by_loss() -> None:
    assert make_objective(InputMixup(ps.Softmax())) == Mixup(InputMixup(ps.Softmax()))
    assert make_objective(ps.ProxySynthesis(ps.Softmax())) == Plain(ps.ProxySynthesis(ps.Softmax()))
    assert make_objective(VirtualSoftmax(ps.Softmax())) == Plain(VirtualSoftmax(ps.Softmax()))


def test_nan_embeddings_give_nonfinite_loss(net) -> None:
    images, y, p = pieces(net)
    images[2] = torch.nan
    for loss in (ps.NormSoftmax(), InputMixup(ps.NormSoftmax())):
        assert not make_objective(loss)(net, images, y, p).isfinite()


def test_mixup_of_plain_network() -> None:
    """Mixes the pictures or the last features; one that is no Embedder mixes pictures."""
    plain = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5))
    loss = ManifoldMixup(ps.NormSoftmax())
    images, y, p = torch.randn(6, 3, 2, 2), torch.arange(6) % 3, torch.randn(3, 5)
    for _ in range(5):
        assert Mixup(loss)(plain, images, y, p).isfinite()


def test_manifold_mixup_of_compiled_network_matches_eager(net) -> None:
    images, y, p = pieces(net)
    loss = Mixup(ManifoldMixup(ps.NormSoftmax(), stages=(2,)))
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    compiled = loss(torch.compile(net, backend="eager"), images, y, p, generators[0])
    assert torch.equal(compiled, loss(net, images, y, p, generators[1]))


def test_manifold_mixup_of_wrapped_module_matches_unwrapped(net) -> None:
    class Wrapper(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

    images, y, p = pieces(net)
    loss = Mixup(ManifoldMixup(ps.NormSoftmax(), stages=(4,)))
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    wrapped = loss(Wrapper(net), images, y, p, generators[0])
    torch.testing.assert_close(wrapped, loss(net, images, y, p, generators[1]))


CHOICES = {
    "virtual_softmax": VirtualSoftmax(ps.Softmax()),
    "virtual_softmax_unclipped": VirtualSoftmax(ps.Softmax(), clip=None),
    "input_mixup": InputMixup(ps.NormSoftmax()),
    "manifold_mixup": ManifoldMixup(ps.ArcFace()),
    "manifold_mixup_softmax": ManifoldMixup(ps.Softmax(), stages=(0, 4)),
    "mixup_sub_proxies": InputMixup(ps.SoftTriple(k=2, regularizer=0.2)),
}


@pytest.mark.parametrize("name", CHOICES)
def test_short_training_reduces_the_loss(name, glyph_run, tmp_path) -> None:
    run = dataclasses.replace(glyph_run, loss=CHOICES[name])
    result = train(run, tmp_path / "run")
    assert read_run(tmp_path / "run").run == run
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert losses[-1] < losses[0]
    model = load(tmp_path / "run")
    assert model.embedder.normalize == CHOICES[name].normalized
    assert 0 <= result.metrics["recall@1"] <= 1


def test_resumed_training_matches_uninterrupted(glyph_run, tmp_path) -> None:
    """What a step draws depends on its number alone; in mixed precision, too."""
    run = dataclasses.replace(glyph_run, loss=ManifoldMixup(ps.NormSoftmax()), precision="bfloat16")
    train(run, tmp_path / "whole")
    stopped_and_resumed(run, tmp_path / "again", 2, Resources(checkpoint_steps=1))
    assert_same_outcome(tmp_path / "whole", tmp_path / "again")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            {"loss": "softmax", "regularizer": "virtual_softmax",
             "settings": ["regularizer.clip=none"]},
            VirtualSoftmax(ps.Softmax(), clip=None),
        ),
        (
            {"regularizer": "input_mixup", "settings": ["regularizer.alpha=2"]},
            InputMixup(ps.NormSoftmax(), alpha=2.0),
        ),
        (
            {"loss": "arcface", "regularizer": "manifold_mixup",
             "settings": ["regularizer.stages=0,2", "loss.m2=0.2"]},
            ManifoldMixup(ps.ArcFace(m2=0.2), stages=(0, 2)),
        ),
    ],
)  # fmt: skip
def test_regularizer_options_are_parsed(words, expected) -> None:
    assert run_from_options(**words).loss == expected


def test_incompatible_loss_and_regularizer_are_rejected() -> None:
    with pytest.raises(ValueError, match="constant 1"):
        run_from_options(regularizer="virtual_softmax")
    with pytest.raises(ValueError, match="mean over proxies"):
        run_from_options(loss="proxy_anchor", regularizer="manifold_mixup")
