"""Every class is in one shard, and the sizes of the shards differ by at most one."""

from __future__ import annotations

import pytest
import torch

from proxysynth.distributed import Shards


@pytest.mark.parametrize(
    ("classes", "world"), [(7, 7), (8, 1), (8, 4), (8, 7), (11, 2), (11, 4), (100, 3), (100, 7)]
)
def test_shard_ranges_cover_every_class_once(classes: int, world: int) -> None:
    parts = [Shards(classes, world, rank) for rank in range(world)]
    assert [c for part in parts for c in part.mine] == list(range(classes))
    sizes = [len(part.mine) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    p, y = torch.arange(classes), torch.arange(classes).flip(0)
    assert torch.equal(torch.cat([p[part.rows] for part in parts]), p)
    for part in parts:
        local = part.local(y)
        here = local >= 0
        assert torch.equal(p[part.rows][local[here]], y[here])
        assert int(here.sum()) == len(part.mine)


def test_invalid_shard_numbers_are_rejected() -> None:
    with pytest.raises(ValueError, match="3 classes.*4 processes"):
        Shards(3, 4, 0)
    with pytest.raises(ValueError, match="1 class"):
        Shards(1, 4, 0)
    for world, rank in ((2, 2), (2, -1), (0, 0)):
        with pytest.raises(ValueError, match="rank"):
            Shards(5, world, rank)
