import torch

from benchmarks import loader as bench
from proxysynth.data import PIXELS, Loader, RandomResizedCrop, in_order


def test_both_sides_produce_the_same_images(tmp_path):
    listing = bench.photographs(tmp_path / "photographs", 4)
    crop, plan = RandomResizedCrop(bench.SIZE), in_order(4, 2)
    ours = bench.numbers(Loader(listing, crop, PIXELS["imagenet"]).batches(plan, epoch=1))
    theirs = bench.plain(listing, crop, plan, 1, workers=2)
    for batch, other in zip(ours, theirs, strict=True):
        assert torch.allclose(batch, other, atol=1e-5)


def test_rows_of_a_quick_run():
    rows = bench.run(quick=True)
    sides = [row["side"] for row in rows]
    assert sides[0] == "plain Pillow"
    assert sum("later epochs" in side for side in sides) == 2
    assert all(row["pictures_per_second"] > 0 for row in rows)
    assert [row["target"] for row in rows if "later epochs" in row["side"]] == [2.0, 2.0]
