import json
import os

import numpy as np
import pytest
from PIL import Image

from benchmark_imitations import (
    MAKERS,
    cars196_folders,
    cars196_halves,
    cifar10_binary,
    cub200,
    inshop,
    save_picture,
    sop,
    svhn,
    tiny_imagenet,
)
from proxysynth.data import (
    CATALOG,
    UnreadableImages,
    check_benchmark,
    open_data,
    open_image,
    prepare_benchmark,
)
from proxysynth.data.benchmarks import opening
from proxysynth.values import encode


@pytest.mark.parametrize("name", MAKERS)
def test_complete_copy_is_accepted(tmp_path, monkeypatch, name):
    root = MAKERS[name](tmp_path, monkeypatch)
    seen = []
    report = check_benchmark(name, root, workers=2, tick=lambda *at: seen.append(at))
    assert report.complete
    assert report.accepted
    assert report.missing == report.extra == report.unreadable == ()
    assert report.pictures == {part: (n, n) for part, n in CATALOG[name].pictures.items()}
    assert report.describe().splitlines()[-1] == "complete"
    if CATALOG[name].side != 32:  # pictures in memory need no reading
        assert seen == [(1, "")] * sum(CATALOG[name].pictures.values())
    json.dumps(encode(report))


def test_missing_extra_and_unreadable_files_are_reported(tmp_path, monkeypatch):
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
    assert "train: 4 of 5 images, 2 of 2 classes" in text
    assert "missing: 1: images/001.Auk/0.jpg" in text
    assert "extra: 2: images/001.Auk/notes.txt, images/005.Eider/mine.jpg" in text
    assert "unreadable: 2: images/003.Crow/2.jpg (it is an HTML page" in text
    assert text.splitlines()[-1] == "not complete"


def test_incomplete_copy_is_accepted_only_on_request(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    page = root / "images" / "001.Auk" / "0.jpg"
    page.unlink()
    assert not check_benchmark("cub200", root).accepted
    report = check_benchmark("cub200", root, incomplete=True)
    assert report.accepted
    assert not report.complete
    assert report.describe().splitlines()[-1] == "not complete, accepted"
    page.write_text("<html>")  # what cannot be read is not accepted
    assert not check_benchmark("cub200", root, incomplete=True).accepted


def test_extra_files_are_accepted(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    for i in range(7):
        save_picture(root / "images" / "001.Auk" / f"extra{i}.jpg")
    report = check_benchmark("cub200", root)
    assert report.complete
    assert report.accepted
    assert "and 2 more" in report.describe()


def test_missing_and_damaged_batch_files_are_reported(tmp_path, monkeypatch):
    root = cifar10_binary(tmp_path / "c", monkeypatch)
    (root / "data_batch_4.bin").unlink()
    (root / "data_batch_5.bin").write_bytes(b"\0" * 100)
    report = check_benchmark("cifar10", root, incomplete=True)
    assert report.missing == ("data_batch_4.bin",)
    assert [file for file, _ in report.unreadable] == ["data_batch_5.bin"]
    assert report.pictures["train"] == (12, 20)
    assert not report.accepted
    root = svhn(tmp_path / "s", monkeypatch)
    (root / "test_32x32.mat").unlink()
    report = check_benchmark("svhn", root, incomplete=True)
    assert report.missing == ("test_32x32.mat",)
    assert not report.accepted  # nothing to test on


def test_more_images_than_published_are_rejected(tmp_path, monkeypatch):
    root = MAKERS["tiny_imagenet"](tmp_path, monkeypatch)
    save_picture(root / "train" / "n02124075" / "images" / "mine.jpg")
    report = check_benchmark("tiny_imagenet", root, incomplete=True)
    assert report.pictures["train"] == (10, 9)
    assert not report.accepted


def test_report_notes_the_inshop_misprint(tmp_path, monkeypatch):
    report = check_benchmark("inshop", MAKERS["inshop"](tmp_path, monkeypatch))
    assert "28,760" in report.describe()


def test_missing_copy_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="holds no copy of CUB-200-2011"):
        check_benchmark("cub200", tmp_path)
    with pytest.raises(ValueError, match="unknown benchmark 'birds'"):
        check_benchmark("birds", tmp_path)


def test_rejection_suggests_a_fix(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    (root / "images/003.Crow/2.jpg").unlink()
    lacking = check_benchmark("cub200", root)
    assert "--allow-incomplete" in lacking.refusal
    for bird in (*root.glob("images/003*/*"), *root.glob("images/004*/*")):
        bird.unlink()
    halved = check_benchmark("cub200", root, incomplete=True)
    assert not halved.accepted
    assert "has no test images" in halved.refusal
    (root / "images/001.Auk/0.jpg").write_text("<!DOCTYPE html><html>")
    page = check_benchmark("cub200", root, incomplete=True).refusal
    assert "images/001.Auk/0.jpg (it is an HTML page" in page
    assert "--allow-incomplete" not in page


LAYOUTS = {
    "cub200": cub200,
    "cars196": MAKERS["cars196"],
    "cars196 in halves": cars196_halves,
    "cars196 in folders": cars196_folders,
    "sop": sop,
    "inshop": lambda root, patch: inshop(root, patch, "Eval", "Img"),
    "tiny_imagenet": tiny_imagenet,
}


def parts(splits):
    return [part for part in (splits.train, splits.query, splits.gallery) if part is not None]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_prepared_copy_loads_identically(tmp_path, monkeypatch, layout):
    name = layout.split()[0]
    root, out = LAYOUTS[layout](tmp_path / "root", monkeypatch), tmp_path / "out"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    made = prepare_benchmark(name, root, out, side=20, workers=2)
    old, new = open_data(f"{name}:{root}"), open_data(f"{name}:{out}")
    assert new.fingerprint() == old.fingerprint()
    assert new.train.root == out
    assert made.written == sum(len(part) for part in parts(old))
    assert (made.kept, made.unreadable, made.root) == (0, (), str(out))
    for part in parts(new):
        for i in range(len(part)):
            assert min(open_image(part.path(i)).size) == 20
    assert check_benchmark(name, out).complete
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_resized_images_are_saved_in_high_quality(tmp_path, monkeypatch):
    root = cub200(tmp_path / "root", monkeypatch, size=(300, 200))
    smooth = np.add.outer(np.arange(200), np.arange(300))[..., None].repeat(3, 2) // 2
    picture = root / "images" / "001.Auk" / "0.jpg"
    Image.fromarray(smooth.astype(np.uint8)).save(picture, quality=98)
    prepare_benchmark("cub200", root, tmp_path / "out", side=100)
    with Image.open(tmp_path / "out" / "images" / "001.Auk" / "0.jpg") as made:
        assert made.format == "JPEG"
        assert made.size == (150, 100)
        near = np.abs(np.asarray(made).astype(int) - open_image(picture, side=100))
        assert near.mean() < 1
        # The table that quality 95 stands for.
        other = tmp_path / "other.jpg"
        Image.fromarray(smooth.astype(np.uint8)).save(other, quality=95)
        with Image.open(other) as same:
            assert made.quantization == same.quantization


def test_small_images_are_copied_unchanged(tmp_path, monkeypatch):
    root, out = cub200(tmp_path / "root", monkeypatch), tmp_path / "out"
    prepare_benchmark("cub200", root, out)  # 48 x 36, and 256 are allowed
    for path in (root / "images").rglob("*.jpg"):
        assert (out / path.relative_to(root)).read_bytes() == path.read_bytes()
    for name in ("images.txt", "image_class_labels.txt", "classes.txt"):
        assert (out / name).read_bytes() == (root / name).read_bytes()
    assert not (out / "bounding_boxes.txt").exists()


def test_interrupted_preparation_resumes(tmp_path, monkeypatch):
    root, out = cub200(tmp_path / "root", monkeypatch), tmp_path / "out"

    shrunken_so_far = []

    def stop(path, **how):
        shrunken_so_far.append(path)
        if len(shrunken_so_far) > 4:
            raise KeyboardInterrupt
        return open_image(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(opening, "open_image", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare_benchmark("cub200", root, out, side=20)
    there = {path: path.read_bytes() for path in out.rglob("*.jpg")}
    assert len(there) == 4
    seen = []
    made = prepare_benchmark("cub200", root, out, side=20, tick=lambda *at: seen.append(at))
    assert made.kept == len(there)
    assert made.written == 11 - len(there)
    assert seen == [(1, "")] * 11
    assert all(path.read_bytes() == data for path, data in there.items())
    assert not list(out.rglob(".unfinished-*"))
    assert open_data(f"cub200:{out}").fingerprint() == open_data(f"cub200:{root}").fingerprint()
    assert prepare_benchmark("cub200", root, out, side=20).written == 0


def test_images_are_written_atomically(tmp_path, monkeypatch):
    root, out = cub200(tmp_path / "root", monkeypatch), tmp_path / "out"

    def full(source, target):
        if str(target).endswith(".jpg"):
            raise OSError(28, "No space left on device")
        return rename(source, target)

    rename = os.replace
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ValueError, match=r"cannot write .*\.jpg: no space left on device"):
        prepare_benchmark("cub200", root, out, side=20)
    assert not list(out.rglob("*.jpg"))
    assert not list(out.rglob(".unfinished-*"))


def test_unreadable_images_are_reported_at_the_end(tmp_path, monkeypatch):
    root, out = cub200(tmp_path / "root", monkeypatch), tmp_path / "out"
    page = root / "images" / "003.Crow" / "0.jpg"
    whole = page.read_bytes()
    page.write_text("<!DOCTYPE html>")
    with pytest.raises(UnreadableImages, match="1 of 11 images cannot be read: .*HTML page"):
        prepare_benchmark("cub200", root, out, side=20)
    assert len(list(out.rglob("*.jpg"))) == 10
    made = prepare_benchmark("cub200", root, out, side=20, incomplete=True)
    assert [file for file, _ in made.unreadable] == ["images/003.Crow/0.jpg"]
    assert len(open_data(f"cub200:{out}", incomplete=True).query) == 5
    page.write_bytes(whole)  # repaired: only this one is left to do
    assert prepare_benchmark("cub200", root, out, side=20).written == 1
    assert len(open_data(f"cub200:{out}").query) == 6


def test_incomplete_source_is_rejected_unless_allowed(tmp_path, monkeypatch):
    root, out = cub200(tmp_path / "root", monkeypatch), tmp_path / "out"
    (root / "images" / "001.Auk" / "0.jpg").unlink()
    with pytest.raises(ValueError, match="is incomplete .train: 4 of 5 images"):
        prepare_benchmark("cub200", root, out)
    assert not out.exists()
    assert prepare_benchmark("cub200", root, out, incomplete=True).written == 10
    assert len(open_data(f"cub200:{out}", incomplete=True).train) == 4


def test_invalid_arguments_are_rejected(tmp_path, monkeypatch):
    root = cub200(tmp_path / "root", monkeypatch)
    for out in (root, root / "small", tmp_path / "root" / "images"):
        with pytest.raises(ValueError, match="outside"):
            prepare_benchmark("cub200", root, out)
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(ValueError, match="outside"):
        prepare_benchmark("cub200", root, tmp_path / "link" / "small")
    with pytest.raises(ValueError, match="side must be >= 1"):
        prepare_benchmark("cub200", root, tmp_path / "out", side=0)
    save_picture(tmp_path / "mine" / "a.jpg")
    with pytest.raises(ValueError, match="holds other files"):
        prepare_benchmark("cub200", root, tmp_path / "mine")
    prepare_benchmark("cub200", root, tmp_path / "out", side=20)
    with pytest.raises(ValueError, match="with another side"):
        prepare_benchmark("cub200", root, tmp_path / "out", side=24)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "tiny_imagenet"])
def test_small_image_benchmarks_are_rejected(tmp_path, monkeypatch, name):
    root = MAKERS[name](tmp_path / "root", monkeypatch)
    with pytest.raises(ValueError, match="256"):
        prepare_benchmark(name, root, tmp_path / "out")
    if name != "tiny_imagenet":
        with pytest.raises(ValueError, match="no image files"):
            prepare_benchmark(name, root, tmp_path / "out", side=16)
    assert not (tmp_path / "out").exists()
