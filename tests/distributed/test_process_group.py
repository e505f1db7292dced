"""Ranks that join, exchange values, and fail."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time

import pytest
import torch

from distributed.on_ranks import groups
from proxysynth.distributed.process_group import (
    Ranks,
    join_process_group,
    own_device,
    reports_failure,
)
from proxysynth.training import NotFinite, Resources, Run, TrainingFailed
from proxysynth.training.loop import require_same
from proxysynth.training.resources import own_resources


def test_single_process_collectives(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_process_group() as ranks:
        assert (ranks.rank, ranks.world, ranks.first) == (0, 1, True)
        assert ranks.broadcast({"a": 1}) == {"a": 1}
        assert ranks.all_gather("b") == ["b"]
        x = torch.randn(3, 2)
        assert ranks.gather(x, [3]) is x
        assert reports_failure(ranks)


@pytest.mark.parametrize(
    ("n", "world"), [(0, 4), (1, 3), (2, 2), (7, 1), (7, 4), (8, 4), (9, 4), (9, 2)]
)
def test_parts_are_an_ordered_partition(n, world):
    parts = [range(n)[Ranks(rank, world).part(n)] for rank in range(world)]
    assert [i for part in parts for i in part] == list(range(n))
    assert [len(part) for part in parts] == Ranks(0, world).counts(n)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_each_rank_has_its_own_device(monkeypatch):
    cpu, two = torch.device("cpu"), Ranks(1, 2)
    assert own_device(cpu, two) == cpu
    assert own_device(torch.device("mps"), Ranks()) == torch.device("mps")
    with pytest.raises(ValueError, match="mps"):
        own_device(torch.device("mps"), two)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ValueError, match="process 2"):
        own_device(torch.device("cuda"), two)


def test_ranks_on_one_machine_share_workers(monkeypatch):
    monkeypatch.setattr("proxysynth.training.resources.default_workers", lambda: 7)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert own_resources(Resources(), Ranks(5, 6)).loader_workers == 2
    assert own_resources(Resources(workers=5), Ranks(5, 6)).loader_workers == 5
    assert own_resources(Resources(), Ranks()).loader_workers == 7


COUNTS = [0, 1, 2, 3, 5, 6]


def exchange(argument, folder):
    with join_process_group() as ranks:
        found = {
            "world": [ranks.rank, ranks.world],
            "tell": ranks.broadcast({"of": ranks.rank, "nan": None, "third": 1 / 3}),
            "ask": ranks.all_gather({"name": "é" * ranks.rank}),
            "max": ranks.max(-ranks.rank),
            "tensor": ranks.broadcast(torch.tensor([1.5, ranks.rank])).tolist(),
        }
        found["mean"] = ranks.sum(torch.tensor([float(ranks.rank)])).item() / ranks.world
        require_same(Run(), "a hash", ranks)
        try:
            require_same(Run(), f"hash {ranks.rank // 2}", ranks)
        except ValueError as error:
            found["pictures"] = str(error)
        found["gathered"] = {}
        for n in argument:
            whole = torch.arange(3.0 * n, dtype=torch.float64).reshape(n, 3)
            own = whole[ranks.part(n)].clone().requires_grad_()
            x = ranks.gather(own, ranks.counts(n))
            # Rank r differentiates (r + 1) sum w x^2, so that the sum over the ranks is seen.
            weights = torch.arange(1.0, n + 1, dtype=torch.float64)[:, None]
            ((ranks.rank + 1) * (weights * x**2).sum()).backward()
            found["gathered"][n] = [torch.equal(x.detach(), whole), own.grad.tolist()]
        return found


def dies(argument, folder):
    """One rank fails or is killed, as the argument says, while the others wait for it."""
    with join_process_group() as ranks:
        try:
            with join_process_group():
                ranks.barrier()
                if ranks.rank == argument["who"]:
                    if argument["how"] == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise NotFinite("its own reason", 3, ())
                time.sleep(0.1)
                ranks.broadcast("something")
                ranks.barrier()
        except (ValueError, OSError, RuntimeError):
            if not reports_failure(ranks):
                sys.exit(3)
            raise


def reports(argument, folder):
    try:
        dies(argument, folder)
    except TrainingFailed as error:
        print(json.dumps(str(error)), file=sys.stderr, flush=True)
        sys.exit(1)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    ways = [{"who": 0, "how": "raise"}, {"who": 1, "how": "raise"}, {"who": 1, "how": "kill"}]
    jobs = [*((reports, 3, way) for way in ways), (exchange, 3, COUNTS)]
    return groups(jobs, tmp_path_factory.mktemp("ended"))


def test_collectives_between_ranks(ended):
    assert ended[3].codes == [0, 0, 0], ended[3].stderr
    for rank, found in enumerate(ended[3].returned):
        assert found["world"] == [rank, 3]
        assert found["tell"] == {"of": 0, "nan": None, "third": 1 / 3}
        assert found["ask"] == [{"name": ""}, {"name": "é"}, {"name": "éé"}]
        assert found["max"] == 0
        assert found["tensor"] == [1.5, 0]
        assert found["mean"] == 1.0
        assert re.search("images .* on rank 0, .* on rank 2", found["pictures"])
        for n in COUNTS:
            same, gradient = found["gathered"][str(n)]
            assert same
            whole = torch.arange(3.0 * n, dtype=torch.float64).reshape(n, 3)
            weights = torch.arange(1.0, n + 1, dtype=torch.float64)[:, None]
            expected = (1 + 2 + 3) * 2 * weights * whole
            assert gradient == expected[Ranks(rank, 3).part(n)].tolist()


def sentences(group) -> list[str]:
    return [line for line in group.stderr.splitlines() if line.startswith('"')]


@pytest.mark.parametrize("who", [0, 1])
def test_failed_rank_reports_its_error(who, ended):
    assert [code != 0 for code in ended[who].codes] == [True] * 3
    assert ended[who].codes[who] == 1
    assert sentences(ended[who]) == ['"its own reason"']


def test_killed_rank_is_reported_once(ended):
    codes = ended[2].codes
    assert codes[1] == -signal.SIGKILL
    assert codes[0] != 0
    assert codes[2] != 0
    assert len(sentences(ended[2])) == 1
    assert "another process of this run ended" in sentences(ended[2])[0]
