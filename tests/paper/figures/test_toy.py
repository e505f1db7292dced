"""The toy of Figure 2: Proxy Synthesis makes the network less sure between the classes."""

import math
from statistics import fmean

import pytest
import torch

from proxysynth.paper.figures.toy import Toy, TrainedToy, between, sample, train_toy

SEEDS = range(10, 14)  # others than those the toy was made with


@pytest.fixture(scope="module")
def measured():
    toy = Toy()
    plain = [train_toy(toy, toy.loss, seed) for seed in SEEDS]
    mixed = [train_toy(toy, toy.synthesis, seed) for seed in SEEDS]
    return plain, mixed


def test_points_are_isotropic_gaussians_around_their_centers() -> None:
    toy = Toy(points=20_000)
    points = sample(toy, 3)
    for cloud, middle in zip(points, (toy.red, toy.blue, toy.gray), strict=True):
        assert torch.allclose(cloud.mean(0), torch.tensor(middle), atol=0.02)
        assert torch.allclose(torch.cov(cloud.T), toy.spread**2 * torch.eye(2), atol=0.02)


def test_both_methods_learn_the_seen_classes(measured) -> None:
    for trained in (*measured[0], *measured[1]):
        right = [trained.confidence(trained.net(trained.points[k])).argmax(1) == k for k in (0, 1)]
        assert float(torch.cat(right).float().mean()) > 0.98


@pytest.mark.parametrize(
    ("where", "least"), [("inputs", 0.005), ("embeddings", 0.005), ("unseen", 0.02)]
)
def test_proxy_synthesis_lowers_confidence_between_classes(
    measured, where: str, least: float
) -> None:
    plain, mixed = ([between(one)[where] for one in ones] for ones in measured)
    assert fmean(mixed) < fmean(plain) - least
    assert sum(b < a for a, b in zip(plain, mixed, strict=True)) >= len(plain) - 1


def test_confidence_is_the_softmax_of_scaled_cosines() -> None:
    toy = Toy(scale=3.0)
    trained = TrainedToy(
        toy, torch.nn.Identity(), torch.tensor([[2.0, 0.0], [0.0, 5.0]]), torch.zeros(3, 1, 2)
    )
    got = trained.confidence(torch.tensor([[0.3, 0.4]]))
    red, blue = math.exp(3 * 0.6), math.exp(3 * 0.8)
    assert got[0].tolist() == pytest.approx([red / (red + blue), blue / (red + blue)], abs=1e-6)


def test_between_averages_over_input_line_and_embedding_arc() -> None:
    """A network that passes points on: the mean over the line and over the half circle, by hand."""
    toy = Toy(red=(1.0, 0.0), blue=(0.0, 1.0), scale=2.0)
    trained = TrainedToy(toy, torch.nn.Identity(), torch.eye(2), torch.full((3, 1, 2), 1.0))
    got = between(trained, steps=1001)

    def sure(x: float, y: float) -> float:
        long = math.hypot(x, y)
        return 1 / (1 + math.exp(-2 * abs(x - y) / long))

    shares = [k / 1000 for k in range(1001)]
    assert got["inputs"] == pytest.approx(fmean(sure(1 - s, s) for s in shares), abs=1e-5)
    angles = [s * math.pi / 2 for s in shares]
    assert got["embeddings"] == pytest.approx(
        fmean(sure(math.cos(a), math.sin(a)) for a in angles), abs=1e-5
    )
    assert got["unseen"] == pytest.approx(0.5)
    assert got["embedding_bend"] == pytest.approx(
        fmean(
            abs(1 / (1 + math.exp(2 * (math.cos(a) - math.sin(a)))) - s)
            for a, s in zip(angles, shares, strict=True)
        ),
        abs=1e-5,
    )


def test_training_is_reproducible_and_keeps_the_global_rng_state() -> None:
    toy = Toy(epochs=1, points=20)
    before = torch.get_rng_state()
    a, b = train_toy(toy, toy.synthesis, 5), train_toy(toy, toy.synthesis, 5)
    assert torch.equal(a.proxies, b.proxies)
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(a.proxies, train_toy(toy, toy.synthesis, 6).proxies)
