"""Proxies in shards: written by some ranks, read by others, as rows or as a whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import safetensors.torch
import torch

from proxysynth.training.checkpoint import (
    Checkpoints,
    Damaged,
    State,
    read_rows,
    step_name,
    write_shard,
)

CLASSES, DIM = 11, 3


def tensors(rows: range = range(CLASSES)) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    proxies, memory = (torch.randn(CLASSES, DIM, generator=draw) for _ in range(2))
    return {
        "proxies": proxies[rows.start : rows.stop],
        "optimizer.proxies.0.exp_avg": memory[rows.start : rows.stop],
    }


def ranges(world: int) -> list[range]:
    each, more = divmod(CLASSES, world)
    starts = [rank * each + min(rank, more) for rank in range(world + 1)]
    return [range(a, b) for a, b in pairwise(starts)]


def written(folder, world: int):
    return [
        write_shard(folder, tensors(rows), rows, rank, world)
        for rank, rows in enumerate(ranges(world))
    ]


@pytest.mark.parametrize("before", [1, 2, 3, 4])
@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_any_number_of_ranks_reads_what_any_other_wrote(before, after, tmp_path):
    files = written(tmp_path, before)
    for rows in ranges(after):
        made = read_rows(tmp_path, files, rows)
        expected = tensors(rows)
        assert made.keys() == expected.keys()
        assert all(torch.equal(made[name], expected[name]) for name in made)


def test_a_rank_opens_only_the_files_of_its_rows(tmp_path):
    files = written(tmp_path, 4)
    (tmp_path / files[3].name).unlink()
    assert len(read_rows(tmp_path, files, range(4))["proxies"]) == 4
    with pytest.raises(Damaged, match=r"lacks its shard proxies-3-of-4"):
        read_rows(tmp_path, files, None)


def test_a_shard_that_was_changed_is_not_read(tmp_path):
    files = written(tmp_path, 2)
    path = tmp_path / files[1].name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="proxies-1-of-2.safetensors"):
        read_rows(tmp_path, files, None)


def sharded_checkpoint(folder) -> Checkpoints:
    """A checkpoint by one rank that holds all rows, beside the network's tensors."""
    checkpoints = Checkpoints(folder / "checkpoint", range(CLASSES))
    rest = {"net.weight": torch.ones(2), "optimizer.proxies.0.step": torch.tensor(3.0)}
    checkpoints.save(State("abc", step=3), {**rest, **tensors()})
    return checkpoints


def test_a_sharded_checkpoint_comes_back_whole_or_in_rows(tmp_path):
    checkpoints = sharded_checkpoint(tmp_path)
    place = checkpoints.folder / step_name(3)
    assert (place / "proxies-0-of-1.safetensors").exists()
    assert torch.equal(checkpoints.all_proxies(3), tensors()["proxies"])
    small = safetensors.torch.load((place / "tensors.safetensors").read_bytes())
    assert small.keys() == {"net.weight", "optimizer.proxies.0.step"}
    loaded = Checkpoints(checkpoints.folder).load("abc")
    assert loaded is not None
    assert torch.equal(loaded.tensors["proxies"], tensors()["proxies"])
    some = replace(checkpoints, rows=range(2, 5)).load("abc")
    assert some is not None
    assert torch.equal(some.tensors["proxies"], tensors()["proxies"][2:5])
    assert some.tensors["optimizer.proxies.0.step"] == 3.0


def test_a_missing_shard_is_named(tmp_path):
    checkpoints = sharded_checkpoint(tmp_path)
    (checkpoints.folder / step_name(3) / "proxies-0-of-1.safetensors").unlink()
    with pytest.raises(Damaged, match="lacks its shard proxies-0-of-1"):
        checkpoints.read(3, "abc")
    with pytest.raises(ValueError, match=r"lacks its shard proxies-0-of-1"):
        checkpoints.load("abc")
