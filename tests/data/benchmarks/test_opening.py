import dataclasses
import json

import pytest

from benchmark_imitations import MAKERS, cub200, save_picture
from proxysynth.data import (
    CATALOG,
    catalog_rows,
    check_splits,
    open_benchmark,
    open_data,
)
from proxysynth.data.benchmarks.readers import READERS


def test_every_benchmark_has_an_imitation():
    assert set(MAKERS) == set(CATALOG) == set(READERS)


@pytest.mark.parametrize("name", MAKERS)
def test_complete_copy_is_accepted(tmp_path, monkeypatch, name):
    root = MAKERS[name](tmp_path, monkeypatch)
    splits = open_data(f"{name}:{root}")
    entry = CATALOG[name]
    found = {"train": splits.train, "query": splits.query, "test": splits.query}
    found["gallery"] = splits.gallery
    for part, count in entry.pictures.items():
        assert len(found[part]) == count
        assert len(found[part].classes) == entry.classes[part]
    shared = set(splits.train.classes) & set(splits.query.classes)
    assert bool(shared) == (entry.task == "classification")
    assert splits.name == name
    assert splits.notes == ()
    assert splits.fingerprint() == open_benchmark(name, root, incomplete=True).fingerprint()


@pytest.mark.parametrize("name", MAKERS)
def test_unexpected_image_count_is_rejected(tmp_path, monkeypatch, name):
    entry = CATALOG[name]
    root = MAKERS[name](tmp_path, monkeypatch)
    made = CATALOG[name].pictures["train"]
    monkeypatch.setitem(CATALOG, name, entry)
    with pytest.raises(ValueError) as caught:
        open_data(f"{name}:{root}")
    text = str(caught.value)
    assert "incomplete" in text
    assert f"of {entry.pictures['train']:,} images" in text
    assert "incomplete=True" in text
    assert "\n" not in text
    if name in ("cub200", "cars196"):  # these few classes are all of the published first half
        with pytest.raises(ValueError, match="has no test images"):
            open_data(f"{name}:{root}", incomplete=True)
    else:
        splits = open_data(f"{name}:{root}", incomplete=True)
        assert len(splits.train) == made
        assert "incomplete" in splits.remarks()[0]


@pytest.mark.parametrize("name", MAKERS)
def test_invalid_roots_are_rejected(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    title = CATALOG[name].title
    for root, words in (
        (tmp_path / "none", "does not exist"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "empty", f"holds no copy of {title}"),
        ("", "needs the folder"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            open_data(f"{name}:{root}")
        assert "\n" not in str(caught.value)
        assert title in str(caught.value)


def test_missing_labeled_image_is_reported(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    (root / "images" / "003.Crow" / "1.jpg").unlink()
    words = r"test: 5 of 6 images, .* lacks .*images/003.Crow/1.jpg: down"
    with pytest.raises(ValueError, match=words):
        open_data(f"cub200:{root}")
    (root / "images" / "003.Crow" / "2.jpg").unlink()
    with pytest.raises(ValueError, match="and 1 other file"):
        open_data(f"cub200:{root}")
    splits = open_data(f"cub200:{root}", incomplete=True)
    assert splits.query.names[:2] == ("images/003.Crow/0.jpg", "images/003.Crow/3.jpg")
    assert splits.notes == (
        "The copy of CUB-200-2011 is incomplete "
        "(train: 5 of 5 images, 2 of 2 classes; test: 4 of 6 images, 2 of 2 classes).",
    )


def test_class_without_images_is_dropped(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    for path in (root / "images" / "001.Auk").iterdir():
        path.unlink()
    words = "train: 2 of 5 images, 1 of 2 classes"
    with pytest.raises(ValueError, match=words):
        open_data(f"cub200:{root}")
    with pytest.raises(ValueError, match="at least 2 seen classes, got 1"):
        open_data(f"cub200:{root}", incomplete=True)


def test_partially_unpacked_archive_is_reported(tmp_path, monkeypatch):
    root = cub200(tmp_path / "CUB_200_2011", monkeypatch)
    (tmp_path / "CUB_200_2011.tgz").write_bytes(b"\x1f\x8b")
    (root / "images").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"train: 0 of 5.*unpack .*CUB_200_2011.tgz first"):
        open_data(f"cub200:{tmp_path}")
    with pytest.raises(ValueError, match=r"no train and no test images: unpack .*tgz first"):
        open_data(f"cub200:{tmp_path}", incomplete=True)


def test_html_page_instead_of_image_is_reported(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    page = root / "images" / "002.Booby" / "1.jpg"
    page.write_text("<!DOCTYPE html><html><body>404 Not Found</body></html>")
    splits = open_data(f"cub200:{root}")  # its name is right; reading it tells
    with pytest.raises(ValueError, match="it is an HTML page") as caught:
        check_splits(splits)
    assert str(page) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unlabeled_images_are_ignored(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    save_picture(root / "images" / "001.Auk" / "mine.jpg")
    assert len(open_data(f"cub200:{root}").train) == 5


def test_invalid_options_are_rejected(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    with pytest.raises(ValueError, match="cub200 has no option 'unseen_fraction'"):
        open_data(f"cub200:{root}", unseen_fraction=0.2)
    with pytest.raises(ValueError, match="unknown benchmark 'cub'"):
        open_benchmark("cub", root)
    with pytest.raises(ValueError, match="write cub200:ROOT"):
        open_data("cub200")


# The paper's section C.1, and the sets' own pages: pictures and classes of each part.
PUBLISHED = {
    "cub200": [(5864, 100), (5924, 100)],
    "cars196": [(8054, 98), (8131, 98)],
    "sop": [(59551, 11318), (60502, 11316)],
    "inshop": [(25882, 3997), (14218, 3985), (12612, 3985)],
    "cifar10": [(50000, 10), (10000, 10)],
    "cifar100": [(50000, 100), (10000, 100)],
    "svhn": [(73257, 10), (26032, 10)],
    "tiny_imagenet": [(100000, 200), (10000, 200)],
}


def test_counts_match_published():
    found = {
        name: list(zip(entry.pictures.values(), entry.classes.values(), strict=True))
        for name, entry in CATALOG.items()
    }
    assert found == PUBLISHED
    assert sum(CATALOG["cub200"].pictures.values()) == 11_788
    assert sum(CATALOG["cars196"].pictures.values()) == 16_185
    assert sum(CATALOG["sop"].pictures.values()) == 120_053
    assert sum(CATALOG["inshop"].pictures.values()) == 52_712


def test_inshop_misprint_is_noted():
    assert "28,760" in CATALOG["inshop"].note
    assert "26,830" in CATALOG["inshop"].note
    pictures = CATALOG["inshop"].pictures
    assert pictures["query"] + pictures["gallery"] == 26_830


def test_every_catalog_entry_has_reader_and_source():
    assert set(CATALOG) == set(READERS)
    for name, entry in CATALOG.items():
        assert entry.name == name
        assert set(entry.pictures) == set(entry.classes)
        assert entry.published.startswith("http")
        for field in ("title", "needs", "license", "size"):
            assert getattr(entry, field)


def test_catalog_rows_are_plain_values():
    rows = catalog_rows()
    assert [row["name"] for row in rows] == list(CATALOG)
    assert json.loads(json.dumps(rows)) == rows
    first = dataclasses.asdict(CATALOG["cub200"])
    assert all(rows[0][key] == list(first[key]) if key == "needs" else rows[0][key] == first[key]
               for key in rows[0])  # fmt: skip
