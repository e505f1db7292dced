"""Each deformation against its definition: counts, statistics, or scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage, stats

from proxysynth.data import PIXELS, AsIs, CenterCrop, Listing, Loader, in_order
from proxysynth.data.deformations import (
    DEFORMATIONS,
    Cutout,
    Deformed,
    Dropout,
    GaussianBlur,
    GaussianNoise,
    Rotation,
    Shearing,
    Zoom,
    warped,
)

SHAPES = [(40, 40), (40, 40, 3), (30, 50, 3)]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noise(shape, seed: int = 0, low: int = 0) -> np.ndarray:
    return rng(seed).integers(low, 256, shape).astype(np.uint8)


def smooth(shape, seed: int = 0) -> np.ndarray:
    """An image without sharp edges, where two ways to interpolate agree."""
    sigma = (4, 4) + (0,) * (len(shape) - 2)
    made = ndimage.gaussian_filter(rng(seed).normal(size=shape), sigma)
    return (255 * (made - made.min()) / np.ptp(made)).astype(np.uint8)


@pytest.mark.parametrize("name", DEFORMATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_deformations_keep_shape_and_depend_only_on_generator(name, shape) -> None:
    deform, picture = DEFORMATIONS[name], smooth(shape)
    before = picture.copy()
    picture.setflags(write=False)
    made = deform(picture, rng(1))
    assert made.shape == shape
    assert made.dtype == np.uint8
    assert (made == deform(picture, rng(1))).all()
    assert (picture == before).all()
    assert (made != picture).any()
    drawn = any((made != deform(picture, rng(seed))).any() for seed in range(2, 5))
    assert drawn == (name not in ("zoom_in", "zoom_out", "gaussian_blur"))


@pytest.mark.parametrize("shape", SHAPES)
def test_cutout_covers_two_squares(shape) -> None:
    h, w = round(0.2 * shape[0]), round(0.2 * shape[1])
    sizes, corners = set(), []
    for seed in range(300):
        made = Cutout()(np.zeros(shape, np.uint8), rng(seed))
        grey = made.reshape(*shape[:2], -1)
        assert set(np.unique(grey)) == {0, 128}
        assert (grey == grey[..., :1]).all()
        parts, count = ndimage.label(grey[..., 0])
        covered = int((grey[..., 0] == 128).sum())
        assert h * w <= covered <= 2 * h * w
        for rows, columns in ndimage.find_objects(parts):
            if count == 2 and covered == 2 * h * w:
                sizes.add((rows.stop - rows.start, columns.stop - columns.start))
                corners.append((rows.start, columns.start))
    assert sizes == {(h, w)}
    rows, columns = np.array(corners).T
    assert (rows.min(), rows.max()) == (0, shape[0] - h)
    assert (columns.min(), columns.max()) == (0, shape[1] - w)


def test_dropout_blackens_up_to_a_fifth_of_pixels() -> None:
    parts, draw = [], rng()
    for seed in range(300):
        picture = noise((60, 60, 3), seed, low=1)
        made = Dropout()(picture, draw)
        gone = (made == 0).all(2)
        assert (made[~gone] == picture[~gone]).all()
        parts.append(gone.mean())
    # p is uniform in 0..0.2; with 3,600 pixels its own spread is small beside that.
    assert stats.kstest(parts, stats.uniform(0, 0.2).cdf).pvalue > 0.01
    assert max(parts) < 0.2 + 5 * math.sqrt(0.16 / 3600)


def test_dropout_positions_are_uniform() -> None:
    white = np.full((8, 8), 255, np.uint8)
    hits = sum((Dropout(1.0)(white, rng(seed)) == 0).astype(int) for seed in range(400))
    assert stats.chisquare(hits.ravel()).pvalue > 0.01


def seen_through(picture, window):
    """Each pixel asks where in the image it looks; linear in between, by scipy."""
    h, w = picture.shape[:2]
    y = h / 2 + (np.arange(h) + 0.5 - h / 2) * window - 0.5
    x = w / 2 + (np.arange(w) + 0.5 - w / 2) * window - 0.5
    at = np.meshgrid(y, x, indexing="ij")
    return ndimage.map_coordinates(picture.astype(float), at, order=1, mode="constant", cval=0)


@pytest.mark.parametrize(
    ("zoom", "window"),
    [
        (DEFORMATIONS["zoom_in"], 0.5),
        (DEFORMATIONS["zoom_out"], 1.5),
        (Zoom(0.5, opposite=True), 2.0),
        (Zoom(1.5, opposite=True), 2 / 3),
    ],
)
def test_zoom_matches_resampled_window(zoom, window) -> None:
    picture = smooth((60, 60)) // 2 + 100
    made = zoom(picture, rng()).astype(float)
    expected = seen_through(picture, window)
    assert zoom.window == pytest.approx(window)
    if window > 1:
        side = round(60 / window)
        first = (60 - side) // 2
        inside = np.zeros((60, 60), bool)
        inside[first : first + side, first : first + side] = True
        assert (made[~inside] == 0).all()
        assert (made[inside] >= 99).all()
        inner = ndimage.binary_erosion(inside, iterations=2)
        assert np.abs(made - expected)[inner].max() <= 4  # shrinking also averages a little
    else:
        assert np.abs(made - expected)[2:-2, 2:-2].max() <= 1.5
        assert (made > 0).all()


def test_zoom_in_shows_the_center() -> None:
    picture = np.zeros((40, 40), np.uint8)
    picture[10:30, 10:30] = 200
    assert (DEFORMATIONS["zoom_in"](picture, rng()) == 200).all()
    border = np.full((40, 40), 200, np.uint8)
    border[10:30, 10:30] = 0
    assert not DEFORMATIONS["zoom_in"](border, rng()).any()


@pytest.mark.parametrize("shape", [(41, 41), (40, 52)])
def test_warping_matches_scipy_affine_transform(shape) -> None:
    picture = smooth(shape)
    for angle in (-0.5, 0.1, 0.4):
        cos, sin = math.cos(angle), math.sin(angle)
        for matrix in (((cos, -sin), (sin, cos)), ((1.0, math.tan(angle)), (0.0, 1.0))):
            made = warped(picture, matrix).astype(float)
            middle = (np.array(shape) - 1) / 2
            swapped = np.array(matrix)[::-1, ::-1]  # scipy counts rows first
            expected = ndimage.affine_transform(
                picture.astype(float), swapped, middle - swapped @ middle, order=1, cval=-99
            )
            inside = ndimage.binary_erosion(expected >= 0, iterations=2)
            outside = ndimage.binary_erosion(expected == -99, iterations=2)
            assert inside.sum() > 0.5 * inside.size
            assert np.abs(made - expected)[inside].max() <= 1.5
            assert (made[outside] == 0).all()


def lean(picture) -> float:
    """The slope dx / dy of a line through the middle, by least squares."""
    rows, columns = np.nonzero(picture > 100)
    return float(np.polyfit(rows, columns, 1)[0])


@pytest.mark.parametrize("deform", [Rotation(), Shearing()])
def test_angles_are_uniform_within_thirty_degrees(deform) -> None:
    line = np.zeros((61, 61), np.uint8)
    line[:, 29:32] = 255
    draw = rng()
    angles = [math.degrees(math.atan(lean(deform(line, draw)))) for _ in range(300)]
    assert stats.kstest(angles, stats.uniform(-30, 60).cdf).pvalue > 0.01
    assert max(map(abs, angles)) < 31


def test_rotation_tilts_horizontal_line_and_shearing_does_not() -> None:
    """A level line is turned by one and stays level under the other."""
    line = np.zeros((61, 61), np.uint8)
    line[29:32, 20:41] = 255
    turned = [abs(lean(Rotation()(line, rng(seed)).T)) for seed in range(10)]
    leant = [abs(lean(Shearing()(line, rng(seed)).T)) for seed in range(10)]
    assert max(turned) > 0.2
    assert max(leant) < 0.01


def test_noise_is_one_normal_value_per_pixel() -> None:
    sigmas, draw = [], rng()
    for _ in range(300):
        made = GaussianNoise()(np.full((50, 50, 3), 128, np.uint8), draw).astype(float) - 128
        assert (made == made[..., :1]).all()
        values = made[..., 0].ravel()
        sigmas.append(values.std())
        assert abs(values.mean()) < 5 * max(values.std(), 0.3) / 50
    # Above about 40 some values are cut off at 0 and 255, so the largest spreads come out smaller.
    small = [sigma for sigma in sigmas if sigma < 40]
    assert stats.kstest(small, stats.uniform(0, 40).cdf).pvalue > 0.01
    assert stats.binomtest(len(small), len(sigmas), 40 / 51).pvalue > 0.01
    assert 40 < max(sigmas) < 51 * 1.05  # each is measured on 2,500 pixels
    strong = GaussianNoise()(np.full((200, 200), 128, np.uint8), rng(0)).astype(float) - 128
    assert stats.kstest(strong.ravel() / strong.std(), stats.norm.cdf).statistic < 0.03


def test_noise_does_not_wrap_around() -> None:
    for level in (0, 255):
        made = GaussianNoise(50.0)(np.full((40, 40), level, np.uint8), rng(1)).astype(int)
        assert (abs(made - level) < 250).all()


@pytest.mark.parametrize("shape", [(40, 40), (33, 50, 3), (9, 5), (1, 20)])
def test_blur_matches_scipy(shape) -> None:
    picture = noise(shape)
    sigma = (3, 3, 0)[: len(shape)]
    expected = ndimage.gaussian_filter(picture.astype(float), sigma, mode="mirror", truncate=4.0)
    made = GaussianBlur(side=min(shape[:2]))(picture, rng()).astype(float)
    assert np.abs(made - expected).max() <= 0.51


def test_blur_scales_with_image_size() -> None:
    edge = np.repeat(np.arange(64)[:, None] >= 32, 64, axis=1).astype(np.uint8) * 255
    large = edge.repeat(4, axis=0).repeat(4, axis=1)
    small, big = (GaussianBlur(side=32)(image, rng()).astype(float) for image in (edge, large))
    assert np.abs(small - big.reshape(64, 4, 64, 4).mean((1, 3))).max() < 4


def test_loader_deformations_depend_only_on_seed_and_index() -> None:
    pictures = np.repeat(noise((1, 16, 16), low=1), 12, axis=0)
    listing = Listing(
        tuple(map(str, range(12))), np.arange(12) % 3, ("a", "b", "c"), None, pictures
    )

    def made(workers=0, at_once=5, **fields):
        transform = Deformed(AsIs(), Dropout(), 16, **fields)
        loader = Loader(listing, transform, PIXELS["grey"], workers)
        return np.concatenate(
            [b.images.numpy().copy() for b in loader.batches(in_order(12, at_once))]
        )

    first = made()
    assert (made(workers=2, at_once=3) == first).all()
    assert len({picture.tobytes() for picture in first}) == 12
    assert (made(seed=1) != first).any()
    assert (made(stream=1) != first).any()


def test_deformation_follows_the_crop() -> None:
    """The window of a zoom is that of the crop, so the border of the file is never seen."""
    picture = np.zeros((64, 64), np.uint8)
    picture[16:48, 16:48] = 200
    transform = Deformed(CenterCrop(64, 32), Zoom(0.5), 32)
    assert (transform(Image.fromarray(picture), (0.1, 0.2)) == 200).all()
    assert transform.draws == 2
