import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image

from proxysynth.data import (
    PIXELS,
    AsIs,
    Batch,
    CenterCrop,
    ImageCache,
    Listing,
    Loader,
    MPerClass,
    RandomResizedCrop,
    Shuffled,
    UnreadableImage,
    default_workers,
    in_order,
    open_data,
    open_image,
    read_image,
)
from proxysynth.data.transforms import uniforms

CROP = RandomResizedCrop(16)


@pytest.fixture
def listing(make_folder):
    root = make_folder({"ants": 7, "bees": 6, "cats": 2, "dogs": 2}, size=(50, 40))
    return open_data(root, unseen_classes=("cats", "dogs")).train


def memory(n=20, colour=False, seed=0):
    shape = (n, 6, 5, 3) if colour else (n, 6, 5)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return Listing(tuple(map(str, range(n))), np.arange(n) % 4, tuple("abcd"), pixels=pixels)


CPU = torch.device("cpu")


def collect(loader, plan, **where):
    return [(batch.images.clone(), batch.labels.clone()) for batch in loader.batches(plan, **where)]


def same(one, two):
    return len(one) == len(two) and all(
        torch.equal(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_batch_matches_manual_computation(listing):
    loader = Loader(listing, CROP, PIXELS["imagenet"])
    (batch,) = loader.batches([np.array([4, 0, 2])], seed=7, epoch=3)
    assert batch.images.shape == (3, 3, 16, 16)
    assert batch.images.dtype == torch.uint8  # a quarter of the numbers, on the way to a device
    inputs = batch.inputs(CPU)
    for made in (batch.images, inputs):
        assert made.is_contiguous(memory_format=torch.channels_last)
    assert batch.labels.tolist() == listing.labels[[4, 0, 2]].tolist()
    pixels = PIXELS["imagenet"]
    scale = np.float32(1 / (pixels.unit * np.array(pixels.std)))
    shift = np.float32(np.array(pixels.mean) / np.array(pixels.std))
    for image, index in zip(inputs, (4, 0, 2), strict=True):
        made = CROP(open_image(listing.path(index)), uniforms(7, 3, index, CROP.draws))
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), made * scale - shift)


def test_float_images_are_unchanged():
    images = torch.randn(2, 3, 4, 4)
    assert Batch(images, torch.zeros(2)).inputs(CPU) is images


@pytest.mark.parametrize("cached", [False, True])
def test_workers_do_not_change_results(listing, tmp_path, cached):
    plan = [batch for epoch in range(3) for batch in Shuffled()(listing.labels, epoch, 2)]
    made = []
    for workers in (0, 1, 3):
        cache = ImageCache(32, folder=tmp_path / str(workers)) if cached else None
        loader = Loader(listing, CROP, PIXELS["imagenet"], workers, cache)
        made.append(collect(loader, plan, seed=1, epoch=2))
    assert same(made[0], made[1])
    assert same(made[0], made[2])


def test_image_does_not_depend_on_batch_or_rank(listing):
    loader = Loader(listing, CROP, PIXELS["imagenet"], workers=2)
    whole = collect(loader, [np.arange(len(listing))], seed=1, epoch=5)[0][0]
    for rank in range(2):
        part = np.arange(len(listing))[rank::2]
        images = torch.cat([images for images, _ in collect(loader, [part], seed=1, epoch=5)])
        assert torch.equal(images, whole[rank::2])


def test_augmentation_depends_on_epoch_and_seed(listing):
    loader = Loader(listing, CROP, PIXELS["imagenet"])
    plan = [np.arange(4)]
    seen = [
        collect(loader, plan, seed=seed, epoch=epoch)[0][0]
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    for image in range(4):
        assert not torch.equal(seen[0][image], seen[1][image])
        assert not torch.equal(seen[0][image], seen[2][image])


def test_epoch_can_resume_in_the_middle(listing):
    loader = Loader(listing, CROP, PIXELS["imagenet"], workers=2)
    plan = Shuffled(seed=2)(listing.labels, 4, 2)
    assert same(collect(loader, plan, epoch=4)[2:], collect(loader, plan[2:], epoch=4))


def test_batches_do_not_depend_on_cache_state(listing, tmp_path):
    """Cold, warm, from disk, without memory, without disk: bit for bit the same."""
    plan = in_order(len(listing), 4)

    def epochs(**fields):
        cache = ImageCache(24, folder=tmp_path / "cache", **fields)
        loader = Loader(listing, CROP, PIXELS["imagenet"], 2, cache)
        return [collect(loader, plan, epoch=epoch) for epoch in (0, 1)]

    cold = epochs()
    for other in (epochs(), epochs(memory=0), epochs(disk=0), epochs(memory=0, disk=0)):
        assert all(same(one, two) for one, two in zip(cold, other, strict=True))


def test_cached_evaluation_matches_uncached(listing, tmp_path):
    plan = in_order(len(listing), 4)
    transform = CenterCrop(resize=32, size=28)
    plain = Loader(listing, transform, PIXELS["imagenet"])
    cached = replace(plain, cache=ImageCache(32, folder=tmp_path / "cache"))
    assert same(collect(plain, plan), collect(cached, plan))


@pytest.mark.parametrize("name", ["grey", "imagenet", "caffe_bgr"])
@pytest.mark.parametrize("colour", [False, True])
def test_in_memory_pixels_with_any_convention(name, colour):
    listing, convention = memory(colour=colour), PIXELS[name]
    plan = MPerClass(m=2)(listing.labels, 0, 4)
    batches = Loader(listing, AsIs(), convention, workers=2).batches(plan)
    for indices, batch in zip(plan, batches, strict=True):
        assert batch.images.shape == (4, convention.channels, 6, 5)
        for image, index in zip(batch.inputs(CPU), indices.tolist(), strict=True):
            source = Image.fromarray(listing.pixels[index]).convert(convention.mode)
            expected = convention.normalize(torch.tensor(np.asarray(source)).reshape(6, 5, -1))
            assert torch.equal(image.permute(1, 2, 0), expected)


def test_in_memory_pixels_can_be_cropped():
    loader = Loader(memory(), RandomResizedCrop(8), PIXELS["grey"], workers=2)
    (batch,) = loader.batches([np.arange(5)])
    assert batch.images.shape == (5, 1, 8, 8)


def test_grey_convention_on_color_files(listing):
    (batch,) = Loader(listing, CenterCrop(16, 16), PIXELS["grey"]).batches([np.arange(2)])
    grey = CenterCrop(16, 16)(open_image(listing.path(1)).convert("L"))
    np.testing.assert_array_equal(batch.images[1, 0].numpy(), grey)


def test_kept_batches_are_unchanged(listing):
    plan = [np.array([i]) for i in range(len(listing))] * 3
    for workers in (0, 2):
        loader = Loader(listing, CROP, PIXELS["imagenet"], workers)
        kept = [batch.images for batch in loader.batches(plan)]
        assert all(torch.equal(a, b[0]) for a, b in zip(kept, collect(loader, plan), strict=True))


def test_unreadable_file_stops_the_epoch(listing):
    listing.path(3).write_bytes(b"<html>")
    for workers in (0, 2):
        loader = Loader(listing, CROP, PIXELS["imagenet"], workers)
        with pytest.raises(UnreadableImage, match="HTML page") as caught:
            list(loader.batches(in_order(len(listing), 2)))
        assert caught.value.path == str(listing.path(3))
    assert workers_left() == 0


def test_closing_early_ends_the_workers(listing):
    loader = Loader(listing, CROP, PIXELS["imagenet"], workers=3)
    batches = loader.batches(in_order(len(listing), 2))
    next(batches)
    assert workers_left() > 0
    batches.close()
    assert workers_left() == 0


def workers_left():
    return sum(thread.name.startswith("loader") for thread in threading.enumerate())


def test_empty_plan_and_list_plan(listing):
    for workers in (0, 2):
        loader = Loader(listing, CROP, PIXELS["imagenet"], workers)
        assert list(loader.batches([])) == []
        (batch,) = loader.batches([[1, 2]])
        assert batch.labels.tolist() == listing.labels[[1, 2]].tolist()


def test_read_image_from_memory_file_and_cache(listing, tmp_path):
    assert read_image(memory(), 3).size == (5, 6)
    assert read_image(listing, 0).size == (50, 40)
    assert read_image(listing, 0, ImageCache(20, folder=tmp_path)).size == (25, 20)


def test_default_workers():
    assert 1 <= default_workers() <= 8


def test_loader_throughput():
    """A floor far below what it does, to notice a loop over images creeping in."""
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


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 80), st.integers(2, 30), st.integers(0, 5))
def test_shuffled_covers_every_image_once(n, size, epoch):
    batches = Shuffled(seed=1)(np.zeros(n, np.int64), epoch, size)
    assert sorted(np.concatenate(batches).tolist()) == list(range(n))
    assert all(len(batch) == size for batch in batches[:-1])
    assert 2 <= len(batches[-1]) <= size + 1


def test_single_leftover_image_joins_previous_batch():
    batches = Shuffled()(np.zeros(9, np.int64), 0, 4)
    assert [len(batch) for batch in batches] == [4, 5]


@pytest.mark.parametrize("sampler", [Shuffled(seed=3), MPerClass(m=2, seed=3)])
def test_sampler_depends_only_on_seed_and_epoch(sampler):
    labels = np.arange(40) % 8
    one = [batch.tolist() for batch in sampler(labels, 5, 8)]
    assert one == [batch.tolist() for batch in sampler(labels, 5, 8)]
    assert one != [batch.tolist() for batch in sampler(labels, 6, 8)]
    other = type(sampler)(seed=4)
    assert one != [batch.tolist() for batch in other(labels, 5, 8)]


def test_shuffled_order_is_stable_across_sessions():
    order = np.concatenate(Shuffled()(np.zeros(8, np.int64), 0, 4))
    assert order.tolist() == [1, 2, 3, 5, 0, 4, 7, 6]


def test_shuffled_positions_are_uniform():
    counts = np.zeros((5, 5))
    for epoch in range(2000):
        counts[np.arange(5), np.concatenate(Shuffled()(np.zeros(5, np.int64), epoch, 5))] += 1
    assert np.abs(counts - 400).max() < 5 * np.sqrt(400 * 0.8)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 3), st.data())
def test_m_per_class_batches(classes, m, epoch, data):
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=classes, max_size=classes))
    labels = np.repeat(np.arange(classes), sizes)
    per_batch = data.draw(st.integers(1, classes))
    if per_batch * m < 2:
        return
    batches = MPerClass(m=m, seed=2)(labels, epoch, per_batch * m)
    seen = np.zeros(classes, dtype=int)
    for batch in batches:
        found, counts = np.unique(labels[batch], return_counts=True)
        assert len(found) == per_batch
        assert (counts == m).all()
        for label in found:
            own = batch[labels[batch] == label]
            assert len(set(own.tolist())) == min(m, sizes[label])
        seen[found] += 1
    assert seen.max() - seen.min() <= 1
    assert len(batches) == max(1, len(labels) // (per_batch * m))


def test_m_per_class_uses_all_images_before_repeating():
    labels = np.repeat([0, 1], 6)
    dealt = np.concatenate(MPerClass(m=2)(labels, 0, 4))
    assert sorted(dealt.tolist()) == list(range(12))


def test_m_per_class_skips_empty_classes():
    labels = np.array([0, 0, 3, 3])
    assert len(MPerClass(m=2)(labels, 0, 4)[0]) == 4


@pytest.mark.parametrize("size", [6, 12])
def test_m_per_class_error_suggests_batch_size(size):
    with pytest.raises(ValueError, match="multiple of m=4 up to 8"):
        MPerClass(m=4)(np.repeat([0, 1], 9), 0, size)


def test_in_order_covers_every_image_once():
    assert [batch.tolist() for batch in in_order(5, 2)] == [[0, 1], [2, 3], [4]]
    assert in_order(0, 2) == []
