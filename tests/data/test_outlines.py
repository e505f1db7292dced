import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from proxysynth.data.alphabet import FACES, font
from proxysynth.data.outlines import _fill, characters, draw, has_ink, outline


def polygon(*corners):
    """A closed contour in pixels."""
    points = np.array(corners, dtype=np.float64)
    return np.concatenate([points, np.roll(points, -1, axis=0)], axis=1)


def test_a_rectangle_covers_its_area():
    made = _fill([polygon((1.25, 2), (4.5, 2), (4.5, 5.5), (1.25, 5.5))], 8)[0] / 255
    assert made[2:5, 2:4].min() == 1
    np.testing.assert_allclose(made[2:5, 1], 0.75, atol=0.003)
    np.testing.assert_allclose(made[2:5, 4], 0.5, atol=0.003)
    np.testing.assert_allclose(made[5, 2:4], 0.5, atol=0.003)
    assert made.sum() == pytest.approx(3.25 * 3.5, abs=0.05)
    assert made[:2].max() == made[6:].max() == made[:, 5:].max() == 0


def test_direction_does_not_matter_and_a_hole_is_one_turned_round():
    square = polygon((1, 1), (7, 1), (7, 7), (1, 7))
    inner = polygon((3, 3), (5, 3), (5, 5), (3, 5))
    backwards = inner[:, [2, 3, 0, 1]]
    assert np.array_equal(_fill([square], 8), _fill([square[:, [2, 3, 0, 1]]], 8))
    assert np.array_equal(_fill([np.concatenate([square, inner])], 8), _fill([square], 8))
    with_hole = _fill([np.concatenate([square, backwards])], 8)[0]
    assert with_hole[3:5, 3:5].max() == 0
    assert with_hole.sum() == 255 * (36 - 4)


def test_slanted_edges_against_a_fine_grid():
    corners = ((1.3, 0.7), (7.1, 3.2), (4.4, 7.6), (2.2, 5.0))
    fine = 64
    image = Image.new("1", (8 * fine, 8 * fine))
    ImageDraw.Draw(image).polygon([(x * fine, y * fine) for x, y in corners], fill=1)
    expected = np.asarray(image).reshape(8, fine, 8, fine).mean(axis=(1, 3))
    assert np.abs(_fill([polygon(*corners)], 8)[0] / 255 - expected).max() < 0.03


@pytest.mark.parametrize("face", [FACES[0], FACES[7], FACES[10], FACES[15]])
def test_glyphs_against_pillow_and_its_own_font_library(face):
    """Drawn sixteen times larger by Pillow, then averaged down, the middle in the middle."""
    side, em, fine = 32, 28, 16
    large = ImageFont.truetype(font(face).fname, em * fine, layout_engine=ImageFont.Layout.BASIC)
    for character in "AgQ8ß@йΩ":
        mask, _ = large.getmask2(character, mode="L")
        box = mask.getbbox()
        ink = np.asarray(mask, dtype=np.float64).reshape(mask.size[::-1])
        ink = ink[box[1] : box[3], box[0] : box[2]] / 255
        canvas = np.zeros((side * fine, side * fine))
        top, left = (side * fine - ink.shape[0]) // 2, (side * fine - ink.shape[1]) // 2
        canvas[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
        expected = canvas.reshape(side, fine, side, fine).mean(axis=(1, 3))
        made = draw([outline(font(face), ord(character))], side, em, fit=32)[0] / 255
        assert np.abs(made - expected).mean() < 0.006, character
        assert np.abs(made - expected).max() < 0.15, character


def test_the_bounding_box_is_centred_and_large_glyphs_are_shrunk():
    for character in "j.W":
        made = draw([outline(font("DejaVuSans-Bold"), ord(character))], 32, 28, fit=20)[0]
        rows, columns = np.flatnonzero(made.any(axis=1)), np.flatnonzero(made.any(axis=0))
        for place in (rows, columns):
            assert abs((place[0] + place[-1]) / 2 - 15.5) <= 0.5
            assert place[-1] - place[0] + 1 <= 20 + 2


def test_drawing_many_is_drawing_each():
    outlines = [
        outline(font("STIXGeneral"), code) for code in range(0x391, 0x3C9) if code != 0x3A2
    ] * 2
    together = draw(outlines, 16, 14, 15)
    alone = np.concatenate([draw([one], 16, 14, 15) for one in outlines])
    assert np.array_equal(together, alone)


def test_blank_glyphs():
    assert characters(font("DejaVuSans")) >= {ord("A"), 0x2800}
    assert has_ink(font("DejaVuSans"), ord("A"))
    assert not has_ink(font("DejaVuSans"), 0x2800)  # the blank Braille cell
    empty = outline(font("DejaVuSans"), 0x2800)
    assert empty.shape == (0, 4)
    assert draw([empty], 8, 7, 8).max() == 0
    assert draw([], 8, 7, 8).shape == (0, 8, 8)
