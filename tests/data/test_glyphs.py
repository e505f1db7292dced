import os
import subprocess
import sys
import unicodedata
import warnings

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from proxysynth.data import glyphs
from proxysynth.data.glyphs import (
    ALIKE,
    FACES,
    alphabet,
    centered,
    draw,
    fill,
    font,
    has_ink,
    outline,
)

MODULE = sys.modules["proxysynth.data.glyphs"]  # the package's attribute is the function


def test_default_glyphs_match_expected_fingerprint():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        splits = glyphs()
    assert splits.fingerprint() == MODULE.EXPECTED


def test_default_glyphs_have_100_train_and_100_test_classes():
    splits = glyphs()
    for listing in (splits.train, splits.query):
        assert listing.pixels.shape == (1600, 32, 32)
        assert listing.pixels.dtype == np.uint8
        assert (listing.counts() == 16).all()
        assert len(listing.classes) == 100
    assert set(splits.train.classes).isdisjoint(splits.query.classes)
    assert splits.remarks() == ()


def test_glyphs_are_black_on_white_and_centered():
    pixels = glyphs().train.pixels
    assert (pixels.max(axis=(1, 2)) == 255).all()
    assert (pixels.min(axis=(1, 2)) < 128).all()
    border = np.concatenate([pixels[:, [0, -1]].reshape(-1), pixels[:, :, [0, -1]].reshape(-1)])
    assert (border == 255).mean() > 0.999


def test_names_contain_character_and_face():
    train = glyphs().train
    where = train.names.index("U+0048/DejaVuSerif-Italic")
    assert train.classes[train.labels[where]] == "U+0048 LATIN CAPITAL LETTER H"


def test_seed_changes_the_classes():
    one, two = glyphs(8, 6, seed=1), glyphs(8, 6, seed=2)
    assert one.train.classes != two.train.classes
    assert one.query.classes != two.query.classes
    assert one.fingerprint() == glyphs(8, 6, seed=1).fingerprint()


def test_test_set_does_not_depend_on_training_size():
    small, large = glyphs(5, 6, seed=3), glyphs(20, 6, seed=3, faces_per_class=14)
    assert small.query.fingerprint() == large.query.fingerprint()
    assert (large.train.counts() == 14).all()
    assert set(large.train.classes).isdisjoint(large.query.classes)


def test_faces_are_sampled_per_character():
    train = glyphs(20, 2, faces_per_class=14).train
    chosen = {}
    for name, label in zip(train.names, train.labels, strict=True):
        chosen.setdefault(int(label), set()).add(name.split("/")[1])
    assert len({frozenset(faces) for faces in chosen.values()}) > 5


@pytest.mark.slow
def test_many_classes():
    splits = glyphs(800, 100, faces_per_class=12)
    assert len(splits.train) == 9600
    assert glyphs(800, 100, faces_per_class=5).train.counts().tolist() == [5] * 800


def test_glyphs_are_fast_and_identical_in_a_new_process(tmp_path):
    code = (
        "import time; from proxysynth.data import glyphs; t = time.process_time(); "
        "print(glyphs().fingerprint(), time.process_time() - t)"
    )
    environment = {**os.environ, "PROXYSYNTH_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    times = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found, seconds = done.stdout.split()
        assert found == MODULE.EXPECTED
        times.append(float(seconds))
    assert times[0] < 20, "drawn in seconds"
    assert times[1] < times[0] / 4, "read from the cache"


def test_cache_folder_is_optional(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path / "file" / "cache"))
    assert len(glyphs(3, 2).train) == 48


@pytest.mark.parametrize("damage", [b"", b"not an archive", None])
def test_damaged_cache_is_redrawn(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path))
    first = glyphs(3, 2)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert glyphs(3, 2).fingerprint() == first.fingerprint()
    assert file.read_bytes() == whole


def test_malicious_cache_is_not_executed(tmp_path, monkeypatch):
    class Trap:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'sprung'}",)

    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path))
    glyphs(3, 2)
    (file,) = tmp_path.glob("*.npz")
    trap = np.array([Trap()], dtype=object)
    with open(file, "wb") as stream:
        np.savez(stream, pairs=trap, pixels=trap)
    assert len(glyphs(3, 2).train) == 48
    assert not (tmp_path / "sprung").exists()


def test_changed_fonts_give_a_warning(monkeypatch):
    monkeypatch.setattr(MODULE, "EXPECTED", "another")
    with pytest.warns(UserWarning, match="fonts have changed"):
        glyphs()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"faces_per_class": 17}, "faces_per_class"),
        ({"faces_per_class": 4}, "faces_per_class"),
        ({"train_classes": 1}, "at least 2 train_classes"),
        ({"test_classes": 10_000}, "too many"),
        ({"train_classes": 10_000}, "too many"),
    ],
)
def test_invalid_input_is_rejected(fields, words):
    with pytest.raises(ValueError, match=words):
        glyphs(**fields)


def test_query_and_gallery_faces_are_disjoint():
    splits = glyphs(6, 5, query_faces=4)
    assert splits.gallery is not None
    faces = [{name.split("/")[1] for name in part.names} for part in (splits.query, splits.gallery)]
    assert [len(found) for found in faces] == [4, 12]
    assert not faces[0] & faces[1]
    assert (len(splits.query), len(splits.gallery)) == (20, 60)
    assert set(splits.query.classes) == set(glyphs(6, 5).query.classes)
    assert not set(splits.query.classes) & set(splits.train.classes)


def test_faces_split_for_classification():
    splits = glyphs(6, 5, test_faces=4)
    assert splits.train.classes == splits.query.classes == glyphs(6, 5).train.classes
    assert (len(splits.train), len(splits.query)) == (72, 24)
    assert not set(splits.train.names) & set(splits.query.names)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"query_faces": 16}, "query_faces must be"),
        ({"test_faces": -1}, "test_faces must be"),
        ({"test_faces": 4, "query_faces": 4}, "choose one"),
        ({"test_faces": 4, "faces_per_class": 12}, "needs all 16 faces"),
    ],
)
def test_invalid_face_splits_are_rejected(options, told):
    with pytest.raises(ValueError, match=told):
        glyphs(6, 5, **options)


def test_distorted_glyphs_keep_characters_for_any_count():
    plain, made = glyphs(6, 5), glyphs(6, 5, distortion=1.0, pictures_per_class=20)
    for one, other in ((plain.train, made.train), (plain.query, made.query)):
        assert other.classes == one.classes
        assert (other.counts() == 20).all()
        assert len(set(other.names)) == len(other)
        assert len({image.tobytes() for image in other.pixels}) == len(other)
    again = glyphs(6, 5, distortion=1.0, pictures_per_class=20)
    assert again.fingerprint() == made.fingerprint()
    # An image depends on the seed, the character and its number, not on how many there are.
    fewer = glyphs(6, 5, distortion=1.0, pictures_per_class=3).query
    assert fewer.pixels[:3].tobytes() == made.query.pixels[:3].tobytes()


def test_distortion_increases_with_strength():
    plain = glyphs(6, 5).query
    apart = [
        np.abs(glyphs(6, 5, distortion=s).query.pixels.astype(float) - plain.pixels).mean()
        for s in (0.01, 0.3, 1.0, 2.0)
    ]
    assert apart[0] < 2
    assert sorted(apart) == apart


def test_distorted_query_and_classification_splits():
    asked = {"distortion": 0.5, "pictures_per_class": 32}
    shop, classes = glyphs(6, 5, query_faces=4, **asked), glyphs(6, 5, test_faces=4, **asked)
    assert (len(shop.query), len(shop.gallery)) == (5 * 8, 5 * 24)
    assert (len(classes.train), len(classes.query)) == (6 * 24, 6 * 8)


@pytest.mark.parametrize(
    "options",
    [{"distortion": -1.0}, {"pictures_per_class": 5}, {"distortion": 1, "pictures_per_class": -1}],
)
def test_distortion_out_of_range_is_rejected(options):
    with pytest.raises(ValueError, match=next(reversed(options))):
        glyphs(6, 5, **options)


@pytest.fixture(scope="module")
def complete():
    return alphabet(16)


def test_sixteen_distinct_faces():
    assert len(FACES) == len(set(FACES)) == 16
    styles = {(font(face).family_name, font(face).style_name) for face in FACES}
    assert len(styles) == 16


def test_every_character_is_text_and_available_in_every_face(complete):
    assert len(complete) > 500
    for code, faces in complete:
        assert faces == FACES
        assert unicodedata.category(chr(code))[0] in "LNPS"
        assert all(code in set(font(face).get_charmap()) for face in faces)
    kinds = {unicodedata.category(chr(code)) for code, _ in complete}
    assert kinds.isdisjoint({"Mn", "Mc", "Me", "Zs", "Cc", "Cf", "Co", "So", "Sk"})


def test_look_alikes_are_deduplicated(complete):
    codes = {code for code, _ in complete}
    assert ord("A") in codes
    assert codes.isdisjoint({0x0391, 0x0410})  # Alpha, Cyrillic A
    assert ord("I") in codes
    assert ord("l") not in codes  # a bar as well, without serifs
    assert {ord("o"), ord("O"), ord("e"), ord("é"), ord("è")} <= codes


def test_no_two_characters_look_alike(complete):
    ink = draw([(code, FACES[0]) for code, _ in complete[:150]]).astype(np.float64)
    for i in range(150):
        for j in range(i):
            apart = ((ink[i] - ink[j]) ** 2).sum()
            assert apart >= ALIKE * max((ink[i] ** 2).sum(), (ink[j] ** 2).sum())


def test_fewer_faces_only_add_characters(complete):
    more = alphabet(14)
    assert more[: len(complete)] == complete
    assert all(14 <= len(faces) < 16 for _, faces in more[len(complete) :])
    assert len(more) > len(complete)
    codes = [code for code, _ in more]
    assert len(codes) == len(set(codes))


def test_missing_font_is_reported(monkeypatch, tmp_path):
    import matplotlib

    monkeypatch.setattr(matplotlib, "get_data_path", lambda: str(tmp_path))
    with pytest.raises(ValueError, match=r"font Gone\.ttf is missing"):
        font("Gone")


def polygon(*corners):
    """A closed contour in pixels."""
    points = np.array(corners, dtype=np.float64)
    return np.concatenate([points, np.roll(points, -1, axis=0)], axis=1)


def test_fill_covers_rectangle_area():
    made = fill([polygon((1.25, 2), (4.5, 2), (4.5, 5.5), (1.25, 5.5))])[0] / 255
    assert made[2:5, 2:4].min() == 1
    np.testing.assert_allclose(made[2:5, 1], 0.75, atol=0.003)
    np.testing.assert_allclose(made[2:5, 4], 0.5, atol=0.003)
    np.testing.assert_allclose(made[5, 2:4], 0.5, atol=0.003)
    assert made.sum() == pytest.approx(3.25 * 3.5, abs=0.05)
    assert made[:2].max() == made[6:].max() == made[:, 5:].max() == 0


def test_reversed_inner_contour_is_a_hole():
    square = polygon((1, 1), (7, 1), (7, 7), (1, 7))
    inner = polygon((3, 3), (5, 3), (5, 5), (3, 5))
    backwards = inner[:, [2, 3, 0, 1]]
    assert np.array_equal(fill([square]), fill([square[:, [2, 3, 0, 1]]]))
    assert np.array_equal(fill([np.concatenate([square, inner])]), fill([square]))
    with_hole = fill([np.concatenate([square, backwards])])[0]
    assert with_hole[3:5, 3:5].max() == 0
    assert with_hole.sum() == 255 * (36 - 4)


def test_fill_matches_supersampled_polygon():
    corners = ((1.3, 0.7), (7.1, 3.2), (4.4, 7.6), (2.2, 5.0))
    fine = 64
    image = Image.new("1", (8 * fine, 8 * fine))
    ImageDraw.Draw(image).polygon([(x * fine, y * fine) for x, y in corners], fill=1)
    expected = np.asarray(image).reshape(8, fine, 8, fine).mean(axis=(1, 3))
    made = fill([polygon(*corners)])[0] / 255
    assert np.abs(made[:8, :8] - expected).max() < 0.03
    assert made[8:].max() == made[:, 8:].max() == 0


@pytest.mark.parametrize("face", [FACES[0], FACES[7], FACES[10], FACES[15]])
def test_glyphs_match_pillow(face):
    """Drawn sixteen times larger by Pillow, then averaged down, the middle in the middle."""
    side, em, fine = 32, 28, 16  # as `centered` and `fill` draw
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
        made = fill([centered(outline(font(face), ord(character)))])[0] / 255
        assert np.abs(made - expected).mean() < 0.006, character
        assert np.abs(made - expected).max() < 0.15, character


def test_bounding_box_is_centered_and_large_glyphs_are_shrunk():
    for character in "j.W":  # W is 31 pixels wide before it is shrunk
        made = fill([centered(outline(font("DejaVuSans-Bold"), ord(character)))])[0]
        rows, columns = np.flatnonzero(made.any(axis=1)), np.flatnonzero(made.any(axis=0))
        for place in (rows, columns):
            assert abs((place[0] + place[-1]) / 2 - 15.5) <= 0.5
            assert place[-1] - place[0] + 1 <= 30 + 2


def test_batch_drawing_matches_single_drawing():
    pairs = [(code, "STIXGeneral") for code in range(0x391, 0x3C9) if code != 0x3A2] * 2
    assert np.array_equal(draw(pairs), np.concatenate([draw([one]) for one in pairs]))


def test_blank_glyphs_have_no_ink():
    assert set(font("DejaVuSans").get_charmap()) >= {ord("A"), 0x2800}
    assert has_ink(font("DejaVuSans"), ord("A"))
    assert not has_ink(font("DejaVuSans"), 0x2800)  # the blank Braille cell
    empty = outline(font("DejaVuSans"), 0x2800)
    assert empty.shape == (0, 4)
    assert fill([centered(empty)]).max() == 0
    assert draw([]).shape == (0, 32, 32)
