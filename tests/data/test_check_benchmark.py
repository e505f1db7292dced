import json

import pytest

from benchmark_imitations import MAKERS, cifar10_binary, cub200, save_picture, svhn
from proxysynth.data import CATALOGUE, check_benchmark
from proxysynth.values import encode


@pytest.mark.parametrize("name", MAKERS)
def test_a_complete_copy(tmp_path, monkeypatch, name):
    root = MAKERS[name](tmp_path, monkeypatch)
    seen = []
    report = check_benchmark(name, root, workers=2, progress=lambda *at: seen.append(at))
    assert report.complete
    assert report.accepted
    assert report.missing == report.extra == report.unreadable == ()
    assert report.pictures == {part: (n, n) for part, n in CATALOGUE[name].pictures.items()}
    assert report.describe().splitlines()[-1] == "complete"
    if CATALOGUE[name].side != 32:  # pictures in memory need no reading
        total = sum(CATALOGUE[name].pictures.values())
        assert seen == [(i, total) for i in range(1, total + 1)]
    json.dumps(encode(report))


def test_missing_extra_and_unreadable_files(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    birds = root / "images"
    (birds / "001.Auk" / "0.jpg").unlink()
    (birds / "003.Crow" / "2.jpg").write_text("<!DOCTYPE html><html>")
    whole = (birds / "004.Dove" / "1.jpg").read_bytes()
    (birds / "004.Dove" / "1.jpg").write_bytes(whole[: len(whole) // 2])
    save_picture(birds / "005.Eider" / "mine.jpg")
    (birds / "001.Auk" / "notes.txt").write_text("mine")
    (birds / ".DS_Store").write_text("")
    report = check_benchmark("cub200", root)
    assert report.missing == ("images/001.Auk/0.jpg",)
    assert report.extra == ("images/001.Auk/notes.txt", "images/005.Eider/mine.jpg")
    assert [file for file, _ in report.unreadable] == [
        "images/003.Crow/2.jpg",
        "images/004.Dove/1.jpg",
    ]
    assert "HTML page" in report.unreadable[0][1]
    assert report.pictures == {"train": (4, 5), "test": (6, 6)}
    assert not report.complete
    assert not report.accepted
    text = report.describe()
    assert "train: 4 of 5 pictures, 2 of 2 classes" in text
    assert "missing: 1: images/001.Auk/0.jpg" in text
    assert "extra: 2: images/001.Auk/notes.txt, images/005.Eider/mine.jpg" in text
    assert "unreadable: 2: images/003.Crow/2.jpg (it is an HTML page" in text
    assert text.splitlines()[-1] == "not complete"


def test_an_incomplete_copy_is_accepted_only_when_told_to(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    page = root / "images" / "001.Auk" / "0.jpg"
    page.unlink()
    assert not check_benchmark("cub200", root).accepted
    report = check_benchmark("cub200", root, allow_incomplete=True)
    assert report.accepted
    assert not report.complete
    assert report.describe().splitlines()[-1] == "not complete, accepted as it is"
    page.write_text("<html>")  # what cannot be read is not accepted
    assert not check_benchmark("cub200", root, allow_incomplete=True).accepted


def test_extra_files_alone_do_no_harm(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    for i in range(7):
        save_picture(root / "images" / "001.Auk" / f"extra{i}.jpg")
    report = check_benchmark("cub200", root)
    assert report.complete
    assert report.accepted
    assert "and 2 more" in report.describe()


def test_files_of_many_pictures(tmp_path, monkeypatch):
    root = cifar10_binary(tmp_path / "c", monkeypatch)
    (root / "data_batch_4.bin").unlink()
    (root / "data_batch_5.bin").write_bytes(b"\0" * 100)
    report = check_benchmark("cifar10", root, allow_incomplete=True)
    assert report.missing == ("data_batch_4.bin",)
    assert [file for file, _ in report.unreadable] == ["data_batch_5.bin"]
    assert report.pictures["train"] == (12, 20)
    assert not report.accepted
    root = svhn(tmp_path / "s", monkeypatch)
    (root / "test_32x32.mat").unlink()
    report = check_benchmark("svhn", root, allow_incomplete=True)
    assert report.missing == ("test_32x32.mat",)
    assert not report.accepted  # nothing to test on


def test_more_than_was_published(tmp_path, monkeypatch):
    root = MAKERS["tiny_imagenet"](tmp_path, monkeypatch)
    save_picture(root / "train" / "n02124075" / "images" / "mine.jpg")
    report = check_benchmark("tiny_imagenet", root, allow_incomplete=True)
    assert report.pictures["train"] == (10, 9)
    assert not report.accepted


def test_the_note_of_the_misprint(tmp_path, monkeypatch):
    report = check_benchmark("inshop", MAKERS["inshop"](tmp_path, monkeypatch))
    assert "28,760" in report.describe()


def test_no_copy_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="holds no copy of CUB-200-2011"):
        check_benchmark("cub200", tmp_path)
    with pytest.raises(ValueError, match="unknown benchmark 'birds'"):
        check_benchmark("birds", tmp_path)


def test_a_refusal_says_what_helps(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    (root / "images/003.Crow/2.jpg").unlink()
    lacking = check_benchmark("cub200", root)
    assert "accept it with --allow-incomplete" in lacking.refusal()
    for bird in (*root.glob("images/003*/*"), *root.glob("images/004*/*")):
        bird.unlink()
    halved = check_benchmark("cub200", root, allow_incomplete=True)
    assert not halved.accepted
    assert "has no test pictures" in halved.refusal(allow_incomplete=True)
    (root / "images/001.Auk/0.jpg").write_text("<!DOCTYPE html><html>")
    page = check_benchmark("cub200", root, allow_incomplete=True).refusal(allow_incomplete=True)
    assert "images/001.Auk/0.jpg (it is an HTML page" in page
    assert "--allow-incomplete" not in page
