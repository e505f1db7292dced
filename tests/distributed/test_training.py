"""Whole runs by several processes: the same curve, one message, killed ranks, resumed runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import proxysynth.cli.train  # noqa: F401  loaded once, before processes are forked
from distributed.on_ranks import Ended, groups
from proxysynth.cli import main
from proxysynth.training import (
    Run,
    Split,
    inference,
    load,
    read_metrics,
    read_result,
    read_run,
    train,
)
from proxysynth.training.callbacks import Silent
from proxysynth.training.checkpoint import Checkpoints, step_name
from proxysynth.training.inference import measure
from proxysynth.training.learner import Learner
from proxysynth.training.prepare import open_splits, prepare
from proxysynth.training.resources import Resources
from proxysynth.training.run_folder import CHECKPOINT
from training.tiny_pictures import pictures

RUN = Run(
    split=Split(train_classes=7, test_classes=20, faces_per_class=8),
    epochs=3,
    dim=16,
    width=0.25,
    batch_size=16,
    freeze_batch_norm=True,
)
WORDS = [
    *("train", "glyphs", "--epochs", "3", "--json"),
    *("--set", "split.train_classes=7", "--set", "split.test_classes=20"),
    *("--set", "split.faces_per_class=8", "--set", "dim=16", "--set", "width=0.25"),
    *("--set", "batch_size=16", "--set", "freeze_batch_norm=true"),
]
SHARD = ["--set", "shard_proxies=true"]
SHARDED = [*WORDS, *SHARD]
HALFWAY = ["--set", "interpolate=0.5"]


def command(argument, folder):
    """The command line, as torchrun would start it; arguments for one rank come last."""
    own = argument.get(f"rank {os.environ['RANK']}", [])
    main([*argument["words"], *own, "--out", str(folder / argument["out"])])


def killed(argument, folder):
    """The same, but a rank is killed in the fourth step of the second epoch."""
    step = Learner.step

    def until(self, batch, number):
        if number == 7 and self.ranks.rank == argument["who"]:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, batch, number)

    Learner.step = until
    command(argument, folder)


def signaled(argument, folder):
    """The same, but ranks get SIGTERM in a step or the evaluation of the second epoch."""
    number, step, measure = 0, Learner.step, inference.measure

    def asked(ranks):
        if ranks.rank in argument["who"]:
            os.kill(os.getpid(), signal.SIGTERM)

    def stepped(self, batch, at):
        nonlocal number
        number = at
        if at == 5 and argument["at"] == "step":
            asked(self.ranks)
        return step(self, batch, at)

    def measured(*given, ranks, **options):
        if number >= 7 and argument["at"] == "evaluation":
            asked(ranks)
        return measure(*given, ranks=ranks, **options)

    Learner.step, inference.measure = stepped, measured
    command(argument, folder)


def broken(argument, folder):
    """The same, but in the third step an image of the second rank has a NaN."""
    step = Learner.step

    def until(self, batch, number):
        if number == 2 and self.ranks.rank == 1:
            images = batch.inputs(self.device)
            images[0, 0, 3, 3] = float("nan")
            batch = batch._replace(images=images, pixels=None)
        return step(self, batch, number)

    Learner.step = until
    command(argument, folder)


def lose(argument, folder):
    """Copy a run without the second shard of its checkpoints."""
    shutil.copytree(folder / argument["of"], folder / argument["out"])
    for path in (folder / argument["out"]).rglob("proxies-1-of-2.safetensors"):
        path.unlink()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """All groups of processes of this file, one after the other, and their folder."""
    folder = tmp_path_factory.mktemp("trained")
    photos = str(pictures(folder / "photos"))
    live = ["train", photos, "--from-scratch", "--epochs", "2", "--set", "batch_size=5", "--json"]
    live += ["--set", "backbone=conv4", "--set", "dim=8", "--set", "width=0.25"]
    live += ["--set", "image_size=32", "--set", "report_epoch=best_on_test"]
    resume = ["train", "--resume", "--json"]
    init = ["--init", str(folder / "sharded"), "--set", "split.train_classes=9"]
    jobs = {
        "two": (command, 2, {"words": WORDS, "out": "two"}),
        "again": (command, 2, {"words": WORDS, "out": "two"}),
        "sharded": (command, 3, {"words": SHARDED, "out": "sharded"}),
        "killed": (killed, 2, {"words": WORDS, "out": "killed", "who": 1}),
        "resumed": (command, 3, {"words": resume, "out": "killed"}),
        "shards killed": (killed, 2, {"words": SHARDED, "out": "shards", "who": 0}),
        "signaled": (signaled, 2, {"words": SHARDED, "out": "signal", "who": [1], "at": "step"}),
        "signal resumed": (command, 3, {"words": resume, "out": "signal"}),
        "in evaluation": (
            signaled,
            2,
            {"words": WORDS, "out": "evaluation", "who": [0, 1], "at": "evaluation"},
        ),
        "lost": (lose, 1, {"of": "shards", "out": "lost"}),
        "shard missing": (command, 2, {"words": resume, "out": "lost"}),
        "shards resumed": (command, 3, {"words": resume, "out": "shards"}),
        "broken": (broken, 2, {"words": WORDS, "out": "broken"}),
        "live": (command, 2, {"words": live, "out": "live"}),
        "all": (command, 2, {"words": [*WORDS, "--all-classes", *HALFWAY], "out": "all"}),
        "init": (command, 2, {"words": [*SHARDED, *init], "out": "init"}),
        "different": (command, 2, {"words": WORDS, "out": "no1", "rank 1": ["--seed", "5"]}),
        "cannot shard": (command, 2, {"words": [*SHARDED, "--loss", "proxy_nca"], "out": "no2"}),
        "few classes": (command, 4, {"words": [*live, *SHARD], "out": "no3"}),
        "few pictures": (command, 3, {"words": [*WORDS, "--set", "batch_size=2"], "out": "no4"}),
    }
    ended = groups(list(jobs.values()), folder)
    return dict(zip(jobs, ended, strict=True)), folder


@pytest.fixture(scope="module")
def alone(trained):
    """The same run by one process."""
    folder = trained[1] / "alone"
    train(RUN, folder)
    return folder


def messages(group: Ended) -> list[str]:
    return [line for line in group.stderr.splitlines() if line.startswith("proxysynth:")]


def assert_same_curve(one: Path, other: Path, classes: int = 7) -> None:
    """Losses agree to 1e-5, weights too but for what Adam makes of rounding; metrics are counts,
    in which two neighbors that are all but equally near may have changed places."""
    assert len(read_metrics(one)) == len(read_metrics(other)) == 3
    for a, b in zip(read_metrics(one), read_metrics(other), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert a == pytest.approx(b, abs=5e-3)
    first, second = load(one), load(other)
    torch.testing.assert_close(first.proxies, second.proxies, rtol=1e-4, atol=1e-4)
    assert first.proxies.shape == (classes, 16)
    for name, value in second.embedder.state_dict().items():
        found = first.embedder.state_dict()[name]
        torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["two", "sharded", "resumed", "shards resumed", "signal resumed"])
def test_training_curve_matches_one_process(name, trained, alone):
    """Replicated and sharded, uninterrupted and resumed by another number of processes."""
    ended, folder = trained
    group = ended[name]
    assert set(group.codes) == {0}, group.stderr
    resumed = {"resumed": "killed", "shards resumed": "shards", "signal resumed": "signal"}
    out = resumed.get(name, name)
    assert_same_curve(folder / out, alone)
    sharded = name not in ("two", "resumed")
    assert read_run(folder / out).run == replace(RUN, shard_proxies=sharded)


def test_only_one_rank_prints_the_result(trained):
    ended, folder = trained
    lines = ended["two"].stdout.splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["metrics"] == read_result(folder / "two").metrics
    assert ended["two"].stderr.count("Training on") == 1
    assert "2 processes" in ended["two"].stderr
    assert "epoch 3/3" in ended["two"].stderr
    assert not [path for path in (folder / "two").rglob("*") if "unfinished" in path.name]


def test_finished_run_is_not_retrained(trained):
    again = trained[0]["again"]
    assert again.codes == [0, 0]
    assert json.loads(again.stdout)["metrics"] == read_result(trained[1] / "two").metrics
    assert "epoch" not in again.stderr


def test_distributed_evaluation_gives_identical_metrics(trained, monkeypatch):
    folder = trained[1] / "two"
    monkeypatch.setattr("proxysynth.training.inference.BATCH", 128)
    ready = prepare(RUN, open_splits(RUN), load(folder).embedder, Resources(), Silent())
    assert measure(ready.net, ready.query).metrics == read_result(folder).metrics


def test_killed_rank_ends_the_run_with_one_message(trained):
    for name, who in (("killed", 1), ("shards killed", 0)):
        group = trained[0][name]
        assert group.codes[who] == -signal.SIGKILL
        assert group.codes[1 - who] == 1
        (message,) = messages(group)
        assert "another process of this run ended" in message
        assert "Traceback" not in group.stderr


def test_signal_to_one_rank_checkpoints_and_ends_all_ranks(trained):
    ended, folder = trained
    assert ended["signaled"].codes == [143, 143], ended["signaled"].stderr
    assert "Resuming after epoch 1, step 6" in ended["signal resumed"].stderr
    group = ended["in evaluation"]
    assert group.codes == [143, 143], group.stderr
    checkpoints = Checkpoints(folder / "evaluation" / CHECKPOINT)
    state = checkpoints.load(read_run(folder / "evaluation").identity).state
    assert (state.epoch, state.batch, state.step) == (1, 4, 8)
    for name in ("signaled", "in evaluation"):
        (message,) = messages(ended[name])
        assert "run the same command to resume" in message
        assert "Traceback" not in ended[name].stderr


def test_proxy_shards_are_saved_separately_and_merged(trained):
    folder = trained[1] / "sharded"
    checkpoints = Checkpoints(folder / CHECKPOINT)
    place = checkpoints.folder / step_name(checkpoints.steps()[-1])
    assert len(list(place.glob("proxies-*-of-3.safetensors"))) == 3
    whole = checkpoints.load(read_run(folder).identity)
    assert torch.equal(whole.tensors["proxies"], load(folder).proxies)
    assert whole.tensors["optimizer.proxies.0.exp_avg"].shape == (7, 16)


def test_live_batch_norm_is_reported(trained):
    ended, folder = trained
    assert ended["live"].codes == [0, 0], ended["live"].stderr
    notes = " ".join(read_result(folder / "live").notes)
    assert "2 processes" in notes
    assert "batch norm" in notes
    frozen = " ".join(read_result(folder / "two").notes)
    assert "2 processes" in frozen
    assert "batch norm" not in frozen


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("different", 2, "seed 0 on rank 0, 5 on rank 1"),
        ("cannot shard", 2, "ProxyNCA"),
        ("few classes", 2, "3 classes cannot be divided over 4"),
        ("few pictures", 2, "batch_size"),
        ("broken", 1, "the loss is not finite in step 3 of epoch 1, in a batch of 16"),
        ("shard missing", 1, "proxies-1-of-2.safetensors"),
    ],
)
def test_invalid_run_is_reported_once_and_ends_all_ranks(name, code, sentence, trained):
    group = trained[0][name]
    assert set(group.codes) == {code}, group.stderr
    (message,) = messages(group)
    assert sentence in message
    assert group.stdout == ""
    assert "Traceback" not in group.stderr


def test_all_classes_and_interpolation_match_one_process(trained, tmp_path):
    ended, folder = trained
    assert ended["all"].codes == [0, 0], ended["all"].stderr
    result = train(replace(RUN, interpolate=0.5), tmp_path / "alone", all_classes=True)
    assert read_result(folder / "all").metrics == pytest.approx(result.metrics, abs=5e-3)
    models = [load(place) for place in (folder / "all", tmp_path / "alone")]
    assert len(models[0].classes) == 27
    torch.testing.assert_close(models[0].proxies, models[1].proxies, rtol=1e-3, atol=1e-3)


def test_sharded_run_starts_from_earlier_run(trained, tmp_path):
    ended, folder = trained
    assert ended["init"].codes == [0, 0], ended["init"].stderr
    split = replace(RUN.split, train_classes=9)
    run = replace(RUN, split=split, init=str(folder / "sharded"))
    train(run, tmp_path / "alone")
    assert_same_curve(folder / "init", tmp_path / "alone", classes=9)


@pytest.mark.slow
def test_training_under_torchrun_matches_one_process(trained, alone, tmp_path):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words = [*launch, "--nproc-per-node", "2", "-m", "proxysynth", *WORDS]
    done = subprocess.run(
        [*words, "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert_same_curve(tmp_path / "run", alone)


@pytest.mark.slow
def test_live_batch_norm_metrics_are_within_seed_spread(tmp_path):
    split = Split(train_classes=30, test_classes=30, faces_per_class=16)
    run = Run(split=split, epochs=10, dim=32, width=0.5, evaluate_every=10)
    alone = [train(replace(run, seed=s), tmp_path / f"alone{s}").metrics for s in range(5)]
    words = ["train", "glyphs", "--epochs", "10", "--set", "dim=32", "--set", "width=0.5"]
    words += ["--set", "evaluate_every=10", "--set", "split.faces_per_class=16"]
    words += ["--set", "split.train_classes=30", "--set", "split.test_classes=30"]
    jobs = [(command, 2, {"words": [*words, "--seed", str(s)], "out": f"two{s}"}) for s in range(5)]
    ended = groups(jobs, tmp_path)
    assert all(group.codes == [0, 0] for group in ended), ended[0].stderr
    for name in ("recall@1", "map@r"):
        one = torch.tensor([metrics[name] for metrics in alone])
        two = torch.tensor([read_result(tmp_path / f"two{s}").metrics[name] for s in range(5)])
        spread = float(one.std())
        assert spread > 0
        assert abs(float(two.mean() - one.mean())) < 2 * spread, (name, one, two)
