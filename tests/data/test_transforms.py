import math
import random

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from protocol_transforms import CLASSIFICATION, CONVENTIONAL, MLRC, MLRC_AS_PRINTED
from proxysynth.data import CATALOG, PIXELS, AsIs, CenterCrop, PadCrop, RandomResizedCrop
from proxysynth.data.transforms import TRIES, resized, uniforms


def noise(width, height, seed=0):
    made = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(made)


def slow_crop(width, height, scale, ratio, draw):
    """The definition, written again with another source of randomness."""
    for _ in range(10):
        area = width * height * draw.uniform(*scale)
        aspect = math.exp(draw.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return draw.randint(0, width - w), draw.randint(0, height - h), w, h
    raise AssertionError("no part fits")


@pytest.mark.parametrize(("width", "height"), [(500, 375), (300, 300), (200, 300)])
def test_crop_distribution_matches_reference(width, height):
    crop = RandomResizedCrop(scale=(0.08, 1.0))
    draw = random.Random(1)
    ours, theirs = [], []
    for i in range(4000):
        left, top, right, bottom = crop.box(width, height, uniforms(5, 0, i, crop.draws))
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        w, h = right - left, bottom - top
        centre = left / max(1, width - w), top / max(1, height - h)
        ours.append((w * h, w / h, *centre))
        left, top, w, h = slow_crop(width, height, crop.scale, crop.ratio, draw)
        theirs.append((w * h, w / h, left / max(1, width - w), top / max(1, height - h)))
    for mine, other in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
        assert stats.ks_2samp(mine, other).pvalue > 1e-3


def test_crop_area_is_uniform_and_ratio_log_uniform():
    crop = RandomResizedCrop(scale=(0.1, 0.4))
    boxes = [crop.box(4000, 4000, uniforms(0, 1, i, crop.draws)) for i in range(4000)]
    sides = np.array([(right - left, bottom - top) for left, top, right, bottom in boxes])
    area = sides.prod(axis=1) / 4000**2
    assert stats.kstest(area, stats.uniform(0.1, 0.3).cdf).pvalue > 1e-3
    spread = math.log(16 / 9)
    ratio = np.log(sides[:, 0] / sides[:, 1])
    assert stats.kstest(ratio, stats.uniform(-spread / 2, spread).cdf).pvalue > 1e-3


def test_crop_matches_manual_crop_and_resize():
    image = noise(80, 60)
    crop = RandomResizedCrop(32, flip=0.0)
    for i in range(20):
        u = uniforms(0, 0, i, crop.draws)
        part = image.crop(crop.box(80, 60, u)).resize((32, 32), Image.Resampling.BILINEAR)
        assert np.array_equal(crop(image, u), np.asarray(part))


def test_half_of_crops_are_flipped():
    image = noise(80, 60)
    flipped = 0
    for i in range(400):
        u = uniforms(0, 0, i, RandomResizedCrop.draws)
        straight = RandomResizedCrop(8, flip=0.0)(image, u)
        mirrored = RandomResizedCrop(8, flip=1.0)(image, u)
        assert np.array_equal(straight[:, ::-1], mirrored)
        flipped += np.array_equal(RandomResizedCrop(8)(image, u), mirrored)
    assert stats.binomtest(flipped, 400, 0.5).pvalue > 1e-3


@pytest.mark.parametrize(
    ("width", "height", "box"),
    [
        (1000, 10, (493, 0, 506, 10)),  # wide: 10 high, 13 = round(10 * 4/3) wide
        (10, 1000, (0, 493, 10, 506)),
        (1, 1, (0, 0, 1, 1)),
        (1, 5000, (0, 2499, 1, 2500)),
    ],
)
def test_center_is_used_when_no_crop_fits(width, height, box):
    crop = RandomResizedCrop(16, scale=(1.0, 1.0))
    u = uniforms(0, 0, 0, crop.draws)
    assert crop.box(width, height, u) == box
    assert crop(noise(width, height), u).shape == (16, 16, 3)


def test_random_numbers_depend_only_on_seed_epoch_and_image():
    one = uniforms(1, 2, 3, 23)
    assert one == uniforms(1, 2, 3, 23)
    assert one[:5] == uniforms(1, 2, 3, 5)
    others = [uniforms(9, 2, 3, 23), uniforms(1, 9, 3, 23), uniforms(1, 2, 9, 23)]
    everything = [*one, *(x for other in others for x in other)]
    assert len(set(everything)) == 4 * 23
    assert len(uniforms(-1, 0, 0, 2 * TRIES + 3)) == RandomResizedCrop.draws
    assert all(0 <= x < 1 for x in everything)


def test_random_numbers_are_stable_across_sessions():
    assert uniforms(0, 0, 0, 1) == pytest.approx([0.011546754286331562], abs=1e-15)


def slow_resize(pixels, width, height):
    """Bilinear with averaging: a triangle as wide as the source pixels that one pixel covers."""

    def weights(source, target):
        scale = source / target
        reach = max(scale, 1.0)
        rows = np.zeros((target, source))
        for i in range(target):
            centre = (i + 0.5) * scale
            for j in range(source):
                rows[i, j] = max(0.0, 1 - abs(j + 0.5 - centre) / reach)
            rows[i] /= rows[i].sum()
        return rows

    down, across = weights(pixels.shape[0], height), weights(pixels.shape[1], width)
    return np.einsum("ij,jkc,lk->ilc", down, pixels.astype(np.float64), across)


@pytest.mark.parametrize(("width", "height"), [(50, 37), (37, 50), (20, 31), (28, 28), (31, 28)])
def test_center_crop_resizes_short_side_first(width, height):
    image = noise(width, height)
    made = CenterCrop(resize=28, size=24)(image)
    new = (28 * width // min(width, height), 28 * height // min(width, height))
    full = slow_resize(np.asarray(image), *new)
    left, top = round((new[0] - 24) / 2), round((new[1] - 24) / 2)
    expected = full[top : top + 24, left : left + 24]
    assert made.shape == (24, 24, 3)
    assert np.abs(made - expected).max() <= 1.0


def test_center_crop_without_resize_keeps_pixels():
    image = noise(30, 26)
    made = CenterCrop(resize=26, size=20)(image)
    assert np.array_equal(made, np.asarray(image)[3:23, 5:25])


def test_resized_keeps_aspect_ratio():
    assert resized(noise(500, 375), 256).size == (341, 256)
    assert resized(noise(375, 500), 256).size == (256, 341)
    assert resized(noise(7, 7), 3).size == (3, 3)


def test_very_long_image_uses_bounded_memory():
    made = CenterCrop(256, 224)(Image.new("RGB", (1, 60_000), "red"))
    assert made.shape == (224, 224, 3)
    assert (made == (255, 0, 0)).all()


def test_gray_images_stay_gray():
    grey = noise(40, 30).convert("L")
    assert CenterCrop(16, 12)(grey).shape == (12, 12)
    assert RandomResizedCrop(12)(grey, uniforms(0, 0, 0, 23)).shape == (12, 12)
    assert np.array_equal(AsIs()(grey), np.asarray(grey))


def test_pad_crop_matches_padded_image():
    image = noise(32, 32)
    crop = PadCrop(32, pad=4, flip=0.0)
    padded = np.pad(np.asarray(image), ((4, 4), (4, 4), (0, 0)))
    places = []
    for i in range(2000):
        u = uniforms(0, 0, i, crop.draws)
        left, top = int(u[0] * 9), int(u[1] * 9)
        places.append(9 * top + left)
        if i < 200:
            made = crop(image, u)
            assert np.array_equal(made, padded[top : top + 32, left : left + 32])
            assert np.array_equal(PadCrop(32, pad=4, flip=1.0)(image, u), made[:, ::-1])
    counts = np.bincount(places, minlength=81)
    assert len(counts) == 81
    assert stats.chisquare(counts).pvalue > 1e-3


def test_pad_crop_of_other_sizes():
    grey = Image.fromarray(np.arange(80, dtype=np.uint8).reshape(8, 10))
    assert PadCrop(6, pad=0, flip=0.0)(grey, (0.0, 0.999, 0.5)).tolist() == (
        np.arange(80).reshape(8, 10)[2:, :6].tolist()
    )
    assert PadCrop(10, pad=1)(grey, (0.5, 0.5, 0.9)).shape == (10, 10)
    with pytest.raises(ValueError, match="smaller than the crop of 12"):
        PadCrop(12, pad=1)(grey, (0.5, 0.5, 0.9))


PICTURES = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 3), np.uint8)


@pytest.mark.parametrize("name", PIXELS)
def test_normalize_matches_definition(name):
    convention = PIXELS[name]
    given = PICTURES if convention.channels == 3 else PICTURES[..., :1]
    made = convention.normalize(torch.tensor(given)).numpy()
    assert made.dtype == np.float32
    for at in np.ndindex(given.shape):
        source = (*at[:3], 2 - at[3]) if convention.order == "BGR" else at
        byte = float(given[source])
        mean, std = convention.mean[at[3]], convention.std[at[3]]
        assert made[at] == pytest.approx((byte / convention.unit - mean) / std, abs=2e-5, rel=1e-6)


def test_published_pixel_conventions():
    white = torch.full((1, 1, 1, 3), 255, dtype=torch.uint8)
    red = torch.tensor([[[[255, 0, 0]]]], dtype=torch.uint8)
    assert PIXELS["efficientnet_lite"].normalize(white).ravel().tolist() == [1.0, 1.0, 1.0]
    assert PIXELS["caffe_bgr"].normalize(red).ravel().tolist() == [-104.0, -117.0, 127.0]
    expected = [(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225]
    np.testing.assert_allclose(PIXELS["imagenet"].normalize(red).ravel(), expected, rtol=1e-6)


def test_normalize_does_not_change_input():
    given = torch.from_numpy(PICTURES.copy())
    PIXELS["caffe_bgr"].normalize(given)
    assert np.array_equal(given.numpy(), PICTURES)


def test_normalize_accepts_noncontiguous_input():
    crossed = torch.from_numpy(PICTURES).transpose(1, 2)
    expected = PIXELS["imagenet"].normalize(crossed.contiguous())
    assert torch.equal(PIXELS["imagenet"].normalize(crossed), expected)


def noisy(width, height):
    made = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(made)


def test_protocol_transforms_match_section_c2():
    assert CONVENTIONAL.train == RandomResizedCrop(224, scale=(0.08, 1.0), flip=0.5)
    assert CONVENTIONAL.test == CenterCrop(256, 224)
    assert MLRC.train == RandomResizedCrop(227, (0.16, 1.0), (3 / 4, 4 / 3), 0.5, resize=256)
    assert MLRC.test == MLRC_AS_PRINTED.test == CenterCrop(256, 227)
    assert CONVENTIONAL.pixels == MLRC.pixels == "caffe_bgr"


@pytest.mark.parametrize("pair", [CONVENTIONAL, MLRC, MLRC_AS_PRINTED])
def test_protocol_transforms_give_square_images(pair):
    for size in ((500, 333), (90, 300), (256, 256)):
        image = noisy(*size)
        for i, transform in enumerate((pair.train, pair.test)):
            made = transform(image, uniforms(0, 0, i, transform.draws))
            assert made.shape == (transform.size, transform.size, 3)


def test_printed_crop_sides_range_from_40_to_256():
    train = MLRC_AS_PRINTED.train
    boxes = [train.box(256, 256, uniforms(0, 0, i, train.draws)) for i in range(4000)]
    side = np.array([((r - left) * (b - top)) ** 0.5 for left, top, r, b in boxes])
    assert 39 < side.min() < 60
    assert 250 < side.max() <= 256


def test_short_side_is_resized_before_cropping():
    """The crop is taken of the resized image: as a crop of an image resized beforehand."""
    image = noisy(400, 320)
    small = image.resize((320, 256), Image.Resampling.BILINEAR)
    plain = RandomResizedCrop(227, scale=(0.16, 1.0))
    for i in range(5):
        u = uniforms(0, 0, i, plain.draws)
        assert np.array_equal(MLRC.train(image, u), plain(small, u))


def test_classification_transforms():
    assert set(CLASSIFICATION) == {n for n, e in CATALOG.items() if e.task == "classification"}
    for name, pair in CLASSIFICATION.items():
        side = CATALOG[name].side
        assert pair.train.size == side
        assert PIXELS[pair.pixels].channels == 3
        image = noisy(side, side)
        assert np.array_equal(pair.test(image, ()), np.asarray(image))
    digits = CLASSIFICATION["svhn"].train
    assert digits.flip == 0  # a mirrored digit is none
    assert CLASSIFICATION["cifar10"].train.flip == 0.5
    draws = [uniforms(0, 0, i, 3)[2] for i in range(500)]
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
