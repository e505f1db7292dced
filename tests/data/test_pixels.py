import numpy as np
import pytest

from proxysynth.data import PIXELS, Pixels

PICTURES = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 3), np.uint8)


@pytest.mark.parametrize("name", PIXELS)
def test_numbers_follow_the_definition(name):
    convention = PIXELS[name]
    given = PICTURES if convention.channels == 3 else PICTURES[..., :1]
    made = convention.numbers(given)
    assert made.dtype == np.float32
    for at in np.ndindex(given.shape):
        source = (*at[:3], 2 - at[3]) if convention.order == "BGR" else at
        byte = float(given[source])
        mean, std = convention.mean[at[3]], convention.std[at[3]]
        assert made[at] == pytest.approx((byte / convention.unit - mean) / std, abs=2e-5, rel=1e-6)


def test_the_three_published_conventions():
    white = np.full((1, 1, 1, 3), 255, np.uint8)
    red = np.array([[[[255, 0, 0]]]], np.uint8)
    assert PIXELS["efficientnet_lite"].numbers(white).ravel().tolist() == [1.0, 1.0, 1.0]
    assert PIXELS["caffe_bgr"].numbers(red).ravel().tolist() == [-104.0, -117.0, 127.0]
    expected = [(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225]
    np.testing.assert_allclose(PIXELS["imagenet"].numbers(red).ravel(), expected, rtol=1e-6)


def test_out_is_filled_and_the_picture_left_alone():
    before = PICTURES.copy()
    out = np.empty(PICTURES.shape, np.float32)
    assert PIXELS["caffe_bgr"].numbers(PICTURES, out=out) is out
    assert np.array_equal(out, PIXELS["caffe_bgr"].numbers(PICTURES))
    assert np.array_equal(PICTURES, before)


def test_mirrored_views_are_read_right():
    mirrored = PICTURES[:, :, ::-1]
    expected = PIXELS["imagenet"].numbers(mirrored.copy())
    assert np.array_equal(PIXELS["imagenet"].numbers(mirrored), expected)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (("HSV", 255.0, (0, 0, 0), (1, 1, 1)), "RGB, BGR or L"),
        (("RGB", 255.0, (0,), (1, 1, 1)), "3 numbers for RGB, got 1 and 3"),
        (("L", 255.0, (0,), (0,)), "above 0"),
        (("L", 0.0, (0,), (1,)), "above 0"),
    ],
)
def test_faults_of_a_convention(fields, words):
    with pytest.raises(ValueError, match=words):
        Pixels(*fields)


@pytest.mark.parametrize("given", [PICTURES[..., 0], PICTURES.astype(np.float32)])
def test_wrong_pictures_are_named(given):
    with pytest.raises(ValueError, match=r"expected uint8 \(..., h, w, 3\)"):
        PIXELS["imagenet"].numbers(given)
