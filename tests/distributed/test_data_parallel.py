"""Several processes learn what one learns: losses, gradients and weights agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import proxysynth as ps
from distributed.on_ranks import groups, on_ranks
from proxysynth.data import Batch
from proxysynth.distributed import Shards
from proxysynth.distributed.process_group import ALONE, Ranks, join_process_group
from proxysynth.models.backbones import make_embedder
from proxysynth.regularizers.mixup import InputMixup, ManifoldMixup
from proxysynth.regularizers.virtual_softmax import VirtualSoftmax
from proxysynth.training import Run
from proxysynth.training.learner import Learner, initial_proxies

CLASSES = 5


def cases() -> dict[str, tuple[Run, tuple[int, ...]]]:
    """Runs, with the number of images in each batch."""
    made: dict[str, tuple[Run, tuple[int, ...]]] = {}
    start = Run(epochs=1, freeze_batch_norm=True)
    for name, kind in ps.LOSSES.items():
        made[name] = replace(start, loss=kind()), (7,)
        made[f"{name} + synthesis"] = replace(start, loss=ps.ProxySynthesis(kind())), (7,)
    made["virtual"] = replace(start, loss=VirtualSoftmax(ps.Softmax())), (7,)
    made["input mixup"] = replace(start, loss=InputMixup(ps.NormSoftmax())), (7, 6)
    manifold = ManifoldMixup(ps.NormSoftmax(), stages=(1, 2, 4))
    made["manifold mixup"] = replace(start, loss=manifold), (7, 6, 2)
    made["few pictures"] = start, (8, 2, 3, 2)
    made["clipped"] = replace(start, clip_norm=1e-3, optimizer="sgd"), (6, 7)
    made["sharded"] = replace(start, shard_proxies=True), (7, 2)
    made["sharded, clipped"] = replace(start, shard_proxies=True, clip_norm=1e-3), (7, 5)
    anchor = ps.ProxySynthesis(ps.ProxyAnchor())
    made["sharded anchor"] = replace(start, shard_proxies=True, loss=anchor), (7, 2)
    some = replace(start, shard_proxies=True, negatives=0.5, loss=ps.CosFace())
    made["sharded, some negatives"] = some, (7, 6)
    rowwise = replace(start, shard_proxies=True, proxy_optimizer="rowwise")
    made["sharded, rowwise"] = rowwise, (7, 6)
    made["warm-up"] = replace(start, epochs=2, warmup_epochs=1), (6, 7)
    mixed = replace(start, loss=manifold, precision="bfloat16")
    made["mixed precision"] = mixed, (7, 6)
    made["live"] = Run(epochs=1), (6, 3)
    return made


LOOSE = ("live", "mixed precision")
"""Cases in which several processes agree only roughly with one."""
WITHOUT = ["few pictures", "sharded", "sharded anchor", "manifold mixup"]
"""Cases that three processes run, too: some of their batches have two images."""


def batch(number: int, n: int, ranks: Ranks) -> Batch:
    draw = torch.Generator().manual_seed(100 + number)
    images = torch.randn(n, 1, 32, 32, generator=draw).to(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (n,), generator=draw)
    return Batch(images[ranks.part(n)], labels)


def steps(run: Run, sizes: tuple[int, ...], ranks: Ranks) -> dict[str, torch.Tensor]:
    """Losses, the last gradients, and the weights after them; in float64, which is not mixed."""
    plain = run.precision == "float32"
    torch.set_default_dtype(torch.float64 if plain else torch.float32)
    try:
        net = make_embedder(
            run.backbone, 6, width=0.25, seed=1, frozen_batch_norm=run.freeze_batch_norm
        )
        made = Learner(run, net, CLASSES, len(sizes), torch.device("cpu"), ranks)
        losses = []
        for i, n in enumerate(sizes):
            made.begin_epoch(i if run.warmup_epochs else 0)
            losses.append(made.step(batch(i, n, ranks), i))
        found = {"losses": torch.tensor(losses)}
        grad = made.proxies.grad
        proxies = {"proxies": made.proxies.detach(), "grad.proxies": grad}
        if made.rows is not None:
            counts = ranks.counts(CLASSES)
            proxies = {name: ranks.gather(value, counts) for name, value in proxies.items()}
        found |= proxies
        for name, parameter in made.net.named_parameters():
            found[f"grad.{name}"] = parameter.grad
            found[name] = parameter.detach()
        found |= {f"own.{name}": value.clone() for name, value in made.net.named_buffers()}
        assert made.finite()
        found |= {f"merged.{name}": value for name, value in made.net.named_buffers()}
        return {name: value.detach().contiguous() for name, value in found.items()}
    finally:
        torch.set_default_dtype(torch.float32)


def train_all(names, folder):
    with join_process_group() as ranks:
        for name in names:
            made = steps(*cases()[name], ranks)
            save_file(made, Path(folder) / f"{name}.{ranks.rank}.{ranks.world}")


def load_all(name: str, world: int, folder: Path) -> list[dict[str, torch.Tensor]]:
    return [load_file(folder / f"{name}.{rank}.{world}") for rank in range(world)]


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Every case by two processes, and by three those in which one has no picture."""
    folder = tmp_path_factory.mktemp("several")
    ended = groups([(train_all, 2, list(cases())), (train_all, 3, WITHOUT)], folder)
    for group in ended:
        assert set(group.codes) == {0}, group.stderr
    return folder


def assert_as_one_process(name, world, folder):
    """Losses, last gradients and weights after them; on all ranks in the same bits."""
    run, sizes = cases()[name]
    whole = run if run.negatives < 1 else replace(run, shard_proxies=False)
    expected = steps(whole, sizes, ALONE)
    made = load_all(name, world, folder)
    assert float(expected["grad.embedding.weight"].abs().max()) > 1e-6
    for found in made:
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert torch.allclose(found[key], value, rtol=1e-8, atol=1e-9), key
            assert torch.equal(found[key], made[0][key]), key


@pytest.mark.parametrize("name", [name for name in cases() if name not in LOOSE])
def test_two_processes_match_one_process(name, several):
    """Every loss with and without Proxy Synthesis, the other regularizers, sharded proxies."""
    assert_as_one_process(name, 2, several)


@pytest.mark.parametrize("name", WITHOUT)
def test_rank_without_images_participates(name, several):
    assert_as_one_process(name, 3, several)


@pytest.mark.slow
@pytest.mark.parametrize("world", [3, 4])
def test_more_processes_match_one_process(world, tmp_path):
    on_ranks(train_all, world, list(cases()), tmp_path)
    for name in cases():
        if name not in LOOSE:
            assert_as_one_process(name, world, tmp_path)


def test_mixed_precision_is_close_to_one_process(several):
    one, other = load_all("mixed precision", 2, several)
    alone = steps(*cases()["mixed precision"], ALONE)
    torch.testing.assert_close(one["losses"], alone["losses"], rtol=0.02, atol=0.02)
    full = replace(cases()["mixed precision"][0], precision="float32")
    exact = steps(full, cases()["mixed precision"][1], ALONE)["losses"].float()
    assert not torch.allclose(one["losses"], exact, rtol=1e-5)
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_live_batch_norm_averages_running_statistics(several):
    """Each rank normalizes by its own pictures; running statistics are the mean over the ranks."""
    one, other = load_all("live", 2, several)
    alone = steps(*cases()["live"], ALONE)
    assert not torch.allclose(one["losses"], alone["losses"], rtol=1e-6)
    torch.testing.assert_close(one["losses"], alone["losses"], rtol=0.2, atol=0.2)
    statistics = [key for key in one if key.startswith("own.") and "running" in key]
    assert statistics
    for key in statistics:
        assert not torch.equal(one[key], other[key])
        merged = key.replace("own.", "merged.")
        torch.testing.assert_close(one[merged], (one[key] + other[key]) / 2)
    for key in one:
        assert key.startswith("own.") or torch.equal(one[key], other[key]), key


@pytest.mark.parametrize("world", [1, 2, 3])
def test_sharded_initial_proxies_match_unsharded(world, monkeypatch):
    monkeypatch.setattr("proxysynth.training.learner.ROWS_DRAWN", 4)
    shards = [Shards(11, world, rank) for rank in range(world)]
    parts = [initial_proxies(Run(), shard.mine, 33) for shard in shards]
    assert torch.equal(torch.cat(parts), initial_proxies(Run(), range(11), 33))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"negatives": 0.5}, "shard_proxies"),
        ({"negatives": 0.0, "shard_proxies": True}, "negatives"),
        ({"shard_proxies": True, "loss": ps.SoftTriple()}, "SoftTriple"),
        ({"shard_proxies": True, "loss": InputMixup(ps.NormSoftmax())}, "InputMixup"),
        ({"shard_proxies": True, "task": "classification"}, "shard_proxies"),
    ],
)
def test_invalid_sharding_settings_are_rejected(fields, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        Run(**fields)
    assert "\n" not in str(caught.value)
