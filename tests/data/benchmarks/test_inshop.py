import pytest

from benchmark_imitations import inshop
from proxysynth.data import open_data


@pytest.mark.parametrize(("labels", "above"), [("", ""), ("Eval", "Img"), ("Eval", "")])
def test_query_and_gallery(tmp_path, monkeypatch, labels, above):
    splits = open_data(f"inshop:{inshop(tmp_path, monkeypatch, labels, above)}")
    assert splits.train.classes == ("id_00000002", "id_00000003")
    assert splits.train.labels.tolist() == [0, 0, 1]
    assert splits.gallery is not None
    assert (
        splits.query.classes == splits.gallery.classes == tuple(f"id_0000000{i}" for i in (5, 7, 9))
    )
    assert splits.query.labels.tolist() == [1, 0, 2]
    assert splits.gallery.labels.tolist() == [1, 0, 0, 2]
    assert splits.without_positive() == 0
    start = f"{above}/img/" if above else "img/"
    for listing in (splits.train, splits.query, splits.gallery):
        for i, name in enumerate(listing.names):
            assert name.startswith(start)
            assert listing.classes[listing.labels[i]] in name
            assert listing.path(i).is_file()


def test_a_missing_gallery_picture(tmp_path, monkeypatch):
    root = inshop(tmp_path, monkeypatch)
    gone = "img/MEN/Denim/id_00000007/01_2_side.jpg"
    (root / gone).unlink()
    with pytest.raises(ValueError, match=f"list_eval_partition.txt names {gone} which is not"):
        open_data(f"inshop:{root}")
    splits = open_data(f"inshop:{root}", incomplete=True)
    assert splits.gallery is not None
    assert len(splits.gallery) == 3
    assert splits.query.classes == splits.gallery.classes
    assert splits.without_positive() == 1


def test_bad_label_files(tmp_path, monkeypatch):
    root = inshop(tmp_path, monkeypatch)
    file = root / "list_eval_partition.txt"
    whole = file.read_text()
    file.write_text(whole.replace("gallery", "galery", 1))
    with pytest.raises(ValueError, match="line 7 of .* must end in train, query, gallery, got"):
        open_data(f"inshop:{root}")
    file.write_text(whole.partition("\n")[0])
    with pytest.raises(ValueError, match="must start with a line of image_name"):
        open_data(f"inshop:{root}")


def test_packed_pictures(tmp_path, monkeypatch):
    root = inshop(tmp_path, monkeypatch, "Eval", "Img")
    (root / "Img" / "img").rename(tmp_path / "elsewhere")
    (root / "Img" / "img.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match="unpack .*img.zip first") as caught:
        open_data(f"inshop:{root}")
    assert "\n" not in str(caught.value)
