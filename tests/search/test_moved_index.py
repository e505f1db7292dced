"""An index, its run and its pictures on another machine: moved together, or one by one."""

from __future__ import annotations

import json
import shutil

import pytest
from PIL import Image

from proxysynth.cli import main
from proxysynth.search import Index
from proxysynth.search.build import update_index
from proxysynth.search.model import open_model
from training.tiny_pictures import pictures


@pytest.fixture
def shop(tmp_path, run_folder):
    """A folder with an index, its run and its pictures; they refer to nothing outside."""
    place = tmp_path / "here"
    pictures(place / "data" / "photos", classes=4, each=3)
    shutil.copytree(run_folder, place / "runs" / "shop")
    model = open_model(place / "runs" / "shop")
    (place / "out").mkdir()
    update_index(model, place / "data" / "photos", place / "out" / "shop.index")
    return place


@pytest.fixture
def moved(shop, tmp_path):
    return shop.rename(tmp_path / "there")


@pytest.fixture
def query(tmp_path):
    Image.new("RGB", (32, 32), (200, 90, 10)).save(tmp_path / "query.png")
    return tmp_path / "query.png"


def test_index_moved_with_its_images_and_run(moved, query):
    index = Index.open(moved / "out" / "shop.index")
    assert index.root == moved / "data" / "photos"
    assert index.model.folder == str(moved / "runs" / "shop")
    assert index.missing_images() == ""
    assert len(index.search(query, k=3)) == 3  # by the run, which moved along
    assert index.find(index.path(5)) == 5
    assert index.reload(force=True).root == index.root


def test_copied_index_uses_its_own_images(shop, tmp_path):
    copy = shutil.copytree(shop, tmp_path / "copy")
    assert Index.open(copy / "out" / "shop.index").root == copy / "data" / "photos"
    assert Index.open(shop / "out" / "shop.index").root == shop / "data" / "photos"


def test_index_moved_alone_uses_the_original_images_and_run(shop, tmp_path, query):
    (tmp_path / "elsewhere").mkdir()
    file = (shop / "out" / "shop.index").rename(tmp_path / "elsewhere" / "shop.index")
    index = Index.open(file)
    assert index.root == shop / "data" / "photos"
    assert len(index.search(query, k=3)) == 3


def test_image_folder_option(shop, tmp_path, query, capsys):
    photos = (shop / "data" / "photos").rename(tmp_path / "pictures")
    file = shop / "out" / "shop.index"
    assert "12 of 12" in Index.open(file).missing_images()
    assert Index.open(file, folder=photos).missing_images() == ""
    assert Index.open(file, folder=photos).reload(force=True).root == photos
    with pytest.raises(SystemExit) as end:
        main(["search", str(file), str(query), "-k", "1", "--folder", str(photos), "--json"])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["hits"][0]["file"].startswith(str(photos))
    with pytest.raises(ValueError, match="nowhere"):
        Index.open(file, folder=tmp_path / "nowhere")


def test_a_message_says_where_was_looked_now_before_the_old_place_and_what_to_do(
    shop, tmp_path, query
):
    shutil.rmtree(shop / "data")
    shutil.rmtree(shop / "runs")
    index = Index.open(shop.rename(tmp_path / "there") / "out" / "shop.index")
    with pytest.raises(ValueError, match="--run") as lost:
        index.search(query)
    for message, option, name in (
        (index.missing_images(), "--folder", "data/photos"),
        (str(lost.value), "--run", "runs/shop"),
    ):
        places = [str(tmp_path / "there" / name), str(shop / name), option]
        found = [message.find(place) for place in places]
        assert -1 not in found
        assert found == sorted(found)
    assert (
        Index.open(index.file, folder=tmp_path)
        .missing_images()
        .split(":")[0]
        .endswith(f"in {tmp_path}")
    )


def test_only_a_sample_of_a_large_index_is_checked(shop, monkeypatch):
    index = Index.open(shop / "out" / "shop.index")
    index.path(0).unlink()
    index.path(1).unlink()
    assert "2 of 12" in index.missing_images()
    monkeypatch.setattr("proxysynth.search.index.CHECKED", 6)
    assert "1 of 6" in index.missing_images()


def test_update_after_a_move_embeds_nothing_again(moved):
    model = open_model(moved / "runs" / "shop")
    made = update_index(model, moved / "data" / "photos", moved / "out" / "shop.index")
    assert (made.kept, made.embedded, made.written) == (12, 0, False)
    photos = (moved / "data" / "photos").rename(moved / "pictures")
    made = update_index(model, photos, moved / "out" / "shop.index")
    assert (made.kept, made.embedded, made.written) == (12, 0, True)
    assert Index.open(moved / "out" / "shop.index").root == photos


def test_another_folder_is_rejected_while_the_first_exists(shop):
    pictures(shop / "others", classes=2, each=2)
    model = open_model(shop / "runs" / "shop")
    with pytest.raises(ValueError, match="others"):
        update_index(model, shop / "others", shop / "out" / "shop.index")
