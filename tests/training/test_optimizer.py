import pytest
import torch

from proxysynth.models.backbones import make_embedder
from proxysynth.training import Run
from proxysynth.training.optim import (
    backbone_layers,
    load_optimizers,
    make_optimizers,
    optimizer_tensors,
    set_rates,
)
from training.sameness import assert_same_tensors

NAMES = ("adam", "adamw", "rmsprop", "sgd")


def parts(run: Run):
    net = make_embedder("conv4", 6, width=0.25, seed=1).to(memory_format=torch.channels_last)
    proxies = torch.nn.Parameter(torch.linspace(-1, 1, 24).reshape(4, 6))
    return net, proxies, make_optimizers(run, net, proxies)


def steps(net, proxies, optimizers, start: int, count: int) -> None:
    for i in range(start, start + count):
        draw = torch.Generator().manual_seed(i)
        images = torch.randn(8, 1, 32, 32, generator=draw).to(memory_format=torch.channels_last)
        loss = (net(images) @ proxies.T).pow(2).mean()
        net.zero_grad()
        proxies.grad = None
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("name", NAMES)
def test_optimizer_state_round_trip(name):
    """Ten steps at once, and five, saved, loaded into fresh objects, five more."""
    run = Run(optimizer=name, weight_decay=0.01)
    net, proxies, optimizers = parts(run)
    steps(net, proxies, optimizers, 0, 10)

    first, initial_proxies, first_optimizers = parts(run)
    steps(first, initial_proxies, first_optimizers, 0, 5)
    # What a file keeps is contiguous, whatever the memory format was.
    kept = {k: t.clone().contiguous() for k, t in optimizer_tensors(first_optimizers).items()}
    weights = {k: t.clone().contiguous() for k, t in first.state_dict().items()}
    again, again_proxies, again_optimizers = parts(run)
    again.load_state_dict(weights)
    again_proxies.data.copy_(initial_proxies.data)
    load_optimizers(again_optimizers, kept)
    steps(again, again_proxies, again_optimizers, 5, 5)

    assert_same_tensors(again.state_dict(), net.state_dict())
    assert torch.equal(again_proxies, proxies)
    assert_same_tensors(optimizer_tensors(again_optimizers), optimizer_tensors(optimizers))


def test_parameter_groups_have_separate_learning_rates():
    run = Run(lr=1e-4, embedding_lr=1e-3, proxy_lr=1e-2)
    _, _, (optimizer,) = parts(run)
    set_rates([optimizer], 0.5)
    rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
    assert tuple(rates) == ("backbone", "embedding", "proxies")
    assert rates == pytest.approx({"backbone": 5e-5, "embedding": 5e-4, "proxies": 5e-3})


def test_embedding_learning_rate_defaults_to_backbone():
    _, _, (optimizer,) = parts(Run(lr=1e-4))
    assert [group["base_lr"] for group in optimizer.param_groups] == [1e-4, 1e-4, 1e-2]


def test_every_parameter_is_in_exactly_one_group():
    net, proxies, (optimizer,) = parts(Run())
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in [*net.parameters(), proxies])


def test_layer_decay_lowers_learning_rates_near_input():
    net, _, (optimizer,) = parts(Run(lr=1e-3, layer_decay=0.5))
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    depth = {name: net.stages.index(name) for name in net.stages}
    for name, parameter in net.backbone.named_parameters():
        below = len(depth) - 1 - depth[name.split(".")[0]]
        assert rates[id(parameter)] == pytest.approx(1e-3 * 0.5**below)
    assert len(rates) == len(list(net.parameters())) + 1
    with pytest.raises(ValueError, match="layer_decay"):
        Run(layer_decay=0.0)


def test_backbone_layers_of_module_list():
    """What stands before the list of blocks is the first layer, what follows is the last."""
    blocks = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
    net = torch.nn.ModuleDict({"patches": torch.nn.Linear(2, 2), "blocks": blocks})
    net["norm"] = torch.nn.LayerNorm(2)
    layers = backbone_layers(net)
    assert [len(layer) for layer in layers] == [2, 2, 2, 2, 2]
    assert layers[0][0] is net["patches"].weight
    assert layers[-1][0] is net["norm"].weight
