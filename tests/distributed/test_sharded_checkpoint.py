"""Proxies in shards: written by some ranks, read by others, as rows or as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import safetensors.torch
import torch

from proxysynth.distributed import Shards
from proxysynth.tensor_files import write_stream
from proxysynth.training.checkpoint import (
    Checkpoints,
    Damaged,
    ShardFile,
    State,
    read_rows,
    step_name,
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
    return [Shards(CLASSES, world, rank).mine for rank in range(world)]


def written(folder, world: int) -> list[ShardFile]:
    files = []
    for rank, rows in enumerate(ranges(world)):
        name = f"proxies-{rank}-of-{world}.safetensors"
        crc32 = write_stream(folder / name, tensors(rows), {})
        files.append(ShardFile(name, rows.start, rows.stop, crc32))
    return files


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 3), (3, 2), (4, 4)])
def test_checkpoint_can_be_read_by_any_number_of_ranks(before, after, tmp_path):
    files = written(tmp_path, before)
    for rows in ranges(after):
        made = read_rows(tmp_path, files, rows)
        expected = tensors(rows)
        assert made.keys() == expected.keys()
        assert all(torch.equal(made[name], expected[name]) for name in made)


def test_rank_reads_only_files_with_its_rows(tmp_path):
    files = written(tmp_path, 4)
    (tmp_path / files[3].name).unlink()
    assert len(read_rows(tmp_path, files, range(4))["proxies"]) == 4
    with pytest.raises(Damaged, match="proxies-3-of-4"):
        read_rows(tmp_path, files, None)


def test_modified_shard_is_rejected(tmp_path):
    files = written(tmp_path, 2)
    path = tmp_path / files[1].name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="proxies-1-of-2"):
        read_rows(tmp_path, files, None)


def sharded_checkpoint(folder) -> Checkpoints:
    """A checkpoint by one rank that holds all rows, beside the network's tensors."""
    checkpoints = Checkpoints(folder / "checkpoint", range(CLASSES))
    rest = {"net.weight": torch.ones(2), "optimizer.proxies.0.step": torch.tensor(3.0)}
    checkpoints.save(State("abc", step=3), {**rest, **tensors()})
    return checkpoints


def test_sharded_checkpoint_loads_whole_or_by_rows(tmp_path):
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


def test_missing_shard_is_reported(tmp_path):
    checkpoints = sharded_checkpoint(tmp_path)
    (checkpoints.folder / step_name(3) / "proxies-0-of-1.safetensors").unlink()
    with pytest.raises(Damaged, match="proxies-0-of-1"):
        checkpoints.read(3, "abc")
    with pytest.raises(ValueError, match="proxies-0-of-1"):
        checkpoints.load("abc")
