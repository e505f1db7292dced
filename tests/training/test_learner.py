"""A step of the loop against a plain PyTorch loop written here, and what each setting does."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import proxysynth as ps
from proxysynth.data import Batch
from proxysynth.models.backbones import make_embedder
from proxysynth.training import Run
from proxysynth.training.learner import Learner, step_seed
from training.sameness import assert_same_tensors

CLASSES = 4


def learner(run: Run):
    net = make_embedder(
        run.backbone, 6, width=0.25, seed=1, frozen_batch_norm=run.freeze_batch_norm
    )
    return Learner(run, net, CLASSES, steps_per_epoch=5, device=torch.device("cpu"))


def batch(number: int, n: int = 8) -> Batch:
    draw = torch.Generator().manual_seed(100 + number)
    images = torch.randn(n, 1, 32, 32, generator=draw).to(memory_format=torch.channels_last)
    return Batch(images, torch.arange(n) % CLASSES)


def trained(run: Run, steps: int = 3, epoch: int = 0):
    made = learner(run)
    made.begin_epoch(epoch)
    losses = [made.step(batch(i), i) for i in range(steps)]
    return made, losses


def test_learner_matches_plain_pytorch_loop():
    run = Run(loss=ps.NormSoftmax(scale=10.0), epochs=1, lr=2e-3, proxy_lr=3e-2)
    made, losses = trained(run, steps=5)

    net = make_embedder("conv4", 6, width=0.25, seed=1).train()
    proxies = torch.nn.Parameter(learner(run).proxies.detach().clone())
    optimizer = torch.optim.Adam(
        [{"params": net.parameters(), "lr": 2e-3}, {"params": [proxies], "lr": 3e-2}]
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    expected = []
    for i in range(5):
        images, labels, *_ = batch(i)
        logits = 10.0 * net(images.contiguous()) @ F.normalize(proxies, dim=1).T
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(made.proxies, proxies, rtol=1e-3, atol=1e-4)
    for name, value in net.state_dict().items():
        torch.testing.assert_close(made.net.state_dict()[name], value, rtol=1e-2, atol=1e-3)


def test_proxy_synthesis_draws_depend_on_seed_and_step():
    run = Run(epochs=1)
    made = learner(run)
    made.begin_epoch(0)
    images, labels, *_ = batch(0)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(step_seed(run.seed, 7))
        expected = run.loss(made.net(images), labels, made.proxies, generator=generator).item()
    assert made.step(batch(0), 7) == pytest.approx(expected, rel=1e-5)


def test_step_seeds_are_unique():
    seeds = {step_seed(seed, step) for seed in range(5) for step in range(-1, 200)}
    assert len(seeds) == 5 * 201


def test_training_is_deterministic():
    one, first = trained(Run(epochs=1))
    other, second = trained(Run(epochs=1))
    assert first == second
    assert_same_tensors(one.tensors(), other.tensors())


def test_learner_state_round_trip():
    one, _ = trained(Run(epochs=1))
    other = learner(Run(epochs=1))
    other.load({k: t.clone().contiguous() for k, t in one.tensors().items()}, {})
    one.step(batch(3), 3)
    other.begin_epoch(0)
    other.step(batch(3), 3)
    assert_same_tensors(one.tensors(), other.tensors())


def test_warmup_freezes_the_backbone():
    run = Run(warmup_epochs=1, epochs=2)
    start = {k: v.clone() for k, v in learner(run).net.state_dict().items()}
    made, _ = trained(run, epoch=0)
    now = made.net.state_dict()
    changed = {name for name, value in now.items() if not torch.equal(value, start[name])}
    assert changed == {"embedding.weight", "embedding.bias"}
    made.begin_epoch(1)
    made.step(batch(5), 5)
    now = made.net.state_dict()
    changed = {name for name, value in now.items() if not torch.equal(value, start[name])}
    assert changed == set(start)


def test_frozen_batch_norm_keeps_its_statistics():
    made, _ = trained(Run(freeze_batch_norm=True, epochs=1))
    live, _ = trained(Run(epochs=1))
    frozen, moved = made.net.state_dict(), live.net.state_dict()
    means = [name for name in frozen if name.endswith("running_mean")]
    assert means
    for name in means:
        assert not frozen[name].any()
        assert moved[name].any()


def test_gradient_clipping_by_norm():
    made = learner(Run(clip_norm=1e-3, epochs=1, optimizer="sgd", momentum=0.0))
    made.begin_epoch(0)
    made.step(batch(0), 0)
    gradients = [p.grad for p in (*made.net.parameters(), made.proxies)]
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    assert norm == pytest.approx(1e-3, rel=1e-3)


def test_gradient_clipping_by_value():
    made = learner(Run(clip_value=1e-4, epochs=1))
    made.begin_epoch(0)
    made.step(batch(0), 0)
    gradients = [p.grad for p in (*made.net.parameters(), made.proxies)]
    assert max(float(g.abs().max()) for g in gradients) == pytest.approx(1e-4)


def test_memory_formats_give_the_same_losses():
    last, losses = trained(Run(channels_last=True, epochs=1))
    first, expected = trained(Run(channels_last=False, epochs=1))
    assert losses == pytest.approx(expected, rel=1e-4)
    convolution = last.net.backbone.block2[0].weight
    assert convolution.is_contiguous(memory_format=torch.channels_last)
    assert first.net.backbone.block2[0].weight.is_contiguous()


def test_mixed_precision_losses_are_close_to_float32():
    mixed, losses = trained(Run(precision="bfloat16", epochs=1))
    _, expected = trained(Run(epochs=1))
    assert losses == pytest.approx(expected, rel=0.1)
    assert losses != expected
    assert mixed.proxies.dtype == torch.float32


def test_auto_precision_falls_back_to_float32():
    assert trained(Run(precision="auto", epochs=1))[1] == trained(Run(epochs=1))[1]


@pytest.mark.parametrize("where", ["pictures", "weights"])
def test_nonfinite_loss_skips_the_update(where):
    made = learner(Run(epochs=1))
    made.begin_epoch(0)
    bad = batch(0)
    if where == "pictures":
        bad.images[3, 0, 5, 5] = float("nan")
    else:
        made.net.embedding.weight.data[0, 0] = float("inf")
    before = made.proxies.detach().clone()
    assert not np.isfinite(made.step(bad, 0))
    assert torch.equal(made.proxies, before)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nonfinite_weights_are_detected(value):
    made = learner(Run(epochs=1))
    assert made.finite()
    made.net.backbone.block1[1].running_var[0] = value
    assert not made.finite()


def test_every_optimizer_reduces_the_loss():
    for name, lr in (("adam", 1e-3), ("adamw", 1e-3), ("rmsprop", 1e-4), ("sgd", 1e-2)):
        run = Run(optimizer=name, lr=lr, proxy_lr=lr, epochs=4, loss=ps.NormSoftmax(scale=5.0))
        made = learner(run)
        made.begin_epoch(0)
        losses = [made.step(batch(0), i) for i in range(20)]
        assert losses[-1] < 0.9 * losses[0], name


@pytest.mark.parametrize("name", list(ps.LOSSES))
@pytest.mark.parametrize("synthesis", [False, True])
def test_every_loss_trains(name, synthesis):
    loss = ps.LOSSES[name]()
    run = Run(loss=ps.ProxySynthesis(loss) if synthesis else loss, epochs=1)
    made, losses = trained(run, steps=2)
    assert np.isfinite(losses).all()
    assert made.finite()


@pytest.mark.slow
def test_compiled_network_matches_eager_training():
    compiled, losses = trained(Run(compile=True, epochs=1))
    plain, expected = trained(Run(epochs=1))
    assert losses == pytest.approx(expected, rel=1e-3)
    assert compiled.tensors().keys() == plain.tensors().keys()


def test_frozen_layers_are_unchanged():
    run = Run(loss=ps.NormSoftmax(), freeze=("block1", "block2.0"), weight_decay=0.1)
    made, _ = trained(run)
    start = learner(run).net.state_dict()
    moved = {name for name, value in made.net.state_dict().items() if not value.equal(start[name])}
    assert not any(name.startswith(("backbone.block1", "backbone.block2.0")) for name in moved)
    assert any(name.startswith("backbone.block3") for name in moved)
