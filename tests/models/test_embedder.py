"""The embedder: pooling, embedding layer, unit length, stages, frozen batch norm."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from proxysynth.models.backbones import BACKBONES, make_embedder
from proxysynth.models.embedder import POOLINGS, Embedder


class Maps(nn.Module):
    """A backbone whose feature maps are its images."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images


def test_poolings_match_their_definitions() -> None:
    maps = torch.randn(2, 3, 4, 5)
    average, maximum = torch.zeros(2, 3), torch.full((2, 3), -torch.inf)
    for i in range(2):
        for j in range(3):
            for value in maps[i, j].flatten().tolist():
                average[i, j] += value / 20
                maximum[i, j] = max(maximum[i, j].item(), value)
    expected = {"average": average, "max": maximum, "both": average + maximum}
    assert {*expected, "class", "own"} == set(POOLINGS)
    for pooling, value in expected.items():
        net = Embedder(Maps(), 3, dim=None, pooling=pooling, normalize=False)
        torch.testing.assert_close(net(maps), value)
        torch.testing.assert_close(net.features(maps), value)


def test_embedding_is_linear_then_normalized() -> None:
    images = torch.randn(4, 3, 8, 8)
    net = Embedder(Maps(), 3, dim=5, normalize=False)
    raw = net.features(images) @ net.embedding.weight.T + net.embedding.bias
    torch.testing.assert_close(net(images), raw)
    net.normalize = True
    torch.testing.assert_close(net(images), raw / raw.norm(dim=1, keepdim=True))
    assert (net.dim, net.channels) == (5, 3)
    whole = Embedder(Maps(), 3, dim=None)
    assert (whole.dim, whole.channels) == (3, 3)
    assert not list(whole.parameters())


def test_vectors_are_not_pooled() -> None:
    net = Embedder(nn.Flatten(), 12, dim=None, normalize=False)
    images = torch.randn(2, 3, 2, 2)
    assert torch.equal(net(images), images.flatten(1))


@pytest.mark.parametrize("name", list(BACKBONES))
def test_every_backbone_embeds_and_its_stages_compose(name: str) -> None:
    scalable = BACKBONES[name].scalable
    net = make_embedder(name, dim=8, pretrained=False, width=0.25 if scalable else 1.0).eval()
    channels = 1 if net.preprocess == "grey" else 3
    assert (net.preprocess, net.image_size) == (
        BACKBONES[name].preprocess,
        BACKBONES[name].image_size,
    )
    images = torch.randn(2, channels, 64, 64)
    with torch.no_grad():
        x = net(images)
        assert x.shape == (2, 8)
        torch.testing.assert_close(x.norm(dim=1), torch.ones(2))
        assert net.features(images).shape == (2, net.channels)
        for at in range(len(net.stages) + 1):
            seen = []
            again = net(images, mix=lambda y, seen=seen: seen.append(y.shape) or y, at=at)
            assert torch.equal(x, again)
            assert len(seen) == 1


@pytest.mark.parametrize("name", list(BACKBONES))
def test_every_backbone_receives_finite_gradients(name: str) -> None:
    """Every parameter receives a finite gradient, the same whatever the layout in memory."""
    scalable = BACKBONES[name].scalable
    net = make_embedder(name, dim=4, pretrained=False, width=0.25 if scalable else 1.0)
    images = torch.randn(4, 1 if net.preprocess == "grey" else 3, 64, 64)
    gradients = []
    for layout in (torch.contiguous_format, torch.channels_last):
        copied = copy.deepcopy(net).to(memory_format=layout).double()
        x = copied(images.double().contiguous(memory_format=layout))
        (x * torch.linspace(-1, 1, 16).view(4, 4)).sum().backward()
        for key, parameter in copied.named_parameters():
            assert parameter.grad is not None, key
            assert parameter.grad.isfinite().all(), key
        gradients.append([parameter.grad for parameter in copied.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_mixing_at_first_and_last_stage() -> None:
    net = make_embedder("conv4", dim=None, normalize=False, width=0.25).eval()
    images = torch.randn(2, 1, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(net(images, mix=lambda x: x.flip(0)), net(images).flip(0))
        twice = net(images, mix=lambda x: 2 * x, at=4)
        torch.testing.assert_close(twice, 2 * net(images))


def test_custom_backbone_has_one_stage() -> None:
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3))
    backbone.stages = nn.Sequential(nn.Identity())  # as some networks of timm's have it
    net = Embedder(backbone, 4, normalize=False)
    assert net.stages == ("backbone",)
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(net(images, mix=lambda x: 2 * x, at=1), 2 * net(images))


def test_frozen_batch_norm_keeps_statistics_and_trains_scale() -> None:
    net = make_embedder("conv4", dim=4, width=0.25, frozen_batch_norm=True)
    for frozen in (net, copy.deepcopy(net)):
        frozen.eval()
        frozen.train()
        assert frozen.training
        assert frozen.backbone.block1[0].training
        before = {key: value.clone() for key, value in frozen.state_dict().items()}
        optimizer = torch.optim.SGD(frozen.parameters(), lr=0.1)
        frozen(3 * torch.randn(6, 1, 32, 32) + 1)[:, 0].sum().backward()
        optimizer.step()
        after = frozen.state_dict()
        for key, value in before.items():
            statistic = "running" in key or "tracked" in key
            assert torch.equal(value, after[key]) == statistic, key
    net.batch_norm_frozen = False
    net.train()
    mean = net.backbone.block1[1].running_mean.clone()
    net(torch.randn(6, 1, 32, 32))
    assert not torch.equal(mean, net.backbone.block1[1].running_mean)


def test_frozen_batch_norm_embeds_the_same_in_train_and_eval() -> None:
    net = make_embedder("conv4", dim=4, width=0.25, frozen_batch_norm=True)
    images = torch.randn(6, 1, 32, 32)
    assert torch.equal(net.train()(images), net.eval()(images))


def test_invalid_values_are_rejected() -> None:
    with pytest.raises(ValueError, match="'avarage'.*'average'"):
        Embedder(Maps(), 3, pooling="avarage")
    with pytest.raises(ValueError, match="images of 1 channels, got 3"):
        make_embedder("conv4", dim=4, width=0.25)(torch.zeros(2, 3, 32, 32))
