import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from proxysynth.data import (
    PIXELS,
    AsIs,
    CenterCrop,
    ClassSplit,
    Listing,
    Loader,
    MPerClass,
    PictureCache,
    RandomResizedCrop,
    Shuffled,
    UnreadablePicture,
    default_workers,
    in_order,
    open_folder,
    open_picture,
    picture,
)
from proxysynth.data.transforms import uniforms

CROP = RandomResizedCrop(16)


@pytest.fixture
def listing(make_folder):
    root = make_folder({"ants": 7, "bees": 6, "cats": 2, "dogs": 2}, size=(50, 40))
    return open_folder(root, ClassSplit(unseen_classes=("cats", "dogs"))).train


def memory(n=20, colour=False, seed=0):
    shape = (n, 6, 5, 3) if colour else (n, 6, 5)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return Listing(tuple(map(str, range(n))), np.arange(n) % 4, tuple("abcd"), pixels=pixels)


def collect(loader, plan, **where):
    return [
        (batch.images.clone(), batch.labels.clone(), batch.indices.clone())
        for batch in loader.batches(plan, **where)
    ]


def same(one, two):
    return len(one) == len(two) and all(
        torch.equal(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_a_batch_is_what_its_parts_make(listing):
    loader = Loader(listing, CROP, PIXELS["imagenet"])
    (batch,) = loader.batches([np.array([4, 0, 2])], seed=7, epoch=3)
    assert batch.images.shape == (3, 3, 16, 16)
    assert batch.images.dtype == torch.float32
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    assert batch.indices.tolist() == [4, 0, 2]
    assert batch.labels.tolist() == listing.labels[[4, 0, 2]].tolist()
    for image, index in zip(batch.images, (4, 0, 2), strict=True):
        made = CROP(open_picture(listing.path(index)), uniforms(7, 3, index, CROP.draws))
        expected = PIXELS["imagenet"].numbers(made)
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), expected)


@pytest.mark.parametrize("cached", [False, True])
def test_workers_change_nothing(listing, tmp_path, cached):
    plan = [batch for epoch in range(3) for batch in Shuffled()(listing.labels, epoch, 2)]
    made = []
    for workers in (0, 1, 3):
        cache = PictureCache(32, folder=tmp_path / str(workers)) if cached else None
        loader = Loader(listing, CROP, PIXELS["imagenet"], workers, cache)
        made.append(collect(loader, plan, seed=1, epoch=2))
    assert same(made[0], made[1])
    assert same(made[0], made[2])


def test_a_picture_looks_the_same_in_any_batch_on_any_rank(listing):
    loader = Loader(listing, CROP, PIXELS["imagenet"], workers=2)
    whole = collect(loader, [np.arange(len(listing))], seed=1, epoch=5)[0][0]
    for rank in range(2):
        part = np.arange(len(listing))[rank::2]
        images = torch.cat([images for images, _, _ in collect(loader, [part], seed=1, epoch=5)])
        assert torch.equal(images, whole[rank::2])


def test_epoch_and_seed_change_what_is_seen(listing):
    loader = Loader(listing, CROP, PIXELS["imagenet"])
    plan = [np.arange(4)]
    seen = [
        collect(loader, plan, seed=seed, epoch=epoch)[0][0]
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    for image in range(4):
        assert not torch.equal(seen[0][image], seen[1][image])
        assert not torch.equal(seen[0][image], seen[2][image])


def test_an_epoch_goes_on_from_its_middle(listing):
    loader = Loader(listing, CROP, PIXELS["imagenet"], workers=2)
    plan = Shuffled(seed=2)(listing.labels, 4, 2)
    assert same(collect(loader, plan, epoch=4)[2:], collect(loader, plan[2:], epoch=4))


def test_the_cache_decides_once_and_for_all(listing, tmp_path):
    """Cold, warm, from disk, without memory, without disk: bit for bit the same."""
    plan = in_order(len(listing), 4)

    def epochs(**fields):
        cache = PictureCache(24, folder=tmp_path / "cache", **fields)
        loader = Loader(listing, CROP, PIXELS["imagenet"], 2, cache)
        return [collect(loader, plan, epoch=epoch) for epoch in (0, 1)]

    cold = epochs()
    for other in (epochs(), epochs(memory=0), epochs(disk=0), epochs(memory=0, disk=0)):
        assert all(same(one, two) for one, two in zip(cold, other, strict=True))


def test_evaluation_is_the_same_with_a_cache_of_its_own_size(listing, tmp_path):
    plan = in_order(len(listing), 4)
    transform = CenterCrop(resize=32, size=28)
    plain = Loader(listing, transform, PIXELS["imagenet"])
    cached = replace(plain, cache=PictureCache(32, folder=tmp_path / "cache"))
    assert same(collect(plain, plan), collect(cached, plan))


@pytest.mark.parametrize("name", ["grey", "imagenet", "caffe_bgr"])
@pytest.mark.parametrize("colour", [False, True])
def test_pixels_in_memory_with_any_convention(name, colour):
    listing, convention = memory(colour=colour), PIXELS[name]
    plan = MPerClass(m=2)(listing.labels, 0, 4)
    for batch in Loader(listing, AsIs(), convention, workers=2).batches(plan):
        assert batch.images.shape == (4, convention.channels, 6, 5)
        for image, index in zip(batch.images, batch.indices.tolist(), strict=True):
            source = Image.fromarray(listing.pixels[index]).convert(convention.mode)
            expected = convention.numbers(np.asarray(source).reshape(6, 5, -1))
            np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), expected)


def test_pixels_in_memory_can_be_cropped_too():
    loader = Loader(memory(), RandomResizedCrop(8), PIXELS["grey"], workers=2)
    (batch,) = loader.batches([np.arange(5)])
    assert batch.images.shape == (5, 1, 8, 8)


def test_grey_convention_on_coloured_files(listing):
    (batch,) = Loader(listing, CenterCrop(16, 16), PIXELS["grey"]).batches([np.arange(2)])
    grey = CenterCrop(16, 16)(open_picture(listing.path(1)).convert("L"))
    expected = PIXELS["grey"].numbers(grey[..., None])
    np.testing.assert_array_equal(batch.images[1].permute(1, 2, 0).numpy(), expected)


def test_batches_that_are_kept_stay_as_they_were(listing):
    plan = [np.array([i]) for i in range(len(listing))] * 3
    for workers in (0, 2):
        loader = Loader(listing, CROP, PIXELS["imagenet"], workers)
        kept = [batch.images for batch in loader.batches(plan)]
        assert all(torch.equal(a, b[0]) for a, b in zip(kept, collect(loader, plan), strict=True))


def test_a_bad_file_stops_the_epoch_and_is_named(listing):
    listing.path(3).write_bytes(b"<html>")
    for workers in (0, 2):
        loader = Loader(listing, CROP, PIXELS["imagenet"], workers)
        with pytest.raises(UnreadablePicture, match="HTML page") as caught:
            list(loader.batches(in_order(len(listing), 2)))
        assert caught.value.path == str(listing.path(3))
    assert workers_left() == 0


def test_leaving_early_ends_the_workers(listing):
    loader = Loader(listing, CROP, PIXELS["imagenet"], workers=3)
    batches = loader.batches(in_order(len(listing), 2))
    next(batches)
    assert workers_left() > 0
    batches.close()
    assert workers_left() == 0


def workers_left():
    return sum(thread.name.startswith("loader") for thread in threading.enumerate())


def test_an_empty_plan_and_a_list_for_a_plan(listing):
    for workers in (0, 2):
        loader = Loader(listing, CROP, PIXELS["imagenet"], workers)
        assert list(loader.batches([])) == []
        assert next(iter(loader.batches([[1, 2]]))).indices.tolist() == [1, 2]


def test_one_picture(listing, tmp_path):
    assert picture(memory(), 3).size == (5, 6)
    assert picture(listing, 0).size == (50, 40)
    assert picture(listing, 0, PictureCache(20, folder=tmp_path)).size == (25, 20)


def test_faults_are_named(listing):
    with pytest.raises(ValueError, match="0 or more, got -1"):
        Loader(listing, CROP, PIXELS["imagenet"], workers=-1)
    with pytest.raises(ValueError, match="a transform that crops"):
        Loader(listing, AsIs(), PIXELS["imagenet"])
    assert 1 <= default_workers() <= 8


def test_glyphs_come_by_the_thousand():
    """A floor far below what it does, to notice a loop over pictures creeping in."""
    import time

    pixels = np.zeros((6400, 32, 32), np.uint8)
    listing = Listing(
        tuple(map(str, range(6400))), np.arange(6400) % 4, tuple("abcd"), pixels=pixels
    )
    plan = Shuffled()(listing.labels, 0, 64)
    start = time.process_time()
    for _ in Loader(listing, AsIs(), PIXELS["grey"]).batches(plan):
        pass
    assert 6400 / (time.process_time() - start) > 20_000
