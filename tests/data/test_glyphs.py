import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

from proxysynth.data import glyphs

MODULE = sys.modules["proxysynth.data.glyphs"]  # the package's attribute is the function


def test_the_default_is_what_this_version_draws():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        splits = glyphs()
    assert splits.fingerprint() == MODULE.EXPECTED


def test_a_hundred_and_a_hundred_others_by_sixteen():
    splits = glyphs()
    for listing in (splits.train, splits.test):
        assert listing.pixels.shape == (1600, 32, 32)
        assert listing.pixels.dtype == np.uint8
        assert (listing.counts() == 16).all()
        assert len(listing.classes) == 100
    assert set(splits.train.classes).isdisjoint(splits.test.classes)
    assert splits.remarks() == ()


def test_black_ink_on_white_centred():
    pixels = glyphs().train.pixels
    assert (pixels.max(axis=(1, 2)) == 255).all()
    assert (pixels.min(axis=(1, 2)) < 128).all()
    border = np.concatenate([pixels[:, [0, -1]].reshape(-1), pixels[:, :, [0, -1]].reshape(-1)])
    assert (border == 255).mean() > 0.999


def test_names_tell_character_and_face():
    train = glyphs().train
    where = train.names.index("U+0048/DejaVuSerif-Italic")
    assert train.classes[train.labels[where]] == "U+0048 LATIN CAPITAL LETTER H"


def test_another_seed_is_another_choice():
    one, two = glyphs(8, 6, seed=1), glyphs(8, 6, seed=2)
    assert one.train.classes != two.train.classes
    assert one.test.classes != two.test.classes
    assert one.fingerprint() == glyphs(8, 6, seed=1).fingerprint()


def test_every_size_of_training_shares_one_test():
    small, large = glyphs(5, 6, seed=3), glyphs(20, 6, seed=3, faces_per_class=14)
    assert small.test.fingerprint() == large.test.fingerprint()
    assert (large.train.counts() == 14).all()
    assert set(large.train.classes).isdisjoint(large.test.classes)


def test_each_character_draws_its_own_faces():
    train = glyphs(20, 2, faces_per_class=14).train
    chosen = {}
    for name, label in zip(train.names, train.labels, strict=True):
        chosen.setdefault(int(label), set()).add(name.split("/")[1])
    assert len({frozenset(faces) for faces in chosen.values()}) > 5


@pytest.mark.slow
def test_many_classes_for_studies():
    splits = glyphs(800, 100, faces_per_class=12)
    assert len(splits.train) == 9600
    assert glyphs(800, 100, faces_per_class=5).train.counts().tolist() == [5] * 800


def test_it_is_made_in_seconds_and_the_same_in_a_new_process(tmp_path):
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


def test_no_cache_folder_is_needed(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path / "file" / "cache"))
    assert len(glyphs(3, 2).train) == 48


@pytest.mark.parametrize("damage", [b"", b"not an archive", None])
def test_a_damaged_cache_is_drawn_again(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path))
    first = glyphs(3, 2)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert glyphs(3, 2).fingerprint() == first.fingerprint()
    assert file.read_bytes() == whole


def test_a_cache_that_would_run_code_is_not_run(tmp_path, monkeypatch):
    class Trap:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'sprung'}",)

    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path))
    glyphs(3, 2)
    (file,) = tmp_path.glob("*.npz")
    trap = np.array([Trap()], dtype=object)
    with open(file, "wb") as stream:
        np.savez(stream, codes=trap, faces=trap, pixels=trap)
    assert len(glyphs(3, 2).train) == 48
    assert not (tmp_path / "sprung").exists()


def test_another_renderer_gives_a_warning(monkeypatch):
    monkeypatch.setattr(MODULE, "EXPECTED", "another")
    with pytest.warns(
        UserWarning, match="not another: matplotlib's fonts or the renderer are of another"
    ):
        glyphs()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"faces_per_class": 17}, "must be 5 to 16, got 17"),
        ({"faces_per_class": 4}, "must be 5 to 16, got 4"),
        ({"train_classes": 1}, "at least 2 classes"),
        ({"test_classes": 10_000}, "ask for fewer classes"),
        ({"train_classes": 10_000}, "ask for fewer classes"),
    ],
)
def test_faults_are_named(fields, words):
    with pytest.raises(ValueError, match=words):
        glyphs(**fields)


def test_query_and_gallery_faces_apart():
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
        ({"query_faces": 16}, "query_faces must be 0 to 15"),
        ({"test_faces": -1}, "test_faces must be 0 to 15"),
        ({"test_faces": 4, "query_faces": 4}, "got both"),
        ({"test_faces": 4, "faces_per_class": 12}, "splits all 16 faces"),
    ],
)
def test_faces_that_cannot_be_split(options, told):
    with pytest.raises(ValueError, match=told):
        glyphs(6, 5, **options)
