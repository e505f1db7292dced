import numpy as np
import pytest
from PIL import Image
from scipy import stats

from proxysynth.data import (
    CATALOGUE,
    CLASSIFICATION,
    CONVENTIONAL,
    MLRC,
    MLRC_AS_PRINTED,
    PIXELS,
    CenterCrop,
    RandomResizedCrop,
)
from proxysynth.data.transforms import uniforms


def noise(width, height):
    made = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(made)


def test_the_values_of_section_c2():
    assert CONVENTIONAL.train == RandomResizedCrop(224, scale=(0.08, 1.0), flip=0.5)
    assert CONVENTIONAL.test == CenterCrop(256, 224)
    assert MLRC.train == RandomResizedCrop(227, (0.16, 1.0), (3 / 4, 4 / 3), 0.5, resize=256)
    assert MLRC.test == MLRC_AS_PRINTED.test == CenterCrop(256, 227)
    assert CONVENTIONAL.pixels == MLRC.pixels == "caffe_bgr"


@pytest.mark.parametrize("pair", [CONVENTIONAL, MLRC, MLRC_AS_PRINTED])
def test_every_picture_comes_out_square(pair):
    for size in ((500, 333), (90, 300), (256, 256)):
        image = noise(*size)
        for i, transform in enumerate((pair.train, pair.test)):
            made = transform(image, uniforms(0, 0, i, transform.draws))
            assert made.shape == (transform.size, transform.size, 3)


def test_the_printed_crops_have_sides_of_40_to_256():
    train = MLRC_AS_PRINTED.train
    boxes = [train.box(256, 256, uniforms(0, 0, i, train.draws)) for i in range(4000)]
    side = np.array([((r - left) * (b - top)) ** 0.5 for left, top, r, b in boxes])
    assert 39 < side.min() < 60
    assert 250 < side.max() <= 256


def test_the_short_side_comes_first():
    """The crop is taken of the resized picture: as a crop of a picture resized beforehand."""
    image = noise(400, 320)
    small = image.resize((320, 256), Image.Resampling.BILINEAR)
    plain = RandomResizedCrop(227, scale=(0.16, 1.0))
    for i in range(5):
        u = uniforms(0, 0, i, plain.draws)
        assert np.array_equal(MLRC.train(image, u), plain(small, u))
    with pytest.raises(ValueError, match="resize must be at least 1"):
        RandomResizedCrop(resize=0)


def test_classification():
    assert set(CLASSIFICATION) == {n for n, e in CATALOGUE.items() if e.task == "classification"}
    for name, pair in CLASSIFICATION.items():
        side = CATALOGUE[name].side
        assert pair.train.size == side
        assert PIXELS[pair.pixels].channels == 3
        image = noise(side, side)
        assert np.array_equal(pair.test(image, ()), np.asarray(image))
    digits = CLASSIFICATION["svhn"].train
    assert digits.flip == 0  # a mirrored digit is none
    assert CLASSIFICATION["cifar10"].train.flip == 0.5
    draws = [uniforms(0, 0, i, 3)[2] for i in range(500)]
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
