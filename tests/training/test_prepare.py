from dataclasses import replace

import numpy as np
import pytest

from proxysynth.data import AsIs, CenterCrop, Listing, MPerClass, RandomResizedCrop, Shuffled
from proxysynth.training import Resources, Run, Silent, Split
from proxysynth.training.prepare import (
    evaluation_transform,
    make_network,
    make_sampler,
    open_splits,
    prepare,
    resized_side,
    side_in_memory,
    training_transform,
)


def prepared(run: Run):
    splits = open_splits(run)
    net = make_network(run, side_in_memory(splits))
    return prepare(run, splits, net, Resources(workers=0), Silent())


FILES = Listing(("a.png",), np.array([0]), ("a",), root="/")
HELD = Listing(("a",), np.array([0]), ("a",), pixels=np.zeros((1, 32, 32), np.uint8))


def test_photographs_use_the_paper_evaluation_crop():
    net = make_network(Run(image_size=224), None)
    assert evaluation_transform(Run(), net, FILES) == CenterCrop(256, 224)
    assert resized_side(Run(), make_network(Run(image_size=96), None)) == 110


def test_in_memory_images_of_matching_size_are_unchanged():
    assert evaluation_transform(Run(), make_network(Run(), 32), HELD) == AsIs()
    assert evaluation_transform(Run(), make_network(Run(image_size=48), 32), HELD) == CenterCrop(
        48, 48
    )


def test_training_augmentation():
    net = make_network(Run(), 32)
    run = Run(augment=True, crop_scale=(0.3, 0.9), flip=0.0)
    assert training_transform(run, net, HELD) == RandomResizedCrop(32, (0.3, 0.9), flip=0.0)
    assert training_transform(Run(), net, HELD) == AsIs()


def test_sampler_selection():
    assert make_sampler(Run(seed=3)) == Shuffled(3)
    assert make_sampler(Run(seed=3, sampler="m_per_class", m=2)) == MPerClass(2, 3)


def test_image_cache_uses_evaluation_size(photo_run):
    ready = prepared(photo_run)
    assert ready.train.cache.side == 37
    assert ready.query.cache is ready.train.cache
    assert ready.gallery is None
    assert ready.validation is None
    none = prepared(replace(photo_run, cache_side=0))
    assert none.train.cache is None


def test_validation_is_held_out_from_seen_classes(glyph_run):
    ready = prepared(replace(glyph_run, report_epoch="best"))
    whole = prepared(glyph_run)
    held = set(ready.validation.listing.classes)
    assert held | set(ready.splits.train.classes) == set(whole.splits.train.classes)
    assert not held & set(ready.splits.train.classes)
    assert ready.splits.query.classes == whole.splits.query.classes


def test_missing_weights_file_is_reported(photo_run, tmp_path):
    run = replace(photo_run, weights=str(tmp_path / "none.safetensors"))
    with pytest.raises(OSError, match="there is no weights file"):
        prepared(run)


def test_too_few_test_images_are_rejected_before_reading(photo_run):
    run = replace(photo_run, split=Split(test_pictures=3))
    with pytest.raises(ValueError, match="none of the 3 test images"):
        open_splits(run)


def test_image_size_too_small_for_backbone_is_rejected():
    with pytest.raises(ValueError, match=r"conv4 .* 8 x 8 .*image_size"):
        make_network(Run(image_size=8), None)
    assert make_network(Run(image_size=16), None).training
