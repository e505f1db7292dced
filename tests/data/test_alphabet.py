import unicodedata

import numpy as np
import pytest

from proxysynth.data.alphabet import ALIKE, FACES, alphabet, draw_characters, font
from proxysynth.data.outlines import characters


@pytest.fixture(scope="module")
def complete():
    return alphabet(16)


def test_sixteen_faces():
    assert len(FACES) == len(set(FACES)) == 16
    styles = {(font(face).family_name, font(face).style_name) for face in FACES}
    assert len(styles) == 16


def test_every_character_is_text_and_in_every_face(complete):
    assert len(complete) > 500
    for code, faces in complete:
        assert faces == FACES
        assert unicodedata.category(chr(code))[0] in "LNPS"
        assert all(code in characters(font(face)) for face in faces)
    kinds = {unicodedata.category(chr(code)) for code, _ in complete}
    assert kinds.isdisjoint({"Mn", "Mc", "Me", "Zs", "Cc", "Cf", "Co", "So", "Sk"})


def test_look_alikes_are_kept_once(complete):
    codes = {code for code, _ in complete}
    assert ord("A") in codes
    assert codes.isdisjoint({0x0391, 0x0410})  # Alpha, Cyrillic A
    assert ord("I") in codes
    assert ord("l") not in codes  # a bar as well, without serifs
    assert {ord("o"), ord("O"), ord("e"), ord("é"), ord("è")} <= codes


def test_no_two_are_alike(complete):
    ink = draw_characters([(code, FACES[0]) for code, _ in complete[:150]]).astype(np.float64)
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


def test_a_missing_font_is_named(monkeypatch, tmp_path):
    import matplotlib

    monkeypatch.setattr(matplotlib, "get_data_path", lambda: str(tmp_path))
    with pytest.raises(ValueError, match=r"font Gone\.ttf is missing"):
        font("Gone")
